"""What all owners agree on before a solve, and what they tell about a model after it: exchanges of a session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.data.encoding import Encoding, Scaling
from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share, Unscaled
from fedpact.types import Vector

# ------------------------------------------------------------------------------------------------------------- scaling


@dataclass(frozen=True, kw_only=True)
class About(Order):
    mean: Vector


@dataclass(frozen=True, kw_only=True)
class Moments(Reply):
    count: Summed[Vector]
    total: Summed[Vector]
    squares: Summed[Vector]


@client_step
def moments(share: Unscaled, state: Any, order: About) -> tuple[Any, Moments]:
    """How many values each column has, and the sums of their differences from a mean and of the squares of those."""
    known = ~np.isnan(share.X)
    apart = np.where(known, share.X - order.mean, 0.0)
    return state, Moments(count=known.sum(axis=0, dtype=float), total=apart.sum(axis=0), squares=(apart**2).sum(axis=0))


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
    constant = deviation <= 1e-12 * np.abs(mean)  # rounding of a column that is the same everywhere
    scaled = encoding.numeric if standardize else np.zeros(mean.size, dtype=bool)
    return Scaling.of(mean, np.where(constant, 0.0, deviation), scaled)


# ------------------------------------------------------------------------------------------------------------- measures


@dataclass(frozen=True, kw_only=True)
class Finished(Order):
    w: Vector


@dataclass(frozen=True, kw_only=True)
class Measured(Reply):
    """values: of the constraint; names (a JSON list) and numbers: what the share measures."""

    values: Vector
    names: str
    numbers: Vector

    def told(self) -> dict[str, float]:
        return dict(zip(json.loads(self.names), self.numbers.tolist(), strict=True))


@client_step
def measure(share: Share, state: Any, order: Finished) -> tuple[Any, Measured]:
    """What an owner tells about a finished model."""
    values = np.zeros(0) if share.constraint is None else share.constraint.function.value(order.w)
    told = {} if share.measures is None else share.measures(order.w)
    return state, Measured(
        values=values, names=json.dumps(list(told)), numbers=np.array(list(told.values()), dtype=np.float64)
    )
