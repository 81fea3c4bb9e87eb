"""The tables of He24: counts of the paper, and the raw files read here again."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from fedpact.data import Table
from fedpact.errors import DataError, OptionError
from fedpact_experiments.datasets import ClientsAndServer, adult_a, adult_b, breast_cancer_wisconsin, monks1
from fedpact_experiments.datasets.text import read_rows


def counts(table: Table) -> tuple[int, int, int]:
    """Rows of class 0, rows of class 1, columns; and the table is whole."""
    assert table.X.shape == (len(table.y), len(table.columns))
    assert np.isfinite(table.X).all()
    assert len(set(table.columns)) == len(table.columns)
    class_0, class_1 = np.bincount(table.y)
    return int(class_0), int(class_1), len(table.columns)


def test_breast_cancer_wisconsin_has_the_papers_counts(data_folder: Path) -> None:
    table = breast_cancer_wisconsin(data_folder)
    assert counts(table) == (455, 240, 9)
    assert table.X.min() == 1
    assert table.X.max() == 10
    # The second row of the file, the first being lost.
    assert table.X[0].tolist() == [5, 4, 4, 5, 7, 10, 3, 2, 1]
    assert table.y[0] == 0


def test_missing_nuclei_are_the_median(data_folder: Path) -> None:
    lines = (data_folder / "breast-cancer-wisconsin.data").read_text().splitlines()
    known = [int(line.split(",")[6]) for line in lines if "?" not in line]
    gaps = [i for i, line in enumerate(lines) if "?" in line]
    assert len(gaps) == 16
    nuclei = breast_cancer_wisconsin(data_folder).X[:, 5]
    # The first row is lost, and the three rows cut come after the last gap.
    assert {nuclei[i - 1] for i in gaps} == {median(known)}


@pytest.mark.parametrize(("encoding", "columns"), [("onehot", 17), ("codes", 6)])
def test_monks1_has_the_papers_counts(data_folder: Path, encoding: Any, columns: int) -> None:
    assert counts(monks1(data_folder, encoding)) == (275, 275, columns)


def test_monks1_obeys_the_rule_of_the_problem(data_folder: Path) -> None:
    """MONK's problem 1 is defined by: class 1 exactly when a1 = a2 or a5 = 1."""
    table = monks1(data_folder, "codes")
    a1, a2, a5 = table.X[:, 0], table.X[:, 1], table.X[:, 4]
    np.testing.assert_array_equal(table.y, (a1 == a2) | (a5 == 0))
    one_hot = monks1(data_folder)
    column = one_hot.columns.index("a5=1")
    np.testing.assert_array_equal(one_hot.X[:, column], a5 == 0)


@pytest.mark.parametrize(("encoding", "columns"), [("onehot", 108), ("codes", 14)])
def test_adult_a_has_the_papers_counts(data_folder: Path, encoding: Any, columns: int) -> None:
    table = adult_a(data_folder, encoding)
    assert counts(table) == (24715, 7840, columns)
    assert table.X[0, table.columns.index("age")] == 50  # the second row of the file


def test_adult_a_one_hot_blocks_add_up_to_one(data_folder: Path) -> None:
    table = adult_a(data_folder)
    for field, levels in (("workclass", 9), ("sex", 2), ("native-country", 42)):
        block = [j for j, name in enumerate(table.columns) if name.startswith(f"{field}=")]
        assert len(block) == levels
        np.testing.assert_array_equal(table.X[:, block].sum(axis=1), 1)


@pytest.fixture(scope="module")
def both(data_folder: Path) -> ClientsAndServer:
    return adult_b(data_folder)


def test_adult_b_follows_the_recipe(both: ClientsAndServer) -> None:
    assert counts(both.clients) == (7508, 22654, 38)  # 22,654: the number the paper prints
    assert counts(both.server) == (3700, 11360, 38)
    assert both.clients.columns == both.server.columns
    for table, men in ((both.clients, 20380), (both.server, 10147)):
        assert table.group is not None
        assert table.group.sum() == men
        np.testing.assert_array_equal(table.X[:, table.columns.index("sex")], table.group)
        for field, levels in (("relationship", 6), ("race", 5), ("workclass", 4), ("occupation", 14)):
            block = [j for j, name in enumerate(table.columns) if name.startswith(f"{field}=")]
            assert len(block) == levels
            np.testing.assert_array_equal(table.X[:, block].sum(axis=1), 1)


def test_adult_b_codes_the_first_row_by_hand(both: ClientsAndServer) -> None:
    """39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, US."""
    clients = both.clients
    row = dict(zip(clients.columns, clients.X[0], strict=True))
    numeric = ("age", "fnlwgt", "education-num", "hours-per-week")
    ones = {name for name, value in row.items() if value == 1 and name not in numeric}
    one_hot = {"workclass=gov", "occupation=Adm-clerical", "relationship=Not-in-family", "race=White"}
    assert ones == one_hot | {"marital-status", "capital-gain", "sex"}
    assert clients.y[0] == 1
    block = clients.X[:, [clients.columns.index(name) for name in numeric]]
    np.testing.assert_allclose(block.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(block.std(axis=0), 1, atol=1e-10)


def test_adult_b_scales_the_server_by_the_clients(data_folder: Path, both: ClientsAndServer) -> None:
    ages = {
        name: [int(line.split(",")[0]) for line in (data_folder / name).read_text().splitlines() if good(line)]
        for name in ("adult.data", "adult.test")
    }
    expected = (np.array(ages["adult.test"]) - np.mean(ages["adult.data"])) / np.std(ages["adult.data"])
    np.testing.assert_allclose(both.server.X[:, both.server.columns.index("age")], expected, atol=1e-10)


def good(line: str) -> bool:
    return line[:1].isdigit() and "?" not in line


def test_unknown_encoding_is_refused(data_folder: Path) -> None:
    with pytest.raises(OptionError, match="encoding is 'binary'; allowed: 'codes', 'onehot'"):
        monks1(data_folder, "binary")  # type: ignore[arg-type]


def test_a_short_row_is_named() -> None:
    with pytest.raises(DataError, match=r"data file toy\.csv: row 2 has 2 fields, expected 3"):
        read_rows("|comment\n1,2,3\n\n4,5\n", ",", width=3, file="toy.csv")
