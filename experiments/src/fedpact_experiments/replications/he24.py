"""Algorithm 1 and Algorithm 3 of He24 side by side: one problem, the same starts, the same penalty and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedpact.federation import Order
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact.solve import solve
from fedpact.solvers.constrained.proximal_al import Conclude
from fedpact_experiments.replications import papers
from fedpact_experiments.replications.findings import Claim
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows, Spread
from fedpact_experiments.replications.runner import Run
from fedpact_experiments.trace import Watched

#: Of both certificates, in all experiments of the paper.
TOL = 1e-3
#: Exchanges after which a run of Algorithm 1 is ended.
MOST = 20_000
#: Random starts or instances, in all experiments of the paper that have several.
TRIALS = 10
#: Labels of the runs: the paper's two algorithms, and our method.
ONE = "Algorithm 1"
THREE = "Algorithm 3"
OURS = "interior-point"
#: Exact, or solved to a tight tolerance.
OPTIMUM = "optimum"

ByHolder = Callable[[FederatedProblem, Vector], list[float]]
Start = Callable[[int], Vector]


@dataclass(frozen=True)
class Settings:
    """The paper's letters: beta, the penalty; s, of the accuracies; rho, of the consensus (None: adapted, ours)."""

    beta: float
    s: float
    rho: float | None

    def __str__(self) -> str:
        rho = "adapted" if self.rho is None else f"= {self.rho:g}"
        return f"beta = {self.beta:g}, s = {self.s:g}, rho {rho}"

    def options(self, label: str) -> dict[str, Any]:
        given: dict[str, Any] = {"penalty": self.beta, "accuracy": self.s}
        if label != THREE:
            given |= {"consensus_penalty": self.rho, "max_rounds": MOST}
        return given


@dataclass(frozen=True)
class Trial:
    """One run of one method, and what its answer measures.

    table, data, n, d:  which row of which table                      label, trial: which run of that row
    setting:            what is particular about the row
    losses, bounded:    of every owner, and of every holder of a constraint what it bounds
    history:            exchanges, bytes and certificate after every outer iteration
    courses:            losses and bounded after every outer iteration, for the runs that a figure shows
    largest:            the largest coefficient, without its sign
    """

    table: str
    data: str
    n: int
    d: int
    label: str
    trial: int
    objective: float
    setting: str = ""
    solved: bool = True
    exchanges: int = 0
    outer: int = 0
    certificate: float = 0.0
    feasibility: float = 0.0
    largest: float = 0.0
    losses: list[float] = field(default_factory=list)
    bounded: list[float] = field(default_factory=list)
    history: list[list[float]] = field(default_factory=list)
    courses: list[list[list[float]]] = field(default_factory=list)


def losses(problem: FederatedProblem, w: Vector) -> list[float]:
    """Every owner's own mean loss, of which the objective is the mean."""
    n = len(problem.shares)
    return [n * share.objective.value(w) for share in problem.shares if share.objective is not None]


