"""The same problem in other units has the same fate: columns, rows and objective times 1e-3 to 1e3."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic

#: Exchanges that each problem gets: enough for a solution in good units, and for a wrong verdict in bad ones.
ROUNDS = 80


class Units:
    """How much a unit of every variable, and of the objective, is; rows of constraints draw their own."""

    def __init__(self, rng: np.random.Generator, dim: int) -> None:
        self.rng = rng
        self.columns = 10 ** rng.uniform(-3, 3, dim)
        self.objective = 10 ** rng.uniform(-3, 3)

    def rows(self, C: np.ndarray, e: np.ndarray, tied: bool = False) -> Affine:
        """C w + e in these units; rows of a cone that ties them have one unit."""
        unit = 10 ** self.rng.uniform(-3, 3, 1 if tied else len(C))
        return Affine(unit[:, None] * C * self.columns, unit * e)


def objective(rng: np.random.Generator, units: Units, dim: int) -> fp.functions.Function:
    kind = rng.integers(3)
    if kind == 0:
        X = rng.normal(size=(20, dim)) * units.columns
        return units.objective * LogisticLoss(X, rng.integers(0, 2, 20))
    root = rng.normal(size=(dim, dim))
    curvature = root @ root.T / dim + (0.1 * np.eye(dim) if kind == 1 else 0.0)
    scale = np.outer(units.columns, units.columns)
    return units.objective * Quadratic(curvature * scale, rng.normal(size=dim) * units.columns)


def feasible(seed: int) -> fp.FederatedProblem:
    """One to three owners whose constraints all hold, with room to spare, at one point."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 5))
    units = Units(rng, dim)
    inside = 3 * rng.normal(size=dim)
    shares = []
    for _ in range(rng.integers(1, 4)):
        rows = int(rng.integers(1, 4))
        C = rng.normal(size=(rows, dim))
        kind = rng.integers(3)
        if kind == 0:
            limit = fp.Constraint(units.rows(C, -C @ inside - rng.uniform(0.01, 1, rows)), Nonnegative(rows))
        elif kind == 1:
            one = C[:1]
            limit = fp.Constraint(units.rows(one, -one @ inside), Zero(1))
        else:
            # |C (w - inside)| <= 1 as -(1, C (w - inside)) in -K
            top = np.vstack([np.zeros((1, dim)), C])
            limit = fp.Constraint(units.rows(top, np.append(-1.0, -C @ inside), tied=True), SecondOrder(rows + 1))
        shares.append(fp.Share(objective(rng, units, dim), limit))
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-3 * units.objective * units.columns**2))


def infeasible(seed: int) -> fp.FederatedProblem:
    """Two owners on opposite sides of a strip, and perhaps a third who does not mind."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 5))
    units = Units(rng, dim)
    side = rng.normal(size=(1, dim))
    offset = rng.normal(size=1)
    limits = [
        fp.Constraint(units.rows(side, offset + 0.5), Nonnegative(1)),
        fp.Constraint(units.rows(-side, -offset + 0.5), Nonnegative(1)),
    ]
    shares = [fp.Share(objective(rng, units, dim), limit) for limit in limits]
    if rng.integers(2):
        shares.append(fp.Share(objective(rng, units, dim)))
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-3 * units.objective * units.columns**2))


def assert_never_called_infeasible(seeds: range) -> None:
    found = {seed: fp.solve(feasible(seed), tol=1e-4, max_rounds=ROUNDS).status for seed in seeds}
    assert {seed: status for seed, status in found.items() if status in ("infeasible", "unbounded")} == {}


def assert_always_called_infeasible(seeds: range) -> None:
    found = {seed: fp.solve(infeasible(seed), tol=1e-4, max_rounds=400) for seed in seeds}
    assert {seed: answer.status for seed, answer in found.items() if answer.status != "infeasible"} == {}
    assert all({"client 1", "client 2"} <= set(answer.conflict) for answer in found.values())


def test_feasible_problems_are_not_called_infeasible_in_any_units() -> None:
    assert_never_called_infeasible(range(60))


def test_infeasible_problems_stay_so_in_any_units() -> None:
    assert_always_called_infeasible(range(20))


@pytest.mark.slow
def test_three_hundred_feasible_problems_are_not_called_infeasible() -> None:
    assert_never_called_infeasible(range(60, 360))


@pytest.mark.slow
def test_a_hundred_infeasible_problems_stay_so() -> None:
    assert_always_called_infeasible(range(20, 120))


def test_problems_that_were_called_infeasible_are_solved() -> None:
    from fedpact import data, tasks

    hospitals = {name: (0.003 * X, y) for name, (X, y) in data.neyman_pearson(n=5, seed=0).items()}
    assert fp.solve(tasks.neyman_pearson(hospitals, bound=0.2)).solved
    far = fp.Constraint(Affine([[-0.01]], [1.0]), Nonnegative(1))  # w >= 100
    answer = fp.solve(fp.FederatedProblem([fp.Share(Quadratic(np.eye(1)), far)]))
    assert answer.solved
    assert answer.w[0] == pytest.approx(100, rel=1e-3)


def test_a_coupled_constraint_that_cannot_be_met_ends_without_a_crash() -> None:
    shares = [
        fp.Share(Quadratic(np.eye(2), np.ones(2)), coupled=Quadratic(2 * np.eye(2)) + 1e-4, name=name) for name in "ab"
    ]
    answer = fp.solve(fp.FederatedProblem(shares), tol=1e-5)
    assert answer.status in ("infeasible", "stalled", "max_rounds")
    assert np.isfinite(answer.certificate.worst)
