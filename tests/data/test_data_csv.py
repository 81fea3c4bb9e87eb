"""CSV files of owners: read by column name, back to the same bits, and every defect with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

from fedpact import data


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
