"""One owner's resolvent, x = (id + gamma F)^-1(s), approximately: the zero of r(x) = F(x) + (x - s) / gamma.

`gap` is |s - gamma F(x) - x| = gamma |r(x)|, the error that iFedDR's test is about. Every solver takes steps until it
has taken enough, or its gap is small enough; it keeps F(x), so that going on costs no evaluation (L-BFGS: one, for the
value).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from fedpact.errors import OptionError
from fedpact.functions import Function, Matrix, Vector
from fedpact.solvers.local.base import DENSE_LIMIT

#: Where the answer is as good as double precision allows.
ROUNDING = 1e-15
#: How often L is raised for one step; where that does not help, F is not continuous, or not finite.
MOST_RAISES = 60
#: A gap this many times the smallest so far: the path leads away.
AWAY = 1e3
#: L-BFGS that leaves more than this part of the gap has met rounding: near the end values hardly differ.
HELPS = 0.9
#: Step of the extragradient method over that of the gradient method; convergence asks for less than 1.
EXTRAGRADIENT = 0.7
#: Iterations of the power method for L, where there is a Jacobian ...
POWERS = 8
#: ... and where every one costs a gradient.
POWERS_OF_DIFFERENCES = 3
#: An estimated or observed L is taken so much larger.
SAFETY = 1.05


@dataclass(frozen=True)
class Resolved:
    """Where a local solver stopped.

    image:     F(x)
    gradients, hessians: evaluations of F and of its Jacobian
    lipschitz: L of F, as far as the steps showed it
    monotone:  whether F seemed monotone along all steps
    """

    x: Vector
    image: Vector
    gap: float
    gradients: int
    hessians: int
    lipschitz: float
    monotone: bool = True


@dataclass
class Subproblem:
    """r(x) = F(x) + (x - s) / gamma with F = scale * function.gradient; counts evaluations."""

    function: Function
    scale: float
    s: Vector
    gamma: float
    lipschitz: float  # of F, as far as it is known; grows when a step shows more
    gradients: int = 0
    hessians: int = 0

    def image(self, x: Vector) -> Vector:
        """F(x)"""
        self.gradients += 1
        return self.scale * self.function.gradient(x)

    def rest(self, x: Vector, image: Vector) -> Vector:
        """r(x)"""
        return image + (x - self.s) / self.gamma

    def gap(self, x: Vector, image: Vector) -> float:
        return self.gamma * float(np.linalg.norm(self.rest(x, image)))

    def stop(self, x: Vector, image: Vector, monotone: bool = True) -> Resolved:
        """Give back x with what was spent."""
        gap = self.gap(x, image)
        return Resolved(x, image, gap, self.gradients, self.hessians, self.lipschitz, monotone)


Point = tuple[Vector, Vector]  # x and F(x)
Solver = Callable[[Subproblem, Vector, Vector], Iterator[Point]]


def resolvent(problem: Subproblem, x: Vector, image: Vector, solver: str, steps: int, target: float = 0.0) -> Resolved:
    """Take up to `steps` steps from x (F(x) = image), at least one, and stop early when the gap is at most target.

    The nearest point seen is given back, x itself included; a path that leads away, as it may where F is not monotone,
    is left. Where F(x) is not finite no step is taken: the reply, which holds it, is refused with the owner's name.
    """
    _check_solver(problem.function, solver)
    if steps == 0 or not np.all(np.isfinite(image)):
        return problem.stop(x, image)
    if solver == "lbfgs":
        after = _lbfgs(problem, x, image, steps, target)
        if problem.gap(*after) < HELPS * problem.gap(x, image):
            return problem.stop(*after)
        solver = "agd"  # gradients still tell

    after = nearest = (x, image)
    least = problem.gap(x, image)
    enough = max(target, ROUNDING * float(np.linalg.norm(problem.s)))
    monotone = True
    path = SOLVERS[solver](problem, x, image)
    for _ in range(steps):
        before = after
        after = next(path)
        gap = problem.gap(*after)
        if gap < least:
            nearest = after
            least = gap
        if after[0] is before[0] or not gap <= AWAY * least:  # nothing helps
            break
        monotone = monotone and seems_monotone(*before, *after, problem.lipschitz)
        if gap <= enough:
            break
    return problem.stop(*nearest, monotone)


def seems_monotone(x: Vector, image: Vector, other: Vector, at_other: Vector, lipschitz: float) -> bool:
    """Is <x - x', F(x) - F(x')> >= 0, as far as rounding lets one see?"""
    moved = other - x
    turned = at_other - image
    size = float(np.linalg.norm(moved))
    change = float(np.linalg.norm(turned))
    reach = float(np.linalg.norm(other))
    noise = 1e-13 * ((float(np.linalg.norm(at_other)) + lipschitz * reach) * size + reach * change)
    return float(moved @ turned) >= -1e-9 * size * change - noise


def default_solver(function: Function, dim: int) -> str:
    """Newton where a Jacobian is there and small; else extragradient for operators, accelerated gradient otherwise."""
    if function.has_hessian and dim <= DENSE_LIMIT:
        return "newton"
    return "agd" if function.gradient_field else "extragradient"


def default_start(solver: str) -> str:
    """Where Douglas-Rachford methods start it: at the x of the round before, or at the server's p, which is judged."""
    return "last" if solver in ("newton", "lbfgs") else "p"


