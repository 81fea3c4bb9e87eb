"""One holder's share of the Newton system: slack and multiplier eliminated, so that only sums over holders remain.

At (w, s, z) the owner's equations  c + J d + s + ds = 0,  z + dz = tau s^-1 - D ds  give  z+ = pull + tau s^-1 + D J d
with pull = D (c + s), and with it what the holder adds to the system of the server:

    M_i = hess f_i + z_i . hess c_i + J_i' D_i J_i,   r_i(tau) = grad f_i + J_i'(pull_i + tau s_i^-1).

The semismooth system has the same shape with other D and pull. See `interior_point.py` for the method and the letters.

An owner with private variables v has this system for (w, v), and eliminates v as well: see `private_step.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Cone, Nonnegative, Product, Zero
from fedpact.federation import Largest, Reply, Summed
from fedpact.federation.messages import Fitted, Fitting, content_fields, is_finite, summed_fields
from fedpact.federation.secure_sum import packed_units
from fedpact.problem import Share, Terms, owner_terms
from fedpact.problem.share import Curvature, Local
from fedpact.solvers.constrained.private_step import PrivateStep, keep_private, shorten
from fedpact.types import Matrix, Vector

#: A slack starts at least this far inside its cone, relative to the size and slope of the constraint.
ROOM = 0.01
#: ... farther in a cone that ties rows together: near a curved boundary the first steps would be short.
CURVED_ROOM = 1.0
#: A multiplier starts at no more than this, where a constraint hardly moves with w: its products must stay finite.
FLAT = 1e20
#: Part of the way to the boundary of its cone that a slack or multiplier goes at most.
FRACTION = 0.99
#: Rows that a cone ties together are not centred by one step: while complementarity is large, this part at least.
LEAST_FRACTION = 0.7
#: A step this much shorter than asked for, or less, counts as one of this length.
SHORTEST = 1e-6
#: Private variables go no farther than to violate the constraint by this much of its steepest slope, or twice as much
#: as before: on a flat stretch far out, as a smoothed rate has it, nothing would lead them back.
MOST_MISSED = 0.02
#: Equalities, and bounds that bind, weigh this much more than the Hessian.
FIRM = 1e5
#: At most this is added to I - P' where it is singular, so that a flat Hessian does not make a binding row soft.
MOST_GIVE = 1e-3


@dataclass(frozen=True)
class Model:
    """How the multiplier answers a step d of w: z+ = pull + tau inverse + weight (J d).

    private: how the private variables answer it; None: there are none
    """

    weight: Matrix
    pull: Vector
    inverse: Vector
    private: PrivateStep | None = None

    def multiplier(self, change: Vector, target: float) -> Vector:
        return self.pull + target * self.inverse + apply(self.weight, change)


@dataclass(frozen=True)
class Point:
    """Where a holder of a constraint is."""

    w: Vector  # followed by its private variables
    slack: Vector
    multiplier: Vector
    clean: Vector  # the multiplier that is judged: exactly zero where the constraint does not bind
    local: Local
    barrier: Model | None
    finish: Model | None


@dataclass(frozen=True, kw_only=True)
class Look(Fitted):
    """What is asked of a holder at its new point."""

    coupled: Vector  # multiplier of the coupled constraint
    judged_coupled: Vector  # the same, exactly zero where it does not bind
    curvature: float = 0.0  # mean diagonal of the Hessian of the Lagrangian over all holders; 0: not known yet
    finishing: bool = False  # not the system of the barrier
    near: bool = False  # the semismooth system
    bends: bool = True  # any system at all: at a point that is expected to be the last, none is
    judge: bool = True  # the terms of the certificate too

    @property
    def starts(self) -> bool:
        """Whether nothing is known yet."""
        return not self.curvature


@dataclass(frozen=True, kw_only=True)
class System(Reply):
    """A holder's share of the Newton systems; the server only ever adds them up. Matrices are packed, see `pack`."""

    usable: bool  # False: a value or a derivative is not finite here, all else is void
    matrix: Fitting[Vector]
    slope: Summed[Vector]  # r at tau = 0
    centring: Summed[Vector]  # dr / dtau
    near_matrix: Fitting[Vector]  # of the semismooth system; empty when not asked for
    near_slope: Summed[Vector]
    diagonal: Summed[Vector]  # |diagonal of the Hessian of the Lagrangian|
    gradient: Summed[Vector]  # grad f; empty but at the start
    lagrangian: Summed[Vector]  # grad f + J'z; empty after a semismooth step, where `judged` stands for it
    priced: Summed[float]  # <z, c>
    objective: Summed[float]
    complementarity: Summed[float]  # <s, z>
    degree: Summed[int]
    miss: Summed[float]  # |c + s|^2
    size: Summed[float]  # |c|^2
    coupled: Summed[Vector]
    coupled_jacobian: Summed[Matrix]
    judged: Summed[Vector]  # the certificate's gradient; empty when not asked for
    feasibility: Largest[float]
    violation: Largest[float]
    private: Largest[float]  # the certificate's gradient in private variables
    private_slope: Largest[float]  # the same with the multiplier z of this point
    too_long: Largest[float]  # how many times too long the step was for slack or multiplier; 0: it was not


