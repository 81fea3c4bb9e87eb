"""Promises about rows not yet seen, kept with probability 1 - delta whatever the distribution of the rows.

All rest on held-out rows: independent draws from what comes later, which no model was trained on. Three arguments
save corrections for making several promises at once:

- Intersection-union (Berger, 1982, Technometrics 24). "Every promise holds" is claimed when every single test passes.
  If the claim is false, some promise is broken, and for a false claim that one test, at level delta, must pass. So
  each test has all of delta, however many there are. One threshold for all owners is such a claim: the smallest of
  their `promised_threshold`, each at delta. Thresholds of their own that must be right together are not (the claim
  is made whatever is found): delta / owners each.
- Fixed sequence (Bauer, 1991, Statistics in Medicine 10; Angelopoulos, Bates, Candes, Jordan, Lei, 2021, Learn then
  Test). Models are tested in an order that was fixed before the held-out rows were looked at, from strict to loose,
  until one fails. A false claim needs the first model in this order that breaks its promise to pass: one test.
- The order statistic as a threshold (Tong, Feng, Li, 2018, Science Advances 4, the umbrella algorithm), exact for
  one class's rate: see `misses_allowed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, chdtri

from fedpact.errors import DataError
from fedpact.statistics.exact import check_counts, check_share, lower, upper
from fedpact.types import Vector

#: Pieces into which `gap_holds` divides the unknown rate of a group; a bound on a gap is narrower by 1 / CELLS at most.
CELLS = 2000

# -------------------------------------------------------------------------------------------- thresholds for one rate


def misses_allowed(rows: int, rate: float, delta: float) -> int:
    """The largest k with P(Bin(rows, 1 - rate) <= k) <= delta; -1 when there is none.

    Of a class's held-out scores S_1, ..., S_rows let the threshold be the (k+1)-th smallest, and find all rows that
    score as much or more. It breaks the promise "at least `rate` of the class is found" with that probability at most:

    Let q be the largest score with P(S < q) <= 1 - rate. The promise is broken when P(S < threshold) > 1 - rate, that
    is, when threshold > q: at most k of the held-out scores are q or less. Their number is binomial with probability
    P(S <= q) >= 1 - rate, so it is k or less with probability P(Bin(rows, 1 - rate) <= k) at most; exactly that
    where the distribution is continuous. Ties only help.
    """
    check_share("rate", rate)
    check_share("delta", delta)
    misses = np.arange(rows)
    broken = betainc(rows - misses, misses + 1, rate)  # P(Bin(rows, 1 - rate) <= misses), increasing
    return int(np.searchsorted(broken, delta, side="right")) - 1


def rows_needed(rate: float, delta: float) -> int:
    """The fewest held-out rows of a class for which there is a promise: those with rate^rows <= delta."""
    check_share("rate", rate)
    check_share("delta", delta)
    rows = max(1, math.ceil(math.log(delta) / math.log(rate)) - 1)  # one less, since the quotient is rounded
    while misses_allowed(rows, rate, delta) < 0:
        rows += 1
    return rows


def promised_threshold(scores: ArrayLike, rate: float, delta: float) -> float | None:
    """The largest t such that `score > t` finds at least `rate` of the class, with probability 1 - delta.

    scores: of held-out rows of the class

    None when they are too few (`rows_needed`). The order statistic itself must be found, so t is the number just below
    it, and is for comparisons with scores as they are computed: where t is subtracted from an intercept instead, the
    sum is rounded, and needs a margin.

    Raises:
        DataError: a score that is not finite.
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64).ravel())
    if not np.all(np.isfinite(ordered)):
        raise DataError(
            "a held-out score is missing or infinite; check the model and the columns of these rows", code="FP-DATA-701"
        )
    misses = misses_allowed(len(ordered), rate, delta)
    if misses < 0:
        return None
    return float(np.nextafter(ordered[misses], -np.inf))


# --------------------------------------------------------------------------------------------------- rates and gaps


def rate_holds(hits: ArrayLike, rows: ArrayLike, *, at_least: float = 0.0, at_most: float = 1.0, delta: float) -> bool:
    """Whether held-out rows show, at level delta, that the rate is within these limits.

    Arrays are of several rates (owners, groups), of which all must be: by intersection-union each has all of delta, and
    so have the two limits.
    """
    check_share("delta", delta)
    above = lower(hits, rows, 1 - delta) >= at_least
    below = upper(hits, rows, 1 - delta) <= at_most
    return bool(np.all(above) and np.all(below))


