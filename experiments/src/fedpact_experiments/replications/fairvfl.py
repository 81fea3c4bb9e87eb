"""Fair VFL, Table I, Figures 1 and 2: columns at six parties, a bounded gap of loss between two groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from fedpact.report import figures
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.datasets import VerticalTable
from fedpact_experiments.replications import papers
from fedpact_experiments.replications.fairvfl_runs import Case, Fit, post_process
from fedpact_experiments.replications.findings import Claim, Findings
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run

PAGE = Page("fairvfl")
EPS = 0.01
PAPER: dict[str, Any] = {"eta": 100.0, "dual_step": 0.1, "dual_regularization": 1e-3}  # section V-A
TABLE_1 = papers.table("fairvfl_table_1", keys=2)
METHODS = ("FedBCD", "EO", "CEO", "Fair VFL")
KINDS = ("accuracy", "fairness", "harmonic")
#: How near Table I is near: points of accuracy and of fairness.
NEAR = (1.5, 4.0)
LOADERS: dict[str, Callable[[str | None], VerticalTable]] = {
    "ADULT": datasets.vertical_adult,
    "COMPAS": datasets.vertical_compas,
    "C&C": datasets.vertical_communities,
}
#: Exchanges besides the updates: the first look, the last one, and handing out.
BESIDES = 3
#: Tolerance of vertical-al.
TOL = 1e-4
#: Its tolerance in Figure 1.
ROUGH = 1e-3
#: Tolerance of the paper's methods, which have no stopping rule: not met in so few rounds.
NEVER = 1e-9
#: vertical-al to TOL, without the constraint.
FREE = "optimum, no constraint"
#: vertical-al to TOL, with the constraint.
FAIR = "optimum"
#: vertical-al to ROUGH.
NEARLY = "optimum, nearly"
#: interior-point on pooled columns.
POOLED = "pooled"
#: Labels of the last table.
AUTO = "fair-vfl, automatic"
CONSTANTS = "fair-vfl, paper"
OURS = "vertical-al"


@dataclass(frozen=True)
class Size:
    """grids: eps of Figure 1; shown: eps of Figure 2, rising

    rounds: of Table I, Figure 1 and Q = 1; longer: Q -> rounds; automatic: most rounds without the paper's constants
    """

    seeds: int
    rounds: int
    grids: dict[str, tuple[float, ...]]
    shown: tuple[float, ...]
    longer: dict[int, int]
    automatic: dict[str, int]


_GRID = (1e-3, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25)
_GRIDS: dict[str, tuple[float, ...]] = {"ADULT": (1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4), "COMPAS": _GRID, "C&C": _GRID}
FULL = Size(5, 1000, _GRIDS, (0.01, 0.05, 0.1), {4: 400, 7: 250}, {"ADULT": 1500, "COMPAS": 2000, "C&C": 2000})
QUICK = Size(2, 60, {"COMPAS": (0.01, 0.1)}, (0.01,), {4: 60, 7: 60}, {"COMPAS": 60})


@cache
def _case(name: str, seed: int, folder: str | None) -> Case:
    return Case(name, seed, *datasets.split(_read_table(name, folder), seed))


@cache
def _read_table(name: str, folder: str | None) -> VerticalTable:
    return LOADERS[name](folder)


def plan(asked: Asked, size: Size) -> Iterator[Run[Fit]]:
    for name in size.grids:
        yield from _plan_of(name, asked.folder, size)


def _plan_of(name: str, folder: str | None, size: Size) -> Iterator[Run[Fit]]:
    """The runs on one data set."""
    limit: dict[str, Any] = {"max_rounds": size.rounds + BESIDES, "tol": NEVER}

    def run(label: str, seed: int, method: str, eps: float | None, updates: int = 1, **options: Any) -> Run[Fit]:
        def measure() -> Iterator[Fit]:
            case = _case(name, seed, folder)
            answer = case.solve(method, eps, **options)
            yield case.fit(label, eps, answer, updates)
            if label == "FedBCD":
                yield from post_process(case, answer.w)

        told = "" if eps is None else f", eps {eps:g}, Q = {updates}"
        return Run(f"{name}, seed {seed}: {label}{told}", measure)

    def pooled(seed: int) -> Iterator[Fit]:
        answer = solve(_case(name, seed, folder).problem(EPS).pooled(), "interior-point", tol=1e-8)
        yield Fit(name, seed, POOLED, EPS, loss=answer.objective)

    for seed in range(size.seeds):
        yield run("FedBCD", seed, "fedbcd", None, eta=100.0, **limit)
        yield run("Fair VFL", seed, "fair-vfl", EPS, **limit, **PAPER)
        yield run(FREE, seed, "vertical-al", None, tol=TOL)
        yield run(FAIR, seed, "vertical-al", EPS, tol=TOL)
        yield run(AUTO, seed, "fair-vfl", EPS, max_rounds=size.automatic[name] + BESIDES, tol=TOL)
        yield Run(f"{name}, seed {seed}: {POOLED}", partial(pooled, seed))
    for eps in size.grids[name]:
        for seed in range(size.seeds):
            yield run(NEARLY, seed, "vertical-al", eps, tol=ROUGH)
        if eps != EPS:
            yield run("Fair VFL", 0, "fair-vfl", eps, **limit, **PAPER)
    for eps in size.shown:
        if eps != EPS:
            yield run(FAIR, 0, "vertical-al", eps, tol=TOL)
        for updates, rounds in size.longer.items():
            options = {"max_rounds": rounds + BESIDES, "tol": NEVER, "local_updates": updates}
            yield run("Fair VFL", 0, "fair-vfl", eps, updates, **options, **PAPER)


# ------------------------------------------------------------------------------------------------------- one data set


@dataclass(frozen=True, eq=False)
class Study:
    """What was run on one table of data."""

    name: str
    rows: Rows[Fit]
    size: Size

    def fits(self, label: str) -> Rows[Fit]:
        """One a seed: of Table I."""
        return Rows(row for row in self.rows.where(label=label, updates=1) if row.eps in (None, EPS))

    def mean(self, label: str, kind: str) -> float:
        return self.fits(label).spread(kind).mean

    @property
    def best(self) -> dict[str, str]:
        """The best of the paper's methods by every measure."""
        return {kind: max(METHODS, key=lambda label: self.mean(label, kind)) for kind in (*KINDS, "rates")}

    def near(self, eps: float) -> Rows[Fit]:
        """The optima of Figure 1, one a seed."""
        return self.rows.where(label=NEARLY, eps=eps)

    def fair(self, eps: float, updates: int = 1) -> Fit:
        """Fair VFL with the paper's constants, seed 0."""
        return self.rows.one(label="Fair VFL", eps=eps, updates=updates, seed=0)

    def ours(self, eps: float) -> Fit:
        return self.rows.one(label=FAIR, eps=eps, seed=0)

    @property
    def grid(self) -> tuple[float, ...]:
        return self.size.grids[self.name]

    def needed(self, eps: float, updates: int) -> int | None:
        """Exchanges of Q to the loss that Q = 1 has at the end."""
        return self.fair(eps, updates).first(self.fair(eps).loss_at_end)

    def ratio(self, eps: float, updates: int) -> float:
        """Exchanges of Q = 1 over those of Q; 0: its loss is not reached."""
        needed = self.needed(eps, updates)
        return self.fair(eps).rounds / needed if needed else 0.0

    def least(self, seed: int) -> float:
        return self.rows.one(label=POOLED, seed=seed).loss


