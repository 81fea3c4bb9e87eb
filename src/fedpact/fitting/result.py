"""What a fit gives: the model, how it was judged, and what everyone measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fedpact.federation import Communication, Session
from fedpact.fitting.agreement import Measured
from fedpact.fitting.evaluation import evaluate
from fedpact.fitting.evidence import Evidence
from fedpact.fitting.inference import summarize
from fedpact.fitting.sources import Held
from fedpact.notebook import show
from fedpact.problem import Measure
from fedpact.solvers import Inference, Solution
from fedpact.solvers.solution import Status
from fedpact.statistics import BoundPrice, ScoreCounts, Summary
from fedpact.statistics.evaluation import Evaluation
from fedpact.tasks import Calibration, Classification, Model, PartyModel, RegressionModel, TableTask, Task, Vertical
from fedpact.tasks.base import SERVER, Bounded
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Fit:
    """A task's answer.

    task:          as it was at last: with its scaling, and with the bounds that were found for a recall
    solution:      of the model's own solve
    values:        of everyone's constraint at the model, as `Constraint.function` gives them; "server" among them. NaN
                   where an owner withholds them
    measures:      what everyone tells about the model, by name; empty when an owner was lost before it could
    before:        the same about the model without constraints; empty when it was not asked for
    communication: of all exchanges together
    trials:        solves that were made
    missed:        holders whose decisions, counted, miss a bound; -1: they were not counted
    advice:        what could be had, where the bounds cannot be met or promised
    withheld:      names of the measures that an owner does not tell, since they rest on too few rows for its policy
    together:      values of the constraints that all owners hold together, over the rows of all
    calibration:   makes probabilities of the model's scores, where the task asks for it and there is a rising line
    evidence:      what the owners signed about all this; None where they have no keys
    columns:       of a vertical fit: the names of every party's columns in the model
    listed:        of a vertical fit with a list of constraints: these, in the user's terms
    curves:        the scores of a classifier by class, where they were asked for
    trade_off:     models for other bounds around the asked ones, where they were asked for
    inference:     covariance of the model and of its prices, where it was asked for; `summary` is its table
    tables:        digests of the tables in this process that it was trained on, which `evaluate` refuses
    """

    task: Task
    solution: Solution
    values: dict[str, Vector]
    measures: dict[str, dict[str, Measure]]
    before: dict[str, dict[str, float]]
    communication: Communication
    trials: int
    missed: int = 0
    advice: str = ""
    withheld: dict[str, tuple[str, ...]] = field(default_factory=dict)
    together: dict[str, Measure] = field(default_factory=dict)
    calibration: Calibration | None = None
    evidence: Evidence | None = None
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    listed: tuple[Bounded, ...] = ()
    curves: ScoreCounts | None = None
    trade_off: tuple[BoundPrice, ...] = ()
    inference: Inference | None = None
    tables: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        task: Task,
        solution: Solution,
        told: Mapping[str, Measured],
        prices: Mapping[str, Vector],
        before: dict[str, dict[str, float]],
        trials: int = 0,
    ) -> Self:
        """The fit of a solution, from what everyone told about it. prices: of everyone's constraint, by name"""
        values = {name: reply.values for name, reply in told.items()}
        for name, reply in told.items():
            if not reply.bare:
                values[name] = np.full(prices[name].size, np.nan)
        measures = {name: reply.measures() for name, reply in told.items()}
        withheld = {name: tuple(json.loads(reply.withheld)) for name, reply in told.items()}
        return cls(task, solution, values, measures, before, solution.communication, trials, withheld=withheld)

    @property
    def solved(self) -> bool:
        """Whether the model is certified, its decisions, counted, meet every bound, and every promise is made."""
        return self.solution.solved and self.missed == 0 and not self.unproven

    @property
    def has_model(self) -> bool:
        """Whether there is a model to go on with: certified, or a network that came to the end of its passes."""
        return self.task.is_trained(self.solution.status)

    @property
    def trained(self) -> bool:
        """Whether it is a network without a certificate whose decisions, counted, meet every bound and promise.

        Bounds on losses are met where the certificate has no violation of them.
        """
        task = self.task
        if self.solution.solved or not self.has_model or self.unproven or self.missed:
            return False
        assert isinstance(task, Classification)  # no other task has such a model
        counted = all(one.rates for one in task.requirements)
        return counted or self.solution.certificate.violation <= self.solution.tol[1]

    @property
    def unproven(self) -> bool:
        """Whether a promise for new rows was asked for, and the held-out rows do not bear it out."""
        task = self.task
        return isinstance(task, Classification) and bool(task.promised) and not task.proven

    @property
    def prices(self) -> dict[str, Vector]:
        """Multipliers of everyone's constraint, by name, the coordinator's first."""
        owners = [name for name in self.values if name != SERVER]
        return dict(zip([SERVER, *owners], self.solution.multipliers, strict=False))

    @property
    def shortfall(self) -> str:
        """Why a certified model is not what was asked for, with what could be had."""
        missed = f"the model's decisions, counted, miss a bound at {self._count_holders()}"
        if self.missed == 0:
            missed = "the bounds are met on the rows trained on, and not shown to hold on new ones"
        elif self.missed < 0:
            missed = "the model's decisions were not counted"
        return f"{missed}: {self.advice}" if self.advice else missed

    def _count_holders(self) -> str:
        """\"2 of 5 owners\"; in other words where not only owners hold constraints on decisions."""
        task = self.task
        assert isinstance(task, Classification)  # no other task counts
        if all(one.held_by == "each" for one in task.rates):
            return f"{self.missed} of {task.owners} owners"
        return f"{self.missed} of those who hold one (owners, the coordinator, or all owners together)"

    def _repr_html_(self) -> str:
        facts = [
            self.task.sentence().rstrip("."),
            "solved" if self.solved else f"{self.solution.status}: {self.solution.reason}",
            f"{self.communication.rounds} exchanges",
        ]
        found = dict.fromkeys(name for told in self.measures.values() for name in told)
        names = [name for name in found if name != "loss" and not name.startswith("one row of ")]
        rows = [(owner, *(float(told.get(name, np.nan)) for name in names)) for owner, told in self.measures.items()]
        return show("Fit", facts, ("owner", *map(self.task.measure_name, names)), rows)

    def evaluate(
        self, owners: Mapping[str, Held], session: Session | None = None, *, trained: Mapping[str, Held] | None = None
    ) -> Evaluation:
        """The same measures on rows that nobody trained on, with exact intervals: `fedpact.fitting.evaluate`."""
        return evaluate(self.task, self.solution.w, owners, session, trained=trained, tables=self.tables)

    @property
    def owners(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(name for name in self.communication.owners)

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients in the units of the columns, and prices, with standard errors, tests and intervals of `level`.

        For fits that were made with `inference=...`; OptionError for others.
        """
        return summarize(self, level)

    def stopped(self, status: Status, reason: str) -> Fit:
        """The same model, of a fit that ended before its time."""
        return replace(self, solution=replace(self.solution, status=status, reason=reason))

    @property
    def model(self) -> Model | RegressionModel | PartyModel | None:
        """The model in the units of the columns; None for a task without one."""
        if isinstance(self.task, Vertical):
            intercept = np.zeros(self.task.outputs)
            if self.task.intercept:
                intercept = self.solution.w.reshape(self.task.outputs, -1)[:, -1]
            classes = self.task.classes if self.task.of_classes else ()
            return PartyModel(classes, tuple(intercept.tolist()), self.columns, self.task.loss)
        if not isinstance(self.task, TableTask) or not self.task.comparable:
            return None
        found = self.task.make_model(self.solution.w)
        if isinstance(found, Model):
            return replace(found, calibration=self.calibration)
        return found
