"""The door of a site: every order passes here before a step runs, and every reply before it leaves.

The policy decides, the audit log remembers; a site that is restarted reads from its log what it has answered before.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.errors import FedpactError, Refused
from fedpact.federation.audit import AuditLog, read_log
from fedpact.federation.identity import Identity, signed_by, split_signed
from fedpact.federation.messages import Order, Sealed, hidden_fields, is_masked, payload, sealed_size
from fedpact.federation.policy import SitePolicy
from fedpact.federation.releases import Releases
from fedpact.federation.rules import (
    ABOUT_ERRORS,
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
    told_labels,
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


#: Steps with rules of their own: who concluded with a model may be asked once for what is near its boundaries.
CONCLUDE = "fedpact.solvers.steps:conclude"
INFER = "fedpact.solvers.equations:infer_share"
#: Fields read owner by owner that hold nothing of its rows: how a share is made, who answers, how much it worked.
# fmt: off
NO_NUMBERS = frozenset({
    "names", "before_names", "cell", "withheld", "uncovered", "defects", "wrong", "cone", "coupled", "dim", "split",
    "columns", "people", "peers", "public", "signature", "job", "task", "table", "time", "model", "gradients",
    "hessians",
})
# fmt: on
#: Messages of strangers that a site writes down in a day; of more it counts the powers of ten.
STRANGERS = 20
#: Characters of an error that are written down.
TEXT = 2000


class Gate:
    """Enforces a site's policy, fail-closed, and keeps its audit log.

    identity: the site's key, with which its replies are signed
    releases: what has left the table, by run
    """

    def __init__(self, policy: SitePolicy, identity: Identity, audit: AuditLog) -> None:
        self.policy = policy
        self.identity = identity
        self.audit = audit
        self.releases = Releases()
        self._begun: list[dict[str, Any]] = []
        self._approved: set[str] = set()
        self._strangers: Counter[str] = Counter()
        for entry in read_log(audit.folder):
            self._recall(entry)

    def _recall(self, entry: dict[str, Any]) -> None:
        """Count what the log says was answered."""
        self.releases.note(entry)
        if entry["event"] == "run":
            self._begun.append(entry)
        elif entry["event"] == "approve":
            self._approved.add(entry["job"])

    def _write(self, event: str, **facts: Any) -> None:
        """Write an entry to the log, and count it."""
        self._recall(self.audit.write(event, **facts))

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
        rows: Callable[[], Iterable[bytes]] = tuple,
    ) -> Peers:
        """Judge an order before it runs: its run, its task, and what the run has asked so far.

        data: gives the digest of the table; found: the fields of a task that a fit finds; rows: gives the table's rows
        Returns what the owner knows of the others, for secure sums.
        """
        charter = read_charter(message.get("charter"), coordinator)
        if charter.run != order.run:
            raise Refused(f"{self.policy.name}: an order under the charter of another run", code="FP-REFUSED-015")
        if (known := self.releases.runs.get(charter.run)) is not None:
            check(self.policy, ABOUT_ERRORS, known.errors)
        if message["task"] is not None:
            self.admit_task(message["task"], charter.job, found)
        self.admit_run(charter, data, rows)
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

    def admit_run(self, charter: Charter, data: Callable[[], str], rows: Callable[[], Iterable[bytes]] = tuple) -> None:
        """Judge a run when its first order comes; later orders must belong to the same charter.

        data: gives the digest of the table; two runs on the same data must not differ by one owner or one category
        rows: gives its rows; two runs on versions of one table must not differ by a few of them
        """
        digest = digest_of(charter)
        known = self.releases.runs.get(charter.run)
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
            "label": str(charter.job.get("label") or ""),
            "label_to": told_labels(charter.job, charter.owners, self.policy.name),
        }
        changed = self._compare_rows(facts["data"], rows)
        approved = self._is_approved(job)
        others = () if approved else self._other_owners(facts)
        past = Past(self.releases.begun_since(1), self._similar(facts), approved, self.releases.told, others, changed)
        if (self.policy.approval or others) and not approved:
            asked = {"stated": charter.job, "owners": charter.owners, "coordinator": charter.coordinator}
            self.audit.write("await approval", job=job, **asked)
        check(self.policy, ABOUT_PAST, past)
        self._write("run", run=charter.run, charter=digest, job=job, **facts)

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
        run = self.releases.runs[order.run]
        traffic = Traffic(
            method_of(step),
            run.exchanges + 1,
            run.bytes,
            longest(order),
            asked_steps(order),
            run.method,
            self.releases.released + 1,
        )
        check(self.policy, ABOUT_ORDER, traffic)
        if step == INFER and (run.steps[INFER] or model_digest(order) not in run.models):
            raise Refused(
                f"{self.policy.name}: standard errors are told once, of a model that the run has ended with",
                code="FP-REFUSED-649",
            )

    # ---------------------------------------------------------------------------------------------------- what goes out

    def release(self, step: str, order: Order, sealed: Sealed[Any], rows: float = math.inf) -> None:
        """Write down what leaves. Refused when it holds sums in the clear that the policy wants masked, or tells more.

        Numbers of this owner alone are told as often as the policy says, in a whole run, and in a month.
        rows: the fewest effective rows behind its sums
        """
        masked = is_masked(sealed.sums)
        check(self.policy, ABOUT_REPLY, bool(sealed.sums.size) and not masked)
        told = told_fields(sealed)
        run = self.releases.runs[order.run]
        if told:
            check(self.policy, ABOUT_TOLD, (run.questions + 1, self.releases.told + 1))
        self._write(
            "answer",
            run=order.run,
            round=order.round,
            step=step,
            told=told,
            sums=int(sealed.sums.size),
            masked=masked,
            withheld=getattr(sealed.kept, "withheld", ""),
            bytes=sealed_size(sealed),
            rows=None if rows == math.inf else round(rows, 1),
            model=model_digest(order) if step == CONCLUDE else "",
        )

    def refuse(self, error: Exception, step: str, run: str = "") -> None:
        """Write down a refusal, or a step that failed; the log is the owner's own, and may hold the whole text.

        run: in which an order was signed; empty: nobody knows who sent the message, and many of them are not written
        """
        code = error.code if isinstance(error, FedpactError) else type(error).__name__
        again = {}
        if not run:
            today = datetime.now(UTC).date().isoformat()
            self._strangers[today] += 1
            number = self._strangers[today]
            if number > STRANGERS and number != 10 ** round(math.log10(number)):
                return
            again = {"today": number}
        self._write("refuse", run=run, step=step[:TEXT], code=code, text=str(error)[:TEXT], **again)

    def _is_approved(self, job: str) -> bool:
        """Whether a person approved the job; written down when it is first noticed."""
        file = approval_file(self.policy, job)
        if job not in self._approved and file.exists():
            self.audit.write("approve", job=job, by=file.read_text().strip())
            self._approved.add(job)
        return job in self._approved

    # ------------------------------------------------------------------------------------------------------- the past

    def _other_owners(self, new: Mapping[str, Any]) -> tuple[str, ...]:
        """Owners of the last run about the same label, where they are others: sums over several sets tell one apart."""
        before = [set(entry["owners"]) for entry in self._begun if entry.get("label", "") == new["label"]]
        if not before or before[-1] == set(new["owners"]):
            return ()
        return tuple(sorted(before[-1]))

    def _compare_rows(self, data: str, rows: Callable[[], Iterable[bytes]]) -> int:
        """The fewest rows by which this table differs from an earlier version that was run on; 0: from none.

        Of every version a list of salted digests of its rows is kept, which tells nobody but the site anything.
        """
        if not data:
            return 0
        folder = self.policy.state / "rows"
        file = folder / f"{data}.txt"
        if file.exists():
            return 0
        salt = self.identity.sign("rows", b"salt")
        own = Counter(blake2b(row, key=salt[:64], digest_size=8).hexdigest() for row in rows())
        if not own:
            return 0
        apart = []
        for version in {str(entry["data"]) for entry in self._begun}:
            path = folder / f"{version}.txt"
            if path.exists():
                earlier = Counter(path.read_text().split())
                apart.append((own - earlier).total() + (earlier - own).total())
        fewest = min(apart, default=0)
        if not 0 < fewest < self.policy.rows_changed:  # else it is refused, and nothing was run on it
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(file, "\n".join(sorted(own.elements())))
        return fewest

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
    """Fields of a reply that tell numbers of this owner alone, whatever their type."""
    if not sealed.kept.tells:
        return []
    sums = hidden_fields(type(sealed.kept), is_masked(sealed.sums))
    values = {f.name: getattr(sealed.kept, f.name) for f in fields(sealed.kept) if f.name not in sums}
    return [name for name, value in values.items() if name not in NO_NUMBERS and _is_told(value)]


def _is_told(value: Any) -> bool:
    """Whether a value may hold a number of the rows; a flag says one bit."""
    if isinstance(value, bool | np.bool_) or value is None:
        return False
    return bool(np.size(value)) if np.ndim(value) else value != ""


def model_digest(order: Order) -> str:
    """Of the model that an order is about; empty where there is none."""
    w = getattr(order, "w", None)
    return "" if w is None else sha256(np.ascontiguousarray(w, dtype=np.float64).tobytes()).hexdigest()


def write_private(path: Path, text: str) -> None:
    """A file that nobody else on the machine reads."""
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as target:
        target.write(text)


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
