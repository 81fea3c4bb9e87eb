"""One measurement of `fedpact bench`: a method on an instance, with a time limit, its evaluations counted."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
from scipy.optimize import NonlinearConstraint, minimize

from fedpact.cones import Nonnegative
from fedpact.errors import FedpactError
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem, certify
from fedpact.solve import solve
from fedpact.solvers import METHODS, Progress, Solution
from fedpact.solvers.base import Solver
from fedpact_experiments.bench.fedsgm import FedSGM
from fedpact_experiments.bench.output import Output, cell
from fedpact_experiments.bench.problems import Instance
from fedpact_experiments.counting import Counts, count_evaluations
from fedpact_experiments.trace import objective_at

PAPER = "proximal-al-paper"
CONIC = "cvxpy-clarabel"
#: The rows of an instance, in the order in which they are measured: the paper's first, for the ratios to it.
LABELS = (PAPER, "proximal-al", "accelerated", "interior-point", "centralized-proximal-al", FedSGM.name, CONIC)
#: Methods that are asked for the reference, until one solves it.
REFEREES = ("centralized-proximal-al", "interior-point")
REFERENCE_TOL = 1e-9


@dataclass(frozen=True)
class Measured:
    """The result of one cell; None where it does not apply. gradients and hessians are means over the owners."""

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


def _ratio(row: Measured) -> str:
    if row.ratio is None:
        return ""
    digits = 1 if row.ratio < 100 else 0
    return f"{'>' if row.ratio_is_lower_bound else ''}{row.ratio:.{digits}f}"


#: header -> how a row shows it
COLUMNS: dict[str, Callable[[Measured], str]] = {
    "problem": cell("problem"),
    "n": cell("owners"),
    "d": cell("dim"),
    "tol": cell("tol", "{:g}".format),
    "method": cell("method"),
    "exchanges": cell("exchanges"),
    "gradients": cell("gradients", "{:.0f}".format),
    "Hessians": cell("hessians", "{:.0f}".format),
    "MB": cell("bytes", lambda count: f"{count / 1e6:.2f}"),
    "seconds": cell("seconds", lambda s: f"{s:.3f}" if s < 1 else f"{s:.1f}"),
    "objective": cell("objective", "{:.6f}".format),
    "distance": cell("distance", "{:.1e}".format),
    "certificate": cell("certificate", "{:.1e}".format),
    "status": cell("status"),
    "ratio": _ratio,
}


def without(*headers: str) -> dict[str, Callable[[Measured], str]]:
    """COLUMNS without these."""
    return {header: shown for header, shown in COLUMNS.items() if header not in headers}


# ---------------------------------------------------------------------------------------------------------- measuring


class Budget:
    """A callback that interrupts a solve when its time is up, as Ctrl-C does: the best point so far is kept.

    Seconds are those of the processor: what else a machine does ends no row early.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = time.process_time()
        self.over = False

    @property
    def spent(self) -> float:
        return time.process_time() - self.began

    def __call__(self, progress: Progress | None = None) -> None:
        if not self.over and self.spent > self.seconds:
            self.over = True
            raise KeyboardInterrupt

    @property
    def mark(self) -> str:
        return mark(self.seconds)


def mark(budget: float) -> str:
    """The status of a cell whose time was up."""
    return f"budget {budget:g} s"


def say(instance: Instance, method: str, tol: float | None = None) -> None:
    """Progress, on standard error."""
    click.echo(f"{instance}: {method}" + (f", tol {tol:g}" if tol else ""), err=True)


def blank(instance: Instance, method: str, tol: float | None, status: str, note: str = "") -> Measured:
    """A row without measurements."""
    return Measured(instance.name, instance.owners, instance.dim, tol, method, status, note=note)


def describe(error: Exception) -> str:
    """The type of an exception and the first line of its message."""
    first, *_ = [*str(error).splitlines(), ""]
    return f"{type(error).__name__}: {first}"


def measure(
    instance: Instance,
    label: str,
    tol: float,
    budget: float,
    seed: int = 0,
    problem: FederatedProblem | None = None,
    counted: bool = True,
) -> tuple[Measured, Solution | None]:
    """Run a method of `solve` on the instance, or on another form of its problem. Ctrl-C by the user is raised.

    Owners whose evaluations are `counted` answer one by one, which takes longer.
    """
    method: Solver[Any] | str = "proximal-al" if label == PAPER else label
    options: dict[str, Any] = dict(instance.paper) if label == PAPER else {}
    if label == FedSGM.name:
        method = FedSGM(slack=0.5 * tol)
    row = blank(instance, label, tol, "not available")
    if isinstance(method, str) and method not in METHODS:
        return row, None
    asked = problem or instance.problem
    counts: list[Counts] = []
    if counted:
        asked, counts = count_evaluations(asked)
    clock = Budget(budget)
    try:
        answer = solve(asked, method, tol=tol, seed=seed, callbacks=[clock], **options)
    except Exception as error:  # one failed cell must not cost the others, measured for an hour
        return replace(row, status="failed", seconds=clock.spent, note=describe(error)), None
    except KeyboardInterrupt:
        if clock.over:  # the method had no point to give back
            return replace(row, status=clock.mark, seconds=clock.spent), None
        raise
    seconds = clock.spent
    if answer.reason.startswith("interrupted") and not clock.over:
        raise KeyboardInterrupt
    measured = replace(
        row,
        status=clock.mark if clock.over and not answer.solved else answer.status,
        exchanges=answer.rounds,
        gradients=float(np.mean([owner.gradients for owner in counts])) if counted else None,
        hessians=float(np.mean([owner.hessians for owner in counts])) if counted else None,
        bytes=answer.communication.bytes,
        seconds=seconds,
        objective=answer.objective,
        certificate=answer.certificate.worst,
    )
    return measured, answer


