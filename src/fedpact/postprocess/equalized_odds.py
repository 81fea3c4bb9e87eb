"""Equalized odds and equal opportunity by post-processing: Hardt, Price, Srebro (2016), called HPS16 below.

In each group a random mixture of threshold rules turns the score into a prediction. Its pair of rates (false positive,
true positive) can be any point of the convex hull of the group's ROC points, and the linear program below finds the
mixtures of least cost whose rates agree across groups. No grid: the vertices of the hulls are all that is needed.

A rule may also be turned round (1 below the threshold), which matters where a score is worse than chance in a group.
With scores 0 and 1 (binary predictions) the rules are: never, as predicted, the reverse, always. Their mixtures are all
that HPS16 derives from a binary predictor; `predict_proba([0, 1], [g, g])` are its probabilities for group g.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from fedpact.errors import OptionError
from fedpact.postprocess.checks import Labels, Scores, check_costs, finite_scores, labels_of_groups, rows_by_group

EqualRates = Literal["equalized_odds", "true_positive_rate"]

#: Weights below are rounding of the linear program's solver.
ZERO_WEIGHT = 1e-12


class Rates(NamedTuple):
    """Expected rates of a group."""

    false_positive: float
    true_positive: float


@dataclass(frozen=True, eq=False)
class Mixture:
    """k rules: with probability weight[j], predict 1 where score >= threshold[j], or where it is not if reverse[j]."""

    threshold: Scores
    reverse: NDArray[np.bool_]
    weight: Scores

    def probability(self, scores: Scores) -> Scores:
        """The probability of predicting 1, for every score."""
        said = (scores[:, None] >= self.threshold) != self.reverse
        # Weights add up to 1 but for rounding, which must not make a certain prediction uncertain.
        return np.where(said.all(axis=1), 1.0, np.minimum(said @ self.weight, 1.0))


@dataclass(frozen=True, eq=False)
class DerivedPredictor:
    """A predictor from (score, group), with its expected rates and cost on the rows it was derived from.

    loss: expected cost per row
    """

    mixtures: Mapping[Hashable, Mixture]
    rates: Mapping[Hashable, Rates]
    loss: float

    def predict_proba(self, scores: ArrayLike, group: ArrayLike) -> Scores:
        """The probability of predicting 1, for every row.

        Raises:
            DataError: a group that was not there, lengths that differ, a score that is missing or infinite.
        """
        rows = rows_by_group(group, known=self.mixtures)
        vector = finite_scores(scores, sum(map(len, rows.values())))
        probability = np.empty(len(vector))
        for level, members in rows.items():
            probability[members] = self.mixtures[level].probability(vector[members])
        return probability

    def predict(self, scores: ArrayLike, group: ArrayLike, seed: int) -> Labels:
        """0 or 1 for every row, drawn with the probabilities of `predict_proba`."""
        probability = self.predict_proba(scores, group)
        return (np.random.default_rng(seed).random(len(probability)) < probability).astype(np.int64)


def equalized_odds(
    y: ArrayLike,
    scores: ArrayLike,
    group: ArrayLike,
    *,
    constraint: EqualRates = "equalized_odds",
    cost: tuple[float, float] = (1.0, 1.0),
) -> DerivedPredictor:
    """The predictor of least expected cost that has equal rates in all groups on these rows.

    y: 0 and 1; scores: any finite numbers, or predictions 0 and 1; group: two or more labels; one of each a row
    constraint: "equalized_odds" (both rates equal), or "true_positive_rate" only (equal opportunity)
    cost: of a false positive and of a false negative

    Raises:
        DataError: lengths that differ, missing scores, one group only, a group without a row of y = 0 or of y = 1.
        OptionError: an unknown constraint, or costs that are negative or both 0.
    """
    if constraint not in ("equalized_odds", "true_positive_rate"):
        raise OptionError(
            f"constraint is {constraint!r}; choose 'equalized_odds' or 'true_positive_rate'", code="FP-OPTION-436"
        )
    false_positive_cost, false_negative_cost = check_costs(*cost)
    rows = rows_by_group(group)
    labels = labels_of_groups(y, rows)
    vector = finite_scores(scores, len(labels))
    rules = [_hull(labels[members], vector[members]) for members in rows.values()]

    # One variable per vertex: its weight in the mixture of its group.
    member = np.concatenate([np.full(len(part.counts), g) for g, part in enumerate(rules)])
    counts = np.concatenate([part.counts for part in rules])
    classes = np.array([np.bincount(labels[members], minlength=2) for members in rows.values()])
    rates = counts / classes[member]
    costs = false_positive_cost * counts[:, 0] - false_negative_cost * counts[:, 1]
    equal_rates = rates if constraint == "equalized_odds" else rates[:, 1:]
    weights = _mix(costs / len(labels), equal_rates, member)

    mixtures = {}
    reached = {}
    for g, (level, part) in enumerate(zip(rows, rules, strict=True)):
        own = weights[member == g]
        used = own > 0
        mixtures[level] = Mixture(part.threshold[used], part.reverse[used], own[used])
        reached[level] = Rates(*map(float, own @ rates[member == g]))
    loss = float(costs @ weights + false_negative_cost * classes[:, 1].sum()) / len(labels)
    return DerivedPredictor(mixtures, reached, loss)


def _mix(costs: Scores, rates: Scores, member: NDArray[np.int64]) -> Scores:
    """The weights of least cost that add up to 1 in every group and give all groups the same rates: a linear program.

    costs (k), rates (k x 1 or 2), member (k): of every vertex its cost, its rates, the number of its group
    """
    inside = [(member == g).astype(np.float64) for g in range(member[-1] + 1)]
    gaps = [rate * (own - inside[0]) for own in inside[1:] for rate in rates.T]
    solved = linprog(
        costs,
        A_eq=np.array([*inside, *gaps]),
        b_eq=[1.0] * len(inside) + [0.0] * len(gaps),
        method="highs",
    )
    assert solved.x is not None, solved.message  # never predicting 1 is feasible, and weights are bounded
    weights = np.where(solved.x > ZERO_WEIGHT, solved.x, 0.0)
    return np.asarray(weights / np.bincount(member, weights)[member])


class _Rules(NamedTuple):
    """k threshold rules of one group; counts: k x 2, their false and true positives."""

    counts: NDArray[np.int64]
    threshold: Scores
    reverse: NDArray[np.bool_]


def _hull(y: Labels, scores: Scores) -> _Rules:
    """The rules of one group at the upper hull of its ROC points, from never to always predicting 1.

    The lower hull is not needed: a higher true positive rate never costs. Counts are integers, so the hull is exact.
    """
    levels, codes = np.unique(scores, return_inverse=True)
    by_level = np.stack([np.bincount(codes[y == label], minlength=len(levels)) for label in (0, 1)], axis=1)
    above = np.vstack([np.cumsum(by_level[::-1], axis=0)[::-1], [[0, 0]]])  # rows with score >= level, or none
    counts = np.vstack([above, above[0] - above])
    threshold = np.tile(np.append(levels, np.inf), 2)
    reverse = np.arange(len(counts)) >= len(above)
    points = [tuple(point) for point in counts.tolist()]
    kept: list[int] = []
    for j in np.lexsort((reverse, counts[:, 1], counts[:, 0])).tolist():
        if kept and points[kept[-1]] == points[j]:
            continue  # a rule that is not reversed came first
        while len(kept) > 1 and not _turns_right(points[kept[-2]], points[kept[-1]], points[j]):
            kept.pop()
        kept.append(j)
    return _Rules(counts[kept], threshold[kept], reverse[kept])


def _turns_right(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> bool:
    """Whether the way from a over b to c turns right at b."""
    return (b[0] - a[0]) * (c[1] - a[1]) < (b[1] - a[1]) * (c[0] - a[0])
