"""Group-fair classification: bounds the difference of a group mean (loss or probability) at every owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fedpact.cones import Nonnegative
from fedpact.errors import DataError, OptionError
from fedpact.federation.policy import Counts
from fedpact.functions import Function, MeanProbability, Stack, TwoSided
from fedpact.problem import Constraint, FederatedProblem, Measure, Share
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.regression import mean_loss, scores
from fedpact.tasks.tables import ClassTask, GroupedTask, count_codes
from fedpact.tasks.tables import Rows as TableRows
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.prox import Prox

Rows = tuple[ArrayLike, ArrayLike, ArrayLike]
PARTS = ("X", "y", "group")
#: What is compared between groups.
Parity = Literal["loss", "demographic_parity", "equal_opportunity"]
PARITIES: tuple[str, ...] = get_args(Parity)


def group_fairness(
    owners: Mapping[str, Rows],
    server: Rows | None = None,
    max_gap: float | Mapping[str, float] = 0.1,
    regularizer: Prox | None = None,
    *,
    columns: Sequence[str] | None = None,
    parity: Parity = "loss",
    groups: int = 2,
    classes: int = 2,
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_i(w) + h(w)  s.t.  |gap_i(w)| <= max_gap at every owner i and at the server.   He24 (32)

    loss_i is the mean loss of owner i's rows (logistic, or cross entropy for more than two classes). A gap is the
    difference between two groups, every two of them, of a mean over the owner's rows of the group, see `parity`. The
    gaps are not convex, so neither is the problem.

    owners:      name -> (X, y, group), X rows x d, y in {0, 1} (or below `classes`), group in {0, 1} (or below
                 `groups`)
    server:      (X, y, group) of rows the server holds itself; they enter its constraint only
    max_gap:     one number, or name -> number, "server" among the names if it has rows
    regularizer: h, a Prox
    columns:     names of the columns of X, used in error messages
    parity:      "loss", as in He24: the mean loss; "demographic_parity": the mean probability of class 1;
                 "equal_opportunity": the same over rows of class 1 only. The last two are smooth stand-ins for rates of
                 decisions, which `measures` of a share tells too.

    Raises:
        DataError: missing values, other labels or groups, an empty group, different numbers of columns, no owners.
        OptionError: max_gap is not positive; an unknown parity; one of rates for more than two classes.
    """
    checks.owner_tables(owners, PARTS)
    if server is not None:
        checks.tuple_of(SERVER, server, PARTS)
    tables = dict(owners) if server is None else {**owners, SERVER: server}
    gaps = checks.bound_of_each("max_gap", max_gap, tables)
    matrices = checks.read_matrices(tables, columns)

    def share(name: str, number: int) -> Share:
        _, y, group = tables[name]
        return group_fairness_share(
            matrices[name],
            y,
            group,
            max_gap=gaps[name],
            owners=number,
            name=name,
            parity=parity,
            groups=groups,
            classes=classes,
        )

    return FederatedProblem(
        [share(name, len(owners)) for name in owners],
        server=None if server is None else share(SERVER, 0),
        regularizer=regularizer,
    )