@dataclass(frozen=True)
class Case:
    """One row of a table: its problem, and what its constraints bound."""

    table: str
    data: str
    n: int
    d: int
    problem: Callable[[], FederatedProblem]
    bounded: ByHolder = lambda problem, w: []
    setting: str = ""

    def __str__(self) -> str:
        parts = [self.table, self.data, f"n = {self.n}", f"d = {self.d}" if self.d else ""]
        return ", ".join(part for part in parts if part)

    def value(self, label: str, trial: int, objective: float) -> Trial:
        """A number that no run gives."""
        return Trial(self.table, self.data, self.n, self.d, label, trial, objective, self.setting)

    def run(
        self, label: str, method: str, trial: int = 0, start: Start | None = None, course: bool = False, **options: Any
    ) -> Run[Trial]:
        """A method on the problem, from a start of its dimension. course: is what it measures on the way kept?"""
        return Run(
            f"{self}: {label}, trial {trial + 1}",
            lambda: [self._measure(label, method, trial, start, course, {"tol": TOL} | options)],
        )

    def _measure(
        self, label: str, method: str, trial: int, start: Start | None, course: bool, options: dict[str, Any]
    ) -> Trial:
        problem = self.problem()
        assert problem.dim is not None
        if start is not None:
            options["w0"] = start(problem.dim)
        points: list[Vector] = []
        if course:
            options["session"] = Watched(partial(_keep_conclusions, points))
            points.append(options["w0"])
        answer = solve(problem, method, **options)
        return replace(
            self.value(label, trial, answer.objective),
            d=problem.dim,
            solved=answer.solved,
            exchanges=answer.rounds,
            outer=answer.history.outer[-1].iteration,
            certificate=answer.certificate.worst,
            feasibility=answer.certificate.feasibility,
            largest=float(np.max(np.abs(answer.w))),
            losses=losses(problem, answer.w),
            bounded=self.bounded(problem, answer.w),
            history=[[r.rounds, r.bytes, max(r.stationarity, r.feasibility)] for r in answer.history.outer],
            courses=[[measure(problem, w) for w in points] for measure in (losses, self.bounded)],
        )

    def twins(self, trials: int, runs: int, settings: Settings, starts: Callable[[int], Start]) -> Iterator[Run[Trial]]:
        """Algorithm 3 from all starts, Algorithm 1 from the first ones; the first run of it with its course."""
        for label, method, count in ((THREE, "centralized-proximal-al", trials), (ONE, "proximal-al", runs)):
            for trial in range(count):
                watched = label == ONE and trial == 0
                yield self.run(label, method, trial, starts(trial), watched, **settings.options(label))


def _keep_conclusions(points: list[Vector], order: Order, exchanges: int) -> None:
    """The point that ends an outer iteration of Algorithm 1."""
    if isinstance(order, Conclude):
        points.append(order.w)


def on_sphere(dim: int, trial: int) -> Vector:
    """The start of a trial: uniform on the unit Euclidean sphere."""
    w = np.random.default_rng(trial).standard_normal(dim)
    return np.asarray(w / np.linalg.norm(w))


def sphere(trial: int) -> Start:
    return partial(on_sphere, trial=trial)


# ---------------------------------------------------------------------------------------------------- a row of a table


@dataclass(frozen=True, eq=False)
class Side:
    """The runs of one label in a row of a table."""

    runs: Rows[Trial]

    def __getitem__(self, field: str) -> Spread:
        """A field of the runs, spread over the starts (and over the owners, where each has one of its own)."""
        return self.runs.spread(field)

    @property
    def count(self) -> int:
        return len(self.runs)

    @property
    def first(self) -> Trial:
        return self.runs[0]

    @property
    def mean_bounded(self) -> Spread:
        """The mean over the holders of what their constraints bound."""
        return Spread(np.mean(self.runs.of("bounded"), axis=1))

    @property
    def max_bounded(self) -> Spread:
        return Spread(np.max(self.runs.of("bounded"), axis=1))

    @property
    def solved(self) -> str:
        return count_solved(self.runs)


