"""People whom nobody trained on, and a model in pieces: parties are aligned again, and their scores are summed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.alignment import Mode
from fedpact.data.cells import Cells
from fedpact.federation import Session
from fedpact.fitting.agreement import Measured
from fedpact.fitting.alignment import align_parties
from fedpact.fitting.evaluation import TOGETHER, estimate_rates
from fedpact.fitting.sources import Held, source_of
from fedpact.fitting.vertical import ask_groups, ask_labels, measure_people, name_gaps, name_groups
from fedpact.problem import DistantParty, VerticalProblem
from fedpact.solvers.vertical.shared import summed_scores
from fedpact.statistics.evaluation import Evaluation, Outcome
from fedpact.tasks import PartyModel, Vertical
from fedpact.tasks.base import SERVER
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Newcomers:
    """scores: of the people that all parties have, in the common order, with the intercept; own: their rows in the
    coordinator's own table, where it has one
    """

    scores: Vector
    own: Cells | None = None


def score_newcomers(
    task: Vertical,
    model: PartyModel,
    parties: Mapping[str, Held],
    session: Session,
    *,
    server: Held = None,
    alignment: Mode | None = None,
    ask: Any = None,
) -> Newcomers:
    """The scores of people whom nobody trained on.

    parties:   name -> what it holds, a `PartySource` with the new table, or None for a site that has its own. A party
               that is absent counts as if everyone had the mean of its columns
    alignment: in the place of the task's
    ask:       called between alignment and the masking of sums, when single parties may still be asked
    """
    asked = replace(task, evaluating=True)
    session.open({name: source_of(name, held) for name, held in parties.items()}, asked.identity())
    session.pose(asked)
    own = None
    people = None
    coordinator = source_of(SERVER, server)
    if coordinator is not None:
        own = coordinator.held(asked)
        people = asked.people(SERVER, own)
    mode = task.alignment if alignment is None else alignment
    aligned = align_parties(session, mode, on_missing=task.on_missing, least=1, own=people)
    if own is not None and aligned.rows is not None:
        own = task.take(own, aligned.rows)
    if ask is not None:
        ask(own)
    secure = session.secure_sum is not False and len(session.owners) > 1
    return Newcomers(model.add_intercept(summed_scores(session, secure)), own)


def evaluate_parties(
    task: Vertical,
    model: PartyModel,
    parties: Mapping[str, Held],
    session: Session,
    *,
    server: Held = None,
    level: float = 0.95,
) -> Evaluation:
    """Rates and gaps of a model in pieces on people whom nobody trained on; their labels go to the coordinator."""
    held: dict[str, Vector] = {}

    def ask(own: Cells | None) -> None:
        held["labels"] = ask_labels(session, task, own)
        held["groups"] = ask_groups(session, task, own)

    found = score_newcomers(task, model, parties, session, server=server, ask=ask)
    labels = held["labels"]
    groups = held["groups"]
    told = measure_people(task, found.scores, labels, groups)
    bounds = []
    if task.max_gap is not None:
        columns = [DistantParty(name, len(names)) for name, names in model.columns.items()]
        judged = VerticalProblem.of_parties(
            columns,
            labels,
            name_groups(task, groups),
            task.max_gap,
            loss=task.problem_loss,
            gap=task.gap,
            intercept=task.intercept,
            classes=len(task.classes),
        )
        gaps = np.abs(judged.scored.gaps(found.scores))
        names = name_gaps(task, judged)
        for name, row, gap, bound in zip(names, judged.scored.rows, gaps, judged.max_gap, strict=True):
            rows = int(min(np.count_nonzero(row > 0), np.count_nonzero(row < 0)))
            bounds.append(Outcome(TOGETHER, name, float(gap), float(bound), np.nan, np.nan, rows))
    reply = Measured.of(np.zeros(0), told).withhold(0)
    return Evaluation(
        level, tuple(bounds), estimate_rates({SERVER: reply}, level), {SERVER: reply.told()}, {SERVER: ()}
    )
