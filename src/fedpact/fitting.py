"""From a job to a certified model: agree on scales, solve, and let the owners measure it on their rows.

A demanded recall is met by choosing the bounds of its surrogate, the mean loss: bounds are tried, the owners measure
the recall that the model has, and say which bound would have given it what is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.data.encoding import Scaling
from fedpact.errors import OptionError
from fedpact.federation import Communication, Fleet
from fedpact.functions import Vector
from fedpact.problem import RemoteProblem, Share
from fedpact.solve import Engine, solve, the_engine
from fedpact.solvers import Solution
from fedpact.solvers.measuring import About, Finished, measure, moments
from fedpact.tasks import Job

#: Solves in which bounds are sought that give a recall. In the first RELAXING of them they may also grow.
TRIALS = 40
RELAXING = 4
#: A bound that did not give its recall shrinks by this factor or more. That ends: a row that is missed has a loss of
#: log 2 or more, so (1 - recall) log 2 is small enough.
SHRINK = 0.99


@dataclass(frozen=True, eq=False)
class Fitted:
    """A job's answer.

    job:           as it was at last: with its scaling, and with the bounds that were found for a recall
    solution:      of the last solve
    values:        of everyone's constraint at the model, as `Constraint.function` gives them; "server" among them
    measures:      what everyone tells about the model, by name
    before:        the same about the model without constraints; empty when it was not asked for
    communication: of all exchanges together
    trials:        solves that were made
    """

    job: Job
    solution: Solution
    values: dict[str, Vector]
    measures: dict[str, dict[str, float]]
    before: dict[str, dict[str, float]]
    communication: Communication
    trials: int

    @property
    def solved(self) -> bool:
        return self.solution.solved and not self.short

    @property
    def short(self) -> list[str]:
        """Owners whose recall is below the one asked for."""
        return [name for name, told in self.measures.items() if told.get("recall", 1.0) < self.job.min_recall]


class Fitting:
    """One job under way.

    sources:    of a job: what the engine takes to every owner, see `RemoteProblem`
    server:     of a job: the server's own share, or None
    engine:     of a job, or the same for all: as `fp.solve` takes it
    options:    of `fp.solve`
    """

    def __init__(
        self,
        sources: Callable[[Job], Mapping[str, object]],
        *,
        regularization: float,
        server: Callable[[Job], Share] | None = None,
        engine: Callable[[Job], Engine] | Engine | str | None = None,
        secure_sum: bool | None = None,
        checkpoint: Path | None = None,
        resume: bool = False,
        **options: Any,
    ) -> None:
        self._sources, self._server, self._engine = sources, server, engine
        self._regularization, self._secure, self._options = regularization, secure_sum, options
        self._checkpoint, self._resume = checkpoint, resume
        self._solves = 0
        self._communication = Communication(0, {})

    def run(self, job: Job, *, compare: bool = False) -> Fitted:
        """compare: train without the constraints too, and measure that model."""
        session = None if callable(self._engine) else getattr(the_engine(self._engine), "session", None)
        if session is None:
            return self._run(job, compare)
        with session() as self._engine:  # what is slow to start is started once
            return self._run(job, compare)

    def _run(self, job: Job, compare: bool) -> Fitted:
        if job.needs_scaling:
            job = replace(job, scaling=self._scaling(job))
        before: dict[str, dict[str, float]] = {}
        start: Vector | None = None
        if compare or job.min_recall:
            free = self._solve(job.without_constraints())
            before = self._measure(job.without_constraints(), free.w)[1]
            start = free.w if free.solved else None
        if job.min_recall:
            job = replace(job, bound={name: told["bound for recall"] for name, told in before.items()})
        best = now = self._fitted(job, start, before)
        for trial in range(TRIALS if job.min_recall else 0):
            bounds = _next_bounds(now, trial)
            if bounds is None or not now.solution.solved:
                break
            now = self._fitted(replace(job, bound=bounds), now.solution.w, before)
            if not best.solved or (now.solved and now.solution.objective < best.solution.objective):
                best = now
        return replace(best, communication=self._communication, trials=self._solves)

    def _fitted(self, job: Job, start: Vector | None, before: dict[str, dict[str, float]]) -> Fitted:
        solution = self._solve(job, start)
        values, measures = self._measure(job, solution.w)
        return Fitted(job, solution, values, measures, before, self._communication, self._solves)

    def _scaling(self, job: Job) -> Scaling:
        """Means, then deviations about them, both from sums over the owners."""
        mean = np.zeros(len(job.encoding.names))
        with self._open(job) as fleet:
            first = fleet.ask(moments, About(mean=mean)).total
            if np.any(first.count == 0):
                column = job.encoding.names[int(np.argmin(first.count))]
                raise OptionError(f"column {column!r} has no values at any owner; take it out of the columns")
            mean = first.total / first.count
            second = fleet.ask(moments, About(mean=mean)).total
            self._communication += fleet.ledger.read()
        scaled = job.encoding.numeric if job.standardize else np.zeros(mean.size, dtype=bool)
        deviation = np.sqrt(second.squares / second.count)
        constant = deviation <= 1e-12 * np.abs(mean)  # rounding of a column that is the same everywhere
        return Scaling.of(mean, np.where(constant, 0.0, deviation), scaled)

    def _solve(self, job: Job, w0: Vector | None = None) -> Solution:
        folder = None if self._checkpoint is None else self._checkpoint / str(self._solves)
        self._solves += 1
        server = self._server(job) if self._server is not None and job.constrained else None
        regularizer = job.regularizer(self._regularization) if self._regularization else None
        solution = solve(
            RemoteProblem(self._sources(job), server, regularizer),
            engine=self._where(job),
            w0=w0,
            secure_sum=self._secure,
            checkpoint=folder,
            resume=self._resume and folder is not None and (folder / "checkpoint.json").exists(),
            **self._options,
        )
        self._communication += solution.communication
        return solution

    def _measure(self, job: Job, w: Vector) -> tuple[dict[str, Vector], dict[str, dict[str, float]]]:
        with self._open(job) as fleet:
            replies = fleet.ask(measure, Finished(w=w))
            self._communication += fleet.ledger.read()
            told = dict(zip(fleet.owners, replies, strict=True))
        if self._server is not None:
            told["server"] = measure(self._server(job), None, Finished(w=w))[1]
        values = {name: reply.values for name, reply in told.items()}
        return values, {name: reply.told() for name, reply in told.items()}

    def _where(self, job: Job) -> Engine:
        return the_engine(self._engine(job) if callable(self._engine) else self._engine)

    def _open(self, job: Job) -> Fleet:
        fleet = self._where(job).open(self._sources(job))
        if (self._secure or (self._secure is None and fleet.networked)) and len(fleet.owners) > 1:
            fleet.secure()
        return fleet


def _next_bounds(now: Fitted, trial: int) -> dict[str, float] | None:
    """Bounds to try next; None when the recall is met everywhere and the bounds are as wide as they seem to go."""
    bounds: dict[str, float] = {}
    changed = False
    for (name, told), price in zip(now.measures.items(), now.solution.multipliers[1:], strict=True):
        bound, needed = now.job.bound_of(name), told["bound for recall"]
        if told["recall"] < now.job.min_recall:
            bounds[name], changed = min(needed, SHRINK * bound), True
        elif trial < RELAXING and price[0] > 0 and needed > 1.02 * bound:
            bounds[name], changed = needed, True
        else:
            bounds[name] = bound
    return bounds if changed else None
