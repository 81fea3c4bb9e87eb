"""An error at an owner as it travels: a code and a few facts. Its text, which may quote cells, stays at its owner."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fedpact.errors import CODES, FedpactError, OwnerError, class_of

#: The code of an exception that fedpact did not raise on purpose.
UNEXPECTED = "FP-OWNER-001"
#: Fewer rows than this are not counted in what travels.
SMALL = 5


@dataclass(frozen=True)
class Failure:
    """What a coordinator learns of an error at an owner.

    code:   which error, one of CODES
    column: a column that the job names, or empty
    key:    a key that the job states, or empty
    rows:   how many rows it is about, as `coarsen` tells it; None when it is not about rows
    text:   the whole message, where owner and coordinator are one organisation; else empty
    """

    code: str
    column: str = ""
    key: str = ""
    rows: int | None = None
    text: str = ""

    @classmethod
    def of(cls, error: Exception, job: object = None, small_cells: int = 0) -> Failure:
        """What another organisation may learn of this error, which an order of this job met.

        small_cells: fewer rows are not counted, as fewer than SMALL never are
        """
        if not isinstance(error, FedpactError):
            return cls(UNEXPECTED)
        code = error.code
        if code not in CODES:
            code = class_of(code).code
        rows = None
        if isinstance(error.rows, int):
            rows = coarsen(error.rows) if error.rows >= small_cells else 0
        failure = cls(code, rows=rows)
        stated = texts_in(job)
        if error.column in stated:
            failure = replace(failure, column=error.column)
        if error.key in stated:
            failure = replace(failure, key=error.key)
        return failure

    def to_error(self, owner: str) -> FedpactError:
        """The error that the coordinator raises."""
        code = self.code
        if not re.fullmatch(r"FP(-[A-Z]+)?(-\d{3})?", code):
            code = OwnerError.code
        text = self.text or f"{owner}: {code}: {self._describe(code)}; the site's own log says more"
        return class_of(code)(text, code=code, column=self.column, key=self.key, rows=self.rows)

    def _describe(self, code: str) -> str:
        facts = []
        if self.column:
            facts.append(f"column {self.column!r}")
        if self.key:
            facts.append(f"key {self.key!r}")
        if self.rows == 0:
            facts.append("a few rows")
        elif self.rows is not None:
            facts.append(f"{self.rows} rows or more")
        # A site of a later version may have codes that are not known here.
        what, semicolon, remedy = CODES.get(code, CODES[class_of(code).code]).partition("; ")
        if facts:
            what = f"{what} ({', '.join(facts)})"
        return f"{what}{semicolon}{remedy}"


def coarsen(rows: int) -> int:
    """The count rounded down to 5, 10, 20, 50, 100, ...; 0 when it is below SMALL.

    An exact count of nearly all rows would tell how few the others are.
    """
    if rows < SMALL:
        return 0
    magnitude = int(10 ** (len(str(rows)) - 1))
    return max(step * magnitude for step in (1, 2, 5) if step * magnitude <= rows)


def texts_in(job: object) -> set[str]:
    """Every text that the coordinator stated, be it a key or a value: to repeat one tells it nothing new."""
    found: set[str] = set()
    waiting = [job]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            found.add(part)
        elif isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple):
            waiting += part
    return found
