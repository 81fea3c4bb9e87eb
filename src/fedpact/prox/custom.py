"""A regularizer given by the user as three callables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpact.errors import ProblemError
from fedpact.prox.base import Prox
from fedpact.types import Vector


class Custom(Prox):
    """h from the callables `value(w)`, `prox(v, step)` and `subdifferential_distance(v, w)`.

    Each has the meaning of the method of that name in Prox. Set `indicator` when h is the indicator of a set.
    Raises ProblemError when `prox` returns a vector of another shape than v, or NaN.
    """

    def __init__(
        self,
        value: Callable[[Vector], float],
        prox: Callable[[Vector, float], Vector],
        subdifferential_distance: Callable[[Vector, Vector], float],
        *,
        indicator: bool = False,
    ) -> None:
        self._value = value
        self._prox = prox
        self._distance = subdifferential_distance
        self.indicator = indicator

    # The callables get copies: they may write into their arguments.

    def value(self, w: Vector) -> float:
        return float(self._value(w.copy()))

    def prox(self, v: Vector, step: float) -> Vector:
        w = np.array(self._prox(v.copy(), step), dtype=np.float64)
        if w.shape != v.shape:
            raise ProblemError(
                f"Custom: prox returned shape {w.shape}; expected {v.shape}, the shape of its argument",
                code="FP-PROBLEM-187",
            )
        if np.all(np.isfinite(v)) and not np.all(np.isfinite(w)):
            raise ProblemError(
                "Custom: prox returned NaN or infinite values for a finite v; return the w that minimises "
                "step * h(w) + |w - v|^2 / 2",
                code="FP-PROBLEM-188",
            )
        return w

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        distance = float(self._distance(v.copy(), w.copy()))
        if np.isnan(distance) and np.all(np.isfinite(v)) and np.all(np.isfinite(w)):
            raise ProblemError(
                "Custom: subdifferential_distance returned NaN; return a number, or inf where w is outside dom(h)",
                code="FP-PROBLEM-189",
            )
        return distance

    def __repr__(self) -> str:
        return f"Custom({getattr(self._value, '__name__', 'value')})"
