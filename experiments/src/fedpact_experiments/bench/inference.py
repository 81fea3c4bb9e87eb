"""`fedpact bench inference`: how often 95 % intervals of coefficients and prices hold, with constraints that bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import click
import numpy as np

import fedpact as fp
from fedpact.functions import Affine, LogisticLoss, Quadratic, as_map
from fedpact.solvers.inference import infer_solution
from fedpact.statistics import Estimate
from fedpact.types import Vector
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, among

OWNERS = 4
#: Every row is one of these, so that expectations over a population are sums, and truths exact: four columns, and ones.
CELLS = np.array([(*one, 1.0) for one in product((-1.0, 0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0))])
DIM = CELLS.shape[1]
#: What the owners' own coefficients are about, and how far they lie apart.
CENTRE = np.array([0.8, -0.5, 0.6, 0.4, -0.3])
SPREAD = 1.2
#: How far the owners' distributions of rows lie apart.
UNEVEN = 0.3
TOL = 1e-8
LEVEL = 0.95
QUICK = 20

TITLE = "Intervals of coefficients and prices"
INTRODUCTION = """\
Four owners, each with a distribution of rows and with coefficients of its own, fit one logistic model that is right for
none of them, under constraints that bind: the mean loss at an owner, coefficients. A population has 24 kinds of rows,
so its optimum and prices are computed and not estimated: prices are chosen first, the optimum of the Lagrangian
follows, and the bounds are the values there. Every repetition draws the rows anew, solves, and asks for 95 % intervals.
"""
CAPTION = """\
coefficients, prices: share of the intervals that hold the truth, over all of them and all repetitions; lowest, highest:
of a single one. A coefficient that its own bound fixes has no interval. all bind: repetitions in which all constraints
bind that do in the population; the others are left out. sandwich: rows independent, owners given. hc0: the same without
centring at the mean of each owner, as for rows of one population. forgotten: the sandwich of the model as if nothing
had been bounded. nothing, 5 rows an owner: one logistic model that is right for all, 400 rows in all. a loss at a price
of 50: a bound close to the least loss that the owner's rows attain, 500 rows an owner; refused: coefficients without a
standard error, which count as held; no end: prices whose interval goes on for ever; straight: the sandwich of all of
them, prices as if they were normal. Where other rows do not attain the bound, the repetition is left out.
"""


@dataclass(frozen=True)
class Coverage:
    """How often intervals held in all repetitions of one design."""

    problem: str
    owners: int
    method: str
    repetitions: int
    all_bind: int
    coefficients: float
    coefficients_lowest: float
    coefficients_highest: float
    prices: float | None
    prices_lowest: float | None
    prices_highest: float | None
    note: str = ""
    refused: float = 0.0
    endless: float | None = None


@dataclass(frozen=True)
class Design:
    """Owners, and what is bounded.

    seed:   of the owners
    losses: owner -> price of the bound on its mean loss
    fixed:  coefficient -> price of its upper bound
    """

    seed: int
    losses: Mapping[int, float] = field(default_factory=dict)
    fixed: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def owners(self) -> list[tuple[Vector, Vector]]:
        """Of every owner: the probability of each kind of row, and of label 1 given the kind."""
        draw = np.random.default_rng(self.seed)
        found = []
        for _ in range(OWNERS):
            kinds = np.exp(UNEVEN * draw.standard_normal(len(CELLS)))
            own = CENTRE + SPREAD * draw.standard_normal(DIM)
            found.append((kinds / kinds.sum(), 1 / (1 + np.exp(-CELLS @ own))))
        return found

    def expected_loss(self, owner: int) -> LogisticLoss:
        """Over the owner's population."""
        kinds, ones = self.owners[owner]
        labels = np.repeat([1.0, 0.0], len(CELLS))
        return LogisticLoss(np.vstack([CELLS, CELLS]), labels, np.append(kinds * ones, kinds * (1 - ones)))

    def drawn_loss(self, owner: int, rows: int, draw: np.random.Generator) -> LogisticLoss:
        """Over rows drawn from it."""
        kinds, ones = self.owners[owner]
        chosen = draw.choice(len(CELLS), rows, p=kinds)
        return LogisticLoss(CELLS[chosen], (draw.random(rows) < ones[chosen]).astype(float))

    @cached_property
    def optimum(self) -> Vector:
        """Minimises the Lagrangian with these prices, and so the problem whose bounds are the values there."""
        shares = []
        for i in range(OWNERS):
            shares.append(fp.Share((1 / OWNERS + self.losses.get(i, 0.0)) * self.expected_loss(i)))
        slope = np.zeros(DIM)
        slope[list(self.fixed)] = list(self.fixed.values())
        server = fp.Share(Quadratic(np.zeros((DIM, DIM)), slope))
        return fp.solve(fp.FederatedProblem(shares, server), tol=1e-11).w

    @property
    def prices(self) -> Vector:
        """Of the constraints, the coordinator's first."""
        return np.array([*self.fixed.values(), *(self.losses[i] for i in sorted(self.losses))])

    def problem(self, rows: int, draw: np.random.Generator) -> fp.FederatedProblem:
        """The constrained problem on rows drawn from the owners."""
        shares = []
        for i in range(OWNERS):
            loss = self.drawn_loss(i, rows, draw)
            bound = None
            if i in self.losses:
                limit = self.expected_loss(i).value(self.optimum)
                bound = fp.Constraint(as_map(loss - limit), fp.cones.Nonnegative(1))
            shares.append(fp.Share(loss / OWNERS, bound, name=f"owner {i}"))
        return fp.FederatedProblem(shares, self._server())

    def _server(self) -> fp.Share | None:
        if not self.fixed:
            return None
        chosen = list(self.fixed)
        bounds = Affine(np.eye(DIM)[chosen], -self.optimum[chosen])
        return fp.Share(None, fp.Constraint(bounds, fp.cones.Nonnegative(len(chosen))))


