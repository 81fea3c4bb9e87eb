"""Equalized odds: against the vertices of intersected polygons in exact fractions, against fairlearn, and misuse."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.postprocess import DerivedPredictor, equalized_odds
from fedpact_experiments.datasets import vertical_compas

Point = tuple[Fraction, Fraction]
CONSTRAINTS = ("equalized_odds", "true_positive_rate")


# ------------------------------------------------------------------------------------------ geometry, without a program


def roc(y: np.ndarray, scores: np.ndarray) -> list[Point]:
    """(false, true positive rate) of every threshold and of its reverse."""
    points = set()
    for threshold in [*np.unique(scores), np.inf]:
        said = scores >= threshold
        for rule in (said, ~said):
            points.add(tuple(Fraction(int(rule[y == c].sum()), int((y == c).sum())) for c in (0, 1)))
    return sorted(points)  # type: ignore[arg-type]


def side(a: Point, b: Point, c: Point) -> Fraction:
    """Positive where c is on the left of the way from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def edges(points: list[Point]) -> list[tuple[Point, Point]]:
    """Ordered pairs that have all other points on their left, or on them."""
    return [(a, b) for a, b in itertools.permutations(points, 2) if all(side(a, b, c) >= 0 for c in points)]


def crossing(a: Point, b: Point, c: Point, d: Point) -> list[Point]:
    """Where the lines a-b and c-d meet."""
    slope = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
    if slope == 0:
        return []
    t = ((c[0] - a[0]) * (d[1] - c[1]) - (c[1] - a[1]) * (d[0] - c[0])) / slope
    return [(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]))]


def leftmost(points: list[Point], height: Fraction) -> Fraction:
    """The lowest false positive rate in the hull at this true positive rate: on a segment of two points."""
    found = [p[0] for p in points if p[1] == height]
    for a, b in itertools.combinations(points, 2):
        if (a[1] - height) * (b[1] - height) < 0:
            found.append(a[0] + (height - a[1]) / (b[1] - a[1]) * (b[0] - a[0]))
    return min(found)


def brute_force(y: np.ndarray, scores: np.ndarray, group: np.ndarray, constraint: str, cost: tuple[int, int]) -> float:
    groups = [group == g for g in np.unique(group)]
    hulls = [roc(y[g], scores[g]) for g in groups]
    sizes = [[int(np.sum(y[g] == c)) for c in (0, 1)] for g in groups]

    def loss(points: list[Point]) -> Fraction:
        each = zip(sizes, points, strict=True)
        return sum(cost[0] * n * p[0] + cost[1] * m * (1 - p[1]) for (n, m), p in each) / Fraction(len(y))

    if constraint == "true_positive_rate":  # convex and piecewise linear in the common rate, with kinks at ROC points
        heights = {p[1] for hull in hulls for p in hull}
        return float(min(loss([(leftmost(hull, t), t) for hull in hulls]) for t in heights))
    sides = [edges(hull) for hull in hulls]
    candidates = {p for hull in hulls for p in hull}
    for first, second in itertools.combinations(sides, 2):
        candidates.update(p for e, f in itertools.product(first, second) for p in crossing(*e, *f))
    common = [
        p for p in candidates if 0 <= p[0] <= 1 and all(side(a, b, p) >= 0 for polygon in sides for a, b in polygon)
    ]
    return float(min(loss([p] * len(hulls)) for p in common))


# ---------------------------------------------------------------------------------------------------------------- tests


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups, rows = int(rng.integers(2, 4)), int(rng.integers(20, 40))
    group = np.concatenate([np.repeat(np.arange(groups), 2), rng.integers(0, groups, rows)])
    y = np.concatenate([np.tile([0, 1], groups), rng.integers(0, 2, rows)])
    levels = 2 if seed % 4 == 0 else int(rng.integers(3, 7))  # every fourth is a binary prediction
    skill = rng.uniform(-0.3, 1.0, groups)[group]  # a group may be worse than chance
    scores = np.clip(np.floor((skill * (y - 0.5) + rng.random(len(y))) * levels), 0, levels - 1)
    return y, scores, group


def expected(predictor: DerivedPredictor, y: Any, scores: Any, group: Any, cost: tuple[float, float]) -> float:
    """The expected cost of a row, from the probabilities alone."""
    probability = predictor.predict_proba(scores, group)
    return float(np.mean(np.where(np.asarray(y) == 0, cost[0] * probability, cost[1] * (1 - probability))))


