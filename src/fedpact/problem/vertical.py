"""Vertical problems: parties hold different columns of the same people, and a gap between groups is bounded.

    min_theta  (1/n) sum_i l(z_i, y_i) + sum_k h_k(theta_k)     with scores z = sum_k X_k theta_k + intercept
    s.t.       |D_j(z)| <= eps_j,   D_j(z) = mean of l over one group - mean of l over another

All that is not a party's own depends on the scores only, so it is written for them: loss, slope, gaps. The coordinator
holds labels, groups and the intercept; a party holds its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.cones import Nonnegative
from fedpact.errors import DataError, OptionError, ProblemError
from fedpact.functions import Function, HuberLoss, LogisticLoss, PoissonLoss, ScoredMean, SquaredLoss, as_map
from fedpact.problem.federated import FederatedProblem, read_vector
from fedpact.problem.gaps import Gap, compare_groups, read_bounds
from fedpact.problem.party import Party, PartyLike, build_party
from fedpact.problem.remote import Stated
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import Blocks, Prox, SquaredL2, Zero
from fedpact.types import Matrix, Vector, to_real

Loss = Literal["logistic", "squared", "huber", "poisson"]
LOSSES: dict[str, type[ScoredMean]] = {
    "logistic": LogisticLoss,
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "poisson": PoissonLoss,
}
#: The largest second derivative of each loss; that of Poisson's has none.
STEEPEST = {"logistic": 0.25, "squared": 1.0, "huber": 1.0}

#: The name of the coordinator as a holder of the intercept; no party may have it.
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Scored:
    """Losses of scores, without columns: what the coordinator knows, and what it tells the parties.

    y:    (n,), -1 and 1 for the logistic loss, else numbers
    rows: (m, n), one per gap: D = rows @ losses
    """

    loss: str
    y: Vector
    rows: Matrix

    @cached_property
    def _loss_of_rows(self) -> ScoredMean:
        return mean_loss(self.loss, np.zeros((self.y.size, 0)), self.y)

    def smoothness(self, z: Vector) -> float:
        """The largest second derivative of the loss; of Poisson's, which has none, the largest at these scores."""
        if self.loss in STEEPEST:
            return STEEPEST[self.loss]
        return float(np.max(self._loss_of_rows.curvatures(z), initial=0.0))

    def losses(self, z: Vector) -> Vector:
        """l(z_i, y_i) of every row."""
        return self._loss_of_rows.losses(z)

    def slopes(self, z: Vector) -> Vector:
        """The derivatives l'(z_i, y_i)."""
        return self._loss_of_rows.slopes(z)

    def weights(self, net: Vector) -> Vector:
        """How much the loss of each row counts in L + sum_j net_j D_j."""
        return 1.0 / self.y.size + net @ self.rows

    def gaps(self, z: Vector) -> Vector:
        """D_j(z) of every gap."""
        return self.rows @ self.losses(z)


