"""Where a default fit on smoothed rates stalls, it goes on by a method whose exchanges cost as much each."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.solvers import METHODS, Solution
from fedpact.solvers.run import Verdict
from fedpact.tasks import NeymanPearson, Rows


def test_a_default_fit_hands_over_to_no_owners_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """`accelerated` took more than 145 s of CPU on five owners with 600 rows, since smoothed rates are not convex."""
    rng = np.random.default_rng([77, 42])
    w = rng.normal(size=5)
    owners = {}
    for k in range(3):
        X = rng.normal(size=(300, 5)) + 0.5 * rng.normal(size=5)
        owners[f"owner {k}"] = Rows(X, (X @ w + rng.logistic(size=300) > 0.5).astype(int))
    fitting = sys.modules["fedpact.fitting.fit"]
    solved: list[Solution] = []

    def watched(problem: Any, **options: Any) -> Solution:
        with pytest.MonkeyPatch.context() as patch:
            if problem.task.width:
                patch.setattr(METHODS["interior-point"], "step", give_up)
            found: Solution = original(problem, **options)
        solved.append(found)
        return found

    def give_up(self: Any, run: Any, state: Any) -> Any:
        iterate = step(self, run, state)
        return (
            iterate
            if run.best.certificate is None
            else replace(iterate, end=Verdict("stalled", "", then="accelerated"))
        )

    step = METHODS["interior-point"].step

    original = fitting.solve  # type: ignore[attr-defined]
    monkeypatch.setattr(fitting, "solve", watched)
    columns = tuple(f"x{j}" for j in range(5))
    fp.fit(NeymanPearson(label="y", columns=columns, min_recall=0.9), owners)
    notes = [note for one in solved for note in one.history.notes if note.endswith("goes on")]
    assert len(notes) >= 1
    assert {note.split()[-3] for note in notes} == {"newton-al"}
