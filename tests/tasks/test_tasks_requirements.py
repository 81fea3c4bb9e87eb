"""Constraints as a list: lines beside rates that are counted row by row, and one clear message for every bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.problem import Share
from fedpact.tasks import Classification, NeymanPearson, Requirement, Rows
from fedpact.tasks.base import read_task
from fedpact.tasks.requirements import Levels, Line, count_cells, outline, rate_lines

CLASSES = ("low", "mid", "high")
GROUPS = ("f", "m", "x")
NAMES = ("north", "south")


def levels(classes: int, groups: int) -> Levels:
    return Levels(CLASSES[:classes], GROUPS[:groups], "grade", "sex")


def table(seed: int, classes: int, groups: int, rows: int = 37) -> tuple[Any, Any, Any]:
    """Labels, groups, and what some model decides."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, classes, rows), rng.integers(0, groups, rows), rng.integers(0, classes, rows)


def count(rate: str, k: int, y: Any, decided: Any, chosen: Any = None) -> Fraction:
    """A rate of class k over the chosen rows, by counting one row after the other."""
    hits = rows = 0
    for i, (label, found) in enumerate(zip(y.tolist(), decided.tolist(), strict=True)):
        if chosen is not None and not chosen[i]:
            continue
        if rate == "recall":
            counts, hit = label == k, found == k
        elif rate == "specificity":
            counts, hit = label != k, found != k
        elif rate == "false_positive_rate":
            counts, hit = label != k, found == k
        elif rate == "selection_rate":
            counts, hit = True, found == k
        elif rate == "precision":
            counts, hit = found == k, label == k
        else:
            counts, hit = True, found == label
        rows += counts
        hits += counts and hit
    return Fraction(hits, rows)


def value(line: Line, decided: Any, classes: int) -> float:
    return float(np.sum(line.weights * np.eye(classes)[decided])) + line.constant


def lines_of(one: Requirement, about: Levels, y: Any, group: Any, owner: str = "north", **more: Any) -> list[Line]:
    cells = more.pop("cells", count_cells(y, group, about))
    return list(rate_lines(one, about, owner, y, group, cells, **more))


# --------------------------------------------------------------------------------------------------------------- lines

ONE_SIDED = ["recall", "specificity", "false_positive_rate", "selection_rate", "accuracy"]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rate", ONE_SIDED)
def test_a_line_is_met_exactly_when_the_counted_rate_is(rate: str, classes: int) -> None:
    about = levels(classes, 2)
    for seed in range(20):
        y, group, decided = table(seed, classes, 2)
        k = seed % classes
        counted = count(rate, k, y, decided)
        for bound in (0.1, 0.25, 1 / 3, 0.5, 0.9, float(counted)):
            one = Requirement(kind=rate, of=CLASSES[k], at_least=bound, at_most=bound)
            least, most = (value(line, decided, classes) for line in lines_of(one, about, y, group))
            assert (least <= 1e-9) == (float(counted) >= bound - 1e-12), (seed, bound)
            assert (most <= 1e-9) == (float(counted) <= bound + 1e-12), (seed, bound)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_line_of_a_precision(classes: int) -> None:
    """Of the rows taken for a class a part are of it; met when none is taken."""
    about = levels(classes, 2)
    for seed in range(20):
        y, group, decided = table(seed, classes, 2)
        k = seed % classes
        counted = count("precision", k, y, decided)
        taken = int(np.sum(decided == k))
        (line,) = lines_of(Requirement(kind="precision", of=CLASSES[k], at_least=0.45), about, y, group)
        assert value(line, decided, classes) == pytest.approx((0.45 - float(counted)) * taken / len(y), abs=1e-12)
        others = np.full(len(y), (k + 1) % classes)
        assert value(line, others, classes) == 0.0


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ("demographic_parity", ["selection_rate"]),
        ("equal_opportunity", ["recall"]),
        ("equalized_odds", ["recall", "false_positive_rate"]),
        ("accuracy", ["accuracy"]),
        ("specificity", ["specificity"]),
    ],
)
def test_lines_of_gaps(kind: str, rates: list[str], classes: int, groups: int) -> None:
    about = levels(classes, groups)
    y, group, decided = table(5, classes, groups, rows=90)
    k = classes - 1
    lines = lines_of(Requirement(kind=kind, gap=True, at_most=0.07), about, y, group)
    expected = []
    rows = []
    for rate in rates:
        of_group = [float(count(rate, k, y, decided, group == g)) for g in range(groups)]
        for a, b in combinations(range(groups), 2):
            expected += [of_group[b] - of_group[a] - 0.07, of_group[a] - of_group[b] - 0.07]
            fewer = min(size(rate, k, y, group == g) for g in (a, b))
            rows += [fewer, fewer]
    assert [value(line, decided, classes) for line in lines] == pytest.approx(expected, abs=1e-12)
    assert [line.allowed for line in lines] == pytest.approx([1 / number for number in rows])
    assert [line.row for line in lines] == [line.allowed for line in lines]


