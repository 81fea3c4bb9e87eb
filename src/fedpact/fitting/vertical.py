"""A fit of parties that hold different columns of the same people: align them, learn widths and labels, solve.

The coordinator holds labels, groups and the scores, so it measures the model by itself; every party keeps its piece.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.data.cells import Cells
from fedpact.errors import DataError, OptionError
from fedpact.federation import Order, Reply, Session, client_step
from fedpact.fitting.agreement import Measured, hide_sums
from fedpact.fitting.alignment import align_parties
from fedpact.fitting.fit import Extras, Fitting
from fedpact.fitting.result import Fit
from fedpact.problem import DistantParty, Measure, Party, VerticalProblem
from fedpact.problem.certificate import TOGETHER
from fedpact.problem.gaps import Group
from fedpact.solve import solve
from fedpact.solvers import Solution, Solver
from fedpact.solvers.solution import WARNING
from fedpact.solvers.vertical.vertical_exact import INFERENCES, VerticalExact
from fedpact.solvers.vertical.vertical_exact_errors import EVERYONE
from fedpact.tasks import LabelledParty, Task, Vertical
from fedpact.tasks.base import SERVER
from fedpact.tasks.parties import GAP
from fedpact.types import Matrix, Vector

#: Theorem 1 of the paper, that scores do not determine a party's columns, needs parties with more columns than this.
FEW_COLUMNS = 2

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True, kw_only=True)
class Introduced(Reply):
    """What the coordinator must know of a party.

    columns: their names in the model, a JSON list
    people:  how many it has
    """

    columns: str
    people: int


@client_step
def introduce(share: Party, state: Any, order: Order) -> tuple[None, Introduced]:
    """Columns and people of a party. A solve begins: where the one before it ended is forgotten."""
    return None, Introduced(columns=json.dumps(share.columns), people=len(share.X))


@dataclass(frozen=True, kw_only=True)
class Labels(Reply):
    """labels: of the people in common, in their order: numbers of the classes, or the numbers to predict"""

    labels: Vector


@dataclass(frozen=True, kw_only=True)
class Groups(Reply):
    """groups: of the people in common, in their order: numbers of the groups, one row an attribute"""

    groups: Matrix


@client_step
def tell_labels(share: LabelledParty, state: Any, order: Order) -> tuple[Any, Labels]:
    """Labels go to the coordinator, as the paper assumes; only their holder is asked."""
    return state, Labels(labels=share.labels.astype(np.float64))


@client_step
def tell_groups(share: LabelledParty, state: Any, order: Order) -> tuple[Any, Groups]:
    return state, Groups(groups=share.groups.astype(np.float64))


# ---------------------------------------------------------------------------------------------- the coordinator's half


class PartyFitting(Fitting):
    """One fit of parties under way."""

    _columns: dict[str, tuple[str, ...]]
    _labels: Vector
    _groups: Matrix
    _scores: Vector | None = None

    def run(self, task: Task, extras: Extras) -> Fit:
        assert isinstance(task, Vertical)
        self._check_holders(task)
        self._check_errors(task)
        found = super().run(task, extras)
        assert isinstance(found.task, Vertical)
        return replace(found, columns=self._columns, task=replace(found.task, model=self.session.run))

    def _check_holders(self, task: Vertical) -> None:
        """Who holds label and group is a party, or the coordinator with a table of its own."""
        if self._server is not None and task.alignment == "keyed-hash":
            raise OptionError(
                'alignment = "keyed-hash" is for parties that share a key, which the coordinator must not have; it has '
                'a table here: use "private"',
                code="FP-OPTION-932",
                key="alignment",
            )
        for key, holder in (("label_at", task.label_holder), ("group_at", task.group_holder)):
            if holder == SERVER and self._server is None and (key == "label_at" or task.protected):
                raise OptionError(
                    f"{key} is not stated, and the coordinator has no table of its own; name the party that holds it, "
                    "or give the coordinator's table",
                    code="FP-OPTION-930",
                    key=key,
                )
            elif holder not in (SERVER, *self._sources):
                raise OptionError(
                    f"{key} = {holder!r} is not a party; they are {', '.join(self._sources)}",
                    code="FP-OPTION-931",
                    key=key,
                )

    def _check_errors(self, task: Vertical) -> None:
        """Standard errors are found on the features that only the exact method has."""
        method = self._solving["method"]
        name = method.name if isinstance(method, Solver) else method
        exact = name == VerticalExact.name or (name == "auto" and bool(task.constraints))
        if self._inference != "none" and not (exact and self._inference in INFERENCES):
            kinds = ", ".join(map(repr, INFERENCES[1:]))
            raise OptionError(
                f"inference = {self._inference!r} with method {name!r}: a vertical model has standard errors of the "
                f'kinds {kinds}, by "{VerticalExact.name}", which tells the coordinator the pooled rows up to a '
                "rotation of the columns; state both, or leave inference out",
                code="FP-OPTION-938",
                key="inference",
            )

    def _agree(self, task: Task) -> Task:
        """People in common, labels, groups and the names of the columns; only then sums may be masked."""
        assert isinstance(task, Vertical)
        session = self.session
        session.pose(task)
        own = None
        people = None
        if self._server is not None:
            own = self._server.held(task)
            people = task.people(SERVER, own)
        aligned = align_parties(
            session, task.alignment, on_missing=task.on_missing, least=task.least_people, own=people
        )
        if own is not None:
            assert aligned.rows is not None
            own = task.take(own, aligned.rows)
        self._meet()
        self._labels = ask_labels(session, task, own)
        _check_classes(task, self._labels)
        self._groups = ask_groups(session, task, own)
        hide_sums(session)
        return task

    def _meet(self) -> None:
        """One exchange: what columns the parties have. Each begins anew."""
        met = dict(zip(self.session.owners, self.session.ask(introduce, Order()), strict=True))
        self._columns = {name: tuple(json.loads(reply.columns)) for name, reply in met.items()}

    # ----------------------------------------------------------------------------------------------------------- models

    def _solve(self, task: Task, start: Vector | None = None, **options: Any) -> Solution:
        assert isinstance(task, Vertical)
        if self._solves:
            self.session.pose(task)
            self._meet()
        self._solves += 1
        settings = {**self._solving, **options}
        method = settings["method"]
        errors = {"inference": self._inference} if task.constrained and self._inference != "none" else {}
        if isinstance(method, Solver):
            settings["method"] = replace(method, **errors)
        else:
            settings = {"reveal": False, **settings, **errors}  # every party keeps its piece to itself
        problem = self._problem(task)
        solution = solve(problem, session=self.session, callbacks=self._callbacks, **settings)
        self._scores = solution.scores
        for name, columns in self._columns.items():
            if len(columns) <= FEW_COLUMNS:
                solution.history.notes.append(warn_of_few_columns(name, len(columns)))
        return solution

    def _fit(self, task: Task, start: Vector | None, before: dict[str, dict[str, float]]) -> Fit:
        assert isinstance(task, Vertical)
        if not task.constraints:
            return super()._fit(task, start, before)
        return self._fit_decisions(task, before)

    def _fit_decisions(self, task: Vertical, before: dict[str, dict[str, float]]) -> Fit:
        """A list of constraints on decisions: found at the coordinator on features, judged by the parties' columns."""
        from fedpact.fitting.scores import fit_on_scores  # a fit itself

        settings = dict(self._solving)
        method = settings.pop("method")
        if method not in ("auto", VerticalExact.name):
            raise OptionError(
                f'method {method!r} takes gaps of mean loss only; use "{VerticalExact.name}" for a list of constraints',
                code="FP-OPTION-935",
                key="method",
            )
        session = self.session
        session.pose(task)
        if self._solves:
            self._meet()
        self._solves += 1
        if session.secure_sum is not False and len(session.owners) > 1:
            session.secure()
        members = None
        if task.protected:
            sizes = [len(levels) for levels in task.protected.values()]
            members = np.ravel_multi_index(tuple(self._groups.astype(np.int64)), sizes)
        problem = self._problem(task, constrained=False)
        seed = settings["seed"]
        settings["inference"] = self._inference
        found = fit_on_scores(task.decisions(seed), problem, session, members, hand_out=False, **settings)
        self._scores = found.scores
        inner = found.fit
        price = found.solution.multipliers[1]
        told = found.measures
        listed = tuple(
            replace(one, owner=TOGETHER) for one in inner.task.bounded(EVERYONE, inner.values[EVERYONE], price, told)
        )
        measured = self._measure(task, found.w)
        answer = Fit.of(task, found.solution, measured, {SERVER: np.zeros(0)}, before, self._solves)
        return replace(answer, listed=listed, advice=inner.advice)

    def _infer(self, found: Fit) -> Fit:
        """The parties have their standard errors from the exchanges of the solve."""
        return replace(found, inference=found.solution.inference)

    def _problem(self, task: Vertical, constrained: bool | None = None) -> VerticalProblem:
        """The problem as the coordinator knows it: labels, groups, and how many columns each party has."""
        groups = None
        max_gap = None
        if task.max_gap is not None and (task.constrained if constrained is None else constrained):
            groups = name_groups(task, self._groups)
            max_gap = task.max_gap
        parties = [DistantParty(name, len(columns)) for name, columns in self._columns.items()]
        return VerticalProblem.of_parties(
            parties,
            self._labels,
            groups,
            max_gap,
            loss=task.problem_loss,
            gap=task.gap,
            intercept=task.intercept,
            classes=len(task.classes),
            sources=self._sources,
            task=task,
        )

    def _measure(self, task: Task, w: Vector) -> dict[str, Measured]:
        """No exchange: labels, groups and scores are the coordinator's."""
        assert isinstance(task, Vertical)
        if self._scores is None:
            return {}
        judged = self._problem(task, constrained=True)
        gaps = judged.scored.gaps(self._scores)
        told = measure_people(task, self._scores, self._labels, self._groups)
        for name, value in zip(name_gaps(task, judged), gaps, strict=True):
            told[name] = Measure(abs(float(value)), rows=0)
        return {SERVER: Measured.of(gaps, told)}

    def _attest(self, found: Fit) -> Fit:
        """Nothing is signed: a party has numbers of its own only in sums."""
        return found


