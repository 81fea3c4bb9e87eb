"""Tables divided by columns: counts of the paper, of the files read here again, and the division itself."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpact.errors import DataError, OptionError
from fedpact_experiments import datasets
from fedpact_experiments.datasets import VerticalTable, split, split_columns

LOADERS = {
    "adult": datasets.vertical_adult,
    "compas": datasets.vertical_compas,
    "communities": datasets.vertical_communities,
}


@pytest.fixture(scope="module")
def tables(data_folder: Path) -> dict[str, VerticalTable]:
    return {name: load(data_folder) for name, load in LOADERS.items()}


def positives(table: VerticalTable) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and rows with y = 1, of group 0 and of group 1."""
    first, second = (table.group == g for g in (0, 1))
    return (int(first.sum()), int(table.y[first].sum())), (int(second.sum()), int(table.y[second].sum()))


@pytest.mark.parametrize(
    ("name", "rows", "columns", "numeric", "train", "first", "other"),
    [
        ("adult", 45222, 104, 6, 40000, 19, 17),
        ("compas", 5278, 26, 7, 4800, 6, 4),
        ("communities", 1994, 99, 99, 1200, 19, 16),
    ],
)
def test_sizes_are_the_papers(
    tables: dict[str, VerticalTable],
    name: str,
    rows: int,
    columns: int,
    numeric: int,
    train: int,
    first: int,
    other: int,
) -> None:
    table = tables[name]
    assert table.X.shape == (rows, columns)
    assert len(table.y) == len(table.group) == rows
    assert len(set(table.columns)) == columns == len(table.numeric)
    assert table.numeric.sum() == numeric
    assert np.isfinite(table.X).all()
    assert set(np.unique(table.X[:, ~table.numeric])) <= {0.0, 1.0}
    parts = split(table, seed=3)
    assert (len(parts.train.y), len(parts.test.y)) == (train, rows - train)
    blocks = split_columns(table)
    assert [block.X.shape for block in blocks.values()] == [(rows, first)] + 5 * [(rows, other)]


def test_adult_counts_agree_with_the_raw_files(tables: dict[str, VerticalTable], data_folder: Path) -> None:
    raw: Counter[tuple[str, str]] = Counter()
    for name in ("adult.data", "adult.test"):
        for line in (data_folder / name).read_text().splitlines():
            cells = [cell.strip(" .") for cell in line.split(",")]
            if len(cells) == 15 and "?" not in cells:
                raw[cells[9], cells[14]] += 1
    women, men = positives(tables["adult"])
    assert women == (raw["Female", "<=50K"] + raw["Female", ">50K"], raw["Female", ">50K"]) == (14695, 1669)
    assert men == (raw["Male", "<=50K"] + raw["Male", ">50K"], raw["Male", ">50K"]) == (30527, 9539)


def test_adult_one_hot_has_every_level(tables: dict[str, VerticalTable]) -> None:
    table = tables["adult"]
    fields = Counter(name.split("=")[0] for name in table.columns if "=" in name)
    assert fields == {
        "workclass": 7,
        "education": 16,
        "marital-status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "native-country": 41,
    }
    np.testing.assert_array_equal(table.X[:, ~table.numeric].sum(axis=1), 8)
    np.testing.assert_array_equal(table.X[:, table.columns.index("sex=Male")], table.group)
    assert table.X[0, :6].tolist() == [39, 77516, 13, 2174, 0, 40]  # the first row of the file


def test_compas_counts_are_the_published_ones(tables: dict[str, VerticalTable]) -> None:
    """ProPublica: 3175 African-Americans of whom 1661, and 2103 Caucasians of whom 822 were arrested again."""
    table = tables["compas"]
    assert positives(table) == ((2103, 2103 - 822), (3175, 3175 - 1661))
    np.testing.assert_array_equal(table.X[:, table.columns.index("race=African-American")], table.group)
    np.testing.assert_array_equal(table.X[:, ~table.numeric].sum(axis=1), 5)
    fields = Counter(name.split("=")[0] for name in table.columns if "=" in name)
    assert fields == {"sex": 2, "race": 2, "age_cat": 3, "c_charge_degree": 2, "charge": 10}
    assert not [name for name in table.columns if "score" in name or "recid" in name]


def test_compas_first_row_by_hand(tables: dict[str, VerticalTable]) -> None:
    """The first of the two races in the file: male, 34, African-American, no priors, 10 days 1:51:26 in jail."""
    table = tables["compas"]
    row = dict(zip(table.columns, table.X[0], strict=True))
    ones = {name for name, value in row.items() if "=" in name and value == 1}
    assert ones == {"sex=Male", "race=African-American", "age_cat=25 - 45", "c_charge_degree=F", "charge=other"}
    assert (row["age"], row["priors_count"], row["days_b_screening_arrest"]) == (34, 0, -1)
    assert row["days_in_jail"] == pytest.approx(10 + (3600 + 51 * 60 + 26) / 86400)
    assert table.y[0] == 0


