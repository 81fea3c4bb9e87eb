"""Logistic loss of a linear classifier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpact.functions.arrays import count, list_distinct
from fedpact.functions.scored import ScoredMean
from fedpact.types import Vector


class LogisticLoss(ScoredMean):
    """f(w) = sum_i p_i (log(1 + exp(s_i)) - y_i s_i), s_i = x_i'w + offset_i, y_i 0 or 1; the rest as `ScoredMean`.

    With z = 2y - 1 the loss of a row is log(1 + exp(-z s)), which is free of cancellation.
    """

    convex = True
    likelihood = True

    def _losses(self, score: Vector) -> Vector:
        wrong = self._against * score
        return np.maximum(wrong, 0.0) + np.log1p(np.exp(-np.abs(wrong)))

    def _slopes(self, score: Vector) -> Vector:
        return self._expand(score)[1]

    def _expand(self, score: Vector) -> tuple[Vector, Vector, Callable[[], Vector]]:
        # With t = exp(-|wrong|) nothing overflows: log(1 + exp(wrong)) = max(wrong, 0) + log(1 + t), and its slope is
        # 1 / (1 + t) or t / (1 + t). NumPy's exp and log1p are several times faster than logaddexp and expit.
        against = self._against
        wrong = against * score
        t = np.exp(-np.abs(wrong))
        more = 1.0 + t
        losses = np.maximum(wrong, 0.0) + np.log1p(t)
        return losses, against * (np.maximum(t, wrong > 0) / more), lambda: t / more**2

    def _curvatures(self, score: Vector) -> Vector:
        t = np.exp(-np.abs(score))
        return t / (1.0 + t) ** 2

    @property
    def _against(self) -> Vector:
        """-z: the sign of a score that is wrong."""
        return 1.0 - 2.0 * self.y

    def _label_defect(self) -> str | None:
        wrong = self.y[~np.isin(self.y, (0.0, 1.0))]
        if wrong.size == 0:
            return None
        found = f"y has {count(wrong.size, 'label')} other than 0 and 1 ({list_distinct(wrong)})"
        return f"{found}; recode the two classes as 0 and 1"
