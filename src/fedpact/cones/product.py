"""Products of cones: one block of coordinates for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from fedpact.cones.base import Cone
from fedpact.errors import ProblemError
from fedpact.types import Matrix, Vector


@dataclass(frozen=True)
class Product(Cone):
    """K = K_1 x ... x K_n; a vector holds the vectors of the blocks one after another.

    Everything is computed block by block, rounding of multipliers relative to the norm of the block included. The
    product is symmetric when all blocks are. ProblemError when there is no cone, or an element is not a Cone.
    """

    cones: tuple[Cone, ...]
    dim: int = field(init=False, repr=False)
    symmetric: bool = field(init=False, repr=False, compare=False)
    _parts: tuple[tuple[Cone, slice], ...] = field(init=False, repr=False, compare=False)

    def __init__(self, cones: Iterable[Cone]) -> None:
        factors = tuple(cones)
        if not factors:
            raise ProblemError("Product: cones must hold at least one cone, found none", code="FP-PROBLEM-196")
        for index, cone in enumerate(factors):
            if not isinstance(cone, Cone):
                raise ProblemError(f"Product: cones[{index}] must be a Cone, found {cone!r}", code="FP-PROBLEM-197")
        ends = list(accumulate(cone.dim for cone in factors))
        parts = [(cone, slice(end - cone.dim, end)) for cone, end in zip(factors, ends, strict=True)]
        object.__setattr__(self, "cones", factors)
        object.__setattr__(self, "dim", ends[-1])
        object.__setattr__(self, "symmetric", all(cone.symmetric for cone in factors))
        object.__setattr__(self, "_parts", tuple(parts))

    @property
    def blocks(self) -> tuple[Cone, ...]:
        """The blocks, those of products among them one by one."""
        return tuple(block for cone in self.cones for block in cone.blocks)

    def project(self, v: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.project(v[at]) for cone, at in self._parts])

    def project_dual(self, v: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.project_dual(v[at]) for cone, at in self._parts])

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """A diagonal (length dim) when every block gives one, else block diagonal (dim x dim)."""
        return _block_diagonal([cone.project_dual_jacobian(v[at]) for cone, at in self._parts])

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.project_normal(v[at], multiplier[at]) for cone, at in self._parts])

    def normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """The largest over the blocks."""
        return max(cone.normal_distance(v[at], multiplier[at]) for cone, at in self._parts)

    @property
    def has_interior(self) -> bool:
        """Whether all blocks have one."""
        return all(cone.has_interior for cone in self.cones)

    @property
    def degree(self) -> int:
        """Sum over the blocks."""
        return sum(cone.degree for cone in self.cones)

    @property
    def has_slack(self) -> NDArray[np.bool_]:
        """Block by block."""
        return np.concatenate([cone.has_slack for cone in self.cones])

    def identity(self) -> Vector:
        """Block by block."""
        return np.concatenate([cone.identity() for cone in self.cones])

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.move_inside(v[at], margin[at]) for cone, at in self._parts])

    def inverse(self, s: Vector) -> Vector:
        """Block by block."""
        return np.concatenate([cone.inverse(s[at]) for cone, at in self._parts])

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """A diagonal (length dim) when every block gives one, else block diagonal (dim x dim)."""
        return _block_diagonal([cone.scaling(s[at], z[at]) for cone, at in self._parts])

    def quadratic(self, z: Vector) -> Matrix:
        """Block by block, as `scaling`."""
        return _block_diagonal([cone.quadratic(z[at]) for cone, at in self._parts])

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """The shortest over the blocks."""
        return min(cone.longest_step(s[at], ds[at]) for cone, at in self._parts)

    def longest_dual_step(self, z: Vector, dz: Vector) -> float:
        """The shortest over the blocks."""
        return min(cone.longest_dual_step(z[at], dz[at]) for cone, at in self._parts)

    def sensitivity(self, jacobian: Matrix) -> Vector:
        """Block by block."""
        return np.concatenate([cone.sensitivity(jacobian[at]) for cone, at in self._parts])

    def clean(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """Block by block."""
        return np.concatenate([cone.clean(multiplier[at], value[at], jacobian[at]) for cone, at in self._parts])


def _block_diagonal(blocks: list[Matrix]) -> Matrix:
    """Diagonals joined to one diagonal; dense as soon as one block is a matrix."""
    if all(block.ndim == 1 for block in blocks):
        return np.concatenate(blocks)
    dense = [np.diag(block) if block.ndim == 1 else block for block in blocks]
    return np.asarray(block_diag(*dense), dtype=np.float64)
