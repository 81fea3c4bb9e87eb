"""Standard errors of a solution and of its prices: one exchange of sums.

The solution w and the prices mu of the constraints that bind solve the equations

    sum_i grad f_i(w) + grad h(w) + sum_j mu_j grad c_j(w) = 0,    c_j(w) = 0 for every j that binds,

each of which is a sum over rows. With K the derivative of the left sides by (w, mu), that is H, the Hessian of the
Lagrangian, bordered by the Jacobian of these constraints, and S the covariance of the left sides, (w, mu) has the
covariance K^-1 S K^-T (the delta method; without constraints the sandwich of Huber, 1967, and White, 1982).

S is estimated from the rows:

    sandwich   sum over rows of the outer product of what a row moves (`Contributions.centre`): rows are independent,
               owners and how many rows they have are given, and owners may differ
    hc0        the same without centring at the mean of each owner: right if all rows are drawn from one population, and
               then what statsmodels calls HC0; too wide for prices and constrained coefficients where owners differ
    model      the covariance that the likelihood itself implies
    clustered  sum over owners of the outer product of an owner's sum: owners are drawn, not only their rows

The owner's half, its part of K and S, is in equations.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Session, add_up
from fedpact.problem import FederatedProblem, RemoteProblem, Share
from fedpact.prox import Prox
from fedpact.solvers.equations import UNCOVERED, WEAK, Infer, Inferred, infer_share, part_of, split_prices
from fedpact.solvers.solution import Solution
from fedpact.statistics import Summary, estimates, estimates_of_draws, sandwich
from fedpact.types import Matrix, Vector

Covariance = Literal["sandwich", "hc0", "model", "clustered"]
COVARIANCES: tuple[str, ...] = get_args(Covariance)

#: The coordinator, among the holders of constraints, and what all owners hold together.
SERVER = "server"
TOGETHER = "all owners"
#: A penalty that moves a coefficient by more than this part of its standard error is not tiny.
TINY = 0.1
#: The same for what the tolerance of the solve leaves open.
EXACT = 0.01
#: Fewer owners than this make standard errors clustered by owner unreliable.
CLUSTERS = 20


@dataclass(frozen=True, eq=False)
class Inference:
    """What one exchange tells about the solution's accuracy.

    w, prices:  estimates; prices of the constraints that bind, as (holder, row of its constraint) in `binding`
    covariance: of (w, prices); None when there is none, for reasons that the notes give
    kind:       where it comes from, see `infer`
    degrees:    of freedom of Student's t; infinite: normal
    notes:      what it does not cover, in words
    draws:      of (w, prices), one a row, by a bootstrap; None: there are none
    shift:      by how much the penalty moves (w, prices), and what the tolerance of the solve leaves open: two columns;
                None where the notes say all there is to say
    """

    w: Vector
    prices: Vector
    binding: tuple[tuple[str, int], ...]
    covariance: Matrix | None
    kind: str
    degrees: float
    notes: tuple[str, ...]
    draws: Matrix | None = None
    shift: Matrix | None = None

    @property
    def caveats(self) -> tuple[str, ...]:
        """The notes, with one for a penalty that is not tiny and one for a solve that is not exact enough."""
        if self.shift is None or self.covariance is None:
            return self.notes
        errors = np.sqrt(np.diag(self.covariance))
        dim = self.w.size
        penalty = relative_size(self.shift[:dim, 0], errors[:dim])
        tolerance = relative_size(self.shift[:, 1], errors)
        return (*self.notes, *note_sizes(penalty, tolerance))

    def summary(self, names: Sequence[str] | None = None, level: float = 0.95) -> Summary:
        """The table. names: of the entries of w; by default w[0], w[1], ..."""
        called = [f"w[{j}]" for j in range(self.w.size)] if names is None else list(names)
        binding = [f"{holder}[{row}]" for holder, row in self.binding]
        return self.describe(np.eye(self.w.size), called, np.ones(len(binding)), binding, level)

    def describe(
        self, transform: Matrix, names: Sequence[str], units: Vector, binding: Sequence[str], level: float
    ) -> Summary:
        """The table of `transform` @ w, and of the prices in other units."""
        if not 0 < level < 1:
            raise OptionError(f"level = {level}: give a number between 0 and 1", code="FP-OPTION-986", key="level")
        whole = np.zeros((len(names) + len(binding), self.w.size + self.prices.size))
        whole[: len(names), : self.w.size] = transform
        whole[len(names) :, self.w.size :] = np.diag(units)
        values = whole @ np.append(self.w, self.prices)
        if self.draws is not None:
            found = estimates_of_draws([*names, *binding], values, self.draws @ whole.T, level)
            return Summary(found[: len(names)], found[len(names) :], self.kind, level, self.caveats)
        covariance = np.full((len(values), len(values)), np.nan)
        if self.covariance is not None:
            covariance = whole @ self.covariance @ whole.T
        found = estimates([*names, *binding], values, covariance, level, self.degrees)
        return Summary(found[: len(names)], found[len(names) :], self.kind, level, self.caveats)


def infer(
    session: Session,
    w: Vector,
    prices: Mapping[str, Vector],
    *,
    coupled: Vector,
    server: Share | None,
    regularizer: Prox | None,
    covariance: str,
) -> Inference:
    """One exchange: the covariance of a solution and of its prices, with the owners of the session.

    prices:     of everyone's constraint, by name, the coordinator's first
    coupled:    price of the coupled constraint
    server:     the coordinator's own share; functions of it that have no rows are exact
    covariance: "sandwich", "hc0", "model" or "clustered", see above
    """
    if covariance not in COVARIANCES:
        raise OptionError(
            f"covariance = {covariance!r} is unknown; choose {', '.join(COVARIANCES)}",
            code="FP-OPTION-985",
            key="covariance",
        )
    order = Infer(
        w=w,
        prices=np.concatenate([*prices.values(), np.zeros(0)]),
        lengths=json.dumps({name: price.size for name, price in prices.items()}),
        coupled=coupled,
        covariance=covariance,
    )
    replies = session.ask(infer_share, order)
    holder = Share(name=SERVER) if server is None else server
    own = part_of(holder, w, split_prices(order)[SERVER], order, known=True)
    parts = {SERVER: own, **dict(zip(session.owners, replies, strict=True))}
    return _conclude(order, parts, add_up([replies.total, own]).total, holder, regularizer)


@dataclass(frozen=True, eq=False)
class _Equations:
    """The equations of all holders together, unknowns (w, coupled, own constraints of each holder)."""

    system: Matrix
    spread: Matrix
    score: Vector
    binding: tuple[tuple[str, int], ...]
    prices: Vector


def _gather(order: Infer, parts: Mapping[str, Inferred], total: Inferred) -> _Equations:
    """Put the rows of everyone's own constraints below those that were summed."""
    common = total.score.size
    size = common + sum(part.own_score.size for part in parts.values())
    system = np.zeros((size, size))
    spread = np.zeros((size, size))
    score = np.zeros(size)
    system[:common, :common] = total.system
    spread[:common, :common] = total.spread
    score[:common] = total.score
    binding = [(TOGETHER, int(j)) for j in np.flatnonzero(order.coupled)]
    prices = [order.coupled[order.coupled != 0]]
    start = common
    for name, price in split_prices(order).items():
        rows = slice(start, start + int(np.count_nonzero(price)))
        start = rows.stop
        for table, own in ((system, parts[name].own_system), (spread, parts[name].own_spread)):
            table[rows, :common] = own[:, :common]
            table[:common, rows] = own[:, :common].T
            table[rows, rows] = own[:, common:]
        score[rows] = parts[name].own_score
        binding += [(name, int(j)) for j in np.flatnonzero(price)]
        prices.append(price[price != 0])
    return _Equations(system, spread, score, tuple(binding), np.concatenate(prices))


