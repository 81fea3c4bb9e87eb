"""What single rows add to a mean over rows: from their spread follows how sure the mean is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedpact.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each row adds to a mean over rows, and to its gradient.

    numbers:  (rows,), which of the owner's rows these are: two functions of one row vary together
    weight:   (rows,), the part of each row in the mean; they sum to one
    value:    (rows,)
    gradient: (rows, dim)
    """

    numbers: NDArray[np.intp]
    weight: Vector
    value: Vector
    gradient: Matrix

    def scale(self, factor: float) -> Self:
        """The contributions to a multiple of the mean."""
        return replace(self, value=factor * self.value, gradient=factor * self.gradient)

    def centre(self) -> Self:
        """By how much each row moves the mean: row i moves sum_i p_i g_i by p_i (g_i - mean).

        The delta method for a mean with weights that sum to one; the same whether the number of its rows is given or
        drawn.
        """
        value = self.value - self.weight * self.value.sum()
        gradient = self.gradient - np.outer(self.weight, self.gradient.sum(axis=0))
        return replace(self, value=value, gradient=gradient)
