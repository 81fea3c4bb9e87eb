"""He24, Table 4, and He24-conic, Table 1: quadratic programs with linear equalities at the server and every owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact import data, tasks
from fedpact.cli.replications.findings import Claim, Replication, Table, Task
from fedpact.cli.replications.he24_runs import (
    TOL,
    TRIALS,
    Settings,
    Twins,
    exchanges,
    on_sphere,
    outer,
    printed_mean,
    solved,
    spread,
    twins,
)
from fedpact.report import figures
from fedpact.solve import solve
from fedpact.solvers import Solution

#: Equalities a holder, for each d of the tables.
EQUALITIES = {100: 1, 300: 3, 500: 5}
HE24 = Settings(beta=10.0, s=0.1, rho=1.0)
CONIC = Settings(beta=1.0, s=0.01, rho=1.0)
ADAPTED = replace(CONIC, rho=None)
#: A standard deviation over the starts that is small, as a part of the objective; the paper's are at most 4.5e-5.
SMALL = 1e-4

#: He24, Table 4, by (n, d): objective of Algorithms 1 and 3, relative difference, violation of 1 and 3.
TABLE_4 = {
    (1, 100): ("-0.23 (4.65e-6)", "-0.23 (2.38e-5)", "1.63e-3 (1.01e-4)", "3.33e-4 (1.14e-5)", "5.68e-4 (2.82e-5)"),
    (1, 300): ("-0.37 (2.74e-6)", "-0.37 (1.32e-6)", "1.01e-3 (3.51e-5)", "3.52e-4 (1.44e-5)", "4.45e-4 (1.70e-5)"),
    (1, 500): ("-0.30 (1.36e-5)", "-0.30 (7.54e-6)", "1.34e-3 (4.62e-5)", "4.38e-4 (5.36e-5)", "3.85e-4 (1.05e-5)"),
    (5, 100): ("9.81 (7.18e-5)", "9.80 (1.46e-5)", "1.09e-3 (7.96e-6)", "1.34e-4 (9.02e-6)", "8.03e-4 (1.57e-6)"),
    (5, 300): ("8.47 (8.12e-5)", "8.45 (1.30e-5)", "1.36e-3 (9.62e-6)", "1.09e-4 (1.31e-5)", "8.28e-4 (1.98e-6)"),
    (5, 500): ("9.92 (4.43e-5)", "9.91 (4.87e-6)", "8.26e-4 (4.27e-6)", "1.33e-4 (9.68e-6)", "3.73e-4 (2.43e-7)"),
    (10, 100): ("49.40 (9.02e-5)", "49.37 (5.82e-6)", "5.59e-4 (1.67e-5)", "7.31e-5 (7.54e-6)", "5.88e-4 (1.34e-7)"),
    (10, 300): ("41.49 (7.04e-5)", "41.44 (5.48e-6)", "1.14e-3 (1.77e-6)", "8.56e-5 (2.27e-7)", "8.73e-4 (7.26e-6)"),
    (10, 500): ("41.45 (2.25e-5)", "41.41 (5.30e-6)", "9.39e-4 (4.94e-7)", "9.29e-4 (2.55e-6)", "7.66e-4 (1.37e-7)"),
}
#: He24-conic, Table 1, by (n, d): objective, violation in 1e-4, outer iterations, of Algorithms 1 and 3 each.
TABLE_1 = {
    (1, 100): (-6.1982, -6.1982, 1.1986, 3.0593, 5.6, 5.0),
    (5, 100): (-5.4337, -5.4348, 5.5226, 7.6943, 6.0, 6.8),
    (10, 100): (-0.8998, -0.9021, 7.7720, 6.9185, 8.5, 9.0),
    (1, 300): (-20.0387, -20.0387, 0.0920, 0.9312, 5.9, 5.0),
    (5, 300): (-16.7407, -16.7408, 1.4489, 1.9619, 5.0, 5.0),
    (10, 300): (-12.9434, -12.9449, 4.4227, 5.3871, 5.9, 6.8),
    (1, 500): (-33.0971, -33.0971, 7.5226, 0.9430, 5.9, 5.0),
    (5, 500): (-30.8218, -30.8220, 4.4055, 4.5350, 4.0, 4.0),
    (10, 500): (-24.7565, -24.7583, 4.4589, 6.8591, 5.0, 5.1),
}


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


@dataclass(frozen=True, eq=False)
class Row:
    """A row of Table 4: one instance from several starts. optima: of other instances; unit: of those with unit d_0."""

    n: int
    d: int
    twins: Twins
    optimum: float
    ours: dict[str, Solution]
    optima: list[float]
    unit: list[float]

    @property
    def paper(self) -> tuple[str, ...]:
        return TABLE_4[self.n, self.d]

    def near(self, optima: list[float]) -> bool:
        """Is the paper's objective within two standard deviations of these?"""
        return bool(abs(printed_mean(self.paper[1]) - np.mean(optima)) <= 2 * np.std(optima))


