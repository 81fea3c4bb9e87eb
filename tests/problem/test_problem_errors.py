"""Every way to ask a contradictory problem: the message says who, what was found, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder
from fedpact.errors import DataError, ProblemError
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
    with pytest.raises(DataError) as caught:
        fp.FederatedProblem(shares)
    message = str(caught.value)
    assert message.startswith("client 2: objective LogisticLoss(rows=4, dim=2): X has 1 NaN or infinite value")
    assert "row 2, column 1" in message
    assert "impute or remove" in message


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
    with pytest.raises(DataError) as caught:
        fp.FederatedProblem([share("north"), fp.Share(function, name="south")])
    message = str(caught.value)
    assert message.startswith("south: objective ")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("holder", "start"),
    [
        (fp.Share(GOOD, fp.Constraint(Affine([[np.nan, 1.0]]), Nonnegative(1)), name="b"), "b: constraint "),
        (fp.Share(GOOD, fp.Constraint(logistic(np.nan) - 0.2, Nonnegative(1)), name="b"), "b: constraint "),
        (fp.Share(GOOD, coupled=Affine([[1.0, 1.0]], [np.inf]), name="b"), "b: coupled constraint "),
    ],
)
def test_bad_data_of_a_constraint(holder: fp.Share, start: str) -> None:
    with pytest.raises(DataError) as caught:
        fp.FederatedProblem([share("a"), holder])
    assert str(caught.value).startswith(start)


def test_bad_data_of_the_server() -> None:
    server = fp.Share(None, fp.Constraint(Affine([[np.nan, 1.0]]), Nonnegative(1)))
    with pytest.raises(DataError, match=r"^server: constraint .* C has 1 NaN or infinite value"):
        fp.FederatedProblem([share()], server)


# ------------------------------------------------------------------------------------------------------------- shares


def test_different_columns_name_both_owners() -> None:
    with pytest.raises(ProblemError) as caught:
        fp.FederatedProblem([share("north"), share("south", dim=3)])
    message = str(caught.value)
    assert message.startswith("south: its objective takes vectors of length 3, but north's objective takes length 2")
    assert "same columns in the same order" in message


def test_different_columns_inside_one_owner() -> None:
    mixed = fp.Share(GOOD, fp.Constraint(Affine(np.ones((1, 4))), Nonnegative(1)))
    with pytest.raises(ProblemError, match="client 1: its constraint takes vectors of length 4, but client 1's obj"):
        fp.FederatedProblem([mixed])


def test_different_columns_at_the_server() -> None:
    server = fp.Share(None, fp.Constraint(Affine(np.ones((1, 4))), Nonnegative(1)))
    with pytest.raises(ProblemError, match=r"client 1: .* length 2, but server's constraint takes length 4"):
        fp.FederatedProblem([share()], server)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([], ["at least one share", "FederatedProblem([Share(...), ...])"]),
        ([share(), fp.Share()], ["client 2: the share is empty", "give it an objective or a constraint"]),
        ([fp.Share(name="b")], ["b: the share is empty"]),
        ([share("b"), share("b")], ["two owners are called 'b'", "a name of its own"]),
        ([share("client 2"), share()], ["two owners are called 'client 2'"]),
        ([share(), GOOD], ["client 2: expected an fp.Share, got Quadratic"]),
        ([share("server")], ["'server'", "name"]),
    ],
)
def test_shares_that_make_no_problem(shares: list, words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        fp.FederatedProblem(shares)
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_name_coupled_is_taken_when_there_is_a_coupled_constraint() -> None:
    """Otherwise the certificate would report one violation under the other's name."""
    with pytest.raises(ProblemError, match="'coupled'"):
        fp.FederatedProblem([fp.Share(GOOD, coupled=Affine(np.ones((1, 2))), name="coupled")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"objective": lambda w: w}, ["bank: the objective must be one of fedpact.functions", "function", "Smooth"]),
        ({"objective": Affine(np.eye(2))}, ["bank: the objective", "Affine"]),
        ({"objective": GOOD, "constraint": Affine(np.eye(2))}, ["bank: the constraint must be fp.Constraint", "Aff"]),
        ({"objective": GOOD, "constraint": "loss < 1"}, ["bank: the constraint must be fp.Constraint", "str"]),
        (
            {"objective": GOOD, "constraint": [fp.Constraint(GOOD, Nonnegative(1)), 3]},
            ["bank: the constraint must be fp.Constraint", "int"],
        ),
        ({"objective": GOOD, "constraint": [None]}, ["bank: the constraint must be fp.Constraint", "NoneType"]),
        ({"objective": GOOD, "coupled": "sum"}, ["bank", "expected a Function or a Map, got str"]),
    ],
)
def test_parts_of_a_wrong_type(arguments: dict, words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        fp.Share(**arguments, name="bank")
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("server", "found"), [(fp.Constraint(GOOD, Nonnegative(1)), "Constraint"), ([share()], "list"), (GOOD, "Quadratic")]
)
def test_a_server_of_a_wrong_type(server: object, found: str) -> None:
    with pytest.raises(ProblemError, match=f"server.*fp.Share.*{found}"):
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
    ("function", "cone", "words"),
    [
        (GOOD, 1, ["needs a cone of fedpact.cones", "got 1"]),
        (GOOD, Nonnegative, ["needs a cone of fedpact.cones"]),
        (lambda w: w, Nonnegative(1), ["expected a Function or a Map, got function", "Smooth"]),
    ],
)
def test_a_constraint_that_contradicts_itself(function: object, cone: object, words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        fp.Constraint(function, cone)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("function", "cone", "words"),
    [
        (Affine(np.ones((3, 2))), Nonnegative(2), ["length 3", "Nonnegative(dim=2)", "cone of dimension 3"]),
        (GOOD, SecondOrder(3), ["length 1", "SecondOrder(dim=3)", "cone of dimension 1"]),
    ],
)
def test_a_constraint_and_a_cone_of_different_length(function: object, cone: object, words: list[str]) -> None:
    odd = fp.Share(GOOD, fp.Constraint(function, cone), name="south")
    with pytest.raises(ProblemError) as caught:
        fp.FederatedProblem([fp.Share(GOOD), odd])
    assert str(caught.value).startswith("south: its constraint")
    assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(ProblemError, match=r"^server: its constraint"):
        fp.FederatedProblem([fp.Share(GOOD)], fp.Share(constraint=odd.constraint))


