"""Sums and multiples."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raising import raises_code

from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SmoothMap, Stack, as_map, extend

f = Quadratic([[2.0, 1.0], [1.0, -3.0]], [1.0, 0.5])
g = Quadratic([[0.0, 2.0], [2.0, 1.0]])
h = LogisticLoss([[1.0, 2.0], [0.5, -1.0]], [0, 1])
c = Affine([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0])
e = Stack([f, h])
W = np.array([0.7, -1.3])
V = np.array([1.0, -2.0])

FUNCTIONS = {
    "f + g": (f + g, lambda f, g, h: f + g),
    "f - g": (f - g, lambda f, g, h: f - g),
    "-f": (-f, lambda f, g, h: -f),
    "0.5 f": (0.5 * f, lambda f, g, h: 0.5 * f),
    "f 0.5": (f * 0.5, lambda f, g, h: 0.5 * f),
    "f / 4": (f / 4, lambda f, g, h: 0.25 * f),
    "np 2 f": (np.float64(2) * f, lambda f, g, h: 2 * f),
    "f np int": (f * np.int64(3), lambda f, g, h: 3 * f),
    "f - 0.2": (f - 0.2, lambda f, g, h: f - 0.2),
    "f + 1": (f + 1, lambda f, g, h: f + 1),
    "1 + f": (1 + f, lambda f, g, h: f + 1),
    "np 1 + f": (np.float32(1) + f, lambda f, g, h: f + 1),
    "0-d array": (np.array(2.0) * f - np.array(1.0), lambda f, g, h: 2 * f - 1),
    "0.3 - f": (0.3 - f, lambda f, g, h: 0.3 - f),
    "np 0.3 - f": (np.float64(0.3) - f, lambda f, g, h: 0.3 - f),
    "sum": (sum([f, g, h]), lambda f, g, h: f + g + h),
    "nested": (2 * (f - 3 * (g + 1) - (h - 0.5)) + 4, lambda f, g, h: 2 * (f - 3 * (g + 1) - (h - 0.5)) + 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    combined, formula = FUNCTIONS[name]
    parts = (f, g, h)
    assert combined.value(W) == pytest.approx(formula(*(part.value(W) for part in parts)), rel=1e-13)
    # Derivatives do not see the constants: take the formula's value at zero away.
    constant = formula(0.0, 0.0, 0.0)
    for derivative in (lambda p: p.gradient(W), lambda p: p.hessian(W), lambda p: p.hessian_product(W, V)):
        expected = formula(*(derivative(part) for part in parts)) - constant
        np.testing.assert_allclose(derivative(combined), expected, rtol=1e-12, atol=1e-13)


MAPS = {
    "c + e": (c + e, lambda c, e: c + e),
    "c - e": (c - e, lambda c, e: c - e),
    "2 c": (2 * c, lambda c, e: 2 * c),
    "np 2 c": (np.float64(2) * c, lambda c, e: 2 * c),
    "c / 2": (c / 2, lambda c, e: c / 2),
    "-c": (-c, lambda c, e: -c),
    "c - 1": (c - 1, lambda c, e: c - 1),
    "c - vector": (c - V, lambda c, e: c - V),
    "c - list": (c - [1.0, -2.0], lambda c, e: c - V),
    "vector - c": (V - c, lambda c, e: V - c),
    "vector + c": (V + c, lambda c, e: V + c),
    "list + c": (operator.add([1.0, -2.0], c), lambda c, e: V + c),
    "sum": (sum([c, e]), lambda c, e: c + e),
    "nested": (2 * (c - 3 * (e + V)) + 4, lambda c, e: 2 * (c - 3 * (e + V)) + 4),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str) -> None:
    combined, formula = MAPS[name]
    np.testing.assert_allclose(combined.value(W), formula(c.value(W), e.value(W)), rtol=1e-13)
    np.testing.assert_allclose(combined.value_and_jacobian(W)[0], combined.value(W), rtol=1e-14)
    constant = formula(np.zeros(2), np.zeros(2))[:, None]
    expected = formula_rows(formula, c.jacobian(W), e.jacobian(W)) - constant
    np.testing.assert_allclose(combined.jacobian(W), expected, rtol=1e-12, atol=1e-13)


def formula_rows(formula: object, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The formula applied to each column, so that vectors of constants fit."""
    return np.stack([formula(a, b) for a, b in zip(first.T, second.T, strict=True)], axis=1)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.tuples(st.floats(-9, 9), st.sampled_from([f, g, h]), st.floats(-9, 9)), min_size=1, max_size=6))