#: Owners for which the prices are standard errors from zero with 2000 rows each: all constraints bind, nearly always.
DESIGNS: dict[str, Design] = {
    "nothing bounded": Design(2),
    "a loss": Design(2, {0: 0.5}),
    "two losses": Design(11, {0: 0.3, 1: 0.3}),
    "a loss and two coefficients": Design(8, {0: 0.5}, {1: 0.06, 2: 0.06}),
}
METHODS = ("sandwich", "hc0", "forgotten")
#: Prices of a loss bound, the last two near the least loss that 500 rows attain; kinds of standard errors there.
PRICES = (0.5, 5.0, 50.0)
NEAR_ROWS = 500
NEAR_METHODS = ("sandwich", "straight")
COLUMNS = {
    "bounded": cell("problem"),
    "standard errors": cell("method"),
    "repetitions": cell("repetitions"),
    "all bind": cell("all_bind"),
    "coefficients": cell("coefficients", "{:.3f}".format),
    "lowest": cell("coefficients_lowest", "{:.3f}".format),
    "highest": cell("coefficients_highest", "{:.3f}".format),
    "prices": cell("prices", "{:.3f}".format),
    "lowest price": cell("prices_lowest", "{:.3f}".format),
    "highest price": cell("prices_highest", "{:.3f}".format),
    "refused": cell("refused", "{:.2f}".format),
    "no end": cell("endless", "{:.2f}".format),
}


#: Rows an owner where owners are small, and rows in all of these problems.
SIZES = (1, 2, 5, 200)
ROWS = 400


def cover_small(rows: int, repetitions: int, seed: int) -> Iterator[Coverage]:
    """Whether intervals hold with owners of `rows` rows each, of one population, by kind of standard errors."""
    owners = ROWS // rows
    told: dict[str, list[Sequence[Estimate]]] = {"sandwich": [], "hc0": []}
    for number in range(repetitions):
        draw = np.random.default_rng([seed, rows, number])
        X = CELLS[draw.choice(len(CELLS), ROWS)]
        y = (draw.random(ROWS) < 1 / (1 + np.exp(-X @ CENTRE))).astype(float)
        shares = []
        for i in range(owners):
            own = slice(i * rows, (i + 1) * rows)
            shares.append(fp.Share(LogisticLoss(X[own], y[own]) / owners, name=f"owner {i}"))
        problem = fp.FederatedProblem(shares)
        answer = fp.solve(problem, tol=TOL)
        for method, found in told.items():
            found.append(answer.summary(problem, covariance=method, level=LEVEL).coefficients)
    for method, found in told.items():
        yield replace(_summarize(f"nothing, {rows} rows an owner", method, repetitions, found, CENTRE), owners=owners)


def cover_near(price: float, rows: int, repetitions: int, seed: int) -> Iterator[Coverage]:
    """Whether intervals hold where a loss bound has this price: the higher, the closer to the least attainable loss."""
    yield from cover(f"a loss at a price of {price:g}", Design(2, {0: price}), repetitions, rows, seed, NEAR_METHODS)


