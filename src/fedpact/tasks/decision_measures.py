"""What an owner tells about the decisions of a model on its rows, by name of the measure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedpact.problem import Measure
from fedpact.tasks.checks import Labels
from fedpact.tasks.holding import Holding, count_rate
from fedpact.tasks.regression import losses
from fedpact.tasks.requirements import Requirement, outline, row_of
from fedpact.types import Matrix, Vector


def loss_measures(rows: Holding, w: Vector) -> dict[str, Measure]:
    """The value of every constraint on losses that each owner holds, by the words for it."""
    told: dict[str, Measure] = {}
    for one in rows.task.requirements:
        if one.rates or one.held_by != "each":
            continue
        inside = np.ones(len(rows.y), dtype=bool)
        if one.of:
            inside = np.asarray(rows.y == rows.task.levels.class_of(one))
        members = [inside]
        if one.is_gap:
            members = [inside & member for member in rows.members(one)]
        sizes = [int(member.sum()) for member in members]
        others = int(np.sum(~inside))  # beside the loss on all rows it tells theirs
        cell = min([*sizes, others]) if others else min(sizes)
        means = [_mean_loss(rows.select(member), w) for member in members]
        values = [abs(b - a) for a, b in combinations(means, 2)] if one.is_gap else means
        for what, value in zip(_distinct(one, rows), values, strict=True):
            told[what] = Measure(value, min(sizes), cell)
    return told


def _mean_loss(rows: Holding, w: Vector) -> float:
    return _mean(rows.losses(w))


def describe_decisions(rows: Holding, w: Vector, at: float) -> dict[str, Measure]:
    """Rates of a model's decisions at a threshold, with the rows they rest on."""
    task = rows.task
    score = rows.scores(w)
    decided = rows.decide(w, at)
    y = rows.y
    number = len(y)
    told = {"rows": Measure.count(number)}
    if task.guarded_class is not None or (rows.classes == 2 and rows.group is None):
        guarded = rows.classes - 1 if task.guarded_class is None else task.guarded_class
        told |= _class_measures(score, decided, y, guarded, task.reported_class)
    elif rows.classes > 2:
        told |= {f"decided as class {k}": Measure(_mean(decided == k), number) for k in range(rows.classes)}
    told["accuracy"] = Measure(float(np.mean(decided == y)), number)
    if rows.group is not None and task.group:
        told |= _group_measures(decided, y, rows.group, len(task.groups), rows.classes)
    return told | _constrained_measures(rows, decided)


def _class_measures(score: Matrix, decided: Labels, y: Labels, guarded: int, k: int) -> dict[str, Measure]:
    """Rows and loss of the guarded class, recall and specificity of class k."""
    inside = y == guarded
    own = int(inside.sum())
    others = len(y) - own
    cell = min(own, others)  # what is told of one side, beside all rows, tells of the other
    told = {
        "protected rows": Measure.count(own, cell),
        "loss": Measure(_mean(losses(score[inside], guarded)), own, cell),
    }
    inside = y == k
    own = int(inside.sum())
    others = len(y) - own
    cell = min(own, others)
    found = decided == k
    return told | {
        "recall": Measure(_mean(found[inside]), own, cell),
        "specificity": Measure(1 - _mean(found[~inside]), others, cell),
    }


def _group_measures(decided: Labels, y: Labels, group: Labels, groups: int, classes: int) -> dict[str, Measure]:
    told: dict[str, Measure] = {}
    members = [group == g for g in range(groups)]
    # What is told of all groups but one, beside all rows, tells of that one.
    cell = min(int(inside.sum()) for inside in members)
    positives = [inside & (y == 1) for inside in members]
    positive_cell = min(int(inside.sum()) for inside in positives)
    for g, inside in enumerate(members):
        size = int(inside.sum())
        told[f"rows of group {g}"] = Measure.count(size, cell)
        told[f"accuracy of group {g}"] = Measure(_mean(decided[inside] == y[inside]), size, cell)
        if classes != 2:
            continue
        told[f"positive rate of group {g}"] = Measure(_mean(decided[inside]), size, cell)
        told[f"recall of group {g}"] = Measure(_mean(decided[positives[g]]), int(positives[g].sum()), positive_cell)
    return told


def _constrained_measures(rows: Holding, decided: Labels) -> dict[str, Measure]:
    """The value of every constraint on decisions of this holder, counted, by the words for it."""
    told: dict[str, Measure] = {}
    for one in rows.task.rates:
        if one.held_by != rows.held_by:
            continue
        k = rows.task.levels.class_of(one)
        values = [value for rate in one.rates for value in _rate_values(rows, one, rate, k, decided)]
        for what, measure in zip(_distinct(one, rows), values, strict=True):
            told[what] = measure
            if one.is_gap:
                told[row_of(what)] = Measure(1 / max(measure.rows, 1), measure.rows, measure.cell)
    return told


def _distinct(one: Requirement, rows: Holding) -> list[str]:
    return list(dict.fromkeys(bound.what for bound in outline(one, rows.task.levels_of(one), rows.owner)))


def _rate_values(rows: Holding, one: Requirement, rate: str, k: int, decided: Labels) -> Iterator[Measure]:
    """The rate, or its gap between every two groups."""
    inside, hit = count_rate(rate, k, rows.y, decided)
    if not one.is_gap:
        size = int(inside.sum())
        cell = min(size, len(rows.y) - size) if size < len(rows.y) else size
        yield Measure(_mean(hit[inside]), size, cell)
        return
    members = rows.members(one)
    for a, b in rows.task.levels_of(one).pairs:
        cells = [inside & members[g] for g in (a, b)]
        sizes = [int(cell.sum()) for cell in cells]
        yield Measure(abs(_mean(hit[cells[1]]) - _mean(hit[cells[0]])), min(sizes), min(sizes))


def _mean(values: Vector | NDArray[np.bool_] | Labels) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
