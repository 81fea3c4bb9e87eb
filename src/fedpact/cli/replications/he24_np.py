"""He24, Tables 1 and 3 and Figure 1, and He24-conic, Table 2: Neyman-Pearson classification on three UCI tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedpact import data
from fedpact.cli.bench_problems import BOUND, table
from fedpact.cli.replications.findings import Claim, Replication, Table, Task
from fedpact.cli.replications.he24_runs import (
    TOL,
    TRIALS,
    Settings,
    Twins,
    by_owner,
    differences_by_owner,
    exchanges,
    on_sphere,
    outer,
    printed_mean,
    solved,
    spread,
    twins,
)
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact.solve import solve
from fedpact.solvers import Solution

PRINTED = Settings(beta=300.0, s=0.001, rho=0.01)
ADAPTED = Settings(beta=300.0, s=0.001, rho=None)

#: He24, Table 1, by (data, n): objective of Algorithms 1 and 3, relative difference, then class-1 loss: mean and max
#: of Algorithm 1, mean and max of Algorithm 3.
TABLE_1 = {
    ("breast-cancer-wisc", 1): (
        "0.27 (1.52e-04)",
        "0.27 (3.02e-05)",
        "7.09e-04 (2.02e-04)",
        "0.20 (1.80e-07)",
        "0.20 (1.80e-07)",
        "0.20 (1.84e-08)",
        "0.20 (1.84e-08)",
    ),
    ("breast-cancer-wisc", 5): (
        "0.34 (4.50e-02)",
        "0.33 (4.55e-02)",
        "1.15e-02 (5.17e-03)",
        "0.19 (7.33e-06)",
        "0.20 (1.08e-06)",
        "0.19 (1.13e-04)",
        "0.20 (1.72e-05)",
    ),
    ("breast-cancer-wisc", 10): (
        "0.37 (1.08e-01)",
        "0.37 (1.08e-01)",
        "3.92e-04 (2.76e-04)",
        "0.17 (1.15e-05)",
        "0.20 (6.05e-09)",
        "0.17 (1.14e-05)",
        "0.20 (2.95e-08)",
    ),
    ("breast-cancer-wisc", 20): (
        "0.46 (2.12e-01)",
        "0.45 (2.12e-01)",
        "3.43e-02 (2.91e-02)",
        "0.16 (3.52e-05)",
        "0.20 (3.76e-06)",
        "0.16 (7.03e-06)",
        "0.20 (7.70e-08)",
    ),
    ("adult", 1): (
        "0.73 (2.19e-04)",
        "0.73 (1.25e-04)",
        "2.24e-04 (3.46e-04)",
        "0.20 (6.30e-07)",
        "0.20 (6.30e-07)",
        "0.20 (1.73e-06)",
        "0.20 (1.73e-06)",
    ),
    ("adult", 5): (
        "0.74 (1.03e-02)",
        "0.74 (1.03e-02)",
        "4.25e-03 (7.44e-04)",
        "0.20 (2.14e-04)",
        "0.20 (2.80e-04)",
        "0.20 (1.21e-05)",
        "0.20 (2.28e-06)",
    ),
    ("adult", 10): (
        "0.77 (1.98e-02)",
        "0.77 (1.98e-02)",
        "2.69e-03 (3.24e-03)",
        "0.19 (6.41e-05)",
        "0.20 (9.76e-05)",
        "0.19 (2.00e-05)",
        "0.20 (1.23e-05)",
    ),
    ("adult", 20): (
        "0.78 (2.86e-02)",
        "0.79 (2.81e-02)",
        "1.13e-02 (4.11e-03)",
        "0.18 (6.40e-04)",
        "0.20 (6.59e-05)",
        "0.18 (1.96e-05)",
        "0.20 (3.19e-06)",
    ),
    ("monks-1", 1): (
        "1.58 (7.61e-05)",
        "1.58 (7.50e-05)",
        "1.39e-05 (1.09e-05)",
        "0.20 (1.09e-07)",
        "0.20 (1.09e-07)",
        "0.20 (3.01e-07)",
        "0.20 (3.01e-07)",
    ),
    ("monks-1", 5): (
        "1.65 (8.39e-02)",
        "1.65 (8.41e-02)",
        "2.08e-04 (1.84e-04)",
        "0.19 (6.39e-05)",
        "0.20 (5.39e-05)",
        "0.19 (5.04e-06)",
        "0.20 (5.60e-07)",
    ),
    ("monks-1", 10): (
        "1.71 (1.18e-01)",
        "1.71 (1.18e-01)",
        "4.59e-04 (3.32e-04)",
        "0.18 (3.98e-05)",
        "0.20 (4.46e-05)",
        "0.18 (6.44e-06)",
        "0.20 (1.60e-06)",
    ),
    ("monks-1", 20): (
        "1.81 (1.49e-01)",
        "1.79 (1.60e-01)",
        "1.78e-02 (1.38e-02)",
        "0.17 (1.68e-04)",
        "0.20 (2.24e-04)",
        "0.17 (4.60e-06)",
        "0.20 (1.62e-06)",
    ),
}
#: He24-conic, Table 2, by (data, n): class-0 loss of Algorithms 1 and 3, then class-1 loss: mean and max of 1, of 3.
TABLE_2 = {
    ("breast-cancer-wisc", 1): (0.2735, 0.2737, 0.2000, 0.2000, 0.2000, 0.2000),
    ("breast-cancer-wisc", 5): (0.3365, 0.3380, 0.1867, 0.2001, 0.1869, 0.2000),
    ("breast-cancer-wisc", 10): (0.3751, 0.3754, 0.1739, 0.2000, 0.1739, 0.2000),
    ("breast-cancer-wisc", 20): (0.4500, 0.4498, 0.1628, 0.2000, 0.1628, 0.2000),
    ("adult", 1): (0.7331, 0.9186, 0.2000, 0.2000, 0.2008, 0.2008),
    ("adult", 5): (0.7465, 0.8610, 0.1966, 0.1995, 0.1957, 0.2000),
    ("adult", 10): (0.7739, 0.8291, 0.1873, 0.2002, 0.1920, 0.2009),
    ("adult", 20): (0.7881, 0.8173, 0.1830, 0.2003, 0.1853, 0.2007),
    ("monks-1", 1): (1.5758, 1.7783, 0.2000, 0.2000, 0.1995, 0.1995),
    ("monks-1", 5): (1.6467, 1.7488, 0.1905, 0.2001, 0.1928, 0.2008),
    ("monks-1", 10): (1.7071, 1.8438, 0.1821, 0.2000, 0.1816, 0.2001),
    ("monks-1", 20): (1.7852, 1.9750, 0.1678, 0.2000, 0.1637, 0.2001),
}
LOADERS: dict[str, Callable[[str | None], data.Table]] = {
    "breast-cancer-wisc": data.breast_cancer_wisconsin,
    "adult": partial(data.adult_a, encoding="codes"),
    "monks-1": partial(data.monks1, encoding="codes"),
}
#: He24, Table 3: rows of class 0 and class 1, features.
TABLE_3 = {"breast-cancer-wisc": (455, 240, 20), "adult": (24715, 7840, 21), "monks-1": (275, 275, 21)}


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


@dataclass(frozen=True, eq=False)
class Row:
    """One data set and number of owners. from_ones: Algorithm 3 from w = (1, ..., 1), as in He24-conic."""

    set: str
    n: int
    settings: Settings
    twins: Twins
    from_ones: Solution
    optimum: Solution
    ours: Solution
    printed: Solution | None

    @property
    def paper(self) -> tuple[str, ...]:
        return TABLE_1[self.set, self.n]

    @property
    def conic(self) -> tuple[float, ...]:
        return TABLE_2[self.set, self.n]

    @property
    def title(self) -> str:
        return f"{self.set}, n = {self.n}"

    def class_0(self, runs: Sequence[Solution]) -> Vector:
        """Runs x owners."""
        return by_owner(self.twins.problem, runs)

    def class_1(self, runs: Sequence[Solution]) -> Vector:
        """Runs x owners."""
        return np.array([bounded(self.twins.problem, s.w) for s in runs])

    @property
    def differences(self) -> Vector:
        return differences_by_owner(self.twins)


def bounded(problem: FederatedProblem, w: Vector) -> Vector:
    """The mean class-1 loss of every owner, which BOUND bounds."""
    return np.array([s.constraint.function.value(w)[0] + BOUND for s in problem.shares if s.constraint is not None])


def replicate(task: Task) -> Replication:
    size = QUICK if task.quick else FULL
    rows = [_row(task, size, name, n) for name, runs in size.runs.items() for n in runs]
    return Replication(
        "He24, Tables 1 and 3 and Figure 1, and He24-conic, Table 2: Neyman-Pearson classification",
        [_objectives(rows), _differing(rows), _feasibility(rows), _cost(rows), _conic(rows), _sets(task, rows)],
        [*_claims(rows), *_claims_of_conic(rows)],
        _differences(rows),
        {"he24-np": _figure(rows)},
    )


def _row(task: Task, size: Size, name: str, n: int) -> Row:
    problem = table(name, LOADERS[name], n, task.folder, 0).problem
    assert problem.dim is not None
    settings = PRINTED if (name, n) in size.printed else ADAPTED
    trials, runs = task.trials or size.trials, task.trials or size.runs[name][n]
    starts = [on_sphere(problem.dim, trial) for trial in range(trials)]
    title = f"{name}, n = {n}"
    task.say(title)
    both = twins(problem, starts, runs, settings, lambda text: task.say(f"{title}: {text}"))
    from_ones = twins(problem, [np.ones(problem.dim)], 0, settings, task.say).three[0]
    optimum, ours = (solve(problem, "interior-point", tol=tol) for tol in (1e-9, TOL))
    printed = None
    if (name, n) in size.also:
        task.say(f"{title}: rho = {PRINTED.rho:g}")
        printed = twins(problem, starts[:1], 1, PRINTED, lambda text: None).one[0]
    return Row(name, n, settings, both, from_ones, optimum, ours, printed)


# -------------------------------------------------------------------------------------------------------------- Table 1


def _objectives(rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        cells = [row.set, str(row.n), str(len(row.twins.one))]
        for runs, paper in ((row.twins.one, row.paper[0]), (row.twins.three, row.paper[1])):
            cells += [spread(row.class_0(runs)), paper]
        starts = [f"{np.std([s.objective for s in runs]):.1e}" for runs in (row.twins.one, row.twins.three)]
        lines.append([*cells, *starts, f"{row.optimum.objective:.4f}"])
    caption = (
        f"He24, Table 1, objective (loss for class 0). Algorithm 3 from {len(rows[0].twins.three)} random starts, "
        "Algorithm 1 from the first ones (runs). In brackets, as in the authors' evaluation, the standard deviation "
        "over owners and starts; starts, 1 and 3: that over the starts alone. optimum: interior-point to 1e-9."
    )
    columns = (
        "data", "n", "runs", "Algorithm 1", "paper", "Algorithm 3", "paper", "starts, 1", "starts, 3", "optimum",
    )  # fmt: skip
    return Table(caption, columns, lines, grouped=True)


def _differing(rows: list[Row]) -> Table:
    lines = [
        [
            row.set,
            str(row.n),
            spread(row.differences, ".2e"),
            row.paper[2],
            f"{np.mean(row.twins.differences):.2e}",
            f"{_excess(row):+.1e}",
        ]
        for row in rows
    ]
    caption = (
        "He24, Table 1, relative difference of Algorithms 1 and 3, mean (standard deviation) over owners and starts as "
        "in the authors' evaluation. total: of the objectives, mean over starts; over optimum: objective of "
        "Algorithm 1 less the optimum, relative, the largest of the runs."
    )
    return Table(caption, ("data", "n", "difference", "paper", "total", "over optimum"), lines, grouped=True)


def _excess(row: Row) -> float:
    least = row.optimum.objective
    return max(((s.objective - least) / least for s in row.twins.one), key=abs)


def _feasibility(rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        cells = [row.set, str(row.n)]
        for i, runs in enumerate((row.twins.one, row.twins.three)):
            losses = row.class_1(runs)
            cells += [spread(losses.mean(axis=1)), row.paper[3 + 2 * i]]
            cells += [spread(losses.max(axis=1)), row.paper[4 + 2 * i]]
        lines.append(cells)
    caption = (
        f"He24, Table 1, feasibility (loss for class 1, at most {BOUND:g}): mean and max over the owners, mean "
        "(standard deviation) over the starts."
    )
    columns = ("data", "n", "mean, 1", "paper", "max, 1", "paper", "mean, 3", "paper", "max, 3", "paper")
    return Table(caption, columns, lines, grouped=True)


def _cost(rows: list[Row]) -> Table:
    lines = [
        [
            row.set,
            str(row.n),
            "adapted" if row.settings.rho is None else f"{row.settings.rho:g}",
            solved(row.twins.one),
            f"{outer(row.twins.one):.1f}",
            f"{outer(row.twins.three):.1f}",
            exchanges(row.twins.one),
            str(row.ours.rounds),
        ]
        for row in rows
    ]
    columns = ("data", "n", "rho", "solved", "outer, 1", "outer, 3", "exchanges, 1", "interior-point")
    caption = (
        f"What it costs (ours; the paper does not say). beta = {PRINTED.beta:g}, s = {PRINTED.s:g}, both certificates "
        f"{TOL:g}. solved: runs of Algorithm 1 whose certificate is met; outer: outer iterations, mean; exchanges: of "
        "Algorithm 1, mean, and of our own method, from zero, to the same tolerance."
    )
    return Table(caption, columns, lines, text=("rho",), grouped=True)


def _claims(rows: list[Row]) -> Iterator[Claim]:
    worst = max(rows, key=lambda row: float(np.mean(row.differences)))
    of_paper = max(printed_mean(row.paper[2]) for row in rows)
    both = [s for row in rows for s in (*row.twins.one, *row.twins.three)]
    highest = max(float(np.max(row.class_1([*row.twins.one, *row.twins.three]))) for row in rows)
    largest = float(np.mean(worst.differences))
    yield Claim(
        "He24, Table 1",
        "Algorithm 1 and Algorithm 3 give solutions of similar quality: relative difference of the objectives at most "
        f"{of_paper:.1e}, class-1 losses at most {BOUND:g}",
        f"relative difference at most {largest:.1e} ({worst.title}), class-1 losses at most {highest:.4f}, "
        f"{solved(both)} runs solved",
        largest <= of_paper and highest <= BOUND + TOL and all(s.solved for s in both),
    )
    over = max(rows, key=lambda row: abs(_excess(row)))
    yield Claim(
        "Table 1 (ours; the paper has no optimum)",
        "-",
        f"objective of Algorithm 1 within {abs(_excess(over)):.1e} of the optimum, relative ({over.title}); "
        f"interior-point needs {min(r.ours.rounds for r in rows)} to {max(r.ours.rounds for r in rows)} exchanges "
        f"where Algorithm 1 needs {min(s.rounds for r in rows for s in r.twins.one)} to "
        f"{max(s.rounds for r in rows for s in r.twins.one)}",
        None,
    )
    several = [row for row in rows if row.n > 1]
    starts = max(float(np.std([s.objective for s in row.twins.three])) for row in several)
    owners = [float(np.std(row.class_0(row.twins.three))) for row in several]
    yield Claim(
        "He24, Table 1",
        "standard deviations of the objective over 10 random trials are 1.0e-2 to 2.1e-1 with 5 owners or more",
        f"over the starts at most {starts:.1e}, over owners and starts {min(owners):.1e} to {max(owners):.1e} "
        "(Algorithm 3)",
        starts >= 1e-2,
        why="the paper's are those of the owners' own losses, which differ because their rows do",
    )
    deviation = max(float(np.std(row.class_1(row.twins.one).mean(axis=1))) for row in rows)
    yield Claim(
        "He24, Table 1",
        "stable over the trials: standard deviation of the class-1 loss at most 6.4e-4",
        f"at most {deviation:.1e} (Algorithm 1, mean of the owners, over the starts)",
        deviation <= 6.4e-4,
    )
    told = [f"{row.title}: {row.optimum.objective:.2f}, paper {printed_mean(row.paper[1]):.2f}" for row in rows]
    yield Claim(
        "He24, Table 1",
        "the objectives",
        f"optimum: {'; '.join(told)}",
        all(abs(row.optimum.objective / printed_mean(row.paper[1]) - 1) <= 0.05 for row in rows),
        why="the features are not the paper's, which are not public",
    )
    sets = {name: [r for r in rows if r.set == name] for name in dict.fromkeys(row.set for row in rows)}
    grown = {name: [r.optimum.objective for r in seen] for name, seen in sets.items()}
    told = [f"{name} {' < '.join(f'{value:.3f}' for value in values)}" for name, values in grown.items()]
    yield Claim(
        "He24, Table 1",
        "the objective grows with the number of owners, each of whom adds a constraint",
        f"optimum: {'; '.join(told)}",
        all(values == sorted(values) for values in grown.values()),
    )
    ends = {row.title: bounded(row.twins.problem, row.twins.curve[-1]).max() for row in rows}
    worst_end = max(ends, key=lambda title: ends[title])
    last = max(abs(row.twins.one[0].objective / row.optimum.objective - 1) for row in rows)
    yield Claim(
        "He24, Figure 1",
        "Algorithm 1 achieves feasibility for all local constraints while also minimizing all local objectives",
        f"after the last outer iteration the class-1 losses are at most {ends[worst_end]:.4f} ({worst_end}), and the "
        f"mean class-0 loss is within {last:.1e} of the optimum, relative",
        max(ends.values()) <= BOUND + TOL and last <= 0.01,
    )


# -------------------------------------------------------------------------------------------------- Table 2, He24-conic


def _conic(rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        one, three = row.twins.one[0], row.from_ones
        cells = [f"{one.objective:.4f}", f"{row.conic[0]:.4f}", f"{three.objective:.4f}", f"{row.conic[1]:.4f}"]
        for i, run in enumerate((one, three)):
            losses = bounded(row.twins.problem, run.w)
            cells += [
                f"{losses.mean():.4f} / {losses.max():.4f}",
                "{:.4f} / {:.4f}".format(*row.conic[2 + 2 * i :][:2]),
            ]
        lines.append([row.set, str(row.n), *cells])
    caption = (
        "He24-conic, Table 2, one run: class-0 loss of Algorithm 1 (from the first start of Table 1) and of Algorithm "
        "3 (from w = (1, ..., 1), as there), and mean / max over the owners of the class-1 loss."
    )
    columns = (
        "data", "n", "class 0, 1", "paper", "class 0, 3", "paper", "class 1, 1", "paper", "class 1, 3", "paper",
    )  # fmt: skip
    return Table(caption, columns, lines, grouped=True)


def _claims_of_conic(rows: list[Row]) -> Iterator[Claim]:
    worst = max(rows, key=lambda row: _apart(row.twins.one[0].objective, row.from_ones.objective))
    there = max(rows, key=lambda row: _apart(row.conic[0], row.conic[1]))
    ours = _apart(worst.twins.one[0].objective, worst.from_ones.objective)
    yield Claim(
        "He24-conic, Table 2",
        "Algorithm 1 and Algorithm 3 yield solutions of similar quality (but in the table Algorithm 3 is up to "
        f"{_apart(there.conic[0], there.conic[1]):.0%} off, {there.title}; He24, Table 1, no longer has that)",
        f"relative difference at most {ours:.1e} ({worst.title}), although they start elsewhere: the problem is convex",
        ours <= 0.01,
    )


def _apart(one: float, three: float) -> float:
    return abs(one - three) / abs(three)


def _sets(task: Task, rows: list[Row]) -> Table:
    lines = []
    for row in rows:
        if row.n == 1:
            zeros, ones = np.bincount(LOADERS[row.set](task.folder).y)
            cells = [f"{zeros}/{ones}", "{}/{}".format(*TABLE_3[row.set]), str(row.twins.problem.dim)]
            lines.append([row.set, *cells, str(TABLE_3[row.set][2])])
    caption = (
        "He24, Table 3: rows of class 0 / class 1, and features; d: coefficients here, with the intercept. The public "
        "files have 9, 14 and 6 columns, categories among them as numbers here; all standardized."
    )
    return Table(caption, ("data", "rows", "paper", "d", "paper"), lines)


def _figure(rows: list[Row]) -> Any:
    given = []
    for row in rows:
        problem, curve = row.twins.problem, row.twins.curve
        zeros = [[len(problem.shares) * s.objective.value(w) for s in problem.shares if s.objective] for w in curve]
        ones = [bounded(problem, w).tolist() for w in curve]
        given.append(figures.banded(row.title, "outer iterations", "loss", {"class 0": zeros, "class 1": ones}, BOUND))
    return figures.panels(given, columns=min(4, len(given)))


def _differences(rows: list[Row]) -> list[str]:
    adapted = [row.title for row in rows if row.settings.rho is None]
    slow = [
        f"{row.title}: {row.printed.rounds} exchanges where the adapted one takes {row.twins.one[0].rounds}, with "
        f"objectives {row.printed.objective:.5f} and {row.twins.one[0].objective:.5f}"
        for row in rows
        if row.printed is not None
    ]
    fewer = [f"{row.title}: {len(row.twins.one)}" for row in rows if len(row.twins.one) < len(row.twins.three)]
    return [
        "the features: the paper's 20, 21 and 21 are not in the public files, and no encoding tried gives its "
        "objectives. Categories are numbers here, which is nearer to 21 columns than the 108 and 17 of one-hot "
        "columns, with which monks-1 also has its optimum at infinity. So the objectives are not the paper's",
        f"rho = {PRINTED.rho:g} as printed, but adapted in {'; '.join(adapted) or 'no row'}, for time. The printed one "
        f"from the same start: {'; '.join(slow) or 'not run'}",
        f"runs of Algorithm 1, for time: {'; '.join(fewer) or 'as many as starts'}. --trials N runs N in every row",
        "one division of the rows into owners (seed 0) for all starts, as in the authors' scripts "
        "(github.com/PL97/Constr_FL); its random order is not ours",
        "the scripts average relative differences and deviations of the objective over owners, which the paper does "
        "not say; both are printed here",
    ]
