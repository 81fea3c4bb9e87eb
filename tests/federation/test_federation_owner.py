"""One owner's side of the door: idempotent, names itself in every error, and keeps its state when a step fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.errors import DataError, OwnerError, ProblemError
from fedpact.federation import Order, Owner, Reply


@dataclass(frozen=True, kw_only=True)
class Add(Order):
    amount: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Total(Reply):
    total: float
    vector: np.ndarray = field(default_factory=lambda: np.zeros(1))


def add(share: list[float], state: float | None, order: Add) -> tuple[float, Total]:
    share.append(order.amount)  # counts the calls: a real step would not touch its share
    total = (state or 0.0) + order.amount
    return total, Total(total=total)


def test_state_goes_from_round_to_round() -> None:
    owner = Owner("a", [])
    assert [owner.handle(add, Add(round=r, amount=r)).kept.total for r in (1, 2, 3)] == [1.0, 3.0, 6.0]


def test_a_repeated_round_is_answered_from_memory() -> None:
    calls: list[float] = []
    owner = Owner("a", calls)
    first = owner.handle(add, Add(round=5, amount=2.0))
    assert owner.handle(add, Add(round=5, amount=2.0)) is first
    assert calls == [2.0]
    assert owner.handle(add, Add(round=6, amount=1.0)).kept.total == 3.0


def test_a_past_round_is_refused() -> None:
    calls: list[float] = []
    owner = Owner("hospital b", calls)
    owner.handle(add, Add(round=5))
    with raises_code("FP-OWNER-004", "hospital b: ", "4", "5"):
        owner.handle(add, Add(round=4))
    assert calls == [1.0]


def failing(share: Any, state: Any, order: Add) -> tuple[Any, Total]:
    raise share


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (ZeroDivisionError("by zero"), OwnerError, "hospital b: failing failed with ZeroDivisionError: by zero"),
        (KeyError("age"), OwnerError, "hospital b: failing failed with KeyError: 'age'"),
        (DataError("3 missing values"), DataError, "hospital b: 3 missing values"),
        (ProblemError("wrong shape"), ProblemError, "hospital b: wrong shape"),
    ],
)
def test_an_error_in_a_step_names_the_owner(raised: Exception, expected: type[Exception], message: str) -> None:
    with pytest.raises(expected) as caught:
        Owner("hospital b", raised).handle(failing, Add(round=1))
    assert str(caught.value) == message
    assert caught.value.__cause__ is raised


def test_an_error_that_names_the_owner_is_passed_on_as_it_is() -> None:
    with pytest.raises(OwnerError, match=r"^b: already named$"):
        Owner("b", OwnerError("b: already named")).handle(failing, Add(round=1))


def faulty(share: tuple[float, Any], state: float | None, order: Add) -> tuple[float, Total]:
    """Changes the state, then answers with what the share holds: which may be what is refused."""
    return 1000.0, Total(total=share[0], vector=share[1])


@pytest.mark.parametrize(
    ("amount", "vector", "field_name"),
    [
        (np.nan, np.zeros(2), "total"),
        (-np.inf, np.zeros(2), "total"),
        (0.0, np.array([1.0, np.nan]), "vector"),
        (0.0, np.array([[np.inf]]), "vector"),
    ],
)
def test_a_reply_that_is_not_finite_is_refused(amount: float, vector: np.ndarray, field_name: str) -> None:
    with raises_code("FP-OWNER-005", "hospital b: ", "faulty", f"non-finite {field_name};"):
        Owner("hospital b", (amount, vector)).handle(faulty, Add(round=1))


@pytest.mark.parametrize("amount", [np.nan, np.inf, -np.inf])
def test_an_order_that_is_not_finite_is_refused(amount: float) -> None:
    """Before anything is computed from it: a loop may wait for ever for NaN to become small."""

    def never() -> object:
        raise AssertionError("the share is not needed")

    with raises_code("FP-OWNER-020", "hospital b: ", "Add.amount"):
        Owner("hospital b", never).handle(add, Add(round=1, amount=amount))


def grows_then_fails(share: Any, state: float | None, order: Add) -> tuple[float, Total]:
    total = (state or 0.0) + 1.0
    if order.amount < 0:
        raise ValueError("negative")
    return total, Total(total=np.nan if order.amount == 0 else total)


@pytest.mark.parametrize("bad", [-1.0, 0.0])
def test_the_state_is_that_before_a_failed_step(bad: float) -> None:
    owner = Owner("a", None)
    assert owner.handle(grows_then_fails, Add(round=1)).kept.total == 1.0
    with pytest.raises(OwnerError):
        owner.handle(grows_then_fails, Add(round=2, amount=bad))
    # the failed round was not answered, so it may be asked again
    assert owner.handle(grows_then_fails, Add(round=2)).kept.total == 2.0


@dataclass(frozen=True, kw_only=True)
class Anything(Reply):
    value: Any


def hand_out(share: Any, state: Any, order: Order) -> tuple[Any, Anything]:
    return state, Anything(value=share)


@pytest.mark.parametrize(
    "value",
    [[1.0, 2.0], {"a": 1}, None, (1.0,), object(), np.array(["x"]), np.array([None]), 1j, np.array([1j])],
)
def test_only_arrays_and_scalars_leave_an_owner(value: object) -> None:
    with raises_code("FP-OWNER-012", "hospital b: ", "Anything.value"):
        Owner("hospital b", value).handle(hand_out, Order(round=1))


@pytest.mark.parametrize(
    "value", [1, 1.5, True, "text", np.float64(2), np.int64(2), np.bool_(True), np.zeros(3), np.zeros((2, 2), int)]
)
def test_arrays_and_scalars_do(value: object) -> None:
    assert Owner("a", value).handle(hand_out, Order(round=1)).kept.value is value