@click.command()
@among("--designs", list(DESIGNS))
@click.option("--repetitions", type=COUNT, default=300, show_default=True, help="Draws of all rows.")
@click.option("--rows", type=COUNT, default=2000, show_default=True, help="Rows an owner.")
@click.option("--quick", is_flag=True, help=f"{QUICK} repetitions: to see that it runs.")
@printing(Coverage, PAGE, SEED)
def inference(designs: Sequence[str], repetitions: int, rows: int, quick: bool, output: Output) -> None:
    """How often 95 % intervals hold the truth, for coefficients and for the prices of constraints that bind.

    \b
    fedpact bench inference --page inference.md
    fedpact bench inference --designs "a loss" --repetitions 1000
    fedpact bench inference --quick
    """
    if quick:
        repetitions = QUICK

    def simulate() -> Iterator[Coverage]:
        for name in designs:
            click.echo(f"{name}: {repetitions} repetitions", err=True)
            yield from cover(name, DESIGNS[name], repetitions, rows, output.seed)
        for size in SIZES:
            click.echo(f"{size} rows an owner: {repetitions} repetitions", err=True)
            yield from cover_small(size, repetitions, output.seed)
        for price in PRICES:
            click.echo(f"a price of {price:g}: {repetitions} repetitions", err=True)
            yield from cover_near(price, NEAR_ROWS, repetitions, output.seed)

    table = Table(simulate(), COLUMNS, CAPTION, title="Coverage", text=("standard errors",))
    output.report(replace(table, section=lambda row: row.problem), title=TITLE, introduction=INTRODUCTION)


def cover(
    name: str, design: Design, repetitions: int, rows: int, seed: int, methods: Sequence[str] = METHODS
) -> Iterator[Coverage]:
    """Whether intervals hold, by kind of standard errors."""
    used = [method for method in methods if method != "forgotten" or design.prices.size]
    told: dict[str, list[Sequence[Estimate]]] = {method: [] for method in used}
    for number in range(repetitions):
        problem = design.problem(rows, np.random.default_rng([seed, number]))
        answer = fp.solve(problem, tol=TOL, max_rounds=200)
        if not answer.solved or np.count_nonzero(np.concatenate(answer.multipliers)) != design.prices.size:
            continue
        for method, found in told.items():
            found.append(intervals(problem, answer, method))
    for method, found in told.items():
        yield _summarize(name, method, repetitions, found, np.append(design.optimum, design.prices))


def intervals(problem: fp.FederatedProblem, answer: fp.Solution, method: str) -> tuple[Estimate, ...]:
    """Estimates of coefficients and then of prices; none of these where the constraints are forgotten."""
    if method == "forgotten":
        free = replace(answer, multipliers=[np.zeros_like(price) for price in answer.multipliers])
        found = infer_solution(free, problem, "sandwich", None)
        # Without the prices the point solves nothing, which the table would say in the place of a standard error.
        return replace(found, doubts=None).summary(level=LEVEL).coefficients
    if method == "straight":
        straight = replace(infer_solution(answer, problem, "sandwich", None), doubts=None).summary(level=LEVEL)
        return (*straight.coefficients, *straight.prices)
    summary = answer.summary(problem, covariance=method, level=LEVEL)
    return (*summary.coefficients, *summary.prices)


def _holds(one: Estimate, truth: float) -> float:
    """Whether the interval does, or there is none; NaN for what is fixed."""
    if one.se == 0:
        return np.nan
    return float(np.isnan(one.se) or one.low <= truth <= one.high)


def _summarize(name: str, method: str, repetitions: int, told: Sequence[Sequence[Estimate]], truth: Vector) -> Coverage:
    """told: coefficients and then prices, repetition by repetition"""
    held = np.array([[_holds(one, value) for one, value in zip(found, truth, strict=False)] for found in told])
    rates = held.mean(axis=0)
    estimated = rates[:DIM][~np.isnan(rates[:DIM])]
    prices = rates[DIM:]
    summary = Coverage(
        name,
        OWNERS,
        method,
        repetitions,
        len(held),
        float(estimated.mean()),
        float(estimated.min()),
        float(estimated.max()),
        None,
        None,
        None,
        refused=float(np.mean([[np.isnan(one.se) for one in found[:DIM]] for found in told])),
    )
    if not prices.size:
        return summary
    endless = float(np.mean([[np.isinf(one.high) for one in found[DIM:]] for found in told]))
    return replace(
        summary,
        prices=float(prices.mean()),
        prices_lowest=float(prices.min()),
        prices_highest=float(prices.max()),
        endless=endless,
    )
