"""A model on rows that nobody trained on: values with exact intervals, and verdicts on its bounds.

An interval is of one rate by itself. Verdicts are of all bounds of an evaluation together: each bound has a p-value
for either side, and Holm's step-down procedure (1979, Scandinavian Journal of Statistics 6) rejects on each side with
half of 1 - level. So the probability that any verdict of an evaluation is wrong is 1 - level at most, however many
owners and bounds there are, and however they depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from fedpact.statistics.exact import gap_interval
from fedpact.types import Vector

#: Halvings when the p-value of a gap is sought.
HALVINGS = 40


@dataclass(frozen=True)
class Rate:
    """A rate on rows that nobody trained on, and its exact interval."""

    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class Outcome:
    """One bound at one holder, on rows that nobody trained on.

    what, bound, least: as in `fedpact.tasks.base.Bounded`
    value:              NaN where it is withheld, or where no row has anything to say
    low, high:          exact interval of the rate or gap; NaN where it has none, such as a loss
    rows:               it rests on; of a gap, those of the smaller group
    withheld:           whether the owner does not report the value, since it rests on too few rows for its policy
    p_met, p_missed:    p-value of "the bound is met", and of "it is missed"; NaN where there is no interval
    verdict:            "borne out", "contradicted", or "open"; "" where there is no interval (`give_verdicts`)
    """

    owner: str
    what: str
    value: float
    bound: float
    low: float
    high: float
    rows: int
    least: bool = False
    withheld: bool = False
    p_met: float = math.nan
    p_missed: float = math.nan
    verdict: str = ""

    @property
    def met(self) -> bool:
        """Whether the value is on the right side of its bound, on these very rows."""
        return self.value >= self.bound if self.least else self.value <= self.bound


#: Numbers of an outcome that may be NaN.
UNKNOWN = ("value", "low", "high", "p_met", "p_missed")


@dataclass(frozen=True)
class Evaluation:
    """What owners measured of a model on rows that nobody trained on.

    level:    of every interval, and of all verdicts together
    bounds:   the constraints, holder by holder
    rates:    recall, specificity and accuracy with their intervals, by owner; "together": of the rows of all of them
    measures: everything that the owners reported, by owner and name
    withheld: names of what an owner does not report
    time:     when it was added to the folder of a run, ISO 8601; else empty
    """

    level: float
    bounds: tuple[Outcome, ...]
    rates: Mapping[str, Mapping[str, Rate]]
    measures: Mapping[str, Mapping[str, float]]
    withheld: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time: str = ""

    def count(self, verdict: str) -> int:
        """How many bounds have this verdict."""
        return sum(one.verdict == verdict for one in self.bounds)

    @property
    def contradicted(self) -> bool:
        """Whether the new rows show that a bound is missed."""
        return self.count("contradicted") > 0

    def to_json(self) -> dict[str, Any]:
        """As JSON has it; None stands for NaN."""
        stated = asdict(self)
        for one in stated["bounds"]:
            for name in UNKNOWN:
                one[name] = None if math.isnan(one[name]) else one[name]
        return stated

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        bounds = []
        for one in stated["bounds"]:
            numbers = {name: math.nan if one[name] is None else one[name] for name in UNKNOWN}
            bounds.append(Outcome(**{**one, **numbers}))
        rates = {
            owner: {name: Rate(**rate) for name, rate in found.items()} for owner, found in stated["rates"].items()
        }
        withheld = {owner: tuple(names) for owner, names in stated["withheld"].items()}
        return cls(stated["level"], tuple(bounds), rates, stated["measures"], withheld, stated["time"])


# ------------------------------------------------------------------------------------------------------------- verdicts


def give_verdicts(bounds: Sequence[Outcome], level: float) -> tuple[Outcome, ...]:
    """The outcomes with their verdicts, of which any is wrong with probability 1 - level at most."""
    tested = [one for one in bounds if not math.isnan(one.low)]
    missed = holm([one.p_met for one in tested]) <= (1 - level) / 2
    met = holm([one.p_missed for one in tested]) <= (1 - level) / 2
    judged = []
    for one, is_missed, is_met in zip(tested, missed, met, strict=True):
        verdict = "open"
        if is_missed:
            verdict = "contradicted"
        elif is_met:
            verdict = "borne out"
        judged.append(replace(one, verdict=verdict))
    remaining = iter(judged)
    return tuple(one if math.isnan(one.low) else next(remaining) for one in bounds)


def holm(p_values: ArrayLike) -> Vector:
    """Adjusted p-values: to reject those up to alpha rejects any true hypothesis with probability alpha at most."""
    found = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(found)
    left = np.arange(found.size, 0, -1)  # hypotheses that are still to be tested
    adjusted = np.empty_like(found)
    adjusted[order] = np.minimum(np.maximum.accumulate(left * found[order]), 1.0)
    return adjusted


def p_values_of_rate(hits: float, rows: float, bound: float, least: bool) -> tuple[float, float]:
    """p-values of "the rate meets its bound" and of "it misses it": exact binomial tails at the bound."""
    few = 1.0 if hits == rows else float(betainc(rows - hits, hits + 1, 1 - bound))  # P(Bin(rows, bound) <= hits)
    many = 1.0 if hits == 0 else float(betainc(hits, rows - hits + 1, bound))  # P(Bin(rows, bound) >= hits)
    return (few, many) if least else (many, few)


def p_values_of_gap(hits: ArrayLike, rows: ArrayLike, bound: float) -> tuple[float, float]:
    """The same of a gap that is bounded above: half of the least 1 - level whose interval leaves the bound out."""

    def least_tail(low_side: bool) -> float:
        certain, enough = 0.0, 1.0  # 1 - level: an interval at `certain` holds the bound, at `enough` perhaps not
        for _ in range(HALVINGS):
            middle = (certain + enough) / 2
            low, high = gap_interval(hits, rows, 1 - middle)
            if low > bound if low_side else high <= bound:
                enough = middle
            else:
                certain = middle
        return enough / 2 if enough < 1 else 1.0

    return least_tail(True), least_tail(False)
