"""Owners that are late, gone, or send what cannot be read: what an exchange with all owners does about them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedpact.errors import OptionError, OwnerLost
from fedpact.federation.fleet import check_count
from fedpact.federation.memory import Step
from fedpact.federation.messages import Order, Sealed
from fedpact.federation.tickets import back_off, report_late
from fedpact.federation.wire import SKIPPABLE

if TYPE_CHECKING:
    from fedpact.federation.session import Session


@dataclass(frozen=True)
class Policy:
    """What to do about an owner that is late, gone, or sends what cannot be read.

    on_failure:    "retry": send the order again; "stale": go on with its last reply where the algorithm allows that
                   (the inner rounds of "proximal-al"), else as "retry"; "stop": end at once
    deadline:      seconds an owner has for a reply; None: as long as it takes
    retries:       how often an order is sent again before the owner counts as lost
    max_staleness: rounds in a row that an old reply may stand in for
    """

    on_failure: Literal["retry", "stale", "stop"] = "retry"
    deadline: float | None = None
    retries: int = 8
    max_staleness: int = 3

    def __post_init__(self) -> None:
        if self.on_failure not in ("retry", "stale", "stop"):
            raise OptionError(
                f"on_failure = {self.on_failure!r}: choose 'retry', 'stale' or 'stop'", code="FP-OPTION-306"
            )
        seconds = self.deadline
        if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds <= threading.TIMEOUT_MAX):
            raise OptionError(
                f"deadline = {self.deadline!r}: give a positive number of seconds, or None", code="FP-OPTION-307"
            )
        check_count("retries", self.retries, least=0)
        check_count("max_staleness", self.max_staleness)


class Collector:
    """Collects the replies of an exchange under a policy, and remembers those that may stand in for later ones."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._last: dict[tuple[str, Step], tuple[int, Sealed[Any]]] = {}  # the round of the latest reply, and the reply

    def gather(self, session: Session, step: Step, orders: dict[str, Order], round: int) -> dict[str, Sealed[Any]]:
        """A reply from every owner. Raises OwnerLost when the policy is exhausted."""
        replies: dict[str, Sealed[Any]] = {}
        for attempt in range(self.policy.retries + 1):
            waiting = {owner: order for owner, order in orders.items() if owner not in replies}
            missing = self._attempt(session, step, waiting, round, replies)
            if self.policy.on_failure == "stale":
                for owner in [name for name in missing if self._is_recent(name, step, round)]:
                    replies[owner] = self._last[owner, step][1]
                    del missing[owner]
            if not missing:
                return replies
            if self.policy.on_failure == "stop" or attempt == self.policy.retries:
                break
            time.sleep(back_off(attempt))
        first = next(iter(missing.values()))
        raise OwnerLost("; ".join(map(str, missing.values())), code=first.code)

    def _attempt(
        self, session: Session, step: Step, orders: dict[str, Order], round: int, replies: dict[str, Sealed[Any]]
    ) -> dict[str, OwnerLost]:
        """Send the orders and fill in the replies that come in time. Returns the errors of the other owners."""
        began = time.monotonic()
        for owner, order in orders.items():
            session.ledger.down(owner, order)
        futures = session.fleet.start_all(step, orders)
        left = None
        if self.policy.deadline is not None:
            left = max(began + self.policy.deadline - time.monotonic(), 0.0)
        pending = [future for future in futures.values() if not future.done()]
        if pending:
            wait(pending, left)
        missing = {}
        for owner, future in futures.items():
            if not future.done():
                missing[owner] = report_late(owner, round, self.policy.deadline)
                continue
            try:
                replies[owner] = future.result()
            except OwnerLost as lost:
                missing[owner] = lost
                continue
            session.ledger.up(owner, replies[owner], round)
            session.acknowledge(owner, round)
            if self.policy.on_failure == "stale" and step in SKIPPABLE and not session.secured:
                self._last[owner, step] = (round, replies[owner])
        return missing

    def _is_recent(self, owner: str, step: Step, round: int) -> bool:
        """Whether an old reply of this owner to this step may stand in for a new one."""
        found = self._last.get((owner, step))
        return found is not None and round - found[0] <= self.policy.max_staleness
