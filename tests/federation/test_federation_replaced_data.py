"""Data replaced between a crash and its resume: the run ends with the owner's name, and calls no old data solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import NAMES, REGULARIZER, SERVER, Faulty, Wire, bits, clinics, solve, stop_at
from marks import slow_but
from raising import raises_code
from site_files import LENIENT, SiteEngine, write_sites

import fedpact as fp
from fedpact import tasks
from fedpact.federation.wire import loads
from fedpact.functions import Smooth
from fedpact.problem import RemoteProblem
from fedpact.tasks import NeymanPearson

COLUMNS = ("age", "dose")
METHODS = ("interior-point", "accelerated", "proximal-al")


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


def write(path: Path, seed: int, shift: float = 0.0) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2)) + shift
    y = (X @ [1.0, -0.5] + rng.normal(size=40) > shift).astype(int)
    lines = [f"{a!r},{b!r},{label}" for (a, b), label in zip(X.tolist(), y, strict=True)]
    path.write_text("\n".join(["age,dose,y", *lines, ""]))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.csv" for name in NAMES}
    for seed, path in enumerate(paths.values()):
        write(path, seed)
    return paths


def one_cell(path: Path) -> None:
    header, first, *rest = path.read_text().split("\n")
    age, dose, label = first.split(",")
    path.write_text("\n".join([header, f"{float(age) + 1e-9!r},{dose},{label}", *rest]))


def a_label(path: Path) -> None:
    header, first, *rest = path.read_text().split("\n")
    path.write_text("\n".join([header, f"{first[:-1]}{1 - int(first[-1])}", *rest]))


def a_row_less(path: Path) -> None:
    header, _, *rest = path.read_text().split("\n")
    path.write_text("\n".join([header, *rest]))


def another_order(path: Path) -> None:
    header, *rest = path.read_text().strip().split("\n")
    path.write_text("\n".join([header, *reversed(rest), ""]))


def another_table(path: Path) -> None:
    write(path, 77, shift=2.0)


CHANGES = [one_cell, a_label, a_row_less, another_order, another_table]


# ------------------------------------------------------------------------------------------------------------- engines


def run(where: str, files: dict[str, Path], method: str, folder: Path, **options: Any) -> fp.Solution:
    """Solve the same job over the files with owners in this process, behind bytes, or as Flower sites."""
    weight = fp.prox.SquaredL2(0.01)
    settings: dict[str, Any] = {"checkpoint": folder / "kept", "engine": Wire() if where == "bytes" else None}
    settings |= {name: options.pop(name) for name in ("resume", "secure_sum") if name in options}
    problem = tasks.from_files(files, bound=0.6, label="y", columns=COLUMNS, regularizer=weight)
    if where == "sites":
        pytest.importorskip("cryptography")
        rules = {**LENIENT, "require": {**LENIENT["require"], "secure_sums": settings.get("secure_sum", True)}}
        allow = {"methods": [*METHODS]}
        written = write_sites(folder / "sites", files, features=COLUMNS, allow=allow, rules=rules)
        job = NeymanPearson(bound=0.6, label="y", columns=COLUMNS, owners=len(files))
        problem = RemoteProblem(dict.fromkeys(files), regularizer=weight, task=job)
        settings |= {"engine": SiteEngine(written), "identity": written.key, "roster": written.roster}
        settings.setdefault("secure_sum", True)
    with fp.Session(**settings) as session:
        return fp.solve(problem, method, tol=1e-3, session=session, **options)


WHERE = pytest.mark.parametrize("where", ["in process", "bytes", "sites"])


@WHERE
@pytest.mark.parametrize("finished", slow_but([False, True], False), ids=["stopped", "finished"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_replaced_table_is_named(
    change: Callable[[Path], None], finished: bool, where: str, files: dict[str, Path], tmp_path: Path
) -> None:
    first = run(where, files, "interior-point", tmp_path, callbacks=[] if finished else [stop_at(4)])
    assert first.solved is finished
    before = files["clinic b"].read_bytes()
    change(files["clinic b"])
    with raises_code("FP-CHECKPOINT-001", "clinic b: "):
        run(where, files, "interior-point", tmp_path, resume=True)
    files["clinic b"].write_bytes(before)  # nothing was spoiled
    again = run(where, files, "interior-point", tmp_path, resume=True)
    assert bits(again) == bits(run(where, files, "interior-point", tmp_path / "new"))


@WHERE
@pytest.mark.parametrize("method", slow_but(METHODS, "interior-point"))
@pytest.mark.parametrize("secure", [False, True], ids=["open", "masked"])
def test_with_every_method(secure: bool, method: str, where: str, files: dict[str, Path], tmp_path: Path) -> None:
    if secure:
        pytest.importorskip("cryptography")
    run(where, files, method, tmp_path, secure_sum=secure)
    another_table(files["clinic c"])
    with raises_code("FP-CHECKPOINT-001", "clinic c: "):
        run(where, files, method, tmp_path, resume=True, secure_sum=secure)


@pytest.mark.parametrize("method", [*METHODS, "ifeddr", "inexact-admm"])
def test_a_finished_run_is_not_repeated_on_other_shares(method: str, tmp_path: Path) -> None:
    """All of it is on record, so nobody would be asked: the record says solved, the data that are there now do not."""
    solve(method, checkpoint=tmp_path)
    shares = list(clinics(shift=0.5).shares)
    if method in ("ifeddr", "inexact-admm"):
        other = fp.FederatedProblem([fp.Share(share.objective, name=share.name) for share in shares])
    else:
        other = fp.FederatedProblem(shares, SERVER, REGULARIZER)
    with raises_code("FP-CHECKPOINT-001", "clinic b: "):
        solve(method, other, checkpoint=tmp_path, resume=True)


def test_a_function_of_the_user_counts_with_what_it_reads(tmp_path: Path) -> None:
    def problem(slope: np.ndarray) -> fp.FederatedProblem:
        smooth = Smooth(lambda w: (0.5 * float(w @ w) + float(slope @ w), w + slope), lambda w: np.eye(3), dim=3)
        first, second, third = clinics().shares
        return fp.FederatedProblem([first, second, replace(third, objective=smooth)], SERVER, REGULARIZER)

    slope = np.ones(3)
    first = solve("interior-point", problem(slope), checkpoint=tmp_path, callbacks=[stop_at(4)])
    assert first.status == "interrupted"
    with raises_code("FP-CHECKPOINT-001", "clinic c: "):
        solve("interior-point", problem(np.array([1.0, 1.0, 1.0 + 1e-9])), checkpoint=tmp_path, resume=True)
    found = solve("interior-point", problem(slope), checkpoint=tmp_path, resume=True)
    assert bits(found) == bits(solve("interior-point", problem(slope)))


def test_an_array_changed_in_place_is_noticed(tmp_path: Path) -> None:
    """The same objects in the same session, as in a notebook."""
    rows = np.random.default_rng(3).normal(size=(20, 3))
    labels = (rows[:, 0] > 0).astype(int)
    first, second, third = clinics().shares
    mine = replace(second, objective=fp.functions.LogisticLoss(rows, labels))
    problem = fp.FederatedProblem([first, mine, third], SERVER, REGULARIZER)
    solve("interior-point", problem, checkpoint=tmp_path, callbacks=[stop_at(4)])
    rows[0] = 100.0
    with raises_code("FP-CHECKPOINT-001", "clinic b: "):
        solve("interior-point", problem, checkpoint=tmp_path, resume=True)


def test_a_site_that_restarts_with_another_table_ends_the_run(files: dict[str, Path], tmp_path: Path) -> None:
    """Without a checkpoint too: replies about two tables make one answer about neither."""

    def replaced(owner: str, data: bytes) -> bytes:
        if owner == "clinic b" and loads(data)["order"]["round"] == 5:
            another_table(files["clinic b"])
        return data

    problem = tasks.from_files(files, bound=0.6, label="y", columns=COLUMNS)
    engine = Wire(down=replaced, folder=tmp_path / "states", restarting=True)
    with raises_code("FP-CHECKPOINT-001", "clinic b: "):
        fp.solve(problem, "interior-point", engine=engine)


def test_only_the_owner_whose_table_changed_is_named(tmp_path: Path) -> None:
    """Its scaling is common: one table changes it for all."""
    from click.testing import CliRunner

    from fedpact.cli.init import init
    from fedpact.jobs import read_job, run_job

    assert CliRunner().invoke(init, [str(tmp_path / "x")]).exit_code == 0
    job = tmp_path / "x" / "job.toml"
    run_job(read_job(job))
    table = tmp_path / "x" / "coast.csv"
    header, *rows = table.read_text().splitlines()
    table.write_text("\n".join([header, *rows[1:], ""]))
    with raises_code("FP-CHECKPOINT-001", "coast: "):
        run_job(read_job(job), resume=True)


def test_the_question_shows_the_server_nothing(tmp_path: Path) -> None:
    """No digest travels, which could be compared with those of guessed tables, and nothing that needs a mask."""
    pytest.importorskip("cryptography")
    solve("interior-point", checkpoint=tmp_path, secure_sum=True)
    sent: list[Any] = []

    def seen(owner: str, data: bytes) -> bytes:
        sent.append(loads(data)["reply"])
        return data

    engine = Wire(up=seen)
    solve("interior-point", checkpoint=tmp_path, resume=True, secure_sum=True, engine=engine)
    assert [(reply["kept"], reply["sums"].size) for reply in sent] == [({}, 0)] * 3


def test_no_order_is_sent_again_when_a_run_is_resumed(tmp_path: Path) -> None:
    """Masks belong to an order: the same one twice over other data would show the difference of the data."""
    engines = [Faulty(), Faulty()]
    solve("interior-point", checkpoint=tmp_path, engine=engines[0], callbacks=[stop_at(5)])
    solve("interior-point", checkpoint=tmp_path, engine=engines[1], resume=True)
    worked = [
        (owner, order.round, order.look) for engine in engines for owner, order, _ in engine.orders if not order.look
    ]
    assert len(set(worked)) == len(worked)
    looks = [type(order).__name__ for _, order, _ in engines[1].orders if order.look]
    assert looks == ["Order"] * 3