def assert_equal_rates(
    predictor: DerivedPredictor, y: Any, scores: Any, group: Any, constraint: str, atol: float = 1e-12
) -> None:
    probability = predictor.predict_proba(scores, group)
    for c in (0, 1):
        rates = [probability[(group == g) & (y == c)].mean() for g in np.unique(group)]
        np.testing.assert_allclose(rates, [predictor.rates[g][c] for g in np.unique(group).tolist()], atol=atol)
        if c == 1 or constraint == "equalized_odds":
            np.testing.assert_allclose(rates, rates[0], atol=atol)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("seed", range(100))
def test_the_optimum_is_that_of_the_polygons(seed: int, constraint: Any) -> None:
    y, scores, group = random_case(seed)
    cost = ((1, 1), (1, 3), (2, 1), (0, 1))[seed % 7 % 4]
    predictor = equalized_odds(y, scores, group, constraint=constraint, cost=cost)
    assert predictor.loss == pytest.approx(brute_force(y, scores, group, constraint, cost), abs=1e-6)
    assert predictor.loss == pytest.approx(expected(predictor, y, scores, group, cost), abs=1e-12)
    assert_equal_rates(predictor, y, scores, group, constraint)


def test_binary_predictions_by_hand() -> None:
    """Rates (0, 1) in group a, (1/2, 1/2) in b: b knows nothing, so both must have equal rates, at the least cost."""
    y = np.tile([0, 0, 1, 1], 2)
    predictions = np.array([0, 0, 1, 1, 0, 1, 0, 1])
    group = np.repeat(["a", "b"], 4)
    predictor = equalized_odds(y, predictions, group)
    assert predictor.loss == pytest.approx(0.5)
    rates = predictor.rates["a"]
    assert rates.false_positive == pytest.approx(rates.true_positive)
    opportunity = equalized_odds(y, predictions, group, constraint="true_positive_rate", cost=(1, 4))
    assert opportunity.rates["b"] == pytest.approx((1, 1))  # missing a positive costs most, so b predicts 1 always
    assert opportunity.rates["a"] == pytest.approx((0, 1))
    assert opportunity.loss == pytest.approx(2 / 8)


def test_a_predictor_that_is_always_wrong_is_turned_round() -> None:
    y = np.tile([0, 1], 4)
    group = np.repeat([0, 1], 4)
    predictor = equalized_odds(y, np.where(group == 0, y, 1 - y), group)
    assert predictor.loss == 0
    np.testing.assert_array_equal(predictor.predict_proba([0, 1, 0, 1], [0, 0, 1, 1]), [0, 1, 1, 0])


def test_predictions_are_drawn_by_seed() -> None:
    y, scores, group = random_case(3)
    predictor = equalized_odds(y, scores, group)
    probability = predictor.predict_proba(scores, group)
    assert np.any((probability > 0) & (probability < 1))
    draws = np.array([predictor.predict(scores, group, seed) for seed in range(4000)])
    np.testing.assert_array_equal(draws[7], predictor.predict(scores, group, seed=7))
    np.testing.assert_allclose(draws.mean(axis=0), probability, atol=5 * 0.5 / np.sqrt(4000))
    certain = (probability == 0) | (probability == 1)
    np.testing.assert_array_equal(draws[:, certain].std(axis=0), 0)


def large_case(seed: int, groups: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, 600)
    y = (rng.random(600) < 0.3 + 0.3 * group / groups).astype(np.int64)
    return y, np.round(y * (0.6 + 0.5 * group) + rng.normal(size=600), 2), group


@pytest.mark.parametrize("constraint", ["equalized_odds", "true_positive_rate_parity"])
@pytest.mark.parametrize("groups", [2, 3])
def test_no_worse_than_fairlearn_and_equal_up_to_its_grid(groups: int, constraint: str) -> None:
    reason = "fairlearn, which this compares with, is absent: pip install fairlearn"
    postprocessing = pytest.importorskip("fairlearn.postprocessing", reason=reason)
    from sklearn.base import BaseEstimator, ClassifierMixin

    class GivenScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> GivenScores:
            self.classes_ = np.array([0, 1])
            self.fitted_ = True
            return self

        def predict(self, X: Any) -> Any:
            return np.asarray(X)[:, 0]

    ours: Any = constraint.removesuffix("_parity")
    for seed in range(5):
        y, scores, group = large_case(seed, groups)
        X = scores[:, None]
        theirs = postprocessing.ThresholdOptimizer(
            estimator=GivenScores().fit(X, y),
            constraints=constraint,
            objective="accuracy_score",
            prefit=True,
            predict_method="predict",
            grid_size=2000,
        ).fit(X, y, sensitive_features=group)
        chance = theirs._pmf_predict(X, sensitive_features=group)[:, 1]
        loss = float(np.mean(np.where(y == 0, chance, 1 - chance)))
        predictor = equalized_odds(y, scores, group, constraint=ours)
        assert_equal_rates(predictor, y, scores, group, ours)
        assert predictor.loss <= loss + 1e-9
        assert predictor.loss == pytest.approx(loss, abs=2e-3)


