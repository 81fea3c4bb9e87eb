"""Classification with a bounded loss gap between two groups, at every owner and at the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from fedpact.cones import Nonnegative
from fedpact.functions import LogisticLoss, TwoSided
from fedpact.problem import Constraint, FederatedProblem, Share
from fedpact.tasks import checks
from fedpact.tasks.checks import Labels, Matrix

if TYPE_CHECKING:
    from fedpact.prox import Prox

Rows = tuple[ArrayLike, ArrayLike, ArrayLike]
PARTS = ("X", "y", "group")


def group_fairness(
    owners: Mapping[str, Rows],
    server: Rows | None = None,
    max_gap: float = 0.1,
    regularizer: Prox | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_i(w) + h(w)  s.t.  |gap_i(w)| <= max_gap at every owner i and at the server.   He24 (32)

    loss_i is the mean logistic loss of owner i's rows, gap_i the mean loss of its rows with group = 1 minus that of
    its rows with group = 0. The gaps are differences of convex functions: the problem is not convex.

    owners:      name -> (X, y, group), X rows x d, y and group in {0, 1}
    server:      (X, y, group) of rows the server holds itself; they enter its constraint only
    regularizer: h, a Prox
    columns:     names of the columns of X, used in error messages

    Raises:
        DataError: missing values, labels or groups other than 0 and 1, an empty group, different numbers of columns,
            no owners.
        OptionError: max_gap is not positive.
    """
    checks.owner_tables(owners, PARTS)
    if server is not None:
        checks.tuple_of("server", server, PARTS)
    checks.positive("max_gap", max_gap)
    tables = dict(owners) if server is None else {**owners, "server": server}
    matrices = {name: checks.features(name, X, columns) for name, (X, _, _) in tables.items()}
    checks.same_columns(matrices)
    shares = [
        group_fairness_share(matrices[name], y, group, max_gap=max_gap, owners=len(owners), name=name)
        for name, (_, y, group) in owners.items()
    ]
    at_server = None if server is None else group_fairness_server(*server, max_gap=max_gap)
    return FederatedProblem(shares, server=at_server, regularizer=regularizer)


def group_fairness_share(
    X: ArrayLike, y: ArrayLike, group: ArrayLike, *, max_gap: float, owners: int, name: str
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix, labels, groups = _checked(name, X, y, group)
    objective = (1 / owners) * LogisticLoss(matrix, labels)
    return Share(objective, _bounded_gap(matrix, labels, groups, max_gap), name=name)


def group_fairness_server(X: ArrayLike, y: ArrayLike, group: ArrayLike, *, max_gap: float) -> Share:
    """The server's share: the bounded gap on its rows, no objective."""
    return Share(None, _bounded_gap(*_checked("server", X, y, group), max_gap), name="server")


def _checked(name: str, X: ArrayLike, y: ArrayLike, group: ArrayLike) -> tuple[Matrix, Labels, Labels]:
    matrix = checks.features(name, X)
    labels = checks.binary(name, "label", y, len(matrix), both=False)  # one class is enough for a mean loss
    return matrix, labels, checks.binary(name, "group", group, len(matrix))


def _bounded_gap(X: Matrix, y: Labels, group: Labels, max_gap: float) -> Constraint:
    limit = checks.positive("max_gap", max_gap)
    loss = [LogisticLoss(X[group == g], y[group == g]) for g in (0, 1)]
    return Constraint(TwoSided(loss[1] - loss[0], -limit, limit), Nonnegative(2))