#: Fields that depend on the multiplier or were not looked at before: one that overflows makes the system void.
PRICED = tuple(name for name in content_fields(System) if name not in ("usable", "diagonal", "gradient", "degree"))


class NoRows(Zero):
    """The cone of a holder without constraints: {0} in R^0."""

    dim: int = 0

    def __init__(self) -> None:
        pass


NO_ROWS = NoRows()
NO_TERMS = Terms(objective=0.0, gradient=np.zeros(0), coupled=np.zeros(0), feasibility=0.0, violation=0.0)


def cone_of(share: Share, coupled: Cone | None = None) -> Cone:
    """The cone of a holder's constraint; the server's is followed by that of the coupled constraint."""
    cones: list[Cone] = []
    if share.constraint is not None:
        cones.append(share.constraint.cone)
    if coupled is not None:
        cones.append(coupled)
    if not cones:
        return NO_ROWS
    if len(cones) == 1:
        return cones[0]
    return Product(cones)


def first_pair(cone: Cone, local: Local, holders: int) -> tuple[Vector, Vector]:
    """A slack inside the cone near -c, and a multiplier whose pull is as strong as that of the holder's objective."""
    worth = np.minimum(cone.sensitivity(local.jacobian), FLAT)
    rooms = [ROOM if isinstance(block, Nonnegative | Zero) else CURVED_ROOM for block in cone.blocks]
    room = np.repeat(rooms, [block.dim for block in cone.blocks])
    slack = cone.move_inside(-local.value, room * np.maximum(1 / worth, np.abs(local.value)))
    strength = float(np.linalg.norm(local.gradient)) or 1 / holders
    return slack, strength * worth * cone.identity()


def complete_step(share: Share, origin: Point, step: Vector, longer: float, target: float, finishing: bool) -> Vector:
    """The step of (w, v), where the server's is of w alone.

    The condensed system is a model of f + <pull + tau s^-1, c> + |c - c(origin)|_D^2 / 2. At the new w, this function
    of v must not rise, nor may the step of v violate the constraint by far.
    """
    if not share.private:
        return step
    model = origin.finish if finishing else origin.barrier
    assert model is not None  # the order before asked for it
    assert model.private is not None
    price = model.pull + target * model.inverse

    cone = cone_of(share)
    steepest = float(np.max(np.abs(origin.local.jacobian), initial=0.0))
    most_violated = max(2 * cone.violation(origin.local.value), MOST_MISSED * steepest)

    def value(private_step: Vector) -> float:
        point = origin.w + longer * np.append(step, private_step)
        found = 0.0
        if share.objective is not None:
            found += share.objective.value(point)
        if share.constraint is not None:
            c = share.constraint.function.value(point)
            change = c - origin.local.value
            found += float(price @ c + 0.5 * change @ apply(model.weight, change))
            if np.any(private_step) and cone.violation(c) > most_violated:
                return np.inf
        return found

    return np.append(step, shorten(model.private.at(step, target), value))


