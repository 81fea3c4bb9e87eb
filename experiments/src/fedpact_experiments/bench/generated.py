"""`fedpact bench generated`: is "auto" right on generated problems of every kind, as a conic solver is?"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import click
import cvxpy as cp
import numpy as np

import fedpact as fp
from fedpact.problem.units import measure_units
from fedpact_experiments.bench.generated_problems import HOPELESS, Drawn, draw
from fedpact_experiments.bench.known_problems import draw_known, is_false
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, TOLERANCE

TITLE = "Generated problems"
INTRODUCTION = """\
Seeded random convex problems: quadratic, linear, logistic and softmax objectives; linear, curved, second-order,
positive semidefinite and exponential constraints at owners and server, and coupled ones; seven regularizers; 1 to 50
owners; rank-deficient, scaled by 1e-6 to 1e6, with redundant rows in other units, without interior points; and problems
without a solution. "auto" has a few CPU-seconds each, with tolerances relative to the size of the numbers; beside it
Clarabel on the pooled data, as posed. An answer is right when the problem has a solution, the certificate holds when it
is recomputed, and the objective is within a percent of the reference (a conic solver on the well-scaled form without
redundant rows); or when the problem has none and the status says so. It is wrong when it claims what is not so: solved,
infeasible or unbounded. All others are honest failures.
"""
CAPTION = """\
right: of the problems in the row; wrong: claims that are not true; Clarabel: right on the pooled problem, which
problems known by construction do not have; seconds: the median of CPU time, and the largest.
"""
#: An objective off by more than this part is not the optimum.
CLOSE = 0.01
#: ... unless it is as near zero as this part of what the objective is measured in.
NOTHING = 1e-3


@dataclass(frozen=True)
class Judged:
    """One problem: how it ended and whether that is right; the same of the conic solver."""

    seed: int
    expected: str
    about: str
    owners: int
    traits: tuple[str, ...]
    status: str
    right: bool
    wrong: bool
    seconds: float
    exchanges: int
    conic_status: str
    conic_right: bool


@dataclass(frozen=True)
class Group:
    """All problems of one kind."""

    kind: str
    problems: int
    right: int
    wrong: int
    conic: int
    seconds: float
    longest: float
    problem: str = ""
    owners: int = 0
    method: str = ""
    note: str = ""


COLUMNS = {
    "problems": cell("kind"),
    "number": cell("problems"),
    "right": cell("right"),
    "%": lambda row: f"{100 * row.right / row.problems:.1f}",
    "wrong": cell("wrong"),
    "Clarabel": cell("conic"),
    "seconds": cell("seconds", "{:.2f}".format),
    "most": cell("longest", "{:.1f}".format),
}


def solve_conic(problem: cp.Problem) -> tuple[str, float]:
    """Status and value; a failure of the solver is a status, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            return "failed", np.nan
    value = np.nan if problem.value is None else float(problem.value)
    return str(problem.status), value


def judge(seed: int, tol: float, limit: float, relative: bool = True) -> Judged:
    """Draw the problem of this seed, solve it by "auto" within `limit` CPU-seconds, and by the conic solver."""
    drawn = draw(seed)
    optimum = np.nan
    if drawn.expected == "optimal":
        status, optimum = solve_conic(drawn.reference)
        optimum = drawn.factor * optimum if status == "optimal" else np.nan
    begun = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = fp.solve(
                drawn.problem,
                tol=tol,
                relative=relative,
                callbacks=[lambda _: time.process_time() - begun > limit],
            )
    except Exception as error:  # counted, and the next problem is tried
        click.echo(f"seed {seed}: {error!r}", err=True)
        status = f"{type(error).__name__}"
        right, wrong, exchanges = False, True, 0
    else:
        status = answer.status
        exchanges = answer.rounds
        right, wrong = _rate(drawn, answer, tol, relative, optimum)
    seconds = time.process_time() - begun
    conic_status, value = solve_conic(drawn.pooled)
    return Judged(
        seed=seed,
        expected=drawn.expected,
        about=drawn.label,
        owners=drawn.owners,
        traits=(drawn.objective, drawn.regularizer, *drawn.kinds, *drawn.traits),
        status=status,
        right=right and seconds <= 2 * limit,  # a step that begins in time may end late
        wrong=wrong,
        seconds=seconds,
        exchanges=exchanges,
        conic_status=conic_status,
        conic_right=_conic_is_right(drawn, conic_status, value, optimum),
    )


def judge_known(seed: int, tol: float, limit: float, relative: bool = True) -> Judged:
    """The same for a problem whose ending is known by construction; the conic solver has no part in it."""
    known = draw_known(seed)
    begun = time.process_time()
    try:
        answer = fp.solve(
            known.problem,
            tol=tol,
            w0=known.start,
            relative=relative,
            callbacks=[lambda _: time.process_time() - begun > limit],
        )
    except Exception as error:  # counted, and the next problem is tried
        click.echo(f"known seed {seed}: {error!r}", err=True)
        status, wrong, exchanges = type(error).__name__, True, 0
    else:
        status, wrong, exchanges = answer.status, is_false(known, answer, tol), answer.rounds
    seconds = time.process_time() - begun
    return Judged(
        seed=seed,
        expected={"solved": "optimal"}.get(known.ending, known.ending),
        about=f"{known.kind}, known by construction",
        owners=len(known.problem.shares),
        traits=(known.kind,),
        status=status,
        right=status == known.ending and not wrong and seconds <= 2 * limit,
        wrong=wrong,
        seconds=seconds,
        exchanges=exchanges,
        conic_status="",
        conic_right=False,
    )


