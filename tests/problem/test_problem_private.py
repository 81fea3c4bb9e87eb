"""Shares with private variables: what is refused, how dimensions are counted, and the certificate by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.federation.digest import digest
from fedpact.functions import Affine, Linear, Quadratic, Smooth
from fedpact.problem import MonotoneProblem, decouple


def by_hand() -> fp.FederatedProblem:
    """min w^2 + (w - v)^2 / 2 - 3 v  s.t.  v <= 2 (a), and -w at b: w = 1, v = 2, the price of the bound is 2."""
    first = Quadratic([[3.0, -1.0], [-1.0, 1.0]], [0.0, -3.0])
    bound = fp.Constraint(Affine([[0.0, 1.0]], [-2.0]), Nonnegative(1))
    return fp.FederatedProblem(
        [fp.Share(first, bound, name="a", private=1), fp.Share(Quadratic([[0.0]], [-1.0]), name="b")]
    )


@pytest.mark.parametrize(
    ("w", "v", "price", "stationarity", "feasibility"),
    [
        (1.0, 2.0, 2.0, 0.0, 0.0),
        (1.0, 2.0, 1.5, 0.5, 0.0),  # only the slope in v is missed
        (1.5, 2.0, 2.0, 1.5, 0.0),  # 1.5 in w, 0.5 in v
        (1.0, 1.0, 2.0, 1.0, 1.0),  # a positive price on a bound that is slack by 1
    ],
)
def test_the_certificate_by_hand(w: float, v: float, price: float, stationarity: float, feasibility: float) -> None:
    certificate = fp.certify(by_hand(), [w], [None, [price], None], private=[[v], None])
    assert certificate.stationarity == pytest.approx(stationarity, abs=1e-14)
    assert certificate.feasibility == pytest.approx(feasibility, abs=1e-14)


def test_the_certificate_needs_all_private_variables() -> None:
    with raises_code("FP-PROBLEM-108", "a: its private variables"):
        fp.certify(by_hand(), [1.0], [None, [2.0], None])
    with raises_code("FP-PROBLEM-140", "expected private variables of 2 owners [a, b], got 1"):
        fp.certify(by_hand(), [1.0], [None, [2.0], None], private=[[2.0]])
    with raises_code("FP-PROBLEM-108", "b: its private variables"):
        fp.certify(by_hand(), [1.0], [None, [2.0], None], private=[[2.0], [1.0]])


@pytest.mark.parametrize("private", [-1, 1.5, True, "2", None])
def test_private_is_a_count(private: Any) -> None:
    with raises_code("FP-PROBLEM-137", "north: private = ", repr(private)):
        fp.Share(Quadratic(np.eye(3)), name="north", private=private)


def test_the_dimension_is_that_of_the_common_variables() -> None:
    shares = [fp.Share(Quadratic(np.eye(5)), private=2, name="a"), fp.Share(Quadratic(np.eye(3)), name="b")]
    problem = fp.FederatedProblem(shares)
    assert problem.dim == 3
    assert problem.private
    assert problem.start(None).shape == (3,)
    with raises_code("FP-PROBLEM-108", "w0", "length 3"):
        problem.start(np.zeros(5))


def test_functions_that_do_not_take_the_private_variables() -> None:
    shares = [fp.Share(Quadratic(np.eye(3)), name="a"), fp.Share(Quadratic(np.eye(3)), private=1, name="b")]
    with raises_code("FP-PROBLEM-117", "b: its objective", "3, 2 without its private variables", "length 3"):
        fp.FederatedProblem(shares)
    constraint = fp.Constraint(Affine(np.ones((1, 3))), Nonnegative(1))
    with raises_code("FP-PROBLEM-117", "c: its constraint", "2 without its private variables"):
        fp.FederatedProblem([fp.Share(Quadratic(np.eye(4)), constraint, name="c", private=1)])
    with raises_code("FP-PROBLEM-139", "d: its objective", "length 2"):
        fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)), name="d", private=2)])


def test_the_server_and_operators_have_none() -> None:
    shares = [fp.Share(Quadratic(np.eye(2)))]
    server = fp.Share(None, fp.Constraint(Affine(np.ones((1, 3))), Nonnegative(1)), private=1)
    with raises_code("FP-PROBLEM-138", "server: private = 1"):
        fp.FederatedProblem(shares, server)
    with raises_code("FP-PROBLEM-138", "client 1: private = 1"):
        MonotoneProblem([fp.Share(Linear(np.eye(3)), private=1)])


def test_they_start_where_a_function_suggests() -> None:
    function = Smooth(lambda x: (float(x @ x), 2 * x), dim=3)
    assert fp.Share(function, private=2).first_private.tolist() == [0.0, 0.0]
    function.start = np.array([1.0, 2.0, 3.0])
    share = fp.Share(function, private=2)
    assert share.first_private.tolist() == [2.0, 3.0]
    assert fp.FederatedProblem([share]).start(None).tolist() == [1.0]


def test_another_number_of_them_is_another_share() -> None:
    share = fp.Share(Quadratic(np.eye(3)), private=1)
    assert digest(share) == digest(fp.Share(share.objective, private=1))
    assert digest(share) != digest(fp.Share(share.objective, private=2))


def test_slacks_come_before_them() -> None:
    """c(w, v) <= 0 summed over two owners: the rewritten functions take (w, s_1, s_2, v)."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 1, 3))
    roots = rng.standard_normal((2, 3, 3))
    shares = [
        fp.Share(Quadratic(root @ root.T), coupled=Affine(row, [0.5]), private=1, name=name)
        for name, root, row in zip("ab", roots, rows, strict=True)
    ]
    problem = fp.FederatedProblem(shares)
    rewritten = decouple(problem, 2)
    assert rewritten.dim == 4
    x = rng.standard_normal(5)
    for number, (share, lifted) in enumerate(zip(shares, rewritten.shares, strict=True)):
        own = x[[0, 1, 4]]
        assert share.objective is not None
        assert lifted.objective is not None
        assert lifted.constraint is not None
        assert lifted.objective.value(x) == pytest.approx(share.objective.value(own))
        expected = np.zeros((5, 5))
        expected[np.ix_([0, 1, 4], [0, 1, 4])] = share.objective.hessian(own)
        np.testing.assert_allclose(lifted.objective.hessian(x), expected)
        np.testing.assert_allclose(lifted.objective.gradient(x), expected @ x)
        value = rows[number, 0] @ own + 0.5 - x[2 + number]
        assert lifted.constraint.function.value(x) == pytest.approx(value)
        mine, point, _ = lifted.own(x, np.zeros(1))
        assert mine is share
        np.testing.assert_array_equal(point, own)
