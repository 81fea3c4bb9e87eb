"""Three tables whose columns are divided among parties: ADULT, COMPAS, Communities and Crime, as fair VFL uses them.

Of the paper: rows, label, group, sizes of train and test, six parties, and how many columns each has. Not in the paper:
which columns a party has, and which 26 columns COMPAS has; the choices made here are stated where they are made.
y = 1 is the class on whose rows the gap between the groups is measured (the paper's protected class).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.data.table import Labels, Matrix, standardize
from fedpact.errors import DataError, OptionError
from fedpact_experiments.datasets.adult import CATEGORICAL, adult_rows, as_fields, without_missing
from fedpact_experiments.datasets.folder import find
from fedpact_experiments.datasets.text import encode, read_rows

COMPAS_ROWS = 7214
COMPAS_COUNTS = (
    "age",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "days_b_screening_arrest",
)
COMPAS_CATEGORICAL = ("sex", "race", "age_cat", "c_charge_degree", "charge")
COMPAS_CHARGES = 9  # the most frequent ones keep a column of their own
NOT_FEATURES = ("state", "county", "community", "communityname", "fold", "ViolentCrimesPerPop")


@dataclass(frozen=True, eq=False)
class VerticalTable:
    """All columns in one place, before they are divided.

    X: rows x columns, as in the file; y, group: one of 0 and 1 a row; numeric: which columns `split` scales
    train_rows, first_party: the paper's rows of the training set and columns of its largest party
    """

    X: Matrix
    y: Labels
    group: Labels
    columns: tuple[str, ...]
    numeric: NDArray[np.bool_]
    train_rows: int
    first_party: int

    def select(self, rows: ArrayLike) -> VerticalTable:
        """The table of these rows (indices or a mask)."""
        chosen = np.asarray(rows)
        return replace(self, X=self.X[chosen], y=self.y[chosen], group=self.group[chosen])


class TrainAndTest(NamedTuple):
    train: VerticalTable
    test: VerticalTable


@dataclass(frozen=True, eq=False)
class Block:
    """What one party holds of every row: X (rows x its columns)."""

    X: Matrix
    columns: tuple[str, ...]


def vertical_adult(folder: str | Path | None = None) -> VerticalTable:
    """UCI Adult, both files, rows with '?' dropped: 45222 rows, 104 columns (6 numeric, then 98 of 0 and 1).

    y = 1 above 50K, group = 1 for men. All levels have a column, sex among them.
    """
    rows = np.vstack([without_missing(adult_rows(name, folder)) for name in ("adult.data", "adult.test")])
    fields = as_fields(rows)
    group = fields["sex"] == "Male"
    return _table(fields, CATEGORICAL, rows[:, 14] == ">50K", group, train_rows=40000, first_party=19)


def vertical_compas(folder: str | Path | None = None) -> VerticalTable:
    """ProPublica's COMPAS file, two-year recidivism: 5278 rows, 26 columns (7 numeric, then 19 of 0 and 1).

    Rows: ProPublica's filters (screened within 30 days of the arrest, recidivism known, no ordinary traffic offence, a
    score given), then African-Americans and Caucasians. y = 1 for no recidivism within two years, group = 1 for
    African-Americans.

    Columns, our choice of 26: age, three juvenile counts, prior counts, days from arrest to screening, days in jail;
    sex, race, age group, degree of the charge, and the charge (the nine most frequent, else 'other'). The COMPAS
    scores are left out: they are predictions of the label, not records.

    Raises:
        DataError: the file is absent, lacks a column, or has not the rows of the published one.
    """
    fields = read_compas(folder)
    stayed_out = fields.pop("two_year_recid") == "0"
    group = fields["race"] == "African-American"
    return _table(fields, COMPAS_CATEGORICAL, stayed_out, group, train_rows=4800, first_party=6)


def read_compas(folder: str | Path | None = None) -> dict[str, NDArray[np.str_]]:
    """Field -> its 5278 values: those of `vertical_compas` before they are encoded, and two_year_recid."""
    path = find("compas-scores-two-years.csv", folder)
    with path.open(newline="", encoding="utf-8-sig") as file:
        records = list(csv.DictReader(file))
    needed = (*COMPAS_COUNTS, *COMPAS_CATEGORICAL[:-1], "c_charge_desc", "c_jail_in", "c_jail_out", "is_recid")
    for name in (*needed, "score_text", "two_year_recid"):
        if records and name not in records[0]:
            raise DataError(f"data file {path}: no column {name!r}; take the file as ProPublica published it")
    kept = [record for record in records if _filtered_in(record)]
    if (len(records), len(kept)) != (COMPAS_ROWS, 5278):
        raise DataError(
            f"data file {path}: {len(records)} rows, {len(kept)} after the filters, expected {COMPAS_ROWS} and 5278; "
            "take the file as ProPublica published it"
        )
    fields = {name: _column(kept, name) for name in (*COMPAS_COUNTS, *COMPAS_CATEGORICAL[:-1], "two_year_recid")}
    stay = _column(kept, "c_jail_out").astype("M8[s]") - _column(kept, "c_jail_in").astype("M8[s]")
    fields["days_in_jail"] = (stay / np.timedelta64(1, "D")).astype(np.str_)
    fields["charge"] = _most_frequent(_column(kept, "c_charge_desc"), COMPAS_CHARGES)
    return fields


def vertical_communities(folder: str | Path | None = None) -> VerticalTable:
    """UCI Communities and Crime: 1994 rows, 99 numeric columns.

    Left out: five columns that name the community, the target, and the 23 with missing values (22 of the police survey,
    and OtherPerCap, which lacks one). y = 1 where ViolentCrimesPerPop is at most 0.375, group = 1 where racepctblack
    is above 0.06.
    """
    columns = read_communities(folder)
    fields = {name: columns[name] for name in complete_columns(columns)}
    few_crimes = columns["ViolentCrimesPerPop"].astype(np.float64) <= 0.375
    group = columns["racepctblack"].astype(np.float64) > 0.06
    return _table(fields, (), few_crimes, group, train_rows=1200, first_party=19)


def read_communities(folder: str | Path | None = None) -> dict[str, NDArray[np.str_]]:
    """All 128 columns of the 1994 communities, by their names in `communities.names`."""
    text = find("communities.names", folder).read_text(encoding="latin-1")
    names = [line.split()[1] for line in text.splitlines() if line.startswith("@attribute")]
    path = find("communities.data", folder)
    rows = read_rows(path.read_text(), ",", width=len(names), file=path.name)
    return dict(zip(names, rows.T, strict=True))


def complete_columns(columns: dict[str, NDArray[np.str_]]) -> list[str]:
    """The 99 columns that describe a community and have no missing value."""
    return [name for name, values in columns.items() if name not in NOT_FEATURES and "?" not in values]


def split(table: VerticalTable, seed: int = 0) -> TrainAndTest:
    """The paper's number of random rows for training, the others for testing; both in the order of the table.

    Numeric columns are scaled to mean 0 and deviation 1 on the training rows, columns of 0 and 1 stay.
    """
    order = np.random.default_rng(seed).permutation(len(table.y))
    X = table.X.copy()
    train = np.sort(order[: table.train_rows])
    X[:, table.numeric] = standardize(X[:, table.numeric], like=X[np.ix_(train, table.numeric)])
    scaled = replace(table, X=X)
    return TrainAndTest(scaled.select(train), scaled.select(np.sort(order[table.train_rows :])))


def split_columns(table: VerticalTable, parties: int = 6, first: int | None = None) -> dict[str, Block]:
    """party 1, party 2, ... with their columns, in the order of the table.

    The first has `first` columns (None: as many as in the paper), the others share the rest evenly: with six parties
    19 and 17 each (ADULT), 6 and 4 (COMPAS), 19 and 16 (Communities and Crime). The paper does not say which columns.

    Raises:
        OptionError: fewer than two parties, or one would have no column.
    """
    size = table.first_party if first is None else first
    total = len(table.columns)
    if parties < 2:
        raise OptionError(f"parties is {parties}; columns are divided among at least 2")
    if not 1 <= size <= total - (parties - 1):
        raise OptionError(f"first is {size}; with {total} columns and {parties} parties, 1 to {total - parties + 1}")
    parts = [np.arange(size), *np.array_split(np.arange(size, total), parties - 1)]
    return {
        f"party {k}": Block(table.X[:, part], tuple(table.columns[int(j)] for j in part))
        for k, part in enumerate(parts, 1)
    }


def _table(
    fields: dict[str, NDArray[np.str_]],
    categorical: Sequence[str],
    y: NDArray[np.bool_],
    group: NDArray[np.bool_],
    *,
    train_rows: int,
    first_party: int,
) -> VerticalTable:
    """Numeric fields first, then one column a level."""
    numeric = [name for name in fields if name not in categorical]
    X, columns = encode({name: fields[name] for name in (*numeric, *categorical)}, categorical, "onehot")
    mask = np.arange(len(columns)) < len(numeric)
    return VerticalTable(X, y.astype(np.int64), group.astype(np.int64), columns, mask, train_rows, first_party)


def _filtered_in(record: dict[str, str]) -> bool:
    days = record["days_b_screening_arrest"]
    return (
        days != ""
        and abs(float(days)) <= 30
        and record["is_recid"] != "-1"
        and record["c_charge_degree"] != "O"
        and record["score_text"] != "N/A"
        and record["race"] in ("African-American", "Caucasian")
    )


def _column(records: Sequence[dict[str, str]], name: str) -> NDArray[np.str_]:
    return np.array([record[name] for record in records])


def _most_frequent(values: NDArray[np.str_], count: int) -> NDArray[np.str_]:
    """The values, with all but the most frequent ones called 'other'."""
    levels, counts = np.unique(values, return_counts=True)
    frequent = levels[np.argsort(-counts, kind="stable")[:count]]
    return np.where(np.isin(values, frequent), values, "other")