def size(rate: str, k: int, y: Any, chosen: Any) -> int:
    counted = {"recall": y == k, "specificity": y != k, "false_positive_rate": y != k}
    return int(np.sum(chosen & counted.get(rate, np.full(len(y), True))))


def test_one_decision_changes_a_line_by_one_row_at_most() -> None:
    """And by exactly that for some row."""
    about = levels(2, 2)
    y, group, decided = table(1, 2, 2)
    for one in (Requirement(kind="recall", at_least=0.5), Requirement(kind="equalized_odds", at_most=0.1)):
        for line in lines_of(one, about, y, group):
            before = value(line, decided, 2)
            changes = []
            for i in range(len(y)):
                other = decided.copy()
                other[i] = 1 - other[i]
                changes.append(abs(value(line, other, 2) - before))
            assert max(changes) == pytest.approx(line.row)


def test_bounds_by_owner() -> None:
    about = levels(2, 2)
    y, group, decided = table(2, 2, 2)
    recall = float(count("recall", 1, y, decided))
    one = Requirement(kind="recall", at_least={"north": recall, "south": recall + 0.1})
    (met,) = lines_of(one, about, y, group, "north")
    (missed,) = lines_of(one, about, y, group, "south")
    assert value(met, decided, 2) == pytest.approx(0.0, abs=1e-12)
    assert value(missed, decided, 2) > 0
    with raises_code("FP-OPTION-053", "at_least", "'west'"):
        lines_of(one, about, y, group, "west")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "one",
    [
        *(Requirement(kind=rate, at_least=0.4, at_most=0.6, held_by="all") for rate in ONE_SIDED),
        Requirement(kind="precision", at_least=0.4, held_by="all"),
        Requirement(kind="equalized_odds", at_most=0.05, held_by="all"),
        Requirement(kind="demographic_parity", at_most=0.05, held_by="all"),
    ],
    ids=lambda one: one.kind,
)
def test_parts_of_the_owners_sum_to_the_line_of_the_pooled_rows(one: Requirement, classes: int) -> None:
    about = levels(classes, 3)
    tables = {name: table(seed, classes, 3, 20 + 30 * seed) for seed, name in enumerate(NAMES, 1)}
    y, group, decided = (np.concatenate(parts) for parts in zip(*tables.values(), strict=True))
    pooled = lines_of(one, about, y, group)
    total = count_cells(y, group, about)
    parts = np.zeros(len(pooled))
    for name, (own_y, own_group, own_decided) in tables.items():
        own = lines_of(one, about, own_y, own_group, name, cells=total)
        parts += [value(line, own_decided, classes) for line in own]
        assert [line.row for line in own] == [line.row for line in pooled]
    np.testing.assert_allclose(parts, [value(line, decided, classes) for line in pooled], rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", [*ONE_SIDED, "precision", "equalized_odds", "demographic_parity"])
def test_rows_that_count_several_times_are_rows_that_are_there_as_often(kind: str) -> None:
    about = levels(3, 2)
    y, group, decided = table(5, 3, 2, rows=60)
    counts = np.random.default_rng(6).integers(1, 4, len(y))
    again = np.repeat(np.arange(len(y)), counts)
    bound = {"at_most": 0.1} if kind in ("equalized_odds", "demographic_parity") else {"at_least": 0.6}
    one = Requirement(kind=kind, **bound)  # type: ignore[arg-type]
    weighed = counts.astype(float)
    found = lines_of(one, about, y, group, cells=count_cells(y, group, about, weighed), counts=weighed)
    expected = lines_of(one, about, y[again], group[again])
    for line, other in zip(found, expected, strict=True):
        assert value(line, decided, 3) == pytest.approx(value(other, decided[again], 3), abs=1e-14)


def test_stricter_bounds_use_a_part_of_what_is_allowed() -> None:
    about = levels(2, 2)
    y, group, _ = table(3, 2, 2, rows=4000)
    (recall,) = lines_of(Requirement(kind="recall", at_least=0.9), about, y, group, strictness=0.2)
    assert recall.constant == pytest.approx(0.98, abs=1 / 1000)
    (alarms,) = lines_of(Requirement(kind="false_positive_rate", at_most=0.5), about, y, group, strictness=0.2)
    assert alarms.constant == pytest.approx(-0.1, abs=1 / 1000)
    gap, _ = lines_of(Requirement(kind="demographic_parity", at_most=0.1), about, y, group, strictness=0.2)
    assert gap.constant == pytest.approx(-0.02)


def test_the_outline_is_in_the_order_of_the_lines() -> None:
    about = levels(3, 3)
    y, group, _ = table(4, 3, 3, rows=200)
    kinds: list[dict[str, Any]] = [
        {"kind": "recall", "at_least": 0.3, "at_most": 0.9},
        {"kind": "equalized_odds", "at_most": 0.1},
        {"kind": "accuracy", "gap": True, "at_most": 0.1},
        {"kind": "precision", "at_least": 0.2, "of": "mid"},
    ]
    for stated in kinds:
        one = Requirement(**stated)
        bounds = list(outline(one, about, "north"))
        assert sum(bound.rows for bound in bounds) == len(lines_of(one, about, y, group))
    words = [bound.what for bound in outline(Requirement(kind="equalized_odds", at_most=0.1), about, "north")]
    assert words[0] == "gap in recall of grade = high between sex = f and m"
    assert words[-1] == "gap in false-positive rate of grade = high between sex = m and x"


# ----------------------------------------------------------------------------------------------- requirements as such


@pytest.mark.parametrize(
    ("stated", "code", "facts"),
    [
        ({"kind": "luck", "at_least": 0.5}, "FP-OPTION-800", ["constraint kind 'luck'", "recall", "equalized_odds"]),
        (
            {"kind": "recall", "at_least": 0.5, "held_by": "me"},
            "FP-OPTION-801",
            ["held_by = 'me'", "each, all, server"],
        ),
        ({"kind": "recall", "at_least": 0.5, "confidence": 1.0}, "FP-OPTION-802", ["confidence = 1", "below 1"]),
        ({"kind": "recall", "at_least": 0.5, "confidence": -0.1}, "FP-OPTION-802", ["confidence = -0.1"]),
        ({"kind": "loss", "at_most": 0.5, "confidence": 0.9}, "FP-OPTION-803", ["confidence for a loss", "recall"]),
        (
            {"kind": "recall", "at_least": 0.5, "confidence": 0.9, "held_by": "server"},
            "FP-OPTION-804",
            ["confidence", "coordinator's table"],
        ),
        (
            {"kind": "recall", "at_least": {"a": 0.5}, "held_by": "all"},
            "FP-OPTION-831",
            ["recall", "give a number"],
        ),
        ({"kind": "equalized_odds", "at_least": 0.1}, "FP-OPTION-805", ["equalized_odds", "at_most"]),
        ({"kind": "recall", "gap": True, "at_least": 0.1, "at_most": 0.2}, "FP-OPTION-805", ["recall", "at_most"]),
        ({"kind": "recall"}, "FP-OPTION-806", ["recall", "at_least or at_most"]),
        ({"kind": "precision", "at_most": 0.5}, "FP-OPTION-807", ["precision", "false_positive_rate"]),
        ({"kind": "precision", "gap": True, "at_most": 0.5}, "FP-OPTION-807", ["precision"]),
        ({"kind": "loss", "at_least": 0.5}, "FP-OPTION-808", ["a loss", "at_most"]),
        ({"kind": "recall", "at_least": 0.8, "at_most": 0.7}, "FP-OPTION-809", ["recall", "0.8", "0.7"]),
        (
            {"kind": "recall", "at_least": {"a": 0.5, "b": 0.9}, "at_most": 0.8},
            "FP-OPTION-809",
            ["recall", "0.9", "0.8"],
        ),
        ({"kind": "recall", "at_least": 1.5}, "FP-OPTION-810", ["recall", "at_least = 1.5", "between 0 and 1"]),
        ({"kind": "recall", "at_least": float("nan")}, "FP-OPTION-810", ["recall", "at_least = nan"]),
        ({"kind": "selection_rate", "at_most": {"a": -0.1}}, "FP-OPTION-810", ["selection_rate", "at_most = -0.1"]),
        ({"kind": "loss", "at_most": float("inf")}, "FP-OPTION-810", ["loss", "at_most = inf", "at least 0"]),
        ({"kind": "recall", "atleast": 0.5}, "FP-OPTION-811", ["constraint 1", "'atleast'", "at_least"]),
        ({"at_least": 0.5}, "FP-OPTION-812", ["constraint 1", "no kind"]),
        ({"kind": "recall", "of": "worst", "at_least": 0.5}, "FP-OPTION-813", ["recall of class 'worst'", "low, mid"]),
        ({"kind": "equal_opportunity", "at_most": 0.1}, "FP-OPTION-822", ["gap in recall", "group = ..."]),
    ],
)
def test_constraints_that_cannot_be_right(stated: dict[str, Any], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        Classification(label="grade", columns=("a",), classes=CLASSES, constraints=(stated,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"holdout": 0.0}, "FP-OPTION-820", ["holdout = 0"]),
        ({"holdout": 1.0}, "FP-OPTION-820", ["holdout = 1"]),
        ({"constraints": ()}, "FP-OPTION-821", ["confidence = 0.9"]),
        ({"constraints": (Requirement(kind="loss", at_most=0.5),)}, "FP-OPTION-821", ["confidence = 0.9"]),
        (
            {"constraints": (Requirement(kind="recall", at_least=0.5, held_by="server"),)},
            "FP-OPTION-821",
            ["confidence"],
        ),
        ({"intercept": False}, "FP-OPTION-823", ["a promise", "intercept"]),
    ],
)
def test_promises_that_cannot_be_made(changes: dict[str, Any], code: str, facts: list[str]) -> None:
    promised = {"constraints": (Requirement(kind="recall", at_least=0.9),), "confidence": 0.9, **changes}
    with raises_code(code, *facts):
        Classification(label="grade", columns=("a",), **promised)


