"""UCI Adult as two papers' tables: adult-a (Neyman-Pearson) and adult-b (fairness), both of He24."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpact.data.table import Table, standardize
from fedpact_experiments.datasets.folder import find
from fedpact_experiments.datasets.text import Encoding, cut_classes, encode, read_rows

FIELDS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
CATEGORICAL = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)
NUMERIC_B = ("age", "fnlwgt", "education-num", "hours-per-week")
ONE_HOT_B = ("relationship", "race", "workclass", "occupation")
WORKCLASS_B = {
    "Federal-gov": "gov",
    "Local-gov": "gov",
    "State-gov": "gov",
    "Private": "private",
    "Self-emp-inc": "self-employed",
    "Self-emp-not-inc": "self-employed",
    "Without-pay": "without-pay",
}


@dataclass(frozen=True, eq=False)
class ClientsAndServer:
    """Rows for the clients, to be partitioned, and rows the server holds itself; same columns."""

    clients: Table
    server: Table


def adult_a(folder: str | Path | None = None, encoding: Encoding = "onehot") -> Table:
    """`adult.data`, first row lost and each class cut to a multiple of 5: 24715 rows <=50K (y=0), 7840 rows >50K (y=1).

    A missing value '?' is a level of its own. The paper's 21 features could not be reproduced.

    encoding:
        "onehot" (default, nearer to the paper): 6 numeric columns and 102 of 0 and 1. All levels are there, so with
        an intercept the columns are linearly dependent and the optimal w is not unique (its value is).
        "codes": 14 columns, a category as the position of its name in sorted order.
    Optimum for one owner and bound 0.2, standardized with intercept: one-hot 0.63, codes 0.94; the paper has 0.73.
    """
    rows = adult_rows("adult.data", folder)[1:]
    y = (rows[:, 14] == ">50K").astype(np.int64)
    kept = cut_classes(y, multiple=5)
    X, columns = encode(as_fields(rows[kept]), CATEGORICAL, encoding)
    return Table(X, y[kept], columns)


def adult_b(folder: str | Path | None = None) -> ClientsAndServer:
    """Adult for group fairness: 38 features, y=1 for <=50K, group=1 for men.

    Rows with '?' are dropped: cleaned `adult.data` (30162 rows) goes to the clients, cleaned `adult.test`
    (15060 rows) to the server. The paper names 22,654 training and 5,659 test rows. 22,654 is the number of <=50K
    rows of cleaned `adult.data`, so it counts one class of the file, not the file; a set with one label would leave
    nothing to classify. 5,659 is no count of the cleaned `adult.test` that was tried (half of it has 5,661 rows
    <=50K). Whole files keep "training samples to clients, test samples to the server" without inventing a sample.

    Columns: age, fnlwgt, education-num, hours-per-week (z-scored by the clients' rows); marital-status
    (married civilian or armed forces 0, else 1), native-country (United-States 0, else 1), capital-gain and
    capital-loss (1 when positive); relationship, race, workclass, occupation one-hot with all levels; sex (male 1)
    last. Education is dropped (education-num says it). The one-hot blocks contain the intercept: do not add one.
    """
    train, test = (without_missing(adult_rows(name, folder)) for name in ("adult.data", "adult.test"))
    X, columns = _features_b(np.vstack([train, test]))
    X[:, : len(NUMERIC_B)] = standardize(X[:, : len(NUMERIC_B)], like=X[: len(train), : len(NUMERIC_B)])
    y = np.concatenate([train[:, 14], test[:, 14]]) == "<=50K"
    table = Table(X, y.astype(np.int64), columns, group=X[:, -1].astype(np.int64))
    first_of_server = len(train)
    return ClientsAndServer(
        clients=table.select(np.arange(first_of_server)), server=table.select(np.arange(first_of_server, len(X)))
    )


def _features_b(rows: NDArray[np.str_]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    fields = as_fields(rows)
    married = np.isin(fields["marital-status"], ["Married-civ-spouse", "Married-AF-spouse"])
    binary = {
        "marital-status": ~married,
        "native-country": fields["native-country"] != "United-States",
        "capital-gain": fields["capital-gain"].astype(np.float64) > 0,
        "capital-loss": fields["capital-loss"].astype(np.float64) > 0,
    }
    fields["workclass"] = np.array([WORKCLASS_B[value] for value in fields["workclass"]])
    numeric = np.column_stack([fields[name].astype(np.float64) for name in NUMERIC_B])
    one_hot, levels = encode({name: fields[name] for name in ONE_HOT_B}, ONE_HOT_B, "onehot")
    X = np.column_stack([numeric, *binary.values(), one_hot, fields["sex"] == "Male"]).astype(np.float64)
    return X, (*NUMERIC_B, *binary, *levels, "sex")


def adult_rows(name: str, folder: str | Path | None) -> NDArray[np.str_]:
    """The rows of `adult.data` or `adult.test` as text, 15 fields each: FIELDS, then '<=50K' or '>50K'."""
    path = find(name, folder)
    rows = read_rows(path.read_text(), ",", width=15, file=path.name)
    rows[:, 14] = np.char.rstrip(rows[:, 14], ".")  # adult.test ends its labels with a full stop
    return rows


def without_missing(rows: NDArray[np.str_]) -> NDArray[np.str_]:
    """The rows that have no '?'."""
    complete = np.all(rows != "?", axis=1)
    return rows[complete]


def as_fields(rows: NDArray[np.str_]) -> dict[str, NDArray[np.str_]]:
    """Field -> its values, without the label."""
    return {name: rows[:, j] for j, name in enumerate(FIELDS)}
