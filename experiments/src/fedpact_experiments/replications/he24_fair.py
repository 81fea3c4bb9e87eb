"""He24, Table 2 and Figure 2, and He24-conic, Table 3: classification with bounded loss gaps, on adult-b."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from fedpact import data, tasks
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact_experiments import datasets
from fedpact_experiments.replications import he24, papers
from fedpact_experiments.replications.findings import Claim, Findings
from fedpact_experiments.replications.he24 import ONE, OPTIMUM, OURS, TOL, TRIALS, Case, Settings, Trial, Twins
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run

PAGE = Page("he24-fair")
PRINTED = Settings(beta=10.0, s=0.001, rho=1e8)
#: Of the authors' script: with the printed rho the model does not move.
SCRIPT = Settings(beta=50.0, s=0.01, rho=0.1)
#: Bound on every gap in He24, Table 2.
HE24 = 0.1
#: Bound on every gap in He24-conic, Table 3.
CONIC = 0.01
#: Tolerance of the reference: a local optimum.
TIGHT = 1e-6
#: Exchanges that interior-point may take; where it settles, it does so in far fewer.
ENOUGH = 200
#: Algorithm 1 with the printed settings, ended after some exchanges.
STILL = "Algorithm 1 as printed"

TABLE_2 = papers.table("he24_table_2", keys=1)
CONIC_TABLE_3 = papers.table("he24_conic_table_3", keys=1)


@dataclass(frozen=True)
class Size:
    """What is run.

    rows:  of the clients' and of the server's table; None: all
    runs:  number of owners -> runs of Algorithm 1 in Table 2
    conic: number of owners -> runs (1 or none) of Algorithm 1 in Table 3
    still: exchanges with the printed rho
    """

    rows: int | None
    trials: int
    runs: dict[int, int]
    conic: dict[int, int]
    still: int


#: One run of Algorithm 1 takes a minute or so: few of them.
FULL = Size(None, TRIALS, {1: TRIALS, 5: 1, 10: 1, 20: 1}, {1: 1, 5: 1, 10: 0, 20: 0}, 100)
QUICK = Size(1000, 2, {1: 1}, {1: 1, 5: 0}, 10)


def gaps(problem: FederatedProblem, w: Vector, bound: float) -> list[float]:
    """|mean loss of one group - of the other| at the server and at every owner: the worse of both sides."""
    held = [holder.constraint for holder in (problem.server, *problem.shares) if holder.constraint is not None]
    return [float(constraint.function.value(w).max()) + bound for constraint in held]


_read_tables = cache(datasets.adult_b)


@cache
def _problem(n: int, bound: float, rows: int | None, folder: str | None) -> FederatedProblem:
    both = _read_tables(folder)
    parts = [both.clients.select(fold[:rows]) for fold in data.stratified(both.clients.y, n)]
    server = both.server.select(np.arange(len(both.server.y))[:rows])
    return tasks.group_fairness({f"owner {i}": _held(part) for i, part in enumerate(parts, 1)}, _held(server), bound)


def _held(part: data.Table) -> tuple[Any, Any, Any]:
    return part.X, part.y, part.group


def plan(asked: Asked, size: Size) -> Iterator[Run[Trial]]:
    def case(table: str, n: int, bound: float) -> Case:
        problem = partial(_problem, n, bound, size.rows, asked.folder)
        return Case(table, "", n, 0, problem, partial(gaps, bound=bound))

    def references(case: Case) -> Iterator[Run[Trial]]:
        yield case.run(OPTIMUM, "interior-point", tol=TIGHT, max_rounds=ENOUGH)
        yield case.run(OURS, "interior-point", max_rounds=ENOUGH)

    for n, runs in size.runs.items():
        one = case("Table 2", n, HE24)
        yield from one.twins(asked.trials or size.trials, asked.trials or runs, SCRIPT, he24.sphere)
        yield from references(one)
    for n, runs in size.conic.items():
        one = case("He24-conic, Table 3", n, CONIC)
        yield from one.twins(1, runs, SCRIPT, lambda trial: np.zeros)
        yield from references(one)
        if runs:
            options = PRINTED.options(ONE) | {"max_rounds": size.still}
            yield one.run(STILL, "proximal-al", start=np.zeros, **options)


class Row(Twins):
    """A number of owners, in either table; the optimum is a local one."""

    @property
    def reference(self) -> str:
        """The optimum, with its certificate where that is not the tight one."""
        found = self[OPTIMUM].first
        return f"{found.objective:.4f}" + ("" if found.solved else f" ({found.certificate:.0e})")

    @property
    def our_excess(self) -> float:
        return self[OURS].first.objective / self.optimum - 1

    @property
    def loss_1(self) -> str:
        return f"{self.one['objective']:.4f}" if self.one.count else "not run"

    @property
    def gaps_1(self) -> str:
        return f"{self.one.mean_bounded:.4f} / {self.one.max_bounded:.4f}" if self.one.count else ""

    @property
    def still(self) -> str:
        return "".join(f"{run.objective:.4f}" for run in self[STILL].runs)


def read(size: Size, rows: Rows[Trial]) -> Findings:
    table = he24.read_rows(Row, rows, "Table 2", TABLE_2, "n")
    conic = he24.read_rows(Row, rows, "He24-conic, Table 3", CONIC_TABLE_3, "n")
    given = {"script": SCRIPT, "printed": PRINTED, "tight": TIGHT, "enough": ENOUGH, "tol": TOL, "size": size}
    return Findings(
        [
            PAGE.table("objectives", table, trials=table[0].three.count, **given),
            PAGE.table("feasibility", table, bound=HE24),
            PAGE.table("cost", table, **given),
            PAGE.table("conic", conic, bound=CONIC, **given),
        ],
        [*_claims(table), *_claims_of_conic(conic, size)],
        PAGE.differences(
            fewer=he24.fewer_runs(table), conic=", ".join(str(n) for n, runs in size.conic.items() if runs), **given
        ),
        {"he24-fair": _figure(table)},
    )


def _claims(rows: list[Row]) -> Iterator[Claim]:
    yield he24.quality(PAGE, rows, HE24)

    near = all(abs(row.one["losses"].mean / row.printed["objective 1"] - 1) <= 0.05 for row in rows)
    yield PAGE.claim("objectives", near, rows)

    starts = max(row.three["objective"].deviation for row in rows)
    owners = ", ".join(f"{row.three['losses'].deviation:.1e}" for row in rows)
    yield PAGE.claim("deviations", starts >= 4e-3, starts=starts, owners=owners)

    met = max(row.end for row in rows) <= HE24 + TOL
    excess = max(abs(row.excess) for row in rows)
    yield PAGE.claim("figure", met and excess <= 0.01, rows, excess=excess)


def _claims_of_conic(rows: list[Row], size: Size) -> Iterator[Claim]:
    run = [row for row in rows if row.one.count]
    of_paper = max(abs(row.printed["objective 1"] / row.printed["objective 3"] - 1) for row in rows)
    highest = max(row.highest for row in rows)
    similar = max(row.difference.mean for row in run) <= of_paper and highest <= CONIC + TOL
    yield PAGE.claim("conic", similar, run, of_paper=of_paper, highest=highest)

    near = all(abs(row.three.first.objective / row.printed["objective 3"] - 1) <= 0.05 for row in rows)
    moved = max(run.largest for row in rows for run in row[STILL].runs)
    yield PAGE.claim("stationary", near, rows, start=np.log(2), moved=moved, size=size)


def _figure(rows: list[Row]) -> object:
    return figures.panels([he24.course(row, "loss, gap", HE24, "loss", "gap, owners", "gap, server") for row in rows])


REPLICATION = Replication(PAGE, Trial, FULL, QUICK, plan, read)
