"""Charts as inline SVG, written by hand: a page needs no library and no network to draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from fedpact.report.figures import Panel, thinned
from fedpact.report.wording import number, power

WIDTH, HEIGHT = 460, 256
LEFT, RIGHT, TOP, BOTTOM = 72, 440, 10, 212
#: Points of a line that are drawn, and up to which each gets a marker.
POINTS, MARKERS = 100, 40
#: Values that differ by less than this part of them are drawn as good as level.
NARROW = 1e-3
#: No axis shows more decades than this: what is smaller counts as zero.
DECADES = 12


@dataclass(frozen=True, kw_only=True)
class Chart(Panel):
    """A panel that is also drawn as SVG.

    key:    of its element and its file; about: what it shows, in a sentence
    band:   names of two lines between which the area is filled, and the name of the area
    levels: names of lines that are constants, such as a tolerance
    """

    key: str
    about: str
    band: tuple[str, str, str] | None = None
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels; ticks: (value, text). On a log scale, what is below `low` is drawn at `low`."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    pixels: tuple[float, float]
    log: bool = False

    def at(self, value: float) -> float:
        part = (
            math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return round(self.pixels[0] + part * (self.pixels[1] - self.pixels[0]), 1)


def linear(values: Iterable[float], pixels: tuple[float, float], *, whole: bool = False) -> Axis:
    """An axis whose ends are ticks; whole: no fractions between them."""
    seen = list(values)
    low, high = min(seen), max(seen)
    if high - low <= NARROW * max(abs(low), abs(high)):
        around = NARROW * max(abs(low), abs(high)) or 1.0
        low, high = low - around, high + around
    rough = (high - low) / 5
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10) if s * scale >= rough * (1 - 1e-9))
    step = max(1.0, math.ceil(step)) if whole else step
    ticks = [i * step for i in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]
    return Axis(ticks[0], ticks[-1], tuple(zip(ticks, _texts(ticks, step), strict=True)), pixels)


def _texts(ticks: Sequence[float], step: float) -> list[str]:
    """All with the fewest decimals that tell them apart from each other; with a power where that is shorter."""
    largest = max(map(abs, ticks))
    places = (f",.{decimals}f" for decimals in range(12))
    if not 1e-4 <= step <= largest < 1e7:
        places = (f".{digits}e" for digits in range(12))
    texts = next(t for t in ([format(v, f) for v in ticks] for f in places) if _exact(t, ticks, step))
    short = [text.replace("e+0", "e").replace("e-0", "e-").replace("e+", "e").replace("-", "−") for text in texts]
    return [text if value else "0" for text, value in zip(short, ticks, strict=True)]


def _exact(texts: Sequence[str], ticks: Sequence[float], step: float) -> bool:
    return all(abs(float(t.replace(",", "")) - v) < 0.01 * step for t, v in zip(texts, ticks, strict=True))


def logarithmic(values: Iterable[float], pixels: tuple[float, float]) -> Axis:
    """Whole decades; below them one more tick for zero, where there are zeros."""
    seen = list(values)
    top = math.ceil(math.log10(max(seen)) - 1e-9)
    positive = [v for v in seen if v > 10.0 ** (top - DECADES)]
    bottom = min(math.floor(math.log10(min(positive)) + 1e-9), top - 1)
    stride = -(-(top - bottom) // 6)
    bottom = top - stride * -(-(top - bottom) // stride)
    ticks = [(10.0**e, power(e) if e not in (0, 1) else f"{10**e}") for e in range(bottom, top + 1, stride)]
    if len(positive) < len(seen):
        bottom -= stride
        ticks.insert(0, (10.0**bottom, "≈ 0"))
    return Axis(10.0**bottom, 10.0**top, tuple(ticks), pixels, log=True)


def spans_decades(values: Iterable[float]) -> bool:
    """Do they ask for a log scale: none negative, and the largest far above the least that is positive?"""
    seen = [v for v in values if math.isfinite(v)]
    positive = [v for v in seen if v > 0]
    return bool(positive) and min(seen) >= 0 and max(positive) > 50 * min(positive)


def svg(chart: Chart) -> str:
    """The chart as an element; colours come from the style sheet of the page. Empty when there is nothing to draw."""
    lines = {label: _drawn(x, y) for label, (x, y) in chart.lines.items()}
    values = [y for points in lines.values() for _, y in points if math.isfinite(y)]
    if not values:
        return ""
    x_axis = linear([0, *(x for points in lines.values() for x, _ in points)], (LEFT, RIGHT), whole=True)
    y_axis = (logarithmic if chart.log_y and max(values) > 0 else linear)(values, (BOTTOM, TOP))
    parts = [*_frame(chart, x_axis, y_axis)]
    if chart.band:
        parts.append(_area(lines[chart.band[0]], lines[chart.band[1]], x_axis, y_axis))
    for label in chart.levels:
        parts.append(f'<path class="level" d="M{LEFT} {y_axis.at(lines[label][0][1])}H{RIGHT}"/>')
    for order, label in enumerate(_curves(chart)):
        parts.append(f'<path class="line line-{order}" d="{_path(lines[label], x_axis, y_axis)}"/>')
        parts += _points(label, lines[label], order, x_axis, y_axis, chart.x)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{chart.key}-title {chart.key}-about">'
        f'<title id="{chart.key}-title">{escape(chart.title)}</title>'
        f'<desc id="{chart.key}-about">{escape(chart.about)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def legend(chart: Chart) -> str:
    """A list of what is drawn, where that is more than one line; dashes and markers tell it, not colours alone."""
    marks = [
        (label, f'<path class="line line-{order}" d="M0 6H24"/>{_marker(order, 12, 6)}')
        for order, label in enumerate(_curves(chart))
    ]
    if chart.band:
        marks.append((chart.band[2], '<rect class="band" width="24" height="12"/>'))
    marks += [(label, '<path class="level" d="M0 6H24"/>') for label in chart.levels]
    if len(marks) == 1:
        return ""
    items = (f'<li><svg viewBox="0 0 24 12" aria-hidden="true">{m}</svg>{escape(label)}</li>' for label, m in marks)
    return f'<ul class="legend">{"".join(items)}</ul>'


def _curves(chart: Chart) -> list[str]:
    return [label for label in chart.lines if label not in (chart.band or ())[:2] and label not in chart.levels]


def _drawn(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    return [(x[i], y[i]) for i in thinned(len(x), False, POINTS)]


def _frame(chart: Chart, x_axis: Axis, y_axis: Axis) -> Iterable[str]:
    for value, text in y_axis.ticks:
        y = y_axis.at(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 7}" y="{y + 4}" text-anchor="end">{escape(text)}</text>'
    for value, text in x_axis.ticks:
        x = x_axis.at(value)
        yield f'<path class="axis" d="M{x} {BOTTOM}v4"/>'
        yield f'<text x="{x}" y="{BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>'
    yield f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>'
    across, up = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    yield f'<text x="{across}" y="{BOTTOM + 37}" text-anchor="middle">{escape(chart.x)}</text>'
    yield f'<text transform="translate(12 {up}) rotate(-90)" text-anchor="middle">{escape(chart.y)}</text>'


def _path(points: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    """A line through the points, broken where a value is not finite."""
    commands, pen = [], "M"
    for x, y in points:
        if math.isfinite(y):
            commands.append(f"{pen}{x_axis.at(x)} {y_axis.at(y)}")
        pen = "L" if math.isfinite(y) else "M"
    return "".join(commands)


def _area(low: Sequence[tuple[float, float]], high: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    there = [point for point in high if math.isfinite(point[1])]
    back = [point for point in reversed(low) if math.isfinite(point[1])]
    return f'<path class="band" d="{_path([*there, *back], x_axis, y_axis)}Z"/>'


def _marker(order: int, x: float, y: float) -> str:
    if order:
        return f'<rect class="dot line-{order}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    return f'<circle class="dot line-{order}" cx="{x}" cy="{y}" r="3"/>'


def _points(
    label: str, points: Sequence[tuple[float, float]], order: int, x_axis: Axis, y_axis: Axis, unit: str
) -> Iterable[str]:
    """A marker for each point when they are few, and always its values for a pointer that rests on it."""
    for x, y in points:
        if math.isfinite(y):
            dot = _marker(order, x_axis.at(x), y_axis.at(y)) if len(points) <= MARKERS else ""
            target = f'<circle class="target" cx="{x_axis.at(x)}" cy="{y_axis.at(y)}" r="7"/>'
            yield f"<g><title>{escape(label)}: {number(y)} ({escape(unit)}: {x:,.0f})</title>{dot}{target}</g>"
