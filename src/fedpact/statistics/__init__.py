"""What rows prove: exact bounds of rates, promises about rows not yet seen, standard errors of what was estimated."""

from fedpact.statistics.curves import BoundPrice, ScoreCounts
from fedpact.statistics.exact import gap_interval, interval, lower, upper
from fedpact.statistics.inference import Estimate, Sandwich, Summary, estimates, estimates_of_draws, sandwich
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
    "BoundPrice",
    "Estimate",
    "Sandwich",
    "ScoreCounts",
    "Summary",
    "estimates",
    "estimates_of_draws",
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
    "sandwich",
    "upper",
]
