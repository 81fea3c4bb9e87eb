"""What a report holds, before it is HTML or Markdown: sections of paragraphs, tables and charts. All text is plain."""

from __future__ import annotations

from dataclasses import dataclass

from fedpact.report.charts import Chart, Forest
from fedpact.report.numbers import number

#: A cell of which nothing is known, or that does not apply.
NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    exact:  the number behind the text
    good:   whether it passes
    used:   the fraction of a bound that is used, drawn as a bar
    remark: shown small, behind the text
    """

    text: str
    exact: float | None = None
    good: bool | None = None
    used: float | None = None
    remark: str = ""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with their heading. folded: collapsed until the reader opens it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    folded: bool = False

    kind = "table"

    def numeric(self, column: int) -> bool:
        return column > 0 and any(row[column].exact is not None for row in self.rows)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]

    kind = "items"


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    charts: tuple[Chart | Forest, ...]

    kind = "charts"


Block = str | Table | Items | Charts


@dataclass(frozen=True)
class Section:
    """key: its anchor on the page."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Verdict:
    """good: solved, and every constraint met; todo: what to do next if not; warned: good, but with a remark on it."""

    good: bool
    headline: str
    sentences: tuple[str, ...]
    todo: str = ""
    warned: bool = False

    @property
    def mark(self) -> str:
        if self.warned:
            return "!"
        return "✓" if self.good else "✗"

    @property
    def tone(self) -> str:
        if self.warned:
            return "warned"
        return "good" if self.good else "bad"


@dataclass(frozen=True)
class Report:
    """The content of a report. figures: the run in a few numbers, as (name, number, remark)."""

    title: str
    asked: str
    made: str
    verdict: Verdict
    figures: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]


def capital(text: str) -> str:
    """The text with a capital letter in front; the others stay, since names are among them."""
    return f"{text[:1].upper()}{text[1:]}"


def cell(value: float) -> Cell:
    """A number."""
    return Cell(number(value), value)