@np.errstate(over="ignore", invalid="ignore")
def move_pair(
    cone: Cone, origin: Point, step: Vector, target: float, finishing: bool, length: float = 0.0
) -> tuple[Vector, Vector, float]:
    """Slack and multiplier after the step, each with the longest step (up to 1) that stays inside the cone.

    length: that both take instead; 0: none. And how many times too long the whole step is for one of them; 0: it is not
    """
    change = origin.local.jacobian @ step
    if finishing:
        assert origin.finish is not None  # the order before asked for it
        return origin.slack, origin.finish.multiplier(change, 0.0), 0.0
    assert origin.barrier is not None
    slack_step = -(origin.local.value + origin.slack) - change
    multiplier_step = origin.barrier.multiplier(change, target) - origin.multiplier
    equal = ~cone.has_slack  # nothing to keep inside
    equalities = equal.any()
    if equalities:
        slack_step[equal] = 0.0
    if length:
        return origin.slack + length * slack_step, origin.multiplier + length * multiplier_step, 0.0
    fraction = FRACTION
    if not all(isinstance(block, Nonnegative | Zero) for block in cone.blocks):
        fraction = float(np.clip(1 - np.sqrt(target), LEAST_FRACTION, FRACTION))
    slack_length = min(1.0, fraction * cone.longest_step(origin.slack, slack_step))
    multiplier_length = min(1.0, fraction * cone.longest_dual_step(origin.multiplier, multiplier_step))
    slack = origin.slack + slack_length * slack_step
    multiplier = origin.multiplier + multiplier_length * multiplier_step
    if equalities:
        multiplier[equal] = origin.multiplier[equal] + multiplier_step[equal]
    shortest = min(slack_length, multiplier_length)
    return slack, multiplier, 1 / max(shortest, SHORTEST) if shortest < 1 else 0.0


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def condense(
    share: Share,
    cone: Cone,
    w: Vector,
    at: tuple[Local, Curvature],
    pair: tuple[Vector, Vector],
    look: Look,
    too_long: float = 0.0,
) -> tuple[Point, System]:
    """Eliminate slack and multiplier at w: the holder's point, and its share of the systems that `look` asks for.

    at:   the share at w; the rows of the server end with coupled ones
    pair: slack and multiplier; too_long: what `move_pair` says of the step to them

    Where a number is not finite the system is void.
    """
    # 1. the Hessian of the Lagrangian
    local, curvatures = at
    slack, multiplier = pair
    dim = w.size - share.private
    own_rows = share.multiplier_length
    clean = cone.clean(multiplier, local.value, local.jacobian)
    weights = clean if look.finishing else multiplier
    hessian = np.zeros((0, 0))
    if look.bends:
        hessian = curvatures.lagrangian(weights[:own_rows], look.coupled)
    if not (math.isfinite(local.objective) and is_finite_all(local.gradient, local.value, local.jacobian, hessian)):
        return Point(w, slack, multiplier, clean, local, None, None), void_system(dim, look)
    diagonal = np.abs(np.diagonal(hessian))
    curvature = look.curvature
    if not curvature:
        curvature = (float(np.mean(diagonal)) if diagonal.size else 0.0) or 1.0

    # 2. how the multiplier answers a step of w, and what that leaves of the system
    barrier = None
    finish = None
    try:
        if look.bends and not look.finishing:
            barrier = barrier_model(cone, local, slack, multiplier, curvature)
        if look.near:
            finish = finish_model(cone, local, multiplier, curvature)
    except np.linalg.LinAlgError:  # rounding has put the slack or the multiplier on the boundary of its cone
        return Point(w, slack, multiplier, clean, local, None, None), void_system(dim, look)
    matrix, slope, centring, barrier = eliminate(hessian, local, barrier, dim)
    near_matrix, near_slope, _, finish = eliminate(hessian, local, finish, dim)
    point = Point(w, slack, multiplier, clean, local, barrier, finish)

    # 3. the terms of the certificate
    terms = NO_TERMS
    if look.judge:
        own = local
        if own_rows < local.value.size:
            own = replace(local, value=local.value[:own_rows], jacobian=local.jacobian[:own_rows])
        terms = owner_terms(share, w, clean[:own_rows], look.judged_coupled, own)
    lagrangian = local.gradient + local.jacobian.T @ multiplier
    private_slope = 0.0
    if share.private:
        private_slope = float(np.max(np.abs(lagrangian)[dim:]))
    residual = local.value + slack
    system = System(
        usable=True,
        matrix=matrix,
        slope=slope,
        centring=centring,
        near_matrix=near_matrix,
        near_slope=near_slope,
        diagonal=diagonal[:dim],
        gradient=local.gradient[:dim] if look.starts else np.zeros(0),
        lagrangian=np.zeros(0) if look.finishing else lagrangian[:dim],
        priced=float(multiplier @ local.value),
        objective=local.objective,
        complementarity=float(slack @ multiplier),
        degree=cone.degree,
        miss=float(residual @ residual),
        size=float(local.value @ local.value),
        coupled=local.coupled,
        coupled_jacobian=local.coupled_jacobian[:, :dim],
        judged=terms.gradient,
        feasibility=terms.feasibility,
        violation=terms.violation,
        private=terms.private,
        private_slope=private_slope,
        too_long=too_long,
    )
    # Multipliers of constraints that exclude each other grow without bound; such a point is refused, not an error.
    if not is_finite_all(*[getattr(system, name) for name in PRICED]):
        return Point(w, slack, multiplier, clean, local, None, None), void_system(dim, look)
    return point, system


