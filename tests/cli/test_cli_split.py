"""`fedpact split` as a user runs it: real files in, real files out, and misuse told in one line."""

from __future__ import annotations

import csv
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.cli.main import main
from fedpact.cli.split import file_names, split
from fedpact.jobs import read_job, run_job
from fedpact.report.split_figure import column_grid, label_bars

Call = Callable[..., int]
HEADER = "number,city,note,hours,label\n"
#: What a reader of numbers, or a careless one of text, would change.
NOTES = ['"a, ""quoted"" word"', "007", " blank ", "été", '"two\nlines"', "1e5"]


def line(i: int) -> str:
    return f"0{i},{['Oslo', 'Rio/BR', 'Côte'][i % 3]},{NOTES[i % 6]},{i % 7}.50, {int(i % 4 == 0)}\n"


LINES = [line(i) for i in range(60)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(HEADER + "".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    def run(*args: object) -> int:
        """main() in this process; its exit code."""
        monkeypatch.setattr(sys, "argv", ["fedpact", "split", *map(str, args)])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return run


def rows_of(path: Path) -> list[int]:
    """Which rows of the table a file holds, every one of them as it was."""
    text = path.read_text(encoding="utf-8")
    rows = [i for i, own in enumerate(LINES) if f"\n{own}" in text]
    assert text == HEADER + "".join(LINES[i] for i in rows)
    return rows


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def owners_of(printed: str) -> dict[str, str]:
    """The files by owner, read as a job would read them."""
    return dict(tomllib.loads(printed[printed.index("[owners]") :])["owners"])


def cells(printed: str, owner: str) -> list[str]:
    """What the printed table says of an owner."""
    return next(text.strip() for text in printed.splitlines() if text.strip().startswith(owner))[len(owner) :].split()


# ---------------------------------------------------------------------------------------------------------------- rows

WAYS = {
    "iid": [],
    "stratified": ["--label", "label"],
    "label": ["--label", "label", "--alpha", "0.3"],
    "classes": ["--label", "label", "--classes", "1"],
    "quantity": ["--alpha", "2"],
}


@pytest.mark.parametrize("by", WAYS)
def test_rows_are_dealt_as_they_are(
    by: str, table: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    def dealt(folder: str, *more: object) -> list[list[int]]:
        out = tmp_path / "new" / folder
        assert call(table, "--by", by, *WAYS[by], "--owners", 3, "--name", "bank", "--out", out, *more) == 0
        assert sorted(path.name for path in out.iterdir()) == ["bank 1.csv", "bank 2.csv", "bank 3.csv"]
        return [rows_of(out / f"bank {i}.csv") for i in (1, 2, 3)]

    parts = dealt("first")
    printed = capsys.readouterr().out
    assert owners_of(printed) == {f"bank {i}": f"bank {i}.csv" for i in (1, 2, 3)}
    assert sorted(row for rows in parts for row in rows) == list(range(60))
    for i, rows in enumerate(parts, 1):
        ones = sum(row % 4 == 0 for row in rows)
        counted = [len(rows) - ones, ones] if "--label" in WAYS[by] else []
        assert cells(printed, f"bank {i}") == [str(count) for count in (len(rows), *counted)]
    assert dealt("again", "--seed", 0) == parts
    assert dealt("otherwise", "--seed", 5) != parts


def test_classes_and_stratified_keep_their_word(table: Path, tmp_path: Path, call: Call) -> None:
    ones = {}
    for by in ("classes", "stratified"):
        assert call(table, "--by", by, *WAYS[by], "--owners", 3, "--out", tmp_path / by) == 0
        parts = [rows_of(path) for path in sorted((tmp_path / by).iterdir())]
        ones[by] = [sum(row % 4 == 0 for row in rows) / len(rows) for rows in parts]
    assert set(ones["classes"]) == {0.0, 1.0}
    assert ones["stratified"] == [0.25] * 3


def test_a_value_of_a_column_is_an_owner(
    table: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(table, "--by", "column", "--column", "city", "--label", "label", "--out", tmp_path / "o") == 0
    printed = capsys.readouterr().out
    files = owners_of(printed)
    assert files == {"Côte": "Côte.csv", "Oslo": "Oslo.csv", "Rio/BR": "Rio_BR.csv"}
    for i, owner in enumerate(["Oslo", "Rio/BR", "Côte"]):
        assert rows_of(tmp_path / "o" / files[owner]) == list(range(i, 60, 3))
        assert cells(printed, owner) == ["20", "15", "5"]


def test_breaks_of_lines_stay(tmp_path: Path, call: Call) -> None:
    source = tmp_path / "t.csv"
    source.write_bytes(b"\xef\xbb\xbfx,y\r\n1,a\r\n\r\n2,b\r\n3,a\r\n4,b")  # with a mark, a blank line, no last break
    assert call(source, "--by", "column", "--column", "y", "--out", tmp_path / "o") == 0
    assert (tmp_path / "o" / "a.csv").read_bytes() == b"x,y\r\n1,a\r\n3,a\r\n"
    assert (tmp_path / "o" / "b.csv").read_bytes() == b"x,y\r\n2,b\r\n4,b\r\n"


def test_the_rarest_of_many_labels_are_counted_together(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "t.csv"
    source.write_text("x,[y]\n" + "".join(f"{i},{i % 12 if i < 60 else i % 8 + 4}\n" for i in range(100)))
    assert call(source, "--by", "iid", "--owners", 1, "--label", "[y]", "--out", tmp_path / "o") == 0
    printed = capsys.readouterr().out
    head = next(text for text in printed.splitlines() if "rows" in text)
    assert head.split()[2:] == [word for i in range(4, 12) for word in ("[y]", str(i))] + ["[y]", "others"]
    assert cells(printed, "owner 1") == ["100", *["10"] * 8, "20"]


def test_the_files_and_the_lines_are_a_job(tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    patients = data.wdbc()
    X = data.standardize(patients.X[:, :4])
    source = data.write_csv(tmp_path / "wdbc.csv", data.Table(X, patients.y, patients.columns[:4]), "malignant")
    out = tmp_path / "o"
    assert call(source, "--by", "stratified", "--label", "malignant", "--owners", 3, "--out", out) == 0
    printed = capsys.readouterr().out
    (out / "job.toml").write_text(
        'task = "neyman_pearson"\nlabel = "malignant"\nbound = 0.3\nstandardize = false\n'
        + printed[printed.index("[owners]") :]
    )
    assert run_job(read_job(out / "job.toml")).solved
    found = fp.Solution.load(out / "run" / "solution.npz")
    parts = data.stratified(patients.y, 3)
    in_memory = {f"owner {i}": (data.with_intercept(X[rows]), patients.y[rows]) for i, rows in enumerate(parts, 1)}
    weights = np.append(np.full(4, read_job(out / "job.toml").task.regularization), 0.0)  # the intercept is free
    expected = fp.solve(tasks.neyman_pearson(in_memory, 0.3, fp.prox.SquaredL2(weights)), tol=1e-6)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=2e-3)


# ------------------------------------------------------------------------------------------------------------- columns


def assert_columns(out: Path, table: Path, files: dict[str, int], identity: str, ids: list[str]) -> None:
    """Each file has its number of columns behind the ids, cells as in the table, and all columns are somewhere once."""
    source, seen = records(table), []
    for file, count in files.items():
        own = records(out / file)
        assert next(iter(own[0])) == identity
        assert [record.pop(identity) for record in own] == ids
        assert len(own[0]) == count
        assert own == [{name: record[name] for name in own[0]} for record in source]
        seen += own[0]
    assert sorted([*seen, *({identity} & set(source[0]))]) == sorted(source[0])


def test_columns_are_dealt_with_ids_that_are_made(
    table: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    assert call(table, "--by", "vertical", "--owners", 2, "--label", "label", "--group", "city", "--out", out) == 0
    assert owners_of(capsys.readouterr().out) == {"owner 1": "owner 1.csv", "owner 2": "owner 2.csv"}
    files = {"owner 1.csv": 2, "owner 2.csv": 1, "coordinator.csv": 2}
    assert_columns(out, table, files, "id", [str(i) for i in range(1, 61)])
    assert list(records(out / "coordinator.csv")[0]) == ["id", "label", "city"]


def test_columns_by_sizes_in_order_with_the_tables_own_ids(
    table: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    assert call(table, "--by", "vertical", "--sizes", "1,3", "--id", "number", "--in-order", "--out", out) == 0
    assert cells(capsys.readouterr().out, "owner 2") == ["3", "note,", "hours,", "label"]
    assert_columns(out, table, {"owner 1.csv": 1, "owner 2.csv": 3}, "number", [f"0{i}" for i in range(60)])


def test_columns_follow_the_seed(table: Path, tmp_path: Path, call: Call) -> None:
    def header(seed: int) -> str:
        out = tmp_path / str(seed)
        assert call(table, "--by", "vertical", "--owners", 2, "--seed", seed, "--out", out, "--force") == 0
        return (out / "owner 1.csv").read_text(encoding="utf-8").splitlines()[0]

    assert header(1) == header(1)
    assert len({header(seed) for seed in range(6)}) > 1


# ------------------------------------------------------------------------------------------------------------ pictures


@pytest.mark.parametrize(("form", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_picture(form: str, begins: bytes, table: Path, tmp_path: Path, call: Call) -> None:
    plot = ["--plot", "--plot-as", form]
    out = tmp_path / "o"
    assert call(table, "--by", "column", "--column", "city", "--label", "label", "--out", out, *plot) == 0
    drawn = (out / f"split.{form}").read_bytes()
    assert drawn.startswith(begins)
    if form == "svg":  # texts are drawn as curves, and named in comments
        for text in ("people.csv by column", "Oslo", "Rio/BR", "label", "rows"):
            assert f"<!-- {text} -->" in drawn.decode()


def test_the_picture_of_columns(table: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "o"
    assert call(table, "--by", "vertical", "--owners", 2, "--label", "label", "--out", out, "--plot") == 0
    drawn = (out / "split.svg").read_text(encoding="utf-8")
    for text in ("owner 1", "owner 2", "coordinator", "number", "city", "label"):
        assert f"<!-- {text} -->" in drawn


def test_without_matplotlib_nothing_is_written(
    table: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert call(table, "--by", "iid", "--owners", 2, "--out", table.parent / "o", "--plot") == 2
    assert "[FP-502]" in capsys.readouterr().err
    assert not (table.parent / "o").exists()


def test_bars_are_as_long_as_the_counts() -> None:
    counts = {"a": {"_no": 3, "$1$": 1}, "b": {"_no": 0, "$1$": 5}}
    figure = label_bars(counts, "title", "label")
    (axes,) = figure.axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [(0, 3), (0, 0), (3, 1), (0, 5)]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [" _no", r"\$1\$"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]


def test_fields_are_filled_where_a_column_is() -> None:
    (axes,) = column_grid(["x", "y", "z"], {"a": ["x", "z"], "b": ["y"]}, "title").axes
    filled = {(round(bar.get_x() + bar.get_width() / 2), round(bar.get_y() + 0.4)) for bar in axes.patches}
    assert filled == {(0, 0), (2, 0), (1, 1)}


# ------------------------------------------------------------------------------------------------------ what is taught


def taught() -> list[str]:
    """Every command of the page and of --help."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "split.md").read_text(encoding="utf-8")
    text = f"{page}\n{split.help}"
    return re.findall(r"^ *(fedpact split \S+ --by .*)$", text, flags=re.MULTILINE)


def test_the_commands_that_are_taught_work(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = [f"x{j}" for j in range(11)]
    rows = [[*"0" * 11, ["NY", "CA"][i % 2], ["M", "F"][i % 3 == 0], str(i % 4 // 3)] for i in range(80)]
    with Path("adult.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*numbers, "state", "sex", "income"], *rows])
    Path("digits.csv").write_text("ink,digit\n" + "".join(f"{i},{i % 10}\n" for i in range(200)))
    commands = taught()
    assert len(commands) == 13
    for command in commands:
        arguments = shlex.split(command)[2:]
        assert call(*arguments, "--force") == 0, command
        out = Path(arguments[arguments.index("--out") + 1])
        for file in owners_of(capsys.readouterr().out).values():
            assert len(records(out / file)) >= 1


# -------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "Error: Missing option '--by'"),
        (["--by", "magic"], "Error: Invalid value for '--by': 'magic' is not one of 'iid', "),
        (["--by", "iid"], "Error: --by iid needs --owners."),
        (["--by", "label", "--owners", 2], "Error: --by label needs --label."),
        (["--by", "classes", "--owners", 2, "--label", "label"], "Error: --by classes needs --classes."),
        (["--by", "column"], "Error: --by column needs --column."),
        (["--by", "vertical"], "Error: --by vertical needs --owners or --sizes."),
        (["--by", "iid", "--owners", 0], "Error: Invalid value for '--owners': 0 is not in the range x>=1."),
        (["--by", "iid", "--owners", 2, "--alpha", 1], "Error: --alpha is not for --by iid; leave it out."),
        (
            ["--by", "column", "--column", "city", "--owners", 2],
            "Error: --owners is not for --by column; leave it out.",
        ),
        (["--by", "iid", "--owners", 2, "--id", "number"], "Error: --id is not for --by iid; leave it out."),
        (["--by", "vertical", "--sizes", "1,x"], "Error: Invalid value for '--sizes': '1,x' is not a list of whole"),
    ],
)
def test_misuse_is_one_clear_line(
    args: list[object],
    told: str,
    table: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(table.parent)
    assert call(table.name, *args, "--out", "o") == 2
    seen = capsys.readouterr()
    (said,) = [text for text in seen.err.splitlines() if text.startswith(("Error:", "fedpact:"))]
    assert said.startswith(told)
    assert "Traceback" not in seen.err
    assert seen.out == ""
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("args", "code", "facts"),
    [
        (["--by", "iid", "--owners", 61], "FP-DATA", ["60 rows", "61 owners"]),
        (["--by", "quantity", "--owners", 2, "--alpha", 0], "FP-OPTION", ["alpha", "0.0"]),
        (
            ["--by", "label", "--owners", 2, "--label", "income"],
            "FP-DATA-001",
            ["people.csv", "'income'", "number, city, note, hours, label"],
        ),
        (["--by", "iid", "--owners", 2, "--label", "income"], "FP-DATA-001", ["people.csv", "'income'"]),
        (["--by", "column", "--column", "town"], "FP-DATA-001", ["people.csv", "'town'", "number"]),
        (["--by", "vertical", "--owners", 2, "--group", "sex"], "FP-DATA-001", ["people.csv", "'sex'"]),
        (["--by", "stratified", "--owners", 16, "--label", "label"], "FP-DATA", ["15 rows", "16 owners"]),
        (["--by", "classes", "--owners", 2, "--label", "label", "--classes", 3], "FP-OPTION", ["3", "2 labels"]),
        (
            ["--by", "vertical", "--owners", 6, "--label", "label"],
            "FP-DATA",
            ["people.csv", "id, label", "4 columns", "6 owners"],
        ),
        (["--by", "vertical", "--sizes", "4,4"], "FP-OPTION", ["people.csv", "id", "4, 4", "5"]),
        (["--by", "vertical", "--owners", 2, "--id", "hours"], "FP-DATA-502", ["people.csv", "'hours'", "2 and 10"]),
    ],
)
def test_what_cannot_be_dealt_is_one_clear_line(
    args: list[object],
    code: str,
    facts: list[str],
    table: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A code that ends in a family is of another room: only the family is asserted."""
    monkeypatch.chdir(table.parent)
    assert call(table.name, *args, "--out", "o") == 2
    seen = capsys.readouterr()
    (said,) = seen.err.splitlines()
    assert re.fullmatch(rf"fedpact: .* \[{code}(-\d{{3}})?\]", said)
    for fact in facts:
        assert fact in said
    assert seen.out == ""
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("content", "code", "fact"),
    [
        (b"", "FP-DATA-010", "0 lines"),
        (b"x,y\n", "FP-DATA-010", "1 lines"),
        (b"39,State-gov,13,40\n50,Private,9,13\n", "FP-DATA-025", "'39'"),
        (b"1.5,0.2\n1.6,0.1\n", "FP-DATA-025", "'1.5'"),
        (b"x,y,x\n1,2,3\n", "FP-DATA-002", "'x'"),
        (b"x,y\n1,2\n1,2,3\n", "FP-DATA-011", "line 3 has 3 cells, the header has 2"),
        (b'x,y\n"1\n1",2\n1\n', "FP-DATA-011", "line 4 has 1 cells, the header has 2"),
        (b"x,y\n1,\xff\n", "FP-DATA-009", ""),
        (b"x,y\n1,a\n2,\n", "FP-DATA-021", "column 'y' is empty in line 3"),
        (b"x,y\n" + b"".join(b"0,%d\n" % i for i in range(1001)), "FP-DATA-501", "column 'y' has 1001 values"),
    ],
)
def test_tables_that_cannot_be_dealt(
    content: bytes, code: str, fact: str, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "t.csv"
    source.write_bytes(content)
    assert call(source, "--by", "column", "--column", "y", "--out", tmp_path / "o") == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"fedpact: {source}")
    assert fact in said
    assert said.endswith(f"[{code}]")


def test_a_header_that_counts_is_a_header(tmp_path: Path, call: Call) -> None:
    source = tmp_path / "t.csv"
    source.write_text("0,1,2,label\n7,7,7,a\n8,8,8,b\n")
    assert call(source, "--by", "iid", "--owners", 2, "--out", tmp_path / "o") == 0
    assert (tmp_path / "o" / "owner 1.csv").read_text().startswith("0,1,2,label\n")


def test_no_table(tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path / "none.csv", "--by", "iid", "--owners", 2, "--out", tmp_path / "o") == 2
    assert "none.csv' does not exist." in capsys.readouterr().err


def test_files_are_overwritten_with_force_only(
    table: Path, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    command = [table, "--by", "iid", "--out", out, "--owners"]
    assert call(*command, 3) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert call(*command, 2, "--seed", 1) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedpact: {out / 'owner 1.csv'} exists (files in the way: 2)")
    assert said.endswith("[FP-515]\n")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert call(*command, 2, "--seed", 1, "--force") == 0
    assert len(rows_of(out / "owner 1.csv")) == 30
    assert capsys.readouterr().err == f"{out} also holds owner 3.csv, not of this split\n"


def test_the_table_itself_is_never_overwritten(tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.csv"
    source.write_text("x,y\n1,a\n2,b\n")
    assert call(source, "--by", "column", "--column", "y", "--out", tmp_path, "--force") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedpact: {source}")
    assert said.endswith("[FP-514]\n")
    assert source.read_text() == "x,y\n1,a\n2,b\n"
    assert list(tmp_path.iterdir()) == [source]


def test_a_folder_that_cannot_be(table: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    out = table / "below a file"
    assert call(table, "--by", "iid", "--owners", 2, "--out", out) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedpact: {out}")
    assert said.endswith("[FP-501]\n")


def test_file_names_differ_on_every_system() -> None:
    owners = ["a/b", "a:b", "A_B", "..", "", "x" * 300, 'say "hi"', "Ünï"]
    names = file_names(owners)
    assert list(names) == owners
    assert len({name.casefold() for name in names.values()}) == len(owners)
    assert names["a/b"] == "a_b.csv"
    assert names["Ünï"] == "Ünï.csv"
    for name in names.values():
        assert len(name) < 120
        assert not set(name) & set('/\\:*?"<>|\n')
        assert not name.startswith(".")