@dataclass(frozen=True, eq=False)
class Instances:
    """A row of Table 1: random instances, each from w = (1, ..., 1)."""

    n: int
    d: int
    each: list[Twins]
    optima: list[float]
    ours: list[Solution]
    printed: Solution | None

    @property
    def one(self) -> list[Solution]:
        return [s for twin in self.each for s in twin.one]

    @property
    def three(self) -> list[Solution]:
        return [s for twin in self.each for s in twin.three]

    @property
    def paper(self) -> tuple[float, ...]:
        return TABLE_1[self.n, self.d]

    @property
    def difference(self) -> float:
        return float(np.mean([d for twin in self.each for d in twin.differences]))

    @property
    def off(self) -> float:
        """The paper's mean of 10 optima less ours, in standard deviations of such a difference."""
        deviation = np.std(self.optima) * np.sqrt(1 / len(self.optima) + 1 / TRIALS)
        return float((self.paper[1] - np.mean(self.optima)) / deviation)


def replicate(task: Task) -> Replication:
    size = QUICK if task.quick else FULL
    rows = [_row(task, size, n, d) for n in size.starts for d in size.dims]
    instances = [_instances(task, size, n, d) for d in size.dims for n in size.instances]
    return Replication(
        "He24, Table 4, and He24-conic, Table 1: quadratic programs with linear equalities",
        [
            _objectives(rows),
            _differing(rows),
            _cost(rows),
            _fit(rows),
            _table_1(instances),
            _iterations(instances),
            _with_printed_rho(instances),
        ],
        [*_claims_of_table_4(rows), *_claims_of_table_1(instances)],
        _differences(),
        {"he24-lcqp": _figure(rows)},
    )


def _row(task: Task, size: Size, n: int, d: int) -> Row:
    name = f"Table 4, n = {n}, d = {d}"
    task.say(name)
    arrays = data.lcqp(n, d, EQUALITIES[d])
    problem = tasks.linear_qp(*arrays)
    runs = task.trials or size.starts[n]
    starts = [on_sphere(d, trial) for trial in range(task.trials or size.trials)]
    both = twins(problem, starts, runs, HE24, lambda text: task.say(f"{name}: {text}"))
    ours = {method: solve(problem, method, tol=TOL) for method in ("interior-point", "accelerated")}
    others = [data.lcqp(n, d, EQUALITIES[d], seed) for seed in range(1, size.trials + 1)]
    optima = [tasks.exact(*other).objective for other in others]
    unit = [tasks.exact(*_with_unit_server(other, seed)).objective for seed, other in enumerate(others)]
    return Row(n, d, both, tasks.exact(*arrays).objective, ours, optima, unit)


def _with_unit_server(arrays: data.QPArrays, seed: int) -> data.QPArrays:
    """The instance with d_0 on the unit sphere, as the text of He24 has it."""
    offset = arrays.d.copy()
    offset[0] = on_sphere(len(offset[0]), seed)
    return arrays._replace(d=offset)


