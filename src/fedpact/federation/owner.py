"""One owner's side of the door: it runs a step on its share, keeps the state, and remembers its last reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedpact.errors import FedpactError, OwnerError
from fedpact.federation.messages import Order, Reply, not_finite, size

#: A pure function of (share, state, order); it runs where the data is. State is None before the first step.
Step = Callable[[Any, Any, Any], tuple[Any, Reply]]


@contextmanager
def named(owner: str, what: str) -> Iterator[None]:
    """Errors raised inside come out with the owner's name: our own kinds as they are, all others as OwnerError."""
    try:
        yield
    except OwnerError:
        raise
    except FedpactError as error:
        raise type(error)(f"{owner}: {error}") from error
    except Exception as error:
        raise OwnerError(f"{owner}: {what} failed with {type(error).__name__}: {error}") from error


class Owner:
    """Holds a share and the state between rounds. Every engine runs its owners through this class."""

    def __init__(self, name: str, share: object) -> None:
        self.name = name
        self._share = share
        self._state: object = None
        self._answered: tuple[int, Reply] | None = None

    def handle(self, step: Step, order: Order) -> Reply:
        """Run the step, or return the stored reply when this round was answered before (so a lost reply costs nothing).

        Raises OwnerError, naming this owner, when the order's round lies in the past, when the step fails, or when the
        reply holds a NaN, an infinity or what cannot travel. The state changes only when the step succeeded.
        """
        if self._answered is not None and order.round <= self._answered[0]:
            if order.round == self._answered[0]:
                return self._answered[1]
            raise OwnerError(f"{self.name}: got an order of round {order.round} after round {self._answered[0]}")
        with named(self.name, step.__name__):
            state, reply = step(self._share, self._state, order)
        try:
            size(reply)
        except OwnerError as error:
            raise OwnerError(f"{self.name}: {error}") from error
        if (bad := not_finite(reply)) is not None:
            raise OwnerError(
                f"{self.name}: {step.__name__} gave a non-finite {bad}; check this owner's data and functions for NaN, "
                "infinities and overflow (scaling the columns often helps)"
            )
        self._state, self._answered = state, (order.round, reply)
        return reply