def group_fairness_share(
    X: ArrayLike,
    y: ArrayLike,
    group: ArrayLike,
    *,
    max_gap: float,
    owners: int,
    name: str,
    parity: Parity = "loss",
    groups: int = 2,
    classes: int = 2,
    column: str = "group",
    levels: Sequence[str] = (),
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is.

    owners = 0:     no objective, as at the server
    column, levels: words for the groups, used in error messages
    """
    _check_parity(parity, classes)
    matrix = checks.features(name, X)
    labels = checks.check_codes(name, "label", y, len(matrix), classes)  # one class is enough for a mean loss
    kinds = checks.check_codes(name, "group", group, len(matrix), groups)
    checks.some_of_each(name, column, kinds, range(groups), levels)
    limit = checks.check_positive(f"max_gap of owner {name!r}", max_gap)
    means = []
    for g in range(groups):
        compared = kinds == g
        if parity == "equal_opportunity":
            compared &= labels == 1
        if not np.any(compared):
            raise DataError(
                f"owner {name!r}: no row of class 1 has {column} = {levels[g] if levels else g}, so its rate is "
                "undefined: give this owner more data, merge it with another, or use parity = 'demographic_parity'",
                code="FP-DATA-053",
                column=column,
            )
        means.append(_mean(matrix[compared], labels[compared], parity, classes))
    gaps = [TwoSided(second - first, -limit, limit) for first, second in combinations(means, 2)]
    return Share(
        (1 / owners) * mean_loss(matrix, labels, classes) if owners else None,
        Constraint(gaps[0] if len(gaps) == 1 else Stack(gaps), Nonnegative(2 * len(gaps))),
        name=name,
        measures=GroupRates(matrix, labels, kinds, groups, classes),
    )


def group_fairness_server(X: ArrayLike, y: ArrayLike, group: ArrayLike, *, max_gap: float) -> Share:
    """The server's share: the bounded gap of losses on its rows, no objective."""
    return group_fairness_share(X, y, group, max_gap=max_gap, owners=0, name=SERVER)


@dataclass(frozen=True, eq=False)
class GroupRates:
    """Rates of a model's decisions on the owner's rows: accuracy, and by group accuracy, positive rate and recall."""

    X: Matrix
    y: Labels
    group: Labels
    groups: int
    classes: int

    def __call__(self, w: Vector) -> dict[str, Measure]:
        chosen = np.argmax(scores(w, self.X, self.classes), axis=1)
        rows = len(self.y)
        told = {"rows": Measure.count(rows), "accuracy": Measure(np.mean(chosen == self.y), rows)}
        groups = [self.group == g for g in range(self.groups)]
        # What is told of all groups but one, beside all rows, tells of that one.
        cell = min((int(inside.sum()) for inside in groups), default=0)
        positives = [inside & (self.y == 1) for inside in groups]
        positive_cell = min((int(inside.sum()) for inside in positives), default=0)
        for g, inside in enumerate(groups):
            size = int(inside.sum())
            told[f"rows of group {g}"] = Measure.count(size, cell)
            told[f"accuracy of group {g}"] = Measure(np.mean(chosen[inside] == self.y[inside]), size, cell)
            if self.classes != 2:
                continue
            told[f"positive rate of group {g}"] = Measure(np.mean(chosen[inside]), size, cell)
            found = int(positives[g].sum())
            recall = float(np.mean(chosen[positives[g]])) if found else np.nan
            told[f"recall of group {g}"] = Measure(recall, found, positive_cell)
        return told


def _check_parity(parity: str, classes: int = 2) -> None:
    if parity not in PARITIES:
        raise OptionError(f"parity is {parity!r}; choose {', '.join(PARITIES)}", code="FP-OPTION-034", key="parity")
    if parity != "loss" and classes != 2:
        raise OptionError(
            f"parity {parity!r} compares rates of positive decisions; with {classes} classes use 'loss'",
            code="FP-OPTION-035",
            key="parity",
        )


def _mean(X: Matrix, y: Labels, parity: Parity, classes: int) -> Function:
    """What is compared between groups, over the rows of one of them."""
    if parity == "loss":
        return mean_loss(X, y, classes)
    return MeanProbability(X)


#: What each parity compares, in words.
GAPS = {
    "loss": "gap in mean loss",
    "demographic_parity": "gap in mean probability",
    "equal_opportunity": "gap in mean probability on positives",
}


@dataclass(frozen=True, kw_only=True)
class GroupFairness(GroupedTask, ClassTask):
    """Group-fair classification: bounds the difference of a group mean (loss or probability) at every owner."""

    name: ClassVar[str] = "group_fairness"
    title: ClassVar[str] = "the gap between groups is bounded at every owner"
    has_server_data: ClassVar[bool] = True

    parity: Parity = key("loss", "what is compared", "text", choices=PARITIES)  # noqa: RUF009 - a field
    bound: float | Mapping[str, float] = key(
        dict, "gap allowed at every owner; or one each in a table [bound]", "bound", example="0.1"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.group and self.constrained:
            raise OptionError(
                "task 'group_fairness' needs group=, the name of the column of the groups",
                code="FP-OPTION-041",
                key="group",
            )
        checks.check_bounds(self.bound)
        if self.bound == {}:
            raise OptionError(
                "task 'group_fairness' needs bound=, the gap that is allowed; without one there is nothing to certify",
                code="FP-OPTION-055",
                key="bound",
            )
        _check_parity(self.parity)

    def share_of_rows(self, owner: str, X: Matrix, y: Labels, group: Labels | None) -> Share:
        classes = len(self.classes)
        if group is None:  # there is nothing to compare
            return Share(mean_loss(X, y, classes), name=owner, measures=GroupRates(X, y, y, 0, classes))
        return group_fairness_share(
            X,
            y,
            group,
            max_gap=checks.bound_for(self.bound, owner),
            owners=0 if owner == SERVER else self.owners,
            name=owner,
            parity=self.parity,
            groups=len(self.groups),
            classes=classes,
            column=self.group,
            levels=self.groups,
        )

    def count(self, held: TableRows) -> Counts:
        counts = super().count(held)
        if held.group is None or self.parity != "equal_opportunity":
            return counts
        # Its constraint is about means over the positive rows of each group.
        positives = count_codes(held.group[held.y == 1], len(self.groups))
        return replace(counts, groups=(*counts.groups, *positives))

    def sentence(self) -> str:
        limit = "its own bound" if isinstance(self.bound, Mapping) else f"{self.bound:g}"
        gap = f"{GAPS[self.parity].capitalize()} between groups of {self.group}"
        return f"{gap} of at most {limit} {self.everyone()}; least loss on all rows."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        limit = checks.bound_for(self.bound, owner)
        for k, (a, b) in enumerate(combinations(self.groups, 2)):
            sides = slice(2 * k, 2 * k + 2)
            what = f"{GAPS[self.parity]} between {self.group} = {a} and {b}"
            yield Bounded(owner, what, float(values[sides].max() + limit), limit, float(price[sides].max()))
