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
    "FP-CHECKPOINT-001": "its data are not those of the checkpoint",
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
    "FP-OWNER-009": "this is no step of a method that its site knows; a method of your own must be installed there",
    "FP-OWNER-010": "the public keys are not one for each of two or more owners, with its own among them",
    "FP-OWNER-011": "a number is too large for a secure sum; scaling the columns helps",
    "FP-OWNER-012": "a step gave something that cannot travel",
    "FP-OWNER-020": "an order holds a number that is not finite",
    "FP-OPTION-001": "secure sums need the package cryptography: pip install 'fedpact[secure]'",
    "FP-LOST-001": "its memory lacks the last round: it was restarted without its state folder, or with an old copy",
    "FP-LOST-002": "its memory of this run cannot be used",
    "FP-LOST-003": "it has no keys for a secure sum: it was restarted without its state folder",
    "FP-WIRE-001": "an order is over the limit of bytes",
    "FP-WIRE-002": "these bytes are no order",
    # ---- data: tables
    "FP-001": "Parquet files need the package pyarrow: pip install 'fedpact[parquet]'",
    "FP-DATA-001": "the table lacks a column of the job",
    "FP-DATA-002": "the table has a column of the job more than once",
    "FP-DATA-003": "a value is not a number",
    "FP-DATA-004": "a value is missing",
    "FP-DATA-005": "a value is infinite",
    "FP-DATA-006": "a value is none of the categories, classes or groups that the job lists",
    "FP-DATA-007": "the file of the table does not exist",
    "FP-DATA-008": "the file of the table is empty",
    "FP-DATA-009": "the table cannot be read as CSV in UTF-8",
    "FP-DATA-010": "the table has no rows",
    "FP-DATA-011": "a row of the table has another number of cells than the header",
    "FP-DATA-012": "the table cannot be read as Parquet",
    "FP-DATA-013": "the Parquet table has no rows",
    "FP-DATA-014": "the table has no column that could be a feature",
    "FP-DATA-020": "the table to split lacks a column",
    "FP-DATA-021": "the table to split has an empty cell",
    "FP-DATA-022": "the table to split cannot be read as CSV in UTF-8",
    "FP-DATA-023": "the table to split has no rows",
    "FP-DATA-024": "a row of the table to split has another number of cells than the header",
    "FP-DATA-025": "the table to split has no header",
    "FP-DATA-026": "the table to split has a column more than once",
    # ---- tasks: what a share needs
    "FP-002": "the folder holds no model of this format",
    "FP-003": "the model cannot be read",
    "FP-DATA-040": "the features are not a table of numbers",
    "FP-DATA-041": "the features are not a matrix",
    "FP-DATA-042": "there are more or fewer column names than columns",
    "FP-DATA-043": "a feature has missing or infinite values",
    "FP-DATA-044": "the sparse features have missing or infinite values",
    "FP-DATA-045": "a label or group is not one of the whole numbers that code them",
    "FP-DATA-046": "a label or group is neither 0 nor 1",
    "FP-DATA-047": "no row is of a class or group that is needed",
    "FP-DATA-048": "two owners have different numbers of columns",
    "FP-DATA-049": "there are no owners",
    "FP-DATA-050": "an owner has the name of the server",
    "FP-DATA-051": "the table of an owner lacks a part",
    "FP-DATA-052": "there are more or fewer labels or groups than rows",
    "FP-DATA-053": "no row of class 1 is of a group that is needed",
    "FP-DATA-054": "the sparse features are complex numbers",
    "FP-DATA-055": "the labels or groups are not a vector, or some are masked",
    "FP-DATA-056": "the labels or groups are complex numbers",
    "FP-DATA-057": "the rows are not arrays of numbers, or some values are masked",
    "FP-DATA-060": "the arrays cannot be read as .npz",
    "FP-DATA-061": "an array of the quadratic program is missing",
    "FP-DATA-090": "the file cannot be read any more",
    "FP-DATA-062": "an array of the quadratic program is not finite",
    "FP-DATA-063": "the arrays of the quadratic program are not real numbers, or some are masked",
    "FP-DATA-070": "a party has the name of the coordinator",
    "FP-DATA-071": "a party has more or fewer ids than rows",
    "FP-DATA-072": "there are more or fewer labels than ids",
    "FP-DATA-073": "there are more or fewer groups than ids",
    "FP-DATA-074": "the columns, labels or groups of the parties are not arrays, or some values are masked",
    "FP-OPTION-030": "a bound or penalty is not positive",
    "FP-OPTION-031": "a bound is missing for an owner",
    "FP-OPTION-032": "a bound is given for somebody who is no owner",
    "FP-OPTION-033": "a weight is negative",
    "FP-OPTION-034": "an unknown kind of parity was asked for",
    "FP-OPTION-035": "this kind of parity is for two classes",
    "FP-OPTION-040": "the task of the job is unknown",
    "FP-OPTION-041": "the job names no column of groups",
    "FP-OPTION-042": "the job names no Python file for its task",
    "FP-OPTION-043": "the job names no features",
    "FP-OPTION-044": "a feature of the job is its label or group as well",
    "FP-OPTION-045": "the job lists a feature twice",
    "FP-OPTION-046": "the job gives categories for a column that is no feature",
    "FP-OPTION-047": "the protected class is none of the classes",
    "FP-OPTION-048": "the kind of parity that the job asks for is unknown",
    "FP-OPTION-049": "what the job says about missing values is unknown",
    "FP-OPTION-050": "the recall that the job asks for is not between 0 and 1",
    "FP-OPTION-051": "the job states a key that this version does not know",
    "FP-OPTION-052": "the job is incomplete",
    "FP-OPTION-053": "the job has no bound for this owner",
    "FP-OPTION-054": "the job lists too few levels, or one twice",
    "FP-OPTION-055": "the job states no bound of the gap between groups",
    "FP-OPTION-056": "the job states neither a bound nor a recall",
    "FP-OPTION-057": "a bound of the job is not positive",
    "FP-OPTION-060": "the Python file of the task is none",
    "FP-OPTION-061": "the Python file of the task has no function share(table, name, owners)",
    "FP-OPTION-062": "the function share(...) of the task does not return an fp.Share",
    "FP-OPTION-070": "a number is too large",
    "FP-OPTION-063": "an unknown alignment was asked for",
    "FP-PROBLEM-001": "the optimality conditions of the quadratic program are singular",
    "FP-PROBLEM-002": "the arrays of the quadratic program have too few or too many axes",
    "FP-PROBLEM-003": "an array of the quadratic program has another shape than the others ask for",
    # ---- apps: a Flower site
    "FP-OPTION-010": "the --node-config of the site lacks its name, data-path or state-path",
    "FP-OPTION-011": "the site takes part only with another value than the job states",
    "FP-OPTION-012": "the task runs code of the site's own, and the site names none",
    "FP-OPTION-013": "the --node-config of the site states a condition that no task has",
}


def class_of(code: str) -> type[FedpactError]:
    """The class of the errors with this code: FP-DATA-003 belongs to the class whose code is FP-DATA."""
    kinds = (FedpactError, ProblemError, DataError, OptionError, OwnerError, OwnerLost, WireError, CheckpointError)
    by_code: dict[str, type[FedpactError]] = {kind.code: kind for kind in kinds}
    family = code.rpartition("-")[0]
    return by_code.get(code) or by_code.get(family, OwnerError)
