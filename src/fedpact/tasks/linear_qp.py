"""Quadratic programs with linear equalities at the server and at every owner, and their exact solution."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, LinAlgWarning, solve

from fedpact.cones import Zero
from fedpact.errors import DataError, ProblemError
from fedpact.functions import Affine, Quadratic
from fedpact.problem import Constraint, FederatedProblem, Share
from fedpact.tasks.base import SERVER, Bounded, Task
from fedpact.types import Vector, to_real

Array = NDArray[np.float64]


class Exact(NamedTuple):
    """The optimum: w (d), one multiplier (m) for the server and each owner, in this order, and the objective."""

    w: Array
    multipliers: list[Array]
    objective: float


def linear_qp(A: ArrayLike, b: ArrayLike, C: ArrayLike, d: ArrayLike) -> FederatedProblem:
    """min_w sum_{i=1..n} w'A_i w / 2 + b_i'w  s.t.  C_i w + d_i = 0, i = 0..n, with i = 0 the server.   He24 (84)

    A: n x d x d, symmetric; b: n x d; C: (n + 1) x m x d; d: (n + 1) x m.

    Raises:
        ProblemError: shapes that do not fit, a matrix A_i that is not symmetric.
        DataError: a number that is not finite.
    """
    A, b, C, d = _check_arrays(A, b, C, d)
    shares = [linear_qp_share(A[i], b[i], C[i + 1], d[i + 1], name=f"client {i + 1}") for i in range(len(A))]
    server = Share(None, Constraint(Affine(C[0], d[0]), Zero(len(d[0]))), name=SERVER)
    return FederatedProblem(shares, server=server)


def linear_qp_share(
    A: ArrayLike, b: ArrayLike, C: ArrayLike | None = None, d: ArrayLike | None = None, *, name: str
) -> Share:
    """One owner's share, from its own arrays (A: d x d, b: d, C: m x d, d: m). Built where they are."""
    constraint = None
    if C is not None:
        equality = Affine(C, d)
        constraint = Constraint(equality, Zero(equality.C.shape[0]))
    return Share(Quadratic(A, b), constraint, name=name)


def exact(A: ArrayLike, b: ArrayLike, C: ArrayLike, d: ArrayLike) -> Exact:
    """The optimum of `linear_qp(A, b, C, d)` by one linear solve of its optimality (KKT) conditions.

    sum_i A_i w + sum_i b_i + sum_i C_i' mu_i = 0  and  C_i w + d_i = 0.

    Raises:
        ProblemError: the equalities are dependent or contradict each other, or the quadratic form is singular on
            their null space, so that there is not exactly one solution.
    """
    A, b, C, d = _check_arrays(A, b, C, d)
    blocks, m, dim = C.shape
    H = A.sum(axis=0)
    J = C.reshape(blocks * m, dim)
    matrix = np.block([[H, J.T], [J, np.zeros((len(J), len(J)))]])
    right = -np.concatenate([b.sum(axis=0), d.ravel()])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            solution = solve(matrix, right, assume_a="sym")
    except (LinAlgError, LinAlgWarning) as error:
        raise ProblemError(
            f"the optimality conditions of this program are singular: {len(J)} equalities in {dim} variables are "
            "dependent, or the quadratic form is flat along them; remove dependent rows of C or regularize A",
            code="FP-PROBLEM-001",
        ) from error
    w = solution[:dim]
    multipliers = list(solution[dim:].reshape(blocks, m))
    return Exact(w, multipliers, float(w @ H @ w / 2 + b.sum(axis=0) @ w))


def _check_arrays(A: ArrayLike, b: ArrayLike, C: ArrayLike, d: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """The arrays of all owners as float64. Raises ProblemError for shapes, DataError for values."""
    try:
        A, b, C, d = (to_real(array) for array in (A, b, C, d))
    except (TypeError, ValueError) as error:
        raise DataError(f"A, b, C and d must be arrays of real numbers ({error})", code="FP-DATA-063") from error
    if A.ndim != 3 or C.ndim != 3 or len(A) == 0:
        raise ProblemError(
            f"A has shape {A.shape} and C has shape {C.shape}; needed: n x d x d and (n + 1) x m x d, n >= 1",
            code="FP-PROBLEM-002",
        )
    n = len(A)
    dim = A.shape[1]
    m = C.shape[1]
    needed = {"A": (A, (n, dim, dim)), "b": (b, (n, dim)), "C": (C, (n + 1, m, dim)), "d": (d, (n + 1, m))}
    for name, (array, shape) in needed.items():
        if array.shape != shape:
            raise ProblemError(
                f"{name} has shape {array.shape}; with A of shape {A.shape} it must be {shape}", code="FP-PROBLEM-003"
            )
        finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        owners = [f"client {i}" for i in range(1, n + 1)]
        if len(array) > n:  # C and d begin with the server's
            owners.insert(0, SERVER)
        for i in np.flatnonzero(~finite):
            raise DataError(
                f"{owners[i]}: {name}[{i}] has values that are not finite; replace them", code="FP-DATA-062"
            )
    return A, b, C, d


@dataclass(frozen=True, kw_only=True)
class LinearQP(Task):
    """min sum_i w'A_i w / 2 + b_i'w  s.t.  C_i w + d_i = 0, from the arrays A, b, C, d of an .npz file an owner."""

    name: ClassVar[str] = "linear_qp"
    title: ClassVar[str] = "a quadratic program with linear equalities; owners have .npz files of A, b, C, d"

    def read(self, path: Path) -> dict[str, Array]:
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            words = f"{path} cannot be read as .npz ({error}); write it with numpy.savez(A=, b=, C=, d=)"
            raise DataError(words, code="FP-DATA-060") from error
        if absent := {"A", "b"} - arrays.keys():
            raise DataError(
                f"{path} has no array {', '.join(sorted(absent))}; write it with numpy.savez(A=, b=, C=, d=)",
                code="FP-DATA-061",
            )
        return arrays

    def share(self, owner: str, held: Mapping[str, Array]) -> Share:
        return linear_qp_share(held["A"], held["b"], held.get("C"), held.get("d"), name=owner)

    def sentence(self) -> str:
        return f"A quadratic program with linear equalities at each of {self.owners} owners."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        for j, value in enumerate(values):  # an equality costs in either direction
            yield Bounded(owner, f"constraint {j + 1}", abs(float(value)), 0.0, abs(float(price[j])))
