"""Steps that every method shares: what owners say about their shares, judge, probe, and conclude with.

An owner's state in a method with multipliers is a `Holder`, so that these steps find its prices whatever the method.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from fedpact.errors import ProblemError
from fedpact.federation import Answers, Largest, Order, Reply, Session, Summed, client_step
from fedpact.federation.messages import copy_with, is_finite
from fedpact.problem import (
    Certificate,
    Description,
    FederatedProblem,
    RemoteProblem,
    Share,
    Terms,
    assemble,
    describe,
    find_wrong_parts,
    owner_terms,
    round_up,
)
from fedpact.problem.ray import RayTerms, add_rays, holder_terms, judge_ray, reach_of
from fedpact.problem.share import evaluate
from fedpact.solvers.run import Run
from fedpact.types import Matrix, Vector
from fedpact.watching import unwatched

if TYPE_CHECKING:
    from fedpact.solvers.inference import Inference

# ---------------------------------------------------------------------------------------------- what an owner remembers


@dataclass(frozen=True)
class Private:
    """An owner's private variables, and the digest of the model w that they belong to; empty where it has none."""

    model: str = ""
    values: Vector = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, share: Share, point: Vector) -> Self:
        """Those of (w, v); nothing is computed for an owner without private variables."""
        if not share.private:
            return cls()
        w, values = np.split(point, [point.size - share.private])
        return cls(digest_of_model(w), values)


