"""Standard errors of a solution and of its prices: one exchange of sums.

The solution w and the prices mu of the constraints that bind solve the equations

    sum_i grad f_i(w) + grad h(w) + sum_j mu_j grad c_j(w) = 0,    c_j(w) = 0 for every j that binds,

each of which is a sum over rows. With K the derivative of the left sides by (w, mu), that is H, the Hessian of the
Lagrangian, bordered by the Jacobian of these constraints, and S the covariance of the left sides, (w, mu) has the
covariance K^-1 S K^-T (the delta method; without constraints the sandwich of Huber, 1967, and White, 1982).

S is estimated from the rows:

    sandwich   sum over rows of the outer product of what a row moves (`Contributions.centre`): rows are independent,
               owners and how many rows they have are given, and owners may differ. With n / (n - 1) at each owner;
               that of an owner with one row is taken about zero, as in hc0
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
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, null_space

from fedpact.errors import OptionError
from fedpact.federation import Session, add_up
from fedpact.problem import FederatedProblem, RemoteProblem, Share
from fedpact.prox import Prox
from fedpact.solvers.equations import UNCOVERED, WEAK, Infer, Inferred, infer_share, part_of, split_prices
from fedpact.solvers.solution import Solution
from fedpact.statistics import Sandwich, Summary, estimates, estimates_of_draws, sandwich
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
#: A solve further than this part of a standard error from where the rows put it is at no solution of the equations.
#: Where labels are separated, Newton's step never gets shorter while the gradient vanishes: there it is sqrt(rows).
UNSETTLED = 0.5
#: A variance that rounding may change by more than this part of it is not known.
DIGITS = 1e-3
#: A direction is fixed by constraints where no more than this part of it is free.
FREE = 1e-9
#: A bound whose room varies by more than this part of twice itself, in one standard error, is near the least value: the
#: slope of the price along that error changes by three times as much.
CROWDED = 0.1
#: Fewer owners than this make standard errors clustered by owner unreliable.
CLUSTERS = 20


@dataclass(frozen=True, eq=False)
class Doubts:
    """By what single estimates are refused a standard error, or have none.

    vary:    the covariance of (w, prices), and how well it is known
    scatter: the same with rows taken about zero and not about means
    free:    directions of w that constraints which depend on no row leave open, one a column
    alone:   whether owners have one row: a price that binds moves the means about which their spread should be taken
    bends:   of each price: one standard error of the room that its bound leaves, in units of twice this room
    """

    vary: Sandwich
    scatter: Sandwich
    free: Matrix
    alone: bool
    bends: Vector

    def fixed(self, of: Matrix) -> NDArray[np.bool_]:
        """Which rows of `of` @ (w, prices) such constraints determine."""
        dim = len(self.free)
        size = np.linalg.norm(of, axis=1)
        by_w = ~of[:, dim:].any(axis=1)
        return np.asarray(by_w & (np.linalg.norm(of[:, :dim] @ self.free, axis=1) <= FREE * size))

    def of_prices(self, of: Matrix) -> NDArray[np.bool_]:
        """Which rows are about prices that owners with one row leave open."""
        return np.asarray(self.alone & of[:, len(self.free) :].any(axis=1))

    def crowded(self, of: Matrix) -> NDArray[np.bool_]:
        """Which rows a bound near the least attainable value moves by so much, and in no straight line.

        A price's own bound bends its interval instead. Another bound j changes what it moves, by K^-1 e_j for each unit
        of its room, by the part `bends` within one standard error of this room.
        """
        dim = len(self.free)
        errors = np.sqrt(np.maximum(np.diag(of @ self.vary.covariance @ of.T), 0.0))
        prices = np.sqrt(np.maximum(np.diag(self.vary.covariance)[dim:], 0.0))
        own = np.abs(np.diag(self.vary.inverse)[dim:])
        noise = np.divide(prices, own, out=np.zeros_like(prices), where=own > 0)
        moved = np.abs(of @ self.vary.inverse[:, dim:]) * noise * self.bends
        moved[of[:, dim:] != 0] = 0.0
        return np.asarray((moved > CROWDED * errors[:, None]).any(axis=1))

    def rounded(self, of: Matrix) -> NDArray[np.bool_]:
        """The variances of which rows rounding may have made, in either of the two."""
        found = np.zeros(len(of), dtype=bool)
        for one in (self.vary, self.scatter):
            variances = np.einsum("ij,jk,ik->i", of, one.covariance, of)
            found |= one.rounding(of) > DIGITS * variances
        return found

    def unsettled(self, of: Matrix, left: Vector) -> NDArray[np.bool_]:
        """Which rows are further from the solution than their rows explain. left: what the solve left open"""
        errors = np.sqrt(np.maximum(np.diag(of @ self.scatter.covariance @ of.T), 0.0))
        return np.asarray(np.abs(of @ left) > UNSETTLED * errors)


@dataclass(frozen=True, eq=False)
class Inference:
    """What one exchange tells about the solution's accuracy.

    w, prices:  estimates; prices of the constraints that bind, as (holder, row of its constraint) in `binding`
    covariance: of (w, prices); None when there is none, for reasons that the notes give
    kind:       where it comes from, see `infer`
    degrees:    of freedom of Student's t; infinite: normal
    notes:      what it does not cover, in words
    draws:      of (w, prices, rates), one a row, by a bootstrap; None: there are none
    rates:      of the model's decisions, by name, of which a bootstrap has draws
    shift:      by how much the penalty moves (w, prices), and what the tolerance of the solve leaves open: two columns;
                None where the notes say all there is to say
    doubts:     by what single estimates are refused a standard error; None: all have one
    """

    w: Vector
    prices: Vector
    binding: tuple[tuple[str, int], ...]
    covariance: Matrix | None
    kind: str
    degrees: float
    notes: tuple[str, ...]
    draws: Matrix | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    shift: Matrix | None = None
    doubts: Doubts | None = None

    @property
    def caveats(self) -> tuple[str, ...]:
        """The notes, with one for a penalty that is not tiny and one for a solve that is not exact enough."""
        if self.shift is None or self.covariance is None:
            return self.notes
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        dim = self.w.size
        penalty = relative_size(self.shift[:dim, 0], errors[:dim])
        tolerance = relative_size(self.shift[:, 1], errors)
        return (*self.notes, *note_sizes(penalty, tolerance))

    def refuse_unsettled(self) -> Inference:
        """No covariance at all where a single weight is unsettled: for tables of sums of all weights."""
        if self.doubts is None or self.shift is None:
            return self
        weights = np.eye(len(self.shift))[: self.w.size]
        if not (self.doubts.unsettled(weights, self.shift[:, 1]) | self.doubts.rounded(weights)).any():
            return self
        note = SEPARATED.format("any coefficient")
        return replace(self, covariance=None, notes=(*self.notes, note))

    def summary(self, names: Sequence[str] | None = None, level: float = 0.95) -> Summary:
        """The table. names: of the entries of w; by default w[0], w[1], ..."""
        called = [f"w[{j}]" for j in range(self.w.size)] if names is None else list(names)
        binding = [f"{holder}[{row}]" for holder, row in self.binding]
        return self.describe(np.eye(self.w.size), called, np.ones(len(binding)), binding, level)

    def describe(
        self,
        transform: Matrix,
        names: Sequence[str],
        units: Vector,
        binding: Sequence[str],
        level: float,
        offset: Vector | None = None,
    ) -> Summary:
        """The table of `transform` @ w + `offset`, and of the prices in other units."""
        if not 0 < level < 1:
            raise OptionError(f"level = {level}: give a number between 0 and 1", code="FP-OPTION-986", key="level")
        whole = block_diag(transform, np.diag(units), np.eye(len(self.rates)))
        called = [*names, *binding, *self.rates]
        notes: list[str] = []
        known = np.zeros(len(called))
        if offset is not None:
            known[: len(names)] = offset
        values = whole @ np.concatenate([self.w, self.prices, list(self.rates.values())]) + known
        if self.draws is not None:
            found = estimates_of_draws(called, values, self.draws @ whole.T + known, level)
        else:
            covariance = np.full((len(values), len(values)), np.nan)
            if self.covariance is not None:
                covariance, notes = self._vary(whole, called)
            bends = np.zeros(len(called))
            if self.doubts is not None:
                bends[len(names) : len(names) + len(binding)] = self.doubts.bends
            found = estimates(called, values, covariance, level, self.degrees, bends)
        prices = len(names) + len(binding)
        rates = tuple(replace(one, z=math.nan, p=math.nan) for one in found[prices:])  # nobody asks if they are zero
        every = (*notes, *self.caveats)
        return Summary(found[: len(names)], found[len(names) : prices], self.kind, level, every, rates=rates)

    def _vary(self, of: Matrix, called: Sequence[str]) -> tuple[Matrix, list[str]]:
        """The covariance of `of` @ (w, prices): zero for what is fixed, NaN and a note for what is not known."""
        assert self.covariance is not None
        covariance = of @ self.covariance @ of.T
        if self.doubts is None or self.shift is None:
            return covariance, []
        fixed = self.doubts.fixed(of)
        unsettled = self.doubts.unsettled(of, self.shift[:, 1]) & ~fixed
        rounded = self.doubts.rounded(of) & ~fixed & ~unsettled
        alone = self.doubts.of_prices(of)
        crowded = self.doubts.crowded(of) & ~fixed & ~unsettled & ~rounded
        notes = []
        for words, which in ((SEPARATED, unsettled), (ROUNDED, rounded), (PRICED_ALONE, alone), (CROWDS, crowded)):
            if which.any():
                notes.append(words.format(", ".join(name for name, one in zip(called, which, strict=True) if one)))
        for value, which in ((0.0, fixed), (np.nan, rounded | unsettled | alone | crowded)):
            covariance[which] = value
            covariance[:, which] = value
        return covariance, notes


def infer(
    session: Session,
    w: Vector,
    prices: Mapping[str, Vector],
    *,
    coupled: Vector,
    server: Share | None,
    regularizer: Prox | None,
    covariance: str,
    undetermined: Matrix | None = None,
) -> Inference:
    """One exchange: the covariance of a solution and of its prices, with the owners of the session.

    prices:     of everyone's constraint, by name, the coordinator's first
    coupled:    price of the coupled constraint
    server:     the coordinator's own share; functions of it that have no rows are exact
    covariance: "sandwich", "hc0", "model" or "clustered", see above
    undetermined: directions of w, one a row, along which no function changes: w has no variance there, and only what
                does not change along them has standard errors
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
    directions = np.zeros((0, w.size)) if undetermined is None else undetermined
    return _conclude(order, parts, add_up([replies.total, own]).total, holder, regularizer, directions)


