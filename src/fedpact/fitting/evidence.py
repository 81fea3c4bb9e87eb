"""What the owners sign about a finished fit, and the certificate that follows from it.

One exchange, `attest`: every owner recomputes at the returned pair its terms of the certificate and its measures, and
signs them. Whoever has the signed statements and the sealed sums can recompute the certificate (`Evidence.certificate`)
without any of the data; what is missing for that, the regularizer, follows from the task, whose digest is signed too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import OwnerError
from fedpact.federation import Order, Session, client_step
from fedpact.federation.evidence import Signed, canonical, pack, statement, unpack
from fedpact.federation.gate import digest_of
from fedpact.federation.identity import signed_by
from fedpact.federation.messages import Summed, rebuild, seal
from fedpact.federation.secure_sum import add_parts
from fedpact.fitting.agreement import Finished, Measured, measure
from fedpact.problem import Certificate, Measure, Misses, Share, round_up, weigh
from fedpact.problem.certificate import TOGETHER
from fedpact.solvers.steps import Judged, judged_terms, model_of
from fedpact.tasks import Task, read_task
from fedpact.tasks.base import SERVER
from fedpact.tasks.classification import Classification
from fedpact.tasks.decisions import Decisions
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------------- exchange


@dataclass(frozen=True, kw_only=True)
class Attest(Order):
    """The pair that a run returns.

    job:     digest of the job
    w, free: the model, and the one without constraints that it is compared with (empty: there is none)
    coupled: price of the coupled constraint
    prices:  of everyone's constraint, one after the other; lengths: JSON, of each of them by name
    """

    job: str
    w: Vector
    free: Vector
    coupled: Vector
    prices: Vector
    lengths: str


@dataclass(frozen=True, kw_only=True)
class Attested(Judged, Measured, Signed):
    """The terms of the certificate, and what the owner measures; all of it signed, its own residuals among it.

    model:  digest of the pair, as the owner got it
    convex: whether its objective and constraints are known to be convex
    before, and before_...: numbers, names, counts and cells of the other model's measures, under its own task
    promised_hits, promised_rows: held-out ones in every cell of the promises that the owner makes for itself, at the
             final threshold; empty where a cell is small
    proven:  whether these bear the promises out
    together_hits, together_rows: the same of what all owners promise together
    counted_hits, counted_rows: of the rows trained on, in every cell of what all owners bound together
    """

    feasibility: float
    violation: float
    private: float
    model: str
    convex: bool
    before: Vector
    before_names: str
    before_counts: Vector
    before_cells: Vector
    promised_hits: Vector
    promised_rows: Vector
    proven: bool
    together_hits: Summed[Vector]
    together_rows: Summed[Vector]
    counted_hits: Summed[Vector]
    counted_rows: Summed[Vector]

    def withhold(self, least: int) -> Self:
        now = _measured(self, MEASURED).withhold(least)
        none: dict[str, Any] = {"values": np.zeros(0), "withheld": "[]", "bare": True}
        then = replace(_measured(self, BEFORE), **none).withhold(least)
        named: dict[str, Any] = {field: getattr(then, name) for name, field in BEFORE.items()}
        if least:  # as they were told when the solve ended
            named |= {name: round_up(getattr(self, name)) for name in ("feasibility", "violation", "private")}
        if self.promised_rows.min(initial=np.inf) < least:
            named |= {"promised_hits": np.zeros(0), "promised_rows": np.zeros(0)}
        return replace(self, **vars(now), **named)


#: Fields of `Measured` -> those of `Attested`: about the model, and about the one without constraints.
MEASURED = {f.name: f.name for f in fields(Measured)}
BEFORE = {"names": "before_names", "numbers": "before", "counts": "before_counts", "cells": "before_cells"}


def _measured(attested: Attested, names: Mapping[str, str]) -> Measured:
    return Measured(**{"values": attested.values, **{name: getattr(attested, field) for name, field in names.items()}})


@client_step
def attest(share: Share, state: Any, order: Attest) -> tuple[Any, Attested]:
    """Judge and measure the returned pair once more; the owner signs what comes out."""
    prices = split_prices(order.prices, order.lengths)
    told = measure(share, state, Finished(w=order.w))[1]
    before = Measured.of(np.zeros(0), {})
    if order.free.size:
        before = measure(_as_compared(share), state, Finished(w=order.free))[1]
    point = model_of(share, state, order.w)
    return state, Attested(
        job=order.job,
        model=digest_of_pair(order.w, order.free, order.coupled, prices),
        convex=share.convex,
        **vars(told),
        **{field: getattr(before, name) for name, field in BEFORE.items()},
        **_count_decisions(share, point),
        **judged_terms(share, point, prices[share.label], order.coupled),
    )


def _as_compared(share: Share) -> Share:
    """The share as the model without constraints was measured: a promise has moved only the other one's threshold."""
    if not isinstance(share.measures, Decisions):
        return share
    return replace(share, measures=share.measures.unmoved)