def digest_of_model(w: Vector) -> str:
    return sha256(np.ascontiguousarray(w).tobytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What an owner keeps in any method: price and private variables of the latest iteration, and of the best one.

    returned: the private variables of models that solves of this session have returned
    weight:   its part in a penalty that may differ by owner, r_i = rho_i / rho
    """

    iteration: int
    price: Vector
    best_iteration: int
    best_price: Vector
    private: Private = field(default_factory=Private)
    best_private: Private = field(default_factory=Private)
    returned: tuple[Private, ...] = ()
    weight: float = 1.0

    def price_at(self, iteration: int) -> Vector:
        held = {self.best_iteration: self.best_price, self.iteration: self.price}
        return held[iteration]

    def private_at(self, iteration: int) -> Vector:
        held = {self.best_iteration: self.best_private, self.iteration: self.private}
        return held[iteration].values

    def mark_best(self, best: bool) -> Self:
        """The state with its latest price and private variables as the best ones, if they are."""
        if not best:
            return self
        latest = {"best_iteration": self.iteration, "best_price": self.price, "best_private": self.private}
        return copy_with(self, latest)

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        """Weights of the constraint that may prove a conflict, and the point where they balance (None: any)."""
        return None, self.price


def price_of(share: Share, state: Any, iteration: int) -> Vector:
    """The owner's price in that iteration; zero for -1, and in methods without prices."""
    if isinstance(state, Holder) and iteration >= 0:
        return state.price_at(iteration)
    return np.zeros(share.multiplier_length)


def first_prices(run: Run) -> Vector:
    """The server's prices at the start, the coupled constraint's behind its own: those it was handed, or zero."""
    if run.warm >= 0:
        return run.best.multiplier
    return np.zeros(run.problem.server.multiplier_length + run.problem.coupled_length)


def point_of(share: Share, state: Any, w: Vector, iteration: int) -> Vector:
    """(w, v) with the owner's private variables in that iteration; where they start for -1. w itself without any."""
    private = share.first_private
    if share.private and isinstance(state, Holder) and iteration >= 0:
        private = state.private_at(iteration)
    return np.concatenate([w, private])


def returned_by(state: Any) -> tuple[Private, ...]:
    """What a new solve takes over from the owner's memory of those before it."""
    return state.returned if isinstance(state, Holder) else ()


def private_of(share: Share, state: Any, w: Vector) -> Vector | None:
    """The private variables that belong to this model, empty where a share has none; None: they are not known."""
    if not share.private:
        return np.zeros(0)
    if not isinstance(state, Holder):
        return None
    model = digest_of_model(w)
    held = {one.model: one.values for one in (state.private, state.best_private, *state.returned)}
    return held.get(model)


def model_of(share: Share, state: Any, w: Vector) -> Vector:
    """(w, v) of a model that a solve of this session returned. Raises ProblemError when the owner has no such v."""
    private = private_of(share, state, w)
    if private is None:
        raise ProblemError(
            "it does not know the private variables that belong to this model: they are kept for one session; solve "
            "again in this one",
            code="FP-PROBLEM-252",
        )
    return np.concatenate([w, private])


def remember(share: Share, state: Any, point: Vector, iteration: int) -> Any:
    """The state of an owner that keeps the private variables of what a solve returns, for the steps that follow."""
    if not share.private:
        return state
    if not isinstance(state, Holder):  # stopped before the first iteration
        none = np.zeros(share.multiplier_length)
        state = Holder(iteration=iteration, price=none, best_iteration=iteration, best_price=none)
    return replace(state, returned=(*state.returned, Private.of(share, point)))


def weight_of(state: Any, weighted: bool) -> float:
    """The owner's part in a penalty, as it was told before the first iteration of this method."""
    if weighted and isinstance(state, Holder):
        return state.weight
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Equip(Order):
    """What this owner starts from: a price of its constraint, its weight, and a model whose variables it may have."""

    w: Vector
    price: Vector
    weight: float


@dataclass(frozen=True, kw_only=True)
class Equipped(Reply):
    """This owner is ready to start."""


@client_step
def equip(share: Share, state: Any, order: Equip) -> tuple[Holder, Equipped]:
    """Start from this price, brought into the dual cone, and from the private variables that belong to w."""
    price = order.price
    if price.size != share.multiplier_length:
        raise ProblemError(
            f"got a multiplier of length {price.size} for a constraint of length {share.multiplier_length}",
            code="FP-PROBLEM-257",
        )
    if share.constraint is not None:
        price = share.constraint.cone.project_dual(price)
    values = private_of(share, state, order.w)
    if values is None:
        values = share.first_private
    private = Private.of(share, np.concatenate([order.w, values]))
    fresh = Holder(
        iteration=0,
        price=price,
        best_iteration=0,
        best_price=price,
        private=private,
        best_private=private,
        returned=returned_by(state),
        weight=order.weight,
    )
    return fresh, Equipped()


def equip_all(run: Run, weights: Vector) -> None:
    """One exchange, where multipliers were given or owners differ in weight: each owner is told its own."""
    if run.given is None and not weights.size:
        return
    prices = [np.zeros(share.multiplier_length) for share in run.problem.shares]
    if run.given is not None:
        prices = list(run.given.owners)
        run.best.multiplier = np.append(run.given.server, run.given.coupled)
        run.warm = 0
    if not weights.size:
        weights = np.ones(len(prices))
    orders = [Equip(w=run.start, price=price, weight=r) for price, r in zip(prices, weights, strict=True)]
    run.ask(equip, orders)
    run.given = None  # a method that goes on has prices of its own


# ------------------------------------------------------------------------------------------------------------- describe


@dataclass(frozen=True, kw_only=True)
class Described(Reply):
    """The fields of `Description`, on their way to the server."""

    dim: int
    objective: bool
    cone: str
    coupled: str
    hessian: bool
    convex: bool
    private: bool
    operator: bool
    split: int
    stands_in: bool


@client_step
def describe_share(share: Share, state: Any, order: Order) -> tuple[Any, Described]:
    """Build and check the share, and say what the server must know of it."""
    return state, Described(**asdict(describe(share)))


def describe_problem(problem: RemoteProblem, session: Session) -> FederatedProblem:
    """One exchange: the problem as the server sees it."""
    answers = session.ask(describe_share, Order())
    said = {owner: Description(**vars(answer)) for owner, answer in zip(session.owners, answers, strict=True)}
    return problem.assemble(said)


# ---------------------------------------------------------------------------------------------------------------- judge


@dataclass(frozen=True, kw_only=True)
class At(Order):
    """A point to look at; coupled_length: of the coupled constraint, which some owners have no part of."""

    w: Vector
    coupled_length: int = 0


@dataclass(frozen=True, kw_only=True)
class Judged(Reply):
    """The fields of `Terms`, on their way to the server."""

    objective: Summed[float]
    gradient: Summed[Vector]
    feasibility: Largest[float]
    violation: Largest[float]
    coupled: Summed[Vector]
    private: Largest[float]


J = TypeVar("J", bound=Judged)


@client_step
def judge(share: Share, state: Any, order: At) -> tuple[Any, Judged]:
    """The terms of the certificate at w with zero multipliers."""
    zero = np.zeros(share.multiplier_length)
    return state, Judged(**judged_terms(share, order.w, zero, np.zeros(order.coupled_length)))


def judged_terms(share: Share, w: Vector, multiplier: Vector, coupled: Vector) -> dict[str, Any]:
    """The fields of `Judged` at (w, multiplier), in the user's variables; private ones follow w."""
    return term_fields(owner_terms(*share.own(w, multiplier), coupled))


def no_terms() -> dict[str, Any]:
    """The fields of `Judged` where nothing was asked for."""
    none = np.zeros(0)
    return term_fields(Terms(objective=0.0, gradient=none, feasibility=0.0, violation=0.0, coupled=none))


def term_fields(source: Terms | Judged) -> dict[str, Any]:
    return {f.name: getattr(source, f.name) for f in fields(Terms)}


def certificate_of(
    problem: FederatedProblem, w: Vector, multiplier: Vector, replies: Answers[J]
) -> tuple[Certificate, float]:
    """Certificate and objective in the user's variables, from the owners' replies."""
    asked, user_w, server_price, coupled = problem.own(w, multiplier)
    return assemble(asked, user_w, server_price, coupled, replies.total, replies)


def judge_point(run: Run, w: Vector) -> tuple[Certificate, float]:
    """One exchange: certificate and objective of w with zero multipliers."""
    zero = np.zeros(run.problem.server.multiplier_length + run.problem.coupled_length)
    asked = run.problem.own(w, zero)[0]
    replies = run.ask(judge, At(w=w, coupled_length=asked.coupled_length))
    return certificate_of(run.problem, w, zero, replies)


# ---------------------------------------------------------------------------------------------------------------- probe

#: Numbers are cut off here in a secure sum, which holds numbers of limited size; downwards sooner, so that one holder
#: for whom the far point is much worse outweighs the others.
MOST = 1e20
LEAST = -1e19


@dataclass(frozen=True, kw_only=True)
class Ray(At):
    """A direction to look along from w; zero: along that of private variables alone."""

    ray: Vector


@dataclass(frozen=True, kw_only=True)
class Probed(Reply):
    """The fields of `RayTerms`, on their way to the server."""

    slope: Summed[float]
    terms: Summed[float]
    back_slope: Summed[float]
    far_slope: Summed[float]
    far_terms: Summed[float]
    far_objective: Summed[float]
    far_violation: Largest[float]
    far_coupled: Summed[Vector]
    side_coupled: Summed[Vector]


def probe_fields(
    share: Share, w: Vector, ray: Vector, coupled_length: int, secure: bool, reach: float
) -> dict[str, Any]:
    """The fields of `Probed` for one share, in the user's variables."""
    none = np.zeros(share.multiplier_length)
    own, user_w, _ = share.own(w, none)
    along = share.own(ray, none)[1]
    with unwatched():  # far out slopes single rows out; what leaves is their sum along one way
        found = vars(holder_terms(own, user_w, along, coupled_length, reach))
    if not secure:
        return found
    cut = {name: np.clip(np.asarray(value), LEAST, MOST) for name, value in found.items() if name != "far_violation"}
    return {**found, **{name: value if value.ndim else float(value) for name, value in cut.items()}}


@client_step
def probe(share: Share, state: Any, order: Ray) -> tuple[Any, Probed]:
    """What the owner's part of the problem does along a ray."""
    latest = share.first_private
    if share.private and isinstance(state, Holder):
        latest = state.private.values
    w, ray = with_private(share, order.w, order.ray, latest)
    return state, Probed(
        **probe_fields(share, w, ray, order.coupled_length, order.secure, reach_of(order.w, order.ray))
    )


def with_private(share: Share, w: Vector, ray: Vector, private: Vector) -> tuple[Vector, Vector]:
    """w and the ray with an owner's private variables, which go on their own way from the start.

    Where they go alone, how far they went does not matter, and is not shown.
    """
    way = private - share.first_private
    if not np.any(ray):
        way = way / np.max(np.abs(way), initial=1e-300)
    return np.concatenate([w, private]), np.concatenate([ray, way])


@dataclass(frozen=True, kw_only=True)
class Bends(Reply):
    """The Hessian of the owner's objective."""

    hessian: Summed[Matrix]


@client_step
def bend(share: Share, state: Any, order: At) -> tuple[Any, Bends]:
    """How the owner's objective is bent at a point."""
    if share.objective is None:
        return state, Bends(hessian=np.zeros((order.w.size, order.w.size)))
    hessian = np.asarray(share.objective.hessian(order.w), dtype=np.float64)
    if not is_finite(hessian):
        hessian = np.zeros_like(hessian)
    return state, Bends(hessian=hessian)


# ------------------------------------------------------------------------------------------------------------- conclude


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    """The point to return, the iteration whose prices belong to it, the coupled constraint's price, and a ray."""

    w: Vector
    iteration: int
    coupled: Vector
    ray: Vector


@dataclass(frozen=True, kw_only=True)
class Concluded(Judged):
    """The owner's price, and the terms of the certificate of exactly that price; and the ray, as in `Probed`.

    Price and residuals are told owner by owner here, and nowhere else: they are part of the answer.

    wrong: roles of its functions whose derivatives are not theirs, for which the terms prove nothing
    """

    feasibility: float
    violation: float
    private: float
    multiplier: Vector
    slope: Summed[float]
    terms: Summed[float]
    back_slope: Summed[float]
    far_slope: Summed[float]
    far_terms: Summed[float]
    far_objective: Summed[float]
    far_violation: Largest[float]
    far_coupled: Summed[Vector]
    side_coupled: Summed[Vector]
    wrong: str

    def withhold(self, least: int) -> Self:
        """What is left of errors is told roughly, where the owner rounds what it tells of itself alone."""
        if not least:
            return self
        names = ("feasibility", "violation", "private")
        rounded: dict[str, Any] = {name: round_up(getattr(self, name)) for name in names}
        return replace(self, **rounded)


@client_step
def conclude(share: Share, state: Any, order: Conclude) -> tuple[Any, Concluded]:
    """Hand out the price of this owner's constraint, judge it anew, check derivatives, and look along the ray."""
    point = point_of(share, state, order.w, order.iteration)
    own, w, price = share.own(point, price_of(share, state, order.iteration))
    at = evaluate(own, w, order.coupled.size)
    terms = owner_terms(own, w, price, order.coupled, at)
    private = point[order.w.size :]
    start, ray = with_private(share, order.w, order.ray, private)
    far = probe_fields(share, start, ray, order.coupled.size, order.secure, reach_of(order.w, order.ray))
    wrong = ", ".join(find_wrong_parts(own, w, at))
    reply = Concluded(multiplier=price, wrong=wrong, **term_fields(terms), **far)
    return remember(own, state, w, order.iteration), reply


@dataclass(frozen=True)
class Ending:
    """What the last exchange brings: the owners' prices, and certificate and objective of the pair that is returned.

    afar:      how far the last way is from a ray along which the objective falls forever (`judge_ray`)
    ray:       that way
    wrong:     whose derivatives do not belong to their functions, in words; empty when all do
    scores:    of all people, in a vertical problem
    inference: standard errors there, where they were asked for
    """

    certificate: Certificate
    objective: float
    prices: list[Vector]
    afar: float = math.inf
    ray: Vector | None = None
    wrong: str = ""
    scores: Vector | None = None
    inference: Inference | None = None


WRONG_DERIVATIVES = "{}: the gradient or Jacobian of its {} does not belong to its function; correct it"


def conclude_all(run: Run) -> Ending:
    """One exchange about the best point."""
    best = run.best
    coupled = run.problem.own(best.w, best.multiplier)[3]
    ray = run.way()
    order = Conclude(w=best.w, iteration=best.iteration, coupled=coupled, ray=ray)
    replies = run.ask(conclude, order)
    certificate, objective = certificate_of(run.problem, best.w, best.multiplier, replies)
    prices = replies.column("multiplier")
    afar = judge_afar(run, best.w, ray, replies, certificate, objective)
    asked, user_w, _, _ = run.problem.own(best.w, best.multiplier)
    found = {asked.server.label: ", ".join(find_wrong_parts(asked.server, user_w))}
    found |= dict(zip(run.problem.names, replies.column("wrong"), strict=True))
    wrong = "; ".join(WRONG_DERIVATIVES.format(name, roles) for name, roles in found.items() if roles)
    return Ending(certificate, objective, prices, afar, ray, wrong)


def judge_afar(
    run: Run, w: Vector, ray: Vector, replies: Answers[Any], certificate: Certificate, objective: float
) -> float:
    """How far the ray from w is from one along which the objective falls forever, as `judge_ray`.

    replies: with the fields of `Probed`. Operators have no objective that could fall. Where the problem may not be
    convex, slopes at two points prove nothing about what lies between: then the far point has to be better by a tenth.
    """
    problem = run.problem
    walks = np.any(ray) or problem.private
    if problem.monotone or not walks or certificate.violation > run.tol[1]:  # nothing is known of what is feasible
        return math.inf
    asked, user_w, _, _ = problem.own(w, np.zeros(problem.server.multiplier_length))
    user_ray = problem.own(ray, np.zeros(problem.server.multiplier_length))[1]
    reach = reach_of(w, ray)
    own = RayTerms(**probe_fields(asked.server, user_w, user_ray, asked.coupled_length, False, reach))
    told = RayTerms(**{name: getattr(replies.total, name) for name in vars(own)})
    total = add_rays([own, told])
    h = problem.regularizer
    certified = certificate.meets(run.tol)
    found = judge_ray(total, h, asked.coupled_cone, w, ray, run.tol[1], certified, problem.convex)
    if problem.convex or found > 0:
        return found
    there = total.far_objective + h.value(w + reach * ray)
    return 0.0 if there < objective - 0.1 * abs(objective) else math.inf
