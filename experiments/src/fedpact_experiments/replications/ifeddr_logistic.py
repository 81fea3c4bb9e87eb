"""iFedDR, Figures 1, 2, 5 and 8: logistic regression at owners who differ, against baselines with tuned settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

from fedpact import tasks
from fedpact.report import figures
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.replications import ifeddr
from fedpact_experiments.replications.findings import Claim, Findings, Verdict, all_of, opposite
from fedpact_experiments.replications.ifeddr import ARRIVED, GAP, OPTIMUM, PAPER_IFEDDR, ROUNDS, SIGMA, Curve, Method
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run
from fedpact_experiments.trace import gap

PAGE = Page("ifeddr-logistic")
BASELINES = ("fedavg", "scaffold", "fedprox")
LOADERS: dict[str, Callable[[str | None], Any]] = {"vehicle": datasets.vehicle23, "w8a": datasets.w8a}
#: With gamma = 1 everything is so slow that 2000 rounds do not tell a stall from patience.
STALL_GAMMA = 10.0
STALL = "stall"
#: Figures 1 (right) and 8, one setting at a time: letter -> option, values
GRIDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "lambda": ("relaxation", (0.5, 1.0, 1.5, 1.9)),
    "sigma": ("error", (0.1, 0.5, 0.9, SIGMA)),
    "gamma": ("gamma", (0.1, 1.0, 10.0)),
}


@dataclass(frozen=True)
class Size:
    """rounds, work: most server steps (K of Table 2) and most gradients per owner; steps, factors: grids (Table 2)

    patient: most gradients per owner where it is asked whether a method stalls, or one setting is changed
    changes: which values of GRIDS
    """

    rounds: dict[str, int]
    work: dict[str, int]
    steps: tuple[int, ...]
    factors: tuple[float, ...]
    patient: int
    changes: slice


#: vehicle has the paper's server steps for every tau; on w8a, where a gradient takes longer, they are a tenth at most.
FULL = Size(
    rounds={"vehicle": 2000, "w8a": 200},
    work={"vehicle": 220_000, "w8a": 2200},
    steps=(10, 100),
    factors=(1.0, 0.1, 0.01),
    patient=100_000,
    changes=slice(None),
)
QUICK = Size({"vehicle": 12}, {"vehicle": 200}, (10,), (1.0,), 200, slice(1, 3))


@cache
def _set_up(name: str, folder: str | None) -> tuple[ifeddr.Setup, Curve]:
    problem = tasks.logistic_regression(LOADERS[name](folder), ifeddr.WEIGHT)
    least = solve(problem, "interior-point", tol=1e-10).objective
    setup = ifeddr.Setup(name, problem, {GAP: gap(problem, least)})
    return setup, setup.found(OPTIMUM, {"f*": least})


def plan(asked: Asked, size: Size) -> Iterator[Run[Curve]]:
    for name, rounds in size.rounds.items():
        runs = ifeddr.Runs(partial(_set_up, name, asked.folder), asked.say, name)
        yield runs.reference()
        enough = ifeddr.until(rounds, size.work[name])
        yield from runs.of(_compared(size), enough)
        if name == "vehicle":
            patient = ifeddr.until(rounds, size.patient)
            yield from runs.of(_stalling(), patient, STALL)
            for letter, (option, values) in GRIDS.items():
                yield from runs.of(_changed(letter, option, values[size.changes]), patient, letter)


def _compared(size: Size) -> Iterator[Method]:
    """Every method with its grid (Table 2)."""
    yield from ifeddr.grid(BASELINES, size.steps, ifeddr.parts_of_l(size.factors))
    for start, tau in product(("s", "p"), size.steps):
        options = ifeddr.FEDDR | {"steps": tau, "start": start}
        yield Method(f"feddr tau {tau}, start {start}", "feddr", "gamma 1", options)
    yield Method("ifeddr, paper", "ifeddr", "gamma 1, tau 10, start s", PAPER_IFEDDR)
    yield Method("ifeddr, paper, start p", "ifeddr", "gamma 1, tau 10", PAPER_IFEDDR | {"start": "p"})
    yield Method("ifeddr, gradient", "ifeddr", "automatic", {"local_solver": "gradient"})
    yield Method("ifeddr", "ifeddr", "automatic", {})


def _stalling() -> Iterator[Method]:
    """The same ten local gradient steps, started at s_i or at p: FedDR stalls from s_i only, iFedDR from neither."""
    for method, start in product(("feddr", "ifeddr"), ("s", "p")):
        options = ifeddr.FEDDR | {"gamma": STALL_GAMMA, "steps": 10, "start": start}
        if method == "ifeddr":
            options |= {"error": SIGMA, "refinement": "total"}
        yield Method(f"{method} tau 10, start {start}", method, "", options)


def _changed(letter: str, option: str, values: tuple[float, ...]) -> Iterator[Method]:
    """The paper's iFedDR with one setting changed; all else as in Table 2."""
    for value in values:
        yield Method(f"{letter} {value:.3g}", "ifeddr", "", PAPER_IFEDDR | {option: value})


def read(size: Size, rows: Rows[Curve]) -> Findings:
    limits = [", ".join(f"{count} on {name}" for name, count in by.items()) for by in (size.rounds, size.work)]
    found = Findings(
        differences=PAGE.differences(rounds=limits[0], work=limits[1], patient=size.patient, done=ifeddr.DONE)
    )
    for (name,), seen in rows.by("data").items():
        _read_compared(found, name, seen, size)
        if name == "vehicle":
            _read_stall(found, seen.where(part=STALL), size)
            _read_changes(found, {letter: seen.where(part=letter) for letter in GRIDS})
    return found


