"""NaN and infinity from a user's functions, at the start or later: every method ends, and says solved of nothing false.

Comparisons with NaN are false, so a loop that waits for one to be true never ends. The alarm is for that alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.errors import FedpactError, OwnerError, ProblemError
from fedpact.functions import Affine, Function, Quadratic, Smooth, SmoothMap, Vector
from fedpact.prox import L1, Custom, Prox
from fedpact.solvers import METHODS
from fedpact.solvers.local import exact, newton
from fedpact.solvers.local.damped_model import model_step

ROWS = [name for name in METHODS if not METHODS[name].needs.columns]
CONSTRAINED = ("interior-point", "accelerated", "proximal-al", "centralized-proximal-al")
SMOOTH_ONLY = ("fedavg", "fedprox", "scaffold", "fedsplit", "stochastic-al")
NONSMOOTH = [name for name in ROWS if name not in SMOOTH_ONLY]
BAD = pytest.mark.parametrize("bad", [np.nan, np.inf])
AFTER = pytest.mark.parametrize("after", [0, 3, 20])
H = L1(0.05)


class Endless(BaseException):
    """Caught by nobody."""


@contextmanager
def alarm(seconds: int = 100) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Turning:
    """A callable that is another one after so many calls."""

    def __init__(self, good: Callable[..., Any], bad: Callable[..., Any], after: int) -> None:
        self.good, self.bad, self.after, self.calls = good, bad, after, 0

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return (self.good if self.calls <= self.after else self.bad)(*given)


class Written(Prox):
    """A regularizer of the user's own class, which nobody checks."""

    def __init__(self, prox: Callable[[Vector, float], Vector], distance: Callable[[Vector, Vector], float]) -> None:
        self._prox, self._distance = prox, distance

    def value(self, w: Vector) -> float:
        return H.value(w)

    def prox(self, v: Vector, step: float) -> Vector:
        return self._prox(v, step)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return self._distance(v, w)


def problem(method: str, regularizer: Prox | None = None, objective: Function | None = None) -> fp.FederatedProblem:
    limit = fp.Constraint(Affine([[1.0, 0.1, 0.0]], [-0.4]), Nonnegative(1)) if method in CONSTRAINED else None
    first = objective or Quadratic(np.diag([1.0, 2.0, 3.0]), [-3.0, -2.0, 1.0])
    shares = [
        fp.Share(first, limit, name="a"),
        fp.Share(Quadratic(np.eye(3) + 0.5, [1.0, -4.0, 0.5]), name="b"),
    ]
    return fp.FederatedProblem(shares, regularizer=regularizer)


def outcome(method: str, asked: fp.FederatedProblem, true: fp.FederatedProblem) -> str:
    """How the solve ended; one that is solved has the certificate of the functions as they should be."""
    try:
        with alarm(), np.errstate(all="ignore"):
            found = fp.solve(asked, method, max_rounds=150)
    except FedpactError as error:
        return f"{type(error).__name__}: {error}"
    if found.solved:
        certificate = fp.certify(true, found.w, found.multipliers)
        assert max(certificate.stationarity, certificate.feasibility) <= 1.01e-3
    return found.status


@BAD
@AFTER
@pytest.mark.parametrize("method", NONSMOOTH)
def test_a_prox_that_returns_no_number(method: str, after: int, bad: float) -> None:
    prox = Turning(H.prox, lambda v, step: np.full_like(v, bad), after)
    found = outcome(method, problem(method, Custom(H.value, prox, H.subdifferential_distance)), problem(method, H))
    if prox.calls > after:
        assert found.startswith("ProblemError: Custom: prox returned NaN or infinite values")
    else:
        assert found == "solved"


@BAD
@AFTER
@pytest.mark.parametrize("part", ["prox", "distance"])
@pytest.mark.parametrize("method", NONSMOOTH)
def test_a_class_of_the_users_that_returns_no_number(method: str, part: str, after: int, bad: float) -> None:
    prox, distance = H.prox, H.subdifferential_distance
    if part == "prox":
        prox = Turning(H.prox, lambda v, step: np.full_like(v, bad), after)
    else:
        distance = Turning(H.subdifferential_distance, lambda v, w: bad, after)
    found = outcome(method, problem(method, Written(prox, distance)), problem(method, H))
    assert found in ("solved", "stalled", "max_rounds") or "non-finite" in found


