"""Several cones side by side: one block of coordinates each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import block_diag

from fedpact.cones.base import Cone, Matrix, Vector
from fedpact.errors import ProblemError


@dataclass(frozen=True)
class Product(Cone):
    """K = K_1 x ... x K_n; vectors are the blocks' vectors one after another.

    ProblemError when there is no cone, or an element is not a Cone. Rounding of multipliers is judged block
    by block, relative to the norm of the block.
    """

    cones: tuple[Cone, ...]
    dim: int = field(init=False, repr=False)

    def __init__(self, cones: Iterable[Cone]) -> None:
        blocks = tuple(cones)
        if not blocks:
            raise ProblemError("Product: cones must hold at least one cone, found none")
        for index, cone in enumerate(blocks):
            if not isinstance(cone, Cone):
                raise ProblemError(f"Product: cones[{index}] must be a Cone, found {cone!r}")
        object.__setattr__(self, "cones", blocks)
        object.__setattr__(self, "dim", sum(cone.dim for cone in blocks))

    def project(self, v: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.project(block) for cone, block in self._blocks(v)])

    def project_dual(self, v: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.project_dual(block) for cone, block in self._blocks(v)])

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """A diagonal (length dim) when every block gives one, else block diagonal (dim x dim)."""
        jacobians = [cone.project_dual_jacobian(block) for cone, block in self._blocks(v)]
        if all(jacobian.ndim == 1 for jacobian in jacobians):
            return np.concatenate(jacobians)
        dense = [np.diag(jacobian) if jacobian.ndim == 1 else jacobian for jacobian in jacobians]
        return np.asarray(block_diag(*dense), dtype=np.float64)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """Block by block."""
        prices = [price for _, price in self._blocks(multiplier)]
        pairs = zip(self._blocks(v), prices, strict=True)
        return np.concatenate([cone.project_normal(block, price) for (cone, block), price in pairs])

    def normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """The largest over the blocks."""
        prices = [price for _, price in self._blocks(multiplier)]
        pairs = zip(self._blocks(v), prices, strict=True)
        return max(cone.normal_distance(block, price) for (cone, block), price in pairs)

    def _blocks(self, v: Vector) -> list[tuple[Cone, Vector]]:
        cuts = np.cumsum([cone.dim for cone in self.cones])[:-1]
        return list(zip(self.cones, np.split(v, cuts), strict=True))
