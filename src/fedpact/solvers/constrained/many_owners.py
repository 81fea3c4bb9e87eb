"""The steps of `interior_point.py` for many owners of one process at once: the same numbers, bit for bit.

For owners with an objective, and all of them or none with constraints c_i(w) <= 0 of as many rows, whose functions are
of one kind (`functions/many.py`): no private variables, no coupled constraint. Every array has a leading axis with one
entry an owner, and every line stands for one of `condensation.py`, `interior_point.py` or `steps.py`, which define the
method. What is not finite, and what is wrong in any other way, is left to these: None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.federation.crew import Held, twin_of
from fedpact.federation.messages import build, is_finite
from fedpact.functions.many import ManyFunctions, ManyMaps, join_functions, join_maps
from fedpact.problem import Share
from fedpact.problem.ray import FLAT as LEVEL
from fedpact.problem.ray import HUGE, REACH, aside, reach_of
from fedpact.problem.share import Curvature, Local
from fedpact.solvers.constrained.condensation import (
    FIRM,
    FLAT,
    FRACTION,
    MOST_GIVE,
    ROOM,
    SHORTEST,
    Look,
    Model,
    Point,
    System,
    triangle,
)
from fedpact.solvers.constrained.interior_point import (
    Advance,
    Begin,
    State,
    advance,
    at_start,
    begin,
    move_to,
    origin_of,
)
from fedpact.solvers.steps import Conclude, Concluded, conclude
from fedpact.types import Matrix, Vector

#: The orthant: what is used of it acts on every entry, or on the last axis, of arrays of any shape.
ORTHANT = Nonnegative(1)


@dataclass(frozen=True)
class Owners:
    """Their functions in one; `rows` of the constraint of each."""

    count: int
    dim: int
    rows: int
    objective: ManyFunctions
    constraint: ManyMaps | None

    def expand(self, w: Vector) -> tuple[Local, Curvature]:
        """As `expand` of a share."""
        objective, gradient, bend = self.objective.expand(w)
        value, jacobian = self.no_rows
        bends = {}
        if self.constraint is not None:
            value, jacobian, bends["constraint"] = self.constraint.expand(w)
        coupled, coupled_jacobian = self.no_rows
        local: Any = Local(objective, gradient, value, jacobian, coupled, coupled_jacobian)  # type: ignore[arg-type]
        return local, Curvature(self.dim, partial(bend, self.usable), **bends)

    @cached_property
    def no_rows(self) -> tuple[Matrix, Matrix]:
        """Value and Jacobian of a constraint that nobody has."""
        return np.zeros((self.count, 0)), np.zeros((self.count, 0, self.dim))

    @cached_property
    def zero(self) -> Vector:
        """A number of every owner that is zero."""
        return np.zeros(self.count)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """True of every owner."""
        return np.ones(self.count, dtype=np.bool_)

    @cached_property
    def degree(self) -> NDArray[np.int64]:
        """Of every owner's cone."""
        return np.full(self.count, self.rows)


def join(shares: Held) -> Owners | None:
    """The owners in one, found out once; None where they differ."""
    if shares.joined is None:
        shares.joined = (_join(shares),)
    found: Owners | None = shares.joined[0]
    return found


def _join(shares: list[Share]) -> Owners | None:
    if not all(_is_plain(share) for share in shares):
        return None
    objective = join_functions([share.objective for share in shares if share.objective is not None])
    constraints = [share.constraint for share in shares if share.constraint is not None]
    if objective is None or len(constraints) not in (0, len(shares)):
        return None
    assert shares[0].objective is not None
    dim = shares[0].objective.dim
    assert dim is not None  # a function that can be joined has rows
    if not constraints:
        return Owners(len(shares), dim, 0, objective, None)
    rows = constraints[0].cone.dim
    if not all(type(one.cone) is Nonnegative and one.cone.dim == rows for one in constraints):
        return None
    constraint = join_maps([one.function for one in constraints])
    if constraint is None or len(constraint.rows) != rows:
        return None
    return Owners(len(shares), dim, rows, objective, constraint)


def _is_plain(share: Share) -> bool:
    """Whether it has an objective, perhaps a constraint, and nothing else."""
    return type(share) is Share and share.objective is not None and share.coupled is None and not share.private


# ------------------------------------------------------------------------------------------------------------ the steps


@twin_of(begin)
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def begin_all(shares: Held, state: Any, order: Begin) -> tuple[State, System] | None:
    owners = join(shares)
    if owners is None or owners.dim != order.w.size:
        return None
    at = owners.expand(order.w)
    found = condense(owners, order.w, at, first_pair(at[0], order.holders), order, owners.zero)
    if found is None:
        return None
    point, system = found
    return at_start(shares[0], point), system