def test_any_order_of_nesting_gives_the_same(terms: list[tuple[float, object, float]]) -> None:
    total = terms[0][0] * terms[0][1] + terms[0][2]
    expected = terms[0][0] * terms[0][1].value(W) + terms[0][2]
    for factor, part, constant in terms[1:]:
        total = factor * (total - part) + constant
        expected = factor * (expected - part.value(W)) + constant
    size = 1 + sum(abs(factor) for factor, _, _ in total_parts(total)) + abs(total.constant)
    assert total.value(W) == pytest.approx(expected, abs=1e-12 * size)
    assert len(total.terms) == len(terms)
    assert not any(hasattr(part, "terms") for _, part in total.terms)


def total_parts(total: object) -> list[tuple[float, object, None]]:
    return [(factor * max(1.0, abs(part.value(W))), part, None) for factor, part in total.terms]


def test_flags_travel() -> None:
    assert (f - 2 * g).constant_hessian
    assert not (f + h).constant_hessian
    assert (f + h).has_hessian
    assert not (f + Smooth(lambda w: (0.0, w))).has_hessian
    assert (c + 2 * c).affine
    assert not (c + e).affine
    assert Stack([c, 2 * c - 1]).affine
    assert not Stack([c, f]).affine
    assert extend(c, 5).affine
    assert extend(f, 5).constant_hessian
    assert not Stack([c, SmoothMap(lambda w: (w, np.eye(2)))]).has_hessian


def test_shapes_travel() -> None:
    unknown = SmoothMap(lambda w: (w, np.eye(2)))
    assert (Smooth(lambda w: (0.0, w)) + f).dim == 2
    assert (unknown + c).length == 2
    assert (unknown + V).length == 2
    assert (unknown + 1.0).length is None
    assert Stack([unknown, c]).length is None
    assert Stack([f, c]).length == 3
    assert (extend(c, 5).length, extend(c, 5).dim) == (2, 5)


def test_a_stack_asks_maps_of_unknown_length() -> None:
    unknown = SmoothMap(lambda w: (w**2, np.diag(2 * w)), lambda w, weights: 2 * np.diag(weights))
    stack = Stack([f, unknown, h])
    weights = np.array([2.0, 3.0, 5.0, 7.0])
    expected = 2 * f.hessian(W) + np.diag([6.0, 10.0]) + 7 * h.hessian(W)
    np.testing.assert_allclose(stack.weighted_hessian(W, weights), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("first", "second", "code", "found"),
    [
        (f, Quadratic(np.eye(3)), "FP-PROBLEM-161", "Quadratic(dim=2), Quadratic(dim=3)"),
        (c, Affine(np.eye(3)[:2]), "FP-PROBLEM-161", "Affine(length=2, dim=2), Affine(length=2, dim=3)"),
        (c, Affine(np.eye(2)[:1]), "FP-PROBLEM-162", "[1, 2]"),
        (c, np.ones(3), "FP-PROBLEM-162", "[2, 3]"),
        (c + V, as_map(f) + np.ones(1), "FP-PROBLEM-162", "[1, 2]"),
    ],
)
def test_what_does_not_fit_is_refused(first: object, second: object, code: str, found: str) -> None:
    with raises_code(code, "", found):
        first + second


def test_lengths_that_only_a_call_can_tell_are_checked_then() -> None:
    late = SmoothMap(lambda w: ([w[0]], [[1.0, 0.0]])) + V
    with raises_code("FP-PROBLEM-162", "", "[1, 2]"):
        late.value(W)


@pytest.mark.parametrize(
    ("act", "left", "right", "message"),
    [
        (operator.add, f, "x", r"only a Function or a number can be added to Quadratic\(dim=2\), not str"),
        (operator.add, f, c, "not Affine"),
        (operator.add, c, f, r"only a Map, a vector or a number can be added to Affine\(.*\), not Quadratic"),
        (operator.sub, f, c, "not MapSum"),
        (operator.mul, f, g, "only a number can multiply .* not Quadratic"),
        (operator.mul, c, V, "only a number can multiply .* not ndarray"),
        (operator.add, f, V, "not ndarray"),
        (operator.add, V, f, "not ndarray"),
        (operator.add, c, np.eye(2), "not ndarray"),
        (operator.add, c, "x", "not str"),
        (operator.add, f, 1j, "not complex"),
    ],
)
def test_nonsense_is_a_type_error(act: object, left: object, right: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        act(left, right)
