"""A step of the tests' own; Ray's actors know it because they import this file as they start."""

from __future__ import annotations

from dataclasses import dataclass

from fedpact.federation import Order, Reply, Summed, client_step


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    value: Summed[float]
    total: float


@client_step
def count(share: float, state: float | None, order: Order) -> tuple[float, Counted]:
    """How often this owner was asked, and that times its share."""
    total = (state or 0.0) + 1.0
    return total, Counted(value=share * total, total=total)


def start_worker() -> None:
    """What Ray calls in every process; the import has done it."""
