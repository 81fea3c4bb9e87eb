"""The door of a site: every order passes here before a step runs, and every reply before it leaves.

The policy decides, the audit log remembers; a site that is restarted reads from its log what it has answered before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.errors import FedpactError, Refused
from fedpact.federation.audit import AuditLog, read_log
from fedpact.federation.identity import Identity, signed_by, split_signed
from fedpact.federation.messages import Order, Sealed, hidden_fields, is_masked, payload, sealed_size
from fedpact.federation.policy import SitePolicy
from fedpact.federation.rules import (
    ABOUT_ORDER,
    ABOUT_PAST,
    ABOUT_REPLY,
    ABOUT_RUN,
    ABOUT_SUMS,
    ABOUT_TABLE,
    ABOUT_TASK,
    ABOUT_TOLD,
    Charter,
    Counts,
    Found,
    Past,
    Traffic,
    changed_field,
    check,
    constraints_of,
    method_stated,
)
from fedpact.federation.secure_sum import Peers
from fedpact.types import Buffer
from fedpact.watching import Watch

#: Rooms of fedpact whose steps belong to the method that their file is named after.
ROOMS = ("fedpact.solvers.constrained.", "fedpact.solvers.consensus.", "fedpact.solvers.vertical.")
#: Part of the rows that a job holds out, and its seed, where it holds out none.
PLAIN = [0.0, 0]
#: Two runs, one of which holds out less than this part of the rows and the other none, tell the rows between them.
NEAR = 0.25
#: Files there whose steps several methods share.
SHARED = ("local_steps", "splitting", "shared")
#: The end of a file's name that holds the owner's, or the party's, half of a method alone, or its standard errors.
HALF = re.compile("_(owner|party|errors)$")


@dataclass
class _Run:
    """What this site has answered in one run."""

    charter: str
    method: str = ""
    exchanges: int = 0
    questions: int = 0
    bytes: int = 0


class Gate:
    """Enforces a site's policy, fail-closed, and keeps its audit log.

    identity: the site's key, with which its replies are signed
    """

    def __init__(self, policy: SitePolicy, identity: Identity, audit: AuditLog) -> None:
        self.policy = policy
        self.identity = identity
        self.audit = audit
        self._runs: dict[str, _Run] = {}
        self._begun: list[dict[str, Any]] = []
        self._approved: set[str] = set()
        for entry in read_log(audit.folder):
            self._recall(entry)

    def _recall(self, entry: dict[str, Any]) -> None:
        """Count what the log says was answered."""
        event = entry["event"]
        if event == "run":
            self._begun.append(entry)
            self._runs[entry["run"]] = _Run(entry["charter"], entry.get("method", ""))
        elif event == "answer":
            self._count(self._runs[entry["run"]], entry)
        elif event == "approve":
            self._approved.add(entry["job"])

    @staticmethod
    def _count(run: _Run, entry: Mapping[str, Any]) -> None:
        run.exchanges += 1
        run.questions += bool(entry["told"])
        run.bytes += entry["bytes"]

    # --------------------------------------------------------------------------------------------------- what comes in

    def read(self, data: Buffer) -> tuple[Buffer, str]:
        """The message, and the public key of the coordinator that signed it."""
        signature, message = split_signed(data)
        for public in self.policy.coordinators.values():
            if signature and signed_by(public, "order", message, signature):
                return message, public
        raise Refused(f"{self.policy.name}: an order that no coordinator of its policy signed", code="FP-REFUSED-000")

    def admit(
        self,
        message: Mapping[str, Any],
        coordinator: str,
        order: Order,
        data: Callable[[], str],
        found: Callable[[Mapping[str, Any]], Mapping[str, Found]],
    ) -> Peers:
        """Judge an order before it runs: its run, its task, and what the run has asked so far.

        data: gives the digest of the table; found: the fields of a task that a fit finds
        Returns what the owner knows of the others, for secure sums.
        """
        charter = read_charter(message.get("charter"), coordinator)
        if charter.run != order.run:
            raise Refused(f"{self.policy.name}: an order under the charter of another run", code="FP-REFUSED-015")
        if message["task"] is not None:
            self.admit_task(message["task"], charter.job, found)
        self.admit_run(charter, data)
        self.admit_order(str(message["step"]), order)
        job = digest_of(charter.job)
        return Peers(
            self.policy.name,
            self.identity,
            self.policy.peers,
            charter.owners,
            self.policy.owners,
            job,
            digest_of(charter),
        )

    def admit_run(self, charter: Charter, data: Callable[[], str]) -> None:
        """Judge a run when its first order comes; later orders must belong to the same charter.

        data: gives the digest of the table; two runs on the same data must not differ by one owner or one category
        """
        digest = digest_of(charter)
        known = self._runs.get(charter.run)
        if known is not None:
            if known.charter != digest:
                raise Refused(
                    f"{self.policy.name}: the job, or who takes part, changed in the middle of a run",
                    code="FP-REFUSED-009",
                )
            return
        check(self.policy, ABOUT_RUN, charter)
        job = digest_of(charter.job)
        facts: dict[str, Any] = {
            "coordinator": charter.coordinator,
            "owners": charter.owners,
            "data": data(),
            "levels": _levels(charter.job),
            "held_out": _held_out(charter.job),
            "method": method_stated(charter.job),
        }
        past = Past(self._runs_today(), self._similar(facts), self._is_approved(job))
        if self.policy.approval and not past.approved:
            self.audit.write("await approval", job=job, stated=charter.job, owners=charter.owners)
        check(self.policy, ABOUT_PAST, past)
        self.audit.write("run", run=charter.run, charter=digest, job=job, **facts)
        self._begun.append({"run": charter.run, "time": datetime.now(UTC).isoformat(), **facts})
        self._runs[charter.run] = _Run(digest, facts["method"])

    def admit_task(
        self,
        task: Mapping[str, Any],
        job: Mapping[str, Any],
        found: Callable[[Mapping[str, Any]], Mapping[str, Found]] = lambda task: {},
    ) -> None:
        """Judge a task: it is the job of the run, but for what a fit finds on its way, within its range.

        found: gives these fields
        """
        check(self.policy, ABOUT_TASK, task)
        if changed := changed_field(task, job, found(task)):
            raise Refused(
                f"{self.policy.name}: {changed} of the task is neither the job's nor what a fit may find: what runs is "
                "what was approved",
                code="FP-REFUSED-052",
                key=changed,
            )

    def admit_table(self, counts: Counts) -> None:
        check(self.policy, ABOUT_TABLE, counts)

    def admit_sums(self, watch: Watch) -> None:
        check(self.policy, ABOUT_SUMS, watch)

    def admit_order(self, step: str, order: Order) -> None:
        run = self._runs[order.run]
        traffic = Traffic(method_of(step), run.exchanges + 1, run.bytes, longest(order), asked_steps(order), run.method)
        check(self.policy, ABOUT_ORDER, traffic)

    # ---------------------------------------------------------------------------------------------------- what goes out

    def release(self, step: str, order: Order, sealed: Sealed[Any]) -> None:
        """Write down what leaves. Refused when it holds sums in the clear that the policy wants masked, or tells more.

        Numbers of this owner alone are told as often as the policy says, in a whole run.
        """
        masked = is_masked(sealed.sums)
        check(self.policy, ABOUT_REPLY, bool(sealed.sums.size) and not masked)
        told = told_fields(sealed)
        run = self._runs[order.run]
        if told:
            check(self.policy, ABOUT_TOLD, run.questions + 1)
        entry = {
            "run": order.run,
            "round": order.round,
            "step": step,
            "told": told,
            "sums": int(sealed.sums.size),
            "masked": masked,
            "withheld": getattr(sealed.kept, "withheld", ""),
            "bytes": sealed_size(sealed),
        }
        self._count(run, entry)
        self.audit.write("answer", **entry)

    def refuse(self, error: Exception, step: str) -> None:
        """Write down a refusal, or a step that failed; the log is the owner's own, and may hold the whole text."""
        code = error.code if isinstance(error, FedpactError) else type(error).__name__
        self.audit.write("refuse", step=step, code=code, text=str(error))

    def _is_approved(self, job: str) -> bool:
        """Whether a person approved the job; written down when it is first noticed."""
        file = approval_file(self.policy, job)
        if job not in self._approved and file.exists():
            self.audit.write("approve", job=job, by=file.read_text().strip())
            self._approved.add(job)
        return job in self._approved

    # ------------------------------------------------------------------------------------------------------- the past

    def _runs_today(self) -> int:
        since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        return sum(entry["time"] >= since for entry in self._begun)

    def _similar(self, new: Mapping[str, Any]) -> int:
        """Earlier runs on the same data whose sums, beside those of this run, would tell one part of them alone."""
        found = 0
        for entry in self._begun:
            apart = set(entry["owners"]) ^ set(new["owners"])
            others = set(entry["levels"]) ^ set(new["levels"])
            near = _are_near(entry.get("held_out", PLAIN), new["held_out"])
            found += entry["data"] == new["data"] and (len(apart) + len(others) == 1 or near)
        return found


