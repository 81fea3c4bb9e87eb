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

    @property
    def alone(self) -> bool:
        """Whether it is one row, whose spread about the mean nothing shows."""
        return int(np.count_nonzero(self.weight)) == 1

    def centre(self) -> Self:
        """By how much each row moves the mean: row i moves sum_i p_i g_i by p_i (g_i - mean), stretched.

        The delta method for a mean with weights that sum to one; the same whether the number of its rows is given or
        drawn. Stretched so that the sum of squares is unbiased: by n / (n - 1) in squares, for equal weights. One row
        is left as it is, about zero.
        """
        if self.alone:
            return self
        squares, cubes = (float(np.sum(self.weight**power)) for power in (2, 3))
        left = squares - 2 * cubes + squares**2
        stretch = np.sqrt(squares / left) if left > 0 else 1.0
        value = stretch * (self.value - self.weight * self.value.sum())
        gradient = stretch * (self.gradient - np.outer(self.weight, self.gradient.sum(axis=0)))
        return replace(self, value=value, gradient=gradient)