@dataclass(frozen=True, eq=False)
class _Equations:
    """The equations of all holders together, unknowns (w, coupled, own constraints of each holder)."""

    system: Matrix
    spread: Matrix
    scatter: Matrix
    score: Vector
    binding: tuple[tuple[str, int], ...]
    prices: Vector
    curvature: Vector


def _gather(order: Infer, parts: Mapping[str, Inferred], total: Inferred) -> _Equations:
    """Put the rows of everyone's own constraints below those that were summed."""
    common = total.score.size
    size = common + sum(part.own_score.size for part in parts.values())
    system = np.zeros((size, size))
    spread = np.zeros((size, size))
    score = np.zeros(size)
    system[:common, :common] = total.system
    spread[:common, :common] = total.spread
    scatter = spread.copy()
    scatter[:common, :common] = total.scatter
    score[:common] = total.score
    binding = [(TOGETHER, int(j)) for j in np.flatnonzero(order.coupled)]
    prices = [order.coupled[order.coupled != 0]]
    curvature = [np.zeros(len(binding))]
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
        curvature.append(parts[name].own_curvature)
    return _Equations(system, spread, scatter, score, tuple(binding), np.concatenate(prices), np.concatenate(curvature))


def _conclude(
    order: Infer,
    parts: Mapping[str, Inferred],
    total: Inferred,
    server: Share,
    regularizer: Prox | None,
    undetermined: Matrix,
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
    # Along directions that nothing depends on, any curvature will do: no row moves w there.
    system[:dim, :dim] += np.trace(system[:dim, :dim]) / dim * (undetermined.T @ undetermined)
    free = dim - len(undetermined) - len(equations.binding)
    factor, degrees = _scale_spread(kind, parts, total, free)
    pull = np.append(penalty * order.w, np.zeros(len(system) - dim))
    try:
        vary = sandwich(system, factor * equations.spread)
        scatter = sandwich(system, equations.scatter)
    except np.linalg.LinAlgError:
        return replace(nothing, notes=(SINGULAR,))
    shift = np.asarray(np.linalg.solve(system, np.column_stack([pull, equations.score + pull])))
    alone = kind == "sandwich" and total.alone > 0
    doubts = Doubts(vary, scatter, _find_free(equations, dim), alone, _bend(vary, equations.curvature))
    covariance = vary.covariance
    fixed = doubts.fixed(np.eye(len(system)))
    covariance[fixed] = 0.0
    covariance[:, fixed] = 0.0
    found = Inference(
        order.w, equations.prices, equations.binding, covariance, kind, degrees, (), shift=shift, doubts=doubts
    )
    notes = [*_note_least(found, doubts.bends), *_note_near(found, server, parts)]
    notes += [*_note_owners(kind, parts), *_note_alone(kind, total)]
    return replace(found, notes=tuple(notes))


def _bend(vary: Sandwich, curvature: Vector) -> Vector:
    """One standard error of the room that each bound leaves, in units of twice this room."""
    price = vary.inverse.shape[0] - curvature.size
    errors = np.sqrt(np.maximum(np.diag(vary.covariance)[price:], 0.0))
    slope = np.abs(np.diag(vary.inverse)[price:])  # by how much the price changes for a unit of its bound
    return np.divide(curvature * errors, slope, out=np.zeros_like(errors), where=slope > 0)


def _find_free(equations: _Equations, dim: int) -> Matrix:
    """Directions of w that constraints which depend on no row, and on w alone, leave open."""
    slopes = equations.system[dim:, :dim]
    exact = ~equations.spread[dim:].any(axis=1) & ~equations.system[dim:, dim:].any(axis=1)
    return null_space(slopes[exact]) if exact.any() else np.eye(dim)


#: Notes, in words.
ROUNDED = "no standard error of {}: rounding outweighs it, since the rows hardly determine it (nearly"
ROUNDED += " collinear columns, or labels that are separated)"
SEPARATED = (
    "no standard error of {}: the solve ended further from the estimate of these rows than half a standard error;"
)
SEPARATED += " either the labels are separated, and no finite coefficient is best, or tol is too large"
ALONE = "{} of the owners have one row: its spread is taken about zero, which is right where owners are alike, and too"
ALONE += " wide where they differ"
PRICED_ALONE = "no standard error of {}: owners have one row, about whose mean nothing is known"
NEAR = "a constraint of {} does not bind, but is within two standard errors of it: on other rows it might; a bootstrap"
NEAR += " counts that"
LEAST = "the bound of constraint {} of {} is close to the least that its rows could attain: its price is far from"
LEAST += " normal, so its interval is longer upwards, and without an end where other rows might not attain the bound;"
LEAST += " its standard error, z and p do not say that; a looser bound would help"
CROWDS = "no standard error of {}: a bound close to the least that its rows could attain moves it, in no straight line"
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


def _note_least(found: Inference, bends: Vector) -> list[str]:
    """Constraints whose bound is so close to the least attainable value that their price is far from normal."""
    close = zip(found.binding, bends, strict=True)
    return [LEAST.format(row, holder) for (holder, row), bend in close if bend > CROWDED]


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


def _note_alone(kind: str, total: Inferred) -> list[str]:
    return [ALONE.format(int(total.alone))] if kind == "sandwich" and total.alone else []


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
