"""A coordinator that does not keep to the protocol, against sites with their policies: what it gets, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from site_files import LENIENT, SiteEngine, Sites, write_sites

import fedpact as fp
from fedpact.errors import Refused
from fedpact.federation import Site
from fedpact.federation.audit import read_log
from fedpact.federation.identity import Identity, open_signed, sign_message, split_signed
from fedpact.federation.messages import seal
from fedpact.federation.secure_sum import EXACT, Offer, Peers, add, decode, fit_of, largest_root, negative, offer
from fedpact.federation.wire import STEPS, dumps, from_tree, loads, order_type, reply_type, sealed_from_tree
from fedpact.tasks import FileSource, NeymanPearson
from fedpact.types import Vector

pytest.importorskip("cryptography")

OWNERS = ("north", "south", "coast")
COLUMNS = ("age", "dose")
#: What is asked of the sites; three owners and secure sums are what they require by default.
JOB = NeymanPearson(bound=0.6, label="y", columns=COLUMNS, owners=3)
RULES = {**LENIENT, "require": {**LENIENT["require"], "owners": 3}}


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for seed, owner in enumerate(OWNERS):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 2))
        y = (X @ [1.0, -0.5] + rng.normal(size=40) > 0).astype(int)
        lines = [f"{a!r},{b!r},{label}" for (a, b), label in zip(X.tolist(), y, strict=True)]
        found[owner] = tmp_path / f"{owner}.csv"
        found[owner].write_text("\n".join(["age,dose,y", *lines, ""]))
    return found


@pytest.fixture
def sites(tmp_path: Path, tables: dict[str, Path]) -> Sites:
    return write_sites(tmp_path / "sites", tables, features=COLUMNS, rules=RULES)


def solve(sites: Sites, tamper: Any = None, owners: tuple[str, ...] = OWNERS, **settings: Any) -> fp.Solution:
    return observe(sites, tamper, owners, **settings)[0]


def observe(
    sites: Sites, tamper: Any = None, owners: tuple[str, ...] = OWNERS, **settings: Any
) -> tuple[fp.Solution, SiteEngine]:
    """The solution, and all that went back and forth."""
    engine = SiteEngine(sites, tamper)
    given: dict[str, Any] = {
        "identity": sites.key,
        "roster": sites.roster,
        "retries": 0,
        "secure_sum": True,
        **settings,
    }
    with fp.Session(engine, **given) as session:
        weight = fp.prox.SquaredL2(0.01)
        problem = fp.RemoteProblem(dict.fromkeys(owners), regularizer=weight, task=replace(JOB, owners=len(owners)))
        return fp.solve(problem, "interior-point", tol=1e-6, session=session), engine


def resign(sites: Sites, data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """An order with a change that the coordinator made, under its own signature."""
    message = loads(split_signed(data)[1])
    change(message)
    return sign_message(Identity.load(sites.key), "order", dumps(message))


def events(sites: Sites, owner: str) -> list[dict[str, Any]]:
    return list(read_log(sites.policies[owner].parent / f"{owner} state" / "audit"))


def test_honest_it_gets_the_model_and_every_order_is_in_the_log(sites: Sites) -> None:
    found, engine = observe(sites)
    assert found.solved
    for owner in OWNERS:
        answers = [entry for entry in events(sites, owner) if entry["event"] == "answer"]
        assert len(answers) == [name for name, _ in engine.sent].count(owner)
        assert all(entry["masked"] for entry in answers if entry["sums"])


# ---------------------------------------------------------------------------------------------------- forged peers


def test_a_coordinator_that_plays_all_peers_is_refused_by_name(sites: Sites) -> None:
    """It hands `south` keys of its own as those of `north` and `coast`; with them it could take the masks off."""
    mine = {name: offer(Peers(name), None, Offer(run="x"))[1].public for name in ("north", "coast")}

    def forge(message: dict[str, Any]) -> None:
        publics = json.loads(message["order"]["publics"])
        message["order"]["publics"] = json.dumps(
            [mine.get(name, public) for name, public in zip(OWNERS, publics, strict=True)]
        )

    def tamper(owner: str, data: bytes, site: Site) -> bytes:
        if owner == "south" and b"secure_sum:agree" in data:
            data = resign(sites, data, forge)
        return site.handle(data)

    with raises_code("FP-REFUSED-014", "south: "):
        solve(sites, tamper)
    (refused,) = [entry for entry in events(sites, "south") if entry["event"] == "refuse"]
    assert refused["code"] == "FP-REFUSED-014"
    assert "'north'" in refused["text"]
    assert not any(entry["event"] == "answer" and entry["sums"] for entry in events(sites, "south"))


def test_another_key_under_a_sites_name_is_refused(sites: Sites, tables: dict[str, Path], tmp_path: Path) -> None:
    """Who registered with Flower as "south" and is not: its replies are not signed with south's key."""
    impostors = write_sites(tmp_path / "impostors", tables, features=COLUMNS, rules=RULES)
    mixed = replace(sites, policies={**sites.policies, "south": impostors.policies["south"]})
    with raises_code("FP-OWNER-600", "south: "):
        solve(mixed)


def test_a_reply_that_was_changed_on_its_way_is_refused(sites: Sites) -> None:
    def tamper(owner: str, data: bytes, site: Site) -> bytes:
        reply = site.handle(data)
        return reply[:-1] + bytes([reply[-1] ^ 1]) if owner == "coast" else reply

    with raises_code("FP-OWNER-600", "coast: "):
        solve(sites, tamper)


