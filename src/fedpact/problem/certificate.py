"""The certificate of a pair (w, multipliers): He24-conic Definition 1, recomputed from the problem alone.

No solver is imported here: a solution is judged by code that did not make it. The work is cut where the federation is
cut: `owner_terms` runs where the data is, `assemble` adds up at the server, and `certify` does both in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedpact.cones import Cone, Nonnegative
from fedpact.errors import ProblemError
from fedpact.problem.federated import FederatedProblem, read_vector
from fedpact.problem.share import Local, Share, evaluate
from fedpact.prox import Prox, Zero
from fedpact.types import Vector

#: Multipliers to start from may leave the dual cone by this much, relative to their size: solutions are rounded.
OFF_CONE = 1e-6


@dataclass(frozen=True)
class Certificate:
    """How far a pair (w, multipliers) is from optimal, in the max-norm.

    stationarity: dist(0, grad f(w) + subdiff h(w) + grad c(w) mu); the largest entry of the same gradient in anybody's
                  private variables, where that is larger
    feasibility:  dist(c(w), N_{K*}(mu)): violation and complementarity in one number
    violation:    how far c(w) is from -K, whatever the multipliers
    violations:   the same by owner, the server and the coupled constraint included
    average_miss: root of the sum of squares of all holders' feasibility over their number: errors of either sign add up
                  like that; None: not known
    digits:       of a solve with relative tolerances: about how many digits of the largest coefficient are right, by
                  `problem/digits.py`; None: not known

    On the way of a solve with secure sums no owner tells its own residuals: the root of the sum of their squares stands
    for the largest in feasibility and violation, which is never smaller, and `violations` has it under TOGETHER. The
    certificate of the returned pair has the largest, and violations by owner.
    """

    stationarity: float
    feasibility: float
    violation: float
    violations: dict[str, float] = field(default_factory=dict)
    average_miss: float | None = field(default=None, compare=False)
    digits: float | None = field(default=None, compare=False)

    def meets(self, tol: tuple[float, float]) -> bool:
        """Whether both residuals are within tol = (stationarity, feasibility)."""
        return self.stationarity <= tol[0] and self.feasibility <= tol[1]

    def missed(self, tol: tuple[float, float]) -> float:
        """The larger residual relative to its tolerance: at most one when both are met."""
        return max(self.stationarity / tol[0], self.feasibility / tol[1])

    @property
    def worst(self) -> float:
        """The larger residual."""
        return max(self.stationarity, self.feasibility)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one owner adds to the certificate; the vectors are only ever summed."""

    objective: float
    gradient: Vector  # grad f_i + J_i' mu_i + (coupled Jacobian)' nu, length d
    feasibility: float
    violation: float
    coupled: Vector  # the owner's part of the coupled constraint's value
    private: float = 0.0  # the largest entry of the gradient in its private variables


def owner_terms(
    share: Share, w: Vector, multiplier: Vector, coupled_multiplier: Vector, at: Local | None = None
) -> Terms:
    """The terms of one share at (w, multiplier), with the coupled constraint's multiplier nu.

    w:  followed by the private variables, where the share has some
    at: the share evaluated at w, where that was done already
    """
    if at is None:
        at = evaluate(share, w, coupled_multiplier.size)
    gradient = at.gradient
    feasibility = 0.0
    violation = 0.0
    if share.constraint is not None:
        gradient = gradient + at.jacobian.T @ multiplier
        feasibility, violation = _measure(share.constraint.cone, at.value, multiplier)
    if share.coupled is not None:
        gradient = gradient + at.coupled_jacobian.T @ coupled_multiplier
    dim = w.size - share.private
    private = 0.0
    if share.private:
        private = float(np.max(np.abs(gradient[dim:])))
    return Terms(
        objective=at.objective,
        gradient=gradient[:dim],
        feasibility=feasibility,
        violation=violation,
        coupled=at.coupled,
        private=private,
    )


#: The terms of a server that holds nothing.
NOTHING = Terms(objective=0.0, gradient=np.zeros(1), feasibility=0.0, violation=0.0, coupled=np.zeros(0))
#: The entry of `violations` for all owners, where none tells its own.
TOGETHER = "all owners"


