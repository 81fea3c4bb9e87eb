"""Reading a job: what is stated arrives, and every mistake is told in one message with its line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job_files import change
from raising import raises_code

from fedpact.cli.main import main
from fedpact.errors import FedpactError
from fedpact.jobs import read_job, run_job


def line_of(path: Path, start: str) -> int:
    return 1 + next(i for i, line in enumerate(path.read_text().splitlines()) if line.startswith(start))


def test_the_example_is_read_as_it_stands(folder: Path) -> None:
    file = read_job(folder / "job.toml")
    assert (file.title, file.task.name, file.task.bound) == ("Three hospitals", "neyman_pearson", 0.35)
    assert file.task.classes == ("no", "yes")
    assert file.task.encoding.names == ("age", "dose", "pressure", "smoker=never", "smoker=former", "smoker=now")
    assert list(file.owners) == ["north", "south", "coast"]
    assert file.output == folder / "run"
    assert file.solve == {"tol": 1e-3, "seed": 0}


def test_features_are_all_other_columns_when_not_listed(folder: Path) -> None:
    path = change(folder, 'features = ["age", "dose", "pressure", "smoker"]', "")
    assert read_job(path).task.columns == ("patient", "age", "dose", "pressure", "smoker")


def test_one_bound_an_owner(folder: Path) -> None:
    path = change(folder, "bound = 0.35", "")
    path.write_text(path.read_text() + "\n[bound]\nnorth = 0.3\nsouth = 0.4\ncoast = 0.5\n")
    assert read_job(path).task.bound == {"north": 0.3, "south": 0.4, "coast": 0.5}
    change(folder, "coast = 0.5", "")
    with raises_code("FP-OPTION-384", str(path), "owner 'coast'"):
        read_job(path)


def _drop_column(folder: Path) -> Path:
    rows = [line.split(",") for line in (folder / "south.csv").read_text().splitlines()]
    (folder / "south.csv").write_text("\n".join(",".join(row[:2] + row[3:]) for row in rows))
    return change(folder, 'features = ["age", "dose", "pressure", "smoker"]', "")


def _no_positives(folder: Path) -> Path:
    (folder / "coast.csv").write_text((folder / "coast.csv").read_text().replace(",yes", ",no"))
    return folder / "job.toml"


def _emptied(folder: Path) -> Path:
    (folder / "south.csv").write_text("")
    return folder / "job.toml"


def _third_class(folder: Path) -> Path:
    text = (folder / "north.csv").read_text().splitlines()
    text[4] = text[4].rsplit(",", 1)[0] + ",perhaps"
    (folder / "north.csv").write_text("\n".join(text))
    return folder / "job.toml"


def _two_superlinks(folder: Path) -> Path:
    for port, name in enumerate(("north", "south", "coast")):
        change(folder, f'"{name}.csv"', f'"flower://host:{min(port, 1)}"')
    return folder / "job.toml"


def _sites(folder: Path) -> Path:
    for name in ("north", "south", "coast"):
        change(folder, f'"{name}.csv"', '"flower://host:1"')
    return folder / "job.toml"


def _cut(folder: Path, table: str) -> Path:
    """Without this table and what stands below it."""
    path = folder / "job.toml"
    path.write_text(path.read_text().partition(table)[0])
    return path


def _blocked(folder: Path) -> Path:
    return change(folder, 'folder = "run"', 'folder = "north.csv/run"')  # below a file no folder can be made


FEATURES = '["never", "former", "now"]'
#: name -> (what is done to the example, the start of the line that the message points at, or None, code, facts of it)
BAD: dict[str, tuple[Callable[[Path], Path], str | None, str, tuple[str, ...]]] = {
    "wrong column": (
        lambda f: change(f, 'label = "relapse"', 'label = "relapsed"'),
        "label",
        "FP-OPTION-388",
        ("owner 'north'", "'relapsed'", "it has: patient, age"),
    ),
    "unknown key": (
        lambda f: change(f, "standardize =", "standardise ="),
        "standardise",
        "FP-OPTION-369",
        ("'standardize'",),
    ),
    "label not binary": (
        _third_class,
        None,
        "FP-DATA-006",
        ("north", "column 'relapse' holds 'perhaps' in line 5", "'no', 'yes'"),
    ),
    "bound out of range": (
        lambda f: change(f, "bound = 0.35", "bound = -0.35"),
        "bound",
        "FP-OPTION-057",
        ("bound = -0.35",),
    ),
    "recall out of range": (
        lambda f: change(f, "bound = 0.35", "min_recall = 90"),
        "min_recall",
        "FP-OPTION-050",
        ("90",),
    ),
    "missing file": (lambda f: change(f, '"south.csv"', '"sout.csv"'), "south", "FP-OPTION-381", ("owner 'south'",)),
    "different columns": (
        _drop_column,
        "south",
        "FP-OPTION-387",
        ("owner 'south'", "'dose'", "owner 'north'", "features = [...]"),
    ),
    "text in a numeric column": (
        lambda f: change(f, f"smoker = {FEATURES}", ""),
        None,
        "FP-DATA-003",
        ("north", "column 'smoker' holds", "in line 2"),
    ),
    "an owner without positives": (
        _no_positives,
        None,
        "FP-DATA-047",
        ("owner 'coast'", "relapse = yes", "300"),
    ),
    "an infinity": (
        lambda f: change(f, ",68,", ",inf,", "south.csv"),
        None,
        "FP-DATA-005",
        ("south", "column 'age' holds 'inf' in line"),
    ),
    "an empty file": (_emptied, "south", "FP-DATA-008", ("owner 'south'", "south.csv")),
    "duplicate owner": (
        lambda f: change(f, 'south = "south.csv"', 'north = "south.csv"'),
        None,
        "FP-OPTION-363",
        ("owner 'north'", "first in line"),
    ),
    "one file for two owners": (
        lambda f: change(f, '"south.csv"', '"north.csv"'),
        "south",
        "FP-OPTION-377",
        ("owners 'north' and 'south'",),
    ),
    "unwritable output": (_blocked, None, "FP-OPTION-396", ("north.csv/run",)),
    "unknown category": (
        lambda f: change(f, FEATURES, '["never", "now"]'),
        None,
        "FP-DATA-006",
        ("north", "column 'smoker' holds 'former'", "'never', 'now'"),
    ),
    "absent value": (
        lambda f: change(f, 'missing = "mean"', 'missing = "error"'),
        None,
        "FP-DATA-004",
        ("north", "column 'pressure'", 'missing = "mean"'),
    ),
    "wrong type": (lambda f: change(f, "bound = 0.35", 'bound = "0.35"'), "bound", "FP-OPTION-370", ("'0.35'",)),
    "not TOML": (lambda f: change(f, 'task = "neyman_pearson"', "task = neyman_pearson"), "task", "FP-OPTION-362", ()),
    "unknown task": (
        lambda f: change(f, '"neyman_pearson"', '"neyman"'),
        "task",
        "FP-OPTION-368",
        ("task 'neyman'", "choose neyman_pearson"),
    ),
    "no task": (lambda f: change(f, 'task = "neyman_pearson"', ""), None, "FP-OPTION-365", ("neyman_pearson",)),
    "a task that is no text": (
        lambda f: change(f, '"neyman_pearson"', "[1, {}]"),
        "task",
        "FP-OPTION-368",
        ("task [1, {}]",),
    ),
    "a table of no use": (
        lambda f: change(f, "# [flower]", "[flower]\npatience = 3"),
        "[flower]",
        "FP-OPTION-380",
        ('"flower://',),
    ),
    "no bound": (lambda f: change(f, "bound = 0.35", ""), None, "FP-OPTION-056", ()),
    "no label": (lambda f: change(f, 'label = "relapse"', ""), None, "FP-OPTION-385", ()),
    "a bound and a recall": (
        lambda f: change(f, "bound = 0.35", "bound = 0.35\nmin_recall = 0.9"),
        "min_recall",
        "FP-OPTION-382",
        (),
    ),
    "a bound of nobody": (
        lambda f: change(f, "bound = 0.35", "bound = {north = 1, south = 1, coast = 1, west = 1}"),
        "bound",
        "FP-OPTION-383",
        ("'west'", "north, south, coast"),
    ),
    "a negative weight": (
        lambda f: change(f, "regularization = 0.001", "regularization = -1"),
        "regularization",
        "FP-OPTION-033",
        ("regularization is -1",),
    ),
    "a feature twice": (
        lambda f: change(f, '"dose", "pressure"', '"dose", "dose"'),
        None,
        "FP-OPTION-045",
        ("'dose'",),
    ),
    "levels that are no list": (
        lambda f: change(f, FEATURES, '"never"'),
        "smoker",
        "FP-OPTION-370",
        ("smoker = 'never'",),
    ),
    "unknown method": (
        lambda f: change(f, "seed = 0", 'method = "sgd"'),
        "method",
        "FP-OPTION-368",
        ("'sgd'", "auto, interior-point"),
    ),
    "unknown tracker": (
        lambda f: change(f, 'folder = "run"', 'track = ["csv", "wandb"]'),
        "track",
        "FP-OPTION-368",
        ("track 'wandb'", "csv, tensorboard, mlflow"),
    ),
    "a misspelt table": (lambda f: change(f, "[owners]", "[owner]"), "[owner]", "FP-OPTION-369", ("'owners'",)),
    "no owners": (
        lambda f: _cut(f, "[owners]"),
        None,
        "FP-OPTION-374",
        ("[owners]",),
    ),
    "an owner that is no file": (
        lambda f: change(f, '"south.csv"', "3"),
        "south",
        "FP-OPTION-375",
        ("south = 3",),
    ),
    "an owner called server": (
        lambda f: change(f, "south = ", "server = "),
        "server",
        "FP-OPTION-376",
        ("'server'",),
    ),
    "a file among sites": (
        lambda f: change(f, '"south.csv"', '"flower://host:1"'),
        "north",
        "FP-OPTION-378",
        ("flower://",),
    ),
    "sites and no key": (_sites, None, "FP-OPTION-622", ("`fedpact site key FILE`",)),
    "a roster of nobody": (
        lambda f: change(f, "# [roster]", f'[roster]\nnorth = "{"a" * 64}"'),
        f'north = "{"a" * 64}"',
        "FP-OPTION-623",
        ("'north'",),
    ),
    "two SuperLinks": (_two_superlinks, "south", "FP-OPTION-379", ()),
    "an engine that does not fit": (
        lambda f: change(f, "seed = 0", 'engine = "flower"'),
        "engine",
        "FP-OPTION-372",
        ("'flower'",),
    ),
    "a value for a table": (
        lambda f: change(f, 'title = "Three hospitals"', "server = 3"),
        "server",
        "FP-OPTION-366",
        ("server = 3", "[server]"),
    ),
    "tolerance out of range": (
        lambda f: change(f, "tol = 1e-3", "tol = 2"),
        "tol",
        "FP-OPTION-371",
        ("tol = 2",),
    ),
    "no job": (lambda f: f / "none.toml", None, "FP-OPTION-360", ("fedpact init",)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_job_gets_one_clear_message_and_exit_code_2(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, start, code, facts = BAD[name]
    path = spoil(folder)
    with pytest.raises(FedpactError) as caught:
        run_job(read_job(path), force=True)
    assert caught.value.code == code
    monkeypatch.setattr(sys, "argv", ["fedpact", "run", str(path), "--force"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("fedpact: ")
    assert str(caught.value) in message
    assert "Traceback" not in message
    assert len(message.splitlines()) == 1
    assert [fact for fact in facts if fact not in message] == []
    if start is not None:
        assert f"{path}:{line_of(path, start)}: " in message
    assert not (folder / "run" / "run.json").exists()


def test_a_byte_order_mark_is_read_over(folder: Path) -> None:
    """Editors on Windows put one in front of a text."""
    expected = read_job(folder / "job.toml")
    for name in ("job.toml", "north.csv", "south.csv"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    found = read_job(folder / "job.toml")
    assert (found.task, found.owners, found.settings) == (expected.task, expected.owners, expected.settings)
    change(folder, "bound = 0.35", "bound = -1")
    path = folder / "job.toml"
    with raises_code("FP-OPTION-057", f"{path}:{line_of(path, 'bound')}: ", "bound = -1"):
        read_job(path)


@pytest.mark.parametrize(
    "deep",
    ["[" * 100_000, "[" * 5000 + "1" + "]" * 5000, "{a=" * 5000 + "1" + "}" * 5000],
    ids=["open", "lists", "tables"],
)
def test_a_job_that_is_nested_too_deeply_is_refused(deep: str, folder: Path) -> None:
    path = change(folder, "bound = 0.35", f"bound = {deep}")
    with raises_code("FP-OPTION-361", f"{path}: "):
        read_job(path)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("bound = 0.35", f"bound = {10**400}", "bound"),
        ("bound = 0.35", f"bound = 0x{'f' * 10_000}", "bound"),
        ("seed = 0", f"seed = {2**63}", "seed"),
        ("seed = 0", f"seed = {-(2**63) - 1}", "seed"),
        ('classes = ["no", "yes"]', f"classes = [0, {10**30}]", "classes"),
        ("tol = 1e-3", f"max_rounds = {10**30}", "max_rounds"),
        ("tol = 1e-3", f"deadline = {10**400}", "deadline"),
    ],
    ids=lambda value: value[:20],
)
def test_a_number_that_is_too_large_is_refused_with_its_line(old: str, new: str, key: str, folder: Path) -> None:
    path = change(folder, old, new)
    number = line_of(path, key)
    with raises_code("FP-OPTION-364", f"{path}:{number}: {key} "):
        read_job(path)


def test_a_number_with_too_many_digits_is_no_number(folder: Path) -> None:
    path = change(folder, "bound = 0.35", f"bound = {'9' * 10_000}")
    with raises_code("FP-OPTION-362", f"{path}:1: ", "digits"):
        read_job(path)