def _conclude(
    order: Infer, parts: Mapping[str, Inferred], total: Inferred, server: Share, regularizer: Prox | None
) -> Inference:
    """Solve for the covariance, and say in words what it does not cover."""
    kind = order.covariance
    dim = order.w.size
    nothing = Inference(order.w, np.zeros(0), (), None, kind, math.inf, ())
    refused = [
        f"no standard errors: at {name}, {UNCOVERED[one.uncovered]}" for name, one in parts.items() if one.uncovered
    ]
    curvature = 0.0 if regularizer is None else regularizer.curvature
    if curvature is None:
        refused.append(f"no standard errors: {regularizer!r} has corners or bounds; a bootstrap has intervals")
    if refused or curvature is None:
        return replace(nothing, notes=tuple(refused))
    equations = _gather(order, parts, total)
    penalty = np.broadcast_to(curvature, dim)
    system = equations.system + np.diag(np.append(penalty, np.zeros(len(equations.system) - dim)))
    factor, degrees = _scale_spread(kind, parts, total, dim - len(equations.binding))
    pull = np.append(penalty * order.w, np.zeros(len(system) - dim))
    try:
        covariance = sandwich(system, factor * equations.spread)
    except np.linalg.LinAlgError:
        return replace(nothing, notes=(SINGULAR,))
    shift = np.asarray(np.linalg.solve(system, np.column_stack([pull, equations.score + pull])))
    found = Inference(order.w, equations.prices, equations.binding, covariance, kind, degrees, (), shift=shift)
    errors = np.sqrt(np.diag(covariance))
    notes = [*_note_weak(found, errors), *_note_near(found, server, parts), *_note_owners(kind, parts)]
    return replace(found, notes=tuple(notes))


