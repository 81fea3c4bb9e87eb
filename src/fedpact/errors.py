"""Errors of misuse. Not converging is never an error: it is the `status` of a Solution."""

from __future__ import annotations


class FedpactError(Exception):
    """Base of every error this package raises on purpose."""


class ProblemError(FedpactError, ValueError):
    """A problem that contradicts itself: shapes, cones, empty shares, a start outside the domain."""


class DataError(FedpactError, ValueError):
    """Data that cannot be used: missing values, empty classes, unknown columns."""


class OptionError(FedpactError, ValueError):
    """An option of a call that is outside its range, or unknown."""


class OwnerError(FedpactError, RuntimeError):
    """A step failed at an owner; the message names it."""


class OwnerLost(OwnerError):
    """An owner cannot be reached, is late, has lost its state or sends what cannot be read; the message names it."""


class WireError(FedpactError, ValueError):
    """Bytes that are damaged, truncated, of another version, or not what was expected."""


class CheckpointError(FedpactError, ValueError):
    """A checkpoint that is absent, damaged, or of another problem."""
