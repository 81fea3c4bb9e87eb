"""Evidence: what owners sign holds, and whatever is changed afterwards is found, by the name of the file or owner."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from job_files import change
from raising import raises_code
from site_files import write_sites

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.federation import Owner, RemoteFleet, Site
from fedpact.federation.audit import AuditLog
from fedpact.federation.evidence import canonical, commit, to_bytes
from fedpact.federation.gate import Gate, digest_of
from fedpact.federation.identity import Identity
from fedpact.federation.policy import SitePolicy
from fedpact.federation.secure_sum import Peers, add_parts
from fedpact.fitting.evidence import Evidence, attest
from fedpact.jobs import read_job, run_job
from fedpact.jobs.evidence_file import FILE, read_evidence, signed_part, write_evidence
from fedpact.jobs.verification import (
    agree,
    ask_owners,
    check_report,
    check_statements,
    compare_with,
    find_changed,
    verify_run,
)
from fedpact.jobs.word import words_of_certificate, words_of_run
from fedpact.problem import Share
from fedpact.prox import L1
from fedpact.report import sections
from fedpact.report.page import page
from fedpact.report.record import Failed, Record, Verification
from fedpact.solvers import Solution
from fedpact.tasks import TASKS, NeymanPearson
from fedpact.tasks.base import WORD

pytest.importorskip("cryptography")

OWNERS = ("north", "south", "coast")
#: Of a file with more bytes only so many are flipped by default; all of them under the marker `slow`.
SMALL = 500


def give_keys(folder: Path, owners: tuple[str, ...] = OWNERS) -> dict[str, Path]:
    """A key for each owner, in the job and as files."""
    for owner in owners:
        Identity.create(folder / f"{owner}.key")
    lines = "".join(f'{owner} = "{owner}.key"\n' for owner in owners)
    job = folder / "job.toml"
    job.write_text(f"{job.read_text()}\n[keys]\n{lines}")
    return {owner: folder / f"{owner}.key" for owner in owners}


def run_small(folder: Path) -> Path:
    """The folder of a short run in which everybody signs."""
    give_keys(folder)
    run_job(read_job(folder / "job.toml"))
    return folder / "run"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which everybody signs, the coordinator too, with its page; copy it before changing it."""
    from fedpact.cli.init import init

    folder = tmp_path_factory.mktemp("evidence") / "x"
    assert CliRunner().invoke(init, [str(folder)]).exit_code == 0
    out = run_small(folder)
    coordinator = Identity.create(folder / "coordinator.key")
    write_evidence(out, read_evidence(out)[0], folder / "job.toml", coordinator)
    assert call("report", out).exit_code == 0
    return out


@pytest.fixture
def copied(signed: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed.parent, tmp_path / "x")
    return tmp_path / "x" / "run"


def call(*arguments: object) -> Any:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def failures(out: Path, **roster: str) -> set[tuple[str, str]]:
    """(file, owner) of what does not hold."""
    found = verify_run(out, roster)
    return {(one.file, one.owner) for one in (*found.failed, *(check_report(out, found) if found.verified else ()))}


def publics(folder: Path) -> dict[str, str]:
    return {owner: Identity.load(folder / f"{owner}.key").public for owner in OWNERS}


# ----------------------------------------------------------------------------------------------- every byte of a folder


