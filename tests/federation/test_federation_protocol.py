"""The language between coordinator and sites is numbered: a message that changes its fields needs another number.

`python tests/federation/test_federation_protocol.py` writes protocol.json anew. Do so when steps were added, or after
PROTOCOL was raised because fields of released steps changed; sites of other versions rely on it.
"""

from __future__ import annotations

import json
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedpact.federation.protocol import PROTOCOL
from fedpact.federation.wire import STEPS, hints, order_type, reply_type
from fedpact.solvers import METHODS, steps_of

FILE = Path(__file__).with_name("protocol.json")


def describe() -> dict[str, Any]:
    """The protocol, and the fields of order and reply of every step."""
    ours = {name: step for name, step in sorted(STEPS.items()) if name.startswith("fedpact.")}
    steps = {name: f"{_schema(order_type(step))} -> {_schema(reply_type(step))}" for name, step in ours.items()}
    return {"protocol": PROTOCOL, "steps": steps}


def _schema(kind: Any) -> str:
    own = hints(kind)
    names = {field.name: typing.get_origin(own[field.name]) or own[field.name] for field in fields(kind)}
    return ", ".join(f"{name}: {getattr(about, '__name__', about)}" for name, about in names.items())


def test_messages_change_only_with_the_number_of_the_protocol() -> None:
    known = json.loads(FILE.read_text())
    found = describe()
    assert known["protocol"] == found["protocol"], "write protocol.json anew"
    changed = [name for name, schema in found["steps"].items() if known["steps"].get(name, schema) != schema]
    assert changed == [], "raise PROTOCOL, and write protocol.json anew"
    assert found["steps"].keys() == known["steps"].keys(), "write protocol.json anew"


def test_every_method_names_the_steps_that_owners_run_for_it() -> None:
    assert [name for name, kind in METHODS.items() if not steps_of(kind)] == []
    assert "fedpact.solvers.constrained.interior_point:advance" in steps_of(METHODS["interior-point"])
    assert "fedpact.solvers.consensus.ifeddr_owner:resolve" not in steps_of(METHODS["interior-point"])


if __name__ == "__main__":
    FILE.write_text(json.dumps(describe(), indent=1) + "\n")
