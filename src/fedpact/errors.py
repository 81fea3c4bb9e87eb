"""Errors of misuse, each with a stable code. Not converging is never an error: it is the `status` of a Solution.

A message is written for whoever owns the data: it may quote a cell, a line, a path. To another organisation an error
travels as its code and a few facts (`federation/failure.py`), and is told there in the words of CODES.
"""

from __future__ import annotations

from typing import Self

from fedpact.error_codes import CODES, OUT_OF_RANGE, install

__all__ = [
    "CODES",
    "OUT_OF_RANGE",
    "CheckpointError",
    "DataError",
    "FedpactError",
    "OptionError",
    "OwnerError",
    "OwnerLost",
    "ProblemError",
    "Refused",
    "WireError",
    "class_of",
    "install",
]


class FedpactError(Exception):
    """Base of every error this package raises on purpose.

    message: what was found, where, what is allowed and what to do
    code:    which error this is, one of CODES; by default the code of the class

    The rest may be told to another organisation:

    column: the column it is about, told if the job names it
    key:    the key of the job it is about, told if the job states it
    rows:   how many rows it is about, told roughly
    """

    code = "FP"
    column = ""
    key = ""
    rows: int | None = None

    def __init__(
        self, message: str = "", *, code: str = "", column: str = "", key: str = "", rows: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.column, self.key, self.rows = column, key, rows

    def within(self, where: str) -> Self:
        """The same error, its message beginning with where it happened."""
        placed = self.__new__(type(self), f"{where}: {self}")  # not by __init__, which a subclass may have changed
        placed.__dict__.update(vars(self))
        return placed


class ProblemError(FedpactError, ValueError):
    """A problem that contradicts itself: shapes, cones, empty shares, a start outside the domain."""

    code = "FP-PROBLEM"


class DataError(FedpactError, ValueError):
    """Data that cannot be used: missing values, empty classes, unknown columns."""

    code = "FP-DATA"


class OptionError(FedpactError, ValueError):
    """An option of a call that is outside its range, or unknown."""

    code = "FP-OPTION"


class OwnerError(FedpactError, RuntimeError):
    """A step failed at an owner; the message names it."""

    code = "FP-OWNER"


class OwnerLost(OwnerError):
    """An owner cannot be reached, is late, has lost its state or sends what cannot be read; the message names it."""

    code = "FP-LOST"


class Refused(OwnerError):
    """A rule of the site's policy refuses what was asked; the code says which."""

    code = "FP-REFUSED"


class WireError(FedpactError, ValueError):
    """Bytes that are damaged, truncated, of another version, or not what was expected."""

    code = "FP-WIRE"


class CheckpointError(FedpactError, ValueError):
    """A checkpoint that is absent, damaged, or of another problem."""

    code = "FP-CHECKPOINT"


def class_of(code: str) -> type[FedpactError]:
    """The class of the errors with this code: FP-DATA-003 belongs to the class whose code is FP-DATA."""
    kinds = [FedpactError, ProblemError, DataError, OptionError, OwnerError, OwnerLost, Refused, WireError]
    by_code: dict[str, type[FedpactError]] = {kind.code: kind for kind in [*kinds, CheckpointError]}
    family = code.rpartition("-")[0]
    return by_code.get(code) or by_code.get(family, OwnerError)
