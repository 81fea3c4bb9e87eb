"""He24, Table 4, and He24-conic, Table 1: quadratic programs with linear equalities at the server and every owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from fedpact import data, tasks
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact_experiments.replications import he24, papers
from fedpact_experiments.replications.findings import Claim, Findings
from fedpact_experiments.replications.he24 import ONE, OPTIMUM, OURS, THREE, TOL, TRIALS, Case, Settings, Trial, Twins
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows, Spread
from fedpact_experiments.replications.runner import Asked, Replication, Run

PAGE = Page("he24-lcqp")
HE24 = Settings(beta=10.0, s=0.1, rho=1.0)
CONIC = Settings(beta=1.0, s=0.01, rho=1.0)
ADAPTED = replace(CONIC, rho=None)
#: A standard deviation over the starts, relative to the objective, that counts as small; the paper's are below 4.5e-5.
SMALL = 1e-4
#: Exact optima of other instances than that of Table 4, with C_0 w = 0 and with a unit d_0.
OTHERS = "d_0 = 0"
UNIT = "unit d_0"
ACCELERATED = "accelerated"
WITH_RHO = "Algorithm 1, rho as printed"

TABLE_4 = papers.table("he24_table_4", keys=2)
CONIC_TABLE_1 = papers.table("he24_conic_table_1", keys=2)
Variant = Literal["he24", "he24-conic"]


@dataclass(frozen=True)
class Size:
    """What is run.

    starts, instances: number of owners -> runs of Algorithm 1 in Table 4 and in Table 1
    printed:           (n, d) of Table 1 in which Algorithm 1 also has the printed rho, on the first instance
    """

    dims: tuple[int, ...]
    trials: int
    starts: dict[int, int]
    instances: dict[int, int]
    printed: tuple[tuple[int, int], ...]


#: With rho = 1 an instance of Table 1 with 10 owners takes thousands of exchanges, so most have an adapted rho.
FULL = Size(
    (100, 300, 500),
    TRIALS,
    {1: TRIALS, 5: TRIALS, 10: 5},
    {1: TRIALS, 5: TRIALS, 10: 5},
    ((1, 100), (1, 300), (1, 500), (5, 100), (5, 300), (5, 500), (10, 100)),
)
QUICK = Size((100,), 2, {1: 2, 5: 2}, {1: 2, 5: 1}, ((1, 100),))


def _arrays(n: int, d: int, seed: int, variant: Variant = "he24") -> data.QPArrays:
    return data.lcqp(n, d, d // 100, seed, variant)  # d / 100 equalities a holder


@lru_cache(maxsize=2)
def _problem(n: int, d: int, seed: int, variant: Variant = "he24") -> FederatedProblem:
    return tasks.linear_qp(*_arrays(n, d, seed, variant))


def plan(asked: Asked, size: Size) -> Iterator[Run[Trial]]:
    for n, starts in size.starts.items():
        for d in size.dims:
            case = Case("Table 4", "", n, d, partial(_problem, n, d, 0))
            yield from case.twins(asked.trials or size.trials, asked.trials or starts, HE24, he24.sphere)
            for method in (OURS, ACCELERATED):
                yield case.run(method, method)
            yield Run(f"{case}: optima", partial(_optima, case, size.trials))
    for d in size.dims:
        for n, instances in size.instances.items():
            yield from _instances(n, d, asked.trials or size.trials, asked.trials or instances)
            if (n, d) in size.printed:
                yield _instance(n, d, 0).run(WITH_RHO, "proximal-al", start=np.ones, **CONIC.options(ONE))


def _optima(case: Case, others: int) -> Iterator[Trial]:
    """Exact, of the instance and of others, whose d_0 is zero or on the unit sphere, as the text of He24 has it."""
    yield case.value(OPTIMUM, 0, tasks.exact(*_arrays(case.n, case.d, 0)).objective)
    for seed in range(1, others + 1):
        arrays = _arrays(case.n, case.d, seed)
        yield case.value(OTHERS, seed, tasks.exact(*arrays).objective)
        offset = arrays.d.copy()
        offset[0] = he24.on_sphere(len(offset[0]), seed - 1)
        yield case.value(UNIT, seed, tasks.exact(*arrays._replace(d=offset)).objective)


def _instance(n: int, d: int, seed: int) -> Case:
    return Case("He24-conic, Table 1", "", n, d, partial(_problem, n, d, seed, "he24-conic"))


def _instances(n: int, d: int, trials: int, runs: int) -> Iterator[Run[Trial]]:
    """Every instance from w = (1, ..., 1): Algorithm 3 and our method on all, Algorithm 1 on the first ones."""
    for seed in range(trials):
        case = _instance(n, d, seed)
        yield case.run(THREE, "centralized-proximal-al", seed, np.ones, **ADAPTED.options(THREE))
        if seed < runs:
            yield case.run(ONE, "proximal-al", seed, np.ones, **ADAPTED.options(ONE))
        yield case.run(OURS, "interior-point", seed)
        yield Run(f"{case}: optimum, trial {seed + 1}", partial(_optimum, case, seed))


def _optimum(case: Case, seed: int) -> Iterator[Trial]:
    yield case.value(OPTIMUM, seed, tasks.exact(*_arrays(case.n, case.d, seed, "he24-conic")).objective)


class Row(Twins):
    """A number of owners and of variables, in either table."""

    @property
    def title(self) -> str:
        return f"n = {self.case.n}, d = {self.case.d}"

    @property
    def violation(self) -> list[float]:
        """Mean, in 1e-4, of Algorithms 1 and 3."""
        return [1e4 * side["feasibility"].mean for side in (self.one, self.three)]

    @property
    def same(self) -> Spread:
        """Outer iterations of Algorithm 3 on the instances on which Algorithm 1 has run."""
        return Spread(self.three.runs.of("outer")[: self.one.count])

    @property
    def with_rho(self) -> tuple[str, str]:
        """Objective and exchanges of Algorithm 1 with the printed rho."""
        for run in self[WITH_RHO].runs:
            return f"{run.objective:.4f}", str(run.exchanges)
        return "not run", ""

    def fits(self, label: str) -> bool:
        """Is the paper's objective within two standard deviations of the optima of these instances?"""
        optima = self[label]["objective"]
        return abs(self.printed["objective 3"] - optima.mean) <= 2 * optima.deviation

    @property
    def off(self) -> float:
        """The paper's mean of 10 optima less ours, in standard deviations of such a difference."""
        optima = self[OPTIMUM]["objective"]
        deviation = optima.deviation * np.sqrt(1 / self.three.count + 1 / TRIALS)
        return float((self.printed["objective 3"] - optima.mean) / deviation)


