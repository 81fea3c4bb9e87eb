"""What a report holds, before it is HTML or Markdown: sections of paragraphs, tables and charts. All text is plain."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpact.report import wording
from fedpact.report.charts import Chart
from fedpact.report.course import charts
from fedpact.report.figures import thinned
from fedpact.report.record import Record, Step
from fedpact.report.wording import given, named, number, size

MARKS = {"met": "✓", "within tolerance": "≈", "not met": "✗", "not known": "?"}
#: How a ledger marks a field of which only the sum was seen.
MASKED = " (masked)"
#: More constraints than a reader sees at a glance: then the tightest come first.
MANY = 12
#: Rows of the table behind the charts.
ROWS = 50


@dataclass(frozen=True)
class Cell:
    """exact: the number behind the text; good: does it pass? used: the part of a bound that is used, for a bar."""

    text: str
    exact: float | None = None
    good: bool | None = None
    used: float | None = None
    remark: str = ""


@dataclass(frozen=True)
class Table:
    """The first cell of a row is its head. folded: of interest to few, shown on request."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False

    def numeric(self, column: int) -> bool:
        return column > 0 and any(row[column].exact is not None for row in self.rows)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    blocks: tuple[str | Table | Chart | Items, ...]


@dataclass(frozen=True)
class Report:
    """figures: the run in a few numbers: (name, number, remark)."""

    title: str
    asked: str
    made: str
    verdict: wording.Verdict
    figures: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]


def report(record: Record) -> Report:
    sections = (_constraints, _certificate, _prices, _measured, _course, _left, _repeat)
    return Report(
        title=record.title,
        asked=record.asked,
        made=(
            f"Method {record.method}, engine {record.engine}; started {record.started}, took "
            f"{wording.duration(record.seconds)}."
        ),
        verdict=wording.verdict(record),
        figures=tuple(_figures(record)),
        sections=tuple(section for make in sections for section in make(record)),
    )


def _figures(record: Record) -> Iterable[tuple[str, str, str]]:
    if record.bounded:
        one = wording.tightest(record.bounded)
        yield "Constraints met", f"{wording.met(record):,} of {len(record.bounded):,}", ""
        yield "Least slack", number(one.slack), f"at {named(one.owner)}"
    yield "Stationarity", number(record.stationarity), f"{given(record.tol[0])} asked for"
    yield "Feasibility", number(record.feasibility), f"{given(record.tol[1])} asked for"
    yield "Objective", number(record.objective), "minimised"
    moved = sum(one.bytes_down + one.bytes_up for one in record.sent)
    yield "Exchanges", f"{record.rounds:,}", f"{size(moved)} in all"


def _constraints(record: Record) -> Iterable[Section]:
    if not record.bounded:
        return
    many = len(record.bounded) > MANY
    rows = []
    for one in sorted(record.bounded, key=wording.by_slack) if many else record.bounded:
        state = wording.state(one, record.tol[1])
        used = one.value / one.bound if one.bound > 0 and one.value >= 0 else math.nan
        rows.append(
            (
                Cell(one.owner),
                Cell(one.what),
                Cell(given(one.bound), one.bound),
                _cell(one.value),
                _cell(one.slack),
                Cell(f"{100 * used:.1f} %", used, used=used) if math.isfinite(used) else Cell("–"),
                Cell(f"{MARKS[state]} {state}", good=state in ("met", "within tolerance")),
            )
        )
    columns = ("Owner", "What is bounded", "At most", "Value", "Slack", "Bound used", "Verdict")
    about = (
        "Slack is the room that is left below the bound; a negative slack exceeds it. A bound counts as met when it is "
        f"exceeded by no more than the tolerance asked for, {given(record.tol[1])}."
    )
    yield Section(
        "constraints",
        "Constraints, owner by owner",
        (about, Table(f"Constraints by owner{', the tightest first' if many else ''}", columns, tuple(rows))),
    )


def _certificate(record: Record) -> Iterable[Section]:
    rows = [
        (Cell(name), Cell(words), Cell(given(asked), asked), _cell(reached), _passed(reached <= asked))
        for name, words, asked, reached in (
            ("Stationarity", wording.STATIONARITY, record.tol[0], record.stationarity),
            ("Feasibility", wording.FEASIBILITY, record.tol[1], record.feasibility),
        )
    ]
    columns = ("Measure", "What it means here", "Asked for, at most", "Reached", "Verdict")
    table = Table("The certificate", columns, tuple(rows))
    yield Section("certificate", "The certificate, in plain words", (table, *wording.certificate(record)))


def _prices(record: Record) -> Iterable[Section]:
    if not record.bounded:
        return
    rows = [
        (
            Cell(one.owner),
            Cell(one.what),
            _cell(abs(one.price)),
            Cell(f"{given(one.bound)} → {given(one.bound + wording.step(one))}"),
            _cell(wording.gain(one)),
            Cell(wording.of_objective(record, one).removeprefix(", ").removesuffix(" of it") or "–"),
        )
        for one in wording.priced(record)
    ]
    columns = ("Owner", "What is bounded", "Price of one unit", "If loosened", "Objective falls by about", "Part of it")
    tables = (Table("What one unit more slack would buy", columns, tuple(rows)),) if rows else ()
    yield Section("prices", "What the bounds cost", (*wording.prices(record), *tables))


