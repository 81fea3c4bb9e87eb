"""What a site allows: the file, the rules, the log, and the keys."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.errors import CheckpointError, FedpactError, OptionError, OwnerError, Refused
from fedpact.federation import audit
from fedpact.federation.audit import AuditLog, read_log
from fedpact.federation.gate import Gate, approval_file, longest, method_of
from fedpact.federation.identity import SMALL_ORDER, Identity, check_public_keys, open_signed, sign_message, signed_by
from fedpact.federation.messages import Order, Reply, Summed, seal
from fedpact.federation.policy import SitePolicy, read_policy
from fedpact.federation.rules import Charter, Counts, Found, meets
from fedpact.federation.wire import STEPS
from fedpact.solvers import METHODS
from fedpact.tasks.requirements import KINDS

pytest.importorskip("cryptography")

COORDINATOR = "c" * 64
JOB = {"task": "neyman_pearson", "columns": ["age", "dose"], "label": "ill", "group": "", "bound": 0.2}
OPEN = SitePolicy(
    name="a",
    data=Path("rows.csv"),
    state=Path("state"),
    key=Path("a.key"),
    coordinators={"registry": COORDINATOR},
    peers={"b": "b" * 64, "c": "d" * 64},
    features=("age", "dose", "name"),
    labels=("ill", "dead"),
    groups=("sex",),
    tasks=("neyman_pearson", "group_fairness"),
    secure_sums=False,
    owners=1,
    rows=0,
    rows_per_class=0,
    rows_per_group=0,
    rows_per_parameter=0.0,
    methods=("interior-point", "vertical-exact"),
    vertical_exact=True,
    similar_runs=100,
    same_owners=False,
    length=10**9,
    constraints=100,
)


def code_of(error: pytest.ExceptionInfo[FedpactError]) -> str:
    return error.value.code


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return Identity.create(tmp_path / "a.key")


def gate(folder: Path, identity: Identity, **rules: Any) -> Gate:
    return Gate(replace(OPEN, **rules), identity, AuditLog(folder / "audit"))


def charter(run: str = "r1", **changes: Any) -> Charter:
    return replace(Charter(run, COORDINATOR, ("a", "b", "c"), JOB), **changes)


# ------------------------------------------------------------------------------------------------------------- rules


@dataclass(frozen=True, kw_only=True)
class Answer(Reply):
    violation: float
    gradient: Summed[Any]


ADVANCE = "fedpact.solvers.constrained.interior_point:advance"
EXACT = "fedpact.solvers.vertical.vertical_exact_party:sketch"


def asked(
    site: Gate,
    changes: dict[str, Any],
    task: dict[str, Any],
    counts: Counts,
    order: Order,
    times: int,
    step: str = ADVANCE,
) -> None:
    """What a coordinator asks of a site, from the first order to the last reply."""
    site.admit_run(charter(**changes), lambda: "digest")
    asked_for = {**JOB, **task}
    site.admit_task(asked_for, asked_for)
    site.admit_table(counts)
    for _ in range(times):
        site.admit_order(step, order)
        site.release("step", order, seal(Answer(violation=1.0, gradient=np.zeros(4))))


@dataclass(frozen=True, kw_only=True)
class Ask(Order):
    w: Any = None
    coupled_length: int = 0
    steps: int = 0


RECALL = {"kind": "recall", "at_least": 0.9, "at_most": None, "of": "1", "held_by": "each", "confidence": 0.0}
TABLE = Counts(100, (50, 50), (40, 60), 3)
#: Code -> the rule, and what is refused with it and answered without it.
ATTACKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FP-REFUSED-001": ({"coordinators": {"registry": "e" * 64}}, {}),
    "FP-REFUSED-002": ({"name": "z", "peers": {"a": "a" * 64, "b": "b" * 64, "c": "d" * 64}}, {}),
    "FP-REFUSED-003": ({"peers": {"b": "b" * 64}}, {}),
    "FP-REFUSED-004": ({"owners": 4}, {}),
    "FP-REFUSED-005": ({"tasks": ("group_fairness",)}, {}),
    "FP-REFUSED-006": ({"methods": ("accelerated",)}, {}),
    "FP-REFUSED-007": ({"secure_sums": True}, {}),
    "FP-REFUSED-010": ({"approval": True}, {}),
    "FP-REFUSED-011": ({"runs_a_day": 0}, {}),
    "FP-REFUSED-020": ({"tasks": ("neyman_pearson",)}, {"task": {"task": "group_fairness"}}),
    "FP-REFUSED-021": ({"features": ("age", "dose")}, {"task": {"columns": ["age", "name"]}}),
    "FP-REFUSED-022": ({"labels": ("ill",)}, {"task": {"label": "dead"}}),
    "FP-REFUSED-023": ({"groups": ()}, {"task": {"group": "sex"}}),
    "FP-REFUSED-024": ({"values": {"bound": {"least": 0.1, "most": 0.5}}}, {"task": {"bound": 0.01}}),
    "FP-REFUSED-030": ({"rows": 101}, {}),
    "FP-REFUSED-050": ({"kinds": ("recall",)}, {"task": {"constraints": [RECALL, {**RECALL, "kind": "accuracy"}]}}),
    "FP-REFUSED-051": ({"constraints": 12}, {"task": {"constraints": [RECALL] * 13}}),
    "FP-REFUSED-031": ({"rows_per_class": 51}, {}),
    "FP-REFUSED-032": ({"rows_per_group": 41}, {}),
    "FP-REFUSED-033": ({"rows_per_parameter": 34.0}, {}),
    "FP-REFUSED-040": ({"exchanges": 2}, {"times": 3}),
    "FP-REFUSED-041": ({"questions": 2}, {"times": 4}),
    "FP-REFUSED-042": ({"bytes": 50}, {"times": 4}),
    "FP-REFUSED-043": ({"length": 1000}, {"order": Ask(run="r1", coupled_length=10**8)}),
    "FP-REFUSED-045": ({"vertical_exact": False}, {"step": EXACT}),
    "FP-REFUSED-044": ({"local_steps": 100}, {"order": Ask(run="r1", steps=10**4)}),
}


@pytest.mark.parametrize("code", ATTACKS)
def test_a_rule_refuses_what_succeeds_without_it(code: str, tmp_path: Path, identity: Identity) -> None:
    rule, attack = ATTACKS[code]
    request: dict[str, Any] = {"changes": {}, "task": {}, "counts": TABLE, "order": Ask(run="r1"), "times": 1, **attack}
    asked(gate(tmp_path / "open", identity), **request)
    with pytest.raises(Refused) as error:
        asked(gate(tmp_path / "ruled", identity, **rule), **request)
    assert code_of(error) == code


def test_a_site_that_states_nothing_allows_nothing(tmp_path: Path, identity: Identity) -> None:
    (tmp_path / "site.toml").write_text('[site]\nname = "a"\ndata = "x"\nstate = "s"\nkey = "k"\n')
    policy = read_policy(tmp_path / "site.toml")
    with pytest.raises(Refused):
        Gate(policy, identity, AuditLog(tmp_path / "audit")).admit_run(charter(), lambda: "digest")
    assert policy.secure_sums
    assert policy.tasks == policy.features == ()
    assert not policy.vertical_exact


def test_a_run_keeps_its_charter(tmp_path: Path, identity: Identity) -> None:
    site = gate(tmp_path, identity)
    site.admit_run(charter(), lambda: "digest")
    site.admit_run(charter(), lambda: "digest")
    with pytest.raises(Refused) as error:
        site.admit_run(charter(owners=("a", "b")), lambda: "digest")
    assert code_of(error) == "FP-REFUSED-009"


@pytest.mark.parametrize(
    ("changes", "data", "similar"),
    [
        ({"owners": ("a", "b")}, "digest", True),
        ({"owners": ("a", "b", "c")}, "digest", False),
        ({"owners": ("a",)}, "digest", False),
        ({"owners": ("a", "b")}, "other", False),
        ({"job": {**JOB, "categories": {"sex": ["m", "f", "x"]}}}, "digest", True),
        ({"job": {**JOB, "categories": {"sex": ["m"]}}}, "digest", True),
        ({"job": {**JOB, "categories": {"sex": ["x", "y"]}}}, "digest", False),
    ],
)
def test_two_runs_that_differ_by_one(
    changes: dict[str, Any], data: str, similar: bool, tmp_path: Path, identity: Identity
) -> None:
    job = {**JOB, "categories": {"sex": ["m", "f"]}}
    gate(tmp_path, identity, similar_runs=0).admit_run(charter(job=job), lambda: "digest")
    site = gate(tmp_path, identity, similar_runs=0)  # started again: the log remembers
    later = charter("r2", **{"job": job, **changes})
    if not similar:
        site.admit_run(later, lambda: data)
        return
    with pytest.raises(Refused) as error:
        site.admit_run(later, lambda: data)
    assert code_of(error) == "FP-REFUSED-012"


def test_limits_hold_across_a_restart(tmp_path: Path, identity: Identity) -> None:
    asked(gate(tmp_path, identity, exchanges=3), {}, {}, TABLE, Ask(run="r1"), 3)
    with pytest.raises(Refused) as error:
        asked(gate(tmp_path, identity, exchanges=3), {}, {}, TABLE, Ask(run="r1"), 1)
    assert code_of(error) == "FP-REFUSED-040"


def test_a_person_approves_a_job_once(tmp_path: Path, identity: Identity) -> None:
    rules = {"approval": True, "state": tmp_path / "state"}
    site = gate(tmp_path, identity, **rules)
    with pytest.raises(Refused):
        site.admit_run(charter(), lambda: "digest")
    waiting = [entry for entry in read_log(tmp_path / "audit") if entry["event"] == "await approval"]
    approved = approval_file(site.policy, waiting[0]["job"])
    approved.parent.mkdir(parents=True)
    approved.write_text("ada\n")
    gate(tmp_path, identity, **rules).admit_run(charter("r2"), lambda: "digest")
    noticed = [entry for entry in read_log(tmp_path / "audit") if entry["event"] == "approve"]
    assert [entry["by"] for entry in noticed] == ["ada"]
    with pytest.raises(Refused):
        site.admit_run(charter("r3", job={**JOB, "bound": 0.1}), lambda: "digest")


@pytest.mark.parametrize(
    ("value", "condition", "met"),
    [
        (0.2, 0.2, True),
        (0.2, {"least": 0.1}, True),
        (0.2, {"most": 0.1}, False),
        ("loss", ["loss", "rate"], True),
        ("odds", ["loss", "rate"], False),
        ({"a": 0.2, "b": 9.0}, {"most": 0.5}, True),
        ({"b": 0.2}, {"most": 0.5}, False),
        (None, {"most": 0.5}, False),
        ("0.2", {"most": 0.5}, False),
        (True, {"most": 5}, False),
    ],
)
def test_conditions(value: Any, condition: Any, met: bool) -> None:
    assert meets(value, condition, "a") is met


@pytest.mark.parametrize(
    ("bounds", "met"),
    [
        ([], True),
        ([{"at_least": 0.9}], True),
        ([{"at_least": {"a": 0.9, "b": 0.1}}], True),
        ([{"at_least": 0.9}, {"at_least": 0.1}], False),
        ([{"at_least": 0.9, "at_most": 0.99}], False),
        ([{"at_least": {"b": 0.9}}], False),
    ],
)
def test_a_condition_on_a_kind_is_on_every_bound_of_the_list(
    bounds: list[dict[str, Any]], met: bool, tmp_path: Path, identity: Identity
) -> None:
    site = gate(tmp_path, identity, values={"recall": {"least": 0.5, "most": 0.95}})
    task = {**JOB, "constraints": [{**RECALL, **one} for one in bounds]}
    if met:
        site.admit_task(task, task)
        return
    with pytest.raises(Refused) as error:
        site.admit_task(task, task)
    assert code_of(error) == "FP-REFUSED-024"


def test_all_kinds_are_allowed_where_a_site_states_none() -> None:
    assert OPEN.kinds == KINDS


# ---------------------------------------------------------------------------------------------------- rows held out

PROMISE = {"constraints": [{**RECALL, "confidence": 0.95}], "confidence": 0.0, "holdout": 0.5, "split": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"holdout": 0.51},
        {"split": 1},
        {"confidence": 0.5},
        {"constraints": []},
        {"constraints": [{**RECALL, "of": "0", "confidence": 0.95}]},
    ],
)
def test_rows_held_out_do_not_change_in_the_middle_of_a_run(
    change: dict[str, Any], tmp_path: Path, identity: Identity
) -> None:
    """With one seed the part 0.51 holds out the rows of 0.5 and a few more: sums of both tell those few."""
    site = gate(tmp_path, identity)
    job = {**JOB, **PROMISE}
    on_its_way = {"width": Found(), "centre": Found()}
    site.admit_task({**job, "width": 0.1, "centre": [1.0, 2.0]}, job, lambda task: on_its_way)
    with pytest.raises(Refused) as error:
        site.admit_task({**job, **change}, job)
    assert code_of(error) == "FP-REFUSED-052"


@pytest.mark.parametrize(
    ("before", "after", "similar"),
    [
        (PROMISE, PROMISE, False),
        (PROMISE, {**PROMISE, "width": 0.1, "centre": [1.0]}, False),
        (PROMISE, {**PROMISE, "holdout": 0.51}, True),
        (PROMISE, {**PROMISE, "holdout": 0.3}, True),
        (PROMISE, {**PROMISE, "split": 1}, True),
        ({}, PROMISE, False),
        ({}, {**PROMISE, "holdout": 0.01}, True),
        ({**PROMISE, "holdout": 0.01}, {}, True),
        ({}, {"holdout": 0.01, "split": 3}, False),
    ],
)
def test_runs_whose_rows_held_out_differ_by_few_are_similar(
    before: dict[str, Any], after: dict[str, Any], similar: bool, tmp_path: Path, identity: Identity
) -> None:
    """Without a promise nothing is held out, whatever the part is; half of the rows tell nobody's."""
    gate(tmp_path, identity, similar_runs=0).admit_run(charter(job={**JOB, **before}), lambda: "digest")
    site = gate(tmp_path, identity, similar_runs=0)
    later = charter("r2", job={**JOB, **after})
    if not similar:
        site.admit_run(later, lambda: "digest")
        return
    with pytest.raises(Refused) as error:
        site.admit_run(later, lambda: "digest")
    assert code_of(error) == "FP-REFUSED-012"