class VerticalProblem:
    """A linear model over columns that different parties hold, with bounded gaps of mean loss between groups.

    parties:     name -> X, or a list of X; all have the same people in the same order (see `fedpact.alignment`)
    y:           labels 0 and 1 (or -1 and 1); numbers for other losses, at least 0 for "poisson"
    group:       one label per row; None: no constraint
    max_gap:     eps, one number, or one for each gap in the order of `gap_names`
    loss:        "logistic", "squared" (half the square), "huber" (delta = 1 in the units of y), "poisson" (of counts)
    gap:         "positives": mean loss of the rows with y = 1 (DEO); "all": of all rows; "classes": of both classes
    pairs:       of groups that are compared; by default every two
    regularizer: fp.prox.SquaredL2, one for all parties or a list; by default weight 2/n, the paper's |theta|^2 / n
    intercept:   whether the coordinator has one
    standardize: whether every party scales its own columns to mean 0 and deviation 1; constant columns become zero
    columns:     name -> names of the columns, for messages
    keep:        folder in which each party writes its piece of the model at the end, in a file of its own

    Raises DataError or ProblemError; messages name the party, the column and the remedy.
    """

    monotone = False
    coupled_length = 0

    def __init__(
        self,
        parties: Mapping[str, ArrayLike] | Sequence[ArrayLike],
        y: ArrayLike,
        group: ArrayLike | None = None,
        max_gap: ArrayLike | None = None,
        *,
        loss: Loss = "logistic",
        gap: Gap = "positives",
        pairs: Sequence[tuple[Any, Any]] | None = None,
        regularizer: Prox | Sequence[Prox] | None = None,
        intercept: bool = True,
        standardize: bool = False,
        columns: Mapping[str, Sequence[str]] | None = None,
        keep: str | Path | None = None,
    ) -> None:
        _check_options(loss, gap)
        labels = _read_labels(y, loss)
        tables = _name_parties(parties)
        names_of = columns or {}
        for name in names_of:
            if name not in tables:
                raise ProblemError(
                    f"columns: no party is called {name!r}; they are {', '.join(map(repr, tables))}",
                    code="FP-PROBLEM-128",
                )
        regularizers = _list_regularizers(regularizer, len(tables), labels.size)
        shares: list[Party] = []
        for (name, X), h in zip(tables.items(), regularizers, strict=True):
            named = tuple(names_of.get(name, ()))
            shares.append(build_party(name, X, h, labels.size, named, standardize, keep))
        self.shares: tuple[Any, ...] = tuple(shares)
        self.sources: dict[str, object] = {party.name: party for party in shares}
        self.task: Stated | None = None
        self._bound(labels, group, max_gap, loss, gap, pairs, intercept)

    @classmethod
    def of_parties(
        cls,
        parties: Sequence[PartyLike],
        y: ArrayLike,
        group: ArrayLike | None = None,
        max_gap: ArrayLike | None = None,
        *,
        loss: Loss = "logistic",
        gap: Gap = "positives",
        pairs: Sequence[tuple[Any, Any]] | None = None,
        intercept: bool = True,
        sources: Mapping[str, object] | None = None,
        task: Stated | None = None,
    ) -> VerticalProblem:
        """The problem of parties that are there already: `Party` objects, or `DistantParty` for columns elsewhere.

        sources: name -> what the engine hands to that party, where it is not the Party itself: see `RemoteProblem`
        task:    what parties build their Party from, or None
        """
        _check_options(loss, gap)
        _check_names([party.name for party in parties])
        problem = cls.__new__(cls)
        problem.shares = tuple(parties)
        problem.sources = dict(sources or {party.name: party for party in parties})
        problem.task = task
        problem._bound(_read_labels(y, loss), group, max_gap, loss, gap, pairs, intercept)
        return problem

    def _bound(
        self,
        labels: Vector,
        group: ArrayLike | None,
        max_gap: ArrayLike | None,
        loss: Loss,
        gap: Gap,
        pairs: Sequence[tuple[Any, Any]] | None,
        intercept: bool,
    ) -> None:
        """All that the coordinator holds: labels, gaps and their bounds, the intercept."""
        rows, self.gap_names = compare_groups(labels, group, gap, pairs)
        self.max_gap = read_bounds(max_gap, self.gap_names)
        self.scored = Scored(loss, labels, rows)
        self.intercept = intercept
        # The coordinator's own column, of ones, which is not shrunk.
        width = 1 if intercept else 0
        self.server = Party(
            X=np.ones((labels.size, width)),
            h=Zero(),
            name=COORDINATOR,
            mean=np.zeros(width),
            scale=np.ones(width),
            multiplier_length=2 * len(self.gap_names),
        )

    @property
    def holders(self) -> tuple[Any, ...]:
        """The parties, then the coordinator: whoever holds columns, in the order of w."""
        return (*self.shares, self.server)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties."""
        return tuple(party.name for party in self.shares)

    @property
    def dim(self) -> int:
        """The number of columns of all parties, and the intercept."""
        return sum(party.width for party in self.holders)

    @property
    def convex(self) -> bool:
        """Gaps are differences of convex functions; without them the problem is convex."""
        return not self.gap_names

    def pieces(self, w: ArrayLike) -> dict[str, Vector]:
        """w by holder: the parties in order, then the coordinator's intercept (empty without one).

        Raises ProblemError when w has another length.
        """
        vector = read_vector("w", w, self.dim)
        ends = np.cumsum([holder.width for holder in self.holders])[:-1]
        parts = np.split(vector, ends)
        return {holder.name: part for holder, part in zip(self.holders, parts, strict=True)}

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[VerticalProblem, Vector, Vector, Vector]:
        """(problem, w, multiplier, no coupled multiplier): nothing was rewritten."""
        return self, w, server_multiplier, np.zeros(0)

    def misses(self, z: Vector, net: Vector) -> tuple[float, float]:
        """(feasibility, violation) of the gaps at scores z, with the price net_j = price of D <= eps - of -D <= eps."""
        gaps = self.scored.gaps(z)
        values = np.concatenate([gaps - self.max_gap, -gaps - self.max_gap])
        prices = np.concatenate([np.maximum(net, 0.0), np.maximum(-net, 0.0)])
        feasibility = np.where(prices > 0, np.abs(values), np.maximum(values, 0.0))
        return float(np.max(feasibility, initial=0.0)), float(np.max(values, initial=0.0))

    def slopes(self, z: Vector, net: Vector) -> Vector:
        """The derivatives of the Lagrangian by the scores, at scores z and net prices."""
        return self.scored.weights(net) * self.scored.slopes(z)

    def multiplier(self, net: Vector) -> Vector:
        """The prices as `pooled` has its constraints: for every gap that of D <= eps, then that of -D <= eps."""
        return np.stack([np.maximum(net, 0.0), np.maximum(-net, 0.0)], axis=1).ravel()

    def net(self, multiplier: Vector) -> Vector:
        """The net prices of what `multiplier` gave."""
        sides = multiplier.reshape(-1, 2)
        return np.asarray(sides[:, 0] - sides[:, 1])

    def pooled(self) -> FederatedProblem:
        """The same problem with all columns in one place: a reference, and what `fp.certify` judges answers by.

        Raises ProblemError when a party's columns are not in this process.
        """
        for party in self.shares:
            if not isinstance(party, Party):
                raise ProblemError(
                    f"{party.name}: its columns are not in this process, so nobody pools them; use a vertical method",
                    code="FP-PROBLEM-141",
                )
        X = np.hstack([party.X for party in self.holders])
        return self.pose(X, regularizer=join_regularizers(self.holders))

    def pose(
        self, X: Matrix, smooth: Function | None = None, offset: Vector | None = None, regularizer: Prox | None = None
    ) -> FederatedProblem:
        """The same losses and gaps with scores X w + offset, and with `smooth` in the objective, for one owner.

        X: (n, any), the intercept's column among them
        """
        constraints = []
        for row, eps in zip(self.scored.rows, self.max_gap, strict=True):
            D = self._mean_loss(X, offset, row > 0) - self._mean_loss(X, offset, row < 0)
            for side in (D - float(eps), -1.0 * D - float(eps)):
                constraints.append(Constraint(as_map(side), Nonnegative(1)))
        objective = self._mean_loss(X, offset, np.ones(len(X), dtype=bool))
        if smooth is not None:
            objective = objective + smooth
        server = Share(constraint=combine(constraints), name=self.server.name)
        return FederatedProblem([Share(objective, name="all columns")], server, regularizer)

    def _mean_loss(self, X: Matrix, offset: Vector | None, chosen: NDArray[np.bool_]) -> Function:
        """The mean loss of these rows."""
        A = X[chosen]
        y = self.scored.y[chosen]
        known = None if offset is None else offset[chosen]
        return mean_loss(self.scored.loss, A, y, known)


def mean_loss(loss: str, X: Matrix, y: Vector, offset: Vector | None = None) -> ScoredMean:
    """The mean over these rows of the loss of this name; labels as `Scored` has them."""
    if loss == "logistic":
        y = (y > 0).astype(np.float64)
    return LOSSES[loss](X, y, offset=offset)


def join_regularizers(holders: Sequence[Party]) -> Prox:
    """sum_k h_k(theta_k) as one regularizer of (theta_1, theta_2, ...)."""
    if all(holder.quadratic for holder in holders):
        return SquaredL2(np.concatenate([holder.curvature for holder in holders]))
    joined: Prox = holders[-1].h
    for holder in reversed(holders[:-1]):
        joined = Blocks(holder.h, joined, holder.width)
    return joined


def _check_options(loss: str, gap: str) -> None:
    _check_choice("loss", loss, get_args(Loss))
    _check_choice("gap", gap, get_args(Gap))
    if loss != "logistic" and gap != "all":
        raise OptionError(
            f'gap = {gap!r} needs classes, which loss={loss!r} has not; use gap="all"', code="FP-OPTION-103"
        )


def _check_choice(option: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise OptionError(f"{option} = {value!r}: choose {', '.join(map(repr, allowed))}", code="FP-OPTION-102")


def _name_parties(parties: Mapping[str, ArrayLike] | Sequence[ArrayLike]) -> dict[str, ArrayLike]:
    """Name -> columns; a list of tables is numbered."""
    if isinstance(parties, Mapping):
        named = dict(parties)
    else:
        named = {f"party {number}": X for number, X in enumerate(parties, 1)}
    _check_names(list(named))
    return named


def _check_names(names: Sequence[object]) -> None:
    if not names:
        raise ProblemError("a vertical problem needs at least one party; give name -> columns", code="FP-PROBLEM-126")
    for name in names:
        if not isinstance(name, str):
            raise ProblemError(
                f"party {name!r}: the name must be a string; call it 'party {name}'", code="FP-PROBLEM-127"
            )
        if name == COORDINATOR:
            raise ProblemError(
                f"a party is called {name!r}, the name of the coordinator itself; give it another name",
                code="FP-PROBLEM-130",
            )


def _read_labels(y: ArrayLike, loss: str) -> Vector:
    """The labels: -1 and 1 for the logistic loss, as they are for others."""
    try:
        labels = to_real(y)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"y is not a vector of numbers ({error}); code the classes as 0 and 1", code="FP-DATA-102"
        ) from error
    if labels.ndim != 1 or labels.size == 0:
        raise DataError(f"y has shape {labels.shape}; give one label per row", code="FP-DATA-103")
    finite = np.isfinite(labels)
    if not finite.all():
        raise DataError(
            f"y has {np.sum(~finite)} missing or infinite values; drop these rows everywhere", code="FP-DATA-104"
        )
    if loss != "logistic":
        if defect := mean_loss(loss, np.zeros((labels.size, 0)), labels).defect():
            raise DataError(f"loss = {loss!r}: {defect}", code="FP-DATA-119")
        return labels
    values = set(np.unique(labels))
    if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
        wrong = next(label for label in labels if label not in (0.0, 1.0))
        raise DataError(
            f'y has values other than 0 and 1, such as {wrong:g}; code the classes so, or use loss="squared"',
            code="FP-DATA-105",
        )
    return np.where(labels > 0, 1.0, -1.0)


def _list_regularizers(regularizer: Prox | Sequence[Prox] | None, parties: int, rows: int) -> list[Prox]:
    """One regularizer for each party."""
    if regularizer is None:
        return [SquaredL2(2.0 / rows)] * parties  # the paper's (1/n) |theta|^2
    if not isinstance(regularizer, Sequence):
        return [regularizer] * parties
    if len(regularizer) != parties:
        raise ProblemError(
            f"regularizer: {len(regularizer)} for {parties} parties; give one fp.prox.SquaredL2, or one per party",
            code="FP-PROBLEM-132",
        )
    return list(regularizer)
