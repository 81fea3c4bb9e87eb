"""What a coordinator that is free to choose orders and tasks gets in a few runs, with a site's rules and without them.

Every attack is written for sites that would answer it, and goes on until it is refused; a refusal is an answer, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.data.encoding import Scaling
from fedpact.errors import FedpactError
from fedpact.solvers.steps import At, Conclude, conclude, judge
from fedpact.tasks import Classification
from fedpact.tasks.requirements import LOSS, Requirement
from fedpact.types import Matrix, Vector
from fedpact_experiments.attacks.hospitals import COLUMNS, OWNERS, Coordinator, Hospitals, write_hospitals

#: What all columns are scaled by; the coordinator knows it from a first, honest run.
FAIR = Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 3.0))
JOB = Classification(label="ill", columns=COLUMNS, standardize=True)
RUNS = 5
#: A row counts as recovered exactly, or roughly, when all its features are this near, in deviations of the column.
EXACTLY = 1e-4
ROUGHLY = 0.02
#: Size of a model that sites allow, with its intercept.
LARGEST = 29.5
#: Refusals of one order, after which another may be answered in the same run.
ELSEWHERE = ("FP-REFUSED-653",)
#: Rules of site.toml that an attack needs switched off, by name.
OFF = {
    "model_size": "[limit]\nmodel_size = 1e300",
    "effective_rows": "[require]\neffective_rows = 0",
    "least_share": "[require]\nleast_share = 0",
    "bounds_apart": "[limit]\nbounds_apart = 1e300",
    "boundary_rows": "[require]\nboundary_rows = 0",
    "exchanges": "[limit]\nexchanges = 100000",
}


@dataclass
class Attacker:
    """A coordinator in several runs, one after the other; it begins another when the one it is in is over."""

    hospitals: Hospitals
    job: Classification = JOB
    runs: int = 0
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    _run: Coordinator | None = None
    _sites: dict[str, Any] = field(default_factory=dict)

    def gradient(self, w: Vector) -> Vector | None:
        """The sum of all owners' gradients at w; None where no run is left that tells it."""
        answer = self._ask(judge, At(w=w), self._with(FAIR))
        return None if answer is None else np.asarray(answer.gradient)

    def ask_each(self, order: Conclude) -> dict[str, Any] | None:
        """What each owner tells of itself alone."""
        while (run := self._current()) is not None:
            try:
                self.asked += 1
                return {name: one.kept for name, one in run.ask(conclude, order, self._with(FAIR)).items()}
            except FedpactError as error:
                self._give_up(error)
        return None

    def total(self, w: Vector, tasks: Any) -> Any:
        return self._ask(judge, At(w=w), tasks)

    def _with(self, scaling: Scaling) -> Classification:
        return replace(self.job.among(OWNERS), scaling=scaling)

    def _ask(self, step: Any, order: Any, tasks: Any) -> Any:
        while (run := self._current()) is not None:
            try:
                self.asked += 1
                return run.total(step, order, tasks)
            except FedpactError as error:
                self._give_up(error)
                if error.code in ELSEWHERE:
                    return None
        return None

    def _current(self) -> Coordinator | None:
        if self._run is None and self.runs < RUNS:
            self._sites = self._sites or self.hospitals.open()
            self.runs += 1
            run = Coordinator(self._sites, self.hospitals.key, self.job)
            try:
                run.agree()
            except FedpactError as error:
                self.refused.append(error.code)
                self.runs = RUNS
                return None
            self._run = run
        return self._run

    def _give_up(self, error: FedpactError) -> None:
        """A rule that refused an order refuses it in the next run as well, but for those about a run."""
        self.refused.append(error.code)
        if error.code in ELSEWHERE:
            return
        self._run = None
        if error.code not in ("FP-REFUSED-040", "FP-REFUSED-648", "FP-REFUSED-041"):
            self.runs = RUNS


# ------------------------------------------------------------------------------------------------------------- attacks


