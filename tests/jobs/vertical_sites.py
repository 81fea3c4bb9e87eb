"""Sites of a vertical job as their administrators set them up: tables, keys, policies, and people to predict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from party_files import MAX_GAP, PARTIES, make_people, write_parties
from site_files import LENIENT, Sites, write_sites

from fedpact.federation.policy import SitePolicy

#: What every party allows, where a test is not about it.
ALLOWED: dict[str, Any] = {
    "groups": ["sex"],
    "sent": ["ill", "sex"],
    "label_to": list(PARTIES),
    "ids": ["id"],
    "methods": ["vertical-al", "fair-vfl", "vertical-exact"],
}
#: A site's own limit where it states none: training tells no party's numbers but in sums.
QUESTIONS = SitePolicy.questions
#: Begins every id, which is then too long to be in masked numbers by chance.
WHO = "person-"
FEATURES = [f"x{number}" for numbers in PARTIES.values() for number in numbers]


def write_vertical_sites(folder: Path, **allow: Any) -> Sites:
    """Three parties, each with a table to train on and one of people whom nobody trained on, in other orders."""
    write_parties(folder / "old", make_people(0))
    write_parties(folder / "new", make_people(1), seed=7)
    for table in [*(folder / "old").glob("*.csv"), *(folder / "new").glob("*.csv")]:
        table.write_text(re.sub(r"^p(\d+),", rf"{WHO}\1,", table.read_text(), flags=re.MULTILINE))
    return write_sites(
        folder / "sites",
        {name: folder / "old" / f"{name}.csv" for name in PARTIES},
        features=FEATURES,
        label="ill",
        tasks=["vertical"],
        holdout={name: folder / "new" / f"{name}.csv" for name in PARTIES},
        rules={
            "require": {**LENIENT["require"], "least_people": 20},
            "limit": {**LENIENT["limit"], "questions": QUESTIONS},
        },
        allow={**ALLOWED, **allow},
    )


def write_site_job(path: Path, address: str, sites: Sites, flower: str = "", **keys: Any) -> Path:
    """The job of these sites; keys: of its first part, as TOML."""
    stated: Mapping[str, Any] = {
        "task": '"vertical"',
        "label": '"ill"',
        "label_at": '"bank"',
        "classes": '["no", "yes"]',
        "group": '"sex"',
        "groups": '["F", "M"]',
        "max_gap": MAX_GAP,
        "alignment": '"private"',
        **keys,
    }
    lines = [f"{key} = {value}" for key, value in stated.items()]
    lines += ["[columns]", *(f"{name} = {[f'x{number}' for number in numbers]}" for name, numbers in PARTIES.items())]
    lines += ["[owners]", *(f'{name} = "flower://{address}"' for name in PARTIES)]
    lines += ["[solve]", 'method = "vertical-al"', "tol = 1e-6", "compare = false", "[output]", "messages = true"]
    head, _, rest = sites.toml().partition("\n")
    path.write_text("\n".join([*lines, head, flower, rest]))
    return path
