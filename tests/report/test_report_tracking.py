"""What trackers write is read back by other programs, after whole solves and after interrupted ones."""

from __future__ import annotations

import csv
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.cli.init import init
from fedpact.cli.run import run
from fedpact.report.coefficients import read_coefficients
from fedpact.report.record import Record
from fedpact.report.tracking import CsvLog, MLflow, TensorBoard, Tracker, forget, tracker
from fedpact.solvers import Progress, Solution

SEEN = Progress("proximal-al", 1, 30, 57, 1_234_567, 4.13e-3, 2e-5, 0.25)
FIELDS = ("method", "iteration", "inner", "rounds", "bytes", "stationarity", "feasibility", "objective")


@pytest.fixture(scope="module")
def problem() -> fp.FederatedProblem:
    return tasks.neyman_pearson(data.neyman_pearson(n=2, rows=100, d=5), bound=0.5)


@pytest.fixture(scope="module")
def told(problem: fp.FederatedProblem) -> tuple[list[Progress], Solution]:
    """All that a solve told, and its answer."""
    heard: list[Progress] = []
    answer = fp.solve(problem, "proximal-al", tol=0.01, callbacks=[heard.append])
    assert answer.solved
    assert len(heard) > 20
    assert np.isfinite(heard[0].stationarity)  # the start is judged
    return heard, answer


class PowerCut(Exception):
    pass


def tracked(made: Tracker, problem: fp.FederatedProblem, **options: Any) -> Solution:
    with made as tracking:
        answer = fp.solve(problem, "proximal-al", tol=0.01, callbacks=[tracking], **options)
        tracking.conclude(answer)
    return answer


def cut_off(made: Tracker, problem: fp.FederatedProblem, folder: Path, after: int) -> None:
    """A solve with a checkpoint that ends in the middle; the tracker is not even closed in good order."""
    heard: list[Progress] = []

    def cut(progress: Progress) -> None:
        heard.append(progress)
        if len(heard) == after:
            raise PowerCut

    with pytest.raises(PowerCut), made as tracking:
        fp.solve(problem, "proximal-al", tol=0.01, callbacks=[tracking, cut], checkpoint=folder)


# ----------------------------------------------------------------------------------------------------------------- CSV


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def without_time(path: Path) -> list[dict[str, str]]:
    return [{name: cell for name, cell in row.items() if name != "time"} for row in rows(path)]


def test_the_csv_log_has_every_number(
    problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], tmp_path: Path
) -> None:
    heard, answer = told
    path = tmp_path / "new" / "log.csv"
    tracked(CsvLog(path), problem)
    *running, last = rows(path)
    assert [row["status"] for row in running] == [""] * len(heard)
    for row, progress in zip(running, heard, strict=True):
        assert {name: row[name] for name in FIELDS} == {name: str(getattr(progress, name)) for name in FIELDS}
    assert (last["status"], last["method"], int(last["rounds"])) == ("solved", "proximal-al", answer.rounds)
    assert int(last["bytes"]) == answer.communication.bytes
    assert float(last["stationarity"]) == answer.certificate.stationarity
    assert float(last["feasibility"]) == answer.certificate.feasibility
    assert float(last["objective"]) == answer.objective
    assert int(last["iteration"]) == answer.history.outer[-1].iteration
    times = [row["time"] for row in (*running, last)]
    assert times == sorted(times)
    assert times[0].endswith("+00:00")


