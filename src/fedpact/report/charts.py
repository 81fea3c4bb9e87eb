"""Charts as inline SVG, written by hand: a page needs no library and no network to draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from fedpact.report.figures import Panel, thin
from fedpact.report.numbers import number, power

#: Size of a chart in the units of its viewBox, and the frame of its axes in it; the margins hold the labels.
WIDTH = 460
HEIGHT = 256
LEFT = 72
RIGHT = 440
TOP = 10
BOTTOM = 212
#: A line is drawn with at most so many points; more cannot be told apart at this width.
POINTS = 100
#: A line with at most so many points gets a marker at each.
MARKERS = 40
#: A range of values that is narrower than this fraction of them is widened to it, so that rounding looks level.
NARROW = 1e-3
#: A log axis shows at most so many decades; smaller values count as zero.
DECADES = 12
#: Of a chart of intervals: height of a row, where its labels end, and how many characters of a label are shown.
ROW = 24
LABEL = 162
LETTERS = 16
#: Distances between ticks, times a power of ten.
STEPS = (1, 2, 2.5, 5, 10)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Chart(Panel):
    """A panel that is also drawn as SVG.

    key:      name of its element and of its file
    about:    what it shows, in a sentence
    band:     names of the two lines between which the area is filled, and the name of the area
    levels:   names of dashed lines without markers, such as a tolerance
    whole:    whether x counts something, such as exchanges, from zero on
    unit:     whether both axes go from 0 to 1
    """

    key: str
    about: str
    band: tuple[str, str, str] | None = None
    levels: tuple[str, ...] = ()
    whole: bool = True
    unit: bool = False


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels. On a log scale, values below `low` are drawn at `low`.

    ticks:  (value, text)
    pixels: positions of `low` and `high`
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    pixels: tuple[float, float]
    log: bool = False

    def at(self, value: float) -> float:
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        start, end = self.pixels
        return round(start + part * (end - start), 1)


@dataclass(frozen=True)
class Estimate:
    """A row of a chart of intervals. low, high: NaN where there is no interval; good: None where nothing is judged"""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan
    good: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Forest:
    """Estimates with their intervals, one below the other (a forest plot).

    key, about: as of a `Chart`
    x:          what is estimated
    reference:  a dashed upright line, such as a bound or no effect; NaN: none
    unit:       whether the axis goes from 0 to 1
    """

    key: str
    title: str
    about: str
    x: str
    rows: tuple[Estimate, ...]
    reference: float = math.nan
    unit: bool = False


def linear(values: Iterable[float], pixels: tuple[float, float], *, whole: bool = False) -> Axis:
    """A linear axis that begins and ends at ticks, about five steps apart. whole: ticks are integers."""
    seen = list(values)
    low = min(seen)
    high = max(seen)
    margin = NARROW * max(abs(low), abs(high))
    if high - low <= margin:
        low -= margin or 1.0
        high += margin or 1.0
    rough = (high - low) / 5
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(s * scale for s in STEPS if s * scale >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = [i * step for i in range(first, last + 1)]
    texts = _tick_texts(ticks, step)
    return Axis(ticks[0], ticks[-1], tuple(zip(ticks, texts, strict=True)), pixels)


def _tick_texts(ticks: Sequence[float], step: float) -> list[str]:
    """The ticks with the fewest digits that are exact; in scientific notation where that is shorter."""
    largest = max(map(abs, ticks))
    fixed = 1e-4 <= step <= largest < 1e7
    for digits in range(12):
        style = f",.{digits}f" if fixed else f".{digits}e"
        texts = [format(value, style) for value in ticks]
        errors = [abs(float(text.replace(",", "")) - value) for text, value in zip(texts, ticks, strict=True)]
        if max(errors) < 0.01 * step:
            break
    short = [text.replace("e+0", "e").replace("e-0", "e-").replace("e+", "e").replace("-", "−") for text in texts]
    return [text if value else "0" for text, value in zip(short, ticks, strict=True)]


def logarithmic(values: Iterable[float], pixels: tuple[float, float]) -> Axis:
    """A log axis from decade to decade, at most seven ticks; one more tick below them for zeros, if there are any."""
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
    """Whether a log scale fits: no negative value, and the largest is far above the smallest positive one."""
    seen = [v for v in values if math.isfinite(v)]
    positive = [v for v in seen if v > 0]
    return bool(positive) and min(seen) >= 0 and max(positive) > 50 * min(positive)


def svg(chart: Chart) -> str:
    """The chart as an SVG element, coloured by the style sheet of the page. Empty if no value is finite."""
    lines = {}
    for label, (x, y) in chart.lines.items():
        lines[label] = [(x[i], y[i]) for i in thin(len(x), points=POINTS)]
    values = [y for points in lines.values() for _, y in points if math.isfinite(y)]
    if not values:
        return ""
    across = [x for points in lines.values() for x, _ in points]
    if chart.whole:
        across.append(0.0)
    if chart.unit:
        across = values = [0.0, 1.0]
    x_axis = linear(across, (LEFT, RIGHT), whole=chart.whole)
    make_axis = logarithmic if chart.log_y and max(values) > 0 else linear
    y_axis = make_axis(values, (BOTTOM, TOP))
    parts = [*_frame(chart, x_axis, y_axis)]
    if chart.band:
        parts.append(_area(lines[chart.band[0]], lines[chart.band[1]], x_axis, y_axis))
    for label in chart.levels:
        parts.append(f'<path class="level" d="{_path(lines[label], x_axis, y_axis)}"/>')
    for order, label in enumerate(_curves(chart)):
        parts.append(f'<path class="line line-{order}" d="{_path(lines[label], x_axis, y_axis)}"/>')
        parts += _points(label, lines[label], order, x_axis, y_axis, chart.x)
    return _svg(chart, HEIGHT, parts)


def _svg(chart: Chart | Forest, height: float, parts: Iterable[str]) -> str:
    """The element, with its text alternative."""
    key = chart.key
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{key}-title {key}-about">'
        f'<title id="{key}-title">{escape(chart.title)}</title><desc id="{key}-about">{escape(chart.about)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def forest(chart: Forest) -> str:
    """The chart of intervals as an SVG element; its labels are cut, and whole as tooltips."""
    ends = [v for row in chart.rows for v in (row.value, row.low, row.high) if math.isfinite(v)]
    if math.isfinite(chart.reference):
        ends.append(chart.reference)
    if chart.unit:
        ends = [0.0, 1.0]
    bottom = TOP + ROW * len(chart.rows)
    axis = linear(ends, (LABEL, RIGHT))
    parts = []
    for value, text in axis.ticks:
        x = axis.at(value)
        parts.append(f'<path class="grid" d="M{x} {TOP}V{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>')
    if math.isfinite(chart.reference):
        parts.append(f'<path class="level" d="M{axis.at(chart.reference)} {TOP}V{bottom}"/>')
    for place, row in enumerate(chart.rows):
        parts.append(_estimate(row, axis, TOP + ROW * (place + 0.5)))
    middle = (LABEL + RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 35}" text-anchor="middle">{escape(chart.x)}</text>')
    return _svg(chart, bottom + 44, parts)


def _estimate(row: Estimate, axis: Axis, y: float) -> str:
    """A label, an interval and a marker; outside its bound a square, so that colour is not all that tells."""
    label = row.label if len(row.label) <= LETTERS else f"{row.label[: LETTERS - 1]}…"
    told = f"{row.label}: {number(row.value)}"
    marks = f'<text x="{LABEL - 10}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
    order = int(row.good is False)
    if math.isfinite(row.low):
        told += f" ({number(row.low)} – {number(row.high)})"
        marks += f'<path class="line line-{order} whisker" d="M{axis.at(row.low)} {y}H{axis.at(row.high)}"/>'
    if math.isfinite(row.value):
        marks += _marker(order, axis.at(row.value), y)
    return f"<g><title>{escape(told)}</title>{marks}</g>"


def draw(chart: Chart | Forest) -> str:
    """Any chart as an SVG element."""
    return forest(chart) if isinstance(chart, Forest) else svg(chart)


def legend(chart: Chart | Forest) -> str:
    """What each line is, if there are several; dashes and markers tell them apart too, not colours alone."""
    if isinstance(chart, Forest):
        return ""
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
    """Lines that are neither an edge of the band nor a level."""
    others = [*(chart.band or ())[:2], *chart.levels]
    return [label for label in chart.lines if label not in others]


def _frame(chart: Chart, x_axis: Axis, y_axis: Axis) -> Iterable[str]:
    """Grid lines, ticks and the names of the axes."""
    for value, text in y_axis.ticks:
        y = y_axis.at(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(text)}</text>'
    for value, text in x_axis.ticks:
        x = x_axis.at(value)
        yield f'<path class="axis" d="M{x} {BOTTOM}v4"/>'
        yield f'<text x="{x}" y="{BOTTOM + 20}" text-anchor="middle">{escape(text)}</text>'
    yield f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>'
    across = (LEFT + RIGHT) / 2
    up = (TOP + BOTTOM) / 2
    yield f'<text x="{across}" y="{BOTTOM + 38}" text-anchor="middle">{escape(chart.x)}</text>'
    yield f'<text transform="translate(12 {up}) rotate(-90)" text-anchor="middle">{escape(chart.y)}</text>'


def _path(points: Points, x_axis: Axis, y_axis: Axis) -> str:
    """A line through the points, interrupted where a value is not finite."""
    commands = []
    pen = "M"
    for x, y in points:
        if math.isfinite(y):
            commands.append(f"{pen}{x_axis.at(x)} {y_axis.at(y)}")
            pen = "L"
        else:
            pen = "M"
    return "".join(commands)


def _area(low: Points, high: Points, x_axis: Axis, y_axis: Axis) -> str:
    """The area between two lines: along the upper one, back along the lower."""
    there = [point for point in high if math.isfinite(point[1])]
    back = [point for point in reversed(low) if math.isfinite(point[1])]
    return f'<path class="band" d="{_path([*there, *back], x_axis, y_axis)}Z"/>'


def _marker(order: int, x: float, y: float) -> str:
    """A circle for the first line, squares for the others."""
    if order:
        return f'<rect class="dot line-{order}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    return f'<circle class="dot line-{order}" cx="{x}" cy="{y}" r="3"/>'


def _points(label: str, points: Points, order: int, x_axis: Axis, y_axis: Axis, unit: str) -> Iterable[str]:
    """A tooltip for each point, and a marker if they are few."""
    for x, y in points:
        if math.isfinite(y):
            left = x_axis.at(x)
            top = y_axis.at(y)
            dot = _marker(order, left, top) if len(points) <= MARKERS else ""
            target = f'<circle class="target" cx="{left}" cy="{top}" r="7"/>'
            yield f"<g><title>{escape(label)}: {number(y)} ({escape(unit)}: {x:,g})</title>{dot}{target}</g>"
