"""Parties with ids for tests: a small task about columns, and tables that overlap in part."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpact.alignment import People
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.tasks import HeldSource, Task
from fedpact.tasks.base import Bounded
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Table:
    """A party's table: ids, and one number a person."""

    ids: list[str | int]
    X: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Columns(Task):
    """Parties that hold a column each."""

    name: ClassVar[str] = "columns"
    title: ClassVar[str] = "columns"
    aligned: ClassVar[bool] = True

    def read(self, path: Path) -> Table:
        with path.open() as file:
            rows = list(csv.DictReader(file))
        return Table([row["id"] for row in rows], np.array([float(row["x"]) for row in rows]))

    def people(self, owner: str, held: Table) -> People:
        return People(owner, held.ids)

    def take(self, held: Table, rows: NDArray[np.int64]) -> Table:
        return Table([held.ids[row] for row in rows], held.X[rows])

    def share(self, owner: str, held: Table) -> Any:
        return held

    def sentence(self) -> str:
        return "columns"

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Column(Reply):
    x: Vector
    sums: Summed[Vector]


@client_step
def look_at(share: Table, state: Any, order: Order) -> tuple[Any, Column]:
    """The column as a solver's step would find it."""
    return state, Column(x=share.X, sums=share.X)


def make_tables(people: int = 30, extra: int = 5, parties: int = 3, seed: int = 0) -> dict[str, Table]:
    """The same people at all parties, each in an order of its own and among people that only this party has.

    A person's number is that of its id, times 10 to the number of the party.
    """
    rng = np.random.default_rng(seed)
    tables = {}
    for k in range(parties):
        numbers = [*range(people), *range(1000 * (k + 1), 1000 * (k + 1) + extra)]
        order = rng.permutation(len(numbers))
        ids: list[str | int] = [f" person-{numbers[i]:05d}" for i in order]
        tables[f"party{k}"] = Table(ids, np.array([numbers[i] * 10.0**k for i in order]))
    return tables


def open_session(tables: Mapping[str, Table], session: Session) -> Session:
    session.open({name: HeldSource(name, table) for name, table in tables.items()})
    session.pose(Columns(owners=len(tables)))
    return session
