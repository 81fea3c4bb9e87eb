"""Figures of how a table was split among owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpact.report.figures import figure_class

#: Inches per owner.
OWNER = 0.32
#: A figure has at most so many inches; with more owners the bars get thinner.
TALLEST = 40.0


def label_bars(counts: Mapping[str, Mapping[str, int]], title: str, legend: str = "") -> Any:
    """A stacked bar per owner: rows by label.

    counts: owner -> (label -> rows), the same labels at every owner
    legend: name of the labels; empty for no legend

    Returns a matplotlib Figure. Raises FedpactError without matplotlib.
    """
    owners = list(counts)
    figure = figure_class()(figsize=(8, min(1.6 + OWNER * len(owners), TALLEST)), layout="constrained")
    axes = figure.add_subplot()
    labels = list(next(iter(counts.values())))
    begin = [0] * len(owners)
    pieces = []
    for i, label in enumerate(labels):
        rows = [counts[owner][label] for owner in owners]
        pieces.append(axes.barh(range(len(owners)), rows, left=begin, color=f"C{i % 10}"))
        begin = [b + r for b, r in zip(begin, rows, strict=True)]
    axes.set_yticks(range(len(owners)), [_plain(owner) for owner in owners])
    axes.invert_yaxis()  # the first owner is the uppermost
    axes.set(title=_plain(title), xlabel="rows")
    if legend:
        shown = [_plain(label) for label in labels]
        figure.legend(pieces, shown, title=_plain(legend), fontsize="small", loc="outside right upper")
    return figure


def column_grid(columns: Sequence[str], owners: Mapping[str, Sequence[str]], title: str) -> Any:
    """A grid of owners and columns; the columns that an owner holds are filled. Returns a matplotlib Figure."""
    names = list(owners)
    size = (min(2.5 + 0.28 * len(columns), TALLEST), min(2.4 + OWNER * len(names), TALLEST))
    figure = figure_class()(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for i, name in enumerate(names):
        held = [j for j, column in enumerate(columns) if column in owners[name]]
        axes.bar(held, [0.8] * len(held), bottom=i - 0.4, width=0.9, color=f"C{i % 10}")
    axes.set_xticks(range(len(columns)), [_plain(column) for column in columns], rotation=90)
    axes.set_yticks(range(len(names)), [_plain(name) for name in names])
    axes.set(title=_plain(title), xlim=(-0.6, len(columns) - 0.4), ylim=(len(names) - 0.5, -0.5))
    return figure


def _plain(text: str) -> str:
    """Text for matplotlib: no formulas between dollar signs, no label hidden by a leading underscore."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if text.startswith("_") else escaped