def test_steps_belong_to_methods() -> None:
    assert method_of("fedpact.solvers.constrained.interior_point:advance") == "interior-point"
    assert method_of("fedpact.solvers.consensus.ifeddr_owner:advance") == "ifeddr"
    assert method_of("fedpact.solvers.vertical.fair_vfl_party:update") == "fair-vfl"
    of_methods = {method_of(step) for step in STEPS if step.startswith("fedpact.solvers.")}
    assert of_methods <= {*METHODS, ""}
    assert method_of("fedpact.solvers.consensus.monotone_newton:linearize") == "monotone-newton"
    assert method_of("fedpact.solvers.consensus.splitting:begin") == ""
    assert method_of("fedpact.solvers.steps:judge") == ""
    assert method_of("mine.adam:advance") == "mine.adam"
    assert longest(Ask(w=np.zeros(7), coupled_length=5)) == 7


# -------------------------------------------------------------------------------------------------------------- file

SITE = '[site]\nname = "a"\ndata = "rows.csv"\nstate = "state"\nkey = "a.key"\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[site", "FP-OPTION-610"),
        ('[site]\nname = "a"\n', "FP-OPTION-611"),
        (SITE + "[requires]\nowners = 3\n", "FP-OPTION-612"),
        (SITE + "[require]\nownrs = 3\n", "FP-OPTION-612"),
        (SITE + "bouund = 0.1\n", "FP-OPTION-612"),
        (SITE + "[require]\nowners = true\n", "FP-OPTION-613"),
        (SITE + "[require]\nowners = -1\n", "FP-OPTION-613"),
        (SITE + '[allow]\nfeatures = "age"\n', "FP-OPTION-613"),
        (SITE + "[allow.values]\nbound = {least = 0.1, mst = 0.5}\n", "FP-OPTION-614"),
        (SITE + '[peers]\nb = "123"\n', "FP-OPTION-604"),
        (SITE + f'[peers]\nb = "{"b" * 64}"\nc = "{"b" * 64}"\n', "FP-OPTION-605"),
    ],
)
def test_a_policy_that_cannot_be_right_is_an_error(text: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(OptionError) as error:
        read_policy(tmp_path / "site.toml")
    assert code_of(error) == code


def test_a_policy_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        SITE + '[allow]\nfeatures = ["age"]\n[allow.values]\nbound = {most = 0.5}\n[require]\nowners = 4\n'
    )
    policy = read_policy(tmp_path / "site.toml")
    assert policy.data == tmp_path / "rows.csv"
    assert (policy.features, policy.values, policy.owners) == (("age",), {"bound": {"most": 0.5}}, 4)
    assert policy.digest != replace(policy, owners=3).digest
    assert policy.digest == replace(policy, data=Path("elsewhere")).digest


