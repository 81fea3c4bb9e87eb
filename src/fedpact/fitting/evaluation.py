"""A model on rows that nobody trained on: rates at their owners, with exact intervals, beside the bounds.

One exchange asks every owner what it measures; a second one, where owners meet bounds together, adds up their counts.
Rows stay where they are, and can be used for nothing else: there is no objective to train with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Reply, Session, Summed, client_step
from fedpact.fitting.agreement import Finished, Measured, hide_sums, measure
from fedpact.fitting.sources import Held, digests_of, source_of
from fedpact.problem import Measure, Share
from fedpact.statistics import gap_interval, interval
from fedpact.statistics.evaluation import (
    Evaluation,
    Outcome,
    Rate,
    give_verdicts,
    p_values_of_gap,
    p_values_of_rate,
)
from fedpact.tasks import Classification, Task
from fedpact.tasks.base import refuse_trained
from fedpact.tasks.decisions import Unseen
from fedpact.tasks.requirements import Bound, Levels, Requirement, outline, rate_names
from fedpact.types import Vector

#: Who holds a bound that is met by all rows together, of the owners that were asked.
TOGETHER = "together"
#: Rates of a classifier, in the order in which they are shown.
RATES = ("recall", "specificity", "accuracy")


# ------------------------------------------------------------------------------------------------------------ exchanges


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    """Of the rates that all owners bound together: hits, and the rows they are counted on."""

    hits: Summed[Vector]
    rows: Summed[Vector]


@client_step
def count_together(share: Share, state: Any, order: Finished) -> tuple[Any, Counted]:
    """Count the decisions that owners answer for together."""
    assert isinstance(share.measures, Unseen)
    hits, rows = share.measures.count_together(order.w)
    return state, Counted(hits=hits, rows=rows)


def evaluate(
    task: Task,
    w: Vector,
    owners: Mapping[str, Held],
    session: Session | None = None,
    *,
    trained: Mapping[str, Held] | None = None,
    tables: Collection[str] = (),
    level: float = 0.95,
) -> Evaluation:
    """Measure a model on rows that nobody trained on, at their owners.

    task, w: of a fit, `Fit.task` and `Fit.solution.w`
    owners:  name -> its new rows, their file, or None for a site that has its own
    session: where and how; by default in this process. One that is given stays open
    trained: name -> the rows or file it was trained on: needed where every owner decides at a threshold of its own,
             which is found from rows held out there
    tables:  digests of tables that it was trained on, `Fit.tables`
    level:   of the intervals

    Raises OptionError for a task without a model, or whose thresholds cannot be found; DataError for a table that does
    not fit, or that the model was trained on.
    """
    known = trained or {}
    seen_before = {*tables, *digests_of(source_of(name, held) for name, held in known.items())}
    own_threshold = isinstance(task, Classification) and task.decide_own
    for name, held in owners.items():
        if own_threshold and held is not None and known.get(name) is None:
            raise OptionError(
                f"owner {name!r} decides at a threshold of its own, which is found from its training rows; give "
                "trained=, or its file in the job",
                code="FP-OPTION-836",
                key="threshold",
            )
    sources = {}
    for name, held in owners.items():
        new = source_of(name, held)
        if digests_of([new]) & seen_before:
            refuse_trained(name)
        if known.get(name) is not None:
            sources[name] = source_of(name, known[name], new)
            continue
        # Where no threshold depends on them, training rows are not looked at: the new ones stand in for them.
        if new is not None and new.unseen is None:
            new.unseen = new
        sources[name] = new
    asked = replace(task, evaluating=True)
    if session is None:
        with Session() as made:
            return _ask(asked, w, made.open(sources, asked.identity()), level)
    return _ask(asked, w, session.open(sources, asked.identity()), level)


def _ask(task: Task, w: Vector, session: Session, level: float) -> Evaluation:
    coupled = isinstance(task, Classification) and any(one.held_by == "all" for one in task.rates)
    if coupled:
        hide_sums(session)
    session.pose(task)
    replies = session.ask(measure, Finished(w=w))
    told = dict(zip(session.owners, replies, strict=True))
    bounds: list[Outcome] = []
    if isinstance(task, Classification):
        bounds = [one for owner, reply in told.items() for one in _judge_owner(task, owner, reply, level)]
        if coupled:
            bounds += _judge_together(task, session.ask(count_together, Finished(w=w)).total, level)
    return Evaluation(
        level,
        give_verdicts(bounds, level),
        estimate_rates(told, level),
        {
            owner: {task.measure_name(name): value for name, value in reply.told().items()}
            for owner, reply in told.items()
        },
        {owner: tuple(task.measure_name(name) for name in json.loads(reply.withheld)) for owner, reply in told.items()},
    )


# ------------------------------------------------------------------------------------------------------------ judgement


def _judge_owner(task: Classification, owner: str, reply: Measured, level: float) -> Iterator[Outcome]:
    """The bounds of one owner."""
    told = reply.measures()
    withheld = json.loads(reply.withheld)
    for one in task.requirements:
        if one.held_by == "each":
            yield from judge(one, task.levels, owner, told, level, withheld)


def _judge_together(task: Classification, total: Counted, level: float) -> Iterator[Outcome]:
    """The bounds that all owners meet together, from counts over all of them."""
    shared = [one for one in task.rates if one.held_by == "all"]
    names = [name for one in shared for name in rate_names(one, task.levels)]
    told = {}
    for name, hits, rows in zip(names, total.hits, total.rows, strict=True):
        if rows:
            told[name] = Measure(float(hits / rows), round(float(rows)))
    for one in shared:
        yield from judge(one, task.levels, TOGETHER, told, level)


def judge(
    one: Requirement,
    levels: Levels,
    owner: str,
    told: Mapping[str, Measure],
    level: float,
    withheld: Collection[str] = (),
) -> Iterator[Outcome]:
    """The bounds of a requirement, in the order of `outline`.

    told, withheld: rates by `rate_names`, and losses by the words of `outline`
    """
    bounds = list(outline(one, levels, owner))
    for bound, names in zip(bounds, _rests_on(one, levels, bounds), strict=True):
        found = [told[name] for name in names if name in told]
        outcome = Outcome(owner, bound.what, math.nan, bound.bound, math.nan, math.nan, 0, bound.least)
        if len(found) < len(names):
            yield replace(outcome, withheld=any(name in withheld for name in names))
            continue
        rows = [rate.rows for rate in found]
        value = abs(found[1] - found[0]) if len(found) == 2 else float(found[0])
        outcome = replace(outcome, value=value, rows=min(rows))
        if one.rates:
            outcome = _test(outcome, [round(rate * rate.rows) for rate in found], rows, level)
        yield outcome


def _rests_on(one: Requirement, levels: Levels, bounds: Sequence[Bound]) -> Iterator[tuple[str, ...]]:
    """Names of the measures that each bound rests on: one, or the rates of two groups."""
    if not one.rates:  # of a loss owners tell the value itself
        yield from ((bound.what,) for bound in bounds)
        return
    names = rate_names(one, levels)
    if not one.is_gap:
        yield from ((name,) for name in names for _ in one.sides)
        return
    groups = len(levels.groups)
    for start in range(0, len(names), groups):
        yield from combinations(names[start : start + groups], 2)


def _test(outcome: Outcome, hits: list[int], rows: list[int], level: float) -> Outcome:
    """With the interval of a rate, or of the gap between two, and p-values for both sides of its bound."""
    if len(hits) == 1:
        low, high = interval(hits[0], rows[0], level)
        p_met, p_missed = p_values_of_rate(hits[0], rows[0], outcome.bound, outcome.least)
    else:
        low, high = gap_interval(hits, rows, level)
        p_met, p_missed = p_values_of_gap(hits, rows, outcome.bound)
    return replace(outcome, low=low, high=high, p_met=p_met, p_missed=p_missed)


def estimate_rates(told: Mapping[str, Measured], level: float) -> dict[str, dict[str, Rate]]:
    """Rates of every owner, and of all rows together where everyone tells them."""
    found: dict[str, dict[str, Rate]] = {}
    for owner, reply in told.items():
        rates = {name: one for name, one in reply.measures().items() if name in RATES}
        found[owner] = {name: _estimate(round(one * one.rows), one.rows, level) for name, one in rates.items()}
    together = {}
    for name in RATES:
        own = [rates[name] for rates in found.values() if name in rates]
        if own and len(own) == len(found):
            rows = np.array([one.rows for one in own])
            hits = np.rint(np.array([one.value for one in own]) * rows)
            together[name] = _estimate(int(hits.sum()), int(rows.sum()), level)
    return {**found, TOGETHER: together} if len(found) > 1 else found


def _estimate(hits: int, rows: int, level: float) -> Rate:
    return Rate(hits / rows, *interval(hits, rows, level), rows)