def ask_labels(session: Session, task: Vertical, own: Cells | None) -> Vector:
    """Labels of the people in common, from whoever holds them. own: the coordinator's table, in the common order"""
    if task.label_at:
        return session.ask(tell_labels, Order(), [task.label_at])[0].labels
    assert own is not None
    return task.labels(SERVER, own).astype(np.float64)


def _check_classes(task: Vertical, labels: Vector) -> None:
    """DataError where a class of several has no row: its intercept would fall without end."""
    absent = [level for k, level in enumerate(task.classes) if not np.any(labels == k)]
    if task.outputs > 1 and absent:
        raise DataError(
            f"{task.label} = {absent[0]}: none of the people in common is of this class; take it out of classes",
            code="FP-DATA-981",
            column=task.label,
        )


def ask_groups(session: Session, task: Vertical, own: Cells | None) -> Matrix:
    """The same of groups, one row an attribute; none where the job has none."""
    if not task.protected:
        return np.zeros((0, 0))
    if task.group_holder != SERVER:
        return session.ask(tell_groups, Order(), [task.group_holder])[0].groups
    assert own is not None
    return task.members(SERVER, own).astype(np.float64)


def name_groups(task: Vertical, groups: Matrix) -> Group:
    """Everyone's group in words; of several attributes, by name."""
    named = {
        column: np.array(levels)[codes.astype(int)]
        for (column, levels), codes in zip(task.protected.items(), groups, strict=True)
    }
    return named[task.group] if task.group else named