@dataclass(frozen=True, eq=False)
class Twins:
    """A row of a table: the two algorithms from the same starts (Algorithm 1 from the first ones), and other runs.

    paper: what the paper prints in this row
    """

    rows: Rows[Trial]
    paper: Mapping[str, str]

    def __getitem__(self, label: str) -> Side:
        return Side(self.rows.where(label=label))

    @property
    def one(self) -> Side:
        return self[ONE]

    @property
    def three(self) -> Side:
        return self[THREE]

    @property
    def runs(self) -> list[Trial]:
        return [*self.one.runs, *self.three.runs]

    @property
    def optimum(self) -> float:
        return self[OPTIMUM].first.objective

    @property
    def case(self) -> Trial:
        """Any run: it knows of which row it is."""
        return self.rows[0]

    @property
    def title(self) -> str:
        return f"{self.case.data}, n = {self.case.n}" if self.case.data else f"n = {self.case.n}"

    @property
    def printed(self) -> dict[str, float]:
        """The means of what the paper prints as 'mean (deviation)'."""
        return {column: float(cell.split()[0]) for column, cell in self.paper.items()}

    @property
    def difference(self) -> Spread:
        """|f(w_1) - f(w_3)| / |f(w_3)| for every start that both have."""
        pairs = zip(self.one.runs, self.three.runs, strict=False)
        return Spread([abs(a.objective - b.objective) / abs(b.objective) for a, b in pairs])

    @property
    def difference_by_owner(self) -> Spread:
        """|f_i(w_1) - f_i(w_3)| / |f_i(w_3)|, starts x owners: what the authors' evaluation script averages."""
        one = np.array(self.one.runs.of("losses"))
        three = np.array(self.three.runs.of("losses"))[: len(one)]
        return Spread(np.abs(one - three) / np.abs(three))

    @property
    def excess(self) -> float:
        """Objective of Algorithm 1 less the optimum, relative: that of the run with most of it, with its sign."""
        return max(((run.objective - self.optimum) / self.optimum for run in self.one.runs), key=abs)

    @property
    def highest(self) -> float:
        """The largest of what the constraints bound, of all runs of both."""
        return max(max(run.bounded) for run in self.runs)

    @property
    def end(self) -> float:
        """The largest of what the constraints bound after the last outer iteration of the run of the figure."""
        return max(self.one.first.courses[1][-1])


Kind = TypeVar("Kind", bound=Twins)


def read_rows(kind: type[Kind], rows: Rows[Trial], table: str, printed: papers.Printed, *keys: str) -> list[Kind]:
    """The rows of a table, beside what the paper prints. keys: the fields by which the paper's rows are found"""
    return [kind(seen, printed[key]) for key, seen in rows.where(table=table).by(*keys).items()]


def count_solved(trials: Sequence[Trial]) -> str:
    return f"{sum(trial.solved for trial in trials)} of {len(trials)}"


def quality(page: Page, rows: Sequence[Twins], bound: float) -> Claim:
    """Algorithm 1 gives solutions of the quality of Algorithm 3's."""
    worst = max(rows, key=lambda row: row.difference_by_owner.mean)
    of_paper = max(row.printed["difference"] for row in rows)
    highest = max(row.highest for row in rows)
    runs = [run for row in rows for run in row.runs]
    near = worst.difference_by_owner.mean <= of_paper and highest <= bound + TOL
    numbers: dict[str, Any] = {
        "bound": bound,
        "of_paper": of_paper,
        "worst": worst,
        "highest": highest,
        "solved": count_solved(runs),
    }
    return page.claim("quality", near and all(run.solved for run in runs), **numbers)


def fewer_runs(rows: Sequence[Twins]) -> str:
    """The rows with fewer runs of Algorithm 1 than of Algorithm 3."""
    fewer = [f"{row.title}: {row.one.count}" for row in rows if row.one.count < row.three.count]
    return "; ".join(fewer) or "as many as starts"


def course(row: Twins, y: str, bound: float, losses: str, bounded: str, server: str | None = None) -> figures.Panel:
    """What the first run of Algorithm 1 measured on its way, by these names; the server is the first holder."""
    of_losses, of_holders = row.one.first.courses
    lines = {losses: of_losses, bounded: of_holders}
    if server is not None:
        lines[bounded] = [values[1:] for values in of_holders]
        lines[server] = [values[:1] for values in of_holders]
    return draw_bands(row.title, y, lines, bound)


def draw_bands(title: str, y: str, values: Mapping[str, Sequence[Sequence[float]]], level: float) -> figures.Panel:
    """Means as lines, in bands from minimum to maximum. values: label -> one sequence for each outer iteration."""
    lines = {}
    bands = {}
    for label, samples in values.items():
        iterations = [float(i) for i in range(len(samples))]
        lines[label] = (iterations, [sum(sample) / len(sample) for sample in samples])
        bands[label] = ([min(sample) for sample in samples], [max(sample) for sample in samples])
    return figures.Panel(title, "outer iterations", y, lines, log_y=False, bands=bands, level=level)
