"""Every way to ask a contradictory problem: the message says who, what was found, and what to do."""

from __future__ import annotations

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SoftmaxLoss

GOOD = Quadratic(np.eye(2))


def share(name: str | None = None, dim: int = 2) -> fp.Share:
    return fp.Share(Quadratic(np.eye(dim)), name=name)


def logistic(value: float = 1.0) -> LogisticLoss:
    X = np.arange(8.0).reshape(4, 2)
    X[2, 1] = value
    return LogisticLoss(X, [0, 1, 0, 1])


# --------------------------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_names_its_owner(value: float) -> None:
    shares = [fp.Share(logistic()), fp.Share(logistic(value)), fp.Share(logistic())]
    with raises_code("FP-DATA-100", "client 2: objective LogisticLoss(rows=4, dim=2): X has 1", "row 2, column 1"):
        fp.FederatedProblem(shares)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (LogisticLoss(np.ones((2, 2)), [0, 3]), ["y has 1 label other than 0 and 1 (3)", "recode"]),
        (LogisticLoss(np.ones((0, 2)), []), ["X has no rows", "leave this owner out"]),
        (LogisticLoss(np.ones((2, 2)), [0, 1], weight=[-1, 2]), ["weight has 1 negative value", "at least 0"]),
        (Quadratic([[np.nan, 0], [0, 1]]), ["A has 1 NaN or infinite value"]),
        (Quadratic(np.eye(2), [0, np.inf]), ["b has 1 NaN or infinite value", "position 1"]),
        (SoftmaxLoss([[np.nan]], [0], 2), ["X has 1 NaN or infinite value"]),
        (0.5 * (Quadratic(np.eye(2)) + logistic(np.nan)), ["X has 1 NaN or infinite value"]),
    ],
)
def test_bad_data_of_an_objective(function: fp.functions.Function, words: list[str]) -> None:
    with raises_code("FP-DATA-100", "south: objective ", *words):
        fp.FederatedProblem([share("north"), fp.Share(function, name="south")])


@pytest.mark.parametrize(
    ("holder", "start"),
    [
        (fp.Share(GOOD, fp.Constraint(Affine([[np.nan, 1.0]]), Nonnegative(1)), name="b"), "b: constraint "),
        (fp.Share(GOOD, fp.Constraint(logistic(np.nan) - 0.2, Nonnegative(1)), name="b"), "b: constraint "),
        (fp.Share(GOOD, coupled=Affine([[1.0, 1.0]], [np.inf]), name="b"), "b: coupled constraint "),
    ],
)
def test_bad_data_of_a_constraint(holder: fp.Share, start: str) -> None:
    with raises_code("FP-DATA-100", start):
        fp.FederatedProblem([share("a"), holder])


def test_bad_data_of_the_server() -> None:
    server = fp.Share(None, fp.Constraint(Affine([[np.nan, 1.0]]), Nonnegative(1)))
    with raises_code("FP-DATA-100", "server: constraint ", " C has 1 "):
        fp.FederatedProblem([share()], server)


# ------------------------------------------------------------------------------------------------------------- shares


def test_different_columns_name_both_owners() -> None:
    with raises_code("FP-PROBLEM-117", "south: its objective", "length 3", "north's objective", "length 2"):
        fp.FederatedProblem([share("north"), share("south", dim=3)])


def test_different_columns_inside_one_owner() -> None:
    mixed = fp.Share(GOOD, fp.Constraint(Affine(np.ones((1, 4))), Nonnegative(1)))
    with raises_code("FP-PROBLEM-117", "client 1: its constraint", "length 4", "client 1's objective"):
        fp.FederatedProblem([mixed])


def test_different_columns_at_the_server() -> None:
    server = fp.Share(None, fp.Constraint(Affine(np.ones((1, 4))), Nonnegative(1)))
    with raises_code("FP-PROBLEM-117", "client 1: ", "length 2", "server's constraint", "length 4"):
        fp.FederatedProblem([share()], server)