def name_gaps(task: Vertical, problem: VerticalProblem) -> list[str]:
    """The gaps as measures are called, in the words of the job."""
    classes = {f"y = {k}": f"{task.label} = {level}" for k, level in enumerate(task.classes)}
    names = []
    for name in problem.gap_names:
        pair, _, condition = name.rpartition(", ")
        if condition in classes:
            name = f"{pair}, {classes[condition]}"
        names.append(f"{GAP}{name}")
    return names


def measure_people(task: Vertical, scores: Vector, labels: Vector, groups: Matrix) -> dict[str, Measure]:
    """How well the model does, over all people and by group: rates of its decisions, or errors of its numbers."""
    measure = _errors
    if task.outputs > 1:
        measure = _class_rates
    elif task.of_classes:
        measure = _rates
    everyone = scores.reshape(task.outputs, -1)
    told = {"rows": Measure.count(len(labels)), **measure(task, everyone, labels, "")}
    for (column, levels), codes in zip(task.protected.items(), groups, strict=True):
        for code, level in enumerate(levels):
            members = codes == code
            where = f", {column} = {level}"
            told[f"rows{where}"] = Measure.count(int(members.sum()))
            told |= measure(task, everyone[:, members], labels[members], where)
    return told


def _rates(task: Vertical, scores: Matrix, labels: Vector, where: str) -> dict[str, Measure]:
    """Of decisions between two classes."""
    decided = scores[0] > 0
    positive = labels > 0
    right = decided == positive
    told = {
        f"accuracy{where}": _rate(right),
        f"recall{where}": _rate(right[positive]),
        f"specificity{where}": _rate(right[~positive]),
    }
    if where:
        told[f"decided {task.classes[1]}{where}"] = _rate(decided)
    return told


def _class_rates(task: Vertical, scores: Matrix, labels: Vector, where: str) -> dict[str, Measure]:
    """Of decisions between several classes: everyone gets that of the largest score."""
    decided = np.argmax(scores, axis=0)
    told = {f"accuracy{where}": _rate(decided == labels)}
    for k, level in enumerate(task.classes):
        told[f"recall of {task.label} = {level}{where}"] = _rate(decided[labels == k] == k)
        told[f"decided {level}{where}"] = _rate(decided == k)
    return told


def _errors(task: Vertical, scores: Matrix, labels: Vector, where: str) -> dict[str, Measure]:
    """Of predicted numbers."""
    predicted = np.exp(scores[0]) if task.loss == "poisson" else scores[0]
    error = predicted - labels
    rows = len(labels)
    if not rows:
        return {}
    return {
        f"mean error{where}": Measure(float(np.mean(error)), rows),
        f"mean absolute error{where}": Measure(float(np.mean(np.abs(error))), rows),
        f"root mean squared error{where}": Measure(float(np.sqrt(np.mean(error**2))), rows),
    }


def _rate(hits: Any) -> Measure:
    """How often it is so; NaN over no rows."""
    if not hits.size:
        return Measure(np.nan, rows=0)
    return Measure(float(np.mean(hits)), rows=int(hits.size))


def warn_of_few_columns(party: str, columns: int) -> str:
    """Theorem 1 of the paper does not protect such a party."""
    many = "one column" if columns == 1 else f"{columns} columns"
    return (
        f"{WARNING}{party} has {many} only: the theorem that a party's scores do not tell its columns needs more than "
        f"{FEW_COLUMNS}"
    )
