"""How sure a rate is that was found on so many rows."""

from __future__ import annotations

from scipy.special import betaincinv


def interval(rate: float, rows: float, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) confidence interval of a rate that was found on so many rows."""
    hits, tail = round(rate * rows), (1 - level) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, rows - hits + 1, tail))
    high = 1.0 if hits == rows else float(betaincinv(hits + 1, rows - hits, 1 - tail))
    return low, high