def test_constraints_survive_a_message_and_a_copy() -> None:
    one = Requirement(kind="recall", of="mid", at_least={"north": 0.5, "south": 0.7})
    task = Classification(label="grade", columns=("a",), classes=CLASSES, constraints=(one,))
    stated = json.loads(json.dumps(task.stated()))
    assert read_task(stated).requirements == (one,)
    plain = {"kind": "recall", "of": "mid", "at_least": {"north": 0.5, "south": 0.7}}
    assert replace(task, constraints=(plain,)).requirements == (one,)


def test_the_confidence_of_the_task_is_that_of_its_rates() -> None:
    task = Classification(
        label="grade",
        columns=("a",),
        confidence=0.9,
        constraints=(
            Requirement(kind="recall", at_least=0.5),
            Requirement(kind="specificity", at_least=0.5, confidence=0.8),
            Requirement(kind="loss", at_most=0.5),
            Requirement(kind="accuracy", at_least=0.5, held_by="all"),
            Requirement(kind="accuracy", at_least=0.5, held_by="server"),
        ),
    )
    assert [one.confidence for one in task.requirements] == [0.9, 0.8, 0.0, 0.9, 0.0]


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        (({"kind": "recall", "at_least": 0.9},), 1),
        (({"kind": "recall", "at_least": {"north": 0.9, "south": 0.8}},), 1),
        (({"kind": "recall", "at_least": 0.9}, {"kind": "recall", "at_least": 0.8}), 1),
        (({"kind": "recall", "of": "low", "at_least": 0.9},), 0),
        (({"kind": "specificity", "at_least": 0.9},), 0),
        (({"kind": "false_positive_rate", "at_most": {"north": 0.1, "south": 0.1}},), 0),
        (({"kind": "recall", "at_least": 0.9}, {"kind": "specificity", "at_least": 0.1}), None),
        (({"kind": "recall", "at_most": 0.9},), None),
        (({"kind": "accuracy", "at_least": 0.9},), None),
    ],
)
def test_when_a_threshold_keeps_all_promises(constraints: Any, expected: int | None) -> None:
    task = Classification(
        label="grade", columns=("a",), classes=("low", "high"), constraints=constraints, confidence=0.9
    )
    assert task.promised_class == expected


