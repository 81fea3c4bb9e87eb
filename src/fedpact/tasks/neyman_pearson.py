"""Neyman-Pearson classification: the least loss on class 0 with the loss on class 1 bounded at every owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from fedpact.cones import Nonnegative
from fedpact.errors import OptionError
from fedpact.functions import LogisticLoss, as_map
from fedpact.problem import Constraint, FederatedProblem, Share
from fedpact.tasks import checks

if TYPE_CHECKING:
    from fedpact.prox import Prox


def neyman_pearson(
    owners: Mapping[str, tuple[ArrayLike, ArrayLike]],
    bound: float | Mapping[str, float] = 0.2,
    regularizer: Prox | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_0i(w) + h(w)  s.t.  loss_1i(w) <= bound_i at every owner i.   He24 (30)

    loss_0i and loss_1i are the mean logistic losses of owner i's rows of class 0 and of class 1.

    owners:      name -> (X, y), X rows x d (give it an intercept column if the model shall have one), y in {0, 1}
    bound:       one number, or name -> number
    regularizer: h, a Prox
    columns:     names of the columns of X, used in error messages

    Raises:
        DataError: missing values, labels other than 0 and 1, an empty class, different numbers of columns, no owners.
        OptionError: a bound that is not positive, or absent for an owner, or given for an unknown one.
    """
    checks.owner_tables(owners, ("X", "y"))
    bounds = _bound_of_each(bound, owners)
    matrices = {name: checks.features(name, X, columns) for name, (X, _) in owners.items()}
    checks.same_columns(matrices)
    shares = [
        neyman_pearson_share(matrices[name], y, bound=bounds[name], owners=len(owners), name=name)
        for name, (_, y) in owners.items()
    ]
    return FederatedProblem(shares, regularizer=regularizer)


def neyman_pearson_share(X: ArrayLike, y: ArrayLike, *, bound: float, owners: int, name: str) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.features(name, X)
    labels = checks.binary(name, "label", y, len(matrix))
    loss = [LogisticLoss(matrix[labels == label], labels[labels == label]) for label in (0, 1)]
    limit = checks.positive(f"bound of owner {name!r}", bound)
    return Share((1 / owners) * loss[0], Constraint(as_map(loss[1] - limit), Nonnegative(1)), name=name)


def _bound_of_each(bound: float | Mapping[str, float], owners: Mapping[str, object]) -> dict[str, float]:
    if not isinstance(bound, Mapping):
        checks.positive("bound", bound)
        return dict.fromkeys(owners, bound)
    for name in owners:
        if name not in bound:
            raise OptionError(f"bound has no entry for owner {name!r}; give one for every owner, or one number for all")
    for name in bound:
        if name not in owners:
            raise OptionError(
                f"bound has an entry for {name!r}, which is no owner; the owners are: {', '.join(owners)}"
            )
    return {name: checks.positive(f"bound of owner {name!r}", bound[name]) for name in owners}