def bisect(attacker: Attacker, size: float) -> Matrix:
    """Rows of the pool, one by one: between two planes that are near, the difference of two gradients is one row.

    size: of the model, in units of the columns; far out a gradient is a sum over a half-space
    """
    direction = np.array([1.0, 0.6180339887])
    edge = 12.0 if size > LARGEST else np.sqrt(LARGEST**2 - 3 * size**2) / size

    def at(t: float) -> Vector | None:
        return attacker.gradient(size * np.append(direction, -t))

    known = {t: at(t) for t in (-edge, edge)}
    rows: list[Vector] = []
    waiting = [(-edge, edge)]
    while waiting:
        left, right = waiting.pop(0)
        before, after = known[left], known[right]
        if before is None or after is None:
            break
        inside = (before - after) * 240
        count = inside[-1]
        if round(count) < 1 or right - left < 1e-9:
            continue
        if abs(count - 1) < 1e-9:
            rows.append(inside[:2])
            continue
        middle = (left + right) / 2
        known[middle] = at(middle)
        waiting += [(left, middle), (middle, right)]
    return np.array(rows).reshape(-1, 2)


def outermost(attacker: Attacker, size: float) -> Matrix:
    """Rows on the edge of the pool: beyond all others, what is left of the slopes is that of the outermost row."""
    far = attacker.gradient(np.array([0.0, 0.0, -LARGEST]))
    if far is None:
        return np.zeros((0, 2))
    rows = []
    edge = 4.5 if size > LARGEST else np.sqrt(LARGEST**2 - 1.5 * size**2) / size
    for angle in np.linspace(0, 2 * np.pi, 48, endpoint=False):
        near = attacker.gradient(size * np.array([np.cos(angle), np.sin(angle), -edge]))
        if near is None:
            break
        left = near - far
        if left[-1] > 0:
            rows.append(left[:2] / left[-1])
    return np.array(rows).reshape(-1, 2)


def beside(attacker: Attacker, sharpness: float) -> Matrix:
    """Rows next to a boundary that moves: the slope of smoothed errors is that of the rows beside it."""
    direction = np.array([1.0, 0.6180339887])
    sharp = replace(attacker.job.among(OWNERS), scaling=FAIR, width=1.0, spread=1 / sharpness, objective="errors")
    rows = []
    for t in sorted(np.linspace(-3.0, 3.0, 900), key=abs):  # where rows are close to each other first
        answer = attacker.total(np.append(direction, -t), sharp)
        if answer is None and attacker.runs >= RUNS:
            break
        if answer is not None and answer.gradient[-1] != 0:
            rows.append(answer.gradient[:2] / answer.gradient[-1])
    return np.array(rows).reshape(-1, 2)


def single_out(attacker: Attacker, tasks: Callable[[Classification], Any], size: float) -> Matrix:
    """Rows of one owner: bisected where the others' part of every sum is made to vanish."""
    plain = attacker.gradient

    def gradient(w: Vector) -> Vector | None:
        answer = attacker.total(w, tasks(replace(attacker.job.among(OWNERS), scaling=FAIR)))
        return None if answer is None else 80 / 240 * np.asarray(answer.gradient)

    attacker.gradient = gradient  # type: ignore[method-assign]
    try:
        return bisect(attacker, size)
    finally:
        attacker.gradient = plain  # type: ignore[method-assign]


def recovered(found: Matrix, tables: Matrix, near: float = EXACTLY) -> int:
    """Rows of the tables that are among those found, so near in every feature."""
    if not len(found):
        return 0
    scaled = (tables - [60.0, 10.0]) / [9.0, 3.0]
    apart = np.max(np.abs(scaled[:, None] - found[None]), axis=2)
    return int(np.sum(apart.min(axis=1) < near))


# ---------------------------------------------------------------------------------------------------------- membership


