"""Domains, faces, extreme numbers and defects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from raising import raises_code
from scipy.optimize import brentq

from fedpact.prox import L1, Blocks, Box, Custom, ElasticNet, GroupL2, Prox, Simplex, SquaredL2, Zero
from fedpact.prox.group import ball_distance

NAN, INF = np.nan, np.inf


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


OUTSIDE = [
    (Box(0.0, 1.0), vector(0.5, 1.1)),
    (Box(0.0, 1.0), vector(-0.1, 0.5)),
    (Box(0.0, 1.0), vector(0.5, 1 + 2e-12)),
    (Box(-INF, 1e6), vector(0.0, 1e6 + 2e-6)),
    (Box(-INF, INF), vector(0.0, INF)),
    (Box(-INF, INF), vector(0.0, NAN)),
    (Simplex(), vector(0.5, 0.6)),
    (Simplex(), vector(0.5, 0.4)),
    (Simplex(), vector(1.5, -0.5)),
    (Simplex(), vector(1 + 2e-12, -2e-12)),
    (Simplex(), vector(1.0, NAN)),
    (Simplex(1e6), vector(1e6, 2e-6)),
]


@pytest.mark.parametrize(("h", "w"), OUTSIDE)
def test_outside_the_domain(h: Prox, w: np.ndarray) -> None:
    assert h.value(w) == INF
    assert not h.contains(w)
    assert h.subdifferential_distance(np.zeros(2), w) == INF


@pytest.mark.parametrize(
    ("h", "w", "normal"),
    [
        (Box(0.0, 1.0), vector(0.5, 1 + 5e-13), vector(0.0, 3.0)),
        (Box(0.0, 1.0), vector(-5e-13, 0.5), vector(-3.0, 0.0)),
        (Box(-INF, 1e6), vector(0.0, 1e6 + 5e-7), vector(0.0, 3.0)),
        (Simplex(), vector(1 + 5e-13, -5e-13), vector(3.0, -4.0)),
        (Simplex(1e6), vector(1e6, 5e-7), vector(3.0, 3.0)),
    ],
)
def test_rounding_counts_as_the_face(h: Prox, w: np.ndarray, normal: np.ndarray) -> None:
    assert h.value(w) == 0.0
    assert h.subdifferential_distance(normal, w) == 0.0


def test_a_point_just_inside_is_not_on_the_face() -> None:
    assert Box(0.0, 1.0).subdifferential_distance(vector(3.0), vector(1 - 1e-13)) == 3.0
    assert Simplex().subdifferential_distance(vector(3.0, -4.0), vector(1 - 1e-13, 1e-13)) == 3.5


def test_prox_lands_exactly_on_faces() -> None:
    np.testing.assert_array_equal(Box([0.0, -1.0], [1.0, 0.1]).prox(vector(-3.0, 7.0), 1.0), [0.0, 0.1])
    np.testing.assert_array_equal(Simplex().prox(vector(5.0, 0.0, 4.5), 1.0), [0.75, 0.0, 0.25])
    np.testing.assert_array_equal(L1(1.0).prox(vector(0.9, -1.0, 1.5), 1.0), [0.0, 0.0, 0.5])
    np.testing.assert_array_equal(GroupL2([[0, 1]], 5.0).prox(vector(3.0, 4.0, 9.0), 1.0), [0.0, 0.0, 9.0])
    np.testing.assert_allclose(GroupL2([[0, 1]], 1.0).prox(vector(3.0, 4.0, 9.0), 1.0), [2.4, 3.2, 9.0], rtol=1e-15)


@pytest.mark.parametrize("shift", [0.0, 1e8, -1e12])
def test_simplex_far_away_keeps_its_digits(shift: float) -> None:
    # Adding a constant does not change the projection; steps of 1/8 survive the shift exactly.
    v = vector(0.25, 0.125, 0.0, -5.0) + shift
    w = Simplex().prox(v, 1.0)
    np.testing.assert_allclose(w, [1 / 3 + 0.125, 1 / 3, 1 / 3 - 0.125, 0.0], rtol=1e-15)
    assert Simplex().contains(w)


def test_simplex_with_many_entries_stays_in_its_domain() -> None:
    v = np.full(100_000, -0.7e-5)
    v[0] = 0.0
    w = Simplex().prox(v, 1.0)
    assert Simplex().contains(w)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    v=hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e3, 1e3, allow_subnormal=False)),
    radius=st.floats(1e-6, 1e3),
)
def test_ball_distance_is_the_root_of_its_equation(v: np.ndarray, radius: float) -> None:
    def excess(delta: float) -> float:
        return float(np.linalg.norm(np.maximum(np.abs(v) - delta, 0.0))) - radius

    expected = brentq(excess, 0.0, np.max(np.abs(v)), xtol=1e-13) if excess(0.0) > 0 else 0.0
    assert ball_distance(v, radius) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_ball_distance_by_hand() -> None:
    # Both entries move by delta: 2 (3 - delta)^2 = 2.
    assert ball_distance(vector(3.0, -3.0), np.sqrt(2.0)) == pytest.approx(2.0, rel=1e-15)
    # Only the first moves: 5 - delta = 1, and 0.5 is within delta = 4 of zero.
    assert ball_distance(vector(5.0, 0.5), 1.0) == 4.0
    assert ball_distance(vector(0.6, 0.8), 1.0) == 0.0
    assert ball_distance(vector(0.6, -0.8), 0.0) == 0.8
    # The ball is tiny against v: nothing may cancel.
    assert ball_distance(vector(1e8, 1e8), np.sqrt(2.0)) == 1e8 - 1


def test_a_tiny_group_has_a_direction() -> None:
    h = GroupL2([[0, 1]], 2.0)
    assert h.subdifferential_distance(vector(-1.2, -1.6), vector(3e-200, 4e-200)) == pytest.approx(3.2, rel=1e-14)
    assert h.value(vector(3e-200, 4e-200)) == pytest.approx(1e-199, rel=1e-14, abs=0)


@pytest.mark.parametrize(
    "h", [Zero(), L1(1.0), SquaredL2(1.0), ElasticNet(1.0, 1.0), GroupL2([[0, 1]], 1.0), Box(0.0, 1.0), Simplex()]
)
def test_nan_is_not_mistaken_for_a_subgradient(h: Prox) -> None:
    w = h.prox(np.zeros(2), 1.0)
    assert np.isnan(h.subdifferential_distance(vector(NAN, -1.0), w))


def test_weights_are_copied() -> None:
    weight = vector(1.0, 2.0)
    h = L1(weight)
    weight[:] = 0.0
    assert h.value(np.ones(2)) == 3.0


def test_curvature() -> None:
    assert Zero().curvature == 0.0
    assert SquaredL2(3).curvature == 3.0
    np.testing.assert_array_equal(SquaredL2([1.0, 2.0]).curvature, [1.0, 2.0])
    assert L1(0.0).curvature is None
    assert Box(0, 1).curvature is None


def test_custom() -> None:
    h = Custom(lambda w: 0 if w[0] >= 0 else INF, lambda v, step: [max(v[0], 0)], lambda v, w: 0, indicator=True)
    assert h.indicator
    assert h.contains(vector(1.0))
    assert not h.contains(vector(-1.0))
    assert h.prox(vector(-2.0), 1.0).dtype == np.float64
    with raises_code("FP-PROBLEM-187", "Custom: prox returned shape (1,)", "(2,)"):
        h.prox(np.ones(2), 1.0)


def test_a_custom_prox_that_is_not_finite_is_refused() -> None:
    h = Custom(lambda w: 0.0, lambda v, step: v + NAN, lambda v, w: NAN)
    with raises_code("FP-PROBLEM-188"):
        h.prox(np.ones(2), 1.0)
    with raises_code("FP-PROBLEM-189"):
        h.subdifferential_distance(np.ones(2), np.ones(2))


LENGTH = "has 3 entries; expected one number or 2 entries, one for each coordinate"
DEFECTS = [
    (L1([1.0, 2.0, 3.0]), f"L1: weight {LENGTH}"),
    (L1(-1.0), "L1: weight is -1; it must be finite and at least 0"),
    (L1([1.0, NAN]), "L1: weight is nan at position 1; it must be finite and at least 0"),
    (L1(INF), "L1: weight is inf; it must be finite and at least 0"),
    (SquaredL2([1.0, 2.0, 3.0]), f"SquaredL2: weight {LENGTH}"),
    (SquaredL2([1.0, -2.0]), "SquaredL2: weight is -2 at position 1; it must be finite and at least 0"),
    (ElasticNet(-1.0, 1.0), "ElasticNet: l1 is -1; it must be finite and at least 0"),
    (ElasticNet(1.0, -1.0), "ElasticNet: l2 is -1; it must be finite and at least 0"),
    (ElasticNet(1.0, [1.0, 2.0, 3.0]), f"ElasticNet: l2 {LENGTH}"),
    (GroupL2([[0], [1]], [1.0]), "GroupL2: weight has 1 entries; expected one number or 2 entries, one for each group"),
    (GroupL2([[0], [1]], -1.0), "GroupL2: weight is -1; it must be finite and at least 0"),
    (GroupL2([[0], [2]], 1.0), "GroupL2: group 1 has index 2; indices go from 0 to 1"),
    (GroupL2([[0], [-1]], 1.0), "GroupL2: group 1 has index -1; indices go from 0 to 1"),
    (GroupL2([[0], [1, 0]], 1.0), "GroupL2: index 0 is in groups 0 and 1; groups must be disjoint"),
    (GroupL2([[0, 0]], 1.0), "GroupL2: group 0 names an index twice; name each once"),
    (GroupL2([[0], []], 1.0), "GroupL2: group 1 is empty; leave it out"),
    (Box([0.0] * 3, 1.0), f"Box: lo {LENGTH}"),
    (Box(0.0, [1.0] * 3), f"Box: hi {LENGTH}"),
    (Box([0.0, 2.0], 1.0), "Box: no number lies between lo = 2 and hi = 1 at position 1; raise hi or lower lo"),
    (Box(NAN, 1.0), "Box: no number lies between lo = nan and hi = 1 at position 0; raise hi or lower lo"),
    (Box(INF, INF), "Box: no number lies between lo = inf and hi = inf at position 0; raise hi or lower lo"),
    (Box(-INF, -INF), "Box: no number lies between lo = -inf and hi = -inf at position 0; raise hi or lower lo"),
    (Simplex(0.0), "Simplex: total is 0; it must be positive and finite"),
    (Simplex(NAN), "Simplex: total is nan; it must be positive and finite"),
]


@pytest.mark.parametrize(("h", "sentence"), DEFECTS)
def test_defect_tells(h: Prox, sentence: str) -> None:
    assert h.defect(2) == sentence


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: L1(np.eye(2)), "FP-PROBLEM-191", ["L1: weight ", "(2, 2)"]),
        (lambda: SquaredL2("x"), "FP-PROBLEM-190", ["SquaredL2: weight "]),
        (lambda: ElasticNet(1.0, None), "FP-PROBLEM-190", ["ElasticNet: l2 "]),
        (lambda: Box(1j, 2), "FP-PROBLEM-190", ["Box: lo "]),
        (lambda: Simplex("one"), "FP-PROBLEM-190", ["Simplex: total "]),
        (lambda: Simplex([1.0, 2.0]), "FP-PROBLEM-192", ["Simplex: total ", "2 entries"]),
        (lambda: GroupL2([[0], [0.5]], 1.0), "FP-PROBLEM-193", ["GroupL2: group 1 ", "float64"]),
        (lambda: GroupL2([[True, False]], 1.0), "FP-PROBLEM-193", ["GroupL2: group 0 ", "bool"]),
        (lambda: GroupL2([0, 1], 1.0), "FP-PROBLEM-193", ["GroupL2: group 0 ", "shape ()"]),
        (lambda: Blocks(L1(1.0), 0.1, 1), "FP-PROBLEM-185", ["Blocks: the second part", "float"]),
    ],
)
def test_constructors_refuse(make: object, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()