@twin_of(advance)
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def advance_all(shares: Held, state: Any, order: Advance) -> tuple[State, System] | None:
    owners = join(shares)
    if owners is None or not isinstance(state, State):
        return None
    origin = origin_of(state, order)
    w = origin.w[0]
    slack, multiplier, too_long = (origin.slack, origin.multiplier, owners.zero)
    if order.longer:
        w = w + order.longer * order.step
        slack, multiplier, too_long = move_pair(owners, origin, order)
    found = condense(owners, w, owners.expand(w), (slack, multiplier), order, too_long)
    if found is None:
        return None
    point, system = found
    return move_to(shares[0], state, order, point), system


@twin_of(conclude)
@np.errstate(all="ignore")
def conclude_all(shares: Held, state: Any, order: Conclude) -> tuple[State, Concluded] | None:
    owners = join(shares)
    if owners is None or not isinstance(state, State) or order.iteration < 0:
        return None
    price = state.price_at(order.iteration)
    local = state.latest.local
    if not np.array_equal(order.w, state.latest.w[0]):
        local, _ = owners.expand(order.w)
    coupled, _ = owners.no_rows
    reach = reach_of(order.w, order.ray)
    far = order.w + reach * order.ray
    beside = order.w + reach * aside(order.ray)
    along = order.ray[None, :].repeat(owners.count, axis=0)
    sizes = np.abs(along)
    back_gradient = owners.objective.expand(order.w - reach / REACH * order.ray)[1]
    far_objective, far_gradient, _ = owners.objective.expand(far)
    side_gradient = owners.objective.expand(beside)[1]
    terms = dot(np.abs(local.gradient), sizes)
    back = dot(back_gradient, along)
    side = dot(np.abs(side_gradient), sizes)
    far_violation = owners.zero
    if owners.constraint is not None:
        missed = owners.constraint.value(far) - LEVEL * np.nan_to_num(np.abs(owners.constraint.value(beside)), nan=0.0)
        far_violation = np.max(missed, axis=1, initial=0.0)
        far_violation = np.where(np.isfinite(missed).all(axis=1), far_violation, HUGE)
    reply: dict[str, Any] = {
        "objective": local.objective,
        "gradient": local.gradient + priced(local.jacobian, price),
        "feasibility": ORTHANT.normal_distances(local.value, price),
        "violation": ORTHANT.violations(local.value),
        "coupled": coupled,
        "private": owners.zero,
        "multiplier": price,
        "wrong": "",  # a function that can be joined is of the library itself
        "slope": finite(dot(local.gradient, along), HUGE),
        "terms": finite(terms, HUGE),
        "back_slope": finite(back, HUGE),
        "far_slope": finite(dot(far_gradient, along), HUGE),
        "far_terms": finite(np.where(np.isfinite(side), side, terms + np.abs(back)), 0.0),
        "far_objective": finite(far_objective, HUGE),
        "far_violation": far_violation,
        "far_coupled": coupled,
        "side_coupled": coupled,
    }
    return state, build(Concluded, reply)


def finite(values: Vector, instead: float) -> Vector:
    """As `fedpact.problem.ray.finite`, of every owner."""
    return np.nan_to_num(values, nan=instead, posinf=instead, neginf=-instead)


# ---------------------------------------------------------------------------------------------------- the condensation


def first_pair(local: Local, holders: int) -> tuple[Matrix, Matrix]:
    worth = np.minimum(ORTHANT.sensitivity(local.jacobian), FLAT)
    slack = ORTHANT.move_inside(-local.value, ROOM * np.maximum(1 / worth, np.abs(local.value)))
    strength = np.sqrt(dot(local.gradient, local.gradient))
    strength = np.where(strength == 0, 1 / holders, strength)
    return slack, strength[:, None] * worth


def move_pair(owners: Owners, origin: Point, order: Advance) -> tuple[Matrix, Matrix, Vector]:
    change = origin.local.jacobian @ order.step
    if order.finishing:
        assert origin.finish is not None  # the order before asked for it
        return origin.slack, answer(origin.finish, change, 0.0), owners.zero
    assert origin.barrier is not None
    slack_step = -(origin.local.value + origin.slack) - change
    multiplier_step = answer(origin.barrier, change, order.target) - origin.multiplier
    if order.length:
        slack = origin.slack + order.length * slack_step
        return slack, origin.multiplier + order.length * multiplier_step, owners.zero
    slack_length = np.minimum(1.0, FRACTION * ORTHANT.longest_steps(origin.slack, slack_step))
    multiplier_length = np.minimum(1.0, FRACTION * ORTHANT.longest_steps(origin.multiplier, multiplier_step))
    slack = origin.slack + slack_length[:, None] * slack_step
    shortest = np.minimum(slack_length, multiplier_length)
    too_long = np.where(shortest < 1, 1 / np.maximum(shortest, SHORTEST), 0.0)
    return slack, origin.multiplier + multiplier_length[:, None] * multiplier_step, too_long


