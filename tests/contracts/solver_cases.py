"""Every method on small problems whose answers are known from elsewhere; a new method is one more line of `CASES`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize, root
from vertical_cases import EPS, matrix, rows, small

import fedpact as fp
from fedpact.cones import Nonnegative, Zero
from fedpact.functions import Affine, Linear, LogisticLoss, Operator, Quadratic
from fedpact.problem import MonotoneProblem
from fedpact.solvers import METHODS

NAMES = ("north", "south", "west")


@dataclass(frozen=True, eq=False)
class Example:
    """A problem, its solution from an independent source, and its multipliers where they are unique and known."""

    problem: Any
    w: np.ndarray
    multipliers: Sequence[Sequence[float]] | None = None

    @property
    def vertical(self) -> bool:
        return isinstance(self.problem, fp.VerticalProblem)


@dataclass(frozen=True, eq=False)
class Case:
    """One method on one example.

    tol:    of the solve; w and the prices may err by a hundred times as much (curvatures are of order one)
    few:    exchanges that are enough when the solve starts at the solution; prices still have to be found from zero
    secure: does the method work in secure sums?
    """

    method: str
    example: Callable[[], Example]
    tol: float = 1e-6
    few: int = 10
    secure: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        parts = [self.method, self.example.__name__, *(f"{name}={value}" for name, value in self.options.items())]
        return "-".join(parts)

    @property
    def exchanges(self) -> bool:
        """Whether the method sends messages; a pooled one reads the shares."""
        return self.method != "centralized-proximal-al"

    @property
    def takes_start(self) -> bool:
        """Vertical methods start at zero: nobody holds a whole w."""
        return not METHODS[self.method].needs.columns

    def solve(self, problem: Any = None, **options: Any) -> fp.Solution:
        """Solve the example, or the same problem stated in another way."""
        return fp.solve(problem or self.example().problem, self.method, **{"tol": self.tol, **self.options, **options})


# ------------------------------------------------------------------------------------------------------------ examples

CURVATURES = np.array([np.diag([1.0, 2.0, 3.0]), np.eye(3) + 0.5, [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]]])
SLOPES = np.array([[-3.0, -2.0, 1.0], [1.0, -4.0, 0.5], [-1.0, 1.0, 2.0]])


def objectives() -> list[Quadratic]:
    return [Quadratic(A, b) for A, b in zip(CURVATURES, SLOPES, strict=True)]


@functools.cache
def quadratics() -> Example:
    """Three owners with different minima and a ridge: a linear system."""
    shares = [fp.Share(f, name=name) for f, name in zip(objectives(), NAMES, strict=True)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.1))
    return Example(problem, np.linalg.solve(CURVATURES.sum(0) + 0.1 * np.eye(3), -SLOPES.sum(0)))


@functools.cache
def logistic() -> Example:
    """Three owners whose classes lie in different places; the optimum by scipy on pooled rows."""
    rng = np.random.default_rng(4)
    tables = []
    for _ in NAMES:
        X = rng.standard_normal((30, 3)) + rng.standard_normal(3)
        y = (X @ rng.standard_normal(3) + rng.standard_normal(30) > 0).astype(float)
        tables.append((X, y))
    shares = [fp.Share(LogisticLoss(X, y), name=name) for (X, y), name in zip(tables, NAMES, strict=True)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.3))

    def pooled(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = 0.15 * w @ w, 0.3 * w
        for X, y in tables:
            margins = (2 * y - 1) * (X @ w)
            value += np.mean(np.logaddexp(0, -margins))
            gradient = gradient - X.T @ ((2 * y - 1) / (1 + np.exp(margins))) / len(y)
        return value, gradient

    found = minimize(pooled, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10})
    return Example(problem, found.x)


@functools.cache
def constrained() -> Example:
    """One owner's bound is active, another's is not, the server has an equality: the KKT system is linear."""
    normal, plane = np.array([1.0, 0.1, 0.0]), np.array([1.0, 1.0, 1.0])
    constraints = [
        fp.Constraint(Affine([normal], [-0.4]), Nonnegative(1)),
        fp.Constraint(Affine([[0.0, 1.0, 0.0]], [-5.0]), Nonnegative(1)),
        None,
    ]
    shares = [fp.Share(f, c, name=name) for f, c, name in zip(objectives(), constraints, NAMES, strict=True)]
    server = fp.Share(None, fp.Constraint(Affine([plane], [-1.0]), Zero(1)))
    rows = np.array([plane, normal])
    kkt = np.block([[CURVATURES.sum(0), rows.T], [rows, np.zeros((2, 2))]])
    *w, equality, bound = np.linalg.solve(kkt, np.concatenate([-SLOPES.sum(0), [1.0, 0.4]]))
    assert bound > 0.1  # it is active
    assert w[1] < 4.0  # the other bound is not
    return Example(fp.FederatedProblem(shares, server), np.array(w), [[equality], [bound], [0.0], []])


@functools.cache
def coupled() -> Example:
    """A bound on a sum over the owners, active: the KKT system is linear."""
    parts = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.5, 1.0]])
    maps = [Affine([part], [-0.1]) for part in parts]
    shares = [fp.Share(f, coupled=c, name=name) for f, c, name in zip(objectives(), maps, NAMES, strict=True)]
    row = parts.sum(0)
    kkt = np.block([[CURVATURES.sum(0), row[:, None]], [row[None, :], np.zeros((1, 1))]])
    *w, price = np.linalg.solve(kkt, np.concatenate([-SLOPES.sum(0), [0.3]]))
    assert price > 0.1
    return Example(fp.FederatedProblem(shares), np.array(w), [[], [], [], [], [price]])


@functools.cache
def private() -> Example:
    """Owners with 1, 2 and no private variables, one of them in an active bound: the pooled KKT system is linear."""
    rng = np.random.default_rng(8)
    size = 3 + 1 + 2  # w, then the private variables of north and of south
    taken = [[0, 1, 2, 3], [0, 1, 2, 4, 5], [0, 1, 2]]
    curvature, slope = np.zeros((size, size)), np.zeros(size)
    normal = np.array([1.0, 0.0, 0.0, 0.5])
    shares = []
    for name, columns in zip(NAMES, taken, strict=True):
        root, b = rng.standard_normal((len(columns), len(columns))), rng.standard_normal(len(columns))
        A = root @ root.T + np.eye(len(columns))
        curvature[np.ix_(columns, columns)] += A
        slope[columns] += b
        bound = fp.Constraint(Affine([normal], [0.7]), Nonnegative(1)) if name == "north" else None
        shares.append(fp.Share(Quadratic(A, b), bound, name=name, private=len(columns) - 3))
    row = np.zeros(size)
    row[taken[0]] = normal
    kkt = np.block([[curvature, row[:, None]], [row[None, :], np.zeros((1, 1))]])
    *point, price = np.linalg.solve(kkt, np.append(-slope, -0.7))
    assert price > 0.1  # the bound is active
    return Example(fp.FederatedProblem(shares), np.array(point[:3]), [[], [price], [], []])


@functools.cache
def game() -> Example:
    """Operators that are no gradients: a zero of their sum is a linear system."""
    rng = np.random.default_rng(0)
    skew = rng.standard_normal((3, 3, 3))
    matrices = CURVATURES + skew - skew.transpose(0, 2, 1)
    shares = [fp.Share(Linear(M, q), name=name) for M, q, name in zip(matrices, SLOPES, NAMES, strict=True)]
    return Example(MonotoneProblem(shares), np.linalg.solve(matrices.sum(0), -SLOPES.sum(0)))


def bend(M: np.ndarray, q: np.ndarray, w: np.ndarray) -> np.ndarray:
    return M @ w + q + w**3


def bend_slope(M: np.ndarray, w: np.ndarray) -> np.ndarray:
    return M + np.diag(3 * w**2)


@functools.cache
def curved_game() -> Example:
    """Operators that are neither gradients nor linear; the zero of their sum by scipy."""
    linear = [share.objective for share in game().problem.shares]
    operators = [Operator(partial(bend, f.M, 5 * f.q), partial(bend_slope, f.M), 3) for f in linear]
    shares = [fp.Share(f, name=name) for f, name in zip(operators, NAMES, strict=True)]
    found = root(lambda w: sum(f.gradient(w) for f in operators), np.zeros(3), tol=1e-13)
    assert found.success
    return Example(MonotoneProblem(shares), found.x)


@functools.cache
def ridge() -> Example:
    """Parties with different columns and the squared loss, no constraint: a linear system."""
    problem = small(2, None, loss="squared", gap="all", regularizer=fp.prox.SquaredL2(0.3))
    X, curvature = matrix(problem)
    y = rows(2).y
    return Example(problem, np.linalg.solve(X.T @ X / len(X) + np.diag(curvature), X.T @ y / len(X)))


@functools.cache
def gap() -> Example:
    """Parties with different columns, and an active bound on the gap between two groups; the optimum by SLSQP."""
    problem, made = small(regularizer=fp.prox.SquaredL2(0.1)), rows()
    X, curvature = matrix(problem)
    sign = 2 * made.y - 1

    def losses(w: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, -sign * (X @ w))

    def difference(w: np.ndarray) -> float:
        first, second = (losses(w)[(made.y == 1) & (made.group == g)].mean() for g in (0, 1))
        return float(first - second)

    found = minimize(
        lambda w: losses(w).mean() + 0.5 * curvature @ w**2,
        np.zeros(X.shape[1]),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: [EPS - difference(w), EPS + difference(w)]},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return Example(problem, found.x)


#: Method, problem and options; the contracts of solvers and of engines go through this list.
CASES = [
    Case("interior-point", constrained),
    Case("interior-point", coupled),
    Case("interior-point", logistic),
    Case("interior-point", private),
    Case("accelerated", constrained, few=20),
    Case("accelerated", coupled, few=30),
    Case("accelerated", logistic),
    Case("accelerated", private, few=30),
    Case("accelerated", constrained, tol=1e-5, few=200, secure=False, options={"participation": 0.67}),
    Case("proximal-al", constrained, tol=1e-3, few=150),
    Case("proximal-al", coupled, tol=1e-3, few=200),
    Case("proximal-al", logistic, tol=1e-4, few=20),
    Case("proximal-al", private, tol=1e-3, few=150),
    Case("proximal-al", constrained, tol=1e-3, few=300, secure=False, options={"participation": 0.67}),
    Case("newton-al", constrained, few=40),
    Case("newton-al", coupled, few=40),
    Case("newton-al", logistic, few=15),
    Case("centralized-proximal-al", constrained),
    Case("centralized-proximal-al", coupled),
    Case("stochastic-al", constrained, tol=1e-3, few=700, options={"passes": 300}),
    Case("stochastic-al", logistic, tol=1e-3, few=60, options={"batch_size": 10, "passes": 100}),
    Case("inexact-admm", quadratics, few=15),
    Case("inexact-admm", logistic, few=15),
    Case("monotone-newton", curved_game),
    Case("monotone-newton", logistic),
    Case("ifeddr", logistic),
    Case("ifeddr", game),
    Case("ifeddr", quadratics, secure=False, options={"participation": 0.67}),
    Case("feddr", quadratics),
    Case("feddr", game),
    Case("fedsplit", quadratics),
    Case("scaffold", quadratics, tol=1e-4),
    Case("scaffold", logistic, tol=1e-4, secure=False, options={"participation": 0.67}),
    Case("fedavg", logistic, tol=1e-4, options={"steps": 1}),
    Case("fedprox", logistic, tol=1e-4, options={"steps": 1}),
    Case("vertical-al", ridge),
    Case("vertical-al", gap),
    Case("vertical-exact", ridge),
    Case("vertical-exact", gap, tol=1e-9),
    Case("fair-vfl", gap, tol=5e-3),
    Case("fedbcd", ridge, tol=1e-4),
]
#: Options that lead another way, not all of them to the optimum: what counts bits goes through these lines, too.
VARIANTS = [
    Case("ifeddr", logistic, options={"steps": 1, "error": 0.5, "local_solver": "gradient"}),  # with refinements
    Case("ifeddr", logistic, options={"participation": 0.67, "local_solver": "gradient", "max_rounds": 40}),
    Case("feddr", quadratics, options={"participation": 0.67, "max_rounds": 40}),
    Case("fedavg", logistic, options={"participation": 0.67, "batch_size": 10, "max_rounds": 20}),
    Case("fedprox", logistic, options={"participation": 0.67, "batch_size": 10, "max_rounds": 20}),
    Case("scaffold", logistic, options={"participation": 0.67, "batch_size": 10, "max_rounds": 20}),
    Case("stochastic-al", constrained, options={"participation": 0.67, "max_rounds": 40}),
    Case("stochastic-al", logistic, options={"batch_size": 10, "steps": 2, "max_rounds": 40}),
    Case("fair-vfl", gap, options={"local_updates": 4, "secure_sum": False, "max_rounds": 30}),
    Case("fair-vfl", gap, options={"eta": 100.0, "dual_step": 0.1, "dual_regularization": 1e-3, "max_rounds": 30}),
]


@functools.cache
def solved_plainly(case: Case) -> fp.Solution:
    """The case as its line states it, in this process."""
    return case.solve()
