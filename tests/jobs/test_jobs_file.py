"""Reading a job: what is stated arrives, and every mistake is told in one message with its line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job_files import change

from fedpact.cli.main import main
from fedpact.errors import OptionError
from fedpact.jobs import read_job


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
    with pytest.raises(OptionError, match=r"\[bound\] has no entry for owner 'coast'"):
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


def _blocked(folder: Path) -> Path:
    return change(folder, 'folder = "run"', 'folder = "north.csv/run"')  # below a file no folder can be made


#: name -> (what is done to the example, the start of the line that the message points at, or None, words of it)
BAD: dict[str, tuple[Callable[[Path], Path], str | None, tuple[str, ...]]] = {
    "wrong column": (
        lambda f: change(f, 'label = "relapse"', 'label = "relapsed"'),
        "label",
        ("owner 'north' has no column 'relapsed'", "it has: patient, age"),
    ),
    "unknown key": (
        lambda f: change(f, "standardize =", "standardise ="),
        "standardise",
        ("did you mean 'standardize'?",),
    ),
    "label not binary": (
        _third_class,
        None,
        ("north", "column 'relapse' holds 'perhaps' in line 5", "none of the classes 'no', 'yes'"),
    ),
    "bound out of range": (
        lambda f: change(f, "bound = 0.35", "bound = -0.35"),
        "bound",
        ("bound = -0.35: give a positive number",),
    ),
    "recall out of range": (
        lambda f: change(f, "bound = 0.35", "min_recall = 90"),
        "min_recall",
        ("give a number above 0 and below 1",),
    ),
    "missing file": (
        lambda f: change(f, '"south.csv"', '"sout.csv"'),
        "south",
        ("the file of owner 'south' does not exist", "correct the path"),
    ),
    "different columns": (
        _drop_column,
        "south",
        ("owner 'south' has no column 'dose', which owner 'north' has", "features = [...]"),
    ),
    "text in a numeric column": (
        lambda f: change(f, 'smoker = ["never", "former", "now"]', ""),
        None,
        ("north", "column 'smoker' holds", "in line 2", "or list it under categories"),
    ),
    "an owner without positives": (
        _no_positives,
        None,
        ("fedpact: owner 'coast': no row has relapse = yes among 300", "merge it with another"),
    ),
    "an infinity": (
        lambda f: change(f, ",68,", ",inf,", "south.csv"),
        None,
        ("south", "column 'age' holds 'inf' in line", "give a number that is finite"),
    ),
    "an empty file": (
        _emptied,
        "south",
        ("owner 'south'", "south.csv is empty; it needs a line of column names"),
    ),
    "duplicate owner": (
        lambda f: change(f, 'south = "south.csv"', 'north = "south.csv"'),
        None,
        ("owner 'north' is stated twice, first in line",),
    ),
    "one file for two owners": (
        lambda f: change(f, '"south.csv"', '"north.csv"'),
        "south",
        ("owners 'north' and 'south' have the same file",),
    ),
    "unwritable output": (_blocked, None, ("the output folder", "cannot be written", "state another one")),
    "unknown category": (
        lambda f: change(f, '["never", "former", "now"]', '["never", "now"]'),
        None,
        ("north", "column 'smoker' holds 'former'", "none of the categories 'never', 'now'"),
    ),
    "absent value": (
        lambda f: change(f, 'missing = "mean"', 'missing = "error"'),
        None,
        ("north", "column 'pressure' is empty", 'missing = "mean"'),
    ),
    "wrong type": (lambda f: change(f, "bound = 0.35", 'bound = "0.35"'), "bound", ("give a number",)),
    "not TOML": (lambda f: change(f, 'task = "neyman_pearson"', "task = neyman_pearson"), "task", ("not TOML",)),
    "unknown task": (
        lambda f: change(f, '"neyman_pearson"', '"neyman"').parent / "job.toml",
        "task",
        ("task 'neyman' is unknown; choose neyman_pearson",),
    ),
    "a task that is no text": (
        lambda f: change(f, '"neyman_pearson"', "[1, {}]"),
        "task",
        ("task [1, {}] is unknown",),
    ),
    "a table of no use": (
        lambda f: change(f, "# [flower]", "[flower]\npatience = 3"),
        "[flower]",
        ('[flower] is for owners at "flower://',),
    ),
    "no bound": (lambda f: change(f, "bound = 0.35", ""), None, ("needs bound= or min_recall=",)),
    "a bound and a recall": (
        lambda f: change(f, "bound = 0.35", "bound = 0.35\nmin_recall = 0.9"),
        "min_recall",
        ("both stated",),
    ),
    "a bound of nobody": (
        lambda f: change(f, "bound = 0.35", "bound = {north = 1, south = 1, coast = 1, west = 1}"),
        None,
        ("'west' is no owner", "north, south, coast"),
    ),
    "a negative weight": (
        lambda f: change(f, "regularization = 0.001", "regularization = -1"),
        "regularization",
        ("regularization is -1",),
    ),
    "a feature twice": (
        lambda f: change(f, '"dose", "pressure"', '"dose", "dose"'),
        None,
        ("column 'dose' is listed twice",),
    ),
    "levels that are no list": (
        lambda f: change(f, '["never", "former", "now"]', '"never"'),
        "smoker",
        ("smoker = 'never': give a list",),
    ),
    "unknown method": (
        lambda f: change(f, "seed = 0", 'method = "sgd"'),
        "method",
        ("'sgd' is unknown; choose auto, interior-point",),
    ),
    "unknown tracker": (
        lambda f: change(f, 'folder = "run"', 'track = ["csv", "wandb"]'),
        "track",
        ("track 'wandb' is unknown; choose csv, tensorboard, mlflow",),
    ),
    "no owners": (
        lambda f: change(f, "[owners]", "[owner]"),
        "[owner]",
        ("unknown key 'owner'; did you mean 'owners'?",),
    ),
    "a value for a table": (
        lambda f: change(f, 'title = "Three hospitals"', "server = 3"),
        "server",
        ("server = 3: it is a table; write [server]",),
    ),
    "tolerance out of range": (
        lambda f: change(f, "tol = 1e-3", "tol = 2"),
        "tol",
        ("tol = 2: give a number above 0 and below 1",),
    ),
    "no job": (lambda f: f / "none.toml", None, ("cannot be read as a job", "fedpact init")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_job_gets_one_clear_message_and_exit_code_2(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, start, words = BAD[name]
    path = spoil(folder)
    monkeypatch.setattr(sys, "argv", ["fedpact", "run", str(path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("fedpact: ")
    assert "Traceback" not in message
    assert len(message.splitlines()) == 1
    for word in words:
        assert word in message
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
    with pytest.raises(OptionError, match=rf"job\.toml:{line_of(folder / 'job.toml', 'bound')}: bound = -1"):
        read_job(folder / "job.toml")


@pytest.mark.parametrize(
    "deep",
    ["[" * 100_000, "[" * 5000 + "1" + "]" * 5000, "{a=" * 5000 + "1" + "}" * 5000],
    ids=["open", "lists", "tables"],
)
def test_a_job_that_is_nested_too_deeply_is_refused(deep: str, folder: Path) -> None:
    path = change(folder, "bound = 0.35", f"bound = {deep}")
    with pytest.raises(OptionError, match=r"job\.toml: its lists or tables are nested too deeply"):
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
    with pytest.raises(OptionError, match=rf"job\.toml:{number}: {key} holds a number that is too large; give one"):
        read_job(path)


def test_a_number_with_too_many_digits_is_no_number(folder: Path) -> None:
    path = change(folder, "bound = 0.35", f"bound = {'9' * 10_000}")
    with pytest.raises(OptionError, match=r"job\.toml:1: this is not TOML: .*digits"):
        read_job(path)
