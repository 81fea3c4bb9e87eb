"""Small random problems whose status is known by construction, of the kinds in which a status is easily false.

Constraints that touch zero, an optimum where the solve starts, data that one column separates beside ties, boxes
without bounds, redundant rows in huge units, optima at vertices, rays, and conflicts by a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder
from fedpact.functions import Affine, LogisticLoss, PoissonLoss, Quadratic, as_map
from fedpact.types import Matrix, Vector

Ending = Literal["solved", "infeasible", "unbounded"]


@dataclass(frozen=True)
class Known:
    """A problem, its start, and how a solve of it must end if it ends in a claim.

    optimum: of the objective, where that is known too
    """

    kind: str
    problem: fp.FederatedProblem
    ending: Ending
    start: Vector
    optimum: float | None = None


def draw_known(seed: int) -> Known:
    """The problem of this seed; kinds take turns."""
    kinds = list(KINDS)
    kind = kinds[seed % len(kinds)]
    return KINDS[kind](np.random.default_rng([29, seed]))


def _deal(objectives: list[Quadratic], A: Matrix, b: Vector) -> fp.FederatedProblem:
    """Rows A w + b <= 0 dealt to the owners of these objectives."""
    count = len(objectives)
    shares = []
    for number, objective in enumerate(objectives):
        rows = slice(number, None, count)
        own = fp.Constraint(Affine(A[rows], b[rows]), Nonnegative(len(b[rows]))) if len(b[rows]) else None
        shares.append(fp.Share(objective, own))
    return fp.FederatedProblem(shares)


def _linear(slope: Vector, owners: int) -> list[Quadratic]:
    flat = np.zeros((slope.size, slope.size))
    return [Quadratic(flat, slope / owners) for _ in range(owners)]


def _touching(rng: np.random.Generator) -> Known:
    """(a'w - b)^2 <= 0: met on a hyperplane and nowhere by less."""
    dim = int(rng.integers(1, 4))
    inside = rng.standard_normal(dim)
    a = rng.standard_normal(dim) * 10.0 ** rng.integers(-1, 2)
    b = float(a @ inside)
    square = Quadratic(2 * np.outer(a, a), -2 * b * a) + b**2
    target = rng.standard_normal(dim)
    share = fp.Share(Quadratic(np.eye(dim), -target), fp.Constraint(as_map(square), Nonnegative(1)))
    return Known("touching square", fp.FederatedProblem([share]), "solved", np.zeros(dim))


def _at_start(rng: np.random.Generator) -> Known:
    """A linear objective over a cone whose corner is the start."""
    dim = int(rng.integers(1, 5))
    slope = rng.uniform(0.1, 2.0, dim)
    start = rng.choice([0.0, 1.0]) * rng.standard_normal(dim)
    problem = _deal(_linear(slope, int(rng.integers(1, 4))), -np.eye(dim), start)
    return Known("optimum at the start", problem, "solved", start, float(slope @ start))


def _vertex(rng: np.random.Generator) -> Known:
    """A linear objective over a box, or over a cone beside the start."""
    dim = int(rng.integers(1, 5))
    slope = rng.standard_normal(dim)
    shares = [fp.Share(one) for one in _linear(slope, 2)]
    if rng.random() < 0.5:
        problem = fp.FederatedProblem(shares, regularizer=fp.prox.Box(-1, 1))
        return Known("vertex", problem, "solved", np.zeros(dim), -float(np.sum(np.abs(slope))))
    centre = rng.standard_normal(dim)
    rows = np.vstack([np.zeros(dim), -np.eye(dim)])
    ball = fp.Constraint(Affine(rows, np.append(-1.0, centre)), SecondOrder(dim + 1))
    optimum = float(slope @ centre - np.linalg.norm(slope))
    return Known("vertex", fp.FederatedProblem(shares, fp.Share(None, ball)), "solved", np.zeros(dim), optimum)


def _quasi_separable(rng: np.random.Generator) -> Known:
    """A level of a category has rows of one class, or no counts; other columns and levels have both."""
    rows = 90
    level = rng.integers(0, 3, rows)
    X = np.column_stack([np.ones(rows), rng.standard_normal(rows), level == 1, level == 2]).astype(float)
    if rng.random() < 0.5:
        y = rng.integers(0, 2, rows).astype(float)
        y[level == 1] = rng.integers(0, 2)
        shares = [fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    else:
        y = rng.poisson(1.5, rows).astype(float)
        y[level == 1] = 0.0
        shares = [fp.Share(PoissonLoss(X[i::3], y[i::3])) for i in range(3)]
    return Known("quasi-separable", fp.FederatedProblem(shares), "unbounded", np.zeros(4))


def _open_box(rng: np.random.Generator) -> Known:
    """A box without bounds, alone or on one side."""
    dim = int(rng.integers(1, 4))
    target = rng.standard_normal(dim)
    open_side = rng.choice(["both", "above"])
    low = -np.inf if open_side == "both" else -5.0
    shares = [fp.Share(Quadratic(np.eye(dim) / 2, -target / 2)) for _ in range(2)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.Box(low, np.inf))
    return Known("box without bounds", problem, "solved", np.zeros(dim), -0.5 * float(target @ target))


def _huge_rows(rng: np.random.Generator) -> Known:
    """One row many times, in units from 1e-6 to 1e6, beside a quadratic objective whose minimiser it cuts off."""
    dim = int(rng.integers(1, 4))
    normal = rng.standard_normal(dim)
    normal /= np.linalg.norm(normal)
    factors = 10.0 ** rng.uniform([0, -6, -6, -6], 6)  # in tiny units alone, any tolerance would allow a miss
    problem = _deal([Quadratic(np.eye(dim) / 2) for _ in range(2)], -np.outer(factors, normal), factors)
    return Known("redundant in huge units", problem, "solved", np.zeros(dim), 0.5)


def _ray(rng: np.random.Generator) -> Known:
    """A linear objective over half-spaces that admit a ray."""
    dim = int(rng.integers(1, 5))
    ray = rng.standard_normal(dim)
    slope = rng.standard_normal(dim)
    slope -= (slope @ ray + 1.0) * ray / (ray @ ray)
    A = rng.standard_normal((3, dim))
    A[A @ ray > 0] *= -1
    problem = _deal(_linear(slope, 2), A, -rng.uniform(0.1, 1.0, 3))
    return Known("ray", problem, "unbounded", np.zeros(dim))


def _conflict(rng: np.random.Generator) -> Known:
    """a'w >= 1 at one owner and a'w <= 0 at another, beside rows that all admit."""
    dim = int(rng.integers(1, 5))
    a = rng.standard_normal(dim)
    A = np.vstack([-a, a, rng.standard_normal(dim)])
    problem = _deal([Quadratic(np.eye(dim), rng.standard_normal(dim)) for _ in range(2)], A, np.array([1.0, 0.0, -9.0]))
    return Known("conflict", problem, "infeasible", np.zeros(dim))


KINDS: dict[str, Callable[[np.random.Generator], Known]] = {
    "touching square": _touching,
    "optimum at the start": _at_start,
    "vertex": _vertex,
    "quasi-separable": _quasi_separable,
    "box without bounds": _open_box,
    "redundant in huge units": _huge_rows,
    "ray": _ray,
    "conflict": _conflict,
}

CLAIMS = ("solved", "infeasible", "unbounded")


def is_false(known: Known, answer: fp.Solution, tol: float) -> bool:
    """Whether the answer claims what is not so."""
    if answer.status not in CLAIMS:
        return False
    if answer.status != known.ending:
        return True
    if answer.status != "solved" or known.optimum is None:
        return False
    return abs(answer.objective - known.optimum) > 1e3 * tol * (1 + abs(known.optimum))
