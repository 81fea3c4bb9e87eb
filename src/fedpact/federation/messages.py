"""What travels: frozen dataclasses of float64 arrays, numbers and strings, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedpact.errors import OwnerError


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the server asks of an owner. The fleet stamps the round; an owner answers a repeated round from memory."""

    round: int = 0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What leaves an owner: each field is counted and named in the ledger."""


def payload(message: Order | Reply) -> dict[str, Any]:
    """The fields of a message by name, without the round."""
    return {f.name: getattr(message, f.name) for f in fields(message) if f.name != "round"}


def size(message: Order | Reply) -> int:
    """Bytes of content: 8 per number, the length of a text, an array's own size. OwnerError for anything else."""
    total = 0
    for name, value in payload(message).items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            total += value.nbytes
        elif isinstance(value, str):
            total += len(value.encode())
        elif isinstance(value, int | float | np.integer | np.floating | np.bool_):
            total += 8
        else:
            found = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise OwnerError(
                f"{type(message).__name__}.{name} is of type {found}: only arrays of numbers and scalars travel"
            )
    return total


def not_finite(message: Reply) -> str | None:
    """The name of the first field that holds a NaN or an infinity; None when all are finite."""
    for name, value in payload(message).items():
        if isinstance(value, float | np.ndarray) and not np.all(np.isfinite(value)):
            return name
    return None
