"""A job is one session: tables are read once, all messages are counted, and it ends well wherever it is stopped."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from job_files import change
from raising import raises_code
from watched import Watched, interrupt, lose

import fedpact as fp
from fedpact.cli.main import main
from fedpact.cli.report import report
from fedpact.cli.run import run
from fedpact.errors import OwnerLost
from fedpact.federation import ENGINES, Order, Step, read_record
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record
from fedpact.tasks import tables
from fedpact.tasks.model import Model

OWNERS = ("north", "south", "coast")


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each table was read."""
    counted: Counter[str] = Counter()
    read = tables.read_cells

    def count(path: Path, only: Sequence[str]) -> Any:
        counted[path.name] += 1
        return read(path, only)

    monkeypatch.setattr(tables, "read_cells", count)
    return counted


def demand_recall(folder: Path) -> Path:
    return change(folder, "bound = 0.35", "min_recall = 0.9")


def bits(folder: Path) -> bytes:
    return fp.Solution.load(folder / "run" / "solution.npz").w.tobytes()


# ------------------------------------------------------------------------------------------------------- one session


@pytest.mark.parametrize("recall", [False, True], ids=["bound", "recall"])
def test_every_table_is_read_once_and_one_fleet_is_opened(folder: Path, parsed: Counter[str], recall: bool) -> None:
    job = demand_recall(folder) if recall else folder / "job.toml"
    engine = Watched()
    record = run_job(read_job(job), engine=engine)
    assert record.solved
    assert parsed == {f"{owner}.csv": 1 for owner in OWNERS}
    assert engine.opened == 1
    assert engine.steps().count("measure") == 2
    assert (engine.steps().count("tally") > 0) == recall


def messages(folder: Path) -> Counter[tuple[str, str]]:
    """By owner and direction, in the record of messages."""
    found: Counter[tuple[str, str]] = Counter()
    for message in read_record(folder / "run" / "messages.log"):
        found.update([(message.get("to") or message["from"], "down" if "to" in message else "up")])
    return found


def counted(folder: Path) -> Counter[tuple[str, str]]:
    """The same in the ledger."""
    owners = json.loads((folder / "run" / "ledger.json").read_text())["owners"]
    return Counter({(one["owner"], way): one[f"messages_{way}"] for one in owners for way in ("down", "up")})