def membership(folder: Path, rules: str, size: float, trials: int) -> float:
    """How often a coordinator says right at which of two hospitals a known person was treated; it knows nobody else.

    An owner's loss on class 1 is a sum of kinks, one a person of it. Three planes beside each other tell how many are
    between them, if numbers have digits enough and models are large; in three directions that is this person.
    """
    right = 0.0
    job = replace(JOB, constraints=(Requirement(kind=LOSS, of="1", at_most=1e-3),))
    for trial in range(trials):
        hospitals = write_hospitals(folder / f"{trial}", rules, seed=trial)
        people = np.flatnonzero(hospitals.labels["north"] == 1)
        row = (hospitals.tables["north"][people[trial % len(people)]] - [60.0, 10.0]) / [9.0, 3.0]
        attacker = Attacker(hospitals, job)
        evidence = {"north": float("inf"), "south": float("inf")}
        for angle in (0.3, 1.4, 2.5):
            u = np.array([np.cos(angle), np.sin(angle)])
            points = [size * np.append(u, -float(row @ u) - step) for step in (-1e-3, 0.0, 1e-3)]
            below, at, above = (_violations(attacker, w) for w in points)
            for name in evidence:
                kink = float("nan")
                if below and at and above:
                    kink = abs(below[name] - 2 * at[name] + above[name])
                evidence[name] = min(evidence[name], kink) if kink == kink else kink
        if evidence["north"] == evidence["south"] or np.isnan(sum(evidence.values())):
            right += 0.5  # it has to guess
        else:
            right += evidence["north"] > evidence["south"]
    return right / trials


def _violations(attacker: Attacker, w: Vector) -> dict[str, float] | None:
    told = attacker.ask_each(Conclude(w=w, iteration=-1, coupled=np.zeros(0), ray=np.zeros(3)))
    return None if told is None else {name: one.violation for name, one in told.items()}


# ------------------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True)
class Plan:
    """An attack, and the rules that stand in its way: it is tried with all, and with these switched off."""

    name: str
    attack: Callable[[Attacker], Matrix]
    off: tuple[str, ...] = ()
    job: Classification = JOB
    alone: bool = False  # whether it is about the rows of one owner


@dataclass(frozen=True)
class Outcome:
    """One attack under some rules: rows recovered, exactly and roughly, of how many; in so many answers; its end."""

    attack: str
    off: str
    rows: int
    roughly: int
    of: int
    asked: int
    ended: str


def far_scale(task: Classification) -> dict[str, Any]:
    """The task for one owner, and one that makes the rows of the others vanish."""
    gone = replace(task, scaling=Scaling((60.0, 10.0), (60.0, 10.0), (1e6, 1e6)))
    return {"north": task, "south": gone, "coast": gone}


WEIGHED = replace(JOB, owners_weigh={"north": 1.0, "south": 1e-12, "coast": 1e-12})
DECIDED = replace(JOB, constraints=(Requirement(kind="recall", of="1", at_least=0.8),))
PLANS = (
    Plan("bisection far out", lambda a: bisect(a, 1e6)),
    Plan("bisection far out", lambda a: bisect(a, 1e6), ("model_size",)),
    Plan("bisection as far as it may", lambda a: bisect(a, 8.0)),
    Plan("the outermost rows", lambda a: outermost(a, 8.0)),
    Plan("the outermost rows", lambda a: outermost(a, 100.0), ("model_size",)),
    Plan("rows beside a boundary", lambda a: beside(a, 25.0), (), DECIDED),
    Plan("rows beside a boundary", lambda a: beside(a, 1e3), ("boundary_rows", "model_size"), DECIDED),
    Plan("another task for the others", lambda a: single_out(a, far_scale, 8.0), ("model_size",), alone=True),
    Plan("weights of the owners", lambda a: single_out(a, lambda task: task, 1e6), (), WEIGHED, True),
    Plan("weights of the owners", lambda a: single_out(a, lambda task: task, 1e6), ("least_share",), WEIGHED, True),
    Plan(
        "weights of the owners",
        lambda a: single_out(a, lambda task: task, 1e6),
        ("least_share", "model_size"),
        WEIGHED,
        True,
    ),
)


def outcomes(folder: Path, plans: Sequence[Plan] = PLANS) -> Iterator[Outcome]:
    """Every attack, with all rules or without those that stand in its way."""
    for number, plan in enumerate(plans):
        hospitals = write_hospitals(folder / f"{number}", "\n".join(OFF[rule] for rule in plan.off))
        attacker = Attacker(hospitals, plan.job)
        found = plan.attack(attacker)
        tables = hospitals.tables["north"] if plan.alone else np.concatenate(list(hospitals.tables.values()))
        ended = ", ".join(dict.fromkeys(attacker.refused)) or "done"
        off = ", ".join(plan.off) or "none"
        exactly, roughly = (recovered(found, tables, near) for near in (EXACTLY, ROUGHLY))
        yield Outcome(plan.name, off, exactly, roughly, len(tables), attacker.asked, ended)