def _instances(task: Task, size: Size, n: int, d: int) -> Instances:
    name = f"He24-conic, Table 1, n = {n}, d = {d}"
    trials, runs = task.trials or size.trials, task.trials or size.instances[n]
    each, optima, ours = [], [], []
    for seed in range(trials):
        task.say(f"{name}: instance {seed + 1} of {trials}{'' if seed < runs else ', Algorithm 3 only'}")
        arrays = data.lcqp(n, d, EQUALITIES[d], seed, "he24-conic")
        problem = tasks.linear_qp(*arrays)
        each.append(twins(problem, [np.ones(d)], int(seed < runs), ADAPTED, lambda text: None))
        optima.append(tasks.exact(*arrays).objective)
        ours.append(solve(problem, "interior-point", tol=TOL))
    printed = None
    if (n, d) in size.printed:
        task.say(f"{name}: instance 1, rho = {CONIC.rho:g}")
        printed = twins(each[0].problem, [np.ones(d)], 1, CONIC, lambda text: None).one[0]
    return Instances(n, d, each, optima, ours, printed)


# -------------------------------------------------------------------------------------------------------------- Table 4


def _violations(solutions: Sequence[Solution]) -> list[float]:
    return [s.certificate.feasibility for s in solutions]


def _objectives(rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        one, three = ([s.objective for s in runs] for runs in (row.twins.one, row.twins.three))
        cells = [spread(one), row.paper[0], spread(three), row.paper[1], f"{row.optimum:.4f}"]
        lines.append([str(row.n), str(row.d), *cells])
    caption = (
        f"He24, Table 4, objective: mean (standard deviation) over {len(rows[0].twins.three)} random starts on one "
        "instance (Algorithm 1: over as many as the third table has), and what the paper has on its own instance. "
        f"{HE24}; d / 100 equalities a holder; both certificates at most {TOL:g}. optimum: exact, by one linear solve."
    )
    return Table(caption, ("n", "d", "Algorithm 1", "paper", "Algorithm 3", "paper", "optimum"), lines, grouped=True)


def _differing(rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        one, three = (spread(_violations(runs), ".1e") for runs in (row.twins.one, row.twins.three))
        cells = [spread(row.twins.differences, ".1e"), row.paper[2], one, row.paper[3], three, row.paper[4]]
        lines.append([str(row.n), str(row.d), *cells])
    caption = (
        "He24, Table 4, the other columns. difference: |objective of Algorithm 1 - of Algorithm 3| / |of Algorithm 3|; "
        "violation: of the equalities, largest entry."
    )
    columns = ("n", "d", "difference", "paper", "violation, 1", "paper", "violation, 3", "paper")
    return Table(caption, columns, lines, grouped=True)


def _cost(rows: list[Row]) -> Table:
    lines = [
        [
            str(row.n),
            str(row.d),
            solved(row.twins.one),
            f"{outer(row.twins.one):.1f}",
            f"{outer(row.twins.three):.1f}",
            exchanges(row.twins.one),
            *(str(answer.rounds) for answer in row.ours.values()),
        ]
        for row in rows
    ]
    columns = ("n", "d", "solved", "outer, 1", "outer, 3", "exchanges, 1", *rows[0].ours)
    caption = (
        "Table 4, what it costs (ours; the paper does not say). solved: runs of Algorithm 1 whose certificate is met; "
        "outer: outer iterations, mean; exchanges: of Algorithm 1, mean, and of our own methods to the same tolerance."
    )
    return Table(caption, columns, lines, grouped=True)


def _fit(rows: list[Row]) -> Table:
    lines = [
        [
            str(row.n),
            str(row.d),
            row.paper[1].split()[0],
            f"{np.mean(row.optima):.2f} ({np.std(row.optima):.2f})",
            f"{np.mean(row.unit):.2f} ({np.std(row.unit):.2f})",
        ]
        for row in rows
    ]
    caption = (
        f"Exact optima of {len(rows[0].optima)} other random instances, mean (standard deviation), with the server's "
        "equality C_0 w = 0, as everywhere on this page, and with a unit vector d_0, as the text of He24 has it."
    )
    return Table(caption, ("n", "d", "paper", "d_0 = 0", "unit d_0"), lines, grouped=True)


def _claims_of_table_4(rows: list[Row]) -> Iterator[Claim]:
    worst = max(rows, key=lambda row: float(np.mean(row.twins.differences)))
    largest = float(np.mean(worst.twins.differences))
    of_paper = max(printed_mean(row.paper[2]) for row in rows)
    both = [s for row in rows for s in (*row.twins.one, *row.twins.three)]
    violation = max(_violations(both))
    yield Claim(
        "He24, Table 4",
        f"Algorithm 1 and Algorithm 3 have similar objectives (relative difference at most {of_paper:.1e}) and are "
        "nearly feasible (violation below 1e-3)",
        f"relative difference at most {largest:.1e} (n = {worst.n}, d = {worst.d}), violation at most {violation:.1e}, "
        f"{solved(both)} runs solved",
        largest <= of_paper and violation <= TOL and all(s.solved for s in both),
    )
    far = max(abs(s.objective - row.optimum) / abs(row.optimum) for row in rows for s in row.twins.one)
    yield Claim(
        "Table 4 (ours; the paper has no exact optimum)",
        "-",
        f"objective of Algorithm 1 within {far:.1e} of the optimum, relative, the most of all runs",
        None,
    )
    deviation = max(float(np.std([s.objective for s in row.twins.one])) / abs(row.optimum) for row in rows)
    yield Claim(
        "He24, Table 4",
        "the starts hardly matter: standard deviation of the objective of Algorithm 1 at most 4.5e-5 of its mean",
        f"at most {deviation:.1e} (small: {SMALL:g})",
        deviation <= SMALL,
        why=f"{solved([s for row in rows for s in row.twins.one])} of these runs meet the tolerance, which leaves that "
        "much room",
    )
    fits, units = [row.near(row.optima) for row in rows], [row.near(row.unit) for row in rows]
    yield Claim(
        "He24, Table 4 and Appendix E.2",
        "d_0 is uniform on the unit sphere",
        f"the paper's objective is within two standard deviations of our optima in {sum(units)} of {len(rows)} rows "
        f"with a unit d_0, in {sum(fits)} of {len(rows)} with d_0 = 0",
        sum(units) >= sum(fits),
        why="the text and the table of the paper do not fit each other",
    )


# -------------------------------------------------------------------------------------------------- Table 1, He24-conic


def _table_1(every: list[Instances]) -> Table:
    lines = []
    for row in every:
        cells = [str(row.d), str(row.n), str(len(row.one))]
        for runs, paper in ((row.one, row.paper[0]), (row.three, row.paper[1])):
            cells += [spread([s.objective for s in runs], ".3f"), f"{paper:.3f}"]
        lines.append([*cells, spread(row.optima, ".3f"), f"{row.difference:.0e}"])
    caption = (
        f"He24-conic, Table 1, objective: mean (standard deviation) over random instances, from w = (1, ..., 1). "
        f"Algorithm 3 and the exact optimum on {len(every[0].three)} instances, Algorithm 1 on the first ones (runs). "
        f"{ADAPTED}. difference: of the two on the same instance, relative, mean."
    )
    columns = ("d", "n", "runs", "Algorithm 1", "paper", "Algorithm 3", "paper", "optimum", "difference")
    return Table(caption, columns, lines, grouped=True)


def _iterations(every: list[Instances]) -> Table:
    lines = []
    for row in every:
        cells = [str(row.d), str(row.n)]
        for runs, paper in ((row.one, row.paper[2]), (row.three, row.paper[3])):
            cells += [f"{1e4 * np.mean(_violations(runs)):.1f}", f"{paper:.1f}"]
        for runs, paper in ((row.one, row.paper[4]), (row.three, row.paper[5])):
            cells += [f"{outer(runs):.1f}", f"{paper:.1f}"]
        lines.append(cells)
    columns = ("d", "n", "violation, 1", "paper", "violation, 3", "paper", "outer, 1", "paper", "outer, 3", "paper")
    caption = "He24-conic, Table 1, the other columns, means. violation: in 1e-4, largest entry; outer: iterations."
    return Table(caption, columns, lines, grouped=True)


def _with_printed_rho(every: list[Instances]) -> Table:
    lines = []
    for row in every:
        first = row.each[0].one[0]
        paper = ("not run", "") if row.printed is None else (f"{row.printed.objective:.4f}", str(row.printed.rounds))
        cells = [f"{first.objective:.4f}", str(first.rounds), *paper, str(row.ours[0].rounds)]
        lines.append([str(row.d), str(row.n), *cells])
    columns = ("d", "n", "rho adapted", "exchanges", f"rho = {CONIC.rho:g}", "exchanges", "interior-point")
    caption = (
        "He24-conic, Table 1, first instance: objective and exchanges of Algorithm 1 with the adapted and with the "
        "printed rho, and the exchanges of our own method to the same certificate."
    )
    return Table(caption, columns, lines, grouped=True)


def _claims_of_table_1(every: list[Instances]) -> Iterator[Claim]:
    worst = max(every, key=lambda row: row.difference)
    violation = max(_violations([s for row in every for s in (*row.one, *row.three)]))
    of_paper = max(abs(row.paper[0] - row.paper[1]) / abs(row.paper[1]) for row in every)
    yield Claim(
        "He24-conic, Table 1",
        "Algorithm 1 and Algorithm 3 are similar in objective (means differ by at most "
        f"{of_paper:.1e}) and violation (below 1e-3)",
        f"relative difference on the same instance at most {worst.difference:.1e} (n = {worst.n}, d = {worst.d}), "
        f"violation at most {violation:.1e}",
        worst.difference <= of_paper and violation <= TOL,
    )
    # On the same instances: Algorithm 1 has not run on all of them.
    pairs = [(row, [pair for twin in row.each for pair in twin.pairs]) for row in every]
    counts = {(row.n, row.d): tuple(outer([p[i] for p in seen]) for i in (0, 1)) for row, seen in pairs}
    told = [f"n = {n}, d = {d}: {one:.1f} and {three:.1f}" for (n, d), (one, three) in counts.items()]
    yield Claim(
        "He24-conic, Table 1",
        "Algorithm 1 is as efficient as Algorithm 3 in outer iterations (4.0 to 8.5 and 4.0 to 9.0)",
        f"outer iterations of Algorithms 1 and 3 on the same instances: {'; '.join(told)}",
        all(abs(one - three) <= 1.5 for one, three in counts.values()),
    )
    if len(every[0].optima) < 2:  # no deviation to compare with
        return
    told = [f"n = {row.n}, d = {row.d}: {row.off:+.1f}" for row in every]
    yield Claim(
        "He24-conic, Table 1",
        "the objectives",
        f"the paper's mean less that of our optima, in standard deviations of such a difference: {'; '.join(told)}",
        all(abs(row.off) <= 3 for row in every),
    )


def _figure(rows: list[Row]) -> Any:
    shown = [row for row in rows if row.n == max(r.n for r in rows)]
    lines = {f"n = {row.n}, d = {row.d}": {"Algorithm 1": row.twins.one[0], **row.ours} for row in shown}
    return figures.convergence(lines)


def _differences() -> list[str]:
    return [
        "the instances are ours: the paper's random numbers are not known. In Table 4 it has one instance a row, so "
        "its objectives can only be compared with what such instances have (fourth table)",
        "d_0 = 0 in Table 4, where the text has a unit vector: the fourth table says why",
        f"He24-conic, Table 1: rho of Algorithm 1 is adapted. With the printed {CONIC.rho:g} it ends at the same "
        "point, but takes up to thousands of exchanges an instance: see the last table, where it has run",
        "fewer runs of Algorithm 1 than the paper's 10 with 10 owners, for time; --trials N runs N in every row",
        "violation is the largest entry of C_i w + d_i over all holders; the paper does not say its norm",
        "subproblems are solved by a kept Cholesky factor, with an accuracy that decays by q = 0.1 a round; the papers "
        "solve them exactly and do not say q",
    ]