@pytest.mark.parametrize("secure", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("recall", [False, True], ids=["bound", "recall"])
def test_the_record_of_messages_and_the_ledger_count_the_same(folder: Path, recall: bool, secure: bool) -> None:
    if secure:
        pytest.importorskip("cryptography", reason="secure sums need cryptography")
        change(folder, "[solve]", "[solve]\nsecure_sum = true")
    if recall:
        demand_recall(folder)
    job = change(folder, "# messages = false", "messages = true")
    for force in (False, True):  # a run that replaces another begins a record of its own
        engine = Watched()
        record = run_job(read_job(job), engine=engine, force=force)
        found = messages(folder)
        assert found == counted(folder)
        assert found.total() == 2 * len(engine.asked) == 6 * record.rounds


def test_messages_that_were_sent_again_count_again(folder: Path) -> None:
    job = change(folder, "# messages = false", "messages = true")
    lost = {"moments", "measure"}

    def once(owner: str, step: Step, order: Order) -> None:
        if owner == "south" and step.__name__ in lost:
            lost.remove(step.__name__)
            raise OwnerLost("south: gone for a moment")

    record = run_job(read_job(job), engine=Watched(once))
    assert record.solved
    found = messages(folder)
    assert found == counted(folder)
    assert (found["south", "down"], found["south", "up"]) == (record.rounds + 2, record.rounds)


# ------------------------------------------------------------------------------------------ deadlines and lost owners


@pytest.mark.parametrize("step", ["moments", "measure"])
def test_a_late_owner_is_asked_again_in_every_exchange(folder: Path, step: str) -> None:
    """Deadline and retries are the session's: they hold before and after a solve, too."""
    late = {"south"}

    def once(owner: str, asked: Step, order: Order) -> bool:
        if asked.__name__ == step and owner in late:
            late.remove(owner)
            return True
        return False

    engine = Watched(once)
    job = change(folder, "[solve]", "[solve]\ndeadline = 0.1\nretries = 1")
    assert run_job(read_job(job), engine=engine).solved
    assert not late
    assert engine.steps("south").count(step) == engine.steps("north").count(step) + 1


@pytest.fixture
def engine_of_the_job(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Watched]:
    """What [solve] engine = "threads" stands for: the last one of this list."""
    used: list[Watched] = []
    monkeypatch.setitem(ENGINES, "threads", lambda: used[-1])
    change(folder, "[solve]", '[solve]\nengine = "threads"\nretries = 1')
    return used


def test_an_owner_lost_in_the_last_exchange_leaves_the_certified_model(
    folder: Path, engine_of_the_job: list[Watched]
) -> None:
    change(folder, "# compare = true", "compare = false")
    engine_of_the_job.append(Watched(lose("south", "measure")))
    job = str(folder / "job.toml")
    found = CliRunner().invoke(run, [job])
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert engine_of_the_job[0].steps()[-2:] == ["measure", "measure"]  # sent twice, as retries = 1 says
    out = folder / "run"
    record = Record.load(out)
    assert record.status == "client_lost"
    assert "south: gone" in record.reason
    assert f"fedpact run {job} --resume" in found.output
    # the model is there, and the certificate is that of the model
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["status"] == "client_lost"
    assert max(certificate["stationarity"], certificate["feasibility"]) <= 1e-3
    model = Model.load(out)
    assert CliRunner().invoke(report, [str(out)]).exit_code == 0
    # and the owner that came back gives the rest
    engine_of_the_job.append(Watched())
    again = CliRunner().invoke(run, [job, "--resume"])
    assert again.exit_code == 0, again.output
    assert "measure" in engine_of_the_job[1].steps()
    assert Record.load(out).measured
    assert Model.load(out).coefficients.tobytes() == model.coefficients.tobytes()


@pytest.mark.parametrize("step", ["moments", "begin"])
def test_an_owner_lost_before_there_is_a_model_ends_with_code_1(
    folder: Path, engine_of_the_job: list[Watched], step: str
) -> None:
    engine_of_the_job += [Watched(lose("south", step))]
    found = CliRunner().invoke(run, [str(folder / "job.toml")])
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert "client_lost: south: gone" in found.output
    assert "--resume" in found.output
    assert not (folder / "run" / "run.json").exists()
    engine_of_the_job.append(Watched())
    again = CliRunner().invoke(run, [str(folder / "job.toml"), "--resume"])
    assert again.exit_code == 0, again.output


def test_an_owner_lost_while_decisions_are_counted_leaves_a_model(folder: Path) -> None:
    demand_recall(folder)

    def event(owner: str, step: Step, order: Order) -> None:
        if owner == "south" and step.__name__ == "tally":
            raise OwnerLost("south: gone")

    job = change(folder, "[solve]", "[solve]\nretries = 0")
    record = run_job(read_job(job), engine=Watched(event))
    assert record.status == "client_lost"
    assert "south: gone" in record.reason
    assert "not counted" in record.reason
    assert (folder / "run" / "model.json").exists()
    assert run_job(read_job(job), resume=True).solved


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


def test_a_run_interrupted_in_any_exchange_is_resumed_to_the_same_bits(folder: Path) -> None:
    """Before, between and after the solves: in each exchange, when one owner has answered and the next is asked."""
    job = folder / "job.toml"
    watched = Watched()
    straight = run_job(read_job(job), engine=watched)
    expected = bits(folder)
    steps = [step for _, step in watched.asked]
    shutil.rmtree(folder / "run")  # nothing to go back to for the first, which ends before an exchange
    ends = []
    for number in range(1, len(steps), len(OWNERS)):
        ends.append(stopped(job, Watched(interrupt(number)), force=True))
        again = Watched()
        record = run_job(read_job(job), engine=again, resume=True)
        assert bits(folder) == expected, steps[number]
        assert record.rounds == straight.rounds
        assert (record.measured, record.bounded) == (straight.measured, straight.bounded)
        confirmed = [step for step in again.steps("coast") if step == "confirm"]
        assert len(again.steps("coast")) - len(confirmed) == len(steps[number + 1 :: len(OWNERS)])
    # before the constrained solve there is no model to hand out, in it and after it there is one; near the end of the
    # solve it may be certified by then
    assert set(ends) <= {"", "interrupted", "solved"}
    assert ends[0] == ""
    assert ends[-1] == "interrupted"


def stopped(job: Path, engine: Watched, **how: Any) -> str:
    """The status of a run that is interrupted; empty when it has no model to hand out."""
    try:
        return run_job(read_job(job), engine=engine, **how).status
    except KeyboardInterrupt:
        return ""


def test_a_search_for_bounds_is_resumed_to_the_same_bits(folder: Path) -> None:
    job = demand_recall(folder)
    watched = Watched()
    run_job(read_job(job), engine=watched)
    expected = bits(folder)
    total = len(watched.asked)
    for number in (1, total // 3, total // 2, total - 10, total - 2):
        assert stopped(job, Watched(interrupt(number)), force=True) in ("", "interrupted", "solved")
        assert run_job(read_job(job), resume=True).solved
        assert bits(folder) == expected


def test_a_resumed_run_that_is_stopped_before_it_has_caught_up_goes_on_as_well(folder: Path) -> None:
    job = folder / "job.toml"
    watched = Watched()
    run_job(read_job(job), engine=watched)
    expected = bits(folder)
    stopped(job, Watched(interrupt(len(watched.asked) - 5)), force=True)

    def stop(progress: fp.solvers.Progress) -> None:
        raise KeyboardInterrupt

    again = Watched()
    with pytest.raises(KeyboardInterrupt):
        run_job(read_job(job), engine=again, resume=True, callbacks=[stop])
    assert again.asked == []
    assert run_job(read_job(job), resume=True).solved
    assert bits(folder) == expected


@pytest.mark.parametrize("number", [1, -2], ids=["moments", "measure"])
def test_ctrl_c_on_the_command_line_says_how_to_go_on(
    folder: Path, engine_of_the_job: list[Watched], number: int, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = str(folder / "job.toml")
    engine_of_the_job.append(Watched())
    run_job(read_job(job))
    expected = bits(folder)
    number %= len(engine_of_the_job[0].asked)
    for engine, more, code in (
        (Watched(interrupt(number)), ["--force"], 130),
        (Watched(), ["--resume"], 0),
    ):
        engine_of_the_job.append(engine)
        monkeypatch.setattr("sys.argv", ["fedpact", "run", job, *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == code
        told = capsys.readouterr().err
        assert (f"interrupted; go on with: fedpact run {job} --resume" in told) == (code == 130)
        assert "Traceback" not in told
    assert bits(folder) == expected


# ----------------------------------------------------------------------------------------- what a resumed run refuses


def test_a_resumed_run_over_a_changed_table_is_refused_with_its_owner(folder: Path) -> None:
    job = folder / "job.toml"
    for number in (4, 40):  # before the first solve, and in one
        stopped(job, Watched(interrupt(number)), force=True)
        table = folder / "coast.csv"
        before = table.read_text()
        table.write_text(before.replace("yes", "no", 1))
        with raises_code("FP-CHECKPOINT-001", "coast: "):
            run_job(read_job(job), resume=True)
        table.write_text(before)
        assert run_job(read_job(job), resume=True).solved


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("bound = 0.35", "bound = 0.4", "bound"),
        ("tol = 1e-3", "tol = 1e-4", "tol"),
        ('# method = "auto"', 'method = "accelerated"', "method"),
        ("# compare = true", "compare = false", "compare"),
        ('"pressure", ', "", "columns"),
    ],
)
def test_a_resumed_run_of_another_job_is_refused_with_the_key(folder: Path, old: str, new: str, key: str) -> None:
    run_job(read_job(folder / "job.toml"))
    job = change(folder, old, new)
    with raises_code("FP-CHECKPOINT-308", "", f"{key} = "):
        run_job(read_job(job), resume=True)


def test_a_resumed_run_with_another_table_of_the_server_is_refused(folder: Path) -> None:
    change(folder, 'task = "neyman_pearson"', 'task = "group_fairness"')
    change(folder, 'protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]')
    change(folder, ', "smoker"]', "]")
    change(folder, 'smoker = ["never", "former", "now"]', "")
    change(folder, 'coast = "coast.csv"', "")
    job = change(folder, '# [server]\n# data = "server.csv"', '[server]\ndata = "coast.csv"')
    run_job(read_job(job))
    change(folder, "yes", "no", "coast.csv")
    with raises_code("FP-CHECKPOINT-308", "", "server = "):
        run_job(read_job(job), resume=True)
