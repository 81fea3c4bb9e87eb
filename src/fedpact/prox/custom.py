"""An h written by the user as three callables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpact.errors import ProblemError
from fedpact.prox.base import Prox, Vector


class Custom(Prox):
    """h from `value(w)`, `prox(v, step)` and `subdifferential_distance(v, w)`, each as the method of that name in Prox.

    Set `indicator` when h is the indicator of a set. Raises ProblemError when `prox` returns another shape than it got,
    or NaN.
    """

    def __init__(
        self,
        value: Callable[[Vector], float],
        prox: Callable[[Vector, float], Vector],
        subdifferential_distance: Callable[[Vector, Vector], float],
        *,
        indicator: bool = False,
    ) -> None:
        self._value, self._prox, self._distance = value, prox, subdifferential_distance
        self.indicator = indicator

    def value(self, w: Vector) -> float:
        return float(self._value(w.copy()))

    def prox(self, v: Vector, step: float) -> Vector:
        w = np.array(self._prox(v.copy(), step), dtype=np.float64)
        if w.shape != v.shape:
            raise ProblemError(f"Custom: prox came back with shape {w.shape}; expected {v.shape}, as it was given")
        if np.all(np.isfinite(v)) and not np.all(np.isfinite(w)):
            raise ProblemError(
                "Custom: prox came back with NaN or infinite values for a finite v; return the w that minimises "
                "step * h(w) + |w - v|^2 / 2"
            )
        return w

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        distance = float(self._distance(v.copy(), w.copy()))
        if np.isnan(distance) and np.all(np.isfinite(v)) and np.all(np.isfinite(w)):
            raise ProblemError(
                "Custom: subdifferential_distance came back as NaN; return a number, or inf where w is outside dom(h)"
            )
        return distance

    def __repr__(self) -> str:
        return f"Custom({getattr(self._value, '__name__', 'value')})"
