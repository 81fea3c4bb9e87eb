"""Three tables whose rows belong to owners by nature: Adult by employer, COMPAS by kind of case, communities by state.

For decisions that must hold at every owner. 70 % of the rows are drawn for training (of Adult's in all, else of every
owner's), the others are kept aside. All columns have mean 0 and deviation 1 over the training rows of all owners, which
they can find from sums; there is no intercept column, models add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.data.table import Matrix, Table, standardize
from fedpact.errors import OptionError
from fedpact_experiments.datasets.adult import adult_rows, as_fields, without_missing
from fedpact_experiments.datasets.text import encode
from fedpact_experiments.datasets.vertical import complete_columns, read_communities, read_compas

TRAIN_SHARE = 0.7
ADULT_NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_ONE_HOT = ("marital-status", "occupation", "relationship", "race", "workclass")
#: 14 rows of adult.data, none above 50K: no recall could be asked of this owner, so another one holds them.
ADULT_MERGED = {"Without-pay": "Self-emp-not-inc"}
COMPAS_NUMERIC = (
    "age",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "days_b_screening_arrest",
    "days_in_jail",
)
#: The file has blanks around the hyphen, and an owner's name is better read without.
COMPAS_AGES = {"Less than 25": "under 25", "25 - 45": "25 to 45", "Greater than 45": "over 45"}
COMPAS_DEGREES = {"F": "felony", "M": "misdemeanor"}


@dataclass(frozen=True, eq=False)
class OwnerTables:
    """Owner -> its rows for training, and owner -> its rows kept aside: X, y and group in {0, 1}, same columns."""

    train: dict[str, Table]
    test: dict[str, Table]


def adult_by_workclass(folder: str | Path | None = None, seed: int = 1, workclass: bool = True) -> OwnerTables:
    """`adult.data` by workclass: 6 owners, 30162 rows, 41 columns. y = 1 above 50K, group = 1 for men.

    These are the rows without '?'. The 14 people without pay are with the owner of the self-employed without a company.
    Columns: age, fnlwgt, education-num, capital-gain, capital-loss, hours-per-week; sex (male 1); and one-hot without
    the first level in sorted order marital-status, occupation, relationship, race, workclass. Education is dropped
    (education-num says it), and so is native-country.

    workclass: is it among the columns? They are an intercept for every owner; without them there are 35.
    """
    rows = without_missing(adult_rows("adult.data", folder))
    fields = as_fields(rows)
    numeric = {name: fields[name].astype(np.float64) for name in ADULT_NUMERIC}
    male = fields["sex"] == "Male"
    categories = {name: fields[name] for name in ADULT_ONE_HOT if workclass or name != "workclass"}
    one_hot, levels = _encode_without_first(categories)
    X = np.column_stack([*numeric.values(), male, one_hot])
    owner = np.array([ADULT_MERGED.get(name, name) for name in fields["workclass"].tolist()])
    train = np.random.default_rng(seed).random(len(rows)) < TRAIN_SHARE
    return _divide(X, (*numeric, "sex", *levels), rows[:, 14] == ">50K", male, owner, train)


def compas_by_age_and_charge(
    folder: str | Path | None = None, seed: int = 1, group: Literal["race", "sex"] = "race"
) -> OwnerTables:
    """COMPAS by age group and degree of the charge: 6 owners, 5278 rows, 19 columns. y = 1 for recidivism in two years.

    The rows are those of `vertical_compas`: ProPublica's filters, African-Americans and Caucasians. The file names no
    court; age group and degree of the charge make six parts whose rates of recidivism differ, as those of courts would,
    and are not among the columns.
    Columns: age, three juvenile counts, prior counts, days from arrest to screening, days in jail; race
    (African-American 1) and sex (male 1); the charge one-hot (the nine most frequent, and 'other'). The COMPAS scores
    are left out: they are predictions of the label.

    group: "race" has 1 for African-Americans, "sex" has 1 for men
    """
    fields = read_compas(folder)
    members = {"race": fields["race"] == "African-American", "sex": fields["sex"] == "Male"}
    if group not in members:
        raise OptionError(f"group is {group!r}; allowed: 'race', 'sex'")
    charge, levels = encode({"charge": fields["charge"]}, ("charge",), "onehot")
    numeric = [fields[name].astype(np.float64) for name in COMPAS_NUMERIC]
    X = np.column_stack([*numeric, *members.values(), charge])
    cases = zip(fields["age_cat"], fields["c_charge_degree"], strict=True)
    owner = np.array([f"{COMPAS_AGES[age]}, {COMPAS_DEGREES[degree]}" for age, degree in cases])
    returned = fields["two_year_recid"] == "1"
    train = _draw_within(owner, seed)
    return _divide(X, (*COMPAS_NUMERIC, *members, *levels), returned, members[group], owner, train)


def communities_by_state(folder: str | Path | None = None, seed: int = 1, owners: int = 6) -> OwnerTables:
    """Communities and Crime by state: 1994 rows, 99 columns. y = 1 above the median of ViolentCrimesPerPop, 0.15.

    group = 1 where racepctblack is above its median, 0.06. Columns: those of `vertical_communities`. The states, in the
    order of their numbers, are divided into owners of similar size: a state belongs to the part that holds its middle
    row.
    """
    columns = read_communities(folder)
    names = complete_columns(columns)
    X = np.column_stack([columns[name].astype(np.float64) for name in names])
    crimes = columns["ViolentCrimesPerPop"].astype(np.float64)
    black = columns["racepctblack"].astype(np.float64)
    owner = _fold_states(columns["state"].astype(np.int64), owners)
    train = _draw_within(owner, seed)
    return _divide(X, tuple(names), crimes > np.median(crimes), black > np.median(black), owner, train)


def _encode_without_first(fields: Mapping[str, NDArray[np.str_]]) -> tuple[Matrix, tuple[str, ...]]:
    """One-hot columns, without that of the first level of every field: the others say it."""
    blocks = []
    names: list[str] = []
    for name, values in fields.items():
        block, levels = encode({name: values}, (name,), "onehot")
        blocks.append(block[:, 1:])
        names.extend(levels[1:])
    return np.hstack(blocks), tuple(names)


def _fold_states(state: NDArray[np.int64], owners: int) -> NDArray[np.str_]:
    """The owner of every row, named by its first and last state."""
    numbers, which, counts = np.unique(state, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    part = (owners * middle / len(state)).astype(np.int64)
    names = []
    for k in part:
        inside = numbers[part == k]
        names.append(f"states {inside[0]:02} to {inside[-1]:02}")
    return np.array(names)[which]


def _draw_within(owner: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Which rows are for training: the same share of every owner's, drawn in the order of their names."""
    rng = np.random.default_rng(seed)
    train = np.zeros(len(owner), dtype=bool)
    for name in np.unique(owner):
        rows = rng.permutation(np.flatnonzero(owner == name))
        train[rows[: round(TRAIN_SHARE * len(rows))]] = True
    return train


def _divide(
    X: Matrix,
    columns: tuple[str, ...],
    y: NDArray[np.bool_],
    group: NDArray[np.bool_],
    owner: NDArray[np.str_],
    train: NDArray[np.bool_],
) -> OwnerTables:
    """The tables of every owner, scaled by the training rows of all."""
    scaled = standardize(X, like=X[train])
    table = Table(scaled, y.astype(np.int64), columns, group.astype(np.int64))
    names = [str(name) for name in np.unique(owner)]
    return OwnerTables(
        train={name: table.select(train & (owner == name)) for name in names},
        test={name: table.select(~train & (owner == name)) for name in names},
    )
