"""Owners in other processes: orders and replies as bytes. An engine only has to bring bytes to an owner and back."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.errors import FedpactError, OptionError, OwnerError, OwnerLost, WireError
from fedpact.federation.failure import UNEXPECTED, Failure
from fedpact.federation.fleet import Fleet
from fedpact.federation.forgetting import forget
from fedpact.federation.gate import Gate
from fedpact.federation.identity import open_signed, sign_message, split_signed
from fedpact.federation.memory import Step
from fedpact.federation.messages import Order, Sealed, not_finite
from fedpact.federation.metrics import METRICS
from fedpact.federation.owner import Owner, Sourced, named
from fedpact.federation.rules import Finding, Found, Rowed
from fedpact.federation.secure_sum import Peers
from fedpact.federation.wire import (
    STEPS,
    TEXT,
    check_text,
    dumps,
    from_tree,
    loads,
    name_of,
    order_type,
    reply_type,
    sealed_from_tree,
    sealed_to_tree,
    text_length,
    to_tree,
)
from fedpact.types import Buffer

#: Bytes a message may have: a matrix of 8,000 variables, masked.
LARGEST = 2**29
#: Who an order to all owners of one organisation is for.
EVERYONE = ""
#: Runs that a site keeps in memory; of earlier ones it finds the memory on disk.
RUNS = 4

log = logging.getLogger("fedpact.site")


class Site:
    """An owner's process: bytes in, bytes out. Everything that goes wrong becomes a reply that says so (`Failure`).

    source:    makes the share, here, from the task that the coordinator states (`Owner`)
    folder:    where the owner's memory is kept on its own disk
    durable:   whether that memory must survive the machine, too, rather than this process alone
    full_text: send the text of errors too; only where owner and coordinator are one organisation, since it may quote
               cells and name files and columns. Otherwise it goes to the log "fedpact.site" and nowhere else
    gate:      enforces the site's policy; None where owner and coordinator are one organisation
    peers:     what the owner knows of itself and of the others, where there is no gate to say it
    """

    def __init__(
        self,
        name: str,
        source: object,
        folder: Path | None = None,
        *,
        durable: bool = True,
        full_text: bool = False,
        gate: Gate | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.name = name
        self._first = source
        self._source = source
        self._folder = folder
        self._durable = durable
        self._full_text = full_text
        self._gate = gate
        self._peers = peers
        self._owners: dict[str, Owner] = {}
        self._forget()

    def hold(self, source: object) -> None:
        """Other shares from now on, see `Owner.hold`."""
        self._source = source
        for owner in self._owners.values():
            owner.hold(source)

    def handle(self, data: Buffer) -> bytes:
        """Answer the bytes of an order; never raises. A site with a policy signs what it answers."""
        began = time.monotonic()
        reply = self._handle(data)
        if self._gate is not None:
            reply = sign_message(self._gate.identity, "reply", reply)
        METRICS.count_order(len(reply), time.monotonic() - began)
        return reply

    def _handle(self, data: Buffer) -> bytes:
        message: dict[str, Any] = {}
        coordinator = ""
        try:
            with named(self.name, "handling an order"):
                if self._gate is None:
                    data = split_signed(data)[1]
                else:
                    data, coordinator = self._gate.read(data)
                message = read_message(data, needed=("owner", "step", "order", "task"), text=TEXT)
                return dumps(self._answer(message, coordinator))
        except Exception as error:
            if self._gate is not None:
                self._gate.refuse(error, str(message.get("step", "")), run_of(message) if coordinator else "")
            task = message.get("task")
            if self._full_text:
                return _failed(replace(Failure.of(error, task), text=str(error)))
            if self._gate is not None:
                return refuse(error, task, self._gate.policy.small_cells)
            return refuse(error, task)

    def _answer(self, message: dict[str, Any], coordinator: str) -> dict[str, Any]:
        to_all = message["owner"] == EVERYONE and self._gate is None
        if message["owner"] != self.name and not to_all:
            raise OwnerError(f"got an order for {message['owner']!r}", code="FP-OWNER-008")
        step = STEPS.get(str(message["step"]))
        if step is None:
            raise OwnerError(
                f"asked to run {message['step']!r}, which is no step of a method that this site knows: it runs those "
                "of its fedpact, and of modules that are installed here and that its app imports",
                code="FP-OWNER-009",
            )
        order: Order = from_tree(order_type(step), message["order"], "order")
        peers = self._peers
        if self._gate is not None:
            peers = self._gate.admit(message, coordinator, order, self._digest, self._found, self._rows)
        owner = self._owner(order.run, peers)
        sealed = owner.handle(step, order, message["task"])
        if self._gate is not None and not owner.repeated:  # what is answered from memory has left before
            self._gate.release(message["step"], order, sealed, owner.watch.rows)
        return {"run": order.run, "round": order.round, "reply": sealed_to_tree(sealed)}

    def _found(self, task: Mapping[str, Any]) -> Mapping[str, Found]:
        """The fields of a task that a fit finds; a source that does not know of any lets none change."""
        return self._source.found(task) if isinstance(self._source, Finding) else {}

    def _rows(self) -> Iterable[bytes]:
        """Of the table, where the source knows them."""
        return self._source.rows() if isinstance(self._source, Rowed) else ()

    def _digest(self) -> str:
        """Of the data, where the source knows it."""
        return self._source.digest() if isinstance(self._source, Sourced) else ""

    def _owner(self, run: str, peers: Peers | None) -> Owner:
        """The owner of this run; a new one reads its data anew, which may have changed since the run before."""
        if run not in self._owners:
            while len(self._owners) >= RUNS:
                del self._owners[next(iter(self._owners))]
            self._forget()
            METRICS.count_run()
            rules: dict[str, Any] = {"durable": self._durable}
            if self._gate is not None:
                rules |= {"admit": self._gate.admit_table, "behind": self._gate.admit_sums}
                rules |= {"small_cells": self._gate.policy.small_cells}
            self._owners[run] = Owner(self.name, copy(self._first), self._folder, peers=peers, **rules)
            if self._source is not self._first:
                self._owners[run].hold(copy(self._source))
        return self._owners[run]

    def _forget(self) -> None:
        """Erase old runs from the disk; where owner and coordinator are one organisation, the checkpoint has them."""
        if self._folder is not None and not self._full_text:
            forget(self._folder)


def run_of(message: Mapping[str, Any]) -> str:
    """The run that an order says it belongs to; empty where it says nothing."""
    order = message.get("order")
    return str(order.get("run", ""))[:64] if isinstance(order, Mapping) else ""


def refuse(error: Exception, job: object = None, small_cells: int = 0) -> bytes:
    """A reply for a coordinator of another organisation; the whole error goes to the log of this site."""
    failure = Failure.of(error, job, small_cells)
    METRICS.count_refusal(failure.code)
    trace = error if failure.code == UNEXPECTED else None  # whoever wrote the failing code needs it
    log.error("%s: %s", failure.code, error, exc_info=trace)
    return _failed(failure)


def _failed(failure: Failure) -> bytes:
    return dumps({"error": to_tree(failure)})


def read_message(data: Buffer, needed: Sequence[str] = (), text: int | None = None) -> dict[str, Any]:
    """The message in these bytes. WireError when they are too many, damaged, or lack an entry that is needed.

    text: bytes of them that may stand beside arrays
    """
    if len(data) > LARGEST:
        raise WireError(f"a message of {len(data)} bytes is over the limit of {LARGEST}", code="FP-WIRE-001")
    message = loads(data, text)
    if not isinstance(message, dict) or set(needed) - message.keys():
        raise WireError("this is not a message between a coordinator and a site", code="FP-WIRE-002")
    return message


class RemoteFleet(Fleet):
    """Owners elsewhere. An engine supplies `send`; what comes back is checked before an algorithm sees it."""

    @abstractmethod
    def send(self, owner: str, data: bytes) -> Future[bytes]:
        """Bring the bytes to the owner, without waiting; the future fails with OwnerLost when that cannot be done."""

    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        return self.expect(owner, step, order, self.send(owner, self.encode(owner, step, order)))

    def encode(self, owner: str, step: Step, order: Order) -> bytes:
        """An order on its way to the owner; to EVERYONE, where all are of one organisation."""
        if STEPS.get(name_of(step)) is not step:
            raise OptionError(
                f"{name_of(step)} is not registered: decorate it with fedpact.federation.client_step",
                code="FP-OPTION-304",
            )
        task = self.task.stated() if self.task is not None else None
        entries = {"owner": owner, "step": name_of(step), "order": to_tree(order), "task": task}
        data = dumps({**entries, "charter": dict(self.charter)})
        if len(data) > LARGEST:
            raise OptionError(
                f"an order of {len(data)} bytes is over the limit of {LARGEST}; use fewer variables",
                code="FP-OPTION-305",
            )
        check_text(text_length(data), TEXT)
        if self.identity is not None:
            data = sign_message(self.identity, "order", data)
        return data

    def expect(self, owner: str, step: Step, order: Order, sent: Future[Any]) -> Future[Sealed[Any]]:
        """The owner's reply, once its bytes are there; checked."""
        answered: Future[Sealed[Any]] = Future()

        def receive(sent: Future[Any]) -> None:
            try:
                reply = split_signed(sent.result())[1]
                if self.roster:
                    reply = open_signed(sent.result(), self.roster[owner], "reply", owner)
                answered.set_result(read_reply(owner, step, order, reply))
            except FedpactError as error:
                answered.set_exception(error)
            except Exception as error:
                words = f"{owner}: its reply did not arrive ({type(error).__name__}: {error})"
                answered.set_exception(OwnerLost(words, code="FP-LOST-301"))

        sent.add_done_callback(receive)
        return answered