def approval_file(policy: SitePolicy, job: str) -> Path:
    """Says who approved the job with this digest, and when: `fedpact site approve` writes it, the site reads it."""
    return policy.state / "approved" / job


def read_charter(content: Any, coordinator: str) -> Charter:
    """The charter as it came with an order. Refused when it is none."""
    try:
        owners = tuple(str(name) for name in content["owners"])
        return Charter(str(content["run"]), coordinator, owners, dict(content["job"]))
    except (TypeError, KeyError, ValueError) as error:
        raise Refused("an order without the charter of its run", code="FP-REFUSED-016") from error


def told_fields(sealed: Sealed[Any]) -> list[str]:
    """Fields of a reply that tell numbers of this owner alone."""
    if not sealed.kept.tells:
        return []
    sums = hidden_fields(type(sealed.kept), is_masked(sealed.sums))
    values = {f.name: getattr(sealed.kept, f.name) for f in fields(sealed.kept) if f.name not in sums}
    return [name for name, value in values.items() if isinstance(value, float) or (np.ndim(value) and np.size(value))]


def method_of(step: str) -> str:
    """The method that a step belongs to; empty for one that all methods share.

    A method of one's own goes by the name of its module.
    """
    module = step.partition(":")[0]
    for room in ROOMS:
        if module.startswith(room):
            name = module.removeprefix(room)
            return "" if name in SHARED else HALF.sub("", name).replace("_", "-")
    return "" if module.startswith("fedpact.") else module