# --------------------------------------------------------------------------------------------------------------- log


def test_the_log_tells_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LARGEST", 400)  # several files
    log = AuditLog(tmp_path)
    for number in range(9):
        log.write("answer", number=number)
    log = AuditLog(tmp_path)
    log.write("answer", number=9)
    assert [entry["number"] for entry in read_log(tmp_path)] == list(range(10))
    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    for path in files:
        before = path.read_bytes()
        for place in range(len(before)):
            changed = bytearray(before)
            changed[place] ^= 1
            path.write_bytes(changed)
            if path == files[-1] and place > before.rstrip().rfind(b"\n"):
                continue  # the last line: its digest, noted elsewhere, tells
            with pytest.raises(CheckpointError):
                list(read_log(tmp_path))
        path.write_bytes(before)
    files[1].unlink()
    with pytest.raises(CheckpointError):
        AuditLog(tmp_path)


# -------------------------------------------------------------------------------------------------------------- keys


def test_a_signature_is_for_one_purpose_and_one_content(identity: Identity, tmp_path: Path) -> None:
    signature = identity.sign("job", b"content")
    assert signed_by(identity.public, "job", b"content", signature)
    assert not signed_by(identity.public, "order", b"content", signature)
    assert not signed_by(identity.public, "job", b"contents", signature)
    other = Identity.create(tmp_path / "other.key")
    assert not signed_by(other.public, "job", b"content", signature)
    assert Identity.load(tmp_path / "other.key").public == other.public
    message = sign_message(identity, "reply", b"bytes")
    assert open_signed(message, identity.public, "reply", "a") == b"bytes"
    for bad in (b"bytes", message[:-1], message + b"x"):
        with pytest.raises(OwnerError) as error:
            open_signed(bad, identity.public, "reply", "a")
        assert code_of(error) == "FP-OWNER-600"


