"""Problems so small that something vanishes: every method ends with a status or an error of ours, never one of NumPy's.

Zero and linear objectives, dependent and empty rows, non-convex quadratics, tolerances below rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
from marks import slow_but

import fedpact as fp
from fedpact.cones import Nonnegative, Zero
from fedpact.errors import FedpactError
from fedpact.functions import Affine, Quadratic
from fedpact.prox import L1, Box, Prox, SquaredL2
from fedpact.solvers import METHODS
from fedpact.solvers.constrained.accelerated_owner import Moved
from fedpact.solvers.constrained.accelerated_pace import WAIT, Pace
from fedpact.solvers.local import keep_factor, minimize
from fedpact.solvers.local.resolvent import Subproblem, resolvent

CONSTRAINED = ("interior-point", "accelerated", "proximal-al", "centralized-proximal-al")
ROWS = [name for name in METHODS if not METHODS[name].needs.columns]


def quadratic(rng: np.random.Generator, d: int) -> Quadratic:
    root = rng.normal(size=(d, int(rng.integers(1, d + 1))))
    matrices = [
        np.zeros((d, d)),
        np.eye(d),
        np.diag(rng.choice([0.0, 1.0, 1e-3, 100.0], size=d)),
        root @ root.T,
        -np.eye(d) if rng.random() < 0.2 else 2 * np.eye(d),
    ]
    return Quadratic(matrices[int(rng.integers(5))], rng.choice([0.0, 1.0, -1.0, rng.normal()], size=d))


def constraint(rng: np.random.Generator, d: int) -> fp.Constraint:
    row = rng.choice([0.0, 0.0, 1.0, -1.0, 2.0, rng.normal()], size=(1, d))
    cone = Zero(1) if rng.random() < 0.5 else Nonnegative(1)
    return fp.Constraint(Affine(row, [rng.choice([0.0, -1.0, 1.0, rng.normal()])]), cone)


def tiny(seed: int, constrained: bool, smooth: bool) -> fp.FederatedProblem:
    """1 to 3 variables, 1 to 3 owners, 0 to 2 constraints, and a regularizer or none."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    places = rng.integers(0, n, size=int(rng.integers(0, 3)) if constrained else 0)
    shares = []
    for i in range(n):
        limits = [constraint(rng, d) for _ in range(int(np.sum(places == i)))]
        shares.append(fp.Share(quadratic(rng, d), limits, name=f"owner {i}"))  # type: ignore[arg-type]
    choices: list[Prox | None] = [None, None, SquaredL2(0.1)] if smooth else [None, None, L1(0.1), Box(-1.0, 1.0)]
    return fp.FederatedProblem(shares, regularizer=choices[int(rng.integers(len(choices)))])


def ends_well(problem: fp.FederatedProblem, method: str, tol: float) -> bool:
    try:
        with np.errstate(all="ignore"):
            found = fp.solve(problem, method, tol=tol, max_rounds=200)
    except FedpactError as error:
        return "failed with" not in str(error)  # the words around an error of a library
    if not found.solved:
        return True
    certificate = fp.certify(problem, found.w, found.multipliers)
    return max(certificate.stationarity, certificate.feasibility) <= 1.0001 * tol


@pytest.mark.parametrize("seeds", slow_but([range(4), range(4, 60)], range(4)), ids=["a few", "the rest"])
@pytest.mark.parametrize("method", ROWS)
def test_tiny_problems_end_in_words(method: str, seeds: range) -> None:
    smooth = method in ("fedsplit", "scaffold", "fedavg", "fedprox")
    bad = [seed for seed in seeds if not ends_well(tiny(seed, method in CONSTRAINED, smooth), method, 1e-3)]
    assert bad == []


@pytest.mark.parametrize("seeds", slow_but([range(4), range(4, 60)], range(4)), ids=["a few", "the rest"])
def test_tolerances_below_rounding_end_in_words(seeds: range) -> None:
    """The residual of the iteration becomes exactly zero, and the certificate does not."""
    bad = [seed for seed in seeds if not ends_well(tiny(seed, True, False), "accelerated", 1e-15)]
    assert bad == []


def test_a_residual_of_zero_moves_no_penalty() -> None:
    none = np.zeros(0)
    still = Moved(
        objective=0.0, gradient=none, feasibility=0.0, violation=0.0, private=0.0, coupled=none, residual=none,
        squared=0.0, products=none, against=none, stepped=0.0, moved=1e-30, turned=1.0,
        weight=1.0, looseness=0.0, curvature=0.0, bound=0.0, misfits=0.0,
        converged=True, indefinite=False, gradients=1, hessians=0,
    )  # fmt: skip
    pace = Pace(fixed=False)
    plans = [pace.plan(still, 1.0, 1) for _ in range(3 * WAIT)]
    assert all(plan.penalty == 1.0 and not plan.adjust for plan in plans)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_a_singular_newton_system_of_a_resolvent(gamma: float) -> None:
    """F(x) = -x / gamma makes F + id / gamma vanish: there is no resolvent, and no error of NumPy's either."""
    function = Quadratic(np.diag([-1 / gamma, 1.0]), [0.0, 1.0])
    problem = Subproblem(function, 1.0, np.array([1.0, 1.0]), gamma, 1.0)
    x = np.array([2.0, 3.0])
    found = resolvent(problem, x, problem.image(x), "newton", 5)
    assert np.all(np.isfinite(found.x))
    # the second coordinate has its resolvent, (s - gamma) / (1 + gamma); the first has none
    assert found.x[1] == pytest.approx((1.0 - gamma) / (1 + gamma), rel=1e-9)


def test_an_indefinite_quadratic_is_said_to_be_one() -> None:
    function = Quadratic(np.diag([1.0, -1.0]), [1.0, 1.0])
    assert keep_factor(function) is None
    found = minimize(function, np.array([1.0, 2.0]), 1e-9)
    assert found.indefinite
    assert not found.converged
    assert np.max(np.abs(found.w)) < 1e6  # it is left before it is far away


@pytest.mark.parametrize("call", [1, 2, 3, 5, 40])
def test_ctrl_c_does_not_escape_the_centralized_method(call: int) -> None:
    """The first call is the look at the share, before there is anything to give back."""
    calls: list[int] = []
    inner = Quadratic(np.diag([1.0, 2.0]), [-1.0, 3.0])

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(1)
        if len(calls) == call + 1:
            raise KeyboardInterrupt
        return inner.value_and_gradient(w)

    def problem(objective: fp.functions.Function) -> fp.FederatedProblem:
        limit = fp.Constraint(Affine([[1.0, -1.0]], [-1.0]), Nonnegative(1))
        return fp.FederatedProblem([fp.Share(objective, limit, name="a")], regularizer=L1(0.1))

    smooth = fp.functions.Smooth(fun, inner.hessian, dim=2)
    found = fp.solve(problem(smooth), "centralized-proximal-al", tol=1e-9)
    assert len(calls) > call
    assert "interrupted after" in found.reason
    assert fp.certify(problem(inner), found.w, found.multipliers) == found.certificate
