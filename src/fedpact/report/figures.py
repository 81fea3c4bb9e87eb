"""Figures of solutions. matplotlib is an extra and is imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpact.errors import FedpactError

if TYPE_CHECKING:
    from fedpact.solvers import Solution

#: What a figure can be written as.
SUFFIXES = (".png", ".svg", ".pdf")
#: The two panels of a row: field of an OuterRecord, its unit, the label.
AXES = (("rounds", 1, "exchanges"), ("bytes", 1e6, "megabytes, all owners, both ways"))


def figure_class() -> Any:
    """matplotlib's Figure; FedpactError says how to get it. Free of pyplot, so no window and no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "install it with: pip install 'fedpact[plot]'"
        raise FedpactError(f"figures need matplotlib; {remedy}", code="FP-502") from error
    return Figure


def convergence(instances: Mapping[str, Mapping[str, Solution]]) -> Any:
    """Certificate (the larger of stationarity and feasibility) against exchanges and against megabytes.

    instances: title of a row of panels -> (method -> its solution); a method without exchanges has no line. Returns a
    matplotlib Figure with two panels a row. Raises FedpactError without matplotlib.
    """
    new_figure = figure_class()
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = new_figure(figsize=(10, 3.2 * max(len(instances), 1)), layout="constrained")
    methods = list(dict.fromkeys(method for solutions in instances.values() for method in solutions))
    for row, (title, solutions) in enumerate(instances.items()):
        for column, (spent, unit, label) in enumerate(AXES):
            panel = figure.add_subplot(len(instances), 2, 2 * row + column + 1)
            for method, solution in solutions.items():
                seen = [record for record in solution.history.outer if record.rounds > 0]
                if seen:
                    panel.plot(
                        [getattr(record, spent) / unit for record in seen],
                        [max(record.stationarity, record.feasibility) for record in seen],
                        marker=".",
                        label=method,
                        color=f"C{methods.index(method)}",  # a method has one colour in all panels
                    )
            for tol in {tol for solution in solutions.values() for tol in solution.tol}:
                panel.axhline(tol, color="grey", linewidth=0.8, linestyle=":")
            panel.set(title=title, xlabel=label, ylabel="certificate", xscale="log", yscale="log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter(NullFormatter())
            if panel.get_legend_handles_labels()[0]:
                panel.legend(fontsize="small")
    return figure


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes: label -> (x, y). log_x, log_y: scales, on which zero and below is a gap in a line.

    bands: label -> (lowest, highest) y, at the x of the line of that label; level: a dashed line across
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = False
    log_y: bool = True
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    level: float | None = None


def banded(title: str, x: str, y: str, values: Mapping[str, Sequence[Sequence[float]]], level: float) -> Panel:
    """Means as lines, bands from the least to the largest. values: label -> one sequence for each of x = 0, 1, ..."""
    lines = {k: ([float(i) for i in range(len(v))], [sum(each) / len(each) for each in v]) for k, v in values.items()}
    bands = {k: ([min(each) for each in v], [max(each) for each in v]) for k, v in values.items()}
    return Panel(title, x, y, lines, log_y=False, bands=bands, level=level)


#: No line needs more points than a reader can see.
POINTS = 300


def panels(given: Sequence[Panel], columns: int = 2) -> Any:
    """A matplotlib Figure of these panels, row by row; a label has one colour in all of them."""
    figure = figure_class()(figsize=(5.5 * columns, 3.6 * -(-len(given) // columns)), layout="constrained")
    labels = list(dict.fromkeys(label for panel in given for label in panel.lines))
    for number, panel in enumerate(given, 1):
        axes = figure.add_subplot(-(-len(given) // columns), columns, number)
        for label, (x, y) in panel.lines.items():
            kept = thinned(len(x), panel.log_x)
            color = f"C{labels.index(label) % 10}"
            style = ("-", "--", ":")[labels.index(label) // 10 % 3]
            axes.plot([x[i] for i in kept], [y[i] for i in kept], style, label=label, color=color, linewidth=1.3)
            if label in panel.bands:
                low, high = ([side[i] for i in kept] for side in panel.bands[label])
                axes.fill_between([x[i] for i in kept], low, high, color=color, alpha=0.2, linewidth=0)
        if panel.level is not None:
            axes.axhline(panel.level, color="black", linewidth=0.8, linestyle="--")
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        if panel.log_x:
            axes.set_xscale("log", nonpositive="mask")
        if panel.log_y:
            axes.set_yscale("log", nonpositive="mask")
        if panel.lines:
            axes.legend(fontsize="x-small")
    return figure


def thinned(length: int, log: bool = False, points: int = POINTS) -> list[int]:
    """Numbers of the points that are drawn: all, or about `points` of them, evenly on the axis of x."""
    if length <= points:
        return list(range(length))
    steps = range(points)
    chosen = (round(length ** (i / (points - 1)) - 1 if log else i * (length - 1) / (points - 1)) for i in steps)
    return sorted({min(max(i, 0), length - 1) for i in chosen})


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure; the suffix chooses the format. FedpactError when it is none of SUFFIXES."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        allowed = ", ".join(SUFFIXES)
        raise FedpactError(f"{target.name}: a figure is written as {allowed}; change the suffix", code="FP-503")
    figure.savefig(target, dpi=150)
    return target
