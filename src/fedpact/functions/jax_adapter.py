"""Losses written in JAX as smooth functions of one vector. JAX is an extra, imported when it is used.

w lists the leaves of the parameter tree in the order of `jax.tree.leaves` (dictionaries by sorted keys), each row by
row. By default everything is computed in float64: 64-bit mode is enabled around every call, for the calling thread
only, and JAX's global configuration does not change.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError, install
from fedpact.functions.arrays import as_numbers, as_vector, first_of, non_finite_defect
from fedpact.functions.base import ROUNDING as BASE_ROUNDING
from fedpact.functions.base import Function, Indices
from fedpact.functions.callables import Smooth
from fedpact.types import Matrix, Vector

#: The mean over two parts of the rows is the mean over all of them, up to rounding in either precision.
ROUNDING = {"float64": 1e-9, "float32": 1e-4}
#: Relative rounding of a value, for checks that compare values.
PRECISION = {"float64": BASE_ROUNDING, "float32": 1e-6}


def from_jax(
    fun: Callable[..., Any],
    data: Any = (),
    params: Any = None,
    *,
    hessian: bool = True,
    dtype: str = "float64",
    device: str | None = None,
) -> JaxLoss:
    """f(w) = fun(params, *data), where w holds the parameters.

    fun:     returns one number, or one for each row, whose mean is taken; compiled by jax.jit, so it must be a pure
             function. If it is a mean over the rows that all arrays of the data have, f has minibatches
    data:    an array or a tuple of arrays; floats get the precision of dtype, integers (class labels) keep theirs
    params:  a tree of arrays with the shapes of the parameters; None when fun takes the vector w itself
    hessian: False for gradients only; local solvers then use L-BFGS
    dtype:   "float64", or "float32" for large networks: faster, and w stays float64
    device:  where it is computed, such as "gpu"; by default where JAX computes

    Methods assume that f is smooth: prefer tanh, softplus, GELU or SiLU to ReLU. A solve without w0 starts from params,
    since at w = 0 all hidden units of a network are equal and usually stay equal.

    Raises OptionError when jax is not installed, ProblemError when fun fails or does not return one real number.
    """
    return JaxLoss(fun, data, params, hessian, dtype, device)


def parameters_from_jax(params: Any) -> Vector:
    """w: the leaves of a tree of arrays as one vector. Raises ProblemError when a leaf does not hold floats."""
    jax = _jax()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    for leaf in leaves:
        if not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            raise ProblemError(
                f"a leaf of params holds {leaf.dtype} values, not floats; keep what is not trained out of params",
                code="FP-PROBLEM-170",
            )
    return np.concatenate([np.zeros(0), *(leaf.astype(np.float64).ravel() for leaf in leaves)])


def parameters_to_jax(w: ArrayLike, params: Any) -> Any:
    """A tree like params with the entries of w, in the precision of each leaf. ProblemError when w does not fit."""
    jax = _jax()
    vector = as_vector("w", w, parameters_from_jax(params).size, "the entries of params: are they what was trained?")
    leaves, form = jax.tree.flatten(params)
    new_leaves = []
    for piece, leaf in zip(_pieces(vector, tuple(map(np.shape, leaves))), leaves, strict=True):
        # Outside of 64-bit mode JAX takes float64 leaves as float32, as it did when they were created.
        new_leaves.append(jax.numpy.asarray(piece.astype(np.asarray(leaf).dtype)))
    return jax.tree.unflatten(form, new_leaves)


class JaxLoss(Smooth):
    """fun(params, *data) as a function of the parameters; made by `from_jax`."""

    def __init__(
        self, fun: Callable[..., Any], data: Any, params: Any, hessian: bool, dtype: str, device: str | None
    ) -> None:
        jax = _jax()
        if dtype not in ROUNDING:
            raise OptionError(f'dtype = {dtype!r}: choose "float64" or "float32"', code="FP-OPTION-882")
        arrays = data if isinstance(data, tuple) else (data,)
        self.loss = fun
        self.dtype = dtype
        self.data = tuple(_as_array(place, given, dtype) for place, given in enumerate(arrays))
        if device is not None:
            with self._precision():
                self.data = tuple(jax.device_put(part, jax.devices(device)[0]) for part in self.data)
        self.params = None
        dim = None
        if params is not None:
            self.params = jax.tree.map(np.asarray, params)
            self.start = parameters_from_jax(params)
            dim = self.start.size
        super().__init__(self._value_and_gradient, self._hessian if hessian else None, dim)
        self.rounding = PRECISION[dtype]
        if dim is not None:
            self._check(dim)
            self.rows = self._count_rows()

    def batch(self, indices: Indices) -> Function:
        if not self.rows:
            return super().batch(indices)  # raises
        part = copy.copy(self)
        part.data = tuple(array[indices] for array in self.data)
        part.rows = len(indices)
        part.fun = part._value_and_gradient
        part.hess = part._hessian if self.has_hessian else None
        return part

    def _count_rows(self) -> int:
        """The rows over which fun is a mean: then that of two parts is that of all; else 0."""
        rows = {len(array) if np.ndim(array) else 0 for array in self.data}
        if len(rows) != 1 or self.start is None:
            return 0
        (count,) = rows
        half = count // 2
        if not half:
            return 0
        pieces = (slice(None), slice(half), slice(half, None))
        try:
            whole, first, second = (self._value_of(tuple(array[piece] for array in self.data)) for piece in pieces)
        except (TypeError, ValueError, IndexError):  # it takes all rows, or none
            return 0
        parts = (half * first + (count - half) * second) / count
        return count if abs(parts - whole) <= ROUNDING[self.dtype] * max(abs(whole), 1e-3) else 0

    def _value_of(self, data: tuple[Any, ...]) -> float:
        """At the start, on these data."""
        assert self.start is not None
        with self._precision():
            return float(self._compiled()["value"](self.start.astype(self.dtype), *data))

    def value(self, w: Vector) -> float:
        return float(self._run("value", w))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self._run("product", w, v), dtype=np.float64)

    def defect(self) -> str | None:
        return first_of(non_finite_defect(f"data[{i}]", part) for i, part in enumerate(self.data))

    def _value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = self._run("first", w)
        return float(value), np.asarray(gradient, dtype=np.float64)

    def _hessian(self, w: Vector) -> Matrix:
        hessian = np.asarray(self._run("second", w), dtype=np.float64)
        return np.asarray(0.5 * (hessian + hessian.T))

    def _run(self, what: str, w: Vector, *more: Vector) -> Any:
        vectors = (vector.astype(self.dtype) for vector in (w, *more))
        with self._precision():
            return self._compiled()[what](*vectors, *self.data)

    def _precision(self) -> Any:
        return _double() if self.dtype == "float64" else nullcontext()

    def _compiled(self) -> dict[str, Any]:
        if self.params is None:
            return _compiled(self.loss, None, ())
        leaves, form = _jax().tree.flatten(self.params)
        return _compiled(self.loss, form, tuple(map(np.shape, leaves)))

    def _check(self, dim: int) -> None:
        """ProblemError unless tracing fun gives one real number."""
        try:
            with self._precision():
                found = _jax().eval_shape(self._compiled()["value"], np.zeros(dim, self.dtype), *self.data)
        except Exception as error:
            raise ProblemError(
                f"from_jax: fun failed with {type(error).__name__}: {error}; call fun(params, *data) to find out why",
                code="FP-PROBLEM-171",
            ) from error
        if getattr(found, "shape", None) != () or found.dtype != self.dtype:
            what = f"{found.dtype} of shape {found.shape}" if hasattr(found, "shape") else type(found).__name__
            raise ProblemError(
                f"from_jax: fun returned {what}; return one real number, such as losses.mean()",
                code="FP-PROBLEM-172",
            )


@lru_cache(maxsize=64)
def _compiled(fun: Callable[..., Any], form: Any, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """fun and its derivatives as functions of (w, *data), cached: owners with data of one shape share them."""
    jax = _jax()

    def value(w: Any, *data: Any) -> Any:
        found = fun(w if form is None else jax.tree.unflatten(form, _pieces(w, shapes)), *data)
        return found.mean() if getattr(found, "ndim", 0) == 1 else found

    def product(w: Any, v: Any, *data: Any) -> Any:
        return jax.jvp(lambda u: jax.grad(value)(u, *data), (w,), (v,))[1]

    parts = {"value": value, "first": jax.value_and_grad(value), "second": jax.hessian(value), "product": product}
    return {name: jax.jit(part) for name, part in parts.items()}


def _pieces(w: Any, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    """w cut into arrays of these shapes."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [w[end - math.prod(shape) : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)]


def _as_array(place: int, given: Any, dtype: str) -> Any:
    """One array of the data; floats in this precision."""
    array = as_numbers(f"from_jax: data[{place}]", given)
    if array.dtype.kind == "f":
        return array.astype(dtype)
    return array


def _double() -> Any:
    """Context manager: 64-bit mode, for this thread only."""
    jax = _jax()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return importlib.import_module("jax.experimental").enable_x64()  # before jax 0.8


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise OptionError(f"from_jax needs the package jax; {install('jax')}", code="FP-OPTION-100") from error
