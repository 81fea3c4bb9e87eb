"""The texts of a replication's page: a TOML file beside its code, with places for numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedpact_experiments.replications.findings import Claim, Table, Verdict


class Page:
    """The texts in NAME.toml: title, summary (one line for a list), tables, claims, differences.

    They are format strings, "{row.n} owners, {gap:.1e}"; the code gives the numbers by name. A table has `cells`, one
    per column, formatted for every row; a claim may have `each`, formatted for every row and joined. Its `why` is shown
    if it differs, `undecided` if the numbers do not decide.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._words = tomllib.loads(Path(__file__).with_name(f"{name.replace('-', '_')}.toml").read_text())
        self.title: str = self._words["title"]
        self.summary: str = self._words["summary"]

    def table(self, key: str, rows: Iterable[object], **numbers: Any) -> Table:
        words = dict(self._words["tables"][key])
        cells = words.pop("cells")
        filled = [[cell.format(row=row, **numbers) for cell in cells] for row in rows]
        return Table(rows=filled, **_fill(words, numbers))

    def claim(self, key: str, agrees: Verdict, rows: Iterable[object] = (), **numbers: Any) -> Claim:
        words = dict(self._words["claims"][key])
        each = words.pop("each", "")
        undecided = words.pop("undecided", "")
        if agrees is None:
            words["why"] = undecided
        told = "; ".join(each.format(row=row, **numbers) for row in rows)
        return Claim(agrees=agrees, **_fill(words, numbers | {"each": told}))

    def differences(self, **numbers: Any) -> list[str]:
        """Deviations from the paper's experiment."""
        return [text.format(**numbers) for text in self._words["differences"]]


def _fill(words: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """The texts formatted with these numbers, also inside lists; other entries are unchanged."""

    def fill(entry: Any) -> Any:
        if isinstance(entry, list):
            return [fill(each) for each in entry]
        if isinstance(entry, str):
            return entry.format(**numbers)
        return entry

    return {name: fill(entry) for name, entry in words.items()}