def longest(order: Order) -> int:
    """Of the vectors that an order holds, and of the lengths it asks for."""
    found = 0
    for name, value in payload(order).items():
        if isinstance(value, np.ndarray):
            found = max(found, value.size)
        elif name.endswith("length"):
            found = max(found, int(value))
    return found


def asked_steps(order: Order) -> int:
    """How many local steps an order asks for, by the names that methods have for them."""
    content = payload(order)
    return max(int(content.get(name, 0)) for name in ("steps", "updates"))


def digest_of(content: Charter | Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON."""
    plain = vars(content) if isinstance(content, Charter) else content
    return sha256(json.dumps(plain, sort_keys=True, default=list).encode()).hexdigest()


def _levels(job: Mapping[str, Any]) -> list[str]:
    """Every category that the job lists, with its column."""
    categories = job.get("categories") or {}
    return [f"{column}={level}" for column, levels in categories.items() for level in levels]


def _held_out(job: Mapping[str, Any]) -> list[float]:
    """The part of the rows that a job keeps out of training, and the seed of the choice; `PLAIN`: none."""
    confidences = [job.get("confidence"), *(one.get("confidence") for one in constraints_of(job))]
    if not any(confidences):
        return PLAIN
    return [job.get("holdout") or 0.0, job.get("split") or 0]


def _are_near(one: list[float], other: list[float]) -> bool:
    """Whether two jobs train on rows that differ by few: with one seed, the larger part holds out the smaller one's."""
    if one == other:
        return False
    plain = PLAIN in (one, other)
    return not plain or abs(one[0] - other[0]) < NEAR
