"""What a report holds, before it is HTML or Markdown: sections of paragraphs, tables and charts. All text is plain."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedpact.problem.certificate import TOGETHER
from fedpact.report import wording
from fedpact.report.charts import Chart
from fedpact.report.course import charts
from fedpact.report.figures import thin
from fedpact.report.numbers import duration, given, number, size
from fedpact.report.record import Measured, Record, Step, Verification
from fedpact.report.wording import MASKED, named
from fedpact.tasks.base import Bounded

MARKS = {
    "met": "✓",
    "within tolerance": "≈",
    "within one row": "≈",
    "kept": "✓",
    "not kept": "✗",
    "not met": "✗",
    "not known": "?",
    "withheld": "·",
}
#: More constraints than a reader sees at a glance: then they are sorted, the tightest first.
MANY = 12
#: At most so many rows in the table behind the charts.
ROWS = 50
#: A cell of which nothing is known, or that does not apply.
NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    exact:  the number behind the text
    good:   whether it passes
    used:   the fraction of a bound that is used, drawn as a bar
    remark: shown small, behind the text
    """

    text: str
    exact: float | None = None
    good: bool | None = None
    used: float | None = None
    remark: str = ""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with their heading. folded: collapsed until the reader opens it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    folded: bool = False

    def numeric(self, column: int) -> bool:
        return column > 0 and any(row[column].exact is not None for row in self.rows)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """key: its anchor on the page."""

    key: str
    title: str
    blocks: tuple[str | Table | Chart | Items, ...]


@dataclass(frozen=True)
class Report:
    """The content of a report. figures: the run in a few numbers, as (name, number, remark)."""

    title: str
    asked: str
    made: str
    verdict: wording.Verdict
    figures: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]


def report(record: Record, evidence: Verification | None = None) -> Report:
    """The report on a run; sections without content are left out.

    evidence: what checking it found; None: nobody signed
    """
    sections = []
    if record.bounded:
        sections.append(_constraints(record))
    sections.append(_certificate(record))
    sections.append(_evidence(evidence, bool(record.parties)))
    if record.bounded:
        sections.append(_prices(record))
    if record.parties:
        sections.append(_parties(record))
    if record.inference:
        sections.append(_coefficients(record))
    if any(one.numbers or one.withheld for one in record.measured):
        sections.append(_measured(record))
    sections.append(_course(record))
    if record.sent:
        sections.append(_left(record))
    sections.append(_repeat(record))
    if record.notes:
        sections.append(Section("notes", "Notes: choices made on the way", (Items(record.notes),)))
    took = duration(record.seconds)
    verdict = wording.verdict(record)
    if evidence is not None and not evidence.verified:
        verdict = wording.unverified(evidence)
    return Report(
        title=record.title,
        asked=record.asked,
        made=f"Method {record.method}, engine {record.engine}; started {record.started}, took {took}.",
        verdict=verdict,
        figures=tuple(_figures(record)),
        sections=tuple(sections),
    )


def _figures(record: Record) -> Iterable[tuple[str, str, str]]:
    if record.bounded:
        yield "Constraints met", f"{wording.count_met(record):,} of {len(record.bounded):,}", ""
    if promised := [one for one in record.bounded if one.promise]:
        kept = sum(one.promise == "kept" for one in promised)
        yield "Promises kept", f"{kept:,} of {len(promised):,}", "for rows not yet seen"
    if told := wording.measurable(record):
        one = wording.tightest(told)
        yield "Smallest slack", number(one.slack), wording.placed(one.owner)
    yield "Stationarity", number(record.stationarity), f"{given(record.tol[0])} asked for"
    yield "Feasibility", number(record.feasibility), f"{given(record.tol[1])} asked for"
    yield "Objective", number(record.objective), "minimised"
    moved = sum(one.bytes_down + one.bytes_up for one in record.sent)
    yield "Exchanges", f"{record.rounds:,}", f"{size(moved)} in all"