def _count_decisions(share: Share, point: Vector) -> dict[str, Any]:
    """The fields of `Attested` about promises and joint bounds; there are none where nothing is decided."""
    none = (np.zeros(0), np.zeros(0))
    own, together, counted = none, none, none
    proven = True
    decisions = share.measures
    if isinstance(decisions, Decisions):
        counted = decisions.count_together(point)
        if decisions.rows.task.promised:
            own = decisions.count_promises(point)
            proven = decisions.keeps_promises(point)
            together = decisions.count_together(point, held_out=True)
    return {
        "promised_hits": own[0],
        "promised_rows": own[1],
        "proven": proven,
        "together_hits": together[0],
        "together_rows": together[1],
        "counted_hits": counted[0],
        "counted_rows": counted[1],
    }


def split_prices(prices: Vector, lengths: str) -> dict[str, Vector]:
    """The price of everyone's constraint, by name."""
    found = {}
    start = 0
    for name, length in json.loads(lengths).items():
        found[name] = prices[start : start + length]
        start += length
    return found


def digest_of_pair(w: Vector, free: Vector, coupled: Vector, prices: Mapping[str, Vector]) -> str:
    listed = {name: price.tolist() for name, price in prices.items()}
    return sha256(canonical([w.tolist(), free.tolist(), coupled.tolist(), listed])).hexdigest()


# ---------------------------------------------------------------------------------------------------------- evidence


