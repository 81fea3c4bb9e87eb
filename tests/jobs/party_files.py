"""Tables of parties that hold different columns of the same people, and a job about them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedpact as fp

PEOPLE = 160
#: Columns of every party, by number.
PARTIES = {"bank": (0, 1, 2), "shop": (3, 4, 5, 6), "clinic": (7, 8, 9)}
MAX_GAP = 0.02
JOB = f"""
task = "vertical"
label = "ill"
classes = ["no", "yes"]
group = "sex"
groups = ["F", "M"]
max_gap = {MAX_GAP}
alignment = "id"

[owners]
bank = "bank.csv"
shop = "shop.csv"
clinic = "clinic.csv"

[solve]
tol = 1e-6
compare = false
"""


@dataclass(frozen=True)
class People:
    """Everyone in one place: columns, labels and groups."""

    X: np.ndarray
    y: np.ndarray
    sex: np.ndarray

    def pooled(self, max_gap: float | None = MAX_GAP) -> fp.VerticalProblem:
        """The problem as it is when all columns are in one process."""
        group = None if max_gap is None else self.sex
        tables = {name: self.X[:, list(columns)] for name, columns in PARTIES.items()}
        return fp.VerticalProblem(tables, self.y, group, max_gap, standardize=True)


def make_people(seed: int = 0) -> People:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(PEOPLE, 10))
    sex = rng.integers(0, 2, PEOPLE)
    y = (X[:, 0] - X[:, 4] + X[:, 8] + sex + rng.normal(size=PEOPLE) > 0.3).astype(int)
    return People(X, y, sex)


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def write_parties(folder: Path, people: People, holder: str = "bank", seed: int = 1) -> Path:
    """One table a party, rows in an order of its own; label and group at the holder, or in coordinator.csv. The job."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    held = {i: [("no", "yes")[people.y[i]], "FM"[people.sex[i]]] for i in range(PEOPLE)}
    for name, columns in PARTIES.items():
        header = ["id", *(f"x{column}" for column in columns)]
        rows = [[f"p{i:03d}", *map(repr, map(float, people.X[i, list(columns)]))] for i in range(PEOPLE)]
        if name == holder:
            header += ["ill", "sex"]
            rows = [[*row, *held[i]] for i, row in enumerate(rows)]
        write_table(folder / f"{name}.csv", header, [rows[i] for i in rng.permutation(PEOPLE)])
    job = JOB
    if holder == "server":
        rows = [[f"p{i:03d}", *held[i]] for i in rng.permutation(PEOPLE)]
        write_table(folder / "coordinator.csv", ["id", "ill", "sex"], rows)
        job += '\n[server]\ndata = "coordinator.csv"\n'
    (folder / "job.toml").write_text(job)
    return folder / "job.toml"
