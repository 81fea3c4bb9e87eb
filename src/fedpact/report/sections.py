"""The sections of a report in their order: what was asked, the model, what it costs; proofs and traffic last."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpact.problem.certificate import TOGETHER
from fedpact.report import assurance, wording
from fedpact.report.assurance import MASKED
from fedpact.report.charts import Estimate, Forest
from fedpact.report.coefficients import Coefficient
from fedpact.report.content import NONE, Block, Cell, Charts, Items, Report, Row, Section, Table, capital, cell
from fedpact.report.course import charts
from fedpact.report.evaluations import evaluated, summarize_evaluation
from fedpact.report.figures import thin
from fedpact.report.language import say
from fedpact.report.measures import INFERENCE, data, is_recall, measured, model, tabulate
from fedpact.report.numbers import duration, given, number, size
from fedpact.report.prices import prices
from fedpact.report.quality import quality, trade_off
from fedpact.report.record import Record, Step, Verification
from fedpact.report.wording import named
from fedpact.statistics.evaluation import Evaluation
from fedpact.tasks.base import Bounded

MARKS = {
    "met": "✓",
    "within tolerance": "≈",
    "within one row": "≈",
    "made": "✓",
    "not made": "✗",
    "not met": "✗",
    "not known": "?",
    "withheld": "·",
}
#: More constraints than a reader sees at a glance: then they are sorted, the tightest first.
MANY = 12
#: At most so many rows in the table behind the charts, and in a chart of intervals.
ROWS = 50
DRAWN = 24


def report(
    record: Record,
    evidence: Verification | None = None,
    coefficients: Sequence[Coefficient] = (),
    evaluations: Sequence[Evaluation] = (),
) -> Report:
    """The report on a run; sections without content are left out.

    evidence:     what checking it found; None: nobody signed
    coefficients: of its model
    evaluations:  of its model on rows that nobody trained on, the oldest first
    """
    verdict = wording.verdict(record, evaluations)
    if evidence is not None and not evidence.holds:
        verdict = assurance.unverified(evidence)
    elif evidence is not None and evidence.own_term:
        verdict = assurance.qualified(verdict)
    made = say(
        "Method {method}, engine {engine}; started {started}, took {took}.",
        method=record.method,
        engine=record.engine,
        started=record.started,
        took=duration(record.seconds),
    )
    sections = [*_list_sections(record, evidence, coefficients)]
    figures = [*_figures(record)]
    if evaluations:
        sections.insert(0, evaluated(evaluations))
        figures[:0] = summarize_evaluation(evaluations[-1])
    if evidence is not None and evidence.signed:  # else the whole page is, and says so
        verdict = assurance.mark_verdict(verdict, record, bool(evaluations))
        made = f"{say(assurance.WORD_OF_HEAD)} {made}"
        sections = [assurance.mark_section(one, record) for one in sections]
        summary = [name for name, *_ in summarize_evaluation(evaluations[-1])] if evaluations else []
        unsigned = (say("Exchanges"), *summary)
        figures = [assurance.mark_figure(*one, unsigned=one[0] in unsigned) for one in figures]
    return Report(record.title, record.asked, made, verdict, tuple(figures), tuple(sections))


def _list_sections(
    record: Record, evidence: Verification | None, coefficients: Sequence[Coefficient]
) -> Iterable[Section]:
    if record.bounded:
        yield _constraints(record)
    if coefficients:
        yield model(record, coefficients)
    if record.parties:
        yield _parties(record)
    if any(one.numbers or one.withheld for one in record.measured):
        yield measured(record)
    if record.trade_off:
        yield trade_off(record)
    if record.curves is not None:
        yield quality(record.curves)
    if record.bounded:
        yield prices(record)
    if found := data(record):
        yield found
    yield _certificate(record)
    yield _evidence(evidence, bool(record.parties))
    yield _course(record)
    if record.sent:
        yield _left(record)
    yield _repeat(record)
    if record.notes:
        yield Section("notes", "Notes: choices made on the way", (Items(record.notes),))


def _figures(record: Record) -> Iterable[tuple[str, str, str]]:
    """The run in a few numbers: what was asked for comes first."""
    if record.bounded:
        met = say("{met:,} of {total:,}", met=wording.count_met(record), total=len(record.bounded))
        yield say("Constraints met"), met, ""
    if promised := [one for one in record.bounded if one.promise]:
        made = sum(one.promise == "made" for one in promised)
        counted = say("{met:,} of {total:,}", met=made, total=len(promised))
        yield say("Promises made"), counted, say("for rows not yet seen")
    for one, _ in wording.by_kind(record)[:2]:
        asked = say("{limit} asked for", limit=wording.limit(one))
        yield capital(one.what), number(one.value), f"{wording.placed(one.owner)}; {asked}"
    yield from _lowest_recall(record)
    reached = assurance.within_tolerances(record)
    yield say("Certificate"), say("✓ reached" if reached else "✗ not reached"), say("for this very model")
    moved = sum(one.bytes_down + one.bytes_up for one in record.sent)
    yield say("Exchanges"), f"{record.rounds:,}", say("{bytes} in all", bytes=size(moved))


def _lowest_recall(record: Record) -> Iterable[tuple[str, str, str]]:
    """Where something else is bounded to guard it, such as a loss: the recall is what readers look for."""
    found = {name for one in record.measured for name in one.numbers if is_recall(name, one.numbers)}
    if not found or any(one.what.startswith("recall") for one in record.bounded):
        return
    name = min(found)
    told = [one for one in record.measured if math.isfinite(one.numbers.get(name, math.nan))]
    if not told:
        return
    lowest = min(told, key=lambda one: one.numbers[name])
    remark = wording.placed(lowest.owner)
    yield say("Lowest recall"), number(lowest.numbers[name]), remark


# ---------------------------------------------------------------------------------------------------------- constraints


def _constraints(record: Record) -> Section:
    bounded: Sequence[Bounded] = record.bounded
    caption = "Constraints by owner"
    if len(bounded) > MANY:
        bounded = sorted(bounded, key=wording.by_slack)
        caption = "Constraints by owner, the tightest first"
    columns = ("Owner", "Verdict", "Value", "Asked for", "What is bounded", "Slack", "Bound used")
    table = Table(caption, columns, tuple(_constraint_row(one, record.tol[1]) for one in bounded))
    blocks: list[Block] = [table, *wording.explain_constraints(record)]
    if drawn := _draw_constraints(bounded, record.tol[1]):
        blocks.insert(0, Charts(tuple(drawn)))
    return Section("constraints", "What was asked, owner by owner", tuple(blocks))


def _draw_constraints(bounded: Sequence[Bounded], tol: float) -> Iterable[Forest]:
    """A chart for everything that several holders have one bound on."""
    kinds: dict[tuple[str, bool, float], list[Bounded]] = {}
    for one in bounded:
        if math.isfinite(one.value):
            kinds.setdefault((one.what, one.least, one.bound), []).append(one)
    for place, ((what, _, bound), found) in enumerate(kinds.items()):
        if len(found) == 1:
            continue
        rows = []
        for one in found[:DRAWN]:
            good = wording.state(one, tol) in wording.GOOD
            rows.append(Estimate(one.owner, one.value, math.nan, math.nan, good=good))
        about = say("{what} at {count:,} owners; the dashed line is the bound.", what=what, count=len(rows))
        title = say("{what}: {limit} asked for", what=capital(what), limit=wording.limit(found[0]))
        told = ", ".join(f"{row.label} {number(row.value)}" for row in rows)
        yield Forest(
            key=f"asked-{place}", title=title, about=f"{about} {told}.", x=what, rows=tuple(rows), reference=bound
        )


def _constraint_row(one: Bounded, tol: float) -> Row:
    state = wording.state(one, tol)
    fraction = wording.used(one)
    used = Cell(NONE)
    if math.isfinite(fraction):
        used = Cell(f"{100 * fraction:.1f} %", fraction, used=fraction)
    verdict = Cell(f"{MARKS[state]} {say(state)}", good=state in wording.GOOD)
    if one.promise:
        verdict = replace(verdict, remark=say("for new rows, confidence {level}", level=given(one.confidence)))
    elif one.withheld:
        verdict = Cell(f"{MARKS[state]} {say(state)}")
    bound = Cell(wording.limit(one), one.bound)
    if one.allowed:
        bound = replace(bound, remark=say("and one row: {row}", row=number(one.allowed)))
    if one.withheld:
        silent = Cell(say("withheld"))
        return Cell(one.owner), verdict, silent, bound, Cell(one.what), silent, used
    return Cell(one.owner), verdict, _value_cell(one), bound, Cell(one.what), cell(one.slack), used


def _value_cell(one: Bounded) -> Cell:
    """The value, and on how many rows it was counted."""
    if not one.rows:
        return cell(one.value)
    return replace(cell(one.value), remark=say("{rows:,} rows", rows=one.rows))


# --------------------------------------------------------------------------------------------------------------- proofs


def _certificate(record: Record) -> Section:
    stationarity = _measure_row("Stationarity", assurance.STATIONARITY, record.tol[0], record.stationarity)
    feasibility = _measure_row("Feasibility", assurance.FEASIBILITY, record.tol[1], record.feasibility)
    columns = ("Measure", "Verdict", "Reached", "Asked for, at most", "What it means here")
    table = Table("The certificate", columns, (stationarity, feasibility))
    blocks: list[Block] = [table, *assurance.explain_certificate(record)]
    return Section("certificate", "The certificate, in plain words", tuple(blocks))


def _measure_row(name: str, meaning: str, tol: float, reached: float) -> Row:
    good = reached <= tol
    verdict = Cell(say("✓ reached") if good else say("✗ not reached"), good=good)
    return Cell(say(name)), verdict, cell(reached), Cell(given(tol), tol), Cell(say(meaning))


def _evidence(found: Verification | None, parties: bool) -> Section:
    blocks: list[Block] = [*assurance.describe_evidence(found, parties)]
    if found is not None and found.failed:
        blocks.append(Items(tuple(map(assurance.explain_failure, found.failed))))
    if found is not None and found.signed:
        rows = [(Cell(owner), Cell(key)) for owner, key in found.signed.items()]
        blocks.append(Table("Signatures that hold", ("Owner", "Public key"), tuple(rows)))
    return Section("evidence", "Who signed", tuple(blocks))


def _parties(record: Record) -> Section:
    rows = [(Cell(party), cell(len(columns)), Cell(", ".join(columns))) for party, columns in record.parties.items()]
    table = Table("Columns by party", ("Party", "Columns", "Names"), tuple(rows))
    holder = say(assurance.LABELS, holder=named(record.settings.get("label_at", "server")))
    blocks: list[Block] = [say(assurance.PARTIES), table, holder, say(assurance.WENT_DOWN)]
    if record.inference:
        blocks.append(say(INFERENCE.get(record.inference, "")))
        blocks.append(tabulate("The coordinator's part of the model", "Coefficient", record.coefficients))
    if record.priced:
        blocks.append(tabulate("Prices of what binds", "Constraint", record.priced))
    if record.uncovered:
        blocks.append(Items(tuple(say(sentence) for sentence in record.uncovered)))
    return Section("parties", "Parties and their columns", tuple(blocks))


# --------------------------------------------------------------------------------------------------------- convergence


def _course(record: Record) -> Section:
    if not record.history:
        nothing = say("No iterate was judged, so there is nothing to draw.")
        return Section("course", "Convergence", (nothing,))
    about = say(
        "Iterates judged: {count:,}. An exchange is one message down to every owner and one message up.",
        count=len(record.history),
    )
    if record.rounds > record.history[-1].rounds:
        about += " " + say(
            "The charts show the solve that gave the model; exchanges of the whole run, with those before and after "
            "it: {rounds:,}.",
            rounds=record.rounds,
        )
    return Section("course", "Convergence", (about, Charts(tuple(charts(record))), _history_table(record.history)))


def _history_table(steps: Sequence[Step]) -> Table:
    kept = thin(len(steps), points=ROWS)
    caption = say("The numbers behind the charts")
    if len(kept) < len(steps):
        caption += " " + say("({shown} of {count:,} points)", shown=len(kept), count=len(steps))
    columns = (
        "Exchange",
        "Objective",
        "Least violation",
        "Mean violation",
        "Most violation",
        "Stationarity",
        "Feasibility",
        "Data moved",
    )
    return Table(caption, columns, tuple(_history_row(steps[i]) for i in kept), folded=True)


def _history_row(step: Step) -> Row:
    violations = list(step.violations.values()) or [math.nan]
    mean = sum(violations) / len(violations)
    spread = (cell(min(violations)), cell(mean))
    if TOGETHER in step.violations:  # whose they are was hidden by secure sums
        spread = (Cell(NONE), Cell(NONE))
    judged = (cell(max(violations)), cell(step.stationarity), cell(step.feasibility))
    return Cell(f"{step.rounds:,}"), cell(step.objective), *spread, *judged, Cell(size(step.bytes), step.bytes)


# ------------------------------------------------------------------------------------------------ what left, to repeat


def _left(record: Record) -> Section:
    traffic = []
    for one in record.sent:
        masked = sum(field.endswith(MASKED) for field in one.fields)
        moved = (Cell(size(one.bytes_up), one.bytes_up), Cell(size(one.bytes_down), one.bytes_down))
        messages = (cell(one.messages_up), cell(one.messages_down))
        traffic.append((Cell(one.owner), *messages, *moved, cell(len(one.fields)), cell(masked)))
    columns = ("Owner", "Messages sent", "Messages received", "Sent", "Received", "Fields sent", "of them masked")
    by_owner = Table("Messages and bytes by owner", columns, tuple(traffic))
    inferred = assurance.infer(record) if record.parties else []
    blocks: list[Block] = [say(assurance.LEFT), by_owner, _fields_table(record), *inferred]
    return Section("left", "What left each owner", tuple(blocks))


def _fields_table(record: Record) -> Table:
    """A row per message class and set of senders."""
    senders: dict[str, list[str]] = {}
    for one in record.sent:
        for field in one.fields:
            senders.setdefault(field, []).append(one.owner)
    groups: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for field, sent_by in senders.items():
        message, _, name = field.removesuffix(MASKED).rpartition(".")
        key = (message, field.endswith(MASKED), tuple(sent_by))
        groups.setdefault(key, []).append(name)
    rows = []
    for (message, masked, owners), names in groups.items():
        how = say("masked: only the sum was seen") if masked else say("as it is")
        by = say("every owner") if len(owners) == len(record.sent) else ", ".join(map(named, owners))
        rows.append((Cell(message or NONE), Cell(", ".join(names)), Cell(how), Cell(by)))
    return Table("Fields that left an owner", ("Message", "Fields", "How they left", "Sent by"), tuple(rows))


def _repeat(record: Record) -> Section:
    blocks: list[Block] = [say(assurance.REPEAT)]
    if record.settings:
        blocks.append(_pairs("Settings, with defaults filled in", "Setting", dict(flatten(record.settings))))
    if record.versions:
        blocks.append(_pairs("Versions", "Package", record.versions))
    return Section("repeat", "To repeat this run", tuple(blocks))


def _pairs(caption: str, head: str, pairs: Mapping[str, str]) -> Table:
    return Table(caption, (head, "Value"), tuple((Cell(key), Cell(value)) for key, value in pairs.items()))


def flatten(settings: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    """Nested tables as dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{before}{key}.")
        elif isinstance(value, str):
            yield f"{before}{key}", value
        else:
            yield f"{before}{key}", json.dumps(value, ensure_ascii=False, default=str)
