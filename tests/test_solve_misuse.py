"""Misuse of fp.solve: every mistake is told in one sentence, before or at the first round, with the owner's name."""

from __future__ import annotations

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.errors import DataError, FedpactError, OptionError, OwnerError, ProblemError
from fedpact.functions import Affine, Quadratic, Smooth, SmoothMap
from fedpact.solvers import METHODS

PLAIN = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2), [1.0, 2.0])), fp.Share(Quadratic(np.eye(2)))])


def message(error: type[FedpactError], *args: object, **options: object) -> str:
    with pytest.raises(error) as caught:
        fp.solve(*(args or (PLAIN,)), **options)
    return str(caught.value)


# -------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "tol",
    [0, 1, -1, 1.5, np.nan, np.inf, (1e-3,), (1e-3, 1e-3, 1e-3), (1e-3, 0.0), (np.nan, 1e-3), "1e-3", None, [], True],
    ids=str,
)
def test_a_tolerance_lies_between_0_and_1(tol: object) -> None:
    with raises_code("FP-OPTION-113", f"tol = {tol!r}: "):
        fp.solve(PLAIN, tol=tol)


@pytest.mark.parametrize("tol", [(1e-2, 1e-4), [1e-2, 1e-4], 1e-2, np.float64(1e-2)], ids=str)
def test_one_or_two_tolerances(tol: object) -> None:
    answer = fp.solve(PLAIN, tol=tol)
    assert answer.solved
    assert answer.tol == ((1e-2, 1e-4) if isinstance(tol, tuple | list) else (1e-2, 1e-2))


def test_an_unknown_method_lists_the_known() -> None:
    with raises_code("FP-OPTION-112", "method 'newton'", "auto", *METHODS):
        fp.solve(PLAIN, "newton")


def test_options_belong_to_the_solver_that_is_given() -> None:
    with raises_code("FP-OPTION-111", "penalty: ", "ProximalAL(...)"):
        fp.solve(PLAIN, METHODS["proximal-al"].build({}), penalty=3.0)


@pytest.mark.parametrize("value", [3.0, None])
@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        ("auto", ["none"]),  # it is interior-point here
        ("interior-point", ["none"]),
        ("proximal-al", ["penalty", "consensus_penalty", "inner_decay", "accuracy"]),
        ("centralized-proximal-al", ["penalty", "accuracy"]),
    ],
)
def test_an_unknown_option_lists_the_allowed(method: str, allowed: list[str], value: float | None) -> None:
    told = message(OptionError, PLAIN, method, beta=value)
    assert "has no option 'beta'" in told
    assert all(name in told for name in allowed)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "300", [1.0]], ids=str)
@pytest.mark.parametrize("option", ["penalty", "consensus_penalty", "inner_decay", "accuracy"])
def test_options_are_positive_numbers(option: str, value: object) -> None:
    told = message(OptionError, PLAIN, "proximal-al", **{option: value})
    if option == "consensus_penalty" and value == [1.0]:  # may be given by owner, of whom there are two
        assert told.startswith("consensus_penalty = (1.0,): give one number for each of client 1, client 2")
        return
    assert told.startswith(f"{option} = {value!r}: give a number above 0")


def test_the_memory_is_a_whole_number() -> None:
    told = message(OptionError, PLAIN, "accelerated", memory=0.5)
    assert told.startswith("memory = 0.5: give a whole number of at least 1")


@pytest.mark.parametrize("value", [1, 1.0, 7.5])
def test_the_decay_is_below_one(value: float) -> None:
    told = message(OptionError, PLAIN, "proximal-al", inner_decay=value)
    assert told.startswith(f"inner_decay = {value!r}: give a number above 0 and below 1")


@pytest.mark.parametrize("option", ["penalty", "consensus_penalty", "accuracy", "inner_decay"])
def test_none_means_the_default(option: str) -> None:
    plain = fp.solve(PLAIN, "proximal-al")
    assert fp.solve(PLAIN, "proximal-al", **{option: None}).w.tobytes() == plain.w.tobytes()


@pytest.mark.parametrize("limit", [0, -5, 7, 100.0, "100", True, np.nan], ids=str)
def test_max_rounds_is_a_whole_number_of_at_least_eight(limit: object) -> None:
    with raises_code("FP-OPTION-104", f"max_rounds = {limit!r}: ", "at least 8"):
        fp.solve(PLAIN, max_rounds=limit)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None], ids=str)
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with raises_code("FP-OPTION-104", f"seed = {seed!r}: ", "at least 0"):
        fp.solve(PLAIN, seed=seed)


