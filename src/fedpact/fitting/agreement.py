"""What all owners agree on before a solve, and what they tell about a model after it: exchanges of a session."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedpact.data.encoding import Encoding, Scaling
from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Measure, Share, Unscaled, round_to_rows
from fedpact.solvers.steps import model_of
from fedpact.types import Vector

#: A column whose deviation is smaller, relative to its mean, is constant but for rounding.
ROUNDING = 1e-12


def hide_sums(session: Session) -> None:
    """Have sums masked from here on where the session asks for it; by default they are between organisations."""
    wanted = session.secure_sum
    if wanted is None:
        wanted = session.networked and len(session.owners) > 1
    if wanted:
        session.secure()


# ------------------------------------------------------------------------------------------------------------- scaling


@dataclass(frozen=True, kw_only=True)
class About(Order):
    """mean: of every column, about which moments are taken"""

    mean: Vector


@dataclass(frozen=True, kw_only=True)
class Moments(Reply):
    """By column: how many values there are, the sum of their differences from the mean, and of the squares of those."""

    count: Summed[Vector]
    total: Summed[Vector]
    squares: Summed[Vector]


@client_step
def moments(share: Unscaled, state: Any, order: About) -> tuple[Any, Moments]:
    """The moments of the owner's columns about a mean; absent values do not count."""
    known = ~np.isnan(share.X)
    apart = np.where(known, share.X - order.mean, 0.0)
    reply = Moments(count=known.sum(axis=0, dtype=float), total=apart.sum(axis=0), squares=(apart**2).sum(axis=0))
    return state, reply


def agree_on_scaling(session: Session, encoding: Encoding, standardize: bool) -> Scaling:
    """Two exchanges: means, then deviations about them, both from sums over the owners."""
    first = session.ask(moments, About(mean=np.zeros(len(encoding.names)))).total
    if np.any(first.count == 0):
        column = encoding.names[int(np.argmin(first.count))]
        raise OptionError(
            f"column {column!r} has no values at any owner; take it out of the columns",
            code="FP-OPTION-460",
            column=column,
        )
    mean = first.total / first.count
    second = session.ask(moments, About(mean=mean)).total
    deviation = np.sqrt(second.squares / second.count)
    constant = deviation <= ROUNDING * np.abs(mean)
    scaled = np.zeros(mean.size, dtype=bool)
    if standardize:
        scaled = encoding.numeric
    return Scaling.of(mean, np.where(constant, 0.0, deviation), scaled)


# ------------------------------------------------------------------------------------------------------------- measures


@dataclass(frozen=True, kw_only=True)
class Finished(Order):
    """w: the model to measure"""

    w: Vector


@dataclass(frozen=True, kw_only=True)
class Measured(Reply):
    """What an owner tells about a finished model.

    values:   of the constraint; none when they are withheld
    names:    of what the share measures, a JSON list
    numbers:  what it measured; counts, cells: `Measure.rows` and `cell` of each, 0 where they are not known
    withheld: names of what is not told, a JSON list
    bare:     whether the values are told
    """

    values: Vector
    names: str
    numbers: Vector
    counts: Vector
    cells: Vector
    withheld: str = "[]"
    bare: bool = True

    @classmethod
    def of(
        cls, values: Vector, measures: Mapping[str, Measure], withheld: Sequence[str] = (), bare: bool = True
    ) -> Self:
        return cls(
            values=values,
            names=json.dumps(list(measures)),
            numbers=np.array(list(measures.values()), dtype=np.float64),
            counts=np.array([one.rows for one in measures.values()], dtype=np.float64),
            cells=np.array([one.cell for one in measures.values()], dtype=np.float64),
            withheld=json.dumps(list(withheld)),
            bare=bare,
        )

    def told(self) -> dict[str, float]:
        """The measures by name."""
        return {name: float(one) for name, one in self.measures().items()}

    def measures(self) -> dict[str, Measure]:
        """The measures by name, with their rows."""
        each = zip(json.loads(self.names), self.numbers, self.counts, self.cells, strict=True)
        return {name: Measure(number, int(count), int(cell)) for name, number, count, cell in each}

    def withhold(self, least: int) -> Self:
        """Without numbers that tell of fewer than `least` rows, or do not say of how many; the others are rounded.

        Values of the constraint rest on the smallest cell of all. With least = 0 all are told as they are. A rate over
        no rows at all (NaN) is never told.
        """
        measures = self.measures()
        small = [name for name, one in measures.items() if one.cell < least]
        told = {name: one for name, one in measures.items() if one.cell >= least and not math.isnan(one)}
        if not least:
            return self.of(self.values, told)
        if small or not told:
            return self.of(np.zeros(0), _rounded(told), small, bare=not self.values.size)
        fewest = min(one.rows for one in told.values())
        values = np.array([round_to_rows(value, fewest) for value in self.values.tolist()])
        return self.of(values, _rounded(told))


def _rounded(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    return {name: Measure(round_to_rows(one, one.rows), one.rows, one.cell) for name, one in measures.items()}


@client_step
def measure(share: Share, state: Any, order: Finished) -> tuple[Any, Measured]:
    """What an owner tells about a finished model, with the private variables that it keeps for it."""
    point = model_of(share, state, order.w)
    values = np.zeros(0)
    if share.constraint is not None:
        values = share.constraint.function.value(point)
    told: Mapping[str, float] = {}
    if share.measures is not None:
        told = share.measures(point)
    known = {name: one if isinstance(one, Measure) else Measure(one, rows=0) for name, one in told.items()}
    return state, Measured.of(values, known)