def read_reply(owner: str, step: Step, order: Order, data: Buffer) -> Sealed[Any]:
    """Read the reply in these bytes.

    Raises OwnerLost, naming the owner, when they are too many, damaged, not what was asked for, of another round, or
    not finite; the owner's own error when it reported one.
    """
    try:
        message = read_message(data)
        if "error" in message:
            error = from_tree(Failure, message["error"], "error").to_error(owner)
            if isinstance(error, WireError):  # the order was damaged on its way: send it again
                raise OwnerLost(str(error), code=error.code)
            raise error
        if (message.get("run"), message.get("round")) != (order.run, order.round):
            raise WireError(
                f"a reply to round {message.get('round')} came instead of {order.round}", code="FP-WIRE-311"
            )
        sealed = sealed_from_tree(reply_type(step), message.get("reply"))
        expected = np.uint64 if order.secure and sealed.sums.size else np.float64  # masked, or plain
        if sealed.sums.dtype != expected:
            raise WireError(f"its sums are {sealed.sums.dtype}, {expected.__name__} were asked for", code="FP-WIRE-312")
    except WireError as unread:
        raise OwnerLost(f"{owner}: {unread}", code=unread.code) from unread
    bad = not_finite(sealed.kept)
    if not np.all(np.isfinite(sealed.sums)):
        bad = "sum"
    if bad is not None:
        raise OwnerLost(f"{owner}: its {type(sealed.kept).__name__} has a non-finite {bad}", code="FP-LOST-302")
    return sealed