def read(size: Size, rows: Rows[Fit]) -> Findings:
    studies = [Study(name, seen, size) for (name,), seen in rows.by("data").items()]
    limits = ", ".join(f"{limit} on {name}" for name, limit in size.automatic.items())
    most = ", ".join(f"{rounds} of Q = {updates}" for updates, rounds in size.longer.items())
    shown = ", ".join(f"{eps:g}" for eps in size.shown)
    given: dict[str, Any] = {"size": size, "eps": EPS, "tol": TOL, "rough": ROUGH, "most": most, "limits": limits}
    tables = {"one": _table_1, "eps": _figure_1_rows, "updates": _figure_2_rows, "reached": _reached}
    return Findings(
        [
            PAGE.table(key, [row for study in studies for row in rows_of(study)], **given)
            for key, rows_of in tables.items()
        ],
        [*_claims_of_table_1(studies), *_claims_of_figures(studies, size, shown)],
        PAGE.differences(size=size, shown=shown),
        {"fairvfl-eps": _figure_1(studies), "fairvfl-rounds": _figure_2(studies)},
    )


Cells = dict[str, Any]


def _table_1(study: Study) -> Iterator[Cells]:
    for label in (*METHODS, FREE, FAIR):
        paper = TABLE_1.get((study.name, label), dict.fromkeys(KINDS, ""))
        seen = study.fits(label)
        yield {"data": study.name, "method": label, "paper": paper} | {k: seen.spread(k) for k in (*KINDS, "rates")}


def _figure_1_rows(study: Study) -> Iterator[Cells]:
    for eps in study.grid:
        seen = study.near(eps)
        optima = {kind: seen.spread(kind).mean for kind in ("accuracy", "fairness", "price")}
        yield {"data": study.name, "eps": eps, "optima": optima, "gap": max(seen.of("gap")), "fair": study.fair(eps)}


def _figure_2_rows(study: Study) -> Iterator[Cells]:
    for eps in study.size.shown:
        needed = [study.needed(eps, updates) for updates in study.size.longer]
        ratio = [f"{study.fair(eps).rounds / count:.1f}" if count else "" for count in needed]
        told = [count or "never" for count in needed]
        row: Cells = {"data": study.name, "eps": eps, "fair": study.fair(eps), "ours": study.ours(eps)}
        yield row | {"needed": told, "ratio": ratio}


def _reached(study: Study) -> Iterator[Cells]:
    for title, label in ((OURS, FAIR), (AUTO, AUTO), (CONSTANTS, "Fair VFL")):
        seen = study.fits(label)
        most = [_most([fit.within(study.least(fit.seed), share) for fit in seen]) for share in (0.01, 0.001)]
        yield {"data": study.name, "method": title, "most": most}