# ----------------------------------------------------------------------------------------------------- rows of an owner


def share(constraint: dict[str, Any], y: Any, group: Any = None, **more: Any) -> Share:
    """Of owner north, with a width, so that there are lines."""
    given = {"classes": CLASSES, "groups": GROUPS, "group": "sex" if group is not None else "", "owners": 1, **more}
    task = Classification(label="grade", columns=("a",), constraints=(constraint,), width=1.0, **given)  # type: ignore[arg-type]
    made = task.share("north", Rows(np.arange(len(y), dtype=float)[:, None], np.array(y), group))
    assert isinstance(made, Share)
    return made


Y = np.arange(12) % 3
G = np.arange(12) // 4


@pytest.mark.parametrize(
    ("constraint", "y", "group", "code", "facts"),
    [
        ({"kind": "recall", "at_least": 0.5}, Y % 2, None, "FP-DATA-047", ["grade = high", "among 12"]),
        ({"kind": "precision", "of": "low", "at_least": 0.5}, Y % 2 + 1, None, "FP-DATA-047", ["grade = low"]),
        ({"kind": "specificity", "at_least": 0.5}, 0 * Y + 2, None, "FP-DATA-047", ["grade = low"]),
        ({"kind": "loss", "of": "mid", "at_most": 0.5}, 0 * Y, None, "FP-DATA-047", ["grade = mid"]),
        ({"kind": "demographic_parity", "at_most": 0.1}, Y, G % 2, "FP-DATA-047", ["sex = x", "among 12"]),
        (
            {"kind": "demographic_parity", "at_most": 0.1},
            Y,
            np.array([0] * 5 + [1] * 5 + [2] * 2),
            "FP-DATA-053",
            ["only 2 row", "sex = x"],
        ),
        ({"kind": "equal_opportunity", "at_most": 0.1}, Y, G, "FP-DATA-053", ["grade = high", "sex = f"]),
        ({"kind": "recall", "gap": True, "of": "low", "at_most": 0.1}, Y, G, "FP-DATA-053", ["grade = low"]),
    ],
)
def test_an_owner_without_the_rows_is_named(
    constraint: dict[str, Any], y: Any, group: Any, code: str, facts: list[str]
) -> None:
    with raises_code(code, "owner 'north'", *facts):
        share(constraint, y, group)