def test_communities_counts_agree_with_the_raw_file(tables: dict[str, VerticalTable], data_folder: Path) -> None:
    raw = list(csv.reader((data_folder / "communities.data").open(newline="")))
    few = [float(row[127]) <= 0.375 for row in raw]
    black = [float(row[7]) > 0.06 for row in raw]
    expected = [(black.count(g), sum(f for f, b in zip(few, black, strict=True) if b == g)) for g in (False, True)]
    assert list(positives(tables["communities"])) == expected
    gaps = [j for j in range(5, 127) if any(row[j] == "?" for row in raw)]
    assert len(gaps) == 23
    kept = [j for j in range(5, 127) if j not in gaps]
    np.testing.assert_array_equal(tables["communities"].X, np.array([[float(row[j]) for j in kept] for row in raw]))
    assert {"OtherPerCap", "state", "fold", "ViolentCrimesPerPop"}.isdisjoint(tables["communities"].columns)
    assert tables["communities"].columns[2] == "racepctblack"


def toy(rows: int = 8) -> VerticalTable:
    X = np.column_stack([np.arange(rows, dtype=float), np.arange(rows) % 2, np.arange(rows) ** 2.0, np.ones(rows)])
    numeric = np.array([True, False, True, False])
    y = np.arange(rows) % 2
    return VerticalTable(X, y, 1 - y, ("a", "b=0", "c", "d=0"), numeric, train_rows=5, first_party=2)


def test_split_is_a_partition_scaled_by_its_training_rows() -> None:
    table = toy()
    train, test = split(table, seed=1)
    assert train.X.shape == (5, 4)
    np.testing.assert_allclose(train.X[:, table.numeric].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(train.X[:, table.numeric].std(axis=0), 1)
    order = np.random.default_rng(1).permutation(8)
    rows = np.sort(order[:5])
    assert table.X[0].tolist() == [0, 0, 0, 1]  # the table given is as it was
    expected = (table.X[np.sort(order[5:]), 0] - rows.mean()) / rows.std()
    np.testing.assert_allclose(test.X[:, 0], expected)
    np.testing.assert_array_equal(train.X[:, 1], rows % 2)
    np.testing.assert_array_equal(train.y, rows % 2)
    np.testing.assert_array_equal(test.group, 1 - test.y)
    assert not np.array_equal(split(table, seed=2).train.X, train.X)
    np.testing.assert_array_equal(split(table, seed=1).train.X, train.X)


def test_columns_are_divided_without_loss(tables: dict[str, VerticalTable]) -> None:
    for table in (*tables.values(), toy()):
        for parties in (2, 3):
            blocks = split_columns(table, parties)
            assert list(blocks) == [f"party {k}" for k in range(1, parties + 1)]
            assert tuple(name for block in blocks.values() for name in block.columns) == table.columns
            np.testing.assert_array_equal(np.hstack([block.X for block in blocks.values()]), table.X)
    assert [len(block.columns) for block in split_columns(toy(), 3, first=1).values()] == [1, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parties": 1}, "parties is 1; columns are divided among at least 2"),
        ({"parties": 4}, "first is 2; with 4 columns and 4 parties, 1 to 1"),
        ({"parties": 2, "first": 0}, "first is 0; with 4 columns and 2 parties, 1 to 3"),
        ({"parties": 2, "first": 4}, "first is 4; with 4 columns"),
    ],
)
def test_impossible_divisions_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        split_columns(toy(), **options)


@pytest.mark.parametrize("name", LOADERS)
def test_absent_files_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"data file '\S+' not found; searched: .*FEDPACT_DATA or the option --data"):
        LOADERS[name](tmp_path)


def test_another_compas_file_is_refused(data_folder: Path, tmp_path: Path) -> None:
    name = "compas-scores-two-years.csv"
    lines = (data_folder / name).read_text().splitlines(keepends=True)
    (tmp_path / name).write_text("".join(lines[:-1]))
    with pytest.raises(
        DataError, match=r"7213 rows, 527\d after the filters, expected 7214 and 5278; take the file as"
    ):
        datasets.vertical_compas(tmp_path)
    (tmp_path / name).write_text("".join([lines[0].replace("c_jail_in", "jail"), *lines[1:]]))
    with pytest.raises(DataError, match="no column 'c_jail_in'; take the file as ProPublica published it"):
        datasets.vertical_compas(tmp_path)


def test_a_compas_file_with_names_is_the_same_table(data_folder: Path, tmp_path: Path) -> None:
    """ProPublica's own file has columns that copies without names lack: the loader takes columns by name."""
    name = "compas-scores-two-years.csv"
    with (data_folder / name).open(newline="") as file, (tmp_path / name).open("w", newline="") as out:
        head, *rows = csv.reader(file)
        csv.writer(out).writerows([["id", *head], *([i, *row] for i, row in enumerate(rows))])
    np.testing.assert_array_equal(datasets.vertical_compas(tmp_path).X, datasets.vertical_compas(data_folder).X)


def test_a_changed_communities_file_is_refused(data_folder: Path, tmp_path: Path) -> None:
    for name in ("communities.data", "communities.names"):
        shutil.copyfile(data_folder / name, tmp_path / name)
    (tmp_path / "communities.data").write_text("1,2\n")
    with pytest.raises(DataError, match="SHA-256 is"):
        datasets.vertical_communities(tmp_path)