def eliminate(
    hessian: Matrix, local: Local, model: Model | None, dim: int
) -> tuple[Vector, Vector, Vector, Model | None]:
    """M_i (packed), r_i at tau = 0 and dr_i / dtau of a model for the first `dim` variables; empty without one.

    And the model, which knows then how the private variables, all others, answer.
    """
    if model is None:
        empty = np.zeros(0)
        return empty, empty, empty, None
    J = local.jacobian
    matrix = hessian + J.T @ apply(model.weight, J)
    slope = local.gradient + J.T @ model.pull
    centring = J.T @ model.inverse
    if dim == slope.size:
        return pack(matrix), slope, centring, model
    matrix, slope, centring, private = keep_private(matrix, slope, centring, dim)
    return pack(matrix), slope, centring, replace(model, private=private)


def barrier_model(cone: Cone, local: Local, slack: Vector, multiplier: Vector, curvature: float) -> Model:
    """D, D (c + s) and s^-1; an equality has no slack, its row is firm: z+ = z + D (c + J d)."""
    weight = cone.scaling(slack, multiplier)
    if cone.has_slack.all():
        return Model(weight, apply(weight, local.value + slack), cone.inverse(slack))
    firm = np.where(cone.has_slack, 0.0, FIRM * curvature / _mean_square(local.jacobian))
    if weight.ndim == 2:
        firm = np.diag(firm)
    weight = weight + firm
    pull = np.where(cone.has_slack, 0.0, multiplier) + apply(weight, local.value + slack)
    return Model(weight, pull, cone.inverse(slack))