def _rate(drawn: Drawn, answer: fp.Solution, tol: float, relative: bool, optimum: float) -> tuple[bool, bool]:
    """(right, wrong)."""
    if drawn.expected == "optimal":
        good = answer.solved and _is_certified(drawn, answer, tol, relative)
        good = good and (np.isnan(optimum) or _is_near(drawn, answer.objective, optimum))
        return good, answer.status in ("solved", "infeasible", "unbounded") and not good
    if answer.status == "infeasible":
        proved = answer.proof is None or bool(answer.proof.check(drawn.problem))
        good = proved and drawn.expected != "unbounded"
        return good, not good
    if drawn.expected == "weakly infeasible":  # met by points far out, up to any tolerance
        return answer.solved and _is_certified(drawn, answer, tol, relative), answer.status == "unbounded"
    right = answer.status == drawn.expected
    return right, not right and answer.status in ("solved", "unbounded")


def _is_certified(drawn: Drawn, answer: fp.Solution, tol: float, relative: bool) -> bool:
    """Whether the pair holds when it is judged anew, in the units of the tolerances."""
    problem, w, prices, coupled = drawn.problem, answer.w, answer.multipliers, answer.coupled_multiplier
    if relative:
        units = measure_units(problem, problem.start(None))
        problem = units.rescale(problem)
        w = w / units.columns
        prices = [units.objective * price / rows for price, rows in zip(prices, units.rows, strict=True)]
        coupled = units.objective * coupled / units.coupled
    return fp.certify(problem, w, prices, coupled).meets((1.001 * tol, 1.001 * tol))


def _is_near(drawn: Drawn, value: float, optimum: float) -> bool:
    return abs(value - optimum) <= CLOSE * max(abs(optimum), NOTHING * drawn.factor)


def _conic_is_right(drawn: Drawn, status: str, value: float, optimum: float) -> bool:
    if drawn.expected == "optimal":
        return status == "optimal" and (np.isnan(optimum) or _is_near(drawn, value, optimum))
    if drawn.expected == "weakly infeasible":
        return status in ("infeasible", "optimal")
    return status == drawn.expected


def _group(kind: str, rows: Sequence[Judged]) -> Group:
    seconds = [row.seconds for row in rows]
    return Group(
        kind=kind,
        problems=len(rows),
        right=sum(row.right for row in rows),
        wrong=sum(row.wrong for row in rows),
        conic=sum(row.conic_right for row in rows),
        seconds=float(np.median(seconds)),
        longest=max(seconds),
    )


def _groups(measured: Callable[[], list[Judged]]) -> Iterator[Group]:
    """All problems, those with a solution and without, and those with each trait."""
    rows = measured()
    yield _group("all", rows)
    parts: dict[str, list[Judged]] = {"with a solution": [row for row in rows if row.expected == "optimal"]}
    for kind in HOPELESS:
        parts[kind] = [row for row in rows if row.expected == kind]
    for trait in sorted({trait for row in rows for trait in row.traits}):
        parts[trait] = [row for row in rows if trait in row.traits]
    parts["20 or more owners"] = [row for row in rows if row.owners >= 20]
    for kind, part in parts.items():
        if part:
            yield _group(kind, part)


@click.command()
@click.option("--problems", type=COUNT, default=100, show_default=True, help="How many.")
@click.option("--known", default=0, show_default=True, help="How many more whose status is known by construction.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Relative tolerance.")
@click.option("--limit", default=4.0, show_default=True, help="CPU-seconds for one problem.")
@click.option("--absolute", is_flag=True, help="Tolerances in the units of the data instead.")
@printing(Group, SEED, PAGE)
def generated(problems: int, known: int, tol: float, limit: float, absolute: bool, output: Output) -> None:
    """Is "auto" right on generated problems of every kind?

    \b
    fedpact bench generated --problems 20 --known 16
    fedpact bench generated --problems 500 --seed 7 --page docs/benchmarks/generated.md
    """
    rows: list[Judged] = []

    def measure() -> list[Judged]:
        drawn = [(judge, number) for number in range(problems)] + [(judge_known, number) for number in range(known)]
        for judged, number in drawn:
            row = judged(output.seed * 1_000_000 + number, tol, limit, relative=not absolute)
            rows.append(row)
            if not row.right:
                ended = f"{row.status} after {row.exchanges} exchanges and {row.seconds:.1f} s"
                flag = "WRONG" if row.wrong else "not right"
                output.notes.append(f"{flag}, seed {row.seed}, {row.expected}: {ended}; {row.about}")
                click.echo(output.notes[-1], err=True)
        return rows

    table = Table(_groups(measure), COLUMNS, CAPTION, text=(), section=lambda row: row.kind == "all", title="By kind")
    output.report(table, title=TITLE, introduction=INTRODUCTION)
