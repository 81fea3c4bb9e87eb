"""What held-out rows prove about rows not yet seen: exact confidence bounds of rates, and promises made with them."""

from fedpact.statistics.exact import gap_interval, interval, lower, upper
from fedpact.statistics.promises import (
    gap_holds,
    last_passing,
    misses_allowed,
    promised_threshold,
    rate_holds,
    rows_needed,
    rows_needed_for_gap,
)

__all__ = [
    "gap_holds",
    "gap_interval",
    "interval",
    "last_passing",
    "lower",
    "misses_allowed",
    "promised_threshold",
    "rate_holds",
    "rows_needed",
    "rows_needed_for_gap",
    "upper",
]