def read(size: Size, rows: Rows[Trial]) -> Findings:
    table = he24.read_rows(Row, rows, "Table 4", TABLE_4, "n", "d")
    conic = he24.read_rows(Row, rows, "He24-conic, Table 1", CONIC_TABLE_1, "n", "d")
    return Findings(
        [
            PAGE.table("objectives", table, trials=table[0].three.count, settings=HE24, tol=TOL),
            PAGE.table("differing", table),
            PAGE.table("cost", table),
            PAGE.table("fit", table, others=size.trials),
            PAGE.table("conic", conic, trials=conic[0].three.count, settings=ADAPTED),
            PAGE.table("iterations", conic),
            PAGE.table("with_rho", conic, rho=CONIC.rho),
        ],
        [*_claims(table), *_claims_of_conic(conic)],
        PAGE.differences(rho=CONIC.rho),
        {"he24-lcqp": _figure(table)},
    )


def _claims(rows: list[Row]) -> Iterator[Claim]:
    runs = [run for row in rows for run in row.runs]
    worst = max(rows, key=lambda row: row.difference.mean)
    of_paper = max(row.printed["difference"] for row in rows)
    violation = max(run.feasibility for run in runs)
    similar = worst.difference.mean <= of_paper and violation <= TOL and all(run.solved for run in runs)
    solved = he24.count_solved(runs)
    yield PAGE.claim("similar", similar, of_paper=of_paper, worst=worst, violation=violation, solved=solved)

    yield PAGE.claim("optimum", None, far=max(abs(row.excess) for row in rows))

    deviation = max(row.one["objective"].deviation / abs(row.optimum) for row in rows)
    solved = he24.count_solved([run for row in rows for run in row.one.runs])
    yield PAGE.claim("starts", deviation <= SMALL, deviation=deviation, small=SMALL, solved=solved)

    fits = sum(row.fits(OTHERS) for row in rows)
    units = sum(row.fits(UNIT) for row in rows)
    yield PAGE.claim("unit", units >= fits, units=units, fits=fits, number=len(rows))


def _claims_of_conic(rows: list[Row]) -> Iterator[Claim]:
    worst = max(rows, key=lambda row: row.difference.mean)
    printed = [(row.printed["objective 1"], row.printed["objective 3"]) for row in rows]
    of_paper = max(abs(one - three) / abs(three) for one, three in printed)
    violation = max(run.feasibility for row in rows for run in row.runs)
    similar = worst.difference.mean <= of_paper and violation <= TOL
    yield PAGE.claim("conic_similar", similar, of_paper=of_paper, worst=worst, violation=violation)

    yield PAGE.claim("outer", all(abs(row.one["outer"].mean - row.same.mean) <= 1.5 for row in rows), rows)
    if rows[0].three.count > 1:  # one instance has no deviation to compare with
        yield PAGE.claim("objectives", all(abs(row.off) <= 3 for row in rows), rows)


def _figure(rows: list[Row]) -> object:
    """The certificate against exchanges and against bytes, with the most owners."""
    panels = []
    for row in [row for row in rows if row.case.n == max(row.case.n for row in rows)]:
        runs = [row[label].first for label in (ONE, OURS, ACCELERATED)]
        for column, unit, label in ((0, 1, "exchanges"), (1, 1e6, "megabytes, all owners, both ways")):
            lines = {
                run.label: ([step[column] / unit for step in run.history], [step[2] for step in run.history])
                for run in runs
            }
            panels.append(figures.Panel(row.title, label, "certificate", lines, log_x=True, level=TOL))
    return figures.panels(panels)


REPLICATION = Replication(PAGE, Trial, FULL, QUICK, plan, read)
