"""`fedpact bench local`: how much the owners compute, when nothing is tuned and when something is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from fedpact.errors import DataError
from fedpact.problem import FederatedProblem
from fedpact.solve import solve
from fedpact_experiments.bench.local_problems import PROBLEMS, UNEVEN
from fedpact_experiments.bench.output import BUDGET, SEED, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, DATA, among, several
from fedpact_experiments.trace import Point, Trace, gap, natural_residual, record_trace


@dataclass(frozen=True)
class ByHand:
    """What a prototype of iFedDR needed with settings found by hand for this very problem.

    solver: its local solver; quantity: what the target is of, the natural residual or f - f*
    """

    problem: str
    solver: str
    setting: str
    quantity: str
    target: float
    rounds: int
    exchanges: int
    gradients: int


def _by_hand() -> list[ByHand]:
    with Path(__file__).with_name("by_hand.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    return [
        ByHand(problem, solver, setting, quantity, float(target), int(rounds), int(exchanges), int(gradients))
        for problem, solver, setting, quantity, target, rounds, exchanges, gradients in rows
    ]


BY_HAND = _by_hand()


@dataclass(frozen=True)
class LocalWork:
    """One row of either table; None where it does not apply or the target was not reached.

    gradients, hessians: of the owner with most; gradients_of_all: sum over the owners
    """

    table: str
    problem: str
    owners: int
    target: float
    quantity: str
    method: str
    setting: str
    status: str = "reached"
    rounds: int | None = None
    exchanges: int | None = None
    gradients: int | None = None
    gradients_of_all: int | None = None
    hessians: int | None = None
    seconds: float | None = None
    tuned_rounds: int | None = None
    tuned_exchanges: int | None = None
    tuned_gradients: int | None = None
    ratio: float | None = None
    note: str = ""


def _spent(row: LocalWork, found: Point | None, trace: Trace) -> LocalWork:
    """The row with what the run had spent when it was there, or why it never was."""
    row = replace(row, seconds=trace.seconds)
    if found is not None:
        return replace(
            row,
            rounds=found.rounds,
            exchanges=found.exchanges,
            gradients=max(found.gradients),
            gradients_of_all=sum(found.gradients),
            hessians=max(found.hessians),
        )
    if trace.over:
        return replace(row, status="budget")
    if trace.solution is None or trace.solution.status in ("max_rounds", "interrupted"):
        return replace(row, status="more")
    return replace(row, status=trace.solution.status)


AUTOMATIC = "ifeddr, automatic"

# -------------------------------------------------------------------------------------------------------------- counts

COUNTS_CAPTION = """\
by hand: rounds / exchanges / gradients per owner of a prototype with the setting shown, found for this very problem.
automatic: method="ifeddr" without options; its owners take Newton steps where they can, which the prototype did on wdbc
only, so a second row has the local solver of the prototype and nothing else set. exchanges: one message down and one
up, with every owner, from the first look on; for the prototype rounds and requests to refine. gradients, Hessians:
evaluations of the owner with most, all of them: the first look, local steps, and the certificate; a product with a
Hessian counts as one. residual: of the server's point, |w - prox_h(w - sum F_i(w))|. ratio: ours over by hand.
"""


def _ours(row: LocalWork) -> str:
    if row.rounds is None:
        return row.status
    return f"{row.rounds} / {row.exchanges} / {row.gradients}"


def _hessians(row: LocalWork) -> str:
    return "" if row.rounds is None else str(row.hessians)


def _ratios(row: LocalWork) -> str:
    ours = (row.rounds, row.exchanges, row.gradients)
    by_hand = (row.tuned_rounds, row.tuned_exchanges, row.tuned_gradients)
    pairs = zip(ours, by_hand, strict=True)
    return " / ".join(f"{a / b:.2f}" for a, b in pairs if a is not None and b is not None)


COUNTS = {
    "problem": cell("problem"),
    "n": cell("owners"),
    "target": lambda row: f"{row.quantity} {row.target:g}",
    "setting by hand": cell("setting"),
    "by hand": lambda row: f"{row.tuned_rounds} / {row.tuned_exchanges} / {row.tuned_gradients}",
    "method": cell("method"),
    "ours": _ours,
    "Hessians": _hessians,
    "ratio": _ratios,
}


def count_automatic(name: str, problem: FederatedProblem, budget: float) -> Iterator[LocalWork]:
    """Method "ifeddr" without an option, and with the local solver of the prototype only, until all targets are met."""
    targets = [row for row in BY_HAND if row.problem == name]
    last = min(row.target for row in targets)
    solver = targets[0].solver
    if targets[0].quantity == "residual":
        measure = natural_residual(problem)
        tol = last / 10
    else:
        optimum = solve(problem, "interior-point", tol=1e-10).objective
        measure = gap(problem, optimum)
        tol = 1e-9
    for local_solver in [None] if solver == "newton" else [None, solver]:
        method = AUTOMATIC if local_solver is None else f"ifeddr, {local_solver}"
        click.echo(f"{name}: {method}", err=True)
        options: dict[str, Any] = {"tol": tol, "budget": budget, "local_solver": local_solver}
        trace = record_trace(problem, "ifeddr", measure, lambda points: points[-1].measured <= last, **options)
        for by_hand in targets:
            row = LocalWork(
                "counts", name, len(problem.shares), by_hand.target, by_hand.quantity, method, by_hand.setting,
                tuned_rounds=by_hand.rounds, tuned_exchanges=by_hand.exchanges, tuned_gradients=by_hand.gradients,
            )  # fmt: skip
            yield _spent(row, trace.first(by_hand.target), trace)


# ---------------------------------------------------------------------------------------------------------------- work

WORK_CAPTION = """\
gradients: evaluations until the natural residual of the server's point is at most the target, all owners together,
first look and certificate included. ratio: to the best fixed number of steps, whichever method has it. more: the target
was not reached with 10 times the gradients of the automatic run.
"""
#: method of the sweep -> its options besides local_solver and steps
FIXED: dict[str, tuple[str, dict[str, Any]]] = {
    "ifeddr, repeat": ("ifeddr", {"refinement": "repeat"}),
    "feddr": ("feddr", {}),
    "feddr, lambda 1.8": ("feddr", {"relaxation": 1.8}),
}
#: A fixed number of steps is given up when the owners have computed so many times what the automatic ones did.
HOPELESS = 10
STEPS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100)

WORK = {
    "problem": cell("problem"),
    "method": cell("method"),
    "local work": cell("setting"),
    "rounds": cell("rounds"),
    "exchanges": cell("exchanges"),
    "gradients": cell("gradients_of_all"),
    "ratio": cell("ratio", "{:.2f}".format),
    "status": cell("status"),
}


def sweep(name: str, solver: str, steps: Sequence[int], target: float, budget: float, seed: int) -> list[LocalWork]:
    """The automatic amount of local work, and every fixed one; the ratio is that to the best of the fixed ones."""
    problem = UNEVEN[name](seed)
    measure = natural_residual(problem)

    def run(label: str, method: str, setting: str, most: float, **options: Any) -> LocalWork:
        click.echo(f"{name}: {label}, {solver}, {setting}", err=True)

        def enough(points: Sequence[Point]) -> bool:
            return points[-1].measured <= target or sum(points[-1].gradients) > most

        limits: dict[str, Any] = {"tol": target / 100, "budget": budget, "local_solver": solver}
        trace = record_trace(problem, method, measure, enough, **limits, **options)
        row = LocalWork("work", name, len(problem.shares), target, "residual", label, f"{solver}, {setting}")
        return _spent(row, trace.first(target), trace)

    automatic = run(AUTOMATIC, "ifeddr", "automatic", np.inf)
    most = HOPELESS * (automatic.gradients_of_all or np.inf)
    rows = [automatic]
    for label, (method, options) in FIXED.items():
        for number in steps:
            setting = f"{number} step{'s' if number > 1 else ''}"
            rows.append(run(label, method, setting, most, steps=number, **options))
    fixed = [row.gradients_of_all for row in rows[1:] if row.gradients_of_all is not None]
    if not fixed:
        return rows
    return [
        row if row.gradients_of_all is None else replace(row, ratio=row.gradients_of_all / min(fixed)) for row in rows
    ]


def summary(rows: Sequence[LocalWork]) -> str | None:
    """A sweep in a line: the best fixed number of steps of every method; None where there is nothing to compare."""
    automatic, *others = rows
    solver = automatic.setting.split(", ")[0]
    told = []
    for label in FIXED:
        reached = [row for row in others if row.method == label and row.gradients_of_all is not None]
        if reached and automatic.gradients_of_all is not None:
            best = min(reached, key=lambda row: row.gradients_of_all or 0)
            times = automatic.gradients_of_all / (best.gradients_of_all or 1)
            told.append(f"{best.gradients_of_all} ({label}, {best.setting.split(', ')[1]}: {times:.2f})")
    if not told:
        return None
    counted = f"automatic {automatic.gradients_of_all} gradients"
    return f"{automatic.problem}, {solver}: {counted}; best fixed number: {', '.join(told)}"


# ---------------------------------------------------------------------------------------------------------- the command


@click.command()
@among("--tables", ["counts", "work"])
@among("--problems", list(PROBLEMS), of="Of the counts. ")
@among("--uneven", list(UNEVEN), of="Of the work. ")
@among("--solvers", ["gradient", "agd"], of="Of the work, local solvers. ")
@several("--steps", COUNT, STEPS, "Of the work: fixed numbers of local steps.")
@click.option("--target", default=1e-6, show_default=True, help="Of the work: natural residual to reach.")
@printing(LocalWork, SEED, BUDGET, DATA)
def local(
    tables: Sequence[str],
    problems: Sequence[str],
    uneven: Sequence[str],
    solvers: Sequence[str],
    steps: Sequence[int],
    target: float,
    output: Output,
) -> None:
    """How much the owners compute: "ifeddr" without options against settings that were tuned.

    counts: rounds, exchanges and gradients on eight problems, beside those of a prototype tuned by hand for each.
    work: all local gradients on problems whose owners differ in conditioning by 100, beside every fixed number of local
    steps; "ifeddr" with refinement="repeat" and "feddr" have fixed ones.

    \b
    fedpact bench local --data DIR --markdown
    fedpact bench local --tables counts --problems lasso,saddle --data DIR
    fedpact bench local --tables work --solvers agd --steps 1,2,5

    Data sets that are not there are skipped, and a line says where to get them. The seed is that of the problems of
    the work.
    """

    def counts() -> Iterator[LocalWork]:
        for name in problems if "counts" in tables else ():
            try:
                problem = PROBLEMS[name](output.folder)
            except DataError as error:
                output.skip(name, error)
            else:
                yield from count_automatic(name, problem, output.budget)

    def work() -> Iterator[LocalWork]:
        for name in uneven if "work" in tables else ():
            for solver in solvers:
                rows = sweep(name, solver, steps, target, output.budget, output.seed)
                line = summary(rows)
                if line is not None:
                    output.notes.append(line)
                yield from rows

    output.report(
        Table(counts(), COUNTS, COUNTS_CAPTION, ("setting by hand", "target", "method"), lambda row: row.problem),
        Table(
            work(),
            WORK,
            WORK_CAPTION,
            ("method", "local work", "status"),
            lambda row: (row.problem, row.method, row.setting.split(",")[0]),
        ),
    )
