"""Owners of one process that answer in one computation: the same replies, bit for bit, in far fewer calls.

A step may have a twin, which is the same step for many owners at once: every array in its state and in its reply has a
leading axis with one entry an owner. It declines (None) whatever it does not know, or what is not finite; the owners
are then asked one by one, each with its own part of the state, by the step itself, which remains the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from fedpact.errors import FedpactError
from fedpact.federation.memory import Step
from fedpact.federation.messages import Joint, Order, Reply, copy_with, seal_jointly
from fedpact.federation.owner import Owner


class Held(list[Any]):
    """The shares of all owners, in order, and what twins make of them once."""

    joined: Any = None


#: Bytes. The C library of Linux gives memory back to the system beyond twice the largest block that it has seen freed,
#: and the next array is then mapped and cleared anew, page by page: a quarter of the time of a thousand owners. This is
#: the largest block that counts; nobody writes to it, so it costs nothing.
LARGEST_KEPT = 2**25 - 2**16

#: (shares, state, order) -> (state, reply), or None; the state is what the last twin left, None where none did.
Twin = Callable[[Held, Any, Any], tuple[Any, Reply] | None]
T = TypeVar("T", bound=Twin)

#: The twins of steps that have one.
TWINS: dict[Step, Twin] = {}


def twin_of(step: Step) -> Callable[[T], T]:
    """Mark the twin of a step."""

    def mark(twin: T) -> T:
        TWINS[step] = twin
        return twin

    return mark


class Crew:
    """All owners of a fleet in one process; they are a crew as long as every order has a twin."""

    def __init__(self, sources: Mapping[str, object], owners: Mapping[str, Owner]) -> None:
        """sources: what the owners hold, by name; owners: who may not be there before they are asked one by one."""
        np.empty(LARGEST_KEPT, dtype=np.uint8)
        self._sources = sources
        self._owners = owners
        self._shares: Held | None = None
        self._task: Any = None
        self._state: Any = None  # with a leading axis; None: every owner has its own
        self._round = 0

    def answer(self, step: Step, order: Order, task: Any) -> Joint[Any] | None:
        """The replies of all owners to a step with a twin; None where they have to be asked one by one."""
        if self._shares is None or task != self._task:
            try:
                self._shares = Held(self._prepare(order, task))
            except FedpactError:  # one by one, that owner says what is wrong, and the policy applies
                return None
            self._task = task
        found = TWINS[step](self._shares, self._state, order)
        if found is None:
            return None
        state, reply = found
        joint = seal_jointly(reply, len(self._sources))
        if joint is not None:
            self._state = state
            self._round = order.round
        return joint

    def _prepare(self, order: Order, task: Any) -> Iterable[Any]:
        """The shares; those that are there already need nobody who builds them."""
        if task is None and not any(map(callable, self._sources.values())):
            return self._sources.values()
        return [self._owners[name].prepare(order, task) for name in self._sources]

    def disband(self, order: Order) -> None:
        """Before owners are asked this one by one: hand each its part of the state."""
        if self._state is None:
            return
        state = self._state
        self._state = None
        for number, name in enumerate(self._sources):
            part = part_of(state, number, len(self._sources))
            self._owners[name].take_over(order.run, min(self._round, order.round - 1), part)

    def hold(self, sources: Mapping[str, object]) -> None:
        """The owners hold these now."""
        self._sources = sources
        self._shares = None

    def states(self) -> list[Any]:
        """What the owners remember, in order."""
        if self._state is None:
            return [self._owners[name].state for name in self._sources]
        count = len(self._sources)
        return [part_of(self._state, number, count) for number in range(count)]


def part_of(value: Any, number: int, count: int) -> Any:
    """One owner's part of a state: its entry of every array with an entry for each of `count` owners."""
    if isinstance(value, np.ndarray) and value.shape[:1] == (count,):
        part = value[number]
        return part if part.ndim else part.item()
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: part_of(getattr(value, f.name), number, count) for f in fields(value)}
        return copy_with(value, parts)
    return value
