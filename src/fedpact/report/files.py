"""Files written for a reader: one error for all that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpact.errors import FedpactError


@contextmanager
def explain_write_errors(target: str | Path) -> Iterator[None]:
    """Raise FedpactError in place of an OSError; it names the file or folder and what to do."""
    try:
        yield
    except OSError as error:
        told = f"{error.filename or target} cannot be written ({error.strerror or error}); choose another place"
        raise FedpactError(told, code="FP-501") from error
