"""One owner's side of the door: it runs a step on its share, keeps the state, and remembers what it answered.

The memory is in this process and, when a folder is given, on the owner's own disk, so an owner that was killed goes on
where it was. It is keyed by run and round.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpact.errors import FedpactError, OwnerError, OwnerLost, WireError
from fedpact.federation import secure_sum
from fedpact.federation.messages import Order, Reply, Sealed, not_finite, payload, seal, size, summed_fields
from fedpact.federation.wire import (
    dumps,
    from_tree,
    loads,
    name_of,
    resolve,
    sealed_from_tree,
    sealed_to_tree,
    to_tree,
    write_atomically,
)

#: A pure function of (share, state, order); it runs where the data is. State is None before the first step.
Step = Callable[[Any, Any, Any], tuple[Any, Reply]]
VERSION = 1


@contextmanager
def named(owner: str, what: str) -> Iterator[None]:
    """Errors raised inside come out with the owner's name: our own kinds as they are, all others as OwnerError."""
    try:
        yield
    except FedpactError as error:
        if str(error).startswith(f"{owner}:"):
            raise
        raise type(error)(f"{owner}: {error}") from error
    except Exception as error:
        raise OwnerError(f"{owner}: {what} failed with {type(error).__name__}: {error}") from error


class Owner:
    """Holds a share and the state between rounds of one run. Every engine runs its owners through this class.

    source: the share, or a function without arguments that builds it here
    folder: where the memory is also kept on disk; a subfolder by owner and run
    every:  write the memory after every round (an owner in a process of its own), or only when told to by `save`
    """

    def __init__(self, name: str, source: object, folder: Path | None = None, *, every: bool = True) -> None:
        self.name = name
        self._source, self._share = source, None if callable(source) else source
        self._folder, self._every = folder, every
        self._run: str | None = None
        self._state: Any = None
        self._keys: secure_sum.Keys | None = None
        self._round = 0
        self._answers: dict[int, tuple[Order | str, Sealed[Any]]] = {}  # by round: the order, or its key, and the reply

    def handle(self, step: Step, order: Order) -> Sealed[Any]:
        """Run the step, or return the stored reply when this round was answered before (so a lost reply costs nothing).

        Raises OwnerError, naming this owner, when the order is of another run or of a past round, when the step fails,
        or when the reply holds a NaN, an infinity or what cannot travel; OwnerLost when the server counts on a round
        that this owner does not remember. The state changes only when the step succeeded.
        """
        if self._run is None:
            self._load(order.run)
        if order.run != self._run:
            raise OwnerError(f"{self.name}: got an order of run {order.run!r} during run {self._run!r}")
        if order.look:
            return self._worked(step, order)[1]
        if order.round in self._answers:
            before, sealed = self._answers[order.round]
            if (before if isinstance(before, str) else key_of(before)) != key_of(order):
                raise OwnerError(f"{self.name}: round {order.round} was answered before, for another order")
            return sealed
        if order.round <= self._round:
            raise OwnerError(f"{self.name}: got an order of round {order.round} after round {self._round}")
        if order.after > self._round:
            raise OwnerLost(
                f"{self.name}: has no memory of round {order.after}, its last is {self._round}; it was restarted "
                "without its state folder, or with an older copy of it"
            )
        (self._state, self._keys), sealed = self._worked(step, order)
        self._round = order.round
        self._answers = {r: a for r, a in self._answers.items() if r > order.durable}
        self._answers[order.round] = (order, sealed)
        if self._every:
            self.save()
        return sealed

    @property
    def share(self) -> Any:
        if self._share is None and callable(self._source):
            with named(self.name, "building its share"):
                self._share = self._source()
        return self._share

    def _worked(self, step: Step, order: Order) -> tuple[tuple[Any, secure_sum.Keys | None], Sealed[Any]]:
        about_keys = step in (secure_sum.offer, secure_sum.agree)
        share = None if about_keys else self.share
        with named(self.name, getattr(step, "__name__", "a step")):
            after, reply = step(share, self._keys if about_keys else self._state, order)
            size(reply)
            if (bad := not_finite(reply)) is not None:
                raise OwnerError(
                    f"{step.__name__} gave a non-finite {bad}; check this owner's data and functions for NaN, "
                    "infinities and overflow (scaling the columns often helps)"
                )
            sealed = self._masked(step, order, reply) if order.secure else seal(reply)
        return ((self._state, after) if about_keys else (after, self._keys)), sealed

    def _masked(self, step: Step, order: Order, reply: Reply) -> Sealed[Any]:
        sealed = seal(reply)
        if not sealed.sums.size:
            return sealed
        if self._keys is None or not self._keys.shared:
            raise OwnerLost("has no keys for a secure sum; it was restarted without its state folder")
        secure_sum.check_range(
            {f"{type(reply).__name__}.{name}": getattr(reply, name) for name in summed_fields(type(reply))},
            len(self._keys.shared),
        )
        return Sealed(sealed.kept, sealed.shapes, secure_sum.protect(sealed.sums, self._keys, key_of(order)))

    # -------------------------------------------------------------------------------------------------------- the disk

    def save(self) -> None:
        """Write the memory to the folder, if there is one."""
        if self._folder is None or self._run is None:
            return
        answers = [
            {
                "round": r,
                "key": order if isinstance(order, str) else key_of(order),
                "type": name_of(type(sealed.kept)),
                "reply": sealed_to_tree(sealed),
            }
            for r, (order, sealed) in self._answers.items()
        ]
        memory = {
            "version": VERSION,
            "owner": self.name,
            "run": self._run,
            "round": self._round,
            "type": name_of(type(self._state)),
            "state": to_tree(self._state),
            "keys": to_tree(self._keys),
            "answers": answers,
        }
        write_atomically(self._path(self._run), dumps(memory))

    def _load(self, run: str) -> None:
        path = None if self._folder is None else self._path(run)
        if path is not None and path.exists():
            try:
                memory = loads(path.read_bytes())
                if memory["version"] != VERSION or memory["owner"] != self.name or memory["run"] != run:
                    raise WireError("it belongs to another owner, run or version")
                self._state = from_tree(resolve(memory["type"]), memory["state"], "state")
                self._keys = from_tree(secure_sum.Keys | None, memory["keys"], "keys")
                self._answers = {
                    a["round"]: (a["key"], sealed_from_tree(resolve(a["type"]), a["reply"])) for a in memory["answers"]
                }
                self._round = memory["round"]
            except (WireError, KeyError, TypeError) as error:
                raise OwnerLost(f"{self.name}: its memory of run {run} cannot be used: {error}") from error
        self._run = run

    def _path(self, run: str) -> Path:
        assert self._folder is not None
        if not re.fullmatch(r"[\w-]{1,64}", run):
            raise OwnerError(f"{self.name}: {run!r} is not the name of a run")
        return self._folder / re.sub(r"[^\w-]", "_", self.name) / f"{run}.state"


def key_of(order: Order) -> str:
    """What an order asks, in one line: equal for repeated orders, the same at all owners that get the same order."""
    content = dumps([name_of(type(order)), payload(order)])
    return f"{order.run} {order.round} {order.look} {hashlib.sha256(content).hexdigest()}"