# -------------------------------------------------------------------------------------------- regularizer and start


@pytest.mark.parametrize(
    ("regularizer", "words"),
    [
        (0.1, ["the regularizer must be one of fedpact.prox", "float"]),
        (GOOD, ["the regularizer must be one of fedpact.prox", "Quadratic"]),
        (fp.prox.L1, ["the regularizer must be one of fedpact.prox"]),
        (fp.prox.L1([1.0, 2.0, 3.0]), ["regularizer: L1: weight has 3 entries", "2 entries"]),
        (fp.prox.SquaredL2(-1.0), ["regularizer: SquaredL2: weight is -1", "at least 0"]),
        (fp.prox.Box(1.0, 0.0), ["regularizer: Box: no number lies between lo = 1 and hi = 0"]),
    ],
)
def test_a_regularizer_that_does_not_fit(regularizer: object, words: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        fp.FederatedProblem([share()], regularizer=regularizer)
    assert all(word in str(caught.value) for word in words), caught.value


BOX = fp.prox.Box(1.0, 2.0)
FREE = fp.Share(Smooth(lambda w: (float(w @ w), 2 * w)))


@pytest.mark.parametrize(
    ("w0", "words"),
    [
        ([1.0, 1.0, 1.0], ["w0 has shape (3,)", "length 2"]),
        ([[1.0, 1.0]], ["w0 has shape (1, 2)"]),
        (1.0, ["w0 has shape ()"]),
        ([1.0, np.nan], ["w0 has 1 non-finite entries", "finite numbers"]),
        ([np.inf, -np.inf], ["w0 has 2 non-finite entries"]),
        ([0.0, 1.5], ["w0 lies outside the domain of Box(1, 2)", "leave w0 out"]),
    ],
)
def test_a_start_that_does_not_fit(w0: object, words: list[str]) -> None:
    problem = fp.FederatedProblem([share()], regularizer=BOX)
    for attempt in (problem.start, lambda given: fp.solve(problem, w0=given)):
        with pytest.raises(ProblemError) as caught:
            attempt(w0)
        assert all(word in str(caught.value) for word in words), caught.value


def test_the_dimension_must_be_known_from_somewhere() -> None:
    problem = fp.FederatedProblem([FREE])
    with pytest.raises(ProblemError, match="the dimension is not known from the functions; give w0"):
        problem.start(None)
    np.testing.assert_array_equal(problem.start([3, 4]), [3.0, 4.0])


def test_a_regularizer_is_checked_once_the_dimension_is_known() -> None:
    problem = fp.FederatedProblem([FREE], regularizer=fp.prox.L1([1.0, 2.0, 3.0]))
    with pytest.raises(ProblemError, match="regularizer: L1: weight has 3 entries"):
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
