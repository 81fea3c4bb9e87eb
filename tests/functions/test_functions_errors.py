"""Constructors refuse what has no meaning; `defect` says what is wrong with the values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from raising import raises_code

from fedpact.functions import (
    Affine,
    HuberLoss,
    Linear,
    LogisticLoss,
    PoissonLoss,
    Quadratic,
    Saddle,
    Smooth,
    SmoothMap,
    SoftmaxLoss,
    SquaredLoss,
    Stack,
    TwoSided,
    as_map,
    extend,
)

NAN, INF = np.nan, np.inf
EYE = np.eye(2)
# Rows 1 and 3 hold NaN; stored zeros and empty rows must not shift the place.
HOLES = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, NAN], [0.0, 0.0, 0.0], [INF, 1.0, NAN]])
f = Quadratic(EYE)

MEANINGLESS = [
    (lambda: Quadratic(np.ones((2, 3))), "FP-PROBLEM-152", ["Quadratic: A ", "(2, 3)"]),
    (lambda: Quadratic(np.ones(3)), "FP-PROBLEM-151", ["Quadratic: A ", "(3,)"]),
    (lambda: Quadratic([[1.0, 2.0], [3.0, 1.0]]), "FP-PROBLEM-155", ["Quadratic: A ", "up to 1)"]),
    (lambda: Quadratic(sp.csr_array([[1.0, 2.0], [3.0, 1.0]])), "FP-PROBLEM-155", ["Quadratic: A ", "up to 1)"]),
    (lambda: Quadratic(EYE, [1.0]), "FP-PROBLEM-153", ["Quadratic: b has shape (1,); expected (2,)"]),
    (lambda: Quadratic([["a"]]), "FP-PROBLEM-150", ["Quadratic: A ", "<U1"]),
    (lambda: Quadratic([[1.0], [1.0, 2.0]]), "FP-PROBLEM-150", ["Quadratic: A "]),
    (lambda: Linear(np.ones((2, 3))), "FP-PROBLEM-152", ["Linear: M ", "(2, 3)"]),
    (lambda: Linear(EYE, [1.0]), "FP-PROBLEM-153", ["Linear: q has shape (1,); expected (2,)"]),
    (lambda: Linear(EYE) + f, "FP-PROBLEM-159", []),
    (lambda: f - Linear(EYE), "FP-PROBLEM-159", []),
    (lambda: -Linear(EYE) / 2, "FP-PROBLEM-159", []),
    (lambda: as_map(Linear(EYE)), "FP-PROBLEM-165", ["Linear(dim=2)"]),
    (lambda: Saddle(lambda u, v: (0.0, u, v), 3, dim=2), "FP-PROBLEM-156", ["Saddle: split = 3", "at most 2"]),
    (lambda: Affine([1.0, 2.0]), "FP-PROBLEM-151", ["Affine: C ", "(2,)"]),
    (lambda: Affine(EYE, [1.0]), "FP-PROBLEM-153", ["Affine: d has shape (1,); expected (2,)"]),
    (lambda: Affine(EYE) + np.array(["x"]), "FP-PROBLEM-150", ["the constant beside Affine(length=2, dim=2)", "<U1"]),
    (lambda: LogisticLoss([1.0], [1]), "FP-PROBLEM-151", ["LogisticLoss: X "]),
    (lambda: LogisticLoss(EYE * 1j, [0, 1]), "FP-PROBLEM-150", ["LogisticLoss: X ", "complex128"]),
    (lambda: LogisticLoss(sp.csr_array(EYE * 1j), [0, 1]), "FP-PROBLEM-150", ["LogisticLoss: X ", "complex128"]),
    (lambda: LogisticLoss(EYE, [1]), "FP-PROBLEM-153", ["LogisticLoss: y has shape (1,); expected (2,)"]),
    (lambda: LogisticLoss(EYE, [[0], [1]]), "FP-PROBLEM-153", ["LogisticLoss: y has shape (2, 1); expected (2,)"]),
    (lambda: LogisticLoss(EYE, ["no", "yes"]), "FP-PROBLEM-150", ["LogisticLoss: y ", "<U3"]),
    (lambda: LogisticLoss(EYE, [0, 1], [1.0]), "FP-PROBLEM-153", ["LogisticLoss: weight has shape (1,)", "(2,)"]),
    (lambda: SoftmaxLoss(EYE, [0, 1], 1), "FP-PROBLEM-154", ["SoftmaxLoss: classes is 1;", "at least 2"]),
    (lambda: SoftmaxLoss(EYE, [0, 1], 2.5), "FP-PROBLEM-154", ["SoftmaxLoss: classes is 2.5"]),
    (lambda: SoftmaxLoss(EYE, [0], 2), "FP-PROBLEM-153", ["SoftmaxLoss: y has shape (1,)"]),
    (lambda: PoissonLoss(EYE, [0, 1], offset=[1.0]), "FP-PROBLEM-153", ["PoissonLoss: offset has shape (1,)", "(2,)"]),
    (lambda: as_map("x"), "FP-PROBLEM-166", ["", "got str"]),
    (lambda: Stack([]), "FP-PROBLEM-169", []),
    (lambda: Stack([f, lambda w: w]), "FP-PROBLEM-166", ["", "got function"]),
    (lambda: Stack([f, Quadratic(np.eye(3))]), "FP-PROBLEM-161", ["", "dim=2", "dim=3"]),
    (lambda: TwoSided(f, 1.0, 0.5), "FP-PROBLEM-168", ["TwoSided: lower = 1 ", "upper = 0.5"]),
    (lambda: TwoSided(Affine(EYE), 0.0, 1.0), "FP-PROBLEM-167", ["TwoSided: ", "got Affine"]),
    (lambda: extend(f, 1), "FP-PROBLEM-164", ["extend: coordinates [0, 2) of Quadratic(dim=2)", "dim = 1"]),
    (lambda: extend(f, 4, start=3), "FP-PROBLEM-164", ["extend: coordinates [3, 5)", "dim = 4"]),
    (lambda: extend(f, 4, start=-1), "FP-PROBLEM-164", []),
    (lambda: extend(Smooth(lambda w: (0.0, w)), 4), "FP-PROBLEM-163", ["extend: ", "pass inner_dim"]),
    (lambda: extend(Affine(EYE), 4, inner_dim=3), "FP-PROBLEM-163", ["extend: ", "inner_dim = 3"]),
]


@pytest.mark.parametrize(("make", "code", "facts"), MEANINGLESS)
def test_constructors_refuse(make: object, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()


PLACE = "3 NaN or infinite values, first at row 1, column 2; impute or remove such values"
UNUSABLE = [
    (Quadratic([[1.0, NAN], [NAN, 1.0]]), "A has 2 NaN or infinite values, first at row 0, column 1"),
    (Quadratic(sp.csr_array([[1.0, 0.0], [0.0, INF]])), "A has 1 NaN or infinite value, first at row 1, column 1"),
    (Quadratic(EYE, [1.0, NAN]), "b has 1 NaN or infinite value, first at position 1"),
    (Affine([[INF, 1.0]]), "C has 1 NaN or infinite value, first at row 0, column 0"),
    (Affine(EYE, [NAN, NAN]), "d has 2 NaN or infinite values, first at position 0"),
    (LogisticLoss(HOLES, [0, 1, 0, 1]), f"X has {PLACE}"),
    (LogisticLoss(sp.csr_array(HOLES), [0, 1, 0, 1]), f"X has {PLACE}"),
    (LogisticLoss(np.empty((0, 3)), []), "X has no rows; leave this owner out or give it data"),
    (
        LogisticLoss(np.ones((3, 1)), [-1, 1, 2]),
        "y has 2 labels other than 0 and 1 (-1, 2); recode the two classes as 0 and 1",
    ),
    (LogisticLoss(np.ones((6, 1)), range(2, 8)), "y has 6 labels other than 0 and 1 (2, 3, 4, 5, ...)"),
    (LogisticLoss(EYE, [NAN, 1.0]), "y has 1 label other than 0 and 1 (nan)"),
    (LogisticLoss(EYE, [0, 1], [3.0, -1.0]), "weight has 1 negative value, first at row 1; weights must be at least 0"),
    (LogisticLoss(EYE, [0, 1], [-3.0, -1.0]), "weight has 2 negative values, first at row 0"),
    (LogisticLoss(EYE, [0, 1], [1.0, INF]), "weight has 1 NaN or infinite value, first at position 1"),
    (LogisticLoss(EYE, [0, 1], [0.0, 0.0]), "weight is zero for every row; give at least one row a positive weight"),
    (SquaredLoss(HOLES, [0, 1, 0, 1]), f"X has {PLACE}"),
    (SquaredLoss(EYE, [NAN, 1.0]), "y has 1 NaN or infinite value, first at position 0"),
    (SquaredLoss(EYE, [2.0, 1.0], [1.0, -1.0]), "weight has 1 negative value, first at row 1"),
    (SquaredLoss(EYE, [2.0, 1.0], None, [INF, 0.0]), "offset has 1 NaN or infinite value, first at position 0"),
    (HuberLoss(EYE, [2.0, 1.0], -1.0), "delta is -1; give a positive number"),
    (HuberLoss(EYE, [2.0, 1.0], NAN), "delta is nan; give a positive number"),
    (PoissonLoss(EYE, [2.0, -1.0]), "y has 1 negative value (-1); counts and rates are at least 0"),
    (PoissonLoss(EYE, [INF, -1.0]), "y has 1 NaN or infinite value, first at position 0"),
    (PoissonLoss(np.empty((0, 3)), []), "X has no rows; leave this owner out or give it data"),
    (SoftmaxLoss(HOLES, [0, 1, 0, 1], 2), f"X has {PLACE}"),
    (SoftmaxLoss(EYE, [0, 1], 2, [0.0, 0.0]), "weight is zero for every row"),
    (SoftmaxLoss(np.empty((0, 3)), [], 2), "X has no rows"),
    (
        SoftmaxLoss(np.ones((4, 1)), [0, 3, 1.5, -1], 3),
        "y has 3 labels other than the whole numbers 0 to 2 (-1, 1.5, 3); recode the classes or raise `classes`",
    ),
    (TwoSided(f, -INF, 1.0), "TwoSided: lower = -inf and upper = 1 must be finite; for one side only use f - upper"),
    (f - NAN, "a constant in this sum is NaN or infinite"),
    (INF * f, "a factor in this sum is NaN or infinite"),
    (Affine(EYE) + np.array([0.0, NAN]), "a constant in this sum is NaN or infinite"),
]
BAD = Quadratic(EYE, [NAN, 0.0])


@pytest.mark.parametrize(("part", "sentence"), UNUSABLE)
def test_defect_tells(part: object, sentence: str) -> None:
    assert part.defect().startswith(sentence)


@pytest.mark.parametrize(
    "whole",
    [
        f + BAD,
        as_map(BAD),
        as_map(f) + as_map(BAD),
        Stack([f, BAD]),
        TwoSided(BAD, 0, 1),
        extend(BAD, 5),
        extend(as_map(BAD), 5),
    ],
)
def test_the_defect_of_a_part_is_told_by_the_whole(whole: object) -> None:
    assert whole.defect() == BAD.defect()


def test_a_wrong_label_does_not_pass_as_another_class() -> None:
    with pytest.raises(IndexError):
        SoftmaxLoss(EYE, [0, 5], 3).value(np.zeros(6))


W = np.zeros(2)
RETURNS = [
    (Smooth(lambda w: 1.0), "FP-PROBLEM-157", ["Smooth: fun returned float", "(value, gradient)"]),
    (Smooth(lambda w: (1.0, w, w)), "FP-PROBLEM-157", ["Smooth: fun returned 3 items"]),
    (Smooth(lambda w: (w, w)), "FP-PROBLEM-158", ["Smooth: the value has shape (2,)", "a single number"]),
    (Smooth(lambda w: (0.0, [1.0])), "FP-PROBLEM-158", ["Smooth: the gradient has shape (1,)", "shape (2,)"]),
    (Smooth(lambda w: (0.0, None)), "FP-PROBLEM-150", ["Smooth: the gradient ", "NoneType of type object"]),
    (Smooth(lambda w: (0.0, [[1.0], 2.0])), "FP-PROBLEM-150", ["Smooth: the gradient "]),
    (Smooth(lambda w: (1j, w)), "FP-PROBLEM-150", ["Smooth: the value ", "complex of type complex128"]),
    (SmoothMap(lambda w: w), "FP-PROBLEM-157", ["SmoothMap: fun returned ndarray", "(value, Jacobian)"]),
    (SmoothMap(lambda w: (1.0, w)), "FP-PROBLEM-158", ["SmoothMap: the value has shape ()", "shape (any,)"]),
    (SmoothMap(lambda w: (w, EYE), length=3), "FP-PROBLEM-158", ["SmoothMap: the value has shape (2,)", "shape (3,)"]),
    (SmoothMap(lambda w: (w, w)), "FP-PROBLEM-158", ["SmoothMap: the Jacobian has shape (2,)", "shape (2, 2)"]),
    (Saddle(lambda u, v: (0.0, u), 1), "FP-PROBLEM-157", ["Saddle: fun returned 2 items", "gradient in v"]),
]


@pytest.mark.parametrize(("part", "code", "facts"), RETURNS)
def test_what_callables_return_is_checked(part: object, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        part.value(W)


def test_hessians_of_callables_are_checked() -> None:
    with raises_code("FP-PROBLEM-158", "Smooth: the Hessian has shape (2,)", "shape (2, 2)"):
        Smooth(lambda w: (0.0, w), lambda w: w).hessian(W)
    with raises_code("FP-PROBLEM-158", "SmoothMap: the weighted Hessian has shape (1, 1)"):
        SmoothMap(lambda w: (w, EYE), lambda w, weights: [[1.0]]).weighted_hessian(W, W)


def test_infinite_values_of_callables_pass() -> None:
    value, gradient = Smooth(lambda w: (INF, w + NAN)).value_and_gradient(W)
    assert value == INF
    assert np.isnan(gradient).all()


def test_callables_may_write_into_what_they_get_and_reuse_what_they_return() -> None:
    buffer = np.zeros(2)

    def fun(w: np.ndarray) -> tuple[int, np.ndarray]:
        w += 1
        buffer[:] = w
        return 3, buffer

    w = np.zeros(2)
    function = Smooth(fun)
    value, first = function.value_and_gradient(w)
    function.value_and_gradient(w + 5)
    assert isinstance(value, float)
    np.testing.assert_array_equal(w, [0.0, 0.0])
    np.testing.assert_array_equal(first, [1.0, 1.0])


@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_rounding_in_a_symmetric_matrix_passes(kind: object) -> None:
    hessian = Quadratic(kind([[1.0, 2.0], [2.0 + 1e-13, 1.0]])).hessian(W)
    assert hessian[0, 1] == hessian[1, 0]