class Total(Protocol):
    """The terms that are summed over the owners, and the largest residuals or what stands for them."""

    @property
    def objective(self) -> float: ...

    @property
    def gradient(self) -> Vector: ...

    @property
    def coupled(self) -> Vector: ...

    @property
    def feasibility(self) -> float: ...

    @property
    def violation(self) -> float: ...

    @property
    def private(self) -> float: ...


class Miss(Protocol):
    """The residuals of one owner's constraint, which are reported by name; None where only `Total` has them."""

    @property
    def feasibility(self) -> float | None: ...

    @property
    def violation(self) -> float | None: ...

    @property
    def private(self) -> float | None: ...


@dataclass(frozen=True)
class Misses:
    """The residuals of all holders, a column each; or one row for several, the root of the sum of their squares.

    private: of the stationarity in private variables
    holders: how many of them have a constraint
    """

    names: Sequence[str]
    feasibility: Sequence[float]
    violation: Sequence[float]
    private: Sequence[float]
    holders: int

    def append(self, name: str, feasibility: float, violation: float) -> Misses:
        """These, and those of one more constraint."""
        return Misses(
            [*self.names, name],
            [*self.feasibility, feasibility],
            [*self.violation, violation],
            [*self.private, 0.0],
            self.holders + 1,
        )

    @property
    def average(self) -> float:
        """Of the holders: the same from all their residuals and from the root of the sum of squares."""
        return math.hypot(*self.feasibility) / max(self.holders, 1)


def add_terms(terms: Sequence[Terms]) -> Terms:
    """Sums over all owners; the largest feasibility and violation."""
    return Terms(
        objective=sum(t.objective for t in terms),
        gradient=np.sum([t.gradient for t in terms], axis=0),
        feasibility=max(t.feasibility for t in terms),
        violation=max(t.violation for t in terms),
        coupled=np.sum([t.coupled for t in terms], axis=0),
        private=max(t.private for t in terms),
    )


def assemble(
    problem: FederatedProblem,
    w: Vector,
    server_multiplier: Vector,
    coupled_multiplier: Vector,
    total: Total,
    each: Sequence[Miss],
) -> tuple[Certificate, float]:
    """The certificate, and the objective sum_i f_i(w) + h(w).

    total: the sums over the owners; each: the residuals of every owner, in order
    """
    server = NOTHING
    if problem.server.parts:
        server = owner_terms(problem.server, w, server_multiplier, np.zeros(0))
    feasibility, violation, private = (_column(each, name) for name in ("feasibility", "violation", "private"))
    holders = problem.constrained
    if None in feasibility:
        misses = Misses([TOGETHER], [total.feasibility], [total.violation], [total.private], holders)
    else:
        misses = Misses(problem.names, feasibility, violation, private, holders)
    if problem.server.constraint is not None:
        misses = misses.append(problem.server.label, server.feasibility, server.violation)
    return weigh(problem.regularizer, w, coupled_multiplier, server, total, misses, problem.coupled_cone)


def _column(each: Sequence[Miss], name: str) -> list[Any]:
    """One residual of every owner; answers of owners have it in one piece."""
    column = getattr(each, "column", None)
    if column is not None:
        found: list[Any] = column(name)
        return found
    return [getattr(one, name) for one in each]


def weigh(
    regularizer: Prox | None,
    w: Vector,
    coupled_multiplier: Vector,
    server: Total,
    total: Total,
    misses: Misses,
    coupled_cone: Cone | None = None,
) -> tuple[Certificate, float]:
    """Certificate and objective from sums and residuals alone: nobody's functions are needed.

    regularizer: h; None is zero
    server: the coordinator's own terms; total: the sums over the owners; misses: the residuals of all
    coupled_cone: of the coupled constraint; None: the nonnegative orthant
    """
    if coupled_multiplier.size:
        cone = coupled_cone or Nonnegative(coupled_multiplier.size)
        misses = misses.append("coupled", *_measure(cone, total.coupled, coupled_multiplier))
    gradient = server.gradient + total.gradient
    if regularizer is None:
        regularizer = Zero()
    common = regularizer.subdifferential_distance(-gradient, w)
    certificate = Certificate(
        stationarity=max(common, *misses.private),
        feasibility=max(misses.feasibility),
        violation=max(misses.violation),
        violations=dict(zip(misses.names, misses.violation, strict=True)),
        average_miss=misses.average,
    )
    return certificate, float(server.objective + total.objective + regularizer.value(w))


