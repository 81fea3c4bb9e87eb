"""Two runs side by side: what was asked of each and what it came to, their models, and settings that differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedpact.report import wording
from fedpact.report.charts import Estimate, Forest
from fedpact.report.coefficients import read_coefficients
from fedpact.report.content import NONE, Block, Cell, Charts, Report, Section, Table, Verdict, capital, cell
from fedpact.report.language import say
from fedpact.report.measures import is_about_data, is_rate
from fedpact.report.numbers import duration, number, size
from fedpact.report.record import Record
from fedpact.report.sections import MARKS, flatten
from fedpact.tasks.base import Bounded

#: Owners in a chart at most, and charts.
DRAWN = 15
CHARTS = 4


def compare(runs: Sequence[Path], records: Sequence[Record], reports: Sequence[Report]) -> Report:
    """The report on two runs. reports: on each of them, for their verdicts"""
    names = _name(runs, records)
    sentences = []
    for name, one in zip(names, reports, strict=True):
        sentences.append(f"{name}: {one.verdict.mark} {one.verdict.headline}.")
        sentences += one.verdict.sentences[1:2]
    good = all(one.verdict.good for one in reports)
    verdict = Verdict(good, _headline(reports), tuple(sentences))
    first, second = records
    sections = [_asked(names, first, second), _measured(names, first, second), _models(names, runs, records)]
    sections += [_proof(names, records), _settings(names, first, second)]
    return Report(
        title=say("{first} beside {second}", first=names[0], second=names[1]),
        asked=" | ".join(dict.fromkeys(one.asked for one in records)),
        made=" ".join(one.made for one in reports),
        verdict=verdict,
        figures=tuple(_figures(names, records)),
        sections=tuple(section for section in sections if section.blocks),
    )


def _name(runs: Sequence[Path], records: Sequence[Record]) -> tuple[str, str]:
    """The titles of the runs, their folders where these are the same, or numbers."""
    for first, second in (
        [one.title for one in records],
        [run.name for run in runs],
        [str(run) for run in runs],
    ):
        if first != second:
            return first, second
    return f"{records[0].title} (1)", f"{records[1].title} (2)"


def _headline(reports: Sequence[Report]) -> str:
    good = [one.verdict.good for one in reports]
    if all(good):
        return say("Both runs meet all that was asked of them")
    if any(good):
        return say("One of the two runs does not meet what was asked of it")
    return say("Neither run meets what was asked of it")


def _figures(names: tuple[str, str], records: Sequence[Record]) -> Iterable[tuple[str, str, str]]:
    for name, one in zip(names, records, strict=True):
        met = say("{met:,} of {total:,}", met=wording.count_met(one), total=len(one.bounded))
        yield say("Constraints met"), met, name
    for name, one in zip(names, records, strict=True):
        yield say("Exchanges"), f"{one.rounds:,}", name


def _asked(names: tuple[str, str], first: Record, second: Record) -> Section:
    """Every constraint of either run: verdicts first, then values and what was asked for."""
    keys = dict.fromkeys((one.owner, one.what) for record in (first, second) for one in record.bounded)
    by_key = [{(one.owner, one.what): one for one in record.bounded} for record in (first, second)]
    rows = []
    for key in keys:
        pair = [found.get(key) for found in by_key]
        verdicts = [_state(one, record) for one, record in zip(pair, (first, second), strict=True)]
        values = [_value(one) for one in pair]
        rows.append((Cell(key[0]), *verdicts, *values, _difference(*values), Cell(key[1])))
    columns = ("Owner", *(say("Verdict: {run}", run=name) for name in names), *names, "Difference", "What is bounded")
    blocks: tuple[Block, ...] = (Table("Constraints by owner", columns, tuple(rows)),) if rows else ()
    return Section("constraints", "What was asked, owner by owner", blocks)


def _state(one: Bounded | None, record: Record) -> Cell:
    if one is None:
        return Cell(NONE)
    state = wording.state(one, record.tol[1])
    return Cell(f"{MARKS[state]} {say(state)}", good=state in wording.GOOD)


def _value(one: Bounded | None) -> Cell:
    if one is None or math.isnan(one.value):
        return Cell(NONE)
    remark = say("{limit} asked for", limit=wording.limit(one))
    if one.rows:
        remark += "; " + say("{rows:,} rows", rows=one.rows)
    return Cell(number(one.value), one.value, remark=remark)


def _difference(first: Cell, second: Cell) -> Cell:
    """The second less the first."""
    if first.exact is None or second.exact is None:
        return Cell(NONE)
    return cell(second.exact - first.exact)


def _measured(names: tuple[str, str], first: Record, second: Record) -> Section:
    told = [{one.owner: one for one in record.measured} for record in (first, second)]
    owners = [owner for owner in told[0] if owner in told[1]]
    measures = dict.fromkeys(name for owner in owners for name in told[0][owner].numbers)
    shown = [name for name in measures if not is_about_data(name)]
    rows = []
    drawn: list[Forest] = []
    for place, name in enumerate(shown):
        estimates = []
        for owner in owners:
            values = [cell(one[owner].numbers.get(name, math.nan)) for one in told]
            rows.append((Cell(owner), Cell(name), *values, _difference(*values)))
            for number_of_run, one in enumerate(told, 1):
                value = one[owner].numbers.get(name, math.nan)
                # The marks of what misses a bound, squares, tell the second run from the first here.
                first_run = None if number_of_run == 1 else False
                estimates.append(Estimate(f"{owner} ({number_of_run})", value, math.nan, math.nan, good=first_run))
        if is_rate(name) and len(drawn) < CHARTS:
            told_rows = ", ".join(f"{one.label} {number(one.value)}" for one in estimates)
            about = say("{what} by owner and run: {told}.", what=name, told=told_rows)
            rows_drawn = tuple(estimates[: 2 * DRAWN])
            drawn.append(Forest(key=f"both-{place}", title=capital(name), about=about, x=name, rows=rows_drawn))
    blocks: list[Block] = []
    if drawn:
        runs = say("In the charts (1) is {first}, and (2) is {second}.", first=names[0], second=names[1])
        blocks += [runs, Charts(tuple(drawn))]
    if rows:
        blocks.append(Table("Measured at the owners", ("Owner", "Measure", *names, "Difference"), tuple(rows)))
    return Section("measured", "Measured at the owners", tuple(blocks))


def _models(names: tuple[str, str], runs: Sequence[Path], records: Sequence[Record]) -> Section:
    found = [read_coefficients(run, record) for run, record in zip(runs, records, strict=True)]
    both = [{one.name: one for one in coefficients} for coefficients in found]
    rows = []
    for name in dict.fromkeys([*both[0], *both[1]]):
        values = [cell(one[name].estimate) if name in one else Cell(NONE) for one in both]
        rows.append((Cell(name), *values, _difference(*values)))
    blocks: tuple[Block, ...] = ()
    if rows:
        blocks = (Table("Coefficients", ("Column", *names, "Difference"), tuple(rows)),)
    return Section("model", "The models", blocks)


def _proof(names: tuple[str, str], records: Sequence[Record]) -> Section:
    facts = {
        "Status": [Cell(one.status) for one in records],
        "Objective": [cell(one.objective) for one in records],
        "Stationarity": [cell(one.stationarity) for one in records],
        "Feasibility": [cell(one.feasibility) for one in records],
        "Method": [Cell(one.method) for one in records],
        "Exchanges": [cell(one.rounds) for one in records],
        "Data moved": [Cell(size(sum(sent.bytes_up + sent.bytes_down for sent in one.sent))) for one in records],
        "Took": [Cell(duration(one.seconds)) for one in records],
    }
    rows = tuple((Cell(say(name)), *cells) for name, cells in facts.items())
    return Section("certificate", "Certificates and exchanges", (Table("The two runs", ("", *names), rows),))


def _settings(names: tuple[str, str], first: Record, second: Record) -> Section:
    """What differs; nothing that is the same."""
    both = [dict(flatten({**record.settings, "versions": record.versions})) for record in (first, second)]
    rows = []
    for name in dict.fromkeys([*both[0], *both[1]]):
        values = [found.get(name, NONE) for found in both]
        if values[0] != values[1]:
            rows.append((Cell(name), *map(Cell, values)))
    if not rows:
        return Section("settings", "Settings that differ", (say("All settings and versions are the same."),))
    table = Table("Settings that differ", ("Setting", *names), tuple(rows))
    return Section("settings", "Settings that differ", (table,))