# ------------------------------------------------------------------------------------------------- constraints, prices


def _constraints(record: Record) -> Section:
    bounded: Sequence[Bounded] = record.bounded
    caption = "Constraints by owner"
    if len(bounded) > MANY:
        bounded = sorted(bounded, key=wording.by_slack)
        caption += ", the tightest first"
    columns = ("Owner", "What is bounded", "Bound", "Value", "Slack", "Bound used", "Verdict")
    table = Table(caption, columns, tuple(_constraint_row(one, record.tol[1]) for one in bounded))
    return Section("constraints", "Constraints, owner by owner", (*wording.explain_constraints(record), table))


def _constraint_row(one: Bounded, tol: float) -> Row:
    state = wording.state(one, tol)
    fraction = wording.used(one)
    used = Cell(NONE)
    if math.isfinite(fraction):
        used = Cell(f"{100 * fraction:.1f} %", fraction, used=fraction)
    verdict = Cell(f"{MARKS[state]} {state}", good=state in wording.GOOD)
    if one.promise:
        verdict = replace(verdict, remark=f"for new rows, confidence {given(one.confidence)}")
    elif one.withheld:
        verdict = Cell(f"{MARKS[state]} {state}")
    bound = Cell(wording.limit(one), one.bound)
    if one.allowed:
        bound = replace(bound, remark=f"and one row: {number(one.allowed)}")
    if one.withheld:
        silent = Cell("withheld")
        return Cell(one.owner), Cell(one.what), bound, silent, silent, used, verdict
    return Cell(one.owner), Cell(one.what), bound, _value_cell(one), _cell(one.slack), used, verdict


def _value_cell(one: Bounded) -> Cell:
    """The value, and how sure it is."""
    if one.interval is None:
        return _cell(one.value)
    low, high = one.interval
    return replace(_cell(one.value), remark=f"{low:.3f} to {high:.3f}, {one.rows:,} rows")


def _prices(record: Record) -> Section:
    columns = ("Owner", "What is bounded", "Price of one unit", "If loosened", "Objective falls by about", "Part of it")
    rows = []
    for one in wording.priced(record):
        loosened = Cell(f"{given(one.bound)} → {given(wording.loosen(one))}")
        part = Cell(wording.relative_gain(record, one) or NONE)
        rows.append((Cell(one.owner), Cell(one.what), _cell(abs(one.price)), loosened, _cell(wording.gain(one)), part))
    blocks: list[str | Table] = [*wording.prices(record)]
    if rows:
        blocks.append(Table("What one unit more slack would buy", columns, tuple(rows)))
    return Section("prices", "What the bounds cost", tuple(blocks))


# --------------------------------------------------------------------------------------------------------- certificate


def _certificate(record: Record) -> Section:
    stationarity = _measure_row("Stationarity", wording.STATIONARITY, record.tol[0], record.stationarity)
    feasibility = _measure_row("Feasibility", wording.FEASIBILITY, record.tol[1], record.feasibility)
    columns = ("Measure", "What it means here", "Asked for, at most", "Reached", "Verdict")
    table = Table("The certificate", columns, (stationarity, feasibility))
    return Section("certificate", "The certificate, in plain words", (table, *wording.certificate(record)))


def _evidence(found: Verification | None, parties: bool) -> Section:
    blocks: list[str | Table | Items] = [*wording.describe_evidence(found, parties)]
    if found is not None and found.failed:
        blocks.append(Items(tuple(map(wording.explain_failure, found.failed))))
    if found is not None and found.signed:
        rows = [(Cell(owner), Cell(key)) for owner, key in found.signed.items()]
        blocks.append(Table("Signatures that hold", ("Owner", "Public key"), tuple(rows)))
    return Section("evidence", "Who signed", tuple(blocks))