def certify(
    problem: FederatedProblem,
    w: ArrayLike,
    multipliers: Sequence[ArrayLike | None],
    coupled_multiplier: ArrayLike | None = None,
    private: Sequence[ArrayLike | None] | None = None,
) -> Certificate:
    """Check any pair (w, multipliers) against the problem; multipliers = [server, client 1, ...].

    None stands for zero multipliers. A multiplier outside the dual cone counts by its distance to it.
    private: the variables that owners keep for themselves, [client 1, ...], such as `Solution.private`; None where an
    owner has none. Raises ProblemError when lengths do not fit.
    """
    point, checked, coupled = check_multipliers(problem, w, multipliers, coupled_multiplier)
    terms = []
    for share, own, multiplier in zip(problem.shares, _read_private(problem, private), checked[1:], strict=True):
        terms.append(owner_terms(share, np.concatenate([point, own]), multiplier, coupled))
    certificate, _ = assemble(problem, point, checked[0], coupled, add_terms(terms), terms)
    return certificate


def check_multipliers(
    problem: FederatedProblem,
    w: ArrayLike,
    multipliers: Sequence[ArrayLike | None],
    coupled_multiplier: ArrayLike | None,
) -> tuple[Vector, list[Vector], Vector]:
    """w, the multipliers by holder and the coupled one as vectors. Raises ProblemError when lengths do not fit."""
    point = read_vector("w", w, problem.dim)
    holders = problem.holders
    if len(multipliers) != len(holders):
        raise ProblemError(
            f"expected {len(holders)} multipliers [server, {', '.join(problem.names)}], got {len(multipliers)}; "
            "use None where there is no constraint",
            code="FP-PROBLEM-123",
        )
    pairs = zip(holders, multipliers, strict=True)
    checked = [_read_multiplier(holder.label, given, holder.multiplier_length) for holder, given in pairs]
    coupled = _read_multiplier("coupled constraint", coupled_multiplier, problem.coupled_length)
    return point, checked, coupled


def read_price(label: str, cone: Cone | None, price: Vector) -> Vector:
    """The multiplier, in the dual cone. ProblemError when it is off that by more than rounding, or not finite."""
    if not np.all(np.isfinite(price)):
        at = int(np.flatnonzero(~np.isfinite(price))[0])
        raise ProblemError(
            f"{label}: entry {at} of multipliers0 is {price[at]}; give finite numbers, or None to start from zero",
            code="FP-PROBLEM-220",
        )
    if cone is None:
        return price
    inside = cone.project_dual(price)
    off = np.abs(price - inside)
    if np.max(off, initial=0.0) > OFF_CONE * (1 + np.max(np.abs(price), initial=0.0)):
        at = int(np.argmax(off))
        raise ProblemError(
            f"{label}: entry {at} of multipliers0 is {price[at]:.6g}, the nearest in the dual cone of {cone!r} is "
            f"{inside[at]:.6g}; give a multiplier of the constraint, or None to start from zero",
            code="FP-PROBLEM-221",
        )
    return inside


def _read_private(problem: FederatedProblem, private: Sequence[ArrayLike | None] | None) -> list[Vector]:
    """The private variables of every owner as vectors. Raises ProblemError when some are missing."""
    given = [None] * len(problem.shares) if private is None else list(private)
    if len(given) != len(problem.shares):
        raise ProblemError(
            f"expected private variables of {len(problem.shares)} owners [{', '.join(problem.names)}], got "
            f"{len(given)}; use None where an owner has none",
            code="FP-PROBLEM-140",
        )
    checked = []
    for share, own in zip(problem.shares, given, strict=True):
        entries: Any = () if own is None else own
        checked.append(read_vector(f"{share.label}: its private variables", entries, share.private))
    return checked


def _read_multiplier(label: str, given: ArrayLike | None, length: int) -> Vector:
    """A multiplier as a vector; zero for None. A number stands for a vector of length one."""
    if given is None:
        return np.zeros(length)
    entries: Any = [given] if np.isscalar(given) else given
    return read_vector(f"{label}: the multiplier", entries, length)


def _measure(cone: Cone, value: Vector, multiplier: Vector) -> tuple[float, float]:
    """(feasibility, violation) of one constraint."""
    return cone.normal_distance(value, multiplier), cone.violation(value)
