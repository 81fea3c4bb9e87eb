"""`fedpact bench local`: how much the owners compute, when nothing is tuned and when something is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import fill
from typing import IO, Any, NamedTuple

import click
import numpy as np

from fedpact import data, tasks
from fedpact.cli.bench_output import COUNT, DATA, common, save, several, show
from fedpact.cli.trace import Point, Trace, gap, natural_residual, traced
from fedpact.errors import DataError
from fedpact.functions import Linear, Quadratic, Vector
from fedpact.problem import FederatedProblem, MonotoneProblem, Share
from fedpact.prox import L1, Box
from fedpact.solve import solve

WEIGHT = 1e-5  # of the squared norm in the logistic problems, as in iFedDR, Table 2


class Count(NamedTuple):
    """rounds, exchanges (rounds and requests to refine), gradients per owner"""

    rounds: int
    exchanges: int
    gradients: int


@dataclass(frozen=True)
class Tuned:
    """A problem, and what a prototype of iFedDR needed there with settings found by hand for this very problem.

    solver:   its local solver
    residual: is the target one of the natural residual, or of f - f*?
    """

    make: Callable[[str | None], FederatedProblem]
    solver: str
    setting: str
    counts: dict[float, Count]
    residual: bool = True


# ------------------------------------------------------------------------------------------------------------ problems


def _least_squares(A: Vector, b: Vector) -> list[Share]:
    n, rows = b.shape
    return [Share(Quadratic(M.T @ M / (rows * n), -M.T @ c / (rows * n))) for M, c in zip(A, b, strict=True)]


def lasso(folder: str | None) -> FederatedProblem:
    arrays = data.ifeddr_problems(folder)
    return FederatedProblem(_least_squares(arrays.lasso_A, arrays.lasso_b), None, L1(arrays.lasso_alpha))


def box(folder: str | None) -> FederatedProblem:
    arrays = data.ifeddr_problems(folder)
    return FederatedProblem(_least_squares(arrays.box_A, arrays.box_b), None, Box(arrays.box_lo, arrays.box_hi))


def logistic(folder: str | None) -> FederatedProblem:
    arrays = data.ifeddr_problems(folder)
    owners = {f"owner {i}": own for i, own in enumerate(zip(arrays.logistic_A, arrays.logistic_y, strict=True), 1)}
    return tasks.logistic_regression(owners, arrays.logistic_reg)


def _linear(M: Vector, q: Vector) -> list[Share]:
    return [Share(Linear(matrix / len(M), offset / len(M))) for matrix, offset in zip(M, q, strict=True)]


def saddle(folder: str | None) -> FederatedProblem:
    arrays = data.ifeddr_problems(folder)
    return MonotoneProblem(_linear(arrays.saddle_M, arrays.saddle_q))


def box_saddle(folder: str | None) -> FederatedProblem:
    arrays = data.ifeddr_problems(folder)
    bound = arrays.boxsaddle_bound
    return MonotoneProblem(_linear(arrays.boxsaddle_M, arrays.boxsaddle_q), Box(-bound, bound))


def uneven(seed: int = 0, n: int = 10, d: int = 20, rows: int = 200) -> FederatedProblem:
    """Logistic regression at owners whose curvatures differ by 100: rows of owner 1 are a tenth as long as the last's.

    Each has labels from a model of its own, near a common one.
    """
    rng = np.random.default_rng(seed)
    common_model = rng.standard_normal(d)
    owners = {}
    for i, curvature in enumerate(np.logspace(-1, 1, n), 1):
        X = rng.standard_normal((rows, d)) * np.sqrt(curvature)
        score = X @ (common_model + 0.5 * rng.standard_normal(d))
        score *= 2 * np.sqrt(rows) / np.linalg.norm(score)
        owners[f"owner {i}"] = (X, (score + rng.logistic(size=rows) > 0).astype(np.int64))
    return tasks.logistic_regression(owners, 1e-3)


def conditioned(seed: int = 0, n: int = 10, d: int = 20) -> FederatedProblem:
    """Quadratics whose condition numbers rise from 1 at the first owner to 100 at the last; largest eigenvalues 1."""
    rng = np.random.default_rng(seed)
    shares = []
    for number in np.logspace(0, 2, n):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        half = np.sqrt(np.logspace(-np.log10(number), 0, d))[:, None] * Q.T
        A = half.T @ half
        shares.append(Share(Quadratic(A / n, -A @ rng.standard_normal(d) / n)))
    return FederatedProblem(shares)


PROBLEMS = {
    "lasso": Tuned(
        lasso, "gradient", "gamma 1, gradient, 1 step", {1e-6: Count(46, 47, 138), 1e-10: Count(78, 79, 234)}
    ),
    "box": Tuned(box, "gradient", "gamma 0.3, gradient, 1 step", {1e-6: Count(34, 34, 68), 1e-10: Count(57, 57, 114)}),
    "logistic": Tuned(
        logistic, "gradient", "gamma 3, gradient, 2 steps", {1e-6: Count(76, 76, 228), 1e-8: Count(113, 113, 339)}
    ),
    "saddle": Tuned(saddle, "extragradient", "gamma 1, extragradient, 2 gradients", {1e-6: Count(337, 337, 1011)}),
    "box-saddle": Tuned(
        box_saddle, "extragradient", "gamma 1, extragradient, sigma 0.95", {1e-8: Count(214, 218, 666)}
    ),
    "wdbc": Tuned(
        lambda folder: tasks.logistic_regression(data.wdbc_by_label(), WEIGHT),
        "newton",
        "gamma 3500, Newton, lambda 1.8",
        {1e-8: Count(135, 138, 139)},
    ),
    "vehicle": Tuned(
        lambda folder: tasks.logistic_regression(data.vehicle23(folder), WEIGHT),
        "agd",
        "gamma 10, accelerated gradient, 3 steps",
        {1e-4: Count(481, 507, 2197)},
        residual=False,
    ),
    "w8a": Tuned(
        lambda folder: tasks.logistic_regression(data.w8a(folder), WEIGHT),
        "agd",
        "gamma 300, accelerated gradient, 3 steps",
        {1e-4: Count(281, 288, 1216)},
        residual=False,
    ),
}
UNEVEN: dict[str, Callable[[int], FederatedProblem]] = {"uneven": uneven, "conditioned": conditioned}

# ----------------------------------------------------------------------------------------------------------- measuring


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
    status: str
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


def _spent(row: LocalWork, found: Point | None, trace: Trace) -> LocalWork:
    if found is None:
        ended = "budget" if trace.over else trace.solution.status if trace.solution else "stopped"
        return replace(row, status="more" if ended == "max_rounds" else ended, seconds=trace.seconds)
    return replace(
        row,
        rounds=found.rounds,
        exchanges=found.exchanges,
        gradients=max(found.gradients),
        gradients_of_all=sum(found.gradients),
        hessians=max(found.hessians),
        seconds=trace.seconds,
    )


AUTOMATIC = "ifeddr, automatic"


def count_automatic(name: str, folder: str | None, budget: float, say: Callable[[str], None]) -> Iterator[LocalWork]:
    """Method "ifeddr" without an option, and with the local solver of the prototype only, until all targets are met."""
    tuned = PROBLEMS[name]
    problem = tuned.make(folder)
    if tuned.residual:
        measure, quantity, tol = natural_residual(problem), "residual", min(tuned.counts) / 10
    else:
        optimum = solve(problem, "interior-point", tol=1e-10).objective
        measure, quantity, tol = gap(problem, optimum), "f - f*", 1e-9
    last = min(tuned.counts)
    for solver in [None] if tuned.solver == "newton" else [None, tuned.solver]:
        method = AUTOMATIC if solver is None else f"ifeddr, {solver}"
        say(f"{name}: {method}")
        trace = traced(
            problem,
            "ifeddr",
            measure,
            lambda points: points[-1].measured <= last,
            tol=tol,
            budget=budget,
            local_solver=solver,
        )
        for target, count in tuned.counts.items():
            row = LocalWork("counts", name, len(problem.shares), target, quantity, method, tuned.setting, "reached")
            row = replace(row, tuned_rounds=count[0], tuned_exchanges=count[1], tuned_gradients=count[2])
            yield _spent(row, trace.first(target), trace)


#: method of the sweep -> its options besides local_solver and steps
FIXED: dict[str, tuple[str, dict[str, Any]]] = {
    "ifeddr, repeat": ("ifeddr", {"refinement": "repeat"}),
    "feddr": ("feddr", {}),
    "feddr, lambda 1.8": ("feddr", {"relaxation": 1.8}),
}
#: A fixed number of steps is given up when the owners have computed so many times what the automatic ones did.
HOPELESS = 10


def sweep(
    name: str,
    solver: str,
    steps: Sequence[int],
    target: float,
    budget: float,
    say: Callable[[str], None],
    seed: int = 0,
) -> list[LocalWork]:
    """The automatic amount of local work, and every fixed one; the ratio is that to the best of the fixed ones."""
    problem = UNEVEN[name](seed)
    measure = natural_residual(problem)

    def run(label: str, method: str, setting: str, most: float, **options: Any) -> LocalWork:
        say(f"{name}: {label}, {solver}, {setting}")

        def enough(points: Sequence[Point]) -> bool:
            return points[-1].measured <= target or sum(points[-1].gradients) > most

        trace = traced(problem, method, measure, enough, tol=target / 100, budget=budget, **options)
        row = LocalWork("work", name, len(problem.shares), target, "residual", label, f"{solver}, {setting}", "reached")
        return _spent(row, trace.first(target), trace)

    rows = [run(AUTOMATIC, "ifeddr", "automatic", np.inf, local_solver=solver)]
    most = HOPELESS * (rows[0].gradients_of_all or np.inf)
    for label, (method, options) in FIXED.items():
        for number in steps:
            setting = f"{number} step{'s' if number > 1 else ''}"
            rows.append(run(label, method, setting, most, local_solver=solver, steps=number, **options))
    fixed = [row.gradients_of_all for row in rows[1:] if row.gradients_of_all is not None]
    if not fixed:
        return rows
    return [
        row if row.gradients_of_all is None else replace(row, ratio=row.gradients_of_all / min(fixed)) for row in rows
    ]


# ---------------------------------------------------------------------------------------------------------- the command

COUNTS_CAPTION = """\
by hand: rounds / exchanges / gradients per owner of a prototype with the setting shown, found for this very problem.
automatic: method="ifeddr" without options; its owners take Newton steps where they can, which the prototype did on wdbc
only, so a second row has the local solver of the prototype and nothing else set. exchanges: one message down and one
up, with every owner, from the first look on; for the prototype rounds and requests to refine. gradients, Hessians:
evaluations of the owner with most, all of them: the first look, local steps, and the certificate; a product with a
Hessian counts as one. residual: of the server's point, |w - prox_h(w - sum F_i(w))|. ratio: ours over by hand.
"""
WORK_CAPTION = """\
gradients: evaluations until the natural residual of the server's point is at most the target, all owners together,
first look and certificate included. ratio: to the best fixed number of steps, whichever method has it. more: the target
was not reached with 10 times the gradients of the automatic run.
"""
STEPS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100)


@click.command()
@several("--tables", click.Choice(["counts", "work"]), ["counts", "work"], "Among counts, work.")
@several("--problems", click.Choice(list(PROBLEMS)), list(PROBLEMS), f"Of the counts: among {', '.join(PROBLEMS)}.")
@several("--uneven", click.Choice(list(UNEVEN)), list(UNEVEN), f"Of the work: among {', '.join(UNEVEN)}.")
@several("--solvers", click.Choice(["gradient", "agd"]), ["gradient", "agd"], "Of the work: local solvers.")
@several("--steps", COUNT, STEPS, "Of the work: fixed numbers of local steps.")
@click.option("--target", default=1e-6, show_default=True, help="Of the work: natural residual to reach.")
@DATA
@common
def local(
    tables: Sequence[str],
    problems: Sequence[str],
    uneven: Sequence[str],
    solvers: Sequence[str],
    steps: Sequence[int],
    target: float,
    folder: str | None,
    budget: float,
    seed: int,
    markdown: bool,
    csv: IO[str] | None,
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
    rows: list[LocalWork] = []
    notes: list[str] = []
    interrupted = False
    say = partial(click.echo, err=True)
    try:
        for name in problems if "counts" in tables else ():
            try:
                rows.extend(count_automatic(name, folder, budget, say))
            except DataError as error:
                notes.append(f"skipped {name}: {error}")
        for name in uneven if "work" in tables else ():
            for solver in solvers:
                rows.extend(sweep(name, solver, steps, target, budget, say, seed))
    except KeyboardInterrupt:
        interrupted = True
        notes.append("interrupted: the tables hold what was measured so far")
    _show_counts([row for row in rows if row.table == "counts"], markdown)
    notes += _show_work([row for row in rows if row.table == "work"], markdown)
    for note in notes:
        click.echo(f"- {note}")
    save(rows, LocalWork, csv)
    if interrupted:
        sys.exit(130)


def _show_counts(rows: Sequence[LocalWork], markdown: bool) -> None:
    if not rows:
        return
    columns = ("problem", "n", "target", "setting by hand", "by hand", "method", "ours", "Hessians", "ratio")
    lines = []
    for row in rows:
        by_hand = (row.tuned_rounds, row.tuned_exchanges, row.tuned_gradients)
        ours = (row.rounds, row.exchanges, row.gradients)
        reached = row.rounds is not None
        ratios = [a / b for a, b in zip(ours, by_hand, strict=True) if a is not None and b is not None]
        lines.append(
            [
                row.problem,
                str(row.owners),
                f"{row.quantity} {row.target:g}",
                row.setting,
                " / ".join(map(str, by_hand)),
                row.method,
                " / ".join(map(str, ours)) if reached else row.status,
                str(row.hessians) if reached else "",
                " / ".join(f"{ratio:.2f}" for ratio in ratios),
            ]
        )
    show(columns, lines, markdown, text=("setting by hand", "target", "method"), sections=[row.problem for row in rows])
    click.echo(f"{fill(COUNTS_CAPTION, 118, break_on_hyphens=False)}\n")


def _show_work(rows: Sequence[LocalWork], markdown: bool) -> list[str]:
    """Prints the table; gives back a line for each sweep."""
    if not rows:
        return []
    columns = ("problem", "method", "local work", "rounds", "exchanges", "gradients", "ratio", "status")
    lines, notes = [], []
    for row in rows:
        cells = (row.rounds, row.exchanges, row.gradients_of_all)
        shown = ["" if cell is None else str(cell) for cell in cells]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append([row.problem, row.method, row.setting, *shown, ratio, row.status])
        if row.method == AUTOMATIC:
            solver = row.setting.split(",")[0]
            same = [other for other in rows if other.problem == row.problem and other.setting.startswith(f"{solver},")]
            fixed = [other for other in same if other.method != AUTOMATIC and other.gradients_of_all is not None]
            if row.gradients_of_all is not None and fixed:
                notes.append(f"{row.problem}, {solver}: automatic {row.gradients_of_all} gradients; best fixed number:")
                for label in FIXED:
                    reached = [other for other in fixed if other.method == label]
                    if reached:
                        best = min(reached, key=lambda other: other.gradients_of_all or 0)
                        times = row.gradients_of_all / (best.gradients_of_all or 1)
                        notes[-1] += f" {best.gradients_of_all} ({label}, {best.setting.split(', ')[1]}: {times:.2f}),"
                notes[-1] = notes[-1][:-1]
    show(
        columns,
        lines,
        markdown,
        text=("method", "local work", "status"),
        sections=[(row.problem, row.method, row.setting.split(",")[0]) for row in rows],
    )
    click.echo(f"{fill(WORK_CAPTION, 118, break_on_hyphens=False)}\n")
    return notes
