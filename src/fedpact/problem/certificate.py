"""The certificate of a pair (w, multipliers): He24-conic Definition 1, recomputed from the problem alone.

No solver is imported here: a solution is judged by code that did not make it. The work is cut where the federation is
cut: `owner_terms` runs where the data is, `assemble` adds up at the server, and `certify` does both in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.cones import Cone, Nonnegative
from fedpact.errors import ProblemError
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Share
from fedpact.types import to_real

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """How far a pair (w, multipliers) is from optimal; all in the max-norm.

    stationarity: dist(0, grad f(w) + subdiff h(w) + grad c(w) mu)
    feasibility:  dist(c(w), N_{K*}(mu)): violation and complementarity in one number
    violation:    how far c(w) is from -K, whatever the multipliers
    violations:   the same by owner, the server and the coupled constraint included
    """

    stationarity: float
    feasibility: float
    violation: float
    violations: dict[str, float] = field(default_factory=dict)

    def meets(self, tol: tuple[float, float]) -> bool:
        return self.stationarity <= tol[0] and self.feasibility <= tol[1]

    def missed(self, tol: tuple[float, float]) -> float:
        """The certificate relative to the tolerances: at most one when met."""
        return max(self.stationarity / tol[0], self.feasibility / tol[1])

    @property
    def worst(self) -> float:
        return max(self.stationarity, self.feasibility)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one owner adds to the certificate; the vectors are only ever summed."""

    objective: float
    gradient: Vector  # grad f_i + J_i' mu_i + (coupled Jacobian)' nu, length d
    feasibility: float
    violation: float
    coupled: Vector  # the owner's part of the coupled constraint's value


def owner_terms(share: Share, w: Vector, multiplier: Vector, coupled_multiplier: Vector) -> Terms:
    """The terms of one share at (w, multiplier), with the coupled constraint's multiplier nu."""
    objective, gradient = (0.0, np.zeros_like(w)) if share.objective is None else share.objective.value_and_gradient(w)
    feasibility = violation = 0.0
    if share.constraint is not None:
        value, jacobian = share.constraint.function.value_and_jacobian(w)
        gradient = gradient + jacobian.T @ multiplier
        feasibility, violation = _miss(share.constraint.cone, value, multiplier)
    coupled = np.zeros(coupled_multiplier.size)
    if share.coupled is not None:
        coupled, jacobian = share.coupled.value_and_jacobian(w)
        gradient = gradient + jacobian.T @ coupled_multiplier
    return Terms(objective=objective, gradient=gradient, feasibility=feasibility, violation=violation, coupled=coupled)


class Total(Protocol):
    """Terms added up over the owners."""

    @property
    def objective(self) -> float: ...

    @property
    def gradient(self) -> Vector: ...

    @property
    def coupled(self) -> Vector: ...


class Miss(Protocol):
    """What one owner says of its own constraint."""

    @property
    def feasibility(self) -> float: ...

    @property
    def violation(self) -> float: ...


def added(terms: Sequence[Terms]) -> Terms:
    """The sums over all owners, and the worst misses."""
    return Terms(
        objective=sum(t.objective for t in terms),
        gradient=np.sum([t.gradient for t in terms], axis=0),
        feasibility=max(t.feasibility for t in terms),
        violation=max(t.violation for t in terms),
        coupled=np.sum([t.coupled for t in terms], axis=0),
    )


def assemble(
    problem: FederatedProblem,
    w: Vector,
    server_multiplier: Vector,
    coupled_multiplier: Vector,
    total: Total,
    each: Sequence[Miss],
) -> tuple[Certificate, float]:
    """The certificate and the objective sum_i f_i(w) + h(w), from the sums and the misses of the owners, in order."""
    server = owner_terms(problem.server, w, server_multiplier, np.zeros(0))
    gradient = server.gradient + total.gradient
    violations = {name: t.violation for name, t in zip(problem.names, each, strict=True)}
    feasibilities = [server.feasibility, *(t.feasibility for t in each)]
    if problem.server.constraint is not None:
        violations[problem.server.label] = server.violation
    if problem.coupled_length:
        cone = Nonnegative(problem.coupled_length)
        feasibility, violations["coupled"] = _miss(cone, total.coupled, coupled_multiplier)
        feasibilities.append(feasibility)
    certificate = Certificate(
        stationarity=problem.regularizer.subdifferential_distance(-gradient, w),
        feasibility=float(np.max(feasibilities)),
        violation=float(np.max(list(violations.values()))),
        violations=violations,
    )
    objective = server.objective + total.objective + problem.regularizer.value(w)
    return certificate, float(objective)


def certify(
    problem: FederatedProblem,
    w: ArrayLike,
    multipliers: Sequence[ArrayLike | None],
    coupled_multiplier: ArrayLike | None = None,
) -> Certificate:
    """Check any pair (w, multipliers) against the problem; multipliers = [server, client 1, ...].

    None stands for zero multipliers. A multiplier outside the dual cone counts by its distance to it. Raises
    ProblemError when lengths do not fit.
    """
    point, checked, coupled = check_multipliers(problem, w, multipliers, coupled_multiplier)
    terms = [owner_terms(s, point, m, coupled) for s, m in zip(problem.shares, checked[1:], strict=True)]
    return assemble(problem, point, checked[0], coupled, added(terms), terms)[0]


def check_multipliers(
    problem: FederatedProblem,
    w: ArrayLike,
    multipliers: Sequence[ArrayLike | None],
    coupled_multiplier: ArrayLike | None,
) -> tuple[Vector, list[Vector], Vector]:
    """w, the multipliers by holder and the coupled one as vectors. Raises ProblemError when lengths do not fit."""
    point = _real("w", w)
    holders = (problem.server, *problem.shares)
    if point.ndim != 1 or (problem.dim is not None and point.size != problem.dim):
        raise ProblemError(f"w has shape {point.shape}, the problem needs a vector of length {problem.dim}")
    if len(multipliers) != len(holders):
        raise ProblemError(
            f"expected {len(holders)} multipliers [server, {', '.join(problem.names)}], got {len(multipliers)}; "
            "use None where there is no constraint"
        )
    checked = [_multiplier(h.label, m, h.multiplier_length) for h, m in zip(holders, multipliers, strict=True)]
    coupled = _multiplier("coupled constraint", coupled_multiplier, problem.coupled_length)
    return point, checked, coupled


def _miss(cone: Cone, value: Vector, multiplier: Vector) -> tuple[float, float]:
    return cone.normal_distance(value, multiplier), cone.violation(value)


def _real(what: str, value: ArrayLike) -> Vector:
    try:
        return to_real(value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{what} is not a vector of real numbers ({error})") from error


def _multiplier(label: str, value: ArrayLike | None, length: int) -> Vector:
    if value is None:
        return np.zeros(length)
    vector = np.atleast_1d(_real(f"{label}: the multiplier", value))
    if vector.shape != (length,):
        raise ProblemError(f"{label}: the multiplier has shape {vector.shape}, its constraint has length {length}")
    return vector