def _measure_row(name: str, meaning: str, tol: float, reached: float) -> Row:
    good = reached <= tol
    verdict = Cell("✓ reached" if good else "✗ not reached", good=good)
    return Cell(name), Cell(meaning), Cell(given(tol), tol), _cell(reached), verdict


# ------------------------------------------------------------------------------------------------------------ measures


def _parties(record: Record) -> Section:
    rows = [(Cell(party), _cell(len(columns)), Cell(", ".join(columns))) for party, columns in record.parties.items()]
    table = Table("Columns by party", ("Party", "Columns", "Names"), tuple(rows))
    holder = wording.LABELS.format(named(record.settings.get("label_at", "server")))
    return Section("parties", "Parties and their columns", (wording.PARTIES, table, holder))


def _coefficients(record: Record) -> Section:
    columns = ("Coefficient", "Estimate", "Standard error", "z", "p", "95 % low", "95 % high")
    blocks: list[str | Table | Items] = [wording.INFERENCE[record.inference]]
    for caption, estimates in (("Coefficients", record.coefficients), ("Prices of what binds", record.priced)):
        rows = []
        for one in estimates:
            numbers = (one.estimate, one.se, one.z, one.p, one.low, one.high)
            cells = [Cell(NONE) if math.isnan(value) else Cell(number(value), value) for value in numbers]
            rows.append((Cell(one.name), *cells))
        if rows:
            blocks.append(Table(caption, columns, tuple(rows)))
    if record.uncovered:
        blocks.append(Items(record.uncovered))
    return Section("coefficients", "Coefficients, with 95 % intervals", tuple(blocks))


def _measured(record: Record) -> Section:
    if record.parties:
        return _measured_by_coordinator(record)
    found = dict.fromkeys(name for one in record.measured for name in (*one.numbers, *one.withheld))
    names = _group(list(found))
    counts = {name for name in names if _is_count(name, record.measured)}
    rows = []
    for one in record.measured:
        cells = [_measured_cell(one, name, name in counts) for name in names]
        rows.append((Cell(one.owner), *cells))
    about = "What each owner measured with this model on its own rows."
    if any(one.intervals for one in record.measured):
        about += (
            " A range is a 95 % confidence interval, from the number of rows behind the value. An owner with few rows "
            "has a wide one: on new rows its value may be anywhere in it."
        )
    if remarks := wording.describe_one_class(record):
        about += " " + " ".join(remarks)
    if any(one.withheld for one in record.measured):
        about += " A number is withheld where it would tell of fewer rows than the owner's policy allows."
    table = Table("Measured at the owners", ("Owner", *names), tuple(rows))
    return Section("measured", "Measured at the owners", (about, table))


def _measured_by_coordinator(record: Record) -> Section:
    """Of a vertical model: by whom labels and scores are held, for all people together."""
    [one] = record.measured
    rows = []
    for name in _group(list(one.numbers)):
        rows.append((Cell(name), _measured_cell(one, name, _is_count(name, record.measured))))
    about = (
        "What the coordinator counted on the people in common, with the labels and groups that it has. A range is a "
        "95 % confidence interval, from the number of rows behind the value."
    )
    table = Table("Measured", ("Measure", "Value"), tuple(rows))
    remarks = wording.describe_one_class(record)
    return Section("measured", "Measured on the people in common", (about, *remarks, table))


def _is_count(name: str, measured: Sequence[Measured]) -> bool:
    """Whether a measure is an integer at every owner, without a confidence interval."""
    values = [one.numbers[name] for one in measured if name in one.numbers]
    estimated = any(name in one.intervals for one in measured)
    return not estimated and all(float(value).is_integer() for value in values)


def _measured_cell(one: Measured, name: str, count: bool) -> Cell:
    if name in one.withheld:
        return Cell("withheld")
    if name not in one.numbers:
        return Cell(NONE)
    value = one.numbers[name]
    text = number(int(value)) if count else number(float(value))
    if name not in one.intervals:
        return Cell(text, value)
    low, high = one.intervals[name]
    return Cell(text, value, remark=f"{number(low)} to {number(high)}")