def measure_conic(instance: Instance, budget: float) -> Measured:
    """cvxpy with Clarabel at its default tolerances; the clock runs over compilation and solution."""
    row = blank(instance, CONIC, None, "not convex")
    if instance.conic is None:
        return row
    try:
        conic = instance.conic()
    except FedpactError as error:
        return replace(row, status="not available", note=str(error))
    clock = Budget(budget)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status says whether the answer is inaccurate
            conic.problem.solve(solver="CLARABEL", time_limit=budget)
    except Exception as error:
        return replace(row, status="failed", seconds=clock.spent, note=describe(error))
    seconds = clock.spent
    status = conic.problem.status
    inside = conic.problem.solver_stats.solve_time
    note = f"{inside:.3g} s of {seconds:.3g} s inside Clarabel" if inside else ""
    names = {"user_limit": clock.mark, "optimal": "solved"}
    row = replace(row, status=names.get(status, status), seconds=seconds, note=note)
    if conic.w.value is None:
        return row
    multipliers = [np.atleast_1d(constraint.dual_value) for constraint in conic.constraints]
    if instance.problem.server.constraint is None:
        multipliers.insert(0, np.zeros(0))
    return replace(
        row,
        objective=objective_at(instance.problem, conic.w.value),
        certificate=worst_residual(instance.problem, conic.w.value, multipliers),
    )


def worst_residual(problem: FederatedProblem, w: Vector, multipliers: list[Vector]) -> float:
    """The certificate of another program's answer.

    A multiplier of an inequality that is smaller than the slack is an interior method's approximation of zero, and is
    set to zero; otherwise the whole slack would count.
    """
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
    objective = held.objective
    bounds = held.constraint.function
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
    clock = Budget(budget)
    last = np.zeros(instance.dim)
    judging = 0.0

    def watch(w: Vector, *state: Any) -> bool:
        nonlocal last, judging
        last = np.array(w)
        clock()
        began = time.process_time()
        met = bool(state) and worst_residual(pooled, w, [np.zeros(0), state[0].v[0]]) <= tol
        judging += time.process_time() - began
        return met

    row = blank(instance, f"scipy {method}", tol, clock.mark)
    try:
        found = scipy_minimize(objective.value_and_gradient, last, jac=True, method=method, callback=watch, **given)
    except KeyboardInterrupt:
        if not clock.over:
            raise
        return replace(row, seconds=clock.spent - judging, objective=objective.value(last))
    seconds = clock.spent - judging
    multiplier = found.v[0] if method == "trust-constr" else found.get("multipliers")  # SLSQP's since SciPy 1.16
    row = replace(row, status="not judged", seconds=seconds, objective=objective.value(found.x))
    if multiplier is None:
        return row
    worst = worst_residual(pooled, found.x, [np.zeros(0), multiplier])
    return replace(row, status="solved" if worst <= tol else "not solved", certificate=worst)


# ---------------------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Reference:
    """The objective that distances are measured from, and its source."""

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


def note_reference(instance: Instance, output: Output, digits: int) -> Reference | None:
    """Compute the reference, and add a note about it below the table."""
    say(instance, "reference")
    found = reference(instance, output.budget)
    if found is not None:
        output.notes.append(f"reference of {instance}: {found.objective:.{digits}f} ({found.source})")
    return found


def add_distance(row: Measured, against: Reference | None) -> Measured:
    """The row with its relative distance from the reference."""
    if against is None or row.objective is None:
        return row
    return replace(row, distance=abs(row.objective - against.objective) / max(abs(against.objective), 1e-12))


def add_ratio(row: Measured, paper: Measured | None) -> Measured:
    """The row with the ratio of the paper's exchanges to its own: a lower bound when the paper's run was cut short."""
    if paper is None or not paper.exchanges or not row.exchanges or row.status != "solved":
        return row
    return replace(row, ratio=paper.exchanges / row.exchanges, ratio_is_lower_bound=paper.status != "solved")
