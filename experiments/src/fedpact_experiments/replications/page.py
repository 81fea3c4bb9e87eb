"""The words of a replication's page: a TOML file beside its code, which has the numbers and puts them in by name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedpact_experiments.replications.findings import Claim, Table, Verdict


class Page:
    """The words in NAME.toml: title and summary (one line for a list), tables, claims, differences.

    Numbers stand in them as in a format string, "{row.n} owners, {gap:.1e}"; the code gives them by these names. A
    table has `cells`, one a column, filled for every row; a claim may have `each`, filled for every row and joined. Its
    `why` is the reason where it differs, `undecided` where the numbers do not carry a verdict.
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
        return Table(rows=filled, **_filled(words, numbers))

    def claim(self, key: str, agrees: Verdict, rows: Iterable[object] = (), **numbers: Any) -> Claim:
        words = dict(self._words["claims"][key])
        each, undecided = words.pop("each", ""), words.pop("undecided", "")
        if agrees is None:
            words["why"] = undecided
        told = "; ".join(each.format(row=row, **numbers) for row in rows)
        return Claim(agrees=agrees, **_filled(words, numbers | {"each": told}))

    def differences(self, **numbers: Any) -> list[str]:
        """Where this is not what the paper did."""
        return [text.format(**numbers) for text in self._words["differences"]]


def _filled(words: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """The words with their numbers, in lists of them too; what is no text stays."""

    def fill(entry: Any) -> Any:
        if isinstance(entry, list):
            return [fill(each) for each in entry]
        return entry.format(**numbers) if isinstance(entry, str) else entry

    return {name: fill(entry) for name, entry in words.items()}
