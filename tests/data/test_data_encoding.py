"""Columns of files as features: levels, absent values, and coefficients back in the columns' own units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

from fedpact.data.cells import column_names, read_cells
from fedpact.data.encoding import Encoding, Scaling


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("age,kind,y\n30,new,1\n,old,0\n50,?,1.0\n")
    return path


def test_categories_become_columns_in_the_order_that_is_agreed(table: Path) -> None:
    encoding = Encoding(("kind", "age"), {"kind": ("old", "new")}, "mean")
    assert encoding.names == ("kind=old", "kind=new", "age")
    assert encoding.numeric.tolist() == [False, False, True]
    np.testing.assert_array_equal(
        encoding.matrix(read_cells(table)), [[0, 1, 30], [1, 0, np.nan], [np.nan, np.nan, 50]]
    )


def test_absent_and_unknown_values_are_told_with_their_place(table: Path) -> None:
    cells = read_cells(table)
    with raises_code("FP-DATA-004", str(table), "column 'age' is empty in line 3", 'missing = "mean"'):
        Encoding(("age",)).matrix(cells)
    with raises_code("FP-DATA-006", str(table), "column 'kind' holds '?' in line 4", "categories 'old', 'new'"):
        Encoding(("kind",), {"kind": ("old", "new")}).matrix(cells)
    with raises_code("FP-DATA-003", str(table), "column 'kind' holds 'new' in line 2", "categories"):
        Encoding(("kind",), {}, "mean").matrix(cells)


def test_lines_are_those_of_the_file(table: Path) -> None:
    table.write_text('age,kind,y\n30,"a\nb",1\n\nlow,old,0\n')
    with raises_code("FP-DATA-003", str(table), "column 'age' holds 'low' in line 5"):
        read_cells(table).numbers("age")


def test_labels_match_as_text_or_as_numbers(table: Path) -> None:
    cells = read_cells(table)
    assert cells.codes("y", ("0", "1"), "classes").tolist() == [1, 0, 1]  # 1.0 is 1
    assert cells.codes("kind", ("old", "new"), "classes", missing=True).tolist() == [1, 0, -1]
    with raises_code("FP-DATA-006", str(table), "column 'y' holds '0' in line 3", "classes '1', '2'"):
        cells.codes("y", ("1", "2"), "classes")


def test_names_without_reading_rows(table: Path) -> None:
    table.write_text(table.read_text() + "a,row,too,long\n")
    assert column_names(table) == ("age", "kind", "y")


def test_scaling_and_back() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) * [1, 100, 0.1] + [5, -3, 1]
    scaling = Scaling.of(X.mean(axis=0), X.std(axis=0), [True, True, False])
    Z = scaling.apply(X)
    np.testing.assert_allclose(Z[:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z[:, :2].std(axis=0), 1)
    np.testing.assert_array_equal(Z[:, 2], X[:, 2])
    w = rng.normal(size=(2, 3))
    own, added = scaling.undo(w)
    np.testing.assert_allclose(X @ own.T + added, Z @ w.T)
    holes = X.copy()
    holes[3, 1] = np.nan
    assert scaling.apply(holes)[3, 1] == 0.0  # the mean


def test_whole_numbers_of_a_parquet_file_are_exact(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    ids = [2**53, 2**53 + 1, 2**63 - 1]
    largest = pyarrow.array([2**64 - 1, 1, 2**64 - 2], pyarrow.uint64())
    parquet.write_table(pyarrow.table({"id": ids, "large": largest, "gap": [1, None, 3]}), path)
    cells = read_cells(path)
    assert cells.column("id").cells == ids
    assert cells.column("large").cells == [2**64 - 1, 1, 2**64 - 2]
    assert cells.codes("id", [str(one) for one in reversed(ids)], "categories").tolist() == [2, 1, 0]
    with raises_code("FP-DATA-006", "", str(2**53 + 1)):
        cells.codes("id", [str(2**53), str(2**63 - 1)], "categories")
    assert cells.numbers("id").dtype == np.float64
    np.testing.assert_array_equal(cells.numbers("gap", missing=True), [1.0, np.nan, 3.0])


def test_a_parquet_file_keeps_numbers_and_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"a": [1.5, None], "k": ["x", None], "n": [1, 2]}), path)
    cells = read_cells(path)
    assert column_names(path) == ("a", "k", "n")
    np.testing.assert_array_equal(cells.numbers("a", missing=True), [1.5, np.nan])
    assert list(cells.column("k").cells) == ["x", ""]
    assert cells.codes("n", ("1", "2"), "classes").tolist() == [0, 1]
    with raises_code("FP-DATA-004", str(path), "column 'a' holds 'nan' in row 2"):
        cells.numbers("a")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with raises_code("FP-DATA-012", str(tmp_path / "bad.parquet")):
        read_cells(tmp_path / "bad.parquet")