#: Notes, in words.
NEAR = "a constraint of {} does not bind, but is within two standard errors of it: on other rows it might; a bootstrap"
NEAR += " counts that"
SINGULAR = "no standard errors: the rows do not determine all coefficients (collinear columns, such as all levels of a"
SINGULAR += " category beside an intercept, or constraints that say the same)"
PENALTY = (
    "the penalty is not tiny: it moves a coefficient by {:.2g} standard errors, and intervals are about the penalised"
)
PENALTY += " model; lower the regularization"
TOLERANCE = "the solve is not exact: estimates may be off by {:.2g} standard errors; lower tol"


def _scale_spread(kind: str, parts: Mapping[str, Inferred], total: Inferred, free: int) -> tuple[float, float]:
    """The factor of S for small samples, and the degrees of freedom. free: parameters that constraints leave free"""
    owners = [part for name, part in parts.items() if name != SERVER]
    dispersed = all(part.dispersed for part in owners)
    residual = max(total.rows - free, 1.0)
    if kind == "clustered":  # as Stata and statsmodels do
        groups = len(owners)
        return groups / max(groups - 1, 1) * (total.rows - 1) / residual, max(groups - 1.0, 1.0)
    if kind == "model" and dispersed:
        return total.squares / residual, residual
    return 1.0, math.inf


def _note_weak(found: Inference, errors: Vector) -> list[str]:
    """Constraints that bind by a price which may be zero."""
    notes = []
    for (holder, row), price, error in zip(found.binding, found.prices, errors[found.w.size :], strict=True):
        if abs(price) < WEAK * error:
            notes.append(
                f"constraint {row} of {holder} binds only weakly (its price may be zero): on other rows it might not "
                "bind, and the intervals here assume that it does; a bootstrap does not"
            )
    return notes


def _note_near(found: Inference, server: Share, parts: Mapping[str, Inferred]) -> list[str]:
    """Constraints that do not bind and are so close that on other rows they might."""
    near = {name: part.near for name, part in parts.items() if part.near}
    if server.constraint is not None and found.covariance is not None:
        value, jacobian = server.constraint.function.value_and_jacobian(found.w)
        binding = {row for holder, row in found.binding if holder == SERVER}
        dim = found.w.size
        errors = np.sqrt(np.einsum("ij,jk,ik->i", jacobian, found.covariance[:dim, :dim], jacobian))
        close = [j for j in range(value.size) if j not in binding and -value[j] < WEAK * errors[j]]
        near[SERVER] = near.get(SERVER, 0) + len(close)
    return [NEAR.format(name) for name, count in near.items() if count]


def _note_owners(kind: str, parts: Mapping[str, Inferred]) -> list[str]:
    owners = len([name for name in parts if name != SERVER])
    if kind != "clustered" or owners >= CLUSTERS:
        return []
    return [f"{owners} owners are few for standard errors clustered by owner, which are then too small"]


def relative_size(shift: Vector, errors: Vector) -> float:
    """The largest shift in units of its standard error."""
    free = errors > 0
    return float(np.max(np.abs(shift[free]) / errors[free], initial=0.0))


def note_sizes(penalty: float, tolerance: float) -> list[str]:
    """Notes where penalty or tolerance move an estimate by more than is allowed, in standard errors."""
    notes = []
    if penalty > TINY:
        notes.append(PENALTY.format(penalty))
    if tolerance > EXACT:
        notes.append(TOLERANCE.format(tolerance))
    return notes


def infer_solution(
    solution: Solution, problem: FederatedProblem | RemoteProblem, covariance: str, session: Session | None
) -> Inference:
    """`infer` with the owners of a problem, in this process or where the session is."""
    if session is None:
        with Session() as made:
            return infer_solution(solution, problem, covariance, made)
    if isinstance(problem, RemoteProblem):
        session.open(problem.sources)
        session.pose(problem.task)
    else:
        session.open({share.label: share for share in problem.shares})
    return infer(
        session,
        solution.w,
        dict(zip((SERVER, *session.owners), solution.multipliers, strict=True)),
        coupled=solution.coupled_multiplier,
        server=problem.server,
        regularizer=problem.regularizer,
        covariance=covariance,
    )