def gap_holds(hits: ArrayLike, rows: ArrayLike, bound: float, delta: float) -> bool:
    """Whether held-out rows show, at level delta, that no two groups' rates differ by more than `bound`.

    hits, rows: by group, of two groups or more; rows of different groups are independent

    By intersection-union each ordered pair (a, b) is tested at delta: is p_a <= p_b + bound? Where it is not, and
    p = p_b were known,

        P(Bin(rows_a, p + bound) <= hits_a)   and   P(Bin(rows_b, p) >= hits_b)

    would be two independent p-values, and Fisher's product of them another: it is below c, where c (1 - log c) = delta,
    with probability delta at most. Since p is not known, the product must be below c for every p. The first p-value
    falls with p and the second rises, so over a cell of p the product is at most that of its ends: checking all cells
    checks all p.

    To ask that the upper bound of a and the lower bound of b at level 1 - delta / 2 are no further apart than `bound`
    is valid, too: there the smaller of the p-values takes the place of the product. It needs twice as many rows (402
    per group where this needs 195, for a bound of 0.1, delta = 0.05 and equal rates of one half), and fewer only where
    the rates are within 0.01 of 0 or 1.

    Raises:
        DataError: fewer than two groups; hits that are not whole numbers between 0 and the rows.
        OptionError: a bound or delta that is not above 0 and below 1.
    """
    check_share("bound", bound)
    check_share("delta", delta)
    found, asked = check_counts(hits, rows)
    if found.ndim != 1 or len(found) < 2:
        raise DataError(f"hits have shape {found.shape}; give those of two groups or more", code="FP-DATA-702")
    return _gap_holds(found, asked, bound, delta)


def rows_needed_for_gap(bound: float, delta: float, rate: float = 0.5) -> int:
    """The fewest rows per group with which two groups that have this very rate pass `gap_holds`, for planning.

    Where `rate` is no whole number of rows, p-values are interpolated: incomplete beta functions for binomial tails.
    """
    check_share("bound", bound)
    check_share("delta", delta)
    check_share("rate", rate)

    def enough(rows: int) -> bool:
        each = np.full(2, float(rows))
        return _gap_holds(rate * each, each, bound, delta)

    most = 1
    while not enough(most):
        most *= 2
    few = most // 2
    while most - few > 1:
        middle = (few + most) // 2
        if enough(middle):
            most = middle
        else:
            few = middle
    return most


def _gap_holds(hits: Vector, rows: Vector, bound: float, delta: float) -> bool:
    edges = np.linspace(0.0, 1 - bound, CELLS + 1)
    as_few = [_at_most(hit, row, edges[:-1] + bound) for hit, row in zip(hits, rows, strict=True)]
    as_many = [_at_least(hit, row, edges[1:]) for hit, row in zip(hits, rows, strict=True)]
    limit = math.exp(-chdtri(4, delta) / 2)  # -2 log of the product has a chi-squared distribution, 4 degrees
    for a, low in enumerate(as_few):
        for b, high in enumerate(as_many):
            if a != b and np.max(low * high) > limit:
                return False
    return True


def _at_most(hits: float, rows: float, p: Vector) -> Vector:
    """P(Bin(rows, p) <= hits)"""
    if hits == rows:
        return np.ones_like(p)
    return np.asarray(betainc(rows - hits, hits + 1, 1 - p))


def _at_least(hits: float, rows: float, p: Vector) -> Vector:
    """P(Bin(rows, p) >= hits)"""
    if hits == 0:
        return np.ones_like(p)
    return np.asarray(betainc(hits, rows - hits + 1, p))


# ------------------------------------------------------------------------------------------------------- sequences


def last_passing(outcomes: Iterable[bool]) -> int:
    """Fixed-sequence testing: the number, from 0, of the last model before the first that fails; -1 when none is.

    outcomes: whether each model passes its test, from strict to loose, in an order that was fixed beforehand. They may
    be tested one by one, as they are asked for: those after the first failure are not.
    """
    last = -1
    for passes in outcomes:
        if not passes:
            break
        last += 1
    return last