def test_accuracy_and_selection_need_no_class() -> None:
    for kind in ("accuracy", "selection_rate"):
        assert share({"kind": kind, "at_least": 0.5}, 0 * Y).constraint is not None


def test_a_holdout_that_leaves_nothing_to_train_on() -> None:
    promised = {"kind": "accuracy", "at_least": 0.5, "confidence": 0.9}
    with raises_code("FP-DATA-802", "owner 'north'", "all of its 3 rows"):
        share(promised, np.array([0, 1, 2]), holdout=0.9)


def test_too_few_rows_for_a_promise() -> None:
    """0.9^22 is below 0.1, 0.9^21 is not."""
    promised = {"kind": "recall", "at_least": 0.9, "confidence": 0.9}
    rows = np.array([0] * 20 + [1] * 42)
    with raises_code("FP-DATA-803", "owner 'north'", "22 held-out rows", "grade = mid", "21"):
        share(promised, rows, classes=("low", "mid"), holdout=0.5)
    assert share(promised, np.append(rows, [1, 1]), classes=("low", "mid")).constraint is not None


def test_a_gap_in_mean_loss_is_not_for_all_together() -> None:
    one = {"kind": "loss", "gap": True, "at_most": 0.1, "held_by": "all"}
    with raises_code("FP-OPTION-824", "a gap in mean loss"):
        share(one, Y, G, cells=count_cells(Y, G, levels(3, 3)))


def test_a_split_is_by_class_and_group_and_of_the_seed() -> None:
    promised = Requirement(kind="recall", of="high", at_least=0.5, confidence=0.9)
    task = Classification(
        label="grade",
        columns=("a",),
        classes=CLASSES,
        groups=GROUPS,
        group="sex",
        constraints=(promised,),
        holdout=0.25,
    )
    y = np.arange(240) % 3
    group = np.arange(240) // 80
    held = task.held_out("north", y, group)
    assert not np.any(held[y != 2])
    for g in range(3):
        cell = (y == 2) & (group == g)
        assert held[cell].sum() == round(0.25 * cell.sum())
    np.testing.assert_array_equal(held, task.held_out("north", y, group))
    assert np.any(held != task.held_out("south", y, group))
    assert np.any(held != replace(task, split=1).held_out("north", y, group))


def test_own_requirements_come_before_the_list() -> None:
    more = Requirement(kind="accuracy", at_least=0.5)
    task = NeymanPearson(label="grade", columns=("a",), min_recall=0.9, constraints=(more,))
    assert task.requirements == (Requirement(kind="recall", of="1", at_least=0.9), more)
