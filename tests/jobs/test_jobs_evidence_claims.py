"""Every single claim of a signed run, changed: refused, or marked as the coordinator's word at that place.

The coordinator states all digests anew and writes the page anew; the owners' keys are pinned.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import change
from test_jobs_evidence import call, failures, give_keys, places, publics, rewrite

from fedpact.jobs import read_job, run_job
from fedpact.jobs.evaluation import read_evaluations
from fedpact.jobs.evidence_file import read_evidence
from fedpact.jobs.verification import verify_run
from fedpact.report import assurance
from fedpact.report.coefficients import read_coefficients
from fedpact.report.content import Report
from fedpact.report.record import Record
from fedpact.report.sections import report
from fedpact.tasks.base import WORD

pytest.importorskip("cryptography")
pytestmark = pytest.mark.slow  # a run with all that a run may have, and hundreds of verifications

FILES = ("run.json", "certificate.json", "model.json", "task.json", "evaluation.json")
#: Of a list with more entries only the first two are changed: curves and histories have hundreds.
FEW = 2
MARKS = (
    assurance.WORD,
    assurance.WORD_OF_HEAD,
    assurance.WORD_OF_END,
    assurance.WORD_OF_NEWS,
    "the coordinator’s word",
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a promise, a comparison, curves, probabilities and standard errors, and an evaluation of it."""
    from click.testing import CliRunner

    from fedpact.cli.init import init

    folder = tmp_path_factory.mktemp("claims") / "x"
    assert CliRunner().invoke(init, [str(folder)]).exit_code == 0
    change(folder, "\nbound = 0.35", "\nmin_recall = 0.8\nconfidence = 0.9")
    change(folder, "# calibrate = false", "calibrate = true")
    give_keys(folder)
    assert run_job(read_job(folder / "job.toml")).solved
    tables = [f"{owner}={folder / owner}.csv" for owner in ("north", "south", "coast")]
    for table in tables:  # other rows: those that were trained on, in another order, and a few less
        path = Path(table.partition("=")[2])
        head, *lines = path.read_text().splitlines()
        (folder / f"later-{path.name}").write_text("\n".join([head, *lines[:0:-3]]) + "\n")
    later = [one.replace("/x/", "/x/later-") for one in tables]
    done = call("evaluate", folder / "run", *(part for one in later for part in ("--table", one)))
    assert done.exit_code == 0, done.output
    return folder / "run"


@pytest.fixture
def copied(signed: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed.parent, tmp_path / "x")
    return tmp_path / "x" / "run"


def few(way: tuple[Any, ...]) -> bool:
    return all(not isinstance(key, int) or key < FEW for key in way)


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 1.5 + 1
    if value is None:
        return 1
    if isinstance(value, str):
        return f"{value} or so"
    return [*value, 1] if isinstance(value, list) else {**value, "more": 1}


def leaves(content: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every claim: every number and text, and every list and table, which may get an entry."""
    return (way for way in places(content) if few(way))


def put(content: Any, way: tuple[Any, ...], value: Any) -> Any:
    changed = json.loads(json.dumps(content))
    place = changed
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    return changed


def get(content: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        content = content[key]
    return content


def is_found(out: Path, known: dict[str, str], file: str, way: tuple[Any, ...]) -> bool:
    """Whether the change is refused, or marked where it is."""
    if failures(out, **known):
        return True
    return way[0] in json.loads((out / file).read_text()).get(WORD, ())


def try_all(out: Path) -> tuple[int, list[tuple[str, tuple[Any, ...]]]]:
    """How many claims were changed, and those whose change was not found."""
    known = publics(out.parent)
    tried = 0
    missed = []
    for file in FILES:
        before = (out / file).read_text()
        content = json.loads(before)
        for way in leaves(content):
            tried += 1
            (out / file).write_text(json.dumps(put(content, way, other(get(content, way))), indent=1))
            rewrite(out)
            if not is_found(out, known, file, way):
                missed.append((file, way))
        (out / file).write_text(before)
    before_arrays = (out / "model.npz").read_bytes()
    with np.load(out / "model.npz") as stored:
        arrays = dict(stored)
    for name, values in arrays.items():
        for place in range(values.size):
            changed = values.copy()
            changed.flat[place] += 0.25
            np.savez(out / "model.npz", **{**arrays, name: changed})
            rewrite(out)
            tried += 1
            if not is_found(out, known, "model.json", (name,)):
                missed.append(("model.npz", (name, place)))
    (out / "model.npz").write_bytes(before_arrays)
    rewrite(out)
    assert failures(out, **known) == set()
    return tried, missed


def test_every_claim_is_refused_or_marked_when_it_is_changed(copied: Path) -> None:
    tried, missed = try_all(copied)
    print(f"claims changed: {tried}, found: {tried - len(missed)}")
    assert tried > 400
    assert missed == []


# ------------------------------------------------------------------------------------------------------------- the page


def parts_of(made: Report) -> dict[str, str]:
    """What a page is made of: its head, verdict, figures and sections, as text."""
    found = {"head": repr((made.title, made.made)), "asked": made.asked, "verdict": repr(made.verdict)}
    found |= {f"figure {name}": repr((name, value, remark)) for name, value, remark in made.figures}
    return found | {f"section {one.key}": repr(one) for one in made.sections}


def test_what_a_page_shows_of_the_coordinators_word_is_marked_there(copied: Path) -> None:
    """Each claim that may be changed changes only parts of the page that say whose word they are."""
    found = verify_run(copied, publics(copied.parent))
    evaluations = read_evaluations(copied)

    def parts() -> dict[str, str]:
        record = Record.load(copied)
        return parts_of(report(record, found, read_coefficients(copied, record), evaluations))

    before = (copied / "run.json").read_text()
    content = json.loads(before)
    expected = parts()
    shown = 0
    for way in leaves(content):
        if way[0] not in content[WORD] or not isinstance(get(content, way), str | int | float):
            continue
        value = get(content, way)
        new = "2026-11-18T00:00:00+00:00" if way[0] == "started" else other(value)
        (copied / "run.json").write_text(json.dumps(put(content, way, new)))
        changed = [text for name, text in parts().items() if expected.get(name) != text]
        shown += bool(changed)
        for text in changed:
            assert any(mark in text for mark in MARKS), (way, text[:200])
    assert shown > 20
    (copied / "run.json").write_text(before)
    assert read_evidence(copied)