def positions(size: int, many: bool) -> list[int]:
    """All bytes of a small file; of others some, spread over it."""
    if size <= SMALL:
        return list(range(size))
    return sorted({*range(0, size, max(size // (1000 if many else 60), 1)), size - 1})


def check_flips(out: Path, many: bool) -> None:
    """Flip one bit in one byte after the other: the file is named every time."""
    assert failures(out) == set()
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert len(files) >= 12
    for path in files:
        name = path.relative_to(out).as_posix()
        data = path.read_bytes()
        for position in positions(len(data), many and name != "report.html"):  # the page is compared as a whole
            changed = bytearray(data)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            assert name in {file for file, _ in failures(out)}, f"{name}, byte {position}"
        found = call("verify", out)
        assert found.exit_code == 1
        assert name in found.output
        path.write_bytes(data)
    assert failures(out) == set()


def test_a_digit_in_capitals_is_found(copied: Path) -> None:
    """A hexadecimal number would mean the same."""
    data = (copied / FILE).read_bytes()
    for position, byte in enumerate(data):
        if chr(byte).islower() and position % 4 == 0:
            (copied / FILE).write_bytes(data[:position] + chr(byte).upper().encode() + data[position + 1 :])
            assert failures(copied) == {(FILE, "")}, position


def test_a_flipped_byte_of_any_file_is_found(copied: Path) -> None:
    check_flips(copied, many=False)


@pytest.mark.slow
def test_many_flipped_bytes_of_every_file_are_found(folder: Path) -> None:
    change(folder, "# compare = true", "compare = false")
    out = run_small(folder)
    assert call("report", out).exit_code == 0
    check_flips(out, many=True)


def test_files_that_are_gone_or_new_are_found(copied: Path) -> None:
    shutil.rmtree(copied / "checkpoint")  # may be deleted
    assert failures(copied) == set()
    (copied / "history.csv").rename(copied / "course.csv")
    assert failures(copied) == {("history.csv", ""), ("course.csv", "")}


def test_evidence_is_for_its_user_alone(copied: Path) -> None:
    """Without secure sums it holds every owner's own gradient."""
    rewrite(copied)
    assert (copied / FILE).stat().st_mode & 0o077 == 0
    for name in ("run.json", "checkpoint/rounds.log"):  # owners' measures, and every message
        assert (copied / name).stat().st_mode & 0o077 == 0


def test_evidence_is_written_in_one_way_only(copied: Path) -> None:
    written = json.loads((copied / FILE).read_text())
    for text in (json.dumps(written), json.dumps({**written, "more": 1}, indent=1, sort_keys=True) + "\n"):
        (copied / FILE).write_text(text)
        with raises_code("FP-WIRE-630", str(copied / FILE)):
            read_evidence(copied)
        assert failures(copied) == {(FILE, "")}


# -------------------------------------------------------------------------------------------------- a false coordinator


def rewrite(out: Path, change_evidence: Callable[[dict[str, Any]], None] = lambda content: None) -> None:
    """What a coordinator can do: change the evidence, and state anew all digests that nobody signed."""
    written = json.loads((out / FILE).read_text())
    change_evidence(written)
    write_evidence(out, Evidence.from_json(written), out.parent / "job.toml", None)
    (out / "report.html").unlink(missing_ok=True)


def change_json(path: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=1) + "\n")


def better_recall(record: Any) -> None:
    record["measured"][1]["numbers"]["recall of relapse = yes"] = 0.99


def better_comparison(record: Any) -> None:
    record["measured"][2]["numbers"]["accuracy without constraints"] = 0.1


def lower_loss(record: Any) -> None:
    record["bounded"][0]["value"] = 0.1


def wider_bound(record: Any) -> None:
    record["bounded"][0]["bound"] = 0.9


def no_price(record: Any) -> None:
    record["bounded"][0]["price"] = 0.0


def another_owner(record: Any) -> None:
    record["measured"].append({**record["measured"][0], "owner": "west"})


def smaller_certificate(record: Any) -> None:
    record["stationarity"] = 0.0


def wider_tolerance(record: Any) -> None:
    record["tol"] = [0.1, 0.1]


@pytest.mark.parametrize(
    ("edit", "owner"),
    [
        (better_recall, "south"),
        (better_comparison, "coast"),
        (lower_loss, "north"),
        (wider_bound, "north"),
        (no_price, "north"),
        (another_owner, "west"),
        (smaller_certificate, ""),
        (wider_tolerance, ""),
    ],
)
def test_a_number_that_the_coordinator_changed_is_found(copied: Path, edit: Callable[[Any], None], owner: str) -> None:
    rewrite(copied)
    assert failures(copied) == set()
    change_json(copied / "run.json", edit)
    rewrite(copied)
    assert ("run.json", owner) in failures(copied)


def test_a_model_that_the_coordinator_changed_is_found(copied: Path) -> None:
    with np.load(copied / "model.npz") as file:
        arrays = dict(file)
    np.savez(copied / "model.npz", **{**arrays, "coefficients": 1.1 * arrays["coefficients"]})
    rewrite(copied)
    assert failures(copied) == {("model.npz", ""), ("run.json", "")}


def test_a_failed_run_cannot_be_called_solved(folder: Path) -> None:
    job = change(folder, "[solve]", '[solve]\nmethod = "proximal-al"\nmax_rounds = 12\ncompare = false')
    give_keys(folder)
    assert run_job(read_job(job)).status == "max_rounds"
    out = folder / "run"
    assert failures(out) == set()
    words = {"run.json": words_of_run(usable=True), "certificate.json": words_of_certificate(usable=True)}
    for file, names in words.items():
        change_json(out / file, lambda stated, names=names: stated.update({"status": "solved", WORD: names}))
    rewrite(out)
    assert failures(out) == {("run.json", "")}


def test_a_statement_that_the_coordinator_changed_is_found(copied: Path) -> None:
    def lie(content: dict[str, Any]) -> None:
        content["said"]["south"]["statement"]["violation"] = 0.5

    rewrite(copied, lie)
    assert failures(copied) == {(FILE, "south")}


def test_sums_that_the_coordinator_changed_are_found(copied: Path) -> None:
    def lie(content: dict[str, Any]) -> None:
        content["said"]["south"]["sums"] = content["said"]["north"]["sums"]

    rewrite(copied, lie)
    assert failures(copied) == {(FILE, "south")}


def test_an_owner_that_is_left_out_is_found(copied: Path) -> None:
    def leave_out(content: dict[str, Any]) -> None:
        del content["said"]["south"]

    rewrite(copied, leave_out)
    assert (FILE, "south") in failures(copied)

    def forget(content: dict[str, Any]) -> None:
        content["prices"] = [[name, price] for name, price in content["prices"] if name != "south"]

    rewrite(copied, forget)
    assert {(FILE, "north"), (FILE, "coast")} <= failures(copied)  # they signed a model with all prices


def test_a_job_or_task_that_the_coordinator_changed_is_found(copied: Path) -> None:
    for part in ("job", "task"):

        def loosen(content: dict[str, Any], part: str = part) -> None:
            content[part]["bound"] = 0.9

        rewrite(copied, loosen)
        assert failures(copied) >= {(FILE, owner) for owner in OWNERS}


def lead_elsewhere(out: Path) -> str:
    kept = (out / "history.csv").rename(out.parent / "history.csv")
    (out / "history.csv").symlink_to(kept)
    return "history.csv"


def say_twice(out: Path) -> str:
    text = (out / "run.json").read_text()
    (out / "run.json").write_text(text.replace('"solved",', '"solved",\n "objective": 0.0,', 1))
    return "run.json"


def say_more(out: Path) -> str:
    change_json(out / "run.json", lambda record: record["bounded"][0].update(remark="audited"))
    return "run.json"


def name_features(out: Path) -> str:
    change_json(out / "model.json", lambda model: model["features"].reverse())
    return "model.json"


def own_threshold(out: Path) -> str:
    change_json(out / "model.json", lambda model: model.update(threshold="own"))
    return "model.json"


def add_an_array(out: Path) -> str:
    with np.load(out / "model.npz") as file:
        np.savez(out / "model.npz", **file, more=np.zeros(1))
    return "model.npz"


def nest_deeply(out: Path) -> str:
    (out / "run.json").write_text("[" * 100_000 + "]" * 100_000)
    return "run.json"


@pytest.mark.parametrize(
    "edit", [lead_elsewhere, say_twice, say_more, name_features, own_threshold, add_an_array, nest_deeply]
)
def test_what_a_run_does_not_write_is_named(copied: Path, edit: Callable[[Path], str]) -> None:
    """Finding 14: with the owners' keys pinned, these edits passed when all digests were stated anew."""
    file = edit(copied)
    rewrite(copied)
    assert (file, "") in failures(copied, **publics(copied.parent))


def test_a_file_that_no_run_writes_is_named(copied: Path) -> None:
    (copied / "approval.pdf").write_text("approved")
    assert failures(copied) == {("approval.pdf", "")}  # it came later
    rewrite(copied)
    assert failures(copied) == set()
    assert "no run writes, and no owner signed: approval.pdf" in call("verify", copied).output


def test_an_owner_of_the_roster_that_took_no_part_is_named(copied: Path) -> None:
    assert failures(copied, **publics(copied.parent), west="1" * 64) == {(FILE, "west")}


def test_a_task_that_is_not_the_jobs_is_found(copied: Path) -> None:
    evidence = read_evidence(copied)[0]
    assert find_changed(evidence) == ""
    for name, value in {"bound": 0.9, "label": "smoker", "evaluating": True, "allowance": 2.0}.items():
        assert find_changed(replace(evidence, task={**evidence.task, name: value})) == name


def test_evidence_of_another_run_is_refused(copied: Path) -> None:
    """The same job on the same tables, run again: its statements are not those of this run."""
    first = json.loads((copied / FILE).read_text())
    again = copied.parent / "again"
    run_job(replace(read_job(copied.parent / "job.toml"), output=again))
    shutil.copy(copied / FILE, again / FILE)
    assert ("run.json", "") in failures(again)  # its digest, among others

    rewrite(again)
    assert failures(again) == {("run.json", "")}  # all digests are right, and yet it is of another run

    def rename(content: dict[str, Any]) -> None:
        content["run"] = Record.load(again).run

    rewrite(again, rename)
    assert failures(again) == {(FILE, owner) for owner in OWNERS}
    assert first["run"] != Record.load(again).run


def test_old_evidence_is_not_of_a_new_run(copied: Path) -> None:
    change_json(copied / "run.json", lambda record: record.update(started="2099-01-01T00:00:00+00:00"))
    rewrite(copied)
    assert failures(copied) == {(FILE, owner) for owner in OWNERS}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree."""
    inner: Any = ()
    if isinstance(content, dict):
        inner = content.items()
    elif isinstance(content, list):
        inner = enumerate(content)
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


@pytest.mark.parametrize("value", [None, "x", [], {}, -1, 1e300], ids=repr)
def test_evidence_with_anything_else_in_it_is_refused_and_never_an_exception(copied: Path, value: Any) -> None:
    rewrite(copied)
    assert verify_run(copied).verified
    written = json.loads((copied / FILE).read_text())
    ways = [way for way in places(written) if way[0] not in ("job_file", "digest")]
    assert len(ways) > 100
    for way in ways:
        content = json.loads(json.dumps(written))
        place = content
        for key in way[:-1]:
            place = place[key]
        if place[way[-1]] == value:
            continue
        place[way[-1]] = value
        content["digest"] = sha256(signed_part(content)).hexdigest()
        (copied / FILE).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        assert not verify_run(copied).verified, way


# ----------------------------------------------------------------------------------------------------------------- keys


def forge(out: Path, owner: str, folder: Path) -> str:
    """The coordinator signs in an owner's place, with a key of its own making; the public key."""
    made = Identity.create(folder / "forged.key")

    def sign(content: dict[str, Any]) -> None:
        said = content["said"][owner]
        said["statement"]["numbers"][3] = 1.0
        said["key"] = made.public
        said["signature"] = made.sign("evidence", canonical(said["statement"])).hex()

    rewrite(out, sign)
    index = OWNERS.index(owner)
    change_json(
        out / "run.json", lambda record: record["measured"][index]["numbers"].update({"recall of relapse = yes": 1.0})
    )
    return made.public


def test_two_evidences_of_one_run_are_compared(copied: Path, tmp_path: Path) -> None:
    """A coordinator that had two models signed in one run shows one to each reader; the owners kept both."""
    job = read_job(copied.parent / "job.toml")
    with fp.Session(keys=job.keys, checkpoint=tmp_path / "state") as session:
        found = fp.fit(job.task, job.owners, session)
        assert found.evidence is not None
        other = replace(found.evidence, w=1.5 * found.evidence.w, said={}).gather(session, None)
    kept = sorted((tmp_path / "state").rglob("*.signed"))
    assert [len(path.read_text().splitlines()) for path in kept] == [2, 2, 2]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, evidence in zip(folders, (found.evidence, other), strict=True):
        folder.mkdir()
        write_evidence(folder, evidence, job.path, None)
    assert list(compare_with(folders[0], folders[0])) == []
    for against in (folders[1], *kept):
        told = list(compare_with(folders[0], against))
        assert {one.owner for one in told} == (set(OWNERS) if against.is_dir() else {told[0].owner})
        assert any("another model" in one.what for one in told)
    (strange,) = compare_with(copied, folders[0])
    assert "another run" in strange.what
    with raises_code("FP-OPTION-676", "", "job.toml"):
        list(compare_with(copied, job.path))
    assert call("verify", copied, "--with", copied).exit_code == 0
    assert call("verify", copied, "--with", folders[0]).exit_code == 1


def test_keys_that_the_auditor_knows_tell_who_signed(copied: Path) -> None:
    known = publics(copied.parent)
    assert failures(copied, **known) == set()
    forge(copied, "south", copied.parent)
    assert (FILE, "south") in failures(copied, **known)
    assert (FILE, "coast") in failures(copied, north=known["north"], south=known["south"])  # not known to the auditor


def test_the_coordinators_signature_is_checked(copied: Path) -> None:
    known = publics(copied.parent)
    coordinator = Identity.load(copied.parent / "coordinator.key").public
    assert verify_run(copied).coordinator == coordinator
    assert failures(copied, **known, server=coordinator) == set()
    assert failures(copied, **known, server="2" * 64) == {(FILE, "server")}
    rewrite(copied)
    assert failures(copied, **known) == set()
    assert failures(copied, **known, server=coordinator) == {(FILE, "server")}


def test_a_commitment_tells_tables_apart_and_hides_them(tmp_path: Path) -> None:
    one = Identity.create(tmp_path / "one.key")
    other = Identity.create(tmp_path / "other.key")
    made = {commit(one, "a" * 64), commit(one, "b" * 64), commit(other, "a" * 64)}
    assert len(made) == 3
    assert commit(Identity.load(tmp_path / "one.key"), "a" * 64) in made


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_command_says_who_signed(copied: Path) -> None:
    roster = copied.parent / "keys.toml"
    roster.write_text("".join(f'{owner} = "{key}"\n' for owner, key in publics(copied.parent).items()))
    found = call("verify", copied, "--roster", roster, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.output)
    assert told["verified"]
    assert told["pinned"]
    assert told["signed"] == publics(copied.parent)
    assert not json.loads(call("verify", copied, "--json").output)["pinned"]
    wrong = call("verify", copied, "--roster", roster, "--key", f"south={'2' * 64}")
    assert wrong.exit_code == 1
    assert "south" in wrong.output


def test_the_command_refuses_what_is_no_run_and_no_key(tmp_path: Path, copied: Path) -> None:
    with raises_code("FP-512", str(tmp_path / "run.json")):
        CliRunner().invoke(cli, ["verify", str(tmp_path)], catch_exceptions=False)
    with raises_code("FP-OPTION-604", "", "south"):
        CliRunner().invoke(cli, ["verify", str(copied), "--key", "south=1"], catch_exceptions=False)
    with raises_code("FP-OPTION-634", str(tmp_path / "absent")):
        CliRunner().invoke(cli, ["verify", str(copied), "--roster", str(tmp_path / "absent")], catch_exceptions=False)


def test_a_run_without_keys_is_not_verified(folder: Path) -> None:
    run_job(read_job(folder / "job.toml"))
    assert not (folder / "run" / FILE).exists()
    found = call("verify", folder / "run")
    assert found.exit_code == 1
    assert FILE in found.output


def test_owners_recompute_what_they_signed(copied: Path) -> None:
    job = copied.parent / "job.toml"
    assert call("verify", copied, "--ask", "--job", job).exit_code == 0
    table = copied.parent / "south.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:-1], lines[-1].replace("0", "1", 1)]) + "\n")
    assert call("verify", copied).exit_code == 0  # the folder is as it was
    found = call("verify", copied, "--ask", "--job", job, "--json")
    assert found.exit_code == 1
    assert {"file": FILE, "owner": "south", "what": "its table is not the one that it signed for"} in json.loads(
        found.output
    )["failed"]


def test_owners_are_asked_by_the_job_that_is_named(copied: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "moved"
    shutil.copytree(copied, elsewhere)
    assert call("verify", elsewhere, "--ask", "--job", copied.parent / "job.toml").exit_code == 0
    job = copied.parent / "job.toml"
    job.write_text(job.read_text().partition("[keys]")[0])
    with raises_code("FP-OPTION-636", str(job)):
        CliRunner().invoke(cli, ["verify", str(copied), "--ask", "--job", str(job)], catch_exceptions=False)


def test_another_key_is_noticed_when_owners_are_asked(copied: Path) -> None:
    (copied.parent / "south.key").unlink()
    Identity.create(copied.parent / "south.key")
    found = call("verify", copied, "--ask", "--job", copied.parent / "job.toml")
    assert found.exit_code == 1
    assert "south" in found.output.partition("NOT VERIFIED")[2]


# --------------------------------------------------------------------------------------------------------- certificates


@dataclass(frozen=True, kw_only=True)
class Sparse(NeymanPearson):
    """With the l1 norm of the model in the place of the squared one."""

    name: ClassVar[str] = "sparse"

    def regularizer(self) -> Any:
        return L1(np.append(np.full(len(self.encoding.names), 0.01), 0.0))


FAIR = {
    'task = "neyman_pearson"': 'task = "group_fairness"',
    "bound = 0.35": "bound = 0.05",
    '["age", "dose", "pressure", "smoker"]': '["age", "dose", "pressure"]',
    'protected = "yes"': 'group = "smoker"\ngroups = ["never", "former", "now"]\nparity = "loss"',
    'smoker = ["never", "former", "now"]\n': "",
    'coast = "coast.csv"\n': "",
    "[solve]": '[server]\ndata = "coast.csv"\n\n[solve]',
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("kind", ["neyman_pearson", "group_fairness", "sparse"])
def test_the_certificate_follows_from_what_was_signed(
    kind: str, secure: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "sparse", Sparse)
    owners = OWNERS
    if kind == "group_fairness":
        for old, new in FAIR.items():
            change(folder, old, new)
        owners = ("north", "south")
    change(folder, "[solve]", f"[solve]\nsecure_sum = {str(secure).lower()}")
    give_keys(folder, owners)
    job = read_job(folder / "job.toml")
    if kind == "sparse":
        task = Sparse(**vars(job.task))
        job = replace(job, task=task, settings={**job.settings, "task": "sparse"})
    record = run_job(job)
    assert record.solved, record.reason
    out = folder / "run"
    assert verify_run(out).failed == ()
    evidence = read_evidence(out)[0]
    assert [one.statement["masked"] for name, one in evidence.said.items() if name != "server"] == [secure] * len(
        owners
    )
    certificate, objective = evidence.certificate()
    stated = json.loads((out / "certificate.json").read_text())
    for name in ("stationarity", "feasibility", "violation", "violations"):
        assert agree(stated[name], getattr(certificate, name)), name
    assert stated["objective"] == pytest.approx(objective, rel=1e-12)
    if secure:  # nobody's own gradient can be read from the folder
        one = next(iter(evidence.said.values()))
        assert one.sums.dtype == np.uint64
    job_file = folder / "job.toml"
    assert call("verify", out, "--ask", "--job", job_file).exit_code == 0
    found = verify_run(out)
    assert found.holds
    if kind == "group_fairness":  # whose coordinator has a table: its term is verified where that is, and only there
        assert not found.verified
        assert call("verify", out).exit_code == 3
        assert call("verify", out, "--job", job_file).output.startswith("verified\n")
        assert "by the coordinator's word" in call("report", out, "--markdown").output
        (folder / "coast.csv").write_text((folder / "north.csv").read_text())
        assert call("verify", out, "--job", job_file).exit_code == 1


def cancel(evidence: Evidence) -> Any:
    """A term of the coordinator's that makes any model look stationary, and all of its own constraints met."""
    honest = replace(evidence, prices={"server": np.zeros(0), **evidence.prices})
    owner = next(iter(evidence.said.values()))
    flat = np.zeros(owner.sums.shape[0])
    harmless = {"feasibility": 0.0, "violation": 0.0, "private": 0.0, "values": []}
    about = {**owner.statement, "owner": "server", "task": "", "masked": False, **harmless}
    made = replace(owner, key="", signature="", statement=about, sums=flat)

    def stationarity(offset: Any) -> float:
        flat[1 : 1 + evidence.w.size] = offset
        tried = replace(made, sums=flat)
        return replace(honest, said={**evidence.said, "server": tried}).certificate()[0].stationarity

    task = fp.tasks.read_task(evidence.task)
    regularizer = task.regularizer()
    assert isinstance(regularizer, fp.prox.SquaredL2)
    total = add_parts([one.sums for one in evidence.said.values()])
    gradient = total[1 : 1 + evidence.w.size]
    assert stationarity(0.0) > 1e-2  # the model is none to certify
    assert stationarity(-gradient - regularizer.weight * evidence.w) < 1e-9
    return replace(made, statement={**made.statement, "sums": sha256(to_bytes(flat)).hexdigest()})


def certify_by_a_term_of_the_coordinator(out: Path, job: Path) -> None:
    """Make the folder of a run that was stopped early call its model solved, with a certificate to match."""
    evidence = read_evidence(out)[0]
    forged = replace(evidence, said={**evidence.said, "server": cancel(evidence)})
    certificate, objective = forged.certificate()
    assert certificate.stationarity < 1e-6
    solution = replace(Solution.load(out / "solution.npz"), certificate=certificate, status="solved")
    solution.save(out / "solution.npz")
    record = replace(Record.load(out), status="solved", objective=objective)
    record = replace(record, stationarity=certificate.stationarity, feasibility=certificate.feasibility)
    record.save(out)
    change_json(out / "certificate.json", lambda stated: stated.update({**asdict(certificate), "status": "solved"}))
    write_evidence(out, forged, job, None)


def test_a_term_of_the_coordinator_certifies_no_model(folder: Path) -> None:
    """Finding 4: an unsigned testimony of "server" cancels every residual, so any model is \"certified\"."""
    job = change(folder, "[solve]", '[solve]\nmethod = "proximal-al"\nmax_rounds = 12\ncompare = false')
    give_keys(folder)
    run_job(read_job(job))
    certify_by_a_term_of_the_coordinator(folder / "run", job)
    assert (FILE, "server") in failures(folder / "run", **publics(folder))


def test_the_terms_that_are_added_up_are_those_of_the_owners(folder: Path) -> None:
    """Independent of any solver: the gradient of the pooled Lagrangian by central differences."""
    give_keys(folder)
    job = read_job(folder / "job.toml")
    run_job(job)
    evidence = read_evidence(folder / "run")[0]
    task = fp.tasks.read_task(evidence.task)
    shares = {name: fp.tasks.FileSource(name, path)(task) for name, path in job.owners.items()}

    def lagrangian(w: Any) -> float:
        total = 0.0
        for name, share in shares.items():
            assert isinstance(share, Share)
            assert share.objective is not None
            assert share.constraint is not None
            total += share.objective.value(w) + evidence.prices[name] @ share.constraint.function.value(w)
        return float(total)

    steps = 1e-6 * np.eye(evidence.w.size)
    slopes = [(lagrangian(evidence.w + s) - lagrangian(evidence.w - s)) / 2e-6 for s in steps]
    regularizer = task.regularizer()
    assert regularizer is not None
    expected = regularizer.subdifferential_distance(-np.array(slopes), evidence.w)
    assert evidence.certificate()[0].stationarity == pytest.approx(expected, abs=1e-8)


# -------------------------------------------------------------------------------------------------- sessions and owners


def test_a_fit_brings_what_the_owners_signed(folder: Path) -> None:
    keys = give_keys(folder)
    job = read_job(folder / "job.toml")
    with fp.Session(keys=keys) as session:
        found = fp.fit(job.task, job.owners, session)
        exchanges = found.communication.rounds
    assert found.evidence is not None
    assert {name: one.key for name, one in found.evidence.said.items()} == publics(folder)
    assert all(one.signed for one in found.evidence.said.values())
    with fp.Session() as session:
        unsigned = fp.fit(job.task, job.owners, session)
    assert unsigned.evidence is None
    assert unsigned.communication.rounds == exchanges - 1


def test_a_finished_run_that_is_resumed_is_signed_again(folder: Path) -> None:
    out = run_small(folder)
    again = run_job(read_job(folder / "job.toml"), resume=True)
    assert failures(out) == set()
    assert again.run == read_evidence(out)[0].run


def test_a_run_that_was_stopped_is_signed_as_it_is_and_again_when_it_is_resumed(folder: Path) -> None:
    change(folder, "# compare = true", "compare = false")
    give_keys(folder)
    job = read_job(folder / "job.toml")
    assert run_job(job, callbacks=[lambda progress: progress.rounds >= 4]).status == "interrupted"
    assert failures(job.output) == set()
    assert run_job(job, resume=True).solved
    assert failures(job.output) == set()


CUSTOM = """
import fedpact as fp
import numpy as np


def share(table, name, owners):
    squared = fp.functions.Quadratic(table.X.T @ table.X / len(table.X), -table.X.T @ table.y / len(table.X))
    own = fp.Constraint(fp.functions.Affine(-table.X[:1], [0.1]), fp.cones.Nonnegative(1))
    budget = fp.functions.Affine(np.ones((1, table.X.shape[1])), [-0.01])
    return fp.Share(squared / owners, own, coupled=budget, name="a name of its own")
"""


def test_a_coupled_constraint_follows_from_what_was_signed(folder: Path) -> None:
    (folder / "mine.py").write_text(CUSTOM)
    change(folder, "bound = 0.35", 'functions = "mine.py"')
    change(folder, 'protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]')
    change(folder, ', "smoker"]', "]")
    change(folder, 'smoker = ["never", "former", "now"]\n', "")
    change(folder, 'task = "neyman_pearson"', 'task = "custom"')
    change(folder, "[solve]", "[solve]\nsecure_sum = true")
    out = run_small(folder)
    assert Record.load(out).solved
    assert failures(out) == set()
    evidence = read_evidence(out)[0]
    assert "coupled" in evidence.certificate()[0].violations
    assert evidence.coupled.size == 1


def test_owners_are_never_asked_by_what_the_folder_names(copied: Path) -> None:
    """Finding 13: the folder names a job, the job a Python file, and `--ask` ran it."""
    with raises_code("FP-OPTION-672"):
        CliRunner().invoke(cli, ["verify", str(copied), "--ask"], catch_exceptions=False)


def test_only_the_functions_of_the_users_own_job_are_run(folder: Path) -> None:
    (folder / "mine.py").write_text(CUSTOM)
    change(folder, "bound = 0.35", 'functions = "mine.py"')
    change(folder, 'protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]')
    change(folder, ', "smoker"]', "]")
    change(folder, 'smoker = ["never", "former", "now"]\n', "")
    job = change(folder, 'task = "neyman_pearson"', 'task = "custom"')
    out = run_small(folder)
    trap = f"from pathlib import Path\nPath({str(folder / 'was here')!r}).touch()\n"
    (folder / "trap.py").write_text(trap + CUSTOM)

    def lead_to_the_trap(content: dict[str, Any]) -> None:
        content["task"]["functions"] = str(folder / "trap.py")

    for command in (["verify", out], ["report", out], ["verify", out, "--ask", "--job", job]):
        assert call(*command).exit_code == 0, command
    rewrite(out, lead_to_the_trap)
    for command in (["verify", out], ["report", out], ["verify", out, "--ask", "--job", job]):
        call(*command)
    with fp.Session(keys=read_job(job).keys) as session:  # whatever was found before
        assert list(ask_owners(out, read_job(job), session)) == []
    (folder / "mine.py").write_text(trap + CUSTOM)  # what the job names by now is not what was signed
    with fp.Session(keys=read_job(job).keys) as session:
        (found,) = ask_owners(out, read_job(job), session)
    assert "digest" in found.what
    assert not (folder / "was here").exists()


PRIVATE = """
import fedpact as fp
import numpy as np


def share(table, name, owners):
    X = np.column_stack([table.X, np.ones(len(table.X))])
    rates = fp.Constraint(fp.functions.MeanProbability(X[table.y == 0]) - 0.2, fp.cones.Nonnegative(1))

    def measures(x):
        return {"intercept above zero": fp.Measure(float(x[-1] > 0), len(X))}

    return fp.Share(fp.functions.LogisticLoss(X, table.y) / owners, rates, measures=measures, private=1)
"""


@pytest.mark.parametrize("secure", ["true", "false"])
def test_an_owners_own_intercept_is_judged_but_not_told(folder: Path, secure: str) -> None:
    (folder / "mine.py").write_text(PRIVATE)
    change(folder, "bound = 0.35", 'functions = "mine.py"')
    change(folder, 'protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]')
    change(folder, ', "smoker"]', "]")
    change(folder, 'smoker = ["never", "former", "now"]\n', "")
    change(folder, 'task = "neyman_pearson"', 'task = "custom"')
    change(folder, "[solve]", f"[solve]\nsecure_sum = {secure}")
    out = run_small(folder)
    assert Record.load(out).solved
    assert failures(out) == set()
    evidence = read_evidence(out)[0]
    slopes = [one.statement["private"] for one in evidence.said.values()]
    assert 0 < max(slopes) <= evidence.certificate()[0].stationarity
    for one in evidence.said.values():
        assert "intercept above zero" in one.told.told()


def test_keys_are_for_all_owners_or_none(folder: Path) -> None:
    keys = give_keys(folder)
    job = folder / "job.toml"
    with raises_code("FP-OPTION-631", "", "south", "coast"), fp.Session(keys={"north": keys["north"]}) as session:
        fp.fit(read_job(job).task, read_job(job).owners, session)
    change(folder, 'coast = "coast.key"\n', "")
    with raises_code("FP-OPTION-633", str(job), "coast"):
        read_job(job)
    change(folder, 'south = "south.key"\n', 'south = "absent.key"\ncoast = "coast.key"\n')
    with raises_code("FP-OPTION-381", str(job), "south"):
        read_job(job)


def test_sites_have_their_own_keys(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    owners = '[owners]\na = "flower://1.2.3.4:9093"\nb = "flower://1.2.3.4:9093"\n'
    sites = write_sites(tmp_path, dict.fromkeys("ab", tmp_path / "rows.csv"), features=["x"]).toml()
    job.write_text(
        f'task = "neyman_pearson"\nlabel = "y"\nbound = 0.3\nfeatures = ["x"]\n{owners}{sites}[keys]\na = "a.key"\n'
    )
    with raises_code("FP-OPTION-632", str(job)):
        read_job(job)


def ask_owner(peers: Peers | None, evidence: Evidence, source: object) -> None:
    owner = Owner("north", source, peers=peers)
    owner.handle(attest, replace(evidence.order, run="r", round=1), evidence.task)


def test_an_owner_signs_only_with_a_key_and_only_for_the_job_of_its_run(copied: Path) -> None:
    evidence = read_evidence(copied)[0]
    source = fp.tasks.FileSource("north", copied.parent / "north.csv")
    with raises_code("FP-OWNER-630", "north"):
        ask_owner(None, evidence, source)
    key = Identity.load(copied.parent / "north.key")
    ask_owner(Peers("north", key, job=digest_of(evidence.job)), evidence, source)
    with raises_code("FP-REFUSED-630", "north"):
        ask_owner(Peers("north", key, job=digest_of({**evidence.job, "bound": 0.9})), evidence, source)


def test_a_signature_that_is_none_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = give_keys(folder)
    job = read_job(folder / "job.toml")
    with fp.Session(keys=keys) as session:
        monkeypatch.setitem(session._publics, "south", "0" * 64)
        with raises_code("FP-OWNER-631", "south"):
            fp.fit(job.task, job.owners, session)


# ------------------------------------------------------------------------------------------------ sites with a policy


class Gated:
    """An engine whose owners are sites of other organisations, each behind its gate: bytes in, bytes out."""

    def __init__(self, folder: Path, coordinators: Mapping[str, str]) -> None:
        self.sites = {owner: self._site(folder, owner, coordinators) for owner in OWNERS}

    @staticmethod
    def _site(folder: Path, owner: str, coordinators: Mapping[str, str]) -> Site:
        policy = SitePolicy(
            name=owner,
            data=folder / f"{owner}.csv",
            state=folder / f"{owner}-state",
            key=folder / f"{owner}.key",
            coordinators=coordinators,
            peers={name: key for name, key in publics(folder).items() if name != owner},
            features=("age", "dose", "pressure", "smoker"),
            labels=("relapse",),
            tasks=("neyman_pearson",),
        )
        gate = Gate(policy, Identity.load(policy.key), AuditLog(policy.state / "audit"))
        return Site(owner, fp.tasks.FileSource(owner, policy.data), policy.state, gate=gate)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> RemoteFleet:
        return _GatedFleet(self.sites)


class _GatedFleet(RemoteFleet):
    networked = True

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__(tuple(sites))
        self.sites = sites

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()
        answered.set_result(self.sites[owner].handle(data))
        return answered


def test_sites_with_a_policy_sign_and_are_asked_again(folder: Path) -> None:
    give_keys(folder)
    job = read_job(folder / "job.toml")
    asking = {name: folder / f"{name}.key" for name in ("coordinator", "auditor")}
    coordinators = {name: Identity.create(path).public for name, path in asking.items()}
    settings: dict[str, Any] = {"engine": Gated(folder, coordinators), "roster": publics(folder)}
    with fp.Session(**settings, identity=asking["coordinator"]) as session:
        found = fp.fit(job.task, dict.fromkeys(OWNERS), session)
    assert found.solved
    evidence = found.evidence
    assert evidence is not None
    assert list(check_statements(evidence)) == []
    assert all(one.signed and one.statement["masked"] for one in evidence.said.values())
    assert agree(evidence.certificate()[0].stationarity, found.solution.certificate.stationarity)
    with fp.Session(**settings, identity=asking["auditor"]) as session:  # by whoever the policy names
        session.open(dict.fromkeys(OWNERS), evidence.job)
        session.secure()
        again = evidence.gather(session, None)
    for owner in OWNERS:
        assert again.said[owner].statement["table"] == evidence.said[owner].statement["table"]
        assert again.said[owner].statement["numbers"] == evidence.said[owner].statement["numbers"]
    with raises_code("FP-OPTION-630"), fp.Session(**settings, keys=job.keys) as session:
        session.open(dict.fromkeys(OWNERS))


# ----------------------------------------------------------------------------------------------------------- the report


def test_the_report_says_who_signed(copied: Path) -> None:
    record = Record.load(copied)
    written = page(sections.report(record, verify_run(copied)))
    for owner, key in publics(copied.parent).items():
        assert key in written, owner
    assert sections.report(record, verify_run(copied)).verdict.good


def test_the_report_is_red_when_evidence_fails(copied: Path) -> None:
    change_json(copied / "run.json", better_recall)
    found = call("report", copied, "--markdown")
    assert found.exit_code == 0, found.output
    head = found.output.partition("## ")[2].partition("## ")[0]
    assert "Not verified" in head
    assert "run.json" in head
    assert "✗" in head


def test_the_report_is_red_when_evidence_is_missing(copied: Path) -> None:
    (copied / FILE).unlink()
    assert "✗ Not verified" in call("report", copied, "--markdown").output


def test_a_report_without_keys_says_so_and_keeps_its_verdict(folder: Path) -> None:
    run_job(read_job(folder / "job.toml"))
    told = call("report", folder / "run", "--markdown").output
    assert "✓ All constraints are met" in told
    assert "Nobody signed" in told


def test_a_long_list_of_failures_is_cut_in_the_verdict() -> None:
    found = Verification({}, "", False, False, tuple(Failed(f"file {i}", "it was changed") for i in range(9)))
    made = sections.report(example(), found)
    assert len(made.verdict.sentences) == 4
    told: Mapping[str, Any] = {section.key: section for section in made.sections}
    assert "file 8" in repr(told["evidence"])


def example() -> Record:
    return Record(
        title="t",
        asked="a",
        status="solved",
        reason="",
        method="m",
        engine="e",
        tol=(1e-3, 1e-3),
        stationarity=0.0,
        feasibility=0.0,
        objective=1.0,
        rounds=1,
        convex=True,
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        bounded=(),
        measured=(),
        history=(),
        sent=(),
        settings={},
        versions={},
    )
