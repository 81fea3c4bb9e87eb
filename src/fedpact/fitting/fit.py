"""From a task to a certified model: agree on scales, solve, and let the owners measure it on their rows.

The one door behind estimators, jobs, the Flower app and the demo: everything happens in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpact.errors import OwnerLost
from fedpact.federation import Session
from fedpact.fitting.agreement import Finished, Measured, agree_on_scaling, measure
from fedpact.fitting.recall import next_bounds
from fedpact.fitting.result import Fit
from fedpact.problem import RemoteProblem, Share
from fedpact.solve import solve
from fedpact.solvers import Progress, Solution, Solver
from fedpact.tasks import FileSource, HeldSource, NeymanPearson, Rows, TableTask, Task
from fedpact.tasks.base import SERVER
from fedpact.types import Vector

#: Solves in which bounds are sought that give a recall.
TRIALS = 40

#: What an owner holds: rows in memory, a file, or (None) what only its site knows.
Held = Rows | str | Path | None


def fit(
    task: Task,
    owners: Mapping[str, Held],
    session: Session | None = None,
    *,
    server: Held = None,
    compare: bool = False,
    method: str | Solver[Any] = "auto",
    tol: float | tuple[float, float] = 1e-3,
    max_rounds: int | None = None,
    seed: int = 0,
    callbacks: Iterable[Callable[[Progress], Any]] = (),
    **options: Any,
) -> Fit:
    """Train the task's model with these owners, in one session.

    owners:  name -> its rows (`fedpact.tasks.Rows`), its file, or None for a site that has its own
    session: where and how; by default in this process. One that is given stays open
    server:  the coordinator's own table, where the task has a use for it
    compare: train without the constraints too, and measure that model
    method, tol, max_rounds, seed, callbacks, options: of `fp.solve`, for every solve

    An owner that stays away ends the fit with status `client_lost`; a model that was found before is kept.
    """
    asked = replace(task, owners=len(owners))
    solving = {"method": method, "tol": tol, "max_rounds": max_rounds, "seed": seed, "callbacks": tuple(callbacks)}
    if session is not None:
        return Fitting(session, owners, server, {**solving, **options}).run(asked, compare)
    with Session() as made:
        return Fitting(made, owners, server, {**solving, **options}).run(asked, compare)


class Fitting:
    """One fit under way."""

    def __init__(self, session: Session, owners: Mapping[str, Held], server: Held, solving: Mapping[str, Any]) -> None:
        self.session = session
        self._sources = {name: _source(name, held) for name, held in owners.items()}
        self._server = None if server is None else _source(SERVER, server)
        self._solving = solving
        self._solves = 0

    def run(self, task: Task, compare: bool) -> Fit:
        session = self.session
        session.open(self._sources, {"task": task.stated(), "seed": self._solving["seed"]})
        begun = session.ledger.read()
        if session.secure_sum or (session.secure_sum is None and session.networked and len(session.owners) > 1):
            session.secure()
        task = self._agree(task)
        recall = isinstance(task, NeymanPearson) and bool(task.min_recall)
        before: dict[str, dict[str, float]] = {}
        start: Vector | None = None
        if (compare and task.comparable) or recall:
            free = replace(task, constrained=False)
            solution = self._solve(free)
            before = {name: told.told() for name, told in self._measure(free, solution.w).items()}
            start = solution.w if solution.solved else None
        if recall:
            task = replace(task, bound={name: told["bound for recall"] for name, told in before.items()})  # type: ignore[call-arg]
        best = now = self._fit(task, start, before)
        for trial in range(TRIALS if recall else 0):
            bounds = next_bounds(now, trial)
            if bounds is None or not now.solution.solved:
                break
            now = self._fit(replace(task, bound=bounds), now.solution.w, before)  # type: ignore[call-arg]
            if not best.solved or (now.solved and now.solution.objective < best.solution.objective):
                best = now
        return replace(best, communication=session.ledger.read() - begun, trials=self._solves)

    def _agree(self, task: Task) -> Task:
        """The task with the scaling of its columns, where it asks for one."""
        if not isinstance(task, TableTask) or not task.needs_scaling:
            return task
        self.session.pose(task)
        return task.scaled(agree_on_scaling(self.session, task.encoding, task.standardize))

    def _fit(self, task: Task, start: Vector | None, before: dict[str, dict[str, float]]) -> Fit:
        solution = self._solve(task, start)
        told: dict[str, Measured] = {}
        if solution.status != "client_lost":
            try:
                told = self._measure(task, solution.w)
            except OwnerLost as lost:  # the model is certified, and stays so
                reason = f"{lost}; the model was certified before (certificate of the returned pair), not measured"
                solution = replace(solution, status="client_lost", reason=reason)
        values = {name: reply.values for name, reply in told.items()}
        measures = {name: reply.told() for name, reply in told.items()}
        return Fit(task, solution, values, measures, before, solution.communication, self._solves)

    def _solve(self, task: Task, w0: Vector | None = None) -> Solution:
        self._solves += 1
        self.session.pose(task)
        server = self._server_share(task) if task.constrained else None
        problem = RemoteProblem(self._sources, server, task.regularizer())
        return solve(problem, session=self.session, w0=w0, **self._solving)

    def _measure(self, task: Task, w: Vector) -> dict[str, Measured]:
        """One exchange: what everyone tells about the model."""
        self.session.pose(task)
        replies = self.session.ask(measure, Finished(w=w))
        told = dict(zip(self.session.owners, replies, strict=True))
        if (server := self._server_share(task)) is not None:
            told[SERVER] = measure(server, None, Finished(w=w))[1]
        return told

    def _server_share(self, task: Task) -> Share | None:
        if self._server is None:
            return None
        share = self._server(task)
        assert isinstance(share, Share)  # the scaling is known by now
        return share


def _source(owner: str, held: Held) -> Any:
    if isinstance(held, str | Path):
        return FileSource(owner, held)
    return None if held is None else HeldSource(owner, held)
