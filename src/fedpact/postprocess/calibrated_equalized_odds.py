"""Calibrated equalized odds: Pleiss, Raghavan, Wu, Kleinberg, Weinberger (2017), called P17 below.

Calibrated scores of two groups have different costs. The group with the lower cost gives up knowledge: with probability
`rate` a row's score is replaced by the group's base rate. Scores stay calibrated and the expected costs become equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError, OptionError
from fedpact.postprocess.checks import Labels, Scores, check_costs, finite_scores, labels_of_groups, rows_by_group


@dataclass(frozen=True, eq=False)
class CalibratedPredictor:
    """Whose scores are withheld, how often, and what that does to the costs on the rows it was derived from."""

    better_off: Hashable  # the group whose scores are withheld
    rate: float  # probability that a score of this group is withheld
    base_rate: float  # what replaces it
    costs: Mapping[Hashable, float]  # of the given scores, by group
    costs_after: Mapping[Hashable, float]  # expected, by group: equal, unless no rate makes them so

    def withhold(self, scores: ArrayLike, group: ArrayLike, seed: int) -> Scores:
        """The scores, those of randomly chosen rows of the group replaced by its base rate.

        Raises:
            DataError: a group that was not there, lengths that differ, a score outside [0, 1].
        """
        rows = rows_by_group(group, known=self.costs)
        vector = _probabilities(scores, sum(map(len, rows.values()))).copy()
        members = rows[self.better_off]
        chosen = np.random.default_rng(seed).random(len(members)) < self.rate
        vector[members[chosen]] = self.base_rate
        return vector

    def predict(self, scores: ArrayLike, group: ArrayLike, seed: int) -> Labels:
        """0 or 1 a row: 1 where the score is at least one half after `withhold`."""
        return (self.withhold(scores, group, seed) >= 0.5).astype(np.int64)


def calibrated_equalized_odds(
    y: ArrayLike,
    scores: ArrayLike,
    group: ArrayLike,
    *,
    false_positive_cost: float = 0.0,
    false_negative_cost: float = 1.0,
    on_infeasible: Literal["error", "withhold"] = "error",
) -> CalibratedPredictor:
    """Equal cost a E[score | y = 0] + b E[1 - score | y = 1] in two groups; a, b: the costs given, for both groups.

    y: 0 and 1; scores: calibrated probabilities of y = 1 (not checked); group: two labels; one of each a row
    costs: the default is equal opportunity; (1, 0) equalizes the generalized false positive rate. With both positive,
    the authors' program weighs them by each group's class shares, this function does not (the paper allows both).
    on_infeasible: where no rate makes the costs equal, "error", or "withhold" what brings them nearer (as a rule all
    scores; the authors' program does so without saying)

    Raises:
        DataError: lengths that differ, scores outside [0, 1], not two groups, a group without a row of y = 0 or of
            y = 1; costs so far apart that no rate makes them equal, unless `on_infeasible` allows it.
        OptionError: costs that are negative or both 0, or an unknown `on_infeasible`.
    """
    if on_infeasible not in ("error", "withhold"):
        raise OptionError(f"on_infeasible is {on_infeasible!r}; choose 'error' or 'withhold'", code="FP-OPTION-432")
    a, b = check_costs(false_positive_cost, false_negative_cost)
    rows = rows_by_group(group)
    labels = labels_of_groups(y, rows)
    if len(rows) != 2:
        raise DataError(
            f"group has {len(rows)} different labels, {list(rows)}; calibrated equalized odds is for two",
            code="FP-DATA-433",
        )
    vector = _probabilities(scores, len(labels))

    def cost(y: Labels, score: Scores) -> float:  # P17: the cost g
        return a * float(score[y == 0].mean()) + b * float(1.0 - score[y == 1].mean())

    found = {level: cost(labels[members], vector[members]) for level, members in rows.items()}
    better, worse = sorted(rows, key=lambda level: found[level])
    base_rate = float(labels[rows[better]].mean())
    ignorant = a * base_rate + b * (1.0 - base_rate)
    gap = found[worse] - found[better]
    room = ignorant - found[better]
    if gap > max(room, 0.0) and on_infeasible == "error":
        raise DataError(
            f"group {worse!r} has cost {found[worse]:.4g}, group {better!r} {found[better]:.4g}, and {ignorant:.4g} "
            "with all its scores withheld; no rate makes the costs equal: use equalized_odds, other costs, or "
            "on_infeasible='withhold'",
            code="FP-DATA-434",
        )
    rate = 0.0
    if room > 0:
        rate = min(gap / room, 1.0)  # P17, Algorithm 1, but for the minimum
    after = {better: found[better] + rate * room, worse: found[worse]}
    return CalibratedPredictor(better, rate, base_rate, found, after)


def _probabilities(scores: ArrayLike, rows: int) -> Scores:
    vector = finite_scores(scores, rows)
    wrong = np.flatnonzero((vector < 0) | (vector > 1))
    if wrong.size:
        raise DataError(
            f"scores have {wrong.size} values outside [0, 1], the first is {vector[wrong[0]]:.4g} in row {wrong[0]}; "
            "give calibrated probabilities",
            code="FP-DATA-435",
        )
    return vector
