"""Vertical problems, small and of the paper, engines that lose, delay and watch, and what is compared bit for bit."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.engines import InProcess
from fedpact.errors import OwnerLost
from fedpact.federation import Fleet, Order, Step
from fedpact_experiments import datasets

LOADERS = {
    "adult": datasets.vertical_adult,
    "compas": datasets.vertical_compas,
    "communities": datasets.vertical_communities,
}
EPS = 0.01
#: Columns of the three parties of `small`.
CUTS = {"bank": slice(0, 3), "shop": slice(3, 5), "clinic": slice(5, 8)}


@dataclass(frozen=True)
class Rows:
    X: np.ndarray
    y: np.ndarray
    group: np.ndarray


def rows(seed: int = 0, n: int = 150, groups: int = 2) -> Rows:
    """Related columns; the first group has far more positives, so the gap is bounded from above and active."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8)) @ (np.eye(8) + 0.3 * rng.normal(size=(8, 8)))
    group = rng.integers(0, groups, n)
    y = (X @ rng.normal(size=8) + 1.5 * (group == 0) + rng.normal(size=n) > 0.5).astype(int)
    return Rows(X, y, group)


def small(seed: int = 0, max_gap: Any = EPS, groups: int = 2, **options: Any) -> fp.VerticalProblem:
    made = rows(seed, groups=groups)
    group = None if max_gap is None else made.group
    return fp.VerticalProblem({name: made.X[:, cut] for name, cut in CUTS.items()}, made.y, group, max_gap, **options)


@functools.cache
def _table(name: str, folder: Path) -> datasets.VerticalTable:
    return LOADERS[name](folder)


@functools.cache
def real(name: str, seed: int, folder: Path) -> tuple[fp.VerticalProblem, float]:
    """The paper's training rows among six parties, eps = 0.01; and the optimum by the pooled interior point."""
    train = datasets.split(_table(name, folder), seed).train
    parties = {party: block.X for party, block in datasets.split_columns(train).items()}
    asked = fp.VerticalProblem(parties, train.y, train.group, EPS)
    return asked, pooled(asked).objective


def pooled(asked: fp.VerticalProblem, tol: float = 1e-8) -> fp.Solution:
    found = fp.solve(asked.pooled(), "interior-point", tol=tol)
    assert found.solved
    return found


def matrix(asked: fp.VerticalProblem) -> tuple[np.ndarray, np.ndarray]:
    """All columns, the intercept last, and the curvature of h."""
    holders = (*asked.shares, asked.server)
    return np.hstack([h.X for h in holders]), np.concatenate([h.curvature for h in holders])


def assert_certified(asked: fp.VerticalProblem, found: fp.Solution, by_squares: bool = False) -> None:
    """The answer's certificate is that of its w and multipliers, by code that did not make it.

    by_squares: it is of a point on the way, where the root of a sum of squares stands for the largest slope
    """
    again = fp.certify(asked.pooled(), found.w, [found.multipliers[0], np.zeros(0)])
    names = ["stationarity", "feasibility", "violation"]
    if by_squares:
        names.remove("stationarity")
        most = np.sqrt(len(asked.shares)) * again.stationarity
        assert again.stationarity * (1 - 1e-9) - 1e-13 <= found.certificate.stationarity <= most * (1 + 1e-9) + 1e-13
    for name in names:
        assert getattr(found.certificate, name) == pytest.approx(getattr(again, name), rel=1e-9, abs=1e-13), name


def misses(found: fp.Solution, optimum: float) -> np.ndarray:
    """(rounds, |loss / optimum - 1|, violation) of every judged point."""
    return np.array(
        [
            (r.rounds, abs(r.objective / optimum - 1), max(r.violations.values(), default=0.0))
            for r in found.history.outer
        ]
    )


def assert_same_run(one: fp.Solution, other: fp.Solution, *, traffic: bool = True) -> None:
    """Bit for bit; without `traffic` orders may have been sent more than once."""
    assert (one.status, one.reason, one.certificate) == (other.status, other.reason, other.certificate)
    assert one.w.tobytes() == other.w.tobytes()
    assert [m.tobytes() for m in one.multipliers] == [m.tobytes() for m in other.multipliers]
    assert [r.objective.hex() for r in one.history.outer] == [r.objective.hex() for r in other.history.outer]
    assert one.rounds == other.rounds
    if traffic:
        assert one.history == other.history
        assert one.communication == other.communication


# --------------------------------------------------------------------------------------------------------- engines


@dataclass
class Door:
    """The in-process engine behind a door; `what` says what happens to an order:

    ""            nothing
    "order lost"  it does not arrive, and the sender is told
    "reply lost"  the party does its work, and the sender is told that nothing came back
    "interrupt"   the user presses Ctrl-C just then
    a number      the party begins so many seconds later
    a function    the party begins when it returns
    """

    what: Callable[[str, Order], str | float | Callable[[], None]] = lambda owner, order: ""
    threads: int = 1
    states: dict[str, list[Any]] = field(default_factory=dict)  # of every party after each order it obeyed
    sent: list[tuple[str, Order, Any]] = field(default_factory=list)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet: Any = InProcess(self.threads).open(shares, folder)
        direct = fleet.start
        for name in shares:
            owner = fleet._owners[name]
            owner.handle = self._slow(name, owner, owner.handle)

        def start(name: str, step: Step, order: Order) -> Future[Any]:
            what = self.what(name, order)
            self.sent.append((name, order, what))
            if what == "interrupt":
                raise KeyboardInterrupt
            answered: Future[Any] = Future()
            if what != "order lost":
                answered = direct(name, step, order)
            if not isinstance(what, str) or not what:
                return answered
            lost: Future[Any] = Future()
            lost.set_exception(OwnerLost(f"{name}: its {what}"))
            return lost

        fleet.start = start
        return fleet

    def _slow(self, name: str, owner: Any, handle: Callable[..., Any]) -> Callable[..., Any]:
        def handled(step: Step, order: Order, task: Any) -> Any:
            pause = next((w for n, o, w in reversed(self.sent) if n == name and o.round == order.round), "")
            if isinstance(pause, float):
                time.sleep(pause)
            elif callable(pause):
                pause()
            reply = handle(step, order, task)
            self.states.setdefault(name, []).append(owner._memory.state)
            return reply

        return handled


def at_random(probability: float, kinds: tuple[str, ...], seed: int = 0) -> Callable[[str, Order], str]:
    rng, lock = np.random.default_rng(seed), threading.Lock()

    def what(owner: str, order: Order) -> str:
        with lock:
            return str(rng.choice(kinds)) if rng.random() < probability else ""

    return what


def gone(owner: str, after: int) -> Callable[[str, Order], str]:
    return lambda name, order: "order lost" if name == owner and order.round > after else ""


def stop_at(exchanges: int) -> Callable[[Any], None]:
    """A callback in which the user presses Ctrl-C, the first time so many exchanges were made."""

    def press(progress: Any) -> None:
        if progress.rounds >= exchanges:
            raise KeyboardInterrupt

    return press
