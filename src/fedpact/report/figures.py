"""Figures with matplotlib, an extra that is imported when a figure is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpact.errors import FedpactError, install

#: A line is drawn with at most so many points: a reader sees no more.
POINTS = 300
#: What a figure can be written as.
SUFFIXES = (".png", ".svg", ".pdf")


def figure_class() -> Any:
    """matplotlib's Figure, without pyplot: no window, no global state. FedpactError if it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = install("plot")
        raise FedpactError(f"figures need matplotlib; {remedy}", code="FP-502") from error
    return Figure


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    lines: label -> (x, y); on a log scale, values that are not positive are gaps
    bands: label -> (lowest, highest) y at the x of the line of that label
    level: y of a dashed line across
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = False
    log_y: bool = True
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    level: float | None = None


def panels(given: Sequence[Panel], columns: int = 2) -> Any:
    """A matplotlib Figure of these panels, row by row; a label has one colour in all of them."""
    rows = math.ceil(len(given) / columns)
    figure = figure_class()(figsize=(5.5 * columns, 3.6 * rows), layout="constrained")
    labels = list(dict.fromkeys(label for panel in given for label in panel.lines))
    for number, panel in enumerate(given, 1):
        _draw(panel, figure.add_subplot(rows, columns, number), labels)
    return figure


def _draw(panel: Panel, axes: Any, labels: Sequence[str]) -> None:
    """Draw a panel into matplotlib axes; the place of a label in `labels` gives its colour and dashes."""
    for label, (x, y) in panel.lines.items():
        kept = thin(len(x), panel.log_x)
        place = labels.index(label)
        color = f"C{place % 10}"
        style = ("-", "--", ":")[place // 10 % 3]
        x_kept = [x[i] for i in kept]
        y_kept = [y[i] for i in kept]
        axes.plot(x_kept, y_kept, style, label=label, color=color, linewidth=1.3)
        if label in panel.bands:
            low, high = ([side[i] for i in kept] for side in panel.bands[label])
            axes.fill_between(x_kept, low, high, color=color, alpha=0.2, linewidth=0)
    if panel.level is not None:
        axes.axhline(panel.level, color="black", linewidth=0.8, linestyle="--")
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_x:
        axes.set_xscale("log", nonpositive="mask")
    if panel.log_y:
        axes.set_yscale("log", nonpositive="mask")
    if panel.lines:
        axes.legend(fontsize="x-small")


def thin(length: int, log: bool = False, points: int = POINTS) -> list[int]:
    """Indices of at most `points` points, evenly spaced on the x axis (on a log scale with `log`), with both ends."""
    if length <= points:
        return list(range(length))
    fractions = [i / (points - 1) for i in range(points)]
    if log:
        positions = [length**fraction - 1 for fraction in fractions]
    else:
        positions = [i * (length - 1) / (points - 1) for i in range(points)]
    return sorted({min(max(round(position), 0), length - 1) for position in positions})


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure in the format of its suffix; the path. FedpactError if it is not one of SUFFIXES."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        allowed = ", ".join(SUFFIXES)
        raise FedpactError(f"{target.name}: a figure is written as {allowed}; change the suffix", code="FP-503")
    figure.savefig(target, dpi=150)
    return target
