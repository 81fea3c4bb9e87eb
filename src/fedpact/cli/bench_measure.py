"""One measurement of `fedpact bench`: a method on an instance, with a time limit, its evaluations counted."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from inspect import get_annotations
from typing import Any

import numpy as np
from scipy.optimize import NonlinearConstraint, minimize

from fedpact.cli.bench_problems import Instance
from fedpact.cones import Nonnegative
from fedpact.errors import FedpactError
from fedpact.functions import Function, Indices, Map, Matrix, Vector
from fedpact.problem import Constraint, FederatedProblem, MonotoneProblem, Share, certify
from fedpact.solve import solve
from fedpact.solvers import METHODS, Progress, Solution

PAPER = "proximal-al-paper"
CONIC = "cvxpy-clarabel"
#: The rows of an instance, in the order in which they are measured: the paper's first, for the ratios to it.
LABELS = (PAPER, "proximal-al", "accelerated", "interior-point", "centralized-proximal-al", CONIC)
#: Methods that are asked for the reference, until one solves it.
REFEREES = ("centralized-proximal-al", "interior-point")
REFERENCE_TOL = 1e-9


@dataclass(frozen=True)
class Measured:
    """What a cell showed; None where it does not apply. gradients and hessians are means over the owners."""

    problem: str
    owners: int
    dim: int
    tol: float | None
    method: str
    status: str
    exchanges: int | None = None
    gradients: float | None = None
    hessians: float | None = None
    bytes: int | None = None
    seconds: float | None = None
    objective: float | None = None
    distance: float | None = None
    certificate: float | None = None
    ratio: float | None = None
    ratio_is_lower_bound: bool = False
    note: str = ""


# ----------------------------------------------------------------------------------------------------------- counting


@dataclass
class Counts:
    """Evaluations at one owner: a gradient or Jacobian, a Hessian or a product with it. Objective and constraint count
    each; a value alone counts only where the function cannot give it without the gradient."""

    gradients: int = 0
    hessians: int = 0


class CountedFunction(Function):
    """The same function, counting. It is none of the classes of `functions`, so sums cannot open it and get around."""

    def __init__(self, inner: Function, counts: Counts) -> None:
        self.inner, self.counts = inner, counts
        for name in get_annotations(Function):  # dim, has_hessian, ...: solvers choose by them
            setattr(self, name, getattr(inner, name))

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        self.counts.gradients += 1
        return self.inner.value_and_gradient(w)

    def value(self, w: Vector) -> float:
        self.counts.gradients += type(self.inner).value is Function.value
        return self.inner.value(w)

    def hessian(self, w: Vector) -> Matrix:
        self.counts.hessians += 1
        return self.inner.hessian(w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        self.counts.hessians += 1
        return self.inner.hessian_product(w, v)

    def batch(self, indices: Indices) -> Function:
        return CountedFunction(self.inner.batch(indices), self.counts)

    def defect(self) -> str | None:
        return self.inner.defect()


class CountedMap(Map):
    """As CountedFunction, for a constraint's map."""

    def __init__(self, inner: Map, counts: Counts) -> None:
        self.inner, self.counts = inner, counts
        for name in get_annotations(Map):
            setattr(self, name, getattr(inner, name))

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        self.counts.gradients += 1
        return self.inner.value_and_jacobian(w)

    def value(self, w: Vector) -> Vector:
        self.counts.gradients += type(self.inner).value is Map.value
        return self.inner.value(w)

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        self.counts.hessians += 1
        return self.inner.weighted_hessian(w, weights)

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        self.counts.hessians += 1
        return self.inner.weighted_hessian_product(w, weights, v)

    def defect(self) -> str | None:
        return self.inner.defect()


def counted(problem: FederatedProblem) -> tuple[FederatedProblem, list[Counts]]:
    """The same problem, and the counts of its owners in their order; the server's own evaluations are not counted."""
    counts = [Counts() for _ in problem.shares]
    shares = [_counted(share, owner) for share, owner in zip(problem.shares, counts, strict=True)]
    if problem.monotone:
        return MonotoneProblem(shares, problem.regularizer), counts
    return FederatedProblem(shares, problem.server, problem.regularizer), counts