# ------------------------------------------------------------------------------------------------- privacy switched off


def test_secure_sums_cannot_be_switched_off(sites: Sites) -> None:
    with raises_code("FP-REFUSED-007", "north: "):
        solve(sites, secure_sum=False)
    assert not any(entry["event"] == "answer" and entry["sums"] for owner in OWNERS for entry in events(sites, owner))


def test_a_sum_over_too_few_is_refused(sites: Sites) -> None:
    with raises_code("FP-REFUSED-004", "north: "):
        solve(sites, owners=("north", "south"))


def test_runs_with_and_without_one_owner_are_refused(sites: Sites, tmp_path: Path, tables: dict[str, Path]) -> None:
    """The difference of their sums is that owner's alone."""
    rules = {**RULES, "require": {**RULES["require"], "owners": 2}, "limit": {**RULES["limit"], "similar_runs": 0}}
    wary = write_sites(tmp_path / "sites", tables, features=COLUMNS, rules=rules)
    assert solve(wary).solved
    with raises_code("FP-REFUSED-012", "north: "):
        solve(wary, owners=("north", "south"))


def test_who_takes_part_cannot_change_in_the_middle(sites: Sites) -> None:
    orders: list[str] = []

    def drop(message: dict[str, Any]) -> None:
        message["charter"]["owners"] = ["north", "south", "coast", "harbour"]

    def tamper(owner: str, data: bytes, site: Site) -> bytes:
        orders.append(owner)
        if orders.count(owner) > 3:
            data = resign(sites, data, drop)
        return site.handle(data)

    with raises_code("FP-REFUSED-009", "north: "):
        solve(sites, tamper)


def test_an_order_in_another_runs_name_is_refused(sites: Sites) -> None:
    def rename(message: dict[str, Any]) -> None:
        message["order"]["run"] = "another"

    with raises_code("FP-REFUSED-015", "north: "):
        solve(sites, lambda owner, data, site: site.handle(resign(sites, data, rename)))


def test_orders_of_whoever_reaches_the_port_are_refused(sites: Sites, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    Identity.create(stranger)
    with raises_code("FP-REFUSED-000", "north: "):
        solve(sites, identity=stranger)


def test_a_coordinator_switches_no_rule_off(sites: Sites) -> None:
    """Whatever it adds to its orders and its charter, the policy is read from the site's own file only."""

    def add_everything(message: dict[str, Any]) -> None:
        for place in (message, message["charter"], message["charter"]["job"]):
            place |= {"secure_sums": False, "policy": {}, "require": {"secure_sums": False}, "approved": True}

    with raises_code("FP-REFUSED-007", "north: "):
        solve(sites, lambda owner, data, site: site.handle(resign(sites, data, add_everything)), secure_sum=False)


# ---------------------------------------------------------------------------------------------------- the transcript


def test_nothing_in_the_transcript_is_one_owners_own(sites: Sites, tables: Mapping[str, Path]) -> None:
    """All masked messages of an owner beside what it would have sent in the clear, and all their differences."""
    found, engine = observe(sites)
    assert found.solved
    for owner in OWNERS:
        share = FileSource(owner, tables[owner])(JOB)
        masked, plain = masked_and_plain(engine, sites, owner, share)
        assert len(masked) > 5
        for (sent, width), value in zip(masked, plain, strict=True):
            assert not np.any(np.isclose(decode(sent, width), value, rtol=1e-9, atol=0.0))
        for i, (sent, width) in enumerate(masked):
            for j in range(i):
                other, of_other = masked[j]
                if other.shape == sent.shape and width == of_other:
                    difference = decode(add(sent, negative(other)), width)
                    assert not np.any(np.abs(difference - (plain[i] - plain[j])) < 1e-6)


def masked_and_plain(engine: SiteEngine, sites: Sites, owner: str, share: Any) -> tuple[list[Any], list[Vector]]:
    """What the owner sent, with its width, and what the same steps give without masks: the orders are known."""
    masked: list[Any] = []
    plain: list[Vector] = []
    state: Any = None
    sent = [loads(split_signed(data)[1]) for name, data in engine.sent if name == owner]
    received = [
        open_signed(data, sites.roster[owner], "reply", owner) for name, data in engine.received if name == owner
    ]
    for message, reply in zip(sent, received, strict=True):
        step = STEPS[message["step"]]
        if "secure_sum:" in message["step"]:
            continue
        order = from_tree(order_type(step), message["order"], "order")
        sealed = sealed_from_tree(reply_type(step), loads(reply)["reply"])
        state, answer = step(share, state, order)
        bare = seal(answer, most=largest_root(len(OWNERS)))
        fit = fit_of(order, bare, len(OWNERS))
        if fit is not None:
            masked += zip(fit.split(sealed.sums), fit.widths, strict=True)
            plain += [bare.sums[fit.kinds == kind] for kind in range(4)]
        elif sealed.sums.size:
            masked.append((sealed.sums, EXACT))
            plain.append(bare.sums)
    return masked, plain


def test_a_refusal_holds_a_code_and_nothing_else(sites: Sites) -> None:
    replies: list[bytes] = []

    def tamper(owner: str, data: bytes, site: Site) -> bytes:
        replies.append(site.handle(data))
        return replies[-1]

    with pytest.raises(Refused):
        solve(sites, tamper, secure_sum=False)
    answers = [loads(split_signed(reply)[1]) for reply in replies]
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert [{name: value for name, value in error.items() if value} for error in errors] == [
        {"code": "FP-REFUSED-007"}
    ] * len(OWNERS)
