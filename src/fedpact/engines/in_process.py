"""The default engine: every owner in this process, one after the other or in threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from fedpact.errors import OptionError
from fedpact.federation import Fleet, Order, Owner, Reply, Step


@dataclass(frozen=True)
class InProcess:
    """threads: how many owners work at the same time; results are the same for any number."""

    threads: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.threads, int) or self.threads < 1:
            raise OptionError(f"InProcess(threads={self.threads!r}): give a whole number of threads, at least one")

    def open(self, shares: Mapping[str, object]) -> Fleet:
        """A fleet over the shares, by owner name."""
        return _Local(shares, self.threads)


class _Local(Fleet):
    def __init__(self, shares: Mapping[str, object], threads: int) -> None:
        super().__init__(tuple(shares))
        self._owners = {name: Owner(name, share) for name, share in shares.items()}
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._last: dict[str, Future[Reply]] = {}

    def _start(self, owner: str, step: Step, order: Order) -> Future[Reply]:
        handle = self._owners[owner].handle
        if self._pool is not None:
            # An owner does one thing at a time, in the order asked; the pool starts work in that order too.
            self._last[owner] = self._pool.submit(_after, self._last.get(owner), handle, step, order)
            return self._last[owner]
        future: Future[Reply] = Future()
        try:
            future.set_result(handle(step, order))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _after(earlier: Future[Reply] | None, handle: Callable[[Step, Order], Reply], step: Step, order: Order) -> Reply:
    if earlier is not None:
        wait([earlier])
    return handle(step, order)
