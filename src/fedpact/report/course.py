"""The convergence of a run as charts: objective, violation, certificate and bytes against exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedpact.problem.certificate import TOGETHER
from fedpact.report.charts import Chart, spans_decades
from fedpact.report.language import say
from fedpact.report.numbers import given, number, size
from fedpact.report.record import Record, Step


def charts(record: Record) -> list[Chart]:
    """The charts of a run; those without a finite value are left out."""
    steps = record.history
    x = [float(step.rounds) for step in steps]
    objective = {"objective": [step.objective for step in steps]}
    certificate = {
        "stationarity": [step.stationarity for step in steps],
        "feasibility": [step.feasibility for step in steps],
    }
    tolerances = dict.fromkeys(record.tol)  # one line if both are equal
    made = [
        _chart("objective", "Objective", "objective", x, objective),
        _violation_chart(steps, x, record.tol[1]),
        _chart("certificate", "Certificate", "distance to perfect", x, certificate, tolerances),
        _bytes_chart(steps, x),
    ]
    return [chart for chart in made if any(math.isfinite(v) for _, y in chart.lines.values() for v in y)]


def _chart(
    key: str,
    title: str,
    unit: str,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    levels: Iterable[float] = (),
) -> Chart:
    """levels: tolerances, drawn as horizontal lines on a log scale."""
    across = (0.0, max(x, default=1.0))
    constants = {}
    for level in levels:
        constants[say("tolerance {level}", level=given(level))] = (across, (level, level))
    curves = {say(label): (x, y) for label, y in lines.items()}
    values = [v for y in lines.values() for v in y]
    return Chart(
        key=key,
        title=say(title),
        about=" ".join(_summarise(label, x, y) for label, y in lines.items()),
        x=say("exchanges"),
        y=say(unit),
        lines={**curves, **constants},
        log_y=bool(constants) or spans_decades(values),
        levels=tuple(constants),
    )


def _violation_chart(steps: Sequence[Step], x: Sequence[float], tol: float) -> Chart:
    """The mean over the owners, in a band from the least to the most; one line where secure sums hide whose it is."""
    by_step = []
    for step in steps:
        finite = [v for v in step.violations.values() if math.isfinite(v)]
        by_step.append(finite or [math.nan])
    levels = [tol] if any(step.violations for step in steps) else []
    if any(TOGETHER in step.violations for step in steps):
        most = {"at most": [max(values) for values in by_step]}
        return _chart("violation", "Violation of the constraints", "excess over the bound", x, most, levels)
    lines = {
        "mean": [sum(values) / len(values) for values in by_step],
        "least": [min(values) for values in by_step],
        "most": [max(values) for values in by_step],
    }
    chart = _chart("violation", "Violation of the constraints", "excess over the bound", x, lines, levels)
    return replace(chart, band=(say("least"), say("most"), say("least to most of the owners")))


def _bytes_chart(steps: Sequence[Step], x: Sequence[float]) -> Chart:
    """The bytes sent so far, from zero."""
    most = max((step.bytes for step in steps), default=0)
    unit = "bytes"
    scale = 1.0
    for larger, per_unit in (("kB", 1e3), ("MB", 1e6)):
        if most >= per_unit:
            unit = larger
            scale = per_unit
    lines = {"so far": [0.0, *(step.bytes / scale for step in steps)]}
    chart = _chart("bytes", "Data moved", say("{unit}, all owners, both ways", unit=unit), [0.0, *x], lines)
    about = ""
    if steps:
        last = steps[-1]
        about = say("All owners, both ways: {bytes} by exchange {round:,}.", bytes=size(last.bytes), round=last.rounds)
    return replace(chart, log_y=False, about=about)


def _summarise(label: str, x: Sequence[float], y: Sequence[float]) -> str:
    """Where a line begins and ends, in a sentence."""
    known = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    if not known:
        return say("{label}: not known.", label=say(label).capitalize())
    first, start = known[0]
    last, end = known[-1]
    return say(
        "{label}: {start} at exchange {first:,.0f}, {end} at exchange {last:,.0f}.",
        label=say(label).capitalize(),
        start=number(start),
        first=first,
        end=number(end),
        last=last,
    )