def test_a_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    Identity.create(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(OptionError) as error:
        Identity.create(path)
    assert code_of(error) == "FP-OPTION-600"
    path.chmod(0o644)
    with pytest.raises(OptionError) as error:
        Identity.load(path)
    assert code_of(error) == "FP-OPTION-603"
    path.write_text(json.dumps({}))
    with pytest.raises(OptionError) as error:
        Identity.load(path)
    assert code_of(error) == "FP-OPTION-601"


def multiply_by_eight(y: int) -> tuple[int, int]:
    """Eight times the point of edwards25519 with this y, by the textbook: (0, 1) is the neutral element."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p
    square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
    x = pow(square, (p + 3) // 8, p)
    if x * x % p != square:
        x = x * pow(2, (p - 1) // 4, p) % p
    assert x * x % p == square
    for _ in range(3):
        both = d * x * x * y * y % p
        x, y = 2 * x * y * pow(1 + both, -1, p) % p, (y * y + x * x) * pow(1 - both, -1, p) % p
    return x, y


def test_keys_with_which_anybody_can_sign_are_refused(tmp_path: Path) -> None:
    assert len(SMALL_ORDER) == 7
    for point in SMALL_ORDER:  # checked by the curve itself
        assert multiply_by_eight(int.from_bytes(point, "little") % (2**255 - 19)) == (0, 1)
        for sign in (0, 0x80):
            public = (point[:-1] + bytes([point[-1] | sign])).hex()
            with raises_code("FP-OPTION-675", "roster", "north"):
                check_public_keys({"north": public}, "roster")
    honest = Identity.create(tmp_path / "key")
    assert multiply_by_eight(int.from_bytes(bytes.fromhex(honest.public), "little") % 2**255) != (0, 1)
    assert check_public_keys({"north": honest.public}, "roster")
    neutral = f"01{0:062x}"
    forged = bytes.fromhex(neutral) + bytes(32)  # R = the neutral element, S = 0: holds for every message
    assert not signed_by(neutral, "evidence", b"anything", forged)
