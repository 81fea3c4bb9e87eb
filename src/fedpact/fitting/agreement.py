"""What all owners agree on before a solve, and what they tell about a model after it: exchanges of a session."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.data.encoding import Encoding, Scaling
from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share, Unscaled
from fedpact.types import Vector

#: A column whose deviation is smaller, relative to its mean, is constant but for rounding.
ROUNDING = 1e-12

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
    """values: of the constraint; names (a JSON list) and numbers: what the share measures."""

    values: Vector
    names: str
    numbers: Vector

    def told(self) -> dict[str, float]:
        """The measures by name."""
        return dict(zip(json.loads(self.names), self.numbers.tolist(), strict=True))


@client_step
def measure(share: Share, state: Any, order: Finished) -> tuple[Any, Measured]:
    """What an owner tells about a finished model."""
    values = np.zeros(0)
    if share.constraint is not None:
        values = share.constraint.function.value(order.w)
    told: Mapping[str, float] = {}
    if share.measures is not None:
        told = share.measures(order.w)
    numbers = np.array(list(told.values()), dtype=np.float64)
    return state, Measured(values=values, names=json.dumps(list(told)), numbers=numbers)