@dataclass(frozen=True, eq=False)
class Testimony:
    """What one owner signed. key: public; sums: the sealed vector, of which the statement holds the digest"""

    key: str
    signature: str
    statement: Mapping[str, Any]
    sums: NDArray[Any]

    @property
    def signed(self) -> bool:
        return bool(self.key) and signed_by(
            self.key, "evidence", canonical(self.statement), bytes.fromhex(self.signature)
        )

    @property
    def told(self) -> Measured:
        said = {name: self.statement[name] for name in MEASURED}
        vectors = {name: np.array(value, dtype=float) for name, value in said.items() if isinstance(value, list)}
        return Measured(**{**said, **vectors})

    def bears_out(self, owner: str, task: Classification) -> bool:
        """Whether the owner's promises follow from the counts that it signed; its word where these are withheld."""
        if not self.statement["proven"]:
            return False
        hits, rows = (np.array(self.statement[name], dtype=float) for name in ("promised_hits", "promised_rows"))
        return not hits.size or task.promises_hold(owner, hits, rows)

    @property
    def before(self) -> dict[str, float]:
        """What it measured with the model without constraints, by name; empty when there is none."""
        return dict(zip(json.loads(self.statement["before_names"]), self.statement["before"], strict=True))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What all owners signed about one run; the coordinator's own table, where it has one, goes by the name "server".

    job, task: as they were stated; the task with its scaling and bounds
    prices:    of everyone's constraint, by name, the coordinator's first
    """

    run: str
    job: Mapping[str, Any]
    task: Mapping[str, Any]
    w: Vector
    free: Vector
    coupled: Vector
    prices: Mapping[str, Vector]
    said: Mapping[str, Testimony] = field(default_factory=dict)

    @property
    def order(self) -> Attest:
        """What the owners were asked."""
        return Attest(
            job=digest_of(self.job),
            w=self.w,
            free=self.free,
            coupled=self.coupled,
            prices=np.concatenate(list(self.prices.values())),
            lengths=json.dumps({name: price.size for name, price in self.prices.items()}),
        )

    def gather(self, session: Session, server: Share | None) -> Evidence:
        """One exchange: the same with what the owners of the session sign. server: the coordinator's own share.

        OwnerError, naming the owner, when a signature is not that of its key.
        """
        session.pose(read_task(self.task))
        replies = session.witness(attest, self.order)
        said = {}
        for owner in session.owners:
            sealed = replies[owner]
            said_here = statement(session.run, owner, sealed)
            said[owner] = Testimony(session.signers[owner], sealed.kept.signature, said_here, sealed.sums)
            if not said[owner].signed:
                raise OwnerError(
                    f"{owner}: its evidence is not signed with the key known as its own", code="FP-OWNER-631"
                )
        gathered = replace(self, run=session.run, said=said)
        if server is None:
            return gathered
        return replace(gathered, said={**said, SERVER: gathered.find_own(server)})

    def find_own(self, server: Share) -> Testimony:
        """The coordinator's own term; it signs the whole file, if it has a key. server: its share"""
        own = seal(attest(server, None, self.order)[1])
        return Testimony("", "", statement(self.run, SERVER, own), own.sums)

    def certificate(self) -> tuple[Certificate, float]:
        """Certificate and objective that follow from what was signed."""
        task: Task = read_task(self.task)
        total = self.total
        server = _rebuild(self.shapes, np.zeros(sum(map(math.prod, self.shapes))))
        if SERVER in self.said:
            server = _rebuild(self.shapes, self.said[SERVER].sums)
        said = {name: one.statement for name, one in self.said.items()}
        feasibility, violation, private = (
            [one[residual] for one in said.values()] for residual in ("feasibility", "violation", "private")
        )
        holders = sum(self.prices[name].size > 0 for name in said)
        misses = Misses(list(said), feasibility, violation, private, holders)
        return weigh(task.regularizer(), self.w, self.coupled, server, total, misses)

    @property
    def owners(self) -> dict[str, Testimony]:
        """What everybody but the coordinator signed."""
        return {name: one for name, one in self.said.items() if name != SERVER}

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the fields that are added up."""
        statements = [one.statement for one in self.owners.values()]
        return [tuple(shape) for shape in statements[0]["shapes"]]

    @property
    def cells_together(self) -> tuple[int, int]:
        """In how many cells rows are counted for what all owners hold together: of those held out, and trained on."""
        task = read_task(self.task)
        if not isinstance(task, Classification):
            return 0, 0
        cells = max((cells.stop for _, _, cells in task.cells_together()), default=0)
        return cells if task.promised else 0, cells

    def together(self) -> dict[str, Measure]:
        """The values of what all owners bound together, over the rows of all, as their sums give them."""
        task = read_task(self.task)
        if not isinstance(task, Classification) or not task.coupled:
            return {}
        return task.tell_together(self.total.counted_hits, self.total.counted_rows)

    @property
    def total(self) -> Attested:
        """The sums of all owners."""
        return _rebuild(self.shapes, add_parts([one.sums for one in self.owners.values()]))

    def unproven(self) -> list[str]:
        """Whose promises their held-out rows do not bear out, as they signed; TOGETHER: what all promise together."""
        task = read_task(self.task)
        if not isinstance(task, Classification) or not task.promised:
            return []
        found = [name for name, one in self.owners.items() if not one.bears_out(name, task)]
        if not task.promises_hold_together(self.total.together_hits, self.total.together_rows):
            found.append(TOGETHER)
        return found

    # -------------------------------------------------------------------------------------------------------- as JSON

    def to_json(self) -> dict[str, Any]:
        said = {}
        for name, one in self.said.items():
            said[name] = {**vars(one), "sums": pack(one.sums)}
        return {
            "run": self.run,
            "job": json.loads(json.dumps(self.job, default=list)),
            "task": self.task,
            "w": self.w.tolist(),
            "free": self.free.tolist(),
            "coupled": self.coupled.tolist(),
            "prices": [[name, price.tolist()] for name, price in self.prices.items()],
            "said": said,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` gave. ValueError, KeyError or TypeError when it is none."""
        said = {}
        everyone = [name for name, _ in content["prices"]]
        for name in sorted(content["said"], key=lambda name: (name == SERVER, everyone.index(name))):  # as in the run
            one = content["said"][name]
            sums = unpack(one["sums"], one["statement"]["masked"])
            said[name] = Testimony(**{**one, "sums": sums})
        vectors = {name: np.array(content[name], dtype=float) for name in ("w", "free", "coupled")}
        prices = {name: np.array(price, dtype=float) for name, price in content["prices"]}
        return cls(content["run"], content["job"], content["task"], prices=prices, said=said, **vectors)


def _rebuild(shapes: list[tuple[int, ...]], sums: Vector) -> Attested:
    """The summed terms; there is none of which only the largest counts."""
    return rebuild(Attested, shapes, sums, (), masked=False)
