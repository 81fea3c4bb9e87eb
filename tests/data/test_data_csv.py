"""CSV files of owners: read by column name, back to the same bits, and every defect with its place."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

from fedpact import data
from fedpact.data.cells import read_cells

WAYS = ("arrow", "python")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both readers: Arrow's, and Python's where Arrow is not installed."""
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_what_was_written_is_read_back_to_the_same_bits(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)) * [1e-9, 1.0, 1e12]
    table = data.Table(X, np.arange(20) % 2, ("a", "b", "c"))
    found = data.read_csv(data.write_csv(tmp_path / "t.csv", table), "label")
    assert found.X.tobytes() == X.tobytes()
    assert found.y.tolist() == table.y.tolist()
    assert found.columns == ("a", "b", "c")


@pytest.mark.usefixtures("way")
def test_columns_are_taken_by_name_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffy, note ,b,a,g\n1,7,2.5,1,0\n0,8,3.5,2,1\n\n")
    found = data.read_csv(path, "y", ["a", "b"], "g")
    assert found.X.tolist() == [[1.0, 2.5], [2.0, 3.5]]
    assert found.y.tolist() == [1, 0]
    assert found.group is not None
    assert found.group.tolist() == [0, 1]
    assert data.read_csv(path, "y", group="g").columns == ("note", "b", "a")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("text", "columns", "code", "facts"),
    [
        ("a,y\n1,0\n", ["a", "b"], "FP-DATA-001", ["column 'b'", "a, y"]),
        ("a,a,y\n1,1,0\n", ["a"], "FP-DATA-002", ["column 'a'"]),
        ("a,b\n1,0\n", ["a"], "FP-DATA-001", ["column 'y'"]),
        ("y\n1\n", None, "FP-DATA-014", ["'y'"]),
        ("a,y\n1,0\n,1\n", ["a"], "FP-DATA-004", ["column 'a' is empty in line 3"]),
        ("a,y\nlow,0\n", ["a"], "FP-DATA-003", ["column 'a' holds 'low' in line 2"]),
        ("a,y\nnan,0\n", ["a"], "FP-DATA-004", ["column 'a' holds 'nan' in line 2"]),
        ("a,y\n1,inf\n", ["a"], "FP-DATA-005", ["column 'y' holds 'inf' in line 2"]),
        ("a,y\n1,0\n1\n", ["a"], "FP-DATA-011", ["line 3 has 1 cells, the header has 2"]),
        ("a,y\n", ["a"], "FP-DATA-010", ["1 lines"]),
        ("", ["a"], "FP-DATA-010", ["0 lines"]),
    ],
)
def test_a_defect_is_told_with_its_place(
    tmp_path: Path, text: str, columns: list[str] | None, code: str, facts: list[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with raises_code(code, str(path), *facts):
        data.read_csv(path, "y", columns)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with raises_code("FP-DATA-007", str(tmp_path / "none.csv")):
        data.read_csv(tmp_path / "none.csv", "y")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00a,y")
    with raises_code("FP-DATA-009", str(tmp_path / "b.csv")):
        data.read_csv(tmp_path / "b.csv", "y")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_delimiter_packed_or_not(tmp_path: Path, delimiter: str) -> None:
    lines = ["a,note,y", '1.5,"two\nlines",0', "-2e3,x,1", " 7 ,y,1"]
    text = "\n".join(lines).replace(",", delimiter)
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    plain = tmp_path / "t.csv"
    plain.write_text(text)
    for path in (plain, packed):
        cells = read_cells(path)
        assert cells.numbers("a").tolist() == [1.5, -2000.0, 7.0]
        assert cells.line(1) == "line 4"  # a cell of line 2 has two lines
        assert cells.codes("note", ["x", "y", "two\nlines"], "levels").tolist() == [2, 0, 1]


@pytest.mark.usefixtures("way")
def test_decimal_commas_where_commas_do_not_separate(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2.5\nNA;-3\n")
    cells = read_cells(path)
    assert cells.numbers("a", missing=True).tolist()[0] == 1.5
    assert np.isnan(cells.numbers("a", missing=True)[1])
    assert cells.numbers("b").tolist() == [2.5, -3.0]


@pytest.mark.usefixtures("way")
def test_dates_are_days(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("day,time\n1970-01-02,1970-01-01T12:00:00\n1969-12-31,2000-01-01 00:00:00\n")
    cells = read_cells(path)
    assert cells.numbers("day").tolist() == [1.0, -1.0]
    assert cells.numbers("time").tolist() == [0.5, 10957.0]
    path.write_text("day\n1970-13-02\n")
    with raises_code("FP-DATA-003", str(path), "'1970-13-02' in line 2"):
        read_cells(path).numbers("day")


def test_both_readers_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    texts = [repr(float(x)) for x in rng.normal(size=300) * 10.0 ** rng.integers(-300, 300, 300)]
    texts += ["+1", "1_000", " 5", "NA", "null", "?", "1e400", ".5", "5.", "0x10", "inf"]
    path.write_text("\n".join(["v,w", *(f'"{text}",0' for text in texts)]))
    columns = [read_cells(path).columns["v"]]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    columns.append(read_cells(path).columns["v"])
    assert list(columns[0].cells) == list(columns[1].cells)
    for kept in (slice(0, 300), slice(300, 306)):
        path.write_text("\n".join(["v,w", *(f"{text},0" for text in texts[kept])]))
        slow = read_cells(path).columns["v"].numbers(comma=False)
        monkeypatch.undo()
        fast = read_cells(path).columns["v"].numbers(comma=False)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert slow is not None
        assert fast is not None
        assert slow.tobytes() == fast.tobytes()


def test_only_the_columns_asked_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,long,y\n" + "1," + "x" * 100_000 + ",0\n" + "2,z,1\n")
    assert list(read_cells(path, ["a", "y"]).columns) == ["a", "y"]
