"""What is decided, counted: recall, specificity, accuracy and gaps between groups, at every owner.

A rule says for every row with which probability it decides 1: 0 or 1, or between them for a randomized rule, whose
rates are then their expected values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.data.table import Labels, Table
from fedpact.functions import Vector

Parity = Literal["demographic_parity", "equal_opportunity", "equalized_odds"]
Rule = Callable[[str, Table], Vector]  # owner, rows -> probability of deciding 1
Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Goal:
    """What is asked of the decisions at every owner; None where it is not asked.

    recall: at least this share of the rows with y = 1 is found
    parity, gap: rates of two groups differ by at most `gap`
    confidence: of holding on rows not yet seen; None: on the training rows
    """

    recall: float | None = None
    parity: Parity | None = None
    gap: float | None = None
    confidence: float | None = None

    def __str__(self) -> str:
        asked = []
        if self.recall is not None:
            asked.append(f"recall {self.recall:g}")
        if self.parity is not None:
            asked.append(f"{self.parity.replace('_', ' ')} {self.gap:g}")
        if self.confidence is not None:
            asked.append(f"confidence {self.confidence:g}")
        return ", ".join(asked)


@dataclass(frozen=True)
class Counted:
    """A rule on the rows of all owners.

    specificity: mean over the owners      worst_recall: of any owner      accuracy: of all rows
    worst_gap:   of any owner; None where no parity is asked
    """

    specificity: float
    worst_recall: float
    accuracy: float
    worst_gap: float | None = None


def count(rule: Rule, tables: Tables, parity: Parity | None = None) -> Counted:
    """Count what the rule decides on these rows."""
    decided = {owner: rule(owner, table) for owner, table in tables.items()}
    specificities = [1 - np.mean(decided[owner][table.y == 0]) for owner, table in tables.items()]
    recalls = [np.mean(decided[owner][table.y == 1]) for owner, table in tables.items()]
    right = [np.where(table.y == 1, decided[owner], 1 - decided[owner]) for owner, table in tables.items()]
    counted = Counted(float(np.mean(specificities)), float(min(recalls)), float(np.mean(np.concatenate(right))))
    if parity is None:
        return counted
    gaps = [gap_between_groups(decided[owner], table, parity) for owner, table in tables.items()]
    return replace(counted, worst_gap=max(gaps))


def gap_between_groups(decided: Vector, table: Table, parity: Parity) -> float:
    """The largest difference between two groups in the rate of deciding 1, over the kinds of rows of this parity."""
    differences = []
    for groups in cells_of(table, parity):
        rates = [np.mean(decided[rows]) for rows in groups]
        differences.append(max(rates) - min(rates))
    return float(max(differences))


def worth_of_a_row(tables: Tables, parity: Parity) -> float:
    """How much one row can change the gap of any owner: 1 / the size of the smallest cell that has a rate."""
    sizes = [len(rows) for table in tables.values() for groups in cells_of(table, parity) for rows in groups]
    return 1 / min(sizes)


def gaps_hold(rule: Rule, tables: Tables, parity: Parity, bound: float) -> bool:
    """Is the gap of every owner at most the bound and one row's worth?"""
    for owner, table in tables.items():
        allowed = bound + worth_of_a_row({owner: table}, parity)
        if gap_between_groups(rule(owner, table), table, parity) > allowed:
            return False
    return True


def cells_of(table: Table, parity: Parity) -> Iterator[list[NDArray[np.intp]]]:
    """For each kind of rows that the parity compares: the rows of every group."""
    kinds: dict[Parity, list[NDArray[np.bool_]]] = {
        "demographic_parity": [np.ones(len(table.y), dtype=bool)],
        "equal_opportunity": [table.y == 1],
        "equalized_odds": [table.y == 0, table.y == 1],
    }
    group = group_of(table)
    for kind in kinds[parity]:
        yield [np.flatnonzero(kind & (group == member)) for member in np.unique(group)]


def group_of(table: Table) -> Labels:
    assert table.group is not None
    return table.group


def pool(tables: Tables) -> Table:
    """The rows of all owners in one table."""
    first, *_ = tables.values()
    return Table(
        np.vstack([table.X for table in tables.values()]),
        np.concatenate([table.y for table in tables.values()]),
        first.columns,
        np.concatenate([group_of(table) for table in tables.values()]),
    )


def lowest_needed(score: Vector, recall: float) -> float:
    """The highest limit at which this share of the scores, those of rows with y = 1, is not below it."""
    ordered = np.sort(score)
    found = int(np.ceil(recall * len(ordered) - 1e-9))  # 0.9 times 10 is 9, whatever it is rounded to
    return float(ordered[len(ordered) - found])
