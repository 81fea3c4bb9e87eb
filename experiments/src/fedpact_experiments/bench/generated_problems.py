"""Seeded random convex problems of many kinds, each with a conic program on pooled data whose answer is known.

A problem is drawn in well-scaled variables u; what is solved has w = u / columns, an objective times a factor, and
constraint rows times factors of their own. The reference is the program in u, without the rows that say nothing new,
and with those that leave no interior point written as equalities: easy for a conic solver where the problem as posed
is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import cvxpy as cp
import numpy as np

import fedpact as fp
from fedpact import cones, functions, prox
from fedpact.cones.psd import smat, svec
from fedpact.problem.share import combine
from fedpact.types import Matrix, Vector

#: What the constraints are, and what else a problem may have.
KINDS = ("inequality", "equality", "second-order", "psd", "exponential", "curved")
OBJECTIVES = ("quadratic", "linear", "logistic", "softmax")
REGULARIZERS = ("none", "l1", "ridge", "elastic", "group", "box", "simplex")
TRAITS = ("rank-deficient", "scaled", "redundant", "no interior", "coupled")
#: Problems without a solution, and their part of all.
HOPELESS = ("infeasible", "weakly infeasible", "unbounded")
HOPELESS_PART = 0.2
#: Part of all problems that has a given trait.
TRAIT_PART = 0.2
OWNERS = (1, 2, 3, 5, 10, 20, 50)
#: Rows of an owner's table.
ROWS = 30
#: A scaled problem has factors of up to ten to this power, and down to its inverse.
DECADES = 6.0
#: Radius of the ball that bounds a linear objective.
RADIUS = 3.0
#: A weight of the dual cone times the constraints has to be this large, where they exclude each other.
CONFLICT = 0.5

Expected = Literal["optimal", "infeasible", "weakly infeasible", "unbounded"]


@dataclass(frozen=True)
class Rows:
    """One constraint A u + b + (1/2 u'Qu) e <=_K 0, Q only of a single row."""

    A: Matrix
    b: Vector
    cone: cones.Cone
    Q: Matrix | None = None

    def constraint(self, columns: Vector, factor: float) -> fp.Constraint:
        """In the variables w = u / columns, times a factor."""
        A = factor * self.A * columns
        b = factor * self.b
        if self.Q is None:
            return fp.Constraint(functions.Affine(A, b), self.cone)
        Q = factor * self.Q * np.outer(columns, columns)
        return fp.Constraint(functions.as_map(functions.Quadratic(Q, A[0]) + float(b[0])), self.cone)

    def conic(self, u: cp.Expression, factor: float = 1.0) -> list[Any]:
        """The same for cvxpy."""
        value = factor * (self.A @ u + self.b)
        if self.Q is not None:
            value = value + 0.5 * factor * cp.quad_form(u, cp.psd_wrap(self.Q))
        if isinstance(self.cone, cones.Zero):
            return [value == 0]
        if isinstance(self.cone, cones.SecondOrder):
            return [cp.SOC(-value[0], -value[1:])]
        if isinstance(self.cone, cones.Exponential):
            return [cp.ExpCone(-value[0], -value[1], -value[2])]
        if isinstance(self.cone, cones.PSD):
            units = [smat(unit) for unit in np.eye(self.cone.dim)]
            return [sum(-value[k] * unit for k, unit in enumerate(units)) >> 0]
        return [value <= 0]


@dataclass
class Drawn:
    """A problem, its conic program, and what is known of it."""

    seed: int
    problem: fp.FederatedProblem
    expected: Expected
    traits: tuple[str, ...]
    objective: str
    kinds: tuple[str, ...]
    regularizer: str
    owners: int
    reference: cp.Problem
    pooled: cp.Problem
    factor: float  # of the objective: the reference's is without it

    @property
    def label(self) -> str:
        return " ".join((self.objective, self.regularizer, f"n={self.owners}", "+".join(self.kinds), *self.traits))


@dataclass
class _Holder:
    """What one holder has: rows as posed, each with its factor, and the coupled part."""

    rows: list[Rows] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)

    def add(self, rows: Rows, factor: float = 1.0) -> None:
        self.rows.append(rows)
        self.factors.append(factor)


def draw(seed: int) -> Drawn:
    """The problem of this seed."""
    return _Artist(seed).draw()