def _counted(share: Share, counts: Counts) -> Share:
    objective, constraint = share.objective, share.constraint
    if objective is not None:
        objective = CountedFunction(objective, counts)
    if constraint is not None:
        constraint = Constraint(CountedMap(constraint.function, counts), constraint.cone)
    return replace(share, objective=objective, constraint=constraint)


# ---------------------------------------------------------------------------------------------------------- measuring


class Budget:
    """A callback that ends a solve when its time is over: as Ctrl-C does, so that the best point so far is kept."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began, self.over = seconds, time.perf_counter(), False

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    def __call__(self, progress: Progress | None = None) -> None:
        if not self.over and self.spent > self.seconds:
            self.over = True
            raise KeyboardInterrupt

    @property
    def mark(self) -> str:
        return mark(self.seconds)


def mark(budget: float) -> str:
    """The status of a cell whose time was over."""
    return f"budget {budget:g} s"


def blank(instance: Instance, method: str, tol: float | None, status: str, note: str = "") -> Measured:
    return Measured(instance.name, instance.owners, instance.dim, tol, method, status, note=note)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def measure(
    instance: Instance, label: str, tol: float, budget: float, seed: int = 0, problem: FederatedProblem | None = None
) -> tuple[Measured, Solution | None]:
    """A method of `solve` on the instance, or on another form of its problem. Ctrl-C by the user is raised again."""
    method = "proximal-al" if label == PAPER else label
    options: dict[str, Any] = dict(instance.paper) if label == PAPER else {}
    cell = blank(instance, label, tol, "not available")
    if method not in METHODS:
        return cell, None
    asked, counts = counted(problem or instance.problem)
    clock = Budget(budget)
    try:
        answer = solve(asked, method, tol=tol, seed=seed, callbacks=[clock], **options)
    except Exception as error:  # one failed cell must not cost the others, measured for an hour
        return replace(cell, status="failed", seconds=clock.spent, note=_told(error)), None
    except KeyboardInterrupt:
        if clock.over:  # the method had no point to give back
            return replace(cell, status=clock.mark, seconds=clock.spent), None
        raise
    seconds = clock.spent
    if answer.reason.startswith("interrupted") and not clock.over:
        raise KeyboardInterrupt
    measured = replace(
        cell,
        status=clock.mark if clock.over and not answer.solved else answer.status,
        exchanges=answer.rounds,
        gradients=float(np.mean([owner.gradients for owner in counts])),
        hessians=float(np.mean([owner.hessians for owner in counts])),
        bytes=answer.communication.bytes,
        seconds=seconds,
        objective=answer.objective,
        certificate=answer.certificate.worst,
    )
    return measured, answer


def measure_conic(instance: Instance, budget: float) -> Measured:
    """cvxpy with Clarabel at its default tolerances; the clock runs over compilation and solution."""
    cell = blank(instance, CONIC, None, "not convex")
    if instance.conic is None:
        return cell
    try:
        conic = instance.conic()
    except FedpactError as error:
        return replace(cell, status="not available", note=str(error))
    clock = Budget(budget)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate answer is told by the status
            conic.problem.solve(solver="CLARABEL", time_limit=budget)
    except Exception as error:
        return replace(cell, status="failed", seconds=clock.spent, note=_told(error))
    seconds, status = clock.spent, conic.problem.status
    inside = conic.problem.solver_stats.solve_time
    cell = replace(
        cell,
        status=clock.mark if status == "user_limit" else "solved" if status == "optimal" else status,
        seconds=seconds,
        note=f"{inside:.3g} s of {seconds:.3g} s inside Clarabel" if inside else "",
    )
    if conic.w.value is None:
        return cell
    multipliers = [np.atleast_1d(constraint.dual_value) for constraint in conic.constraints]
    if instance.problem.server.constraint is None:
        multipliers.insert(0, np.zeros(0))
    return replace(
        cell,
        objective=objective_at(instance.problem, conic.w.value),
        certificate=_worst(instance.problem, conic.w.value, multipliers),
    )


def _worst(problem: FederatedProblem, w: Vector, multipliers: list[Vector]) -> float:
    """The certificate of another program's answer: where the multiplier of an inequality is smaller than its slack, it
    is a zero that an interior method approaches, and is taken as zero; else the whole slack would count."""
    holders = (problem.server, *problem.shares)
    tidy = list(multipliers)
    for i, holder in enumerate(holders):
        if holder.constraint is not None and isinstance(holder.constraint.cone, Nonnegative):
            slack = -holder.constraint.function.value(w)
            tidy[i] = np.where(multipliers[i] < slack, 0.0, multipliers[i])
    return certify(problem, w, tidy).worst


def measure_scipy(instance: Instance, method: str, tol: float, budget: float) -> Measured:
    """trust-constr (exact gradients and Hessians) or SLSQP (exact gradients) on the pooled problem."""
    assert instance.pooled is not None
    pooled = instance.pooled()
    (held,) = pooled.shares
    assert held.objective is not None
    assert held.constraint is not None
    objective, bounds = held.objective, held.constraint.function
    scipy_minimize: Any = minimize  # its stubs know no method that is chosen at run time
    curvature: Any = bounds.weighted_hessian
    given: dict[str, Any] = {
        # Its own test leaves complementarity out and would end too early: `watch` ends it by the certificate.
        "trust-constr": {
            "hess": objective.hessian,
            "constraints": NonlinearConstraint(bounds.value, -np.inf, 0.0, jac=bounds.jacobian, hess=curvature),
            "options": {"gtol": 1e-15, "xtol": 1e-15, "barrier_tol": 1e-15, "maxiter": 10_000},
        },
        "SLSQP": {
            "constraints": {"type": "ineq", "fun": lambda w: -bounds.value(w), "jac": lambda w: -bounds.jacobian(w)},
            # It stops by the change of the objective, which is of second order in the certificate.
            "options": {"ftol": tol**2, "maxiter": 10_000},
        },
    }[method]
    clock, last, judging = Budget(budget), np.zeros(instance.dim), 0.0

    def watch(w: Vector, *state: Any) -> bool:
        nonlocal last, judging
        last = np.array(w)
        clock()
        began = time.perf_counter()
        met = bool(state) and _worst(pooled, w, [np.zeros(0), state[0].v[0]]) <= tol
        judging += time.perf_counter() - began
        return met

    cell = blank(instance, f"scipy {method}", tol, clock.mark)
    try:
        found = scipy_minimize(objective.value_and_gradient, last, jac=True, method=method, callback=watch, **given)
    except KeyboardInterrupt:
        if not clock.over:
            raise
        return replace(cell, seconds=clock.spent - judging, objective=objective.value(last))
    seconds = clock.spent - judging
    multiplier = found.v[0] if method == "trust-constr" else found.get("multipliers")  # SLSQP's since SciPy 1.16
    worst = None if multiplier is None else _worst(pooled, found.x, [np.zeros(0), multiplier])
    status = "not judged" if worst is None else "solved" if worst <= tol else "not solved"
    return replace(cell, status=status, seconds=seconds, objective=objective.value(found.x), certificate=worst)


def objective_at(problem: FederatedProblem, w: Vector) -> float:
    parts = [share.objective.value(w) for share in problem.shares if share.objective is not None]
    return sum(parts) + problem.regularizer.value(w)


# ---------------------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Reference:
    """The value that distances are measured from, and who says so."""

    objective: float
    source: str


def reference(instance: Instance, budget: float) -> Reference | None:
    """The exact optimum, or the first tight solve that meets its tolerance, or the best one that does not."""
    if instance.optimum is not None:
        return Reference(instance.optimum, "exact, by one linear solve")
    tries = []
    for method in REFEREES:
        _, answer = measure(instance, method, REFERENCE_TOL, budget)
        if answer is not None:
            tries.append(answer)
            if answer.solved:
                break
    if not tries:
        return None
    best = min(tries, key=lambda answer: answer.certificate.worst)
    nature = ", a local optimum" if instance.conic is None else ""
    return Reference(best.objective, f"{best.method}, certificate {best.certificate.worst:.0e}{nature}")


def placed(cell: Measured, against: Reference | None) -> Measured:
    """The cell with its relative distance from the reference."""
    if against is None or cell.objective is None:
        return cell
    return replace(cell, distance=abs(cell.objective - against.objective) / max(abs(against.objective), 1e-12))


def compared(cell: Measured, paper: Measured | None) -> Measured:
    """The cell with the ratio of the paper's exchanges to its own: a lower bound when the paper's run was cut short."""
    if paper is None or not paper.exchanges or not cell.exchanges or cell.status != "solved":
        return cell
    return replace(cell, ratio=paper.exchanges / cell.exchanges, ratio_is_lower_bound=paper.status != "solved")
