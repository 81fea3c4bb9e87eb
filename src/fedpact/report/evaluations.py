"""The section about evaluations: the model on rows that nobody trained on, above all that training rows show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedpact.report.content import NONE, Block, Cell, Row, Section, Table, cell
from fedpact.report.language import say
from fedpact.report.numbers import given
from fedpact.report.wording import limit
from fedpact.statistics.evaluation import Evaluation, Outcome

#: How a verdict is marked, and whether it is good; "open" is neither.
MARKS = {"borne out": ("✓", True), "contradicted": ("✗", False), "open": ("?", None)}

ABOUT = (
    "Measured by fedpact evaluate after the run, on rows that nobody trained on; signed by nobody. A verdict is given "
    "where exact tests show it for all bounds of an evaluation together (Holm's correction: any of them is wrong with "
    "probability {wrong} at most); a range is the exact confidence interval of one rate by itself. Rows count as "
    "independent of each other: rows of one person or one doctor say less than they seem to."
)


def summarize_evaluation(last: Evaluation) -> Iterable[tuple[str, str, str]]:
    """The evaluation as a figure: how many bounds it bears out."""
    if not last.bounds:
        return
    met = say("{met:,} of {total:,}", met=last.count("borne out"), total=len(last.bounds))
    remark = say("{count:,} contradicted", count=last.count("contradicted"))
    yield say("Borne out by new rows"), met, remark


def evaluated(evaluations: Sequence[Evaluation]) -> Section:
    """The last evaluation bound by bound, and all of them by their time."""
    last = evaluations[-1]
    blocks: list[Block] = [say(ABOUT, wrong=given(round(1 - last.level, 6)))]
    if last.bounds:
        heads = ("Owner", "Verdict", "Value", "Asked for", "What is bounded", "Rows")
        blocks.append(Table("The last evaluation", heads, tuple(map(_outcome_row, last.bounds))))
    else:
        blocks.append(_tabulate_measures(last))
    if len(evaluations) > 1:
        columns = ("Time", "Owners", "Borne out", "Contradicted", "Open")
        blocks.append(Table("All evaluations", columns, tuple(map(_history_row, evaluations))))
    return Section("evaluations", "On rows that nobody trained on", tuple(blocks))


def _outcome_row(one: Outcome) -> Row:
    mark, good = MARKS.get(one.verdict, ("", None))
    verdict = Cell(f"{mark} {say(one.verdict)}" if one.verdict else NONE, good=good)
    asked = Cell(limit(one), one.bound)
    return Cell(one.owner), verdict, _value_cell(one), asked, Cell(one.what), cell(one.rows)


def _value_cell(one: Outcome) -> Cell:
    if math.isnan(one.value):
        return Cell(say("withheld") if one.withheld else NONE)
    if math.isnan(one.low):
        return cell(one.value)
    return replace(cell(one.value), remark=say("{low} to {high}", low=f"{one.low:.3f}", high=f"{one.high:.3f}"))


def _tabulate_measures(last: Evaluation) -> Table:
    """Of a model without bounds: what owners measured."""
    names = [*dict.fromkeys(name for found in last.measures.values() for name in found)]
    rows = []
    for owner, found in last.measures.items():
        values = [cell(found[name]) if name in found else Cell(NONE) for name in names]
        rows.append((Cell(owner), *values))
    return Table("The last evaluation", ("Owner", *names), tuple(rows))


def _history_row(one: Evaluation) -> Row:
    counts = (one.count("borne out"), one.count("contradicted"), one.count("open"))
    return Cell(one.time), Cell(", ".join(one.measures)), *map(cell, counts)