class _Artist:
    """Draws one problem: a point that all constraints admit comes first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = np.random.default_rng([17, seed])
        rng = self.rng
        self.owners = int(rng.choice(OWNERS))
        self.objective = str(rng.choice(OBJECTIVES))
        self.regularizer = str(rng.choice(REGULARIZERS))
        self.expected: Expected = "optimal"
        if rng.random() < HOPELESS_PART:
            self.expected = rng.choice(np.array(HOPELESS, dtype=object))
        self.traits = tuple(trait for trait in TRAITS if rng.random() < TRAIT_PART)
        if self.expected == "unbounded":
            self.objective = str(rng.choice(OBJECTIVES[:2]))
            self.regularizer = "none"
        self.dim = int(rng.integers(2, 9))
        if self.objective == "softmax":
            self.dim = 3 * int(rng.integers(1, 4))
        self.u = cp.Variable(self.dim)
        self.inside = 0.5 * rng.standard_normal(self.dim)
        if self.regularizer == "box":
            self.inside = np.clip(self.inside, -0.8, 0.8)
        if self.regularizer == "simplex":
            self.inside = rng.dirichlet(np.ones(self.dim))
        self.columns = np.ones(self.dim)
        self.factor = 1.0
        self.holders = [_Holder() for _ in range(self.owners + 1)]
        self.truth: list[Rows] = []
        self.equalities = 0

    # ------------------------------------------------------------------------------------------------------ constraints

    def draw(self) -> Drawn:
        rng = self.rng
        kinds = list(rng.choice(KINDS, size=int(rng.integers(1, 3)), replace=False))
        self.kinds = tuple(sorted(str(kind) for kind in kinds))
        if "scaled" in self.traits:
            self._scale()
        if self.expected == "unbounded":
            self._open_end()
        else:
            self._constrain()
        objective = [self._objective() for _ in range(self.owners)]
        coupled: list[Any] = [None] * self.owners
        if "coupled" in self.traits and self.expected != "unbounded":
            coupled = self._couple()
        if "redundant" in self.traits:
            self._repeat()
        return self._finish(objective, coupled)

    def _scale(self) -> None:
        """Of the objective, the rows or the columns, or of all of them."""
        rng = self.rng
        what = rng.choice(["objective", "rows", "columns", "all"])
        if what in ("objective", "all"):
            self.factor = float(10 ** rng.uniform(-DECADES, DECADES))
        if what in ("columns", "all") and self.regularizer not in ("group", "simplex"):
            self.columns = 10 ** rng.uniform(-DECADES / 2, DECADES / 2, self.dim)
        self.uneven_rows = what in ("rows", "all")

    def _row_factor(self) -> float:
        if getattr(self, "uneven_rows", False):
            return float(10 ** self.rng.uniform(-DECADES, DECADES))
        return 1.0

    def _constrain(self) -> None:
        """Constraints at some of the holders, and what excludes all points or leaves no interior."""
        rng = self.rng
        at = rng.permutation(len(self.holders))[: int(rng.integers(1, min(len(self.holders), 8) + 1))]
        for number in at:
            for kind in self.kinds:
                if kind == "equality" and self.equalities >= self.dim - 1:
                    continue
                rows = self._rows(kind)
                self.truth.append(rows)
                self.holders[number].add(rows, self._row_factor())
        if self.objective == "linear" and self.regularizer not in ("box", "simplex"):
            ball = Rows(
                np.vstack([np.zeros(self.dim), np.eye(self.dim)]),
                np.append(-RADIUS, -self.inside),
                cones.SecondOrder(self.dim + 1),
            )
            self.truth.append(ball)
            self.holders[0].add(ball, self._row_factor())
        if "no interior" in self.traits:
            self._pin()
        if self.expected == "infeasible":
            self._exclude()
        if self.expected == "weakly infeasible":
            self._exclude_weakly()

    def _through(self, A: Matrix, slack: Vector, cone: cones.Cone) -> Rows:
        """Rows whose slack at the inside point is this."""
        return Rows(A, -slack - A @ self.inside, cone)

    def _rows(self, kind: str) -> Rows:
        rng = self.rng
        if kind == "inequality":
            count = int(rng.integers(1, 4))
            return self._through(self._normal(count), rng.uniform(0.05, 1.0, count), cones.Nonnegative(count))
        if kind == "equality":
            self.equalities += 1
            return self._through(self._normal(1), np.zeros(1), cones.Zero(1))
        if kind == "second-order":
            size = int(rng.integers(3, 5))
            tail = rng.standard_normal(size - 1)
            slack = np.append(np.linalg.norm(tail) + rng.uniform(0.1, 0.5), tail)
            return self._through(self._normal(size), slack, cones.SecondOrder(size))
        if kind == "psd":
            order = int(rng.integers(2, 5))
            root = rng.standard_normal((order, order))
            slack = svec(root @ root.T / order + 0.2 * np.eye(order))
            return self._through(self._normal(slack.size), slack, cones.PSD(order))
        if kind == "exponential":
            x = rng.standard_normal()
            y = rng.uniform(0.3, 1.5)
            slack = np.array([x, y, y * np.exp(x / y) + rng.uniform(0.1, 1.0)])
            return self._through(self._normal(3), slack, cones.Exponential())
        root = rng.standard_normal((self.dim, self.dim)) / np.sqrt(self.dim)
        Q = root.T @ root
        slope = rng.standard_normal(self.dim)
        bound = 0.5 * self.inside @ Q @ self.inside + slope @ self.inside + rng.uniform(0.05, 0.5)
        return Rows(slope[None, :], np.array([-bound]), cones.Nonnegative(1), Q)

    def _normal(self, count: int) -> Matrix:
        A = self.rng.standard_normal((count, self.dim))
        if "rank-deficient" in self.traits and count > 1:
            A[-1] = A[0]
        return A

    def _somebody(self) -> _Holder:
        return self.holders[int(self.rng.integers(len(self.holders)))]

    def _pin(self) -> None:
        """A hyperplane through the inside point, said by a constraint without interior."""
        rng = self.rng
        a = rng.standard_normal((1, self.dim))
        pinned = self._through(a, np.zeros(1), cones.Zero(1))
        self.truth.append(pinned)
        how = rng.choice(["pair", "second-order", "psd", "exponential"])
        if how == "pair":
            rows = Rows(np.vstack([a, -a]), np.concatenate([pinned.b, -pinned.b]), cones.Nonnegative(2))
        elif how == "second-order":
            rows = Rows(np.vstack([0 * a, a, 0 * a]), np.array([0.0, pinned.b[0], 0.0]), cones.SecondOrder(3))
        elif how == "psd":
            none = np.zeros(self.dim)
            rows = Rows(np.vstack([none, a[0], none]), np.array([0.0, pinned.b[0], -1.0]), cones.PSD(2))
        else:  # the slack (-a'(u - inside), 0, 1) of the cone's flat face, and the other side
            rows = Rows(np.vstack([a, 0 * a, 0 * a]), np.array([pinned.b[0], 0.0, -1.0]), cones.Exponential())
            other = Rows(a, pinned.b, cones.Nonnegative(1))
            self._somebody().add(other, self._row_factor())
        self._somebody().add(rows, self._row_factor())

    def _exclude(self) -> None:
        """<v, c> >= CONFLICT for a v of the dual cone, where c in -K says <v, c> <= 0."""
        rng = self.rng
        rows = self._rows(str(rng.choice(KINDS[:5])))
        weight = rows.cone.project_dual(rng.standard_normal(rows.cone.dim))
        if not weight.any() and rows.cone.symmetric:
            weight = rows.cone.identity()
        elif not weight.any():
            weight = np.array([-1.0, 0.0, 1.0])  # of the dual of the exponential cone
        other = Rows(-(weight @ rows.A)[None, :], np.array([CONFLICT - weight @ rows.b]), cones.Nonnegative(1))
        self._somebody().add(rows, self._row_factor())
        self._somebody().add(other, self._row_factor())

    def _exclude_weakly(self) -> None:
        """Constraints that are met at infinity only."""
        rng = self.rng
        a = rng.standard_normal(self.dim)
        none = np.zeros(self.dim)
        how = rng.choice(["second-order", "psd", "exponential"])
        if how == "second-order":  # |(a'u, 1)| <= a'u
            rows = Rows(np.vstack([-a, -a, none]), np.array([0.0, 0.0, -1.0]), cones.SecondOrder(3))
        elif how == "psd":  # [[a'u, 1], [1, 0]] >= 0
            rows = Rows(np.vstack([-a, none, none]), np.array([0.0, -np.sqrt(2.0), 0.0]), cones.PSD(2))
        else:  # exp(a'u) <= 0
            rows = Rows(np.vstack([-a, none, none]), np.array([0.0, -1.0, 0.0]), cones.Exponential())
        self._somebody().add(rows, self._row_factor())

    def _open_end(self) -> None:
        """Constraints that admit a whole ray, along which the objective falls."""
        rng = self.rng
        self.ray = rng.standard_normal(self.dim)
        self.kinds = ("inequality",)
        for number in rng.permutation(len(self.holders))[:3]:
            A = self._normal(2)
            A[A @ self.ray > 0] *= -1
            rows = self._through(A, rng.uniform(0.05, 1.0, 2), cones.Nonnegative(2))
            self.truth.append(rows)
            self.holders[number].add(rows, self._row_factor())

    def _repeat(self) -> None:
        """Rows that are there already, at another holder and in other units."""
        rng = self.rng
        posed = [rows for holder in self.holders for rows in holder.rows]
        if not posed:
            return
        for _ in range(int(rng.integers(1, 4))):
            rows = posed[int(rng.integers(len(posed)))]
            self._somebody().add(rows, float(10 ** rng.uniform(-DECADES, DECADES)))
        equal = [rows for rows in posed if isinstance(rows.cone, cones.Zero)]
        if len(equal) > 1:
            weights = rng.standard_normal(len(equal))
            A = sum(weight * rows.A for weight, rows in zip(weights, equal, strict=True))
            b = sum(weight * rows.b for weight, rows in zip(weights, equal, strict=True))
            self._somebody().add(Rows(A, b, cones.Zero(1)), float(10 ** rng.uniform(-DECADES, DECADES)))

    def _couple(self) -> list[Any]:
        """Parts whose sum over the owners is a constraint: <= 0, or = 0."""
        rng = self.rng
        cone: cones.Cone = cones.Nonnegative(2)
        slack = rng.uniform(0.05, 0.5, 2)
        if rng.random() < 0.3 and self.equalities < self.dim - 1 and self.dim > 2:
            cone = cones.Zero(1)
            slack = np.zeros(1)
        factor = self._row_factor()
        parts = []
        total_A = np.zeros((cone.dim, self.dim))
        total_b = np.zeros(cone.dim)
        for number in range(self.owners):
            A = rng.standard_normal((cone.dim, self.dim))
            b = -A @ self.inside + rng.standard_normal(cone.dim)
            if number == self.owners - 1:
                b = -slack - total_b - (total_A + A) @ self.inside
            total_A += A
            total_b += b
            parts.append((functions.Affine(factor * A * self.columns, factor * b), cone))
        self.coupled = Rows(total_A, total_b, cone)
        self.coupled_factor = factor
        self.truth.append(self.coupled)
        return parts

    # -------------------------------------------------------------------------------------------------------- objective

    def _objective(self) -> tuple[functions.Function, cp.Expression]:
        """One owner's objective in w, and the same in u without the factor."""
        rng = self.rng
        columns = self.columns
        if self.objective == "linear":
            b = rng.standard_normal(self.dim)
            if self.expected == "unbounded":
                b -= (b @ self.ray + 1.0) * self.ray / (self.ray @ self.ray)
            flat = np.zeros((self.dim, self.dim))
            return functions.Quadratic(flat, self.factor * b * columns), b @ self.u
        if self.objective == "quadratic":
            return self._quadratic()
        classes = 3
        features = self.dim if self.objective == "logistic" else self.dim // classes
        X = rng.standard_normal((ROWS, features))
        if "rank-deficient" in self.traits and features > 1:
            X[:, -1] = X[:, 0]
        if self.objective == "logistic":
            y = rng.integers(0, 2, ROWS)
            y[:2] = 0, 1
            scores = X @ self.u
            term = cp.sum(cp.logistic(scores) - cp.multiply(y, scores)) / ROWS
            return self.factor * functions.LogisticLoss(X * columns, y), term
        y = rng.integers(0, classes, ROWS)
        y[:classes] = range(classes)
        blocks = [self.u[k * features : (k + 1) * features] for k in range(classes)]
        scores = cp.vstack([X @ block for block in blocks])
        onehot = np.equal.outer(np.arange(classes), y).astype(float)
        term = cp.sum(cp.log_sum_exp(scores, axis=0) - cp.sum(cp.multiply(onehot, scores), axis=0)) / ROWS
        # one column scale for all classes, since all see the same table
        self.columns = columns = np.tile(columns[:features], classes)
        return self.factor * functions.SoftmaxLoss(X * columns[:features], y, classes), term

    def _quadratic(self) -> tuple[functions.Function, cp.Expression]:
        rng = self.rng
        rank = self.dim
        if "rank-deficient" in self.traits:
            rank = max(1, self.dim // 2)
        root = rng.standard_normal((rank, self.dim)) / np.sqrt(self.dim)
        b = -root.T @ rng.standard_normal(rank)
        if self.expected == "unbounded":
            root -= np.outer(root @ self.ray, self.ray) / (self.ray @ self.ray)
            b -= (b @ self.ray + 1.0) * self.ray / (self.ray @ self.ray)
        A = root.T @ root
        term = 0.5 * cp.sum_squares(root @ self.u) + b @ self.u
        scaled = self.factor * A * np.outer(self.columns, self.columns)
        return functions.Quadratic(scaled, self.factor * b * self.columns), term

    def _regularizer(self) -> tuple[prox.Prox | None, Any, list[Any]]:
        """h in w, its term in u without the factor, and its constraints in u."""
        u = self.u
        columns = self.columns
        if self.regularizer == "l1":
            return prox.L1(0.3 * self.factor * columns), 0.3 * cp.norm1(u), []
        if self.regularizer == "ridge":
            return prox.SquaredL2(0.5 * self.factor * columns**2), 0.25 * cp.sum_squares(u), []
        if self.regularizer == "elastic":
            both = 0.2 * cp.norm1(u) + 0.1 * cp.sum_squares(u)
            return prox.ElasticNet(0.2 * self.factor * columns, 0.2 * self.factor * columns**2), both, []
        if self.regularizer == "group":
            half = max(self.dim // 2, 1)
            groups = [list(range(half)), list(range(half, self.dim))]
            groups = [group for group in groups if group]
            term = sum(cp.norm2(u[group]) for group in groups)
            return prox.GroupL2(groups, 0.3 * self.factor), 0.3 * term, []
        if self.regularizer == "box":
            return prox.Box(-1 / columns, 1 / columns), 0.0, [u <= 1, u >= -1]
        if self.regularizer == "simplex":
            return prox.Simplex(1.0), 0.0, [u >= 0, cp.sum(u) == 1]
        return None, 0.0, []

    # -------------------------------------------------------------------------------------------------------- the whole

    def _finish(self, objectives: list[Any], coupled: list[Any]) -> Drawn:
        constraints = [
            [rows.constraint(self.columns, factor) for rows, factor in zip(h.rows, h.factors, strict=True)]
            for h in self.holders
        ]
        shares = []
        for (function, _), own, part in zip(objectives, constraints[1:], coupled, strict=True):
            if part is None:
                shares.append(fp.Share(function, combine(own)))
            else:
                shares.append(fp.Share(function, combine(own), part[0], coupled_cone=part[1]))
        server = fp.Share(None, combine(constraints[0])) if constraints[0] else None
        regularizer, term, domain = self._regularizer()
        total = sum(term for _, term in objectives) + term
        reference = cp.Problem(cp.Minimize(total), [c for rows in self.truth for c in rows.conic(self.u)] + domain)
        return Drawn(
            seed=self.seed,
            problem=fp.FederatedProblem(shares, server, regularizer),
            expected=self.expected,
            traits=self.traits,
            objective=self.objective,
            kinds=self.kinds,
            regularizer=self.regularizer,
            owners=self.owners,
            reference=reference,
            pooled=self._pooled(total, domain),
            factor=self.factor,
        )

    def _pooled(self, total: Any, domain: list[Any]) -> cp.Problem:
        """The problem as posed: all rows, in the units that the owners have."""
        w = cp.Variable(self.dim)
        posed = [
            c
            for holder in self.holders
            for rows, factor in zip(holder.rows, holder.factors, strict=True)
            for c in rows.conic(self.u, factor)
        ]
        if hasattr(self, "coupled"):
            posed += self.coupled.conic(self.u, self.coupled_factor)
        return cp.Problem(cp.Minimize(self.factor * total), [*posed, *domain, self.u == cp.multiply(self.columns, w)])
