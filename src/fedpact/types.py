"""The arrays of this package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: One number per coordinate.
Vector = NDArray[np.float64]
#: Rows and columns of numbers.
Matrix = NDArray[np.float64]
