"""Measures name their class: against NumPy on what the model predicts, whatever is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.tasks import Classification, NeymanPearson, Requirement, Rows, Task

COLUMNS = ("a", "b")
#: Constraints, and NeymanPearson's keys, by the class that they are about.
ASKED: dict[str, Any] = {
    "nothing": (),
    "recall": (Requirement(kind="recall", at_least=0.8),),
    "recall of the first": (Requirement(kind="recall", of="0", at_least=0.8),),
    "specificity": (Requirement(kind="specificity", at_least=0.8),),
    "specificity of the first": (Requirement(kind="specificity", of="0", at_least=0.8),),
    "false positives": (Requirement(kind="false_positive_rate", at_most=0.3),),
    "loss": (Requirement(kind="loss", of="1", at_most=0.6),),
    "loss of the first": (Requirement(kind="loss", of="0", at_most=0.6),),
    "both": (Requirement(kind="recall", at_least=0.6), Requirement(kind="specificity", at_least=0.6)),
    "selected": (Requirement(kind="selection_rate", at_most=0.6),),
    "accuracy": (Requirement(kind="accuracy", at_least=0.6),),
    "gap": (Requirement(kind="equal_opportunity", at_most=0.3),),
    "gap, specificity": (
        Requirement(kind="equal_opportunity", at_most=0.3),
        Requirement(kind="specificity", at_least=0.8),
    ),
    "together": (Requirement(kind="specificity", at_least=0.8, held_by="all"),),
}


def tables(with_groups: bool) -> dict[str, Rows]:
    draw = np.random.default_rng(0)
    found = {}
    for name in ("north", "south"):
        X = draw.standard_normal((150, 2))
        y = (X[:, 0] + draw.logistic(size=150) > 0.5).astype(int)
        found[name] = Rows(X, y, draw.integers(0, 2, 150) if with_groups else None)
    return found


def check(task: Task, owners: dict[str, Rows], of: int = 1) -> None:
    """Every recall and specificity that is told is that of the class that its name says, or of this one."""
    found = fp.fit(task, owners)
    for owner, rows in owners.items():
        assert isinstance(found.model, fp.tasks.Model)
        ill = found.model.predict(rows.X) == 1
        hits = (np.mean(~ill[rows.y == 0]), np.mean(ill[rows.y == 1]))
        known = {"recall": hits[of], "specificity": hits[1 - of]}
        known |= {"recall of y = 1": hits[1], "specificity of y = 1": hits[0]}
        known |= {"recall of y = 0": hits[0], "specificity of y = 0": hits[1]}
        for g in range(2):
            member = np.zeros(len(ill), dtype=bool) if rows.group is None else rows.group == g
            if member.any():
                known[f"recall of group {g}"] = np.mean(ill[member & (rows.y == 1)])
                known[f"recall of y = 1 where sex = {g}"] = known[f"recall of group {g}"]
        told = found.measures[owner]
        rates = [name for name in told if name.startswith(("recall", "specificity"))]
        assert rates
        for name in rates:
            assert told[name] == pytest.approx(known[name], abs=1e-12), name
            assert told[name] == pytest.approx(known[task.measure_name(name)], abs=1e-12), task.measure_name(name)
            assert " of " in task.measure_name(name)


@pytest.mark.parametrize("asked", ASKED)
def test_recall_and_specificity_are_of_the_class_that_their_names_say(asked: str) -> None:
    with_groups = "gap" in asked
    task = Classification(label="y", columns=COLUMNS, group="sex" if with_groups else "", constraints=ASKED[asked])
    check(task, tables(with_groups))


@pytest.mark.parametrize("protected", ["0", "1"])
@pytest.mark.parametrize("about", [{"min_recall": 0.8}, {"bound": 0.6}], ids=["recall", "loss"])
def test_neyman_pearson_too_whichever_class_is_guarded(protected: str, about: dict[str, Any]) -> None:
    task = NeymanPearson(label="y", columns=COLUMNS, protected=protected, **about)
    check(task, tables(with_groups=False), of=int(protected))


@pytest.mark.parametrize("protected", [0, 1])
def test_so_are_those_of_an_estimator(protected: int) -> None:
    rows = tables(with_groups=False)["north"]
    found = fp.NeymanPearsonClassifier(min_recall=0.8, protected=protected).fit(rows.X, rows.y)
    (told,) = found.measures_.values()
    guarded = found.predict(rows.X) == protected
    assert told["recall"] == pytest.approx(np.mean(guarded[rows.y == protected]), abs=1e-12)
    assert told["specificity"] == pytest.approx(np.mean(~guarded[rows.y != protected]), abs=1e-12)
    assert not {"recall low", "recall high"} & set(told)  # the model was fitted to these rows
