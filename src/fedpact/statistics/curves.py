"""What a model's scores and bounds come to over the rows of all owners together: counts by score, and a trade-off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScoreCounts:
    """Rows of either class by score, over all owners together.

    edges:         between the bins, rising; the first and the last bin are open
    negative:      rows of the first class in every bin; positive: of the second
    probabilities: that the model gives a row in the middle of each bin; none: its scores are not probabilities
    """

    edges: tuple[float, ...]
    negative: tuple[float, ...]
    positive: tuple[float, ...]
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class BoundPrice:
    """The model for other bounds: one point of the trade-off.

    allowance: multiple of what the bounds that were asked for allow; 1: the model itself
    status:    of its solve; objective: of the task, in its own bounds' units
    rates:     over the rows of all owners together: accuracy and, of two classes, recall and specificity of the last
    """

    allowance: float
    status: str
    objective: float
    rates: dict[str, float]
