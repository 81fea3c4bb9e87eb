"""Before and after a solve: sums of moments, from which columns are scaled, and what owners tell about a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.federation import Order, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Share, Unscaled


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
