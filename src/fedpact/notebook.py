"""How problems, solutions and fits show themselves in a notebook: a few words and a table, in plain HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedpact.errors import FedpactError

#: Rows of a table at most; of a thousand owners nobody reads all.
MOST = 20


def show(title: str, facts: Sequence[str], columns: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()) -> str:
    """A title, facts in a line below it, and a table. All text is escaped."""
    parts = [f"<div><p><b>{escape(title)}</b><br>{escape('; '.join(facts))}</p>"]
    listed = list(rows)
    if listed:
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:MOST])
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if len(listed) > MOST:
        parts.append(f"<p>and {len(listed) - MOST:,} more</p>")
    return "".join([*parts, "</div>"])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td>{'' if math.isnan(value) else f'{value:.4g}'}</td>"
    return f"<td>{escape(str(value))}</td>"


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame of these rows. FedpactError if pandas, which fedpact itself does not need, is absent."""
    try:
        import pandas
    except ImportError as error:
        raise FedpactError("a frame needs pandas; install it with: pip install pandas", code="FP-945") from error
    return pandas.DataFrame(list(rows))