def _check_solver(function: Function, solver: str) -> None:
    if solver == "newton" and not function.has_hessian:
        raise OptionError(
            f'local_solver="newton" needs a Hessian (of an operator: jac), and {function!r} has none; give one, or '
            f'choose "{default_solver(function, DENSE_LIMIT + 1)}"',
            code="FP-OPTION-201",
        )
    if solver in ("agd", "lbfgs") and not function.gradient_field:
        raise OptionError(
            f'local_solver="{solver}" minimises, and {function!r} is an operator; choose "extragradient" or "newton"',
            code="FP-OPTION-202",
        )


def gradient(problem: Subproblem, x: Vector, image: Vector) -> Iterator[Point]:
    """x - r(x) / (L + 1 / gamma). L is raised, and the step taken again, when F changes faster than L says."""
    while True:
        x, image = _step(problem, x, image)
        yield x, image


def accelerated_gradient(problem: Subproblem, x: Vector, image: Vector) -> Iterator[Point]:
    """Nesterov's method for functions with strong convexity 1 / gamma: constant momentum, one evaluation a step.

    Evaluations are at the extrapolated points, so the point given back is one of those.
    """
    y = before = x
    at_y = image
    known = problem.lipschitz
    raises = 0
    while True:
        root = np.sqrt(1 + problem.gamma * problem.lipschitz)
        x = y - problem.rest(y, at_y) / (problem.lipschitz + 1 / problem.gamma)
        following = x + (root - 1) / (root + 1) * (x - before)
        at_following = problem.image(following)
        if raises < MOST_RAISES and _too_fast(problem, y, following, at_y, at_following):
            raises += 1
            before = x = y  # the step was too long: start again from where we were
            continue
        if raises == MOST_RAISES:
            problem.lipschitz = known
            following = y
            at_following = at_y
        known = problem.lipschitz
        raises = 0
        uphill = float(problem.rest(y, at_y) @ (following - y)) > 0
        before = following if uphill else x  # uphill: drop the momentum
        y = following
        at_y = at_following
        yield y, at_y


def extragradient(problem: Subproblem, x: Vector, image: Vector) -> Iterator[Point]:
    """Korpelevich's method: a trial step, and the step with what was found there. Two evaluations a step."""
    while True:
        trial, at_trial = _step(problem, x, image, EXTRAGRADIENT)
        if trial is x:
            yield x, image
            continue
        x = x - EXTRAGRADIENT * problem.rest(trial, at_trial) / (problem.lipschitz + 1 / problem.gamma)
        image = problem.image(x)
        yield x, image


def newton(problem: Subproblem, x: Vector, image: Vector) -> Iterator[Point]:
    """Newton's method on r(x) = 0, the step halved until |r| falls."""
    identity = np.eye(x.size) / problem.gamma
    while True:
        rest = problem.rest(x, image)
        problem.hessians += 1
        matrix = problem.scale * problem.function.hessian(x) + identity
        direction = -_solve(matrix, rest, problem.function.gradient_field)
        size = float(np.linalg.norm(rest))
        length = 1.0
        least = max(1e-8, ROUNDING * float(np.linalg.norm(x)) / max(float(np.linalg.norm(direction)), 1e-300))
        while True:
            trial = x + length * direction
            at_trial = problem.image(trial)
            there = float(np.linalg.norm(problem.rest(trial, at_trial)))
            if there <= (1 - 1e-4 * length) * size or length < least:
                break
            length *= 0.5
        if not there <= size:  # no step helps: rounding, or a Jacobian that is none
            yield x, image
            continue
        x = trial
        image = at_trial
        yield x, image