def test_thousands_of_scores_of_a_real_table(data_folder: Path) -> None:
    table = vertical_compas(data_folder)
    scores = table.X @ np.random.default_rng(0).normal(size=table.X.shape[1])
    for constraint in CONSTRAINTS:
        predictor = equalized_odds(table.y, scores, table.group, constraint=constraint)  # type: ignore[arg-type]
        assert_equal_rates(predictor, table.y, scores, table.group, constraint, atol=1e-10)
        assert predictor.loss <= min(table.y.mean(), 1 - table.y.mean())  # never and always are feasible
        assert all(len(mixture.weight) <= 3 for mixture in predictor.mixtures.values())


# --------------------------------------------------------------------------------------------------------------- misuse

Y, SCORES, GROUP = [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8], ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("changed", "code", "facts"),
    [
        ({"y": [0, 0, 0, 1]}, "FP-DATA-429", ["group 'a'", "2 rows", "y = 1", "true positive"]),
        ({"y": [0, 1, 1, 1]}, "FP-DATA-429", ["group 'b'", "2 rows", "y = 0", "false positive"]),
        ({"y": [0, 1, 0, 2]}, "FP-DATA-427", ["y is 2 in row 3"]),
        ({"y": [0, 1, 0]}, "FP-DATA-421", ["y ", "(3,)", "4 rows"]),
        ({"scores": [0.1, np.nan, 0.2, np.inf]}, "FP-DATA-426", ["scores have 2", "row 1"]),
        ({"scores": [0.1, 0.2]}, "FP-DATA-421", ["scores ", "(2,)", "4 rows"]),
        ({"scores": ["a", "b", "c", "d"]}, "FP-DATA-425", ["scores "]),
        ({"group": ["a"] * 4}, "FP-DATA-428", ["", "'a'"]),
        ({"group": [0.0, 0.0, np.nan, 1.0]}, "FP-DATA-422", ["group ", "1 rows", "row 2"]),
        ({"group": np.array(["a", "a", None, "b"], dtype=object)}, "FP-DATA-422", ["group ", "1 rows", "row 2"]),
        ({"group": np.array(["a", "a", 1, 1], dtype=object)}, "FP-DATA-423", ["group "]),
        ({"group": [["a", "a", "b", "b"]]}, "FP-DATA-421", ["group ", "(1, 4)"]),
        ({"group": [["a"], ["a", "b"], ["b"]]}, "FP-DATA-420", ["group "]),
    ],
)
def test_bad_rows_are_named(changed: dict[str, Any], code: str, facts: list[str]) -> None:
    given = {"y": Y, "scores": SCORES, "group": GROUP} | changed
    with raises_code(code, *facts):
        equalized_odds(**given)


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({"constraint": "parity"}, "FP-OPTION-436", "'parity'"),
        ({"cost": (-1, 1)}, "FP-OPTION-430", "false positive is -1"),
        ({"cost": (1, np.nan)}, "FP-OPTION-430", "false negative is nan"),
        ({"cost": (0, 0)}, "FP-OPTION-431", "0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], code: str, fact: str) -> None:
    with raises_code(code, "", fact):
        equalized_odds(Y, SCORES, GROUP, **options)


def test_an_unknown_group_is_named_at_prediction() -> None:
    predictor = equalized_odds(Y, SCORES, GROUP)
    with raises_code("FP-DATA-424", "group 'c' (row 1)", "'a', 'b'"):
        predictor.predict_proba([0.5, 0.5], ["a", "c"])
    with raises_code("FP-DATA-421", "scores ", "(1,)", "2 rows"):
        predictor.predict([0.5], ["a", "b"], seed=0)
    assert predictor.predict_proba([0.95], ["b"]).tolist() == [1.0]  # a group may be absent
