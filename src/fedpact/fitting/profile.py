"""What all owners' tables hold together: three exchanges of sums, and what is wrong with each, without a cell.

First every owner looks through its table: its own log gets the words of every defect, the coordinator a code, a column
and a coarse count. Then come moments about a mean, and counts on a grid around it, from which quantiles follow.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from fedpact.errors import DataError, Refused
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.federation.failure import Failure, coarsen
from fedpact.fitting.agreement import About, hide_sums, moments
from fedpact.fitting.sources import Held, source_of
from fedpact.tasks.profile import Profile, Survey
from fedpact.tasks.tables import TableTask
from fedpact.types import Matrix, Vector

#: A site's own log, see `fedpact.federation.remote`.
log = logging.getLogger("fedpact.site")

#: Edges of the grid on which values are counted, in deviations from the mean: fine near it, up to twelve.
EDGES = np.concatenate([np.arange(-12, -3), np.arange(-24, 25) / 8, np.arange(4, 13)])
#: A deviation this much smaller than the owner's own would zoom in on rows; that of all rows is, at an honest
#: coordinator, only if this owner has less than one row in a thousand.
ZOOM = 32.0
#: A text is told as a level of its column if it occurs so often at an owner, or more often if its policy says so.
FEWEST = 10
#: Quantiles that are told.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a column of an owner's table; rows: about how many, 0 for few, None where that is not told."""

    owner: str
    column: str
    code: str
    rows: int | None

    def __str__(self) -> str:
        return str(Failure(self.code, self.column, rows=self.rows).to_error(self.owner))


@dataclass(frozen=True)
class Described:
    """A column over all owners.

    known:     rows that have a value; mean, deviation: of those
    quantiles: by probability, to about a sixteenth of a deviation; empty for categories
    levels:    rows by level, of a category
    """

    name: str
    known: int
    mean: float = math.nan
    deviation: float = math.nan
    quantiles: tuple[float, ...] = ()
    levels: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Description:
    """All columns of all owners.

    rows:   in all tables; wrong: what is wrong with them, owner by owner
    levels: texts that are frequent at some owner, of columns for which no levels were agreed
    suspicious: what looks wrong although every cell can be read: a column that alone decides the label, ids, ...
    counts: by owner, rows in all and of each of the classes of the label; none where its policy keeps them
    """

    owners: tuple[str, ...]
    rows: int
    columns: tuple[Described, ...]
    wrong: tuple[Wrong, ...]
    levels: Mapping[str, tuple[str, ...]]
    suspicious: tuple[Wrong, ...] = ()
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        stated = asdict(self)
        for column in stated["columns"]:
            for name in ("mean", "deviation"):
                column[name] = None if math.isnan(column[name]) else column[name]
        return stated

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        columns = []
        for one in stated["columns"]:
            numbers = {name: math.nan if one[name] is None else one[name] for name in ("mean", "deviation")}
            columns.append(Described(**{**one, **numbers, "quantiles": tuple(one["quantiles"])}))
        levels = {column: tuple(texts) for column, texts in stated["levels"].items()}
        wrong, suspicious = (tuple(Wrong(**one) for one in stated[name]) for name in ("wrong", "suspicious"))
        counts = {owner: tuple(numbers) for owner, numbers in stated["counts"].items()}
        classes = tuple(stated["classes"])
        return cls(tuple(stated["owners"]), stated["rows"], tuple(columns), wrong, levels, suspicious, counts, classes)


# ------------------------------------------------------------------------------------------------------------ exchanges


@dataclass(frozen=True, kw_only=True)
class Looked(Reply):
    """What is wrong with a table.

    rows:    of the table
    defects: a JSON list of [column, code, coarse count]
    levels:  JSON, column -> frequent texts
    suspicions: as defects, of what looks wrong although it can be read; scarce: and of too few rows
    counts:  rows in all, then of each class of the label; empty where one of them is a small cell
    """

    rows: Summed[float]
    defects: str
    levels: str
    suspicions: str
    scarce: str
    counts: Vector

    def withhold(self, least: int) -> Self:
        """Without texts that occur in fewer rows, and without the counts themselves; nothing of small cells."""
        frequent = {
            column: sorted(text for text, count in found.items() if count >= max(least, FEWEST))
            for column, found in json.loads(self.levels).items()
        }
        counts = self.counts if np.min(self.counts, initial=np.inf) >= least else np.zeros(0)
        return replace(self, levels=json.dumps(frequent), counts=counts, scarce=self.scarce if not least else "[]")


@client_step
def look(share: Survey, state: Any, order: Order) -> tuple[Any, Looked]:
    """Say what is wrong: in words to the owner's log, by code and column to the coordinator."""
    return state, Looked(
        rows=float(len(share.X)),
        defects=_list(share.defects),
        levels=json.dumps(share.levels),
        suspicions=_list(share.suspicions),
        scarce=_list(share.scarce),
        counts=np.array([len(share.X), *share.classes], dtype=np.float64),
    )