SOLVERS: dict[str, Solver] = {
    "gradient": gradient,
    "agd": accelerated_gradient,
    "extragradient": extragradient,
    "newton": newton,
}
NAMES = (*SOLVERS, "lbfgs")


def _step(problem: Subproblem, x: Vector, image: Vector, length: float = 1.0) -> Point:
    """x - length r(x) / (L + 1/gamma), with L large enough for this very step."""
    known = problem.lipschitz
    for _ in range(MOST_RAISES):
        after = x - length * problem.rest(x, image) / (problem.lipschitz + 1 / problem.gamma)
        at_after = problem.image(after)
        if not _too_fast(problem, x, after, image, at_after):
            return after, at_after
    problem.lipschitz = known
    return x, image


def _too_fast(problem: Subproblem, x: Vector, other: Vector, image: Vector, at_other: Vector) -> bool:
    """Does F change faster than L says? Then L is raised. Changes of the size of rounding say nothing."""
    moved = float(np.linalg.norm(other - x))
    changed = float(np.linalg.norm(at_other - image))
    noise = 8 * ROUNDING * float(np.linalg.norm(image) + problem.lipschitz * np.linalg.norm(x))
    if changed <= 1.01 * problem.lipschitz * moved + noise:
        return False
    seen = 0.0
    if np.isfinite(changed) and moved > 0:
        seen = SAFETY * changed / moved
    problem.lipschitz *= float(np.clip(seen / problem.lipschitz, 2.0, 1000.0))
    return True


def _solve(matrix: Matrix, rest: Vector, symmetric: bool) -> Vector:
    if symmetric:
        with suppress(LinAlgError):  # not convex
            factor = cho_factor(matrix, lower=True, check_finite=False)
            return np.asarray(cho_solve(factor, rest, check_finite=False))
    try:
        return np.asarray(np.linalg.solve(matrix, rest))
    except LinAlgError:  # singular: the shortest of the nearest directions, which the caller shortens until it helps
        return np.asarray(np.linalg.lstsq(matrix, rest)[0])


def _lbfgs(problem: Subproblem, x: Vector, image: Vector, steps: int, target: float) -> Point:
    """SciPy's L-BFGS on the function (D.16); its evaluations are ours."""
    latest = (x, image)

    def value_and_rest(at: Vector) -> tuple[float, Vector]:
        nonlocal latest
        problem.gradients += 1
        value, gradient = problem.function.value_and_gradient(at)
        latest = (at.copy(), problem.scale * gradient)
        offset = at - problem.s
        total = problem.scale * value + float(offset @ offset) / (2 * problem.gamma)
        return total, problem.rest(*latest)

    found = minimize(
        value_and_rest,
        x,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "gtol": target / (problem.gamma * np.sqrt(x.size)), "ftol": 0.0, "maxcor": 20},
    )
    if not np.array_equal(found.x, latest[0]):  # the last evaluation was not the best
        latest = (np.asarray(found.x), np.asarray(found.jac) - (found.x - problem.s) / problem.gamma)
    return latest


def estimate_lipschitz(function: Function, scale: float, x: Vector) -> float:
    """The largest curvature at x by power iterations, on differences of gradients where there is no Jacobian."""
    v = np.random.default_rng(0).choice([-1.0, 1.0], x.size) / np.sqrt(x.size)
    iterations = POWERS
    multiply = partial(function.hessian_product, x)
    if not function.has_hessian:
        iterations = POWERS_OF_DIFFERENCES
        multiply = partial(_difference, function, x, function.gradient(x))
    size = 0.0
    for _ in range(iterations):
        image = multiply(v)
        size = float(np.linalg.norm(image))
        if size == 0 or not np.isfinite(size):
            break
        v = image / size
    if 0 < size < np.inf:
        return scale * size * SAFETY
    return 1.0


def _difference(function: Function, x: Vector, gradient: Vector, v: Vector) -> Vector:
    """The Jacobian at x times v, from a difference of gradients."""
    step = 1e-6 * (1 + float(np.linalg.norm(x)))
    return (function.gradient(x + step * v) - gradient) / step
