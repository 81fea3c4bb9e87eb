"""The course of a run as charts: objective, violation, certificate and bytes against exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fedpact.report.charts import Chart, spans_decades
from fedpact.report.record import Record, Step
from fedpact.report.wording import given, number, size


def charts(record: Record) -> list[Chart]:
    """The course of the run against exchanges; those without a finite value are left out."""
    steps = record.history
    x = [float(step.rounds) for step in steps]
    made = [
        _chart("objective", "Objective", "objective", x, {"objective": [s.objective for s in steps]}),
        _violation_chart(steps, x, record.tol[1]),
        _chart(
            "certificate",
            "Certificate",
            "distance to perfect",
            x,
            {"stationarity": [s.stationarity for s in steps], "feasibility": [s.feasibility for s in steps]},
            dict.fromkeys(record.tol),
        ),
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
    """levels: tolerances, each drawn as a line of its own."""
    flat = {f"tolerance {given(level)}": ((0.0, max(x, default=1.0)), (level, level)) for level in levels}
    values = [v for y in lines.values() for v in y]
    return Chart(
        key=key,
        title=title,
        about=" ".join(_told(label, x, y) for label, y in lines.items()),
        x="exchanges",
        y=unit,
        lines={**{label: (x, y) for label, y in lines.items()}, **flat},
        log_y=bool(flat) or spans_decades(values),
        levels=tuple(flat),
    )


def _violation_chart(steps: Sequence[Step], x: Sequence[float], tol: float) -> Chart:
    """Band and mean over the owners, however many they are."""
    by_step = [[v for v in step.violations.values() if math.isfinite(v)] or [math.nan] for step in steps]
    lines = {
        "mean": [sum(values) / len(values) for values in by_step],
        "least": [min(values) for values in by_step],
        "most": [max(values) for values in by_step],
    }
    known = any(step.violations for step in steps)
    chart = _chart(
        "violation", "Violation of the constraints", "excess over the bound", x, lines, [tol] if known else []
    )
    return Chart(**{**vars(chart), "band": ("least", "most", "least to most of the owners")})


def _bytes_chart(steps: Sequence[Step], x: Sequence[float]) -> Chart:
    unit, scale = next(
        ((u, s) for u, s in (("MB", 1e6), ("kB", 1e3)) if any(t.bytes >= s for t in steps)), ("bytes", 1.0)
    )
    chart = _chart(
        "bytes",
        "Data moved",
        f"{unit}, all owners, both ways",
        [0.0, *x],
        {"so far": [0.0, *(t.bytes / scale for t in steps)]},
    )
    about = f"All owners, both ways: {size(steps[-1].bytes)} by exchange {steps[-1].rounds:,}." if steps else ""
    return Chart(**{**vars(chart), "log_y": False, "about": about})


def _told(label: str, x: Sequence[float], y: Sequence[float]) -> str:
    """Where a line begins and ends."""
    known = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    if not known:
        return f"{label.capitalize()}: not known."
    (first, start), (last, end) = known[0], known[-1]
    return f"{label.capitalize()}: {number(start)} at exchange {first:,.0f}, {number(end)} at exchange {last:,.0f}."