@BAD
@AFTER
@pytest.mark.parametrize("part", ["value", "gradient", "Hessian"])
@pytest.mark.parametrize("method", ROWS)
def test_a_function_that_returns_no_number_later(method: str, part: str, after: int, bad: float) -> None:
    inner = Quadratic(np.diag([1.0, 2.0, 3.0]), [-3.0, -2.0, 1.0])
    broken = Turning(lambda: False, lambda: True, after)

    def fun(w: Vector) -> tuple[float, Vector]:
        value, gradient = inner.value_and_gradient(w)
        if part != "Hessian" and broken():
            return (bad, gradient) if part == "value" else (value, np.full_like(gradient, bad))
        return value, gradient

    def hessian(w: Vector) -> Vector:
        return np.full((3, 3), bad) if part == "Hessian" and broken() else inner.hessian(w)

    found = outcome(method, problem(method, objective=Smooth(fun, hessian, dim=3)), problem(method))
    assert found in ("solved", "stalled", "max_rounds") or "a: " in found


@BAD
@AFTER
@pytest.mark.parametrize("part", ["value", "Jacobian", "Hessian"])
@pytest.mark.parametrize("method", CONSTRAINED)
def test_a_constraint_of_the_server_that_returns_no_number(method: str, part: str, after: int, bad: float) -> None:
    inner = Affine([[1.0, 0.1, 0.0]], [-0.4])
    broken = Turning(lambda: False, lambda: True, after)

    def fun(w: Vector) -> tuple[Vector, Vector]:
        value, jacobian = inner.value_and_jacobian(w)
        if part != "Hessian" and broken():
            return (np.full(1, bad), jacobian) if part == "value" else (value, np.full((1, 3), bad))
        return value, jacobian

    def hessian(w: Vector, weights: Vector) -> Vector:
        return np.full((3, 3), bad if part == "Hessian" and broken() else 0.0)

    shares = problem("ifeddr").shares  # without constraints
    server = fp.Share(None, fp.Constraint(SmoothMap(fun, hessian, 1, 3), Nonnegative(1)))
    true = fp.FederatedProblem(shares, fp.Share(None, fp.Constraint(inner, Nonnegative(1))))
    found = outcome(method, fp.FederatedProblem(shares, server), true)
    assert found in ("solved", "stalled", "max_rounds") or "finite" in found
    assert "failed with" not in found


def test_a_distance_that_is_no_number_is_told() -> None:
    asked = problem("accelerated", Custom(H.value, H.prox, lambda v, w: np.nan))
    with pytest.raises(ProblemError, match=r"Custom: subdifferential_distance .*NaN"):
        fp.solve(asked, "accelerated")


class Broken(Function):
    """A quadratic whose gradient is no number after some calls."""

    has_hessian = constant_hessian = True
    dim = 2

    def __init__(self, bad: float, after: int, hessian: float = 2.0) -> None:
        self.gradient_of = Turning(lambda w: 2.1 * w - 1, lambda w: np.full_like(w, bad), after)
        self.curvature = hessian

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return float(w @ w), self.gradient_of(w)

    def hessian(self, w: Vector) -> Vector:
        return self.curvature * np.eye(2)


@BAD
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_the_exact_solver_ends(after: int, bad: float) -> None:
    """The Hessian is a little off, so that several refinements are made before the gradient breaks."""
    with alarm():
        found = exact(Broken(bad, after), np.array([3.0, 4.0]), 1e-14)
    assert not found.converged
    assert np.all(np.isfinite(found.w))
    assert found.gradients == after + 1


@pytest.mark.parametrize("curvature", [np.nan, np.inf])
def test_newton_ends_at_once_where_the_hessian_is_no_number(curvature: float) -> None:
    function = Broken(1.0, 10**6, hessian=curvature)
    with alarm(), np.errstate(all="ignore"):
        found = newton(function, np.array([3.0, 4.0]), 1e-9)
    assert not found.converged
    assert found.w.tolist() == [3.0, 4.0]
    assert found.hessians == 1


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), -np.eye(2)], ids=["zero", "negative"])
@pytest.mark.parametrize("regularizer", [fp.prox.Zero(), L1(0.1)], ids=str)
def test_a_model_without_curvature_is_damped_from_nothing(matrix: Vector, regularizer: Prox) -> None:
    slope = np.array([1.0, -2.0])
    with alarm():
        step, damping = model_step(matrix, slope, np.zeros(2), regularizer, np.zeros(2), 0.0, 1e-9)
    assert damping > 0
    assert np.all(np.isfinite(step))
    assert slope @ step < 0


@pytest.mark.parametrize("method", ROWS)
def test_an_overflow_in_the_sums_is_an_error_in_words(method: str) -> None:
    """Every owner's numbers are finite, their sum is not."""
    steep = Quadratic(8e307 * np.eye(2), np.zeros(2))
    asked = fp.FederatedProblem([fp.Share(steep, name=f"owner {i}") for i in range(3)])
    with alarm(), np.errstate(all="ignore"):
        if method == "centralized-proximal-al":
            assert fp.solve(asked, method, w0=[1.0, 1.0], max_rounds=100).status == "stalled"
        else:
            with pytest.raises(OwnerError, match=r"is too large for a number; scale|non-finite image"):
                fp.solve(asked, method, w0=[1.0, 1.0], max_rounds=100)