def answer(model: Model, change: Matrix, target: float) -> Matrix:
    """As `Model.multiplier`."""
    return model.pull + target * model.inverse + model.weight * change


def condense(
    owners: Owners,
    w: Vector,
    at: tuple[Local, Curvature],
    pair: tuple[Matrix, Matrix],
    look: Look,
    too_long: Vector,
) -> tuple[Point, System] | None:
    # 1. the Hessian of the Lagrangian
    local, curvatures = at
    slack, multiplier = pair
    theta = ORTHANT.sensitivity(local.jacobian)
    shifted = multiplier + theta * local.value
    clean = np.where(shifted > 0, ORTHANT.project_dual(multiplier), 0.0)
    none, coupled_jacobian = owners.no_rows
    diagonal = none
    if look.bends:
        hessian = curvatures.lagrangian(clean if look.finishing else multiplier, look.coupled)
        diagonal = np.abs(hessian.diagonal(axis1=1, axis2=2))

    # 2. how the multiplier answers a step of w, and what that leaves of the system
    barrier = None
    finish = None
    matrix = slope = centring = near_matrix = near_slope = none
    if look.bends and not look.finishing:
        weight = ORTHANT.scaling(slack, multiplier)
        barrier = Model(weight, weight * (local.value + slack), ORTHANT.inverse(slack))
        matrix, slope = eliminate(hessian, local, barrier)
        centring = priced(local.jacobian, barrier.inverse)
    if look.near:
        if not look.curvature:
            return None
        finish = finish_model(local, multiplier, theta, shifted, look.curvature)
        near_matrix, near_slope = eliminate(hessian, local, finish)
    everywhere = w[None, :].repeat(owners.count, axis=0)
    point = Point(everywhere, slack, multiplier, clean, local, barrier, finish)

    # 3. the terms of the certificate
    judged = none
    feasibility = violation = owners.zero
    if look.judge:
        judged = local.gradient + priced(local.jacobian, clean)
        feasibility = ORTHANT.normal_distances(local.value, clean)
        violation = ORTHANT.violations(local.value)
    residual = local.value + slack
    reply: dict[str, Any] = {
        "usable": owners.usable,
        "matrix": matrix,
        "slope": slope,
        "centring": centring,
        "near_matrix": near_matrix,
        "near_slope": near_slope,
        "diagonal": diagonal,
        "gradient": local.gradient if look.starts else none,
        "lagrangian": none if look.finishing else local.gradient + priced(local.jacobian, multiplier),
        "priced": dot(multiplier, local.value),
        "objective": local.objective,
        "complementarity": dot(slack, multiplier),
        "degree": owners.degree,
        "miss": dot(residual, residual),
        "size": dot(local.value, local.value),
        "coupled": none,
        "coupled_jacobian": coupled_jacobian,
        "judged": judged,
        "feasibility": feasibility,
        "violation": violation,
        "private": owners.zero,
        "private_slope": owners.zero,
        "too_long": too_long,
    }
    if not is_finite(local.jacobian):
        return None
    return point, build(System, reply)


def eliminate(hessian: Matrix, local: Local, model: Model) -> tuple[Matrix, Matrix]:
    J = local.jacobian
    matrix = hessian + times(J.transpose(0, 2, 1), model.weight[:, :, None] * J)
    packed = matrix.reshape(len(matrix), -1).take(triangle(matrix.shape[-1]), axis=1)
    return packed, local.gradient + priced(J, model.pull)


def finish_model(local: Local, multiplier: Matrix, theta: Matrix, shifted: Matrix, curvature: float) -> Model:
    derivative = ORTHANT.project_dual_jacobian(shifted)
    gap = ORTHANT.project_dual(shifted) - multiplier
    rows = local.jacobian.reshape(len(multiplier), -1)
    mean_square = dot(rows, rows) / max(multiplier.shape[1], 1)
    mean_square = np.where(mean_square == 0, 1.0, mean_square)
    give = np.minimum(theta * mean_square[:, None] / (FIRM * curvature), MOST_GIVE)
    stiff = 1 / (1 - derivative + give)
    return Model(stiff * derivative * theta, multiplier + stiff * gap, np.zeros(multiplier.shape))


def priced(jacobian: Matrix, weights: Matrix) -> Matrix:
    """J'z of every owner."""
    return times(jacobian.transpose(0, 2, 1), weights[:, :, None])[:, :, 0]


def dot(left: Matrix, right: Matrix) -> Vector:
    """<x, y> of every owner, by the routine that multiplies two vectors."""
    return (left[:, None, :] @ right[:, :, None])[:, 0, 0]


def times(left: Matrix, right: Matrix) -> Matrix:
    """The product of every owner's matrices; of a column and a row without a call of BLAS for each."""
    return left * right if left.shape[-1] == 1 else left @ right
