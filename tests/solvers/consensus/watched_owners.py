"""An engine that looks over the owners' shoulders, and the rounds of iFedDR rebuilt from what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.engines import InProcess
from fedpact.federation import Fleet, Order, Sealed, Step
from fedpact.problem import FederatedProblem


@dataclass
class Exchange:
    """One exchange: what was asked, what came back, and every owner's state after it."""

    step: str
    order: Any
    replies: list[Any] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    counted: Any = None


class Watching:
    """Owners in this process; every exchange is kept, with what `count` says after it."""

    def __init__(self, count: Callable[[], Any] = lambda: None) -> None:
        self._exchanges: dict[int, Exchange] = {}
        self.count = count

    @property
    def seen(self) -> list[Exchange]:
        return list(self._exchanges.values())

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet: Any = InProcess(jointly=False).open(shares, folder)
        start = fleet.start

        def watched(owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
            future: Future[Sealed[Any]] = start(owner, step, order)
            exchange = self._exchanges.setdefault(order.round, Exchange(step.__name__, order))
            exchange.replies.append(future.result().kept)
            exchange.states = [other._memory.state for other in fleet._owners.values() if other._memory is not None]
            exchange.counted = self.count()
            return future

        fleet.start = watched
        return fleet

    def rounds(self) -> list[list[Exchange]]:
        """Exchanges by round: one `advance` and the `refine`s after it."""
        found: list[list[Exchange]] = []
        for exchange in self.seen:
            if exchange.step == "advance":
                found.append([exchange])
            elif exchange.step == "refine":
                found[-1].append(exchange)
        return found


@dataclass(frozen=True)
class Seen:
    """(3.4) of one exchange, computed from the owners' own s_i and x_i with all owners at hand."""

    s: np.ndarray  # (N, d)
    x: np.ndarray
    gamma: float
    p: np.ndarray
    xi: float
    zeta: float
    mu: float
    error: float

    def passes(self, sigma: float) -> bool:
        return self.error <= sigma**2 * max(self.xi, self.zeta) * (1 + 1e-6)

    @property
    def rounding(self) -> float:
        """Squares below this are rounding."""
        return float(1e-26 * (1 + np.sum(self.s**2)))


def seen_by_all(problem: FederatedProblem, exchange: Exchange) -> Seen:
    holders = len(problem.shares)
    s = np.array([state.s for state in exchange.states])
    x = np.array([state.x for state in exchange.states])
    gamma = exchange.states[0].gamma
    F = np.array([holders * share.objective.gradient(at) for share, at in zip(problem.shares, x, strict=True)])
    v = s - gamma * F
    p = problem.regularizer.prox(np.mean(x - gamma * F, axis=0), gamma)
    return Seen(
        s,
        x,
        gamma,
        p,
        xi=float(np.sum((x - p) ** 2)),
        zeta=float(np.sum((v - p) ** 2)),
        mu=float(np.sum((x - p) * (v - p))),
        error=float(np.sum((v - x) ** 2)),
    )
