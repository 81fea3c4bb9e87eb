"""The default engine: every owner in this process, one after the other, in threads or in one computation.

With a deadline every step has a thread of its own, which may be left behind: nothing can end a step that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from fedpact.federation import Fleet, Order, Owner, Sealed, Step, check_count
from fedpact.federation.crew import Crew
from fedpact.federation.identity import Identity
from fedpact.federation.messages import Joint
from fedpact.federation.secure_sum import Peers


@dataclass(frozen=True)
class InProcess:
    """threads: how many owners work at the same time; results are the same for any number.

    More than one and a deadline: all of them.

    jointly: owners whose functions are of one kind answer in one computation where the method has one
             (`interior-point`): the same bits, many times faster for small tables. Not with threads, a deadline, a
             checkpoint, a record or secure sums, which are about the messages of single owners
    """

    threads: int = 1
    jointly: bool = True

    def __post_init__(self) -> None:
        check_count("threads", self.threads)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        """A fleet over the shares, by owner name; their memory is kept in the folder, if one is given."""
        return _Local(shares, self.threads, folder, self.jointly)


class _Owners(dict[str, Owner]):
    """Owners by name, made when they are first asked: thousands that answer in one computation never are."""

    def __init__(self, shares: Mapping[str, object], folder: Path | None) -> None:
        super().__init__()
        self._shares = shares
        self._folder = folder

    def __missing__(self, name: str) -> Owner:
        self[name] = Owner(name, self._shares[name], self._folder, every=False)
        return self[name]


class _Local(Fleet):
    def __init__(self, shares: Mapping[str, object], threads: int, folder: Path | None, jointly: bool) -> None:
        super().__init__(tuple(shares))
        self._owners = _Owners(shares, folder)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._latest: dict[str, Future[Sealed[Any]]] = {}
        self._crew: Crew | None = None
        if jointly and threads == 1 and folder is None:
            self._crew = Crew(shares, self._owners)

    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        if self._crew is not None:
            self._crew.disband(order)
        handle = self._owners[owner].handle
        if self._pool is None and self.deadline is None:
            future: Future[Sealed[Any]] = Future()
            try:
                future.set_result(handle(step, order, self.task))
            except Exception as error:
                future.set_exception(error)
            return future
        # An owner does one thing at a time, in the order asked; the pool starts work in that order too.
        work = partial(_after, self._latest.get(owner), handle, step, order, self.task)
        if self.deadline is not None:
            self._latest[owner] = _in_thread(work)
            if self._pool is None:
                wait([self._latest[owner]], self.deadline)  # one owner after the other, each with its own time
        elif self._pool is not None:
            self._latest[owner] = self._pool.submit(work)
        return self._latest[owner]

    def answer_jointly(self, step: Step, order: Order) -> Joint[Any] | None:
        if self._crew is None or self.deadline is not None:
            return None
        return self._crew.answer(step, order, self.task)

    def hold(self, sources: Mapping[str, object]) -> None:
        if self._crew is not None:
            self._crew.hold(sources)
        for name, source in sources.items():
            self._owners[name].hold(source)

    def introduce(self, keys: Mapping[str, Path], publics: Mapping[str, str]) -> None:
        for name, path in keys.items():
            self._owners[name].introduce(Peers(name, Identity.load(path), publics))

    def states(self) -> Mapping[str, Any]:
        if self._crew is not None:
            return dict(zip(self.owners, self._crew.states(), strict=True))
        return {name: self._owners[name].state for name in self.owners}

    def keep(self) -> None:
        for owner in self._owners.values():
            owner.save()  # of one that is at work, where it was before: the order will be sent again

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _in_thread(work: Callable[[], Sealed[Any]]) -> Future[Sealed[Any]]:
    """Begin the work in a thread that does not keep the process alive."""
    future: Future[Sealed[Any]] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # as executors do: also Ctrl-C in a user's function, which ends the solve
            future.set_exception(error)

    Thread(target=run, name="owner", daemon=True).start()
    return future


def _after(
    earlier: Future[Sealed[Any]] | None,
    handle: Callable[[Step, Order, Any], Sealed[Any]],
    step: Step,
    order: Order,
    task: Any,
) -> Sealed[Any]:
    if earlier is not None:
        wait([earlier])
    return handle(step, order, task)