@pytest.mark.parametrize(
    ("shares", "code", "facts"),
    [
        ([], "FP-PROBLEM-111", []),
        ([share(), fp.Share()], "FP-PROBLEM-114", ["client 2: "]),
        ([fp.Share(name="b")], "FP-PROBLEM-114", ["b: "]),
        ([share("b"), share("b")], "FP-PROBLEM-113", ["", "'b'"]),
        ([share("client 2"), share()], "FP-PROBLEM-113", ["", "'client 2'"]),
        ([share(), GOOD], "FP-PROBLEM-112", ["client 2: ", "Quadratic"]),
        ([share("server")], "FP-PROBLEM-115", ["", "'server'"]),
    ],
)
def test_shares_that_make_no_problem(shares: list, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        fp.FederatedProblem(shares)


def test_the_name_coupled_is_taken_when_there_is_a_coupled_constraint() -> None:
    """Otherwise the certificate would report one violation under the other's name."""
    with raises_code("FP-PROBLEM-115", "", "'coupled'"):
        fp.FederatedProblem([fp.Share(GOOD, coupled=Affine(np.ones((1, 2))), name="coupled")])


@pytest.mark.parametrize(
    ("arguments", "code", "found"),
    [
        ({"objective": lambda w: w}, "FP-PROBLEM-101", "function"),
        ({"objective": Affine(np.eye(2))}, "FP-PROBLEM-101", "Affine"),
        ({"objective": GOOD, "constraint": Affine(np.eye(2))}, "FP-PROBLEM-102", "Affine"),
        ({"objective": GOOD, "constraint": "loss < 1"}, "FP-PROBLEM-102", "str"),
        ({"objective": GOOD, "constraint": [fp.Constraint(GOOD, Nonnegative(1)), 3]}, "FP-PROBLEM-102", "int"),
        ({"objective": GOOD, "constraint": [None]}, "FP-PROBLEM-102", "NoneType"),
        ({"objective": GOOD, "coupled": "sum"}, "FP-PROBLEM-166", "str"),
    ],
)
def test_parts_of_a_wrong_type(arguments: dict, code: str, found: str) -> None:
    with raises_code(code, "bank: ", f"got {found}"):
        fp.Share(**arguments, name="bank")


@pytest.mark.parametrize(
    ("server", "found"), [(fp.Constraint(GOOD, Nonnegative(1)), "Constraint"), ([share()], "list"), (GOOD, "Quadratic")]
)
def test_a_server_of_a_wrong_type(server: object, found: str) -> None:
    with raises_code("FP-PROBLEM-103", "the server", found):
        fp.FederatedProblem([share()], server)


def test_shares_may_come_from_a_generator() -> None:
    problem = fp.FederatedProblem(share() for _ in range(3))
    assert problem.names == ("client 1", "client 2", "client 3")
    assert problem.dim == 2


def test_one_constraint_or_none_in_a_list() -> None:
    only = fp.Constraint(GOOD, Nonnegative(1))
    assert fp.Share(GOOD, [only]).constraint is only
    assert fp.Share(GOOD, []).constraint is None


# -------------------------------------------------------------------------------------------------------- constraints


@pytest.mark.parametrize(
    ("function", "cone", "code", "found"),
    [
        (GOOD, 1, "FP-PROBLEM-100", "got 1"),
        (GOOD, Nonnegative, "FP-PROBLEM-100", "Nonnegative"),
        (lambda w: w, Nonnegative(1), "FP-PROBLEM-166", "got function"),
    ],
)
def test_a_constraint_that_contradicts_itself(function: object, cone: object, code: str, found: str) -> None:
    with raises_code(code, "", found):
        fp.Constraint(function, cone)


@pytest.mark.parametrize(
    ("function", "cone", "words"),
    [
        (Affine(np.ones((3, 2))), Nonnegative(2), ["length 3", "Nonnegative(dim=2)", "cone of dimension 3"]),
        (GOOD, SecondOrder(3), ["length 1", "SecondOrder(dim=3)", "cone of dimension 1"]),
    ],
)
def test_a_constraint_and_a_cone_of_different_length(function: object, cone: object, words: list[str]) -> None:
    odd = fp.Share(GOOD, fp.Constraint(function, cone), name="south")
    with raises_code("FP-PROBLEM-116", "south: its constraint", *words):
        fp.FederatedProblem([fp.Share(GOOD), odd])
    with raises_code("FP-PROBLEM-116", "server: its constraint"):
        fp.FederatedProblem([fp.Share(GOOD)], fp.Share(constraint=odd.constraint))


# -------------------------------------------------------------------------------------------- regularizer and start


@pytest.mark.parametrize(
    ("regularizer", "code", "facts"),
    [
        (0.1, "FP-PROBLEM-185", ["float"]),
        (GOOD, "FP-PROBLEM-185", ["Quadratic"]),
        (fp.prox.L1, "FP-PROBLEM-185", []),
        (fp.prox.L1([1.0, 2.0, 3.0]), "FP-PROBLEM-186", ["L1: weight", "3 entries", "2 entries"]),
        (fp.prox.SquaredL2(-1.0), "FP-PROBLEM-186", ["SquaredL2: weight", "-1", "at least 0"]),
        (fp.prox.Box(1.0, 0.0), "FP-PROBLEM-186", ["Box: ", "lo = 1", "hi = 0"]),
    ],
)
def test_a_regularizer_that_does_not_fit(regularizer: object, code: str, facts: list[str]) -> None:
    with raises_code(code, "the regularizer", *facts):
        fp.FederatedProblem([share()], regularizer=regularizer)


BOX = fp.prox.Box(1.0, 2.0)
FREE = fp.Share(Smooth(lambda w: (float(w @ w), 2 * w)))


@pytest.mark.parametrize(
    ("w0", "code", "facts"),
    [
        ([1.0, 1.0, 1.0], "FP-PROBLEM-108", ["shape (3,)", "length 2"]),
        ([[1.0, 1.0]], "FP-PROBLEM-108", ["shape (1, 2)"]),
        (1.0, "FP-PROBLEM-108", ["shape ()"]),
        (["low", "high"], "FP-PROBLEM-107", []),
        ([1.0, np.nan], "FP-PROBLEM-109", ["has 1 "]),
        ([np.inf, -np.inf], "FP-PROBLEM-109", ["has 2 "]),
        ([0.0, 1.5], "FP-PROBLEM-110", ["Box(1, 2)"]),
    ],
)
def test_a_start_that_does_not_fit(w0: object, code: str, facts: list[str]) -> None:
    problem = fp.FederatedProblem([share()], regularizer=BOX)
    for attempt in (problem.start, lambda given: fp.solve(problem, w0=given)):
        with raises_code(code, "w0 ", *facts):
            attempt(w0)


def test_the_dimension_must_be_known_from_somewhere() -> None:
    problem = fp.FederatedProblem([FREE])
    with raises_code("FP-PROBLEM-106"):
        problem.start(None)
    np.testing.assert_array_equal(problem.start([3, 4]), [3.0, 4.0])


def test_a_regularizer_is_checked_once_the_dimension_is_known() -> None:
    problem = fp.FederatedProblem([FREE], regularizer=fp.prox.L1([1.0, 2.0, 3.0]))
    with raises_code("FP-PROBLEM-186", "the regularizer: L1: weight has 3 entries"):
        problem.start([1.0, 1.0])


def test_the_start_lies_in_the_domain() -> None:
    assert fp.FederatedProblem([share()]).start(None).tolist() == [0.0, 0.0]
    assert fp.FederatedProblem([share()], regularizer=BOX).start(None).tolist() == [1.0, 1.0]
    given = np.array([1.5, 2.0])
    start = fp.FederatedProblem([share()], regularizer=BOX).start(given)
    assert start.tolist() == [1.5, 2.0]
    start[0] = 9.0
    assert given[0] == 1.5  # a copy: the caller's array stays its own


def test_second_derivatives_are_known_of_all_parts() -> None:
    curved = fp.Share(GOOD, fp.Constraint(Affine(np.eye(2)), Nonnegative(2)))
    assert fp.FederatedProblem([curved]).has_hessian
    assert not fp.FederatedProblem([curved, FREE]).has_hessian