@pytest.mark.parametrize("limit", [8, np.int64(8)], ids=str)
def test_the_fewest_rounds_give_a_point_and_its_certificate(limit: int) -> None:
    answer = fp.solve(PLAIN, "proximal-al", tol=1e-9, max_rounds=limit)
    assert answer.status == "max_rounds"
    assert answer.rounds <= 8
    assert fp.certify(PLAIN, answer.w, answer.multipliers) == answer.certificate


@pytest.mark.parametrize(
    "engine", ["rays", "", 3, object(), fp.engines.InProcess], ids=["rays", "", "3", "object", "class"]
)
def test_an_unknown_engine(engine: object) -> None:
    told = message(OptionError, engine=engine)
    assert f"engine {engine!r} is unknown" in told
    assert "InProcess()" in told


@pytest.mark.parametrize("problem", [[fp.Share(Quadratic(np.eye(1)))], None, Quadratic(np.eye(1))], ids=type)
def test_what_is_solved_is_a_problem(problem: object) -> None:
    with raises_code("FP-PROBLEM-199", f"got {type(problem).__name__}", "fp.FederatedProblem"):
        fp.solve(problem)


def test_a_method_that_takes_no_constraint_says_whose_it_is() -> None:
    limit = fp.Constraint(Affine([[1.0, 1.0]]), Nonnegative(1))
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2))), fp.Share(Quadratic(np.eye(2)), limit)])
    with raises_code("FP-OPTION-110", "", "inexact-admm", "client 2", "auto"):
        fp.solve(problem, "inexact-admm")


# ------------------------------------------------------------------------------------------------------- user functions


def bowl(w: np.ndarray) -> tuple[float, np.ndarray]:
    return float(0.5 * np.sum((w - 3) ** 2)), w - 3


def with_function(fun: object) -> fp.FederatedProblem:
    good = fp.Share(Quadratic(np.eye(2), [1.0, 1.0]), fp.Constraint(Affine([[1.0, 1.0]], [-1.0]), Nonnegative(1)))
    return fp.FederatedProblem([good, fp.Share(Smooth(fun), name="hospital b"), good])


def with_map(fun: object) -> fp.FederatedProblem:
    limit = fp.Constraint(SmoothMap(fun, length=2), Nonnegative(2))
    return fp.FederatedProblem([fp.Share(Smooth(bowl)), fp.Share(Smooth(bowl), limit, name="hospital b")])


def outcome(problem: fp.FederatedProblem, method: str, **options: object) -> str:
    """The status, or the words of the error."""
    try:
        return fp.solve(problem, method, **options).status
    except FedpactError as error:
        return str(error)


METHOD = pytest.mark.parametrize("method", ["proximal-al", "centralized-proximal-al"])
START = np.zeros(2)
#: Calls of one function after which a solver counts as hanging.
PATIENCE = 20_000


@METHOD
@pytest.mark.parametrize(
    ("fun", "what"),
    [
        (lambda w: (np.nan, w), "objective"),
        (lambda w: (np.inf, w), "objective"),
        (lambda w: (0.0, np.array([1.0, np.nan])), "objective's gradient"),
    ],
)
def test_a_function_that_is_not_finite_at_the_start(fun: object, what: str, method: str) -> None:
    told = message(DataError, with_function(fun), method, w0=START)
    assert told.startswith(f"hospital b: its {what} is not finite at the start (1 NaN or infinite values)")
    assert "w0" in told


@METHOD
@pytest.mark.parametrize(
    ("fun", "what"),
    [
        (lambda w: (np.array([np.nan, np.inf]), np.eye(2)), "constraint is not finite at the start (2 NaN"),
        (lambda w: (w, np.full((2, 2), np.nan)), "constraint's Jacobian is not finite at the start (4 NaN"),
    ],
)
def test_a_constraint_that_is_not_finite_at_the_start(fun: object, what: str, method: str) -> None:
    assert message(DataError, with_map(fun), method, w0=START).startswith(f"hospital b: its {what}")


@METHOD
@pytest.mark.parametrize("calls", [5, 12, 20])
def test_a_function_that_is_nan_later_is_never_solved(calls: int, method: str) -> None:
    seen = 0

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal seen
        seen += 1
        if seen > PATIENCE:
            pytest.fail("the solver does not notice the NaN")
        return bowl(w) if seen <= calls else (np.nan, np.full(2, np.nan))

    told = outcome(with_function(fun), method, w0=START, tol=1e-10, max_rounds=300)
    assert told in ("max_rounds", "stalled") or "hospital b" in told
    assert seen > calls