def _group(names: Sequence[str]) -> tuple[str, ...]:
    """In order, but "recall without constraints" directly after "recall"."""
    first = {name: next(other for other in names if f"{name} ".startswith(f"{other} ")) for name in names}
    return tuple(sorted(names, key=lambda name: names.index(first[name])))


# --------------------------------------------------------------------------------------------------------- convergence


def _course(record: Record) -> Section:
    if not record.history:
        return Section("course", "Convergence", ("No iterate was judged, so there is nothing to draw.",))
    about = (
        f"Iterates judged: {len(record.history):,}. An exchange is one message down to every owner and one message up."
    )
    if record.rounds > record.history[-1].rounds:
        about += (
            " The charts show the solve that gave the model; exchanges of the whole run, with those before and after "
            f"it: {record.rounds:,}."
        )
    return Section("course", "Convergence", (about, *charts(record), _history_table(record.history)))


def _history_table(steps: Sequence[Step]) -> Table:
    kept = thin(len(steps), points=ROWS)
    caption = "The numbers behind the charts"
    if len(kept) < len(steps):
        caption += f" ({len(kept)} of {len(steps):,} points)"
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
    spread = (_cell(min(violations)), _cell(mean))
    if TOGETHER in step.violations:  # whose they are was hidden by secure sums
        spread = (Cell(NONE), Cell(NONE))
    judged = (_cell(max(violations)), _cell(step.stationarity), _cell(step.feasibility))
    return Cell(f"{step.rounds:,}"), _cell(step.objective), *spread, *judged, Cell(size(step.bytes), step.bytes)


# ------------------------------------------------------------------------------------------------ what left, to repeat


def _left(record: Record) -> Section:
    traffic = []
    for one in record.sent:
        masked = sum(field.endswith(MASKED) for field in one.fields)
        moved = (Cell(size(one.bytes_up), one.bytes_up), Cell(size(one.bytes_down), one.bytes_down))
        messages = (_cell(one.messages_up), _cell(one.messages_down))
        traffic.append((Cell(one.owner), *messages, *moved, _cell(len(one.fields)), _cell(masked)))
    columns = ("Owner", "Messages sent", "Messages received", "Sent", "Received", "Fields sent", "of them masked")
    by_owner = Table("Messages and bytes by owner", columns, tuple(traffic))
    inferred = wording.infer(record) if record.parties else []
    return Section("left", "What left each owner", (wording.LEFT, by_owner, _fields_table(record), *inferred))


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
        how = "masked: only the sum was seen" if masked else "as it is"
        by = "every owner" if len(owners) == len(record.sent) else ", ".join(map(named, owners))
        rows.append((Cell(message or NONE), Cell(", ".join(names)), Cell(how), Cell(by)))
    return Table("Fields that left an owner", ("Message", "Fields", "How they left", "Sent by"), tuple(rows))


def _repeat(record: Record) -> Section:
    blocks: list[str | Table] = [wording.REPEAT]
    if record.settings:
        blocks.append(_pairs("Settings, with defaults filled in", "Setting", dict(_flatten(record.settings))))
    if record.versions:
        blocks.append(_pairs("Versions", "Package", record.versions))
    return Section("repeat", "To repeat this run", tuple(blocks))


def _pairs(caption: str, head: str, pairs: Mapping[str, str]) -> Table:
    return Table(caption, (head, "Value"), tuple((Cell(key), Cell(value)) for key, value in pairs.items()))


def _flatten(settings: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    """Nested tables as dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{before}{key}.")
        elif isinstance(value, str):
            yield f"{before}{key}", value
        else:
            yield f"{before}{key}", json.dumps(value, ensure_ascii=False, default=str)


def _cell(value: float) -> Cell:
    return Cell(number(value), value)