def test_a_resumed_csv_log_is_that_of_an_uninterrupted_solve(problem: fp.FederatedProblem, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    tracked(CsvLog(whole), problem)
    cut_off(CsvLog(parts), problem, tmp_path / "run", 10)
    assert len(rows(parts)) == 10
    with parts.open("a") as file:
        file.write("2026-01-01T00:00:00.0")  # a line that was being written
    answer = tracked(CsvLog(parts, resume=True), problem, checkpoint=tmp_path / "run", resume=True)
    assert answer.solved
    assert without_time(parts) == without_time(whole)
    tracked(CsvLog(parts, resume=True), problem, checkpoint=tmp_path / "run", resume=True)
    assert without_time(parts) == without_time(whole)  # also when there was nothing left to do


def test_a_log_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    CsvLog(path)(SEEN)
    with raises_code("FP-504", "", "log.csv"):
        CsvLog(path)
    assert len(rows(path)) == 1


def test_csv_logs_that_cannot_be(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("x,y\n1,2\n")
    with raises_code("FP-505", "", "other.csv"):
        CsvLog(other, resume=True)
    assert other.read_text() == "x,y\n1,2\n"
    with raises_code("FP-501", "", "other.csv"):
        CsvLog(other / "below a file.csv")


def test_methods_on_pooled_data_count_what_they_report(problem: fp.FederatedProblem, tmp_path: Path) -> None:
    steps = []

    class Steps(CsvLog):
        def write(self, progress: Progress, answer: Solution | None) -> None:
            steps.append(self.step(progress))

    fp.solve(problem, "centralized-proximal-al", callbacks=[Steps(tmp_path / "log.csv")])
    assert len(steps) > 1
    assert steps == list(range(1, len(steps) + 1))


# --------------------------------------------------------------------------------------------------------- TensorBoard


@pytest.fixture
def events() -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is absent: pip install '.[tensorboard]'")


def records(path: Path) -> Iterator[Any]:
    """The events of a file: records of a length, its checksum, the bytes and theirs, all little-endian (TFRecord)."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    def checked(content: bytes, checksum: int) -> bytes:
        crc = crc32c(content)
        assert checksum == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        return content

    with path.open("rb") as file:
        while length := file.read(8):
            checked(length, *struct.unpack("<I", file.read(4)))
            content = file.read(*struct.unpack("<Q", length))
            yield Event.FromString(checked(content, *struct.unpack("<I", file.read(4))))


def curve(folder: Path, name: str) -> dict[int, float]:
    """step -> value, over the event files of a folder in their order; a new session takes back later steps."""
    points: dict[int, float] = {}
    for path in sorted(folder.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns):
        for event in records(path):
            if event.HasField("session_log"):
                points = {step: value for step, value in points.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == name:
                    points[event.step] = value.simple_value
    return points


def expected_curve(told: tuple[list[Progress], Solution], name: str) -> dict[int, float]:
    heard, answer = told
    points = {progress.rounds: getattr(progress, name) for progress in heard}
    last = {"bytes": answer.communication.bytes, "objective": answer.objective}
    points[answer.rounds] = last[name] if name in last else getattr(answer.certificate, name)
    return {step: float(np.float32(value)) for step, value in points.items() if np.isfinite(value)}


CURVES = ("objective", "stationarity", "feasibility", "bytes")


@pytest.mark.usefixtures("events")
def test_the_event_file_has_the_curves(
    problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], tmp_path: Path
) -> None:
    tracked(TensorBoard(tmp_path / "tb"), problem)
    for name in CURVES:
        assert curve(tmp_path / "tb", name) == expected_curve(told, name)


@pytest.mark.usefixtures("events")
def test_resumed_curves_are_those_of_an_uninterrupted_solve(
    problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], tmp_path: Path
) -> None:
    cut_off(TensorBoard(tmp_path / "tb"), problem, tmp_path / "run", 10)
    assert 0 < len(curve(tmp_path / "tb", "bytes")) <= 10
    tracked(TensorBoard(tmp_path / "tb", resume=True), problem, checkpoint=tmp_path / "run", resume=True)
    for name in CURVES:
        assert curve(tmp_path / "tb", name) == expected_curve(told, name)


@pytest.mark.usefixtures("events")
def test_tensorboard_itself_reads_them(
    problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], tmp_path: Path
) -> None:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is absent: pip install tensorboard",
    )
    cut_off(TensorBoard(tmp_path / "tb"), problem, tmp_path / "run", 10)
    tracked(TensorBoard(tmp_path / "tb", resume=True), problem, checkpoint=tmp_path / "run", resume=True)
    reader = reading.EventAccumulator(str(tmp_path / "tb"), size_guidance={reading.SCALARS: 0})
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == sorted(CURVES)
    for name in CURVES:
        assert {event.step: event.value for event in reader.Scalars(name)} == expected_curve(told, name)


@pytest.mark.usefixtures("events")
def test_curves_of_another_run_are_not_mixed_in(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "tb") as tracking:
        tracking(SEEN)
    with raises_code("FP-507", "", str(tmp_path / "tb")):
        TensorBoard(tmp_path / "tb")
    (tmp_path / "file").write_text("")
    with raises_code("FP-501", "", str(tmp_path / "file")):
        TensorBoard(tmp_path / "file" / "tb")


# -------------------------------------------------------------------------------------------------------------- MLflow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of MLflow in a file, no server. It takes seconds to make: there is one, with an experiment a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        pytest.importorskip("mlflow", reason="MLflow is absent: pip install '.[mlflow]'")
        folder = tmp_path_factory.mktemp("mlflow")
        patch.chdir(folder)  # beside a store in a file, MLflow writes artifacts to mlruns/ of the working folder
        yield f"sqlite:///{folder / 'runs.db'}"


def only_run(store: str, experiment: str) -> tuple[Any, Any]:
    """A client of its own, and the one run of the experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return client, run


def history(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]


def test_mlflow_has_the_run(problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], store: str) -> None:
    heard, answer = told
    tracked(MLflow('it\'s a "run"', experiment="night", uri=store, params={"bound": 0.2}), problem)
    client, run = only_run(store, "night")
    assert run.info.run_name == 'it\'s a "run"'
    assert run.info.status == "FINISHED"
    assert run.data.params == {"bound": "0.2"}
    assert {name: run.data.tags[name] for name in ("method", "status", "reason")} == {
        "method": "proximal-al",
        "status": "solved",
        "reason": answer.reason,
    }
    for name in CURVES:
        expected = [(p.rounds, float(getattr(p, name))) for p in heard if np.isfinite(getattr(p, name))]
        last = {"bytes": answer.communication.bytes, "objective": answer.objective}
        end = last[name] if name in last else getattr(answer.certificate, name)
        assert history(client, run, name) == [*expected, (answer.rounds, float(end))]


def test_a_resumed_run_of_mlflow_is_one_run(
    problem: fp.FederatedProblem, told: tuple[list[Progress], Solution], store: str, tmp_path: Path
) -> None:
    heard, answer = told
    where = {"uri": store, "experiment": "resumed"}
    MLflow("another", **where).close()
    cut_off(MLflow("cut", **where), problem, tmp_path / "run", 10)
    MLflow("another", **where).close()
    found = MLflow("cut", **where, resume=True)
    assert found.known == 10
    tracked(found, problem, checkpoint=tmp_path / "run", resume=True)
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    run = client.get_run(found.run_id)
    assert run.info.run_name == "cut"
    assert run.info.status == "FINISHED"
    assert [step for step, _ in history(client, run, "iteration")] == [p.rounds for p in heard]
    assert history(client, run, "bytes")[-1] == (answer.rounds, answer.communication.bytes)


def test_mlflow_hears_how_a_run_failed(problem: fp.FederatedProblem, store: str, tmp_path: Path) -> None:
    where = {"uri": store, "experiment": "failed"}
    cut_off(MLflow("cut", **where), problem, tmp_path / "run", 3)
    assert only_run(store, "failed")[1].info.status == "FAILED"
    with pytest.raises(KeyboardInterrupt), MLflow("cut", **where, resume=True):
        raise KeyboardInterrupt
    client, run = only_run(store, "failed")
    assert run.info.status == "KILLED"
    assert len(history(client, run, "iteration")) == 3


def test_what_mlflow_does_not_take_is_kept(store: str) -> None:
    tracking = MLflow("long", uri=store, experiment="kept")
    client, run = only_run(store, "kept")
    client.delete_run(run.info.run_id)  # from now on it refuses
    for i in range(1, 501):  # 2500 values: more than one batch
        tracking(replace(SEEN, rounds=i))
    with raises_code("FP-510", "", "2500", run.info.run_id):
        tracking.close()
    client.restore_run(run.info.run_id)
    tracking.close()
    assert history(client, run, "objective") == [(i, 0.25) for i in range(1, 501)]


def test_no_server_of_mlflow(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with raises_code("FP-509", "", "'x'"):
        MLflow("x", uri="http://127.0.0.1:9")


# ------------------------------------------------------------------------------------------------------------- by name


def test_a_job_names_its_trackers(tmp_path: Path) -> None:
    with tracker("csv", tmp_path / "out") as tracking:
        tracking(SEEN)
    assert [row["rounds"] for row in rows(tmp_path / "out" / "progress.csv")] == ["57"]
    with tracker("csv", tmp_path / "out", resume=True) as tracking:
        tracking(SEEN)  # heard again
        tracking(replace(SEEN, rounds=58))
    assert [row["rounds"] for row in rows(tmp_path / "out" / "progress.csv")] == ["57", "58"]
    with raises_code("FP-OPTION-501", "", "'wandb'", "csv, tensorboard, mlflow"):
        tracker("wandb", tmp_path)


def test_a_job_is_tracked_through_all_its_solves(tmp_path: Path) -> None:
    job = tmp_path / "x" / "job.toml"
    assert CliRunner().invoke(init, [str(job.parent)]).exit_code == 0
    job.write_text(job.read_text().replace('folder = "run"', 'folder = "run"\ntrack = ["csv"]'))
    assert CliRunner().invoke(run, [str(job)]).exit_code == 0
    log = job.parent / "run" / "progress.csv"
    *running, last = rows(log)
    certificate = json.loads((job.parent / "run" / "certificate.json").read_text())
    assert (last["status"], float(last["objective"])) == ("solved", certificate["objective"])
    assert {row["solve"] for row in running} == {"1", "2"}  # without the constraints, and with them
    for solve in ("1", "2"):
        rounds = [int(row["rounds"]) for row in running if row["solve"] == solve]
        assert rounds == sorted(set(rounds))
    before = without_time(log)
    assert CliRunner().invoke(run, [str(job), "--resume"]).exit_code == 0
    assert without_time(log) == before
    assert CliRunner().invoke(run, [str(job), "--force"]).exit_code == 0
    assert without_time(log) == before


def test_solves_one_after_the_other_are_one_curve(tmp_path: Path) -> None:
    steps = []

    class Steps(CsvLog):
        def write(self, progress: Progress, answer: Solution | None) -> None:
            steps.append((self.solve, self.step(progress)))

    tracking = Steps(tmp_path / "log.csv")
    for count in (3, 4, 5, 2, 3):
        tracking(replace(SEEN, rounds=count, bytes=100 * count))
    tracking(replace(SEEN, rounds=3, bytes=50))  # fewer bytes than before: another solve
    assert steps == [(1, 3), (1, 4), (1, 5), (2, 7), (2, 8), (3, 11)]


@pytest.mark.usefixtures("events")
def test_tensorboard_by_name(tmp_path: Path) -> None:
    with tracker("tensorboard", tmp_path) as tracking:
        tracking(SEEN)
    assert curve(tmp_path / "tensorboard", "objective") == {57: 0.25}
    (tmp_path / "tensorboard" / "notes.txt").write_text("mine")
    forget(tmp_path)
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == ["notes.txt"]


def tracked_job(folder: Path, name: str) -> Path:
    """The folder of a run that is tracked by this name."""
    job = folder / "x" / "job.toml"
    assert CliRunner().invoke(init, [str(job.parent)]).exit_code == 0
    job.write_text(job.read_text().replace('folder = "run"', f'folder = "run"\ntrack = ["{name}"]'))
    assert CliRunner().invoke(run, [str(job)]).exit_code == 0
    return job.parent / "run"


@pytest.mark.usefixtures("events")
def test_tensorboard_has_what_the_model_does(tmp_path: Path) -> None:
    folder = tracked_job(tmp_path, "tensorboard")
    record = Record.load(folder)
    for one in record.measured:
        found = curve(folder / "tensorboard", f"model/{one.owner}/recall_of_relapse___yes")
        assert found == {record.rounds: float(np.float32(one.numbers["recall of relapse = yes"]))}
    texts = [
        value.tensor.string_val[0].decode()
        for path in (folder / "tensorboard").glob("events.out.tfevents.*")
        for event in records(path)
        for value in event.summary.value
        if value.tag.startswith("model/text_summary")
    ]
    assert all(f"| {one.name} | {one.estimate:.6g} |" in texts[0] for one in read_coefficients(folder, record))


def test_mlflow_by_name(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    with tracker("mlflow", tmp_path / "job" / "run") as tracking:
        tracking(SEEN)
    client, run = only_run(store, "fedpact")
    assert run.info.run_name == "job/run"
    assert history(client, run, "objective") == [(57, 0.25)]


def test_mlflow_has_what_the_model_does(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)  # artifacts go there
    folder = tracked_job(tmp_path, "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    number = client.get_experiment_by_name("fedpact").experiment_id
    (run,) = [one for one in client.search_runs([number]) if one.info.run_name == "x/run"]
    record = Record.load(folder)
    for one in record.measured:
        assert history(client, run, f"{one.owner}/recall of relapse _ yes") == [
            (record.rounds, one.numbers["recall of relapse = yes"])
        ]
    kept = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert {"model.json", "model.npz", "certificate.json", "run.json"} <= kept


@pytest.mark.parametrize(
    ("name", "module", "code"), [("tensorboard", "tensorboardX", "FP-506"), ("mlflow", "mlflow", "FP-508")]
)
def test_without_the_package_the_remedy_is_told(
    name: str, module: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with raises_code(code, "", f"pip install '.[{name}]'"):
        tracker(name, tmp_path)