@METHOD
def test_a_function_that_is_nan_near_its_minimum_is_never_solved(method: str) -> None:
    seen = 0  # the minimum is at (1/3, 1/3)

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal seen
        seen += 1
        if seen > PATIENCE:
            pytest.fail("the solver does not notice the NaN")
        return bowl(w) if w.max() < 0.2 else (np.nan, np.full(2, np.nan))

    told = outcome(with_function(fun), method, w0=START, max_rounds=300)
    assert told in ("max_rounds", "stalled") or "hospital b" in told


def broken(w: np.ndarray) -> tuple[float, np.ndarray]:
    raise KeyError("column 'age'")


@METHOD
def test_a_function_that_raises(method: str) -> None:
    told = message(OwnerError, with_function(broken), method, w0=START)
    assert told.startswith("hospital b: ")
    assert "KeyError" in told
    assert "column 'age'" in told


@METHOD
@pytest.mark.parametrize("calls", [1, 7])
def test_a_function_that_raises_later(calls: int, method: str) -> None:
    seen = 0

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal seen
        seen += 1
        return bowl(w) if seen <= calls else broken(w)

    told = message(OwnerError, with_function(fun), method, w0=START, tol=1e-10)
    assert told.startswith("hospital b: ")
    assert "KeyError" in told


@METHOD
@pytest.mark.parametrize(
    ("fun", "code", "facts"),
    [
        (lambda w: (0.0, np.zeros(3)), "FP-PROBLEM-158", ["gradient", "shape (3,)", "(2,)"]),
        (lambda w: (0.0, np.zeros((2, 1))), "FP-PROBLEM-158", ["gradient", "shape (2, 1)", "(2,)"]),
        (lambda w: (np.zeros(2), w), "FP-PROBLEM-158", ["value", "shape (2,)", "a single number"]),
        (lambda w: 1.0, "FP-PROBLEM-157", ["float", "(value, gradient)"]),
        (lambda w: (1.0, w, w), "FP-PROBLEM-157", ["3 items", "(value, gradient)"]),
        (lambda w: ("low", w), "FP-PROBLEM-150", ["value", "str"]),
    ],
)
def test_a_function_of_a_wrong_shape(fun: object, code: str, facts: list[str], method: str) -> None:
    with raises_code(code, "hospital b: Smooth: ", *facts):
        fp.solve(with_function(fun), method, w0=START)


@METHOD
@pytest.mark.parametrize(
    ("fun", "words"),
    [
        (lambda w: (w, np.eye(3)), ["Jacobian", "shape (3, 3)", "(2, 2)"]),
        (lambda w: (w, np.zeros(2)), ["Jacobian", "shape (2,)", "(2, 2)"]),
        (lambda w: (np.zeros(3), np.zeros((3, 2))), ["value", "shape (3,)", "(2,)"]),
    ],
)
def test_a_map_of_a_wrong_shape(fun: object, words: list[str], method: str) -> None:
    with raises_code("FP-PROBLEM-158", "hospital b: SmoothMap: ", *words):
        fp.solve(with_map(fun), method, w0=START)


def test_a_map_of_unknown_length_is_measured_at_the_start() -> None:
    limit = fp.Constraint(SmoothMap(lambda w: (np.zeros(3), np.zeros((3, 2)))), Nonnegative(2))
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)), limit, name="hospital b")])
    assert message(ProblemError, problem) == "hospital b: its constraint has shape (3,) at the start, expected (2,)"


def test_an_error_at_the_server_names_the_server() -> None:
    server = fp.Share(None, fp.Constraint(SmoothMap(lambda w: (w, np.eye(3)), length=2), Nonnegative(2)))
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)))], server)
    with raises_code("FP-PROBLEM-158", "server: SmoothMap: the Jacobian"):
        fp.solve(problem)


def test_the_callers_arrays_stay_as_they_were() -> None:
    w0 = np.array([5.0, -5.0])
    fp.solve(PLAIN, w0=w0)
    assert w0.tolist() == [5.0, -5.0]


def test_callbacks_are_called_after_every_step() -> None:
    """The start, every exchange of the inner solver, and every outer iteration."""
    seen: list[int] = []
    answer = fp.solve(PLAIN, "proximal-al", callbacks=[lambda progress: seen.append(progress.rounds)])
    assert seen == sorted(set(seen))
    assert len(seen) == len(answer.history.inner) + len(answer.history.outer) > 2
    assert seen[-1] <= answer.rounds
