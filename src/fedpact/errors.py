"""Errors of misuse, each with a stable code. Not converging is never an error: it is the `status` of a Solution.

A message is written for whoever owns the data: it may quote a cell, a line, a path. To another organisation an error
travels as its code and a few facts (`federation/failure.py`), and is told there in the words of CODES.
"""

from __future__ import annotations

from typing import Self


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


class WireError(FedpactError, ValueError):
    """Bytes that are damaged, truncated, of another version, or not what was expected."""

    code = "FP-WIRE"


class CheckpointError(FedpactError, ValueError):
    """A checkpoint that is absent, damaged, or of another problem."""

    code = "FP-CHECKPOINT"


#: What every code means, without data: the words in which an error of another organisation is told.
#: A code is never given to another error, and one that is no longer raised is not used again.
CODES = {
    "FP": "an error",
    "FP-CHECKPOINT": "a checkpoint cannot be used",
    "FP-DATA": "the data cannot be used",
    "FP-LOST": "it cannot go on with this run",
    "FP-OPTION": "an option or the job is not accepted",
    "FP-OWNER": "an order was refused, or failed",
    "FP-PROBLEM": "its share contradicts itself",
    "FP-WIRE": "a message cannot be read",
    # ---- federation: an owner and its orders
    "FP-OWNER-001": "an exception that is none of fedpact's own",
    "FP-OWNER-002": "an order of another run came in between",
    "FP-OWNER-003": "two different orders came under one round number",
    "FP-OWNER-004": "an order of a past round came",
    "FP-OWNER-005": "a step gave numbers that are not finite; scaling the columns often helps",
    "FP-OWNER-006": "numbers without a mask were asked for after secure sums were agreed on",
    "FP-OWNER-007": "this is not the name of a run",
    "FP-OWNER-008": "an order for another owner came",
    "FP-OWNER-009": "this is no step of a method that its fedpact knows",
    "FP-OWNER-010": "the public keys are not one for each of two or more owners, with its own among them",
    "FP-OWNER-011": "a number is too large for a secure sum; scaling the columns helps",
    "FP-OWNER-012": "a step gave something that cannot travel",
    "FP-OPTION-001": "secure sums need the package cryptography: pip install 'fedpact[secure]'",
    "FP-LOST-001": "its memory lacks the last round: it was restarted without its state folder, or with an old copy",
    "FP-LOST-002": "its memory of this run cannot be used",
    "FP-LOST-003": "it has no keys for a secure sum: it was restarted without its state folder",
    "FP-WIRE-001": "an order is over the limit of bytes",
    "FP-WIRE-002": "these bytes are no order",
    # ---- apps: a Flower site
    "FP-OPTION-010": "the --node-config of the site lacks its name, data-path or state-path",
    "FP-OPTION-011": "the site takes part only with another value than the job states",
    "FP-OPTION-012": "the task runs code of the site's own, and the site names none",
}


def class_of(code: str) -> type[FedpactError]:
    """The class of the errors with this code: FP-DATA-003 belongs to the class whose code is FP-DATA."""
    kinds = (FedpactError, ProblemError, DataError, OptionError, OwnerError, OwnerLost, WireError, CheckpointError)
    by_code: dict[str, type[FedpactError]] = {kind.code: kind for kind in kinds}
    family = code.rpartition("-")[0]
    return by_code.get(code) or by_code.get(family, OwnerError)