def _figure(title: str, runs: Mapping[str, Curve]) -> object:
    return figures.panels([ifeddr.panel(title, x, GAP, runs, log_x=True) for x in (ROUNDS, ifeddr.GRADIENTS)])


# ---------------------------------------------------------------------------------------------------- Figures 1, 2, 5


def _read_compared(found: Findings, name: str, rows: Rows[Curve], size: Size) -> None:
    tries = rows.where(part="").by("label")
    runs = {label: min(tried, key=lambda run: run.rank) for (label,), tried in tries.items()}
    figure = "ifeddr-logistic" if name == "vehicle" else f"ifeddr-logistic-{name}"
    at = rows.one(part=OPTIMUM)
    limits = {"rounds": size.rounds[name], "work": size.work[name], "patience": ifeddr.PATIENCE}
    accuracies = {"least": at.seen["f*"][0], "arrived": ARRIVED, "done": ifeddr.DONE}
    found.tables.append(PAGE.table("compared", runs.values(), at=at, figure=figure, **limits, **accuracies))
    found.claims += _claims(name, runs)
    shown = {run.title if run.label in BASELINES else run.label: run for run in runs.values()}
    found.figures[figure] = _figure(name, shown)


def _claims(name: str, runs: Mapping[str, Curve]) -> Iterator[Claim]:
    """A run that neither arrived nor stalled decides nothing about convergence."""
    where = "Figures 1 and 2, vehicle" if name == "vehicle" else "Figure 5, w8a"
    claim = partial(PAGE.claim, where=where, arrived=ARRIVED, gamma=STALL_GAMMA)
    paper = runs["ifeddr, paper"]
    automatic = runs["ifeddr"]
    short = runs["feddr tau 10, start s"]
    from_p = runs["feddr tau 10, start p"]
    yield claim("short", opposite(short.converges), run=short)
    if "feddr tau 100, start s" in runs:
        longer = runs["feddr tau 100, start s"]
        yield claim("long", longer.converges, run=longer)
    yield claim("from_p", None, run=from_p)
    yield claim("untuned", paper.converges, paper=paper, automatic=automatic)
    best = min((run for label, run in runs.items() if not label.startswith("ifeddr")), key=lambda run: run.rank)
    competitive = all_of(_as_fast(automatic, best), _as_fast(paper, best))
    yield claim("competitive", competitive, best=best, paper=paper, automatic=automatic)


def _as_fast(run: Curve, other: Curve) -> Verdict:
    """Did it arrive in no more rounds? None where neither arrived, or where one ended before the other did."""
    if run.arrived is not None and other.arrived is not None:
        return run.arrived <= other.arrived
    if other.arrived is not None:
        return False if run.stalled or run.rounds >= other.arrived else None
    if run.arrived is not None:
        return True if other.stalled or other.rounds >= run.arrived else None
    return None


# ----------------------------------------------------------------------------------------------------------- the stall


def _read_stall(found: Findings, runs: Rows[Curve], size: Size) -> None:
    given = {"gamma": STALL_GAMMA, "arrived": ARRIVED, "size": size}
    from_s, *others = runs
    verdict = all_of(opposite(from_s.converges), *(run.converges for run in others))
    found.tables.append(PAGE.table("stall", runs, **given))
    found.claims.append(PAGE.claim("stall", verdict, runs, **given))
    title = f"vehicle, gamma {STALL_GAMMA:g}"
    found.figures["ifeddr-logistic-stall"] = _figure(title, {run.label: run for run in runs})


# ---------------------------------------------------------------------------------------------- Figures 1 (right) and 8


@dataclass(frozen=True)
class Changed:
    """A run with one setting changed, and a number of rounds that all runs beside it have."""

    run: Curve
    common: int

    @property
    def gap(self) -> float:
        return self.run.seen[GAP][self.common]


def _read_changes(found: Findings, changed: Mapping[str, Rows[Curve]]) -> None:
    rows = {
        letter: [Changed(run, min(seen.rounds for seen in runs)) for run in runs] for letter, runs in changed.items()
    }
    found.tables.append(PAGE.table("changes", [row for each in rows.values() for row in each], arrived=ARRIVED))
    gaps = {letter: [row.gap for row in each] for letter, each in rows.items()}
    work = {letter: [row.run.work for row in each] for letter, each in rows.items()}
    verdicts = {
        "lambda": gaps["lambda"][-1] <= min(gaps["lambda"]),
        "sigma": max(gaps["sigma"]) <= 2 * min(gaps["sigma"]) and work["sigma"][-1] <= 1.01 * min(work["sigma"]),
        "gamma": gaps["gamma"] == sorted(gaps["gamma"], reverse=True) and work["gamma"] == sorted(work["gamma"]),
    }
    for letter, verdict in verdicts.items():
        found.claims.append(PAGE.claim(letter, verdict, rows[letter], common=rows[letter][0].common))
    panels = [
        ifeddr.panel(f"vehicle, {letter}", ROUNDS, GAP, {run.label: run for run in runs}, log_x=True)
        for letter, runs in changed.items()
    ]
    found.figures["ifeddr-logistic-ablation"] = figures.panels(panels, columns=3)


REPLICATION = Replication(PAGE, Curve, FULL, QUICK, plan, read)
