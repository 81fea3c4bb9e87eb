"""CSV files of owners: read by column name, back to the same bits, and every defect with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedpact import data
from fedpact.errors import DataError


def test_what_was_written_is_read_back_to_the_same_bits(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)) * [1e-9, 1.0, 1e12]
    table = data.Table(X, np.arange(20) % 2, ("a", "b", "c"))
    found = data.read_csv(data.write_csv(tmp_path / "t.csv", table), "label")
    assert found.X.tobytes() == X.tobytes()
    assert found.y.tolist() == table.y.tolist()
    assert found.columns == ("a", "b", "c")


def test_columns_are_taken_by_name_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffy, note ,b,a,g\n1,7,2.5,1,0\n0,8,3.5,2,1\n\n")
    found = data.read_csv(path, "y", ["a", "b"], "g")
    assert found.X.tolist() == [[1.0, 2.5], [2.0, 3.5]]
    assert found.y.tolist() == [1, 0]
    assert found.group is not None
    assert found.group.tolist() == [0, 1]
    assert data.read_csv(path, "y", group="g").columns == ("note", "b", "a")


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,y\n1,0\n", ["a", "b"], "has no column 'b'; its columns are: a, y"),
        ("a,a,y\n1,1,0\n", ["a"], "has more than one column 'a'"),
        ("a,b\n1,0\n", ["a"], "has no column 'y'"),
        ("y\n1\n", None, "has no columns beside 'y'"),
        ("a,y\n1,0\n,1\n", ["a"], "column 'a' is empty in line 3; give a number, drop the row, or impute"),
        ("a,y\nlow,0\n", ["a"], "column 'a' holds 'low' in line 2"),
        ("a,y\nnan,0\n", ["a"], "column 'a' holds 'nan' in line 2"),
        ("a,y\n1,inf\n", ["a"], "column 'y' holds 'inf' in line 2"),
        ("a,y\n1,0\n1\n", ["a"], "line 3 has 1 cells, the header has 2"),
        ("a,y\n", ["a"], "needs a line of column names and at least one row, it has 1 lines"),
        ("", ["a"], "it has 0 lines"),
    ],
)
def test_a_defect_is_told_with_its_place(tmp_path: Path, text: str, columns: list[str] | None, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        data.read_csv(path, "y", columns)
    assert message in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv does not exist; correct the path"):
        data.read_csv(tmp_path / "none.csv", "y")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00a,y")
    with pytest.raises(DataError, match="cannot be read as a CSV file"):
        data.read_csv(tmp_path / "b.csv", "y")