def _list(errors: Iterable[DataError]) -> str:
    """In words to the owner's log; returns codes, columns and coarse counts."""
    told = []
    for error in errors:
        log.warning("%s", error)
        told.append((error.column, error.code, None if error.rows is None else coarsen(error.rows)))
    return json.dumps(list(dict.fromkeys(told)))


@dataclass(frozen=True, kw_only=True)
class Grid(Order):
    """mean, deviation: of every column over all owners, which place the grid"""

    mean: Vector
    deviation: Vector


@dataclass(frozen=True, kw_only=True)
class Tally(Reply):
    """counts: values by column and cell of the grid; zeros: they are counted apart, since columns may be mostly zero"""

    counts: Summed[Matrix]
    zeros: Summed[Vector]


@client_step
def tally(share: Survey, state: Any, order: Grid) -> tuple[Any, Tally]:
    """Count the values of every column on the grid; once in a run, and not on one that zooms in on rows."""
    own = _deviations(share.X)
    if state == "tallied" or np.any(order.deviation * ZOOM < own):
        raise Refused("values are counted once in a run, on a grid as wide as the columns are", code="FP-REFUSED-053")
    counts = [
        np.histogram(column[~np.isnan(column) & (column != 0)], _edges(mean, deviation))[0]
        for column, mean, deviation in zip(share.X.T, order.mean, order.deviation, strict=True)
    ]
    zeros = (share.X == 0).sum(axis=0, dtype=np.float64)
    return "tallied", Tally(counts=np.array(counts, dtype=np.float64), zeros=zeros)


def profile(task: TableTask, owners: Mapping[str, Held], session: Session | None = None) -> Description:
    """Describe the columns that a task is about, at all owners.

    owners: name -> file, or None for a site that has its own; session: where and how, by default in this process
    """
    asked = Profile.of(task).among(list(owners))
    sources = {name: source_of(name, held) for name, held in owners.items()}
    if session is None:
        with Session() as made:
            return _ask(asked, made.open(sources, asked.identity()))
    return _ask(asked, session.open(sources, asked.identity()))


def _ask(task: Profile, session: Session) -> Description:
    hide_sums(session)
    session.pose(task)
    names = task.encoding.names
    looked = session.ask(look, Order())
    first = session.ask(moments, About(mean=np.zeros(len(names)))).total
    known = np.maximum(first.count, 1.0)
    mean = first.total / known
    second = session.ask(moments, About(mean=mean)).total
    deviation = np.sqrt(second.squares / known)
    tallied = session.ask(tally, Grid(mean=mean, deviation=deviation)).total
    columns = []
    places = iter(range(len(names)))
    for column in task.encoding.columns:
        if column in task.categories:
            levels = {level: round(first.total[next(places)]) for level in task.categories[column]}
            columns.append(Described(column, sum(levels.values()), levels=levels))
        else:
            j = next(places)
            quantiles = read_quantiles(tallied.counts[j], tallied.zeros[j], mean[j], deviation[j])
            columns.append(Described(column, round(first.count[j]), mean[j], deviation[j], quantiles))
    wrong, suspicious = [], []
    counts = {}
    levels_found: dict[str, set[str]] = {}
    for owner, reply in zip(session.owners, looked, strict=True):
        wrong += [Wrong(owner, *one) for one in json.loads(reply.defects)]
        suspicious += [Wrong(owner, *one) for one in (*json.loads(reply.suspicions), *json.loads(reply.scarce))]
        counts[owner] = tuple(round(count) for count in reply.counts)
        for column, texts in json.loads(reply.levels).items():
            levels_found.setdefault(column, set()).update(texts)
    found = {column: tuple(sorted(texts)) for column, texts in levels_found.items()}
    classes = task.categories.get(task.label, ())
    about = (tuple(suspicious), counts, classes)
    return Description(tuple(session.owners), round(looked.total.rows), tuple(columns), tuple(wrong), found, *about)


def read_quantiles(counts: Vector, zeros: float, mean: float, deviation: float) -> tuple[float, ...]:
    """Quantiles from counts on the grid, values spread evenly in a cell; NaN where no value is known."""
    total = counts.sum() + zeros
    if not total:
        return (math.nan,) * len(QUANTILES)
    edges = mean + deviation * EDGES
    below = np.concatenate([[0.0], np.cumsum(counts)])
    before = np.interp(0.0, edges, below)
    place = int(np.searchsorted(edges, 0.0))
    edges = np.insert(edges, place, [0.0, 0.0])
    below = np.concatenate([below[:place], [before, before + zeros], below[place:] + zeros])
    return tuple(np.interp(QUANTILES, below / total, edges).tolist())


def _edges(mean: float, deviation: float) -> Vector:
    """The grid of a column; what is beyond it counts in the outermost cells."""
    return np.concatenate([[-np.inf], (mean + deviation * EDGES)[1:-1], [np.inf]])


def _deviations(X: Matrix) -> Vector:
    """Of the columns of one owner, 0 where it has no values."""
    known = ~np.isnan(X)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, X, 0.0).sum(axis=0) / count
    return np.asarray(np.sqrt((np.where(known, X - mean, 0.0) ** 2).sum(axis=0) / count))