def _measured(record: Record) -> Iterable[Section]:
    names = _grouped(list(dict.fromkeys(name for one in record.measured for name in one.numbers)))
    if not names:
        return
    values = {name: [one.numbers[name] for one in record.measured if name in one.numbers] for name in names}
    whole = {name for name in names if all(float(value).is_integer() for value in values[name])}
    whole -= {name for one in record.measured for name in one.intervals}
    rows = []
    for one in record.measured:
        cells = [Cell(one.owner)]
        for name in names:
            if name not in one.numbers:
                cells.append(Cell("–"))
                continue
            value, interval = one.numbers[name], one.intervals.get(name)
            between = f"{number(interval[0])} to {number(interval[1])}" if interval else ""
            cells.append(Cell(number(int(value) if name in whole else float(value)), value, remark=between))
        rows.append(tuple(cells))
    about = "What each owner measured with this model on its own rows."
    if any(one.intervals for one in record.measured):
        about += (
            " A range is a 95 % confidence interval, from the number of rows behind the value. An owner with few rows "
            "has a wide one: among new rows its value may be anywhere in it."
        )
    table = Table("Measured at the owners", ("Owner", *names), tuple(rows))
    yield Section("measured", "Measured at the owners", (about, table))


def _grouped(names: Sequence[str]) -> tuple[str, ...]:
    """In order, but "recall without constraints" right behind "recall"."""
    first = {name: next(other for other in names if f"{name} ".startswith(f"{other} ")) for name in names}
    return tuple(sorted(names, key=lambda name: names.index(first[name])))


def _course(record: Record) -> Iterable[Section]:
    if not record.history:
        yield Section(
            "course", "The course of the run", ("No point was judged on the way, so there is nothing to draw.",)
        )
        return
    about = (
        f"{wording.counted(len(record.history), 'point')} on the way {'was' if len(record.history) == 1 else 'were'} "
        "judged, in order. An exchange is one message down to every owner and one up."
    )
    if record.rounds > record.history[-1].rounds:
        about += (
            " The charts show the solve that gave the model; the run spent "
            f"{wording.counted(record.rounds, 'exchange')} in all, with what came before it and after it."
        )
    yield Section("course", "The course of the run", (about, *charts(record), _numbers(record.history)))


def _left(record: Record) -> Iterable[Section]:
    if not record.sent:
        return
    senders: dict[str, list[str]] = {}
    for one in record.sent:
        for field in one.fields:
            senders.setdefault(field, []).append(one.owner)
    groups: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for field, owners in senders.items():
        message, _, name = field.removesuffix(MASKED).rpartition(".")
        groups.setdefault((message, field.endswith(MASKED), tuple(owners)), []).append(name)
    fields = [
        (
            Cell(message or "–"),
            Cell(", ".join(names)),
            Cell("masked: only the sum was seen" if masked else "as it is"),
            Cell("every owner" if len(owners) == len(record.sent) else ", ".join(map(named, owners))),
        )
        for (message, masked, owners), names in groups.items()
    ]
    traffic = [
        (
            Cell(one.owner),
            *map(_cell, (one.messages_up, one.messages_down)),
            *(Cell(size(count), count) for count in (one.bytes_up, one.bytes_down)),
            *map(_cell, (len(one.fields), sum(field.endswith(MASKED) for field in one.fields))),
        )
        for one in record.sent
    ]
    columns = ("Owner", "Messages sent", "Messages received", "Sent", "Received", "Fields sent", "of them masked")
    yield Section(
        "left",
        "What left each owner",
        (
            wording.LEFT,
            Table("Messages and bytes by owner", columns, tuple(traffic)),
            Table("Fields that left an owner", ("Message", "Fields", "How they left", "Sent by"), tuple(fields)),
        ),
    )


def _repeat(record: Record) -> Iterable[Section]:
    tables = [
        Table(caption, (head, "Value"), tuple((Cell(key), Cell(value)) for key, value in pairs))
        for caption, head, pairs in (
            ("Settings, with defaults filled in", "Setting", list(_flat(record.settings))),
            ("Versions", "Package", list(record.versions.items())),
        )
        if pairs
    ]
    notes = (Items(record.notes),) if record.notes else ()
    yield Section("repeat", "To repeat this run", (wording.REPEAT, *tables))
    if notes:
        yield Section("notes", "Notes: choices made on the way", notes)


def _cell(value: float) -> Cell:
    return Cell(number(value), value)


def _passed(good: bool) -> Cell:
    return Cell("✓ reached" if good else "✗ not reached", good=good)


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    """Nested tables as dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield (
                f"{before}{key}",
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str),
            )


def _numbers(steps: Sequence[Step]) -> Table:
    kept = thinned(len(steps), points=ROWS)
    rows = []
    for step in (steps[i] for i in kept):
        values = list(step.violations.values()) or [math.nan]
        mean = sum(values) / len(values)
        spread = map(_cell, (step.objective, min(values), mean, max(values), step.stationarity, step.feasibility))
        rows.append((Cell(f"{step.rounds:,}"), *spread, Cell(size(step.bytes), step.bytes)))
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
    part = "" if len(kept) == len(steps) else f" ({len(kept)} of {len(steps):,} points)"
    return Table(f"The numbers behind the charts{part}", columns, tuple(rows), folded=True)
