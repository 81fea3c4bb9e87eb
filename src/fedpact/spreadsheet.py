"""Cells of CSV files that people open in spreadsheets: names and ids of other people are never formulas there."""

from __future__ import annotations

#: A cell that begins so is computed when the file is opened, whatever it does then.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(cell: object) -> object:
    """The cell, with an apostrophe in front of a text that a spreadsheet would compute; numbers stay."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
