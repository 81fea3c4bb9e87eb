"""What an owner remembers of a run, and the file on its own disk that survives it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpact.errors import OwnerError, OwnerLost
from fedpact.federation import secure_sum
from fedpact.federation.aligned import Aligned
from fedpact.federation.forgetting import ENDED, SIGNED, STATE
from fedpact.federation.messages import Order, Reply, Sealed, payload
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
#: Of a memory on disk; one of another version is refused.
VERSION = 6


@dataclass(frozen=True)
class Memory:
    """What an owner remembers; replaced as a whole, so that an interrupt leaves either the old or the new one.

    run:     which solve it is of
    round:   the last one that was answered
    state:   what the last step left
    keys:    of secure sums
    aligned: of parties that hold columns: which of its rows are everybody's
    answers: by round, what was asked (or its key, when read from disk) and the reply
    data:    digests of the shares that this was computed from; none before the first step and when nothing is on disk
    look:    number of the last look
    ended:   the coordinator has said that the run is over; state, keys and answers are gone
    """

    run: str
    round: int = 0
    state: Any = None
    keys: secure_sum.Keys | None = None
    aligned: Aligned | None = None
    answers: Mapping[int, tuple[tuple[Step, Order, str] | str, Sealed[Any]]] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    look: int = 0
    ended: bool = False


class Disk:
    """The memories of one owner as files of a folder, one a run; without a folder it holds nothing.

    durable: whether a memory must survive the machine, too, rather than this process alone
    """

    def __init__(self, owner: str, folder: Path | None, durable: bool) -> None:
        self.owner = owner
        self.folder = folder
        self.durable = durable
        self._written: Memory | None = None

    def save(self, memory: Memory) -> None:
        if self.folder is None or memory is self._written:
            return
        answers = []
        for number, (asked, sealed) in memory.answers.items():
            kind = name_of(type(sealed.kept))
            reply = sealed_to_tree(sealed)
            answers.append({"round": number, "key": key_of_asked(asked), "type": kind, "reply": reply})
        content = {
            "version": VERSION,
            "owner": self.owner,
            "run": memory.run,
            "data": list(memory.data),
            "round": memory.round,
            "type": name_of(type(memory.state)),
            "state": to_tree(memory.state),
            "keys": to_tree(memory.keys),
            "aligned": to_tree(memory.aligned),
            "look": memory.look,
            "answers": answers,
        }
        write_atomically(self._path(memory.run, memory.ended), dumps(content), self.durable)
        self._written = memory

    def load(self, run: str) -> Memory:
        """The memory of a run; an empty one when there is none. Raises OwnerLost when it cannot be used."""
        if self.folder is None:
            return Memory(run)
        ended = self._path(run, ended=True).exists()
        path = self._path(run, ended)
        if not path.exists():
            return Memory(run)
        try:
            content = loads(path.read_bytes())
            if content["version"] != VERSION or content["owner"] != self.owner or content["run"] != run:
                raise ValueError("it belongs to another owner, run or version")
            return Memory(
                run,
                from_tree(int, content["round"], "round"),
                from_tree(resolve(content["type"]), content["state"], "state"),
                from_tree(secure_sum.Keys | None, content["keys"], "keys"),
                from_tree(Aligned | None, content["aligned"], "aligned"),
                {a["round"]: (a["key"], sealed_from_tree(resolve(a["type"]), a["reply"])) for a in content["answers"]},
                from_tree(tuple[str, ...], content["data"], "data"),
                from_tree(int, content["look"], "look"),
                ended,
            )
        except (ValueError, KeyError, TypeError) as error:  # a WireError is a ValueError
            words = f"{self.owner}: its memory of run {run} cannot be used: {error}"
            raise OwnerLost(words, code="FP-LOST-002") from error

    def keep_signed(self, run: str, signed: Mapping[str, Any]) -> None:
        """Append what the owner signed about a run, for its own eyes; it is kept when the run is over."""
        if self.folder is None:
            return
        path = self._path(run).with_suffix(SIGNED)
        path.parent.mkdir(parents=True, exist_ok=True)
        private = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with open(private, "a", encoding="utf-8") as file:
            file.write(json.dumps(signed, sort_keys=True) + "\n")

    def forget(self, run: str) -> None:
        """All but what is left of a run that has ended."""
        if self.folder is not None:
            self._path(run).unlink(missing_ok=True)

    def _path(self, run: str, ended: bool = False) -> Path:
        assert self.folder is not None
        if not re.fullmatch(r"[\w-]{1,64}", run):
            raise OwnerError(f"{self.owner}: {run!r} is not the name of a run", code="FP-OWNER-007")
        digest = hashlib.sha256(self.owner.encode()).hexdigest()[:8]  # "a b" and "a_b" are two owners
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.owner)[:40]
        return self.folder / f"{name}-{digest}" / f"{run}{ENDED if ended else STATE}"


def key_of_asked(asked: tuple[Step, Order, str] | str) -> str:
    """The key of what was asked, which a memory from disk holds in its place."""
    if isinstance(asked, str):
        return asked
    return key_of(*asked)


def key_of(step: Step, order: Order, request: str = "") -> str:
    """What an order asks, in one line: equal for repeated orders, the same at all owners that get the same order.

    request: what is asked with it, the charter of the run and the task; owners that got others have other keys
    """
    content = dumps([name_of(step), name_of(type(order)), payload(order), request])
    return f"{order.run} {order.round} {order.look} {hashlib.sha256(content).hexdigest()}"
