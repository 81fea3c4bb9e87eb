"""Owners in this process, each of whose orders is seen before it arrives, and may be lost, late or the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fedpact.engines import InProcess
from fedpact.errors import OwnerLost
from fedpact.federation import Fleet, Order, Step

#: What may happen to an order: it gets lost (OwnerLost), the user presses Ctrl-C (KeyboardInterrupt), or (True) its
#: owner never answers.
Event = Callable[[str, Step, Order], bool | None]


class Watched:
    """event: called with the owner, the step and the order before each order arrives."""

    def __init__(self, event: Event | None = None) -> None:
        self.opened = 0
        self.asked: list[tuple[str, str]] = []  # owner, and name of the step
        self._event = event

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self.opened += 1
        fleet = InProcess(jointly=False).open(shares, folder)
        arrive = fleet.start

        def start(owner: str, step: Step, order: Order) -> Future[Any]:
            self.asked.append((owner, step.__name__))
            never: Future[Any] = Future()
            try:
                if self._event is not None and self._event(owner, step, order):
                    return never
            except OwnerLost as lost:
                never.set_exception(lost)
                return never
            return arrive(owner, step, order)

        fleet.start = start  # type: ignore[method-assign]
        return fleet

    def steps(self, owner: str = "south") -> list[str]:
        """The steps that this owner was asked for, in order."""
        return [step for name, step in self.asked if name == owner]


def lose(owner: str, step: str) -> Event:
    """Every order of this step to this owner gets lost."""

    def event(to: str, asked: Step, order: Order) -> None:
        if (to, asked.__name__) == (owner, step):
            raise OwnerLost(f"{owner}: gone")

    return event


def interrupt(number: int) -> Event:
    """Ctrl-C when this order, counted from 0, is on its way."""
    seen = iter(range(10**6))

    def event(to: str, asked: Step, order: Order) -> None:
        if next(seen) == number:
            raise KeyboardInterrupt

    return event
