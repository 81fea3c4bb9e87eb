"""Vertical problems: parties hold different columns of the same people, and a gap between groups is bounded.

    min_theta  (1/n) sum_i l(z_i, y_i) + sum_k h_k(theta_k)     with scores z = sum_k X_k theta_k + intercept
    s.t.       |D_j(z)| <= eps_j,   D_j(z) = mean of l over one group - mean of l over another
               mean of l over a class <= bound;   c(z) <=_K 0

With softmax z_i has a score for every class, and theta_k a column. All that is not a party's own depends on the scores
only, so it is written for them: loss, slope, gaps. The coordinator holds labels, groups and the intercept; a party
holds its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.cones import Nonnegative
from fedpact.errors import ProblemError
from fedpact.functions import Function, OfScores, ScoredMean, as_map
from fedpact.notebook import show
from fedpact.problem.federated import FederatedProblem, read_vector
from fedpact.problem.gaps import Gap, Group, Pairs, bound_losses, compare_groups, read_bounds
from fedpact.problem.party import Party, PartyLike, build_party, name_coefficients
from fedpact.problem.remote import Stated
from fedpact.problem.scored import Loss, score_losses
from fedpact.problem.share import Constraint, Share, combine
from fedpact.problem.vertical_input import (
    COORDINATOR,
    check_constraint,
    check_names,
    check_options,
    count_outputs,
    list_regularizers,
    name_parties,
    read_labels,
)
from fedpact.prox import Blocks, Prox, SquaredL2, Zero
from fedpact.types import Matrix, Vector


class VerticalProblem:
    """A linear model over columns that different parties hold, with bounded gaps of mean loss between groups.

    parties:     name -> X, or a list of X; all have the same people in the same order (see `fedpact.alignment`)
    y:           labels 0 and 1 (or -1 and 1); for "softmax" 0, 1, ... classes - 1; numbers for other losses, at least
                 0 for "poisson"
    group:       one label per row, or several protected attributes: name -> labels; None: no gap is bounded
    max_gap:     eps, one number, or one for each gap in the order of `gap_names`
    loss:        "logistic", "softmax" (several classes), "squared" (half the square), "huber" (delta = 1 in the units
                 of y), "poisson" (of counts), or a class of your own, derived from fp.functions.ScoredMean
    gap:         "positives": mean loss of the rows of the last class (DEO); "all": of all rows; "classes": of each
    pairs:       of groups that are compared; by default every two; of several attributes name -> pairs
    max_loss:    class -> largest mean loss of its rows (Neyman-Pearson)
    constraints: fp.Constraint(map, cone) on the scores, for any map from R^n: only "vertical-exact" takes them, and
                 not with "softmax"
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
        group: Group | None = None,
        max_gap: ArrayLike | None = None,
        *,
        loss: Loss | type[ScoredMean] = "logistic",
        gap: Gap = "positives",
        pairs: Pairs | None = None,
        max_loss: Mapping[int, float] | None = None,
        constraints: Sequence[Constraint] = (),
        regularizer: Prox | Sequence[Prox] | None = None,
        intercept: bool = True,
        standardize: bool = False,
        columns: Mapping[str, Sequence[str]] | None = None,
        keep: str | Path | None = None,
    ) -> None:
        check_options(loss, gap)
        labels = read_labels(y, loss)
        tables = name_parties(parties)
        names_of = columns or {}
        for name in names_of:
            if name not in tables:
                raise ProblemError(
                    f"columns: no party is called {name!r}; they are {', '.join(map(repr, tables))}",
                    code="FP-PROBLEM-128",
                )
        regularizers = list_regularizers(regularizer, len(tables), labels.size)
        shares: list[Party] = []
        for (name, X), h in zip(tables.items(), regularizers, strict=True):
            named = tuple(names_of.get(name, ()))
            shares.append(build_party(name, X, h, labels.size, named, standardize, keep, count_outputs(labels, loss)))
        self.shares: tuple[Any, ...] = tuple(shares)
        self.sources: dict[str, object] = {party.name: party for party in shares}
        self.task: Stated | None = None
        self._bound(labels, group, max_gap, loss, gap, pairs, max_loss, constraints, intercept)

    @classmethod
    def of_parties(
        cls,
        parties: Sequence[PartyLike],
        y: ArrayLike,
        group: Group | None = None,
        max_gap: ArrayLike | None = None,
        *,
        loss: Loss | type[ScoredMean] = "logistic",
        gap: Gap = "positives",
        pairs: Pairs | None = None,
        max_loss: Mapping[int, float] | None = None,
        constraints: Sequence[Constraint] = (),
        intercept: bool = True,
        classes: int = 0,
        sources: Mapping[str, object] | None = None,
        task: Stated | None = None,
    ) -> VerticalProblem:
        """The problem of parties that are there already: `Party` objects, or `DistantParty` for columns elsewhere.

        classes: with "softmax", where some may have no row; 0: those of y
        sources: name -> what the engine hands to that party, where it is not the Party itself: see `RemoteProblem`
        task:    what parties build their Party from, or None
        """
        check_options(loss, gap)
        check_names([party.name for party in parties])
        problem = cls.__new__(cls)
        problem.shares = tuple(parties)
        problem.sources = dict(sources or {party.name: party for party in parties})
        problem.task = task
        labels = read_labels(y, loss, classes)
        problem._bound(labels, group, max_gap, loss, gap, pairs, max_loss, constraints, intercept, classes)
        return problem

    def _bound(
        self,
        labels: Vector,
        group: Group | None,
        max_gap: ArrayLike | None,
        loss: Loss | type[ScoredMean],
        gap: Gap,
        pairs: Pairs | None,
        max_loss: Mapping[int, float] | None,
        constraints: Sequence[Constraint],
        intercept: bool,
        known_classes: int = 0,
    ) -> None:
        """All that the coordinator holds: labels, gaps and their bounds, the intercept."""
        outputs = count_outputs(labels, loss, known_classes)
        classes = max(outputs, 2)
        rows, names = compare_groups(labels, group, gap, pairs, classes)
        bounds = read_bounds(max_gap, names)
        means, titles, limits = bound_losses(labels, max_loss, classes)
        self.gap_names: tuple[str, ...] = (*names, *titles)
        self.max_gap = np.append(bounds, limits)
        self.least = np.append(-bounds, np.full(len(limits), -np.inf))
        self.scored = score_losses(loss, labels, np.vstack([rows, means]), outputs)
        self.constraints = tuple(constraints)
        for number, one in enumerate(self.constraints, 1):
            check_constraint(number, one, labels.size, outputs)
        self.intercept = intercept
        # The coordinator's own column, of ones, which is not shrunk.
        width = 1 if intercept else 0
        self.server = Party(
            X=np.ones((labels.size, width)),
            h=Zero(),
            name=COORDINATOR,
            mean=np.zeros(width),
            scale=np.ones(width),
            outputs=outputs,
            multiplier_length=self._sides + self._cone_length,
        )

    @property
    def _sides(self) -> int:
        """Bounds from above and below that are finite."""
        return len(self.gap_names) + int(np.sum(np.isfinite(self.least)))

    @property
    def _cone_length(self) -> int:
        return sum(one.cone.dim for one in self.constraints)

    @property
    def price_length(self) -> int:
        """Of the net prices: one a gap or bounded mean, then the multipliers of the constraints on scores."""
        return len(self.gap_names) + self._cone_length

    @property
    def holders(self) -> tuple[Any, ...]:
        """The parties, then the coordinator: whoever holds columns, in the order of w."""
        return (*self.shares, self.server)

    def _repr_html_(self) -> str:
        facts = [f"{len(self.names)} parties", f"{self.dim} variables", f"bounded gaps: {len(self.gap_names)}"]
        return show("Vertical problem", facts, ("party", "columns"), [(one.name, one.width) for one in self.shares])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties."""
        return tuple(party.name for party in self.shares)

    @property
    def intercept_names(self) -> list[str]:
        """Names of the coordinator's coefficients."""
        return name_coefficients(["intercept"] * self.server.width, self.scored.outputs)

    @property
    def coefficient_names(self) -> list[str]:
        """Names of the entries of w."""
        columns = []
        for party in self.shares:
            known = getattr(party, "columns", ()) or range(party.width)
            columns += [f"{party.name}: {column}" for column in known]
        return name_coefficients([*columns, *["intercept"] * self.server.width], self.scored.outputs)

    @property
    def bound_names(self) -> list[str]:
        """Names of the bounds, as `multiplier` has their prices."""
        sides = np.repeat(self.gap_names, 2).reshape(-1, 2)[self._bounded]
        cones = [f"constraint {j}[{row}]" for j, one in enumerate(self.constraints, 1) for row in range(one.cone.dim)]
        return [*map(str, sides), *cones]

    @property
    def dim(self) -> int:
        """Coefficients of all parties' columns, and of the intercept."""
        columns: int = sum(party.width for party in self.holders)
        return self.scored.outputs * columns

    @property
    def convex(self) -> bool:
        """Gaps are differences of convex functions; without them the problem is convex if its functions are."""
        losses_convex = self.scored.mean_loss(np.zeros((self.scored.y.size, 0))).convex
        no_gap = not np.any(np.isfinite(self.least))
        return losses_convex and no_gap and all(one.convex for one in self.constraints)

    def pieces(self, w: ArrayLike) -> dict[str, Vector]:
        """w by holder: the parties in order, then the coordinator's intercept (empty without one).

        Raises ProblemError when w has another length.
        """
        vector = read_vector("w", w, self.dim)
        ends = np.cumsum([holder.width for holder in self.holders])[:-1]
        parts = np.split(vector.reshape(self.scored.outputs, -1), ends, axis=1)
        return {holder.name: part.ravel() for holder, part in zip(self.holders, parts, strict=True)}

    def join(self, pieces: Sequence[Vector]) -> Vector:
        """w of the coefficients of all holders in order: of one score after the other."""
        return np.hstack([piece.reshape(self.scored.outputs, -1) for piece in pieces]).ravel()

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[VerticalProblem, Vector, Vector, Vector]:
        """(problem, w, multiplier, no coupled multiplier): nothing was rewritten."""
        return self, w, server_multiplier, np.zeros(0)

    def misses(self, z: Vector, net: Vector) -> tuple[float, float]:
        """(feasibility, violation) at scores z, with net prices: of a gap that of D <= eps less that of -D <= eps."""
        values = self.scored.gaps(z)
        paid = net[: values.size]
        above = values - self.max_gap
        below = self.least - values
        sides = np.concatenate([above, below])
        prices = np.concatenate([np.maximum(paid, 0.0), np.maximum(-paid, 0.0)])
        feasibility = np.where(prices > 0, np.abs(sides), np.maximum(sides, 0.0))
        found = [(float(np.max(feasibility, initial=0.0)), float(np.max(sides, initial=0.0)))]
        for one, price in self._priced(net):
            value = one.function.value(z)
            found.append((one.cone.normal_distance(value, price), one.cone.violation(value)))
        return max(miss for miss, _ in found), max(violation for _, violation in found)

    def excesses(self, z: Vector) -> dict[str, float]:
        """By how much every bound is passed at scores z."""
        values = self.scored.gaps(z)
        excess = np.maximum(np.maximum(values - self.max_gap, self.least - values), 0.0)
        found = dict(zip(self.gap_names, excess.tolist(), strict=True))
        for number, one in enumerate(self.constraints, 1):
            found[f"constraint {number}"] = one.cone.violation(one.function.value(z))
        return found

    def _priced(self, net: Vector) -> list[tuple[Constraint, Vector]]:
        """The constraints on scores with their multipliers."""
        ends = np.cumsum([len(self.gap_names), *(one.cone.dim for one in self.constraints)])
        return list(zip(self.constraints, np.split(net, ends)[1:-1], strict=True))

    def slopes(self, z: Vector, net: Vector) -> Vector:
        """The derivatives of the Lagrangian by the scores, at scores z and net prices."""
        found = self.scored.pull(z, net[: len(self.gap_names)])
        for one, price in self._priced(net):
            found = found + one.function.jacobian(z).T @ price
        return found

    def multiplier(self, net: Vector) -> Vector:
        """The prices as `pooled` has its constraints: for every gap that of D <= eps, then that of -D <= eps."""
        paid = net[: len(self.gap_names)]
        sides = np.stack([np.maximum(paid, 0.0), np.maximum(-paid, 0.0)], axis=1)
        return np.append(sides[self._bounded], net[paid.size :])

    def net(self, multiplier: Vector) -> Vector:
        """The net prices of what `multiplier` gave."""
        sides = np.zeros((len(self.gap_names), 2))
        sides[self._bounded] = multiplier[: self._sides]
        return np.append(sides[:, 0] - sides[:, 1], multiplier[self._sides :])

    @property
    def _bounded(self) -> NDArray[np.bool_]:
        """Which sides of every gap or mean have a bound: above, and below."""
        return np.column_stack([np.ones(len(self.gap_names), dtype=bool), np.isfinite(self.least)])

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
        for row, most, least in zip(self.scored.rows, self.max_gap, self.least, strict=True):
            D = self.scored.mean_loss(X, row > 0, offset)
            if np.any(row < 0):
                D = D - self.scored.mean_loss(X, row < 0, offset)
            constraints.append(Constraint(as_map(D - float(most)), Nonnegative(1)))
            if np.isfinite(least):
                constraints.append(Constraint(as_map(-1.0 * D + float(least)), Nonnegative(1)))
        for one in self.constraints:
            constraints.append(Constraint(OfScores(one.function, X, offset), one.cone))
        objective = self.scored.mean_loss(X, offset=offset)
        if smooth is not None:
            objective = objective + smooth
        server = Share(constraint=combine(constraints), name=self.server.name)
        return FederatedProblem([Share(objective, name="all columns")], server, regularizer)


def join_regularizers(holders: Sequence[Party]) -> Prox:
    """sum_k h_k(theta_k) as one regularizer of (theta_1, theta_2, ...)."""
    if all(holder.quadratic for holder in holders):
        columns = np.concatenate([holder.curvature[: holder.width] for holder in holders])
        return SquaredL2(np.tile(columns, holders[0].outputs))
    joined: Prox = holders[-1].h
    for holder in reversed(holders[:-1]):
        joined = Blocks(holder.h, joined, holder.width)
    return joined