def finish_model(cone: Cone, local: Local, multiplier: Vector, curvature: float) -> Model:
    """Newton's equation of z = P_{K*}(z + theta c): (I - P') dz = P' theta J d + P(z + theta c) - z.

    I - P' is singular where the constraint binds: a small multiple of the identity makes the row firm instead.
    """
    theta = cone.sensitivity(local.jacobian)
    shifted = multiplier + theta * local.value
    derivative = cone.project_dual_jacobian(shifted)
    gap = cone.project_dual(shifted) - multiplier
    none = np.zeros(cone.dim)
    give = np.minimum(theta * _mean_square(local.jacobian) / (FIRM * curvature), MOST_GIVE)
    if derivative.ndim == 1:
        stiff = 1 / (1 - derivative + give)
        return Model(stiff * derivative * theta, multiplier + stiff * gap, none)
    inverse = np.linalg.inv(np.eye(cone.dim) - derivative + np.diag(give))
    weight = inverse @ (derivative * theta)
    return Model(0.5 * (weight + weight.T), multiplier + inverse @ gap, none)


def is_finite_all(*values: float | Matrix) -> bool:
    """Whether all of these numbers and arrays are finite, in one pass."""
    return is_finite(np.concatenate(values, axis=None))


def apply(weight: Matrix, columns: Matrix) -> Matrix:
    """weight @ columns, for a weight given as a matrix or as a diagonal."""
    if weight.ndim == 2:
        return weight @ columns
    if columns.ndim == 2:
        return weight[:, None] * columns
    return weight * columns


def pack(matrix: Matrix) -> Vector:
    """The upper triangle of a symmetric matrix, row by row: half the numbers to send."""
    return matrix.ravel()[triangle(len(matrix))]


def unpack(packed: Vector, dim: int) -> Matrix:
    flat = np.empty(dim * dim)
    flat[triangle(dim)] = packed
    flat[triangle(dim, lower=True)] = packed
    return flat.reshape(dim, dim)


@lru_cache(maxsize=16)
def triangle(dim: int, lower: bool = False) -> NDArray[np.intp]:
    """Positions of the upper triangle in a matrix that is read row by row; of its mirror image where `lower`."""
    rows, columns = np.triu_indices(dim)
    if lower:
        rows, columns = columns, rows
    return np.ravel_multi_index((rows, columns), (dim, dim))


def _mean_square(jacobian: Matrix) -> float:
    return float(np.vdot(jacobian, jacobian)) / max(len(jacobian), 1) or 1.0


def largest_entry(system: System) -> float:
    """Of all that is summed."""
    values = [getattr(system, name) for name in summed_fields(System)]
    return float(np.max(np.abs(np.concatenate(values, axis=None)), initial=0.0))


def largest_of_arrays(system: System) -> float:
    """Of all arrays that are summed, but matrices."""
    values = [getattr(system, name) for name in summed_fields(System) if name not in ("matrix", "near_matrix")]
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    return float(np.max(np.abs(np.concatenate(arrays, axis=None)), initial=0.0))


def largest_of_matrices(system: System, scales: NDArray[np.float32]) -> float:
    """In units of their rows and columns."""
    largest = 0.0
    for packed in (system.matrix, system.near_matrix):
        if packed.size:
            units = packed_units(scales, packed.size)
            largest = max(largest, float(np.max(np.abs(packed / units))))
    return largest


def void_system(dim: int, look: Look) -> System:
    """A zero System of the requested shape, returned when this holder's values are not finite."""
    vector = np.zeros(dim)
    packed = pack(np.zeros((dim, dim)))
    empty = np.zeros(0)
    rows = look.coupled.size
    barrier = look.bends and not look.finishing
    return System(
        usable=False,
        matrix=packed if barrier else empty,
        slope=vector if barrier else empty,
        centring=vector if barrier else empty,
        near_matrix=packed if look.near else empty,
        near_slope=vector if look.near else empty,
        diagonal=vector if look.bends else empty,
        gradient=vector if look.starts else empty,
        lagrangian=empty if look.finishing else vector,
        priced=0.0,
        objective=0.0,
        complementarity=0.0,
        degree=0,
        miss=0.0,
        size=0.0,
        coupled=np.zeros(rows),
        coupled_jacobian=np.zeros((rows, dim)),
        judged=vector if look.judge else empty,
        feasibility=0.0,
        violation=0.0,
        private=0.0,
        private_slope=0.0,
        too_long=0.0,
    )
