"""Group-fair classification: bounds the gap between groups of a rate or of the loss, at every owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from numpy.typing import ArrayLike

from fedpact.errors import OptionError
from fedpact.problem import FederatedProblem, Share
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, key
from fedpact.tasks.classification import Classification
from fedpact.tasks.requirements import Requirement
from fedpact.tasks.tables import Rows as Table

if TYPE_CHECKING:
    from fedpact.prox import Prox

Rows = tuple[ArrayLike, ArrayLike, ArrayLike]
PARTS = ("X", "y", "group")
#: What is compared between groups.
Parity = Literal["loss", "demographic_parity", "equal_opportunity", "equalized_odds"]
PARITIES: tuple[str, ...] = get_args(Parity)


@dataclass(frozen=True, kw_only=True)
class GroupFairness(Classification):
    """The gap between groups is bounded at every owner, and on the coordinator's table where it has one."""

    name: ClassVar[str] = "group_fairness"
    title: ClassVar[str] = "the gap between groups, of a rate of decisions or of the loss, is bounded at every owner"

    parity: Parity = key("loss", "what is compared", "text", choices=PARITIES)  # noqa: RUF009 - a field
    bound: float | Mapping[str, float] = key(
        dict, "gap allowed at every owner; or one each in a table [bound]", "bound", example="0.1"
    )

    def __post_init__(self) -> None:
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
        if self.parity not in PARITIES:
            raise OptionError(
                f"parity is {self.parity!r}; choose {', '.join(PARITIES)}", code="FP-OPTION-034", key="parity"
            )
        super().__post_init__()

    def own_requirements(self) -> tuple[Requirement, ...]:
        at_owners = Requirement(kind=self.parity, gap=True, at_most=self.bound)
        if isinstance(self.bound, Mapping) and SERVER not in self.bound:
            return (at_owners,)
        return at_owners, replace(at_owners, held_by="server")

    def build(self, owner: str, rows: Table) -> Share:
        if owner != SERVER:
            checks.bound_for(self.bound, owner)  # an error names the key that was stated
        return super().build(owner, rows)

    def sentence(self) -> str:
        first, *others = self.requirements
        return self._ask_for([first, *(one for one in others if one.held_by != "server")])


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
    width: float = 1.0,
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
    parity:      "loss", as in He24: the mean loss; "demographic_parity": the rate of decisions for the last class;
                 "equal_opportunity": the same over rows of this class; "equalized_odds": that, and over the other rows.
                 Decisions are smoothed, see `fedpact.functions.rates`; `fedpact.fit` sharpens them.
    width:       of the smoothing; at 1 a decision counts by its probability

    Raises:
        DataError: missing values, other labels or groups, an empty group, different numbers of columns, no owners.
        OptionError: max_gap is not positive; an unknown parity.
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
            width=width,
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
    width: float = 1.0,
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.features(name, X)
    task = GroupFairness(
        columns=("x",),  # their names do not matter here
        classes=tuple(map(str, range(classes))),
        groups=tuple(map(str, range(groups))),
        label="label",
        group="group",
        parity=parity,
        bound={name: checks.check_positive(f"max_gap of owner {name!r}", max_gap)},
        owners=owners,
        width=width,
    )
    labels = checks.check_codes(name, "label", y, len(matrix), classes)  # one class is enough for a mean loss
    members = checks.check_codes(name, "group", group, len(matrix), groups)
    return task.build(name, Table(matrix, labels, members))


def group_fairness_server(X: ArrayLike, y: ArrayLike, group: ArrayLike, *, max_gap: float) -> Share:
    """The server's share: the bounded gap of losses on its rows, no objective."""
    return group_fairness_share(X, y, group, max_gap=max_gap, owners=0, name=SERVER)
