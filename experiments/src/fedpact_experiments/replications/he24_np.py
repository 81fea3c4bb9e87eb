"""He24, Tables 1 and 3 and Figure 1, and He24-conic, Table 2: Neyman-Pearson classification on three UCI tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from fedpact import data
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact_experiments import datasets
from fedpact_experiments.bench import problems
from fedpact_experiments.replications import he24, papers
from fedpact_experiments.replications.findings import Claim, Findings
from fedpact_experiments.replications.he24 import ONE, OPTIMUM, OURS, THREE, TOL, TRIALS, Case, Settings, Trial, Twins
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run

PAGE = Page("he24-np")
BOUND = problems.BOUND
PRINTED = Settings(beta=300.0, s=0.001, rho=0.01)
ADAPTED = Settings(beta=300.0, s=0.001, rho=None)

TABLE_1 = papers.table("he24_table_1", keys=2)
CONIC_TABLE_2 = papers.table("he24_conic_table_2", keys=2)
TABLE_3 = papers.table("he24_table_3", keys=1)
LOADERS: dict[str, Callable[[str | None], data.Table]] = {
    "breast-cancer-wisc": datasets.breast_cancer_wisconsin,
    "adult": partial(datasets.adult_a, encoding="codes"),
    "monks-1": partial(datasets.monks1, encoding="codes"),
}
#: Algorithm 1 with the printed rho where the table has another.
WITH_RHO = "Algorithm 1, rho as printed"
#: Rows of either class.
ZEROS = "rows of class 0"
ONES = "rows of class 1"


@dataclass(frozen=True)
class Size:
    """What is run.

    runs:    data -> number of owners -> runs of Algorithm 1
    printed: (data, n) that have the printed rho; also: those that have it too, from the first start
    """

    trials: int
    runs: dict[str, dict[int, int]]
    printed: tuple[tuple[str, int], ...]
    also: tuple[tuple[str, int], ...] = ()


#: Runs are fewer than 10 where one takes Algorithm 1 a minute or so.
FULL = Size(
    TRIALS,
    {
        "breast-cancer-wisc": {1: TRIALS, 5: TRIALS, 10: TRIALS, 20: 5},
        "adult": {1: TRIALS, 5: 3, 10: 3, 20: 2},
        "monks-1": {1: TRIALS, 5: TRIALS, 10: TRIALS, 20: 5},
    },
    (*(("breast-cancer-wisc", n) for n in (1, 5, 10, 20)), ("adult", 1), ("monks-1", 1)),
    (("monks-1", 5),),
)
QUICK = Size(2, {"breast-cancer-wisc": {1: 2, 5: 1}}, (("breast-cancer-wisc", 1), ("breast-cancer-wisc", 5)))


def bounded(problem: FederatedProblem, w: Vector) -> list[float]:
    """The mean class-1 loss of every owner, which BOUND bounds."""
    return [float(s.constraint.function.value(w)[0]) + BOUND for s in problem.shares if s.constraint is not None]


@cache
def _problem(name: str, n: int, folder: str | None) -> FederatedProblem:
    return problems.table(name, LOADERS[name], n, folder, 0).problem


def plan(asked: Asked, size: Size) -> Iterator[Run[Trial]]:
    for name, numbers in size.runs.items():
        for n, runs in numbers.items():
            settings, rho = (PRINTED, f"{PRINTED.rho:g}") if (name, n) in size.printed else (ADAPTED, "adapted")
            case = Case("Table 1", name, n, 0, partial(_problem, name, n, asked.folder), bounded, rho)
            yield Run(f"{case}: rows", partial(_class_sizes, case, asked.folder))
            yield from case.twins(asked.trials or size.trials, asked.trials or runs, settings, he24.sphere)
            yield case.run(OPTIMUM, "interior-point", tol=1e-9)
            yield case.run(OURS, "interior-point")
            if (name, n) in size.also:
                yield case.run(WITH_RHO, "proximal-al", start=he24.sphere(0), **PRINTED.options(ONE))
            conic = replace(case, table="He24-conic, Table 2")
            yield conic.run(THREE, "centralized-proximal-al", start=np.ones, **settings.options(THREE))


def _class_sizes(case: Case, folder: str | None) -> Iterator[Trial]:
    zeros, ones = np.bincount(LOADERS[case.data](folder).y)
    yield case.value(ZEROS, 0, float(zeros))
    yield case.value(ONES, 0, float(ones))


class FromOnes(Twins):
    """He24-conic has one run: of Algorithm 1 from the first start of Table 1 here, of Algorithm 3 from (1, ..., 1)."""

    @property
    def printed_difference(self) -> float:
        return abs(self.printed["objective 1"] - self.printed["objective 3"]) / abs(self.printed["objective 3"])


def read(size: Size, rows: Rows[Trial]) -> Findings:
    table = he24.read_rows(Twins, rows, "Table 1", TABLE_1, "data", "n")
    both = Rows([*(row.one.first for row in table), *rows.where(table="He24-conic, Table 2")])
    conic = [FromOnes(seen, CONIC_TABLE_2[key]) for key, seen in both.by("data", "n").items()]
    return Findings(
        [
            PAGE.table("objectives", table, trials=table[0].three.count),
            PAGE.table("differing", table),
            PAGE.table("feasibility", table, bound=BOUND),
            PAGE.table("cost", table, printed=PRINTED, tol=TOL),
            PAGE.table("conic", conic),
            PAGE.table("sets", [_set(row) for row in table if row.case.n == 1]),
        ],
        [*_claims(table), _claim_of_conic(conic)],
        _differences(table),
        {"he24-np": _figure(table)},
    )


def _set(row: Twins) -> dict[str, object]:
    zeros, ones = (row[label].first.objective for label in (ZEROS, ONES))
    name = row.case.data
    return {"data": name, "zeros": zeros, "ones": ones, "dim": row[OPTIMUM].first.d, "paper": TABLE_3[(name,)]}


def _claims(rows: list[Twins]) -> Iterator[Claim]:
    yield he24.quality(PAGE, rows, BOUND)

    over = max(rows, key=lambda row: abs(row.excess))
    own = [row[OURS].first.exchanges for row in rows]
    one = [run.exchanges for row in rows for run in row.one.runs]
    exchanges = {"own": (min(own), max(own)), "one": (min(one), max(one))}
    yield PAGE.claim("optimum", None, excess=abs(over.excess), over=over, **exchanges)

    several = [row.three for row in rows if row.case.n > 1]
    starts = max(three["objective"].deviation for three in several)
    owners = [three["losses"].deviation for three in several]
    yield PAGE.claim("deviations", starts >= 1e-2, starts=starts, owners=(min(owners), max(owners)))

    deviation = max(row.one.mean_bounded.deviation for row in rows)
    yield PAGE.claim("stable", deviation <= 6.4e-4, deviation=deviation)

    near = all(abs(row.optimum / row.printed["objective 3"] - 1) <= 0.05 for row in rows)
    yield PAGE.claim("objectives", near, rows)

    grown: dict[str, list[float]] = {}
    for row in rows:
        grown.setdefault(row.case.data, []).append(row.optimum)
    told = [f"{name} {' < '.join(f'{value:.3f}' for value in values)}" for name, values in grown.items()]
    yield PAGE.claim("growth", all(values == sorted(values) for values in grown.values()), told="; ".join(told))

    worst = max(rows, key=lambda row: row.end)
    last = max(abs(row.one.first.objective / row.optimum - 1) for row in rows)
    yield PAGE.claim("figure", worst.end <= BOUND + TOL and last <= 0.01, worst=worst, last=last)


def _claim_of_conic(rows: list[FromOnes]) -> Claim:
    worst = max(rows, key=lambda row: row.difference.mean)
    there = max(rows, key=lambda row: row.printed_difference)
    return PAGE.claim("conic", worst.difference.mean <= 0.01, worst=worst, there=there)


def _differences(rows: list[Twins]) -> list[str]:
    adapted = [row.title for row in rows if row.case.setting == "adapted"]
    slow = [
        f"{row.title}: {run.exchanges} exchanges where the adapted one takes {row.one.first.exchanges}, with "
        f"objectives {run.objective:.5f} and {row.one.first.objective:.5f}"
        for row in rows
        for run in row[WITH_RHO].runs
    ]
    return PAGE.differences(
        rho=PRINTED.rho,
        adapted="; ".join(adapted) or "no row",
        slow="; ".join(slow) or "not run",
        fewer=he24.fewer_runs(rows),
    )


def _figure(rows: list[Twins]) -> object:
    given = [he24.course(row, "loss", BOUND, "class 0", "class 1") for row in rows]
    return figures.panels(given, columns=min(4, len(given)))


REPLICATION = Replication(PAGE, Trial, FULL, QUICK, plan, read)