def _most(rounds: list[int | None]) -> str:
    known = [count for count in rounds if count is not None]
    if not known:
        return "never"
    return str(max(known)) if len(known) == len(rounds) else f"{len(known)} of {len(rounds)} do"


# -------------------------------------------------------------------------------------------------------------- claims


def _claims_of_table_1(studies: list[Study]) -> Iterator[Claim]:
    for study in studies:
        off: list[Any] = [
            (label, *(study.mean(label, kind) - float(TABLE_1[study.name, label][kind]) for kind in KINDS[:2]))
            for label in ("FedBCD", "Fair VFL")
        ]
        near = all(abs(accuracy) <= NEAR[0] and abs(fairness) <= NEAR[1] for _, accuracy, fairness in off)
        yield PAGE.claim("near", near, off, data=study.name, near=NEAR)

    ahead = all(study.best[kind] == "Fair VFL" for study in studies for kind in KINDS[1:])
    yield PAGE.claim("best", ahead, studies)

    moves: list[Any] = [
        (f"{study.name}, {label}", *(study.mean(label, kind) - study.mean("FedBCD", kind) for kind in KINDS[:2]))
        for study in studies
        for label in ("EO", "CEO")
    ]
    both = sum(accuracy < 0 < fairness for _, accuracy, fairness in moves)
    yield PAGE.claim("post", 2 * both > len(moves), moves, both=both, cases=len(moves))

    spread = []
    for study in studies:
        a, f = (max(study.fits(label).spread(kind).deviation for label in METHODS) for kind in KINDS[:2])
        spread.append((study.name, a, f, a**2 / 100, f**2 / 100))
    yield PAGE.claim("spread", all(a < 0.05 and f < 0.45 for _, a, f, _, _ in spread), spread)


def _claims_of_figures(studies: list[Study], size: Size, shown: str) -> Iterator[Claim]:
    for kind, sign in (("accuracy", 1), ("fairness", -1)):
        ends = []
        for study in studies:
            two = (max(study.grid), min(study.grid))
            optima = [study.near(eps).spread(kind).mean for eps in two]
            ends.append((study.name, *two, *optima, *(getattr(study.fair(eps), kind) for eps in two)))
        so = all(sign * (row[3] - row[4]) > 0 and sign * (row[5] - row[6]) > 0 for row in ends)
        yield PAGE.claim(kind, so, ends)

    prices = []
    for study in studies:
        high = max(study.grid)
        gaps = [study.rows.one(label=label, seed=0).gap for label in (FREE, "FedBCD")]
        prices.append((study.name, high, max(study.near(high).of("price")), study.fair(high).price, *gaps))
    yield PAGE.claim("price", all(row[2] == row[3] == 0 for row in prices), prices, size=size)

    ratios = [(s.name, q, min(s.ratio(eps, q) for eps in size.shown)) for s in studies for q in size.longer]
    yield PAGE.claim("updates", min(ratio for _, _, ratio in ratios) > 1, ratios)

    losses = {study.name: [study.fair(eps).loss for eps in size.shown] for study in studies}
    told = [f"{name}: {', '.join(f'{loss:.4f}' for loss in seen)}" for name, seen in losses.items()]
    larger = all(seen == sorted(seen, reverse=True) for seen in losses.values())
    yield PAGE.claim("loss", larger, size=size, shown=shown, told="; ".join(told))

    told = []
    for study in studies:
        excess = [fit.loss / study.least(fit.seed) - 1 for fit in study.fits("Fair VFL")]
        told.append(f"{study.name} {100 * np.mean(excess):+.1f} %")
    yield PAGE.claim("excess", None, size=size, eps=EPS, told=", ".join(told))


# ------------------------------------------------------------------------------------------------------------- figures


def _figure_1(studies: list[Study]) -> object:
    panels = []
    for study in studies:
        grid = study.grid
        for kind in KINDS[:2]:
            lines = {
                f"{OURS}, mean of {study.size.seeds}": (grid, [study.near(eps).spread(kind).mean for eps in grid]),
                f"{OURS}, seed 0": (grid, [getattr(study.near(eps)[0], kind) for eps in grid]),
                f"{CONSTANTS}, seed 0": (grid, [getattr(study.fair(eps), kind) for eps in grid]),
            }
            panels.append(figures.Panel(study.name, "eps", f"{kind}, %", lines, log_x=True, log_y=False))
    return figures.panels(panels)


def _figure_2(studies: list[Study]) -> object:
    panels = []
    for study in studies:
        for eps in study.size.shown:
            runs = {f"fair-vfl, Q = {q}": study.fair(eps, q) for q in (1, *study.size.longer)}
            runs[OURS] = study.ours(eps)
            lines = {
                label: ([rounds for rounds, _, _ in run.curve], [loss for _, loss, _ in run.curve])
                for label, run in runs.items()
            }
            title = f"{study.name}, eps = {eps:g}"
            panels.append(figures.Panel(title, "rounds (exchanges)", "loss", lines, log_x=True, log_y=False))
    return figures.panels(panels, columns=len(studies[0].size.shown))


REPLICATION = Replication(PAGE, Fit, FULL, QUICK, plan, read)
