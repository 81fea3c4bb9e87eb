"""Losses of PyTorch modules as smooth functions of one vector. Torch is an extra, imported when it is used.

w lists the parameters that require a gradient, in the order of `module.named_parameters()`, each row by row. All other
parameters and all buffers are constants.

A loss that is a mean over rows has minibatches, and is evaluated in pieces whose sums are taken in float64, whatever
precision the module computes in.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError, install
from fedpact.functions.arrays import as_numbers, as_vector, first_of, non_finite_defect
from fedpact.functions.base import ROUNDING as BASE_ROUNDING
from fedpact.functions.base import Function, Indices
from fedpact.functions.callables import Smooth
from fedpact.functions.gauss_newton import gauss_newton_matrix, gauss_newton_product
from fedpact.types import Matrix, Vector

#: The Hessian without the curvature of the module.
GAUSS_NEWTON = "gauss-newton"
#: Parameters up to which the Hessian itself is taken by default.
FEW = 100
#: Rows of the Hessian that are computed together; each takes as much memory as a gradient.
ROWS_TOGETHER = 64
#: Rows of the data that pass through the module together.
PIECE = 8192
#: The mean over two parts of the rows is the mean over all of them, up to rounding in either precision.
ROUNDING = {"float64": 1e-9, "float32": 1e-4}
#: Relative rounding of a value, for checks that compare values.
PRECISION = {"float64": BASE_ROUNDING, "float32": 1e-6}


def from_torch(
    module: Any,
    loss: Callable[[Any, Any], Any],
    data: tuple[Any, Any],
    *,
    hessian: bool | str | None = None,
    dtype: str = "float64",
    device: str = "cpu",
) -> TorchLoss:
    """f(w) = loss(module(inputs), targets), where w holds the parameters of the module.

    module:  a torch.nn.Module; it is copied and never changed itself
    loss:    loss(outputs, targets) -> a tensor with one number, such as torch.nn.functional.cross_entropy, or with one
             for each row, whose mean is taken. If it is a mean over rows, f has minibatches
    data:    (inputs, targets), tensors or arrays; floats get the precision of dtype, whole numbers keep theirs
    hessian: True for second derivatives; False for gradients only: local solvers then use L-BFGS. "gauss-newton" for
             the Hessian without the curvature of the module: the price of a gradient for each output, where the
             Hessian costs one for each parameter; the loss must be a mean over rows. By default the Hessian up to 100
             parameters, and above them Gauss-Newton where the loss allows it
    dtype:   "float64", or "float32" for large networks: faster, and w and all sums over rows stay float64
    device:  where the module computes, such as "cuda"

    Methods assume that f is smooth: prefer tanh, softplus, GELU or SiLU to ReLU. A solve without w0 starts from the
    present parameters of the module, since at w = 0 all hidden units are equal and usually stay equal.

    Raises OptionError when torch is not installed, ProblemError when the loss is not one number, is random (dropout) or
    changes buffers (batch normalisation): put such a module into `eval()` mode first.
    """
    return TorchLoss(module, loss, data, hessian, dtype, device)


def parameters_from_torch(module: Any) -> Vector:
    """w: the parameters of a module that require a gradient, as one vector."""
    pieces = [parameter.detach().cpu().numpy().ravel() for parameter in _trainable(module).values()]
    return np.concatenate([np.zeros(0), *pieces])


def parameters_to_torch(w: ArrayLike, module: Any) -> None:
    """Write w into the parameters of the module, in the precision of each. Raises ProblemError when it does not fit."""
    torch = _torch()
    parameters = _trainable(module)
    dim = sum(parameter.numel() for parameter in parameters.values())
    vector = as_vector("w", w, dim, "the parameters of the module: is it the one that was trained?")
    with torch.no_grad():
        for parameter, part in zip(parameters.values(), _split(torch.from_numpy(vector), parameters), strict=True):
            parameter.copy_(part)


def outputs_from_torch(module: Any, w: ArrayLike, inputs: Matrix) -> Matrix:
    """What a module with the parameters w gives for every row, in float64; it is copied and never changed itself."""
    torch = _torch()
    precise = copy.deepcopy(module).double()
    parameters_to_torch(w, precise)
    with torch.no_grad():
        starts = range(0, max(len(inputs), 1), PIECE)
        pieces = [precise(torch.tensor(inputs[start : start + PIECE], dtype=torch.float64)) for start in starts]
    return np.concatenate([_as_array(piece) for piece in pieces])


class TorchLoss(Smooth):
    """loss(module(inputs), targets) as a function of the parameters; made by `from_torch`."""

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        data: tuple[Any, Any],
        hessian: bool | str | None,
        dtype: str,
        device: str,
    ) -> None:
        torch = _torch()
        if not isinstance(module, torch.nn.Module):
            raise ProblemError(
                f"from_torch: got {type(module).__name__}; give a torch.nn.Module", code="FP-PROBLEM-173"
            )
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise ProblemError(
                "from_torch: data is not a pair; give (inputs, targets), of tensors or arrays", code="FP-PROBLEM-174"
            )
        if dtype not in ROUNDING:
            raise OptionError(f'dtype = {dtype!r}: choose "float64" or "float32"', code="FP-OPTION-881")
        self.start = parameters_from_torch(module).astype(np.float64)
        self.dtype = dtype
        self.module = copy.deepcopy(module).to(device, getattr(torch, dtype))
        self.loss = loss
        self.inputs = _as_tensor("inputs", data[0], self.module, device)
        self.targets = _as_tensor("targets", data[1], self.module, device)
        self.parameters = _trainable(self.module)
        if not self.parameters:
            raise ProblemError(
                "from_torch: no parameter of the module requires a gradient; call module.requires_grad_()",
                code="FP-PROBLEM-175",
            )
        if hessian not in (None, True, False, GAUSS_NEWTON):
            raise OptionError(f'hessian = {hessian!r}: choose True, False or "{GAUSS_NEWTON}"', code="FP-OPTION-883")
        self.gauss_newton = hessian == GAUSS_NEWTON
        self._lock = Lock()
        none = hessian is False
        super().__init__(self._value_and_gradient, None if none else self._hessian, self.start.size)
        self._check(self._tensor(self.start).requires_grad_())
        self.rows = self._count_rows()
        self.rounding = PRECISION[dtype]
        if hessian is None:
            self.gauss_newton = self.rows > 0 and self.start.size > FEW
        if self.gauss_newton and not self.rows:
            raise ProblemError(
                "from_torch: the loss is no mean over rows, which Gauss-Newton needs; return the losses of the rows, "
                "or leave hessian out",
                code="FP-PROBLEM-182",
            )

    def value(self, w: Vector) -> float:
        with _torch().no_grad():
            point = self._tensor(w)
            return sum(share * float(self._loss_at(point, piece)) for share, piece in self._pieces())

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        torch = _torch()
        if self.gauss_newton:
            point, direction = self._tensor(w), self._tensor(v)
            found = gauss_newton_product(torch, self._outputs, self._mean_loss, point, direction)
            return _as_array(found)
        point, gradient = self._differentiable_gradient(w)
        product = torch.autograd.grad(gradient, point, self._tensor(v))[0]
        return _as_array(product)

    def batch(self, indices: Indices) -> Function:
        if not self.rows:
            return super().batch(indices)  # raises
        torch = _torch()
        chosen = torch.from_numpy(np.asarray(indices, dtype=np.int64)).to(self.inputs.device)
        part = copy.copy(self)
        part.inputs = self.inputs[chosen]
        part.targets = self.targets[chosen]
        part.rows = len(indices)
        part._rebind()
        return part

    def outputs(self, w: Vector) -> Matrix:
        """What the module gives for every row."""
        with _torch().no_grad():
            point = self._tensor(w)
            return np.concatenate([_as_array(self._outputs(point, self.inputs[piece])) for _, piece in self._pieces()])

    def with_targets(self, targets: Matrix) -> TorchLoss:
        """The same loss of the same rows, compared with other targets."""
        other = copy.copy(self)
        other.targets = _as_tensor("targets", targets, self.module, str(self.inputs.device))
        other._rebind()
        return other

    def _rebind(self) -> None:
        """The callables of `Smooth` are methods: of this copy."""
        self.fun = self._value_and_gradient
        self.hess = self._hessian if self.has_hessian else None

    def defect(self) -> str | None:
        inputs = non_finite_defect("inputs", self.inputs.cpu().numpy())
        targets = non_finite_defect("targets", self.targets.cpu().numpy())
        return first_of([inputs, targets])

    def _count_rows(self) -> int:
        """The rows over which the loss is a mean: then that of two parts is that of all; else 0."""
        rows = len(self.inputs) if self.inputs.ndim else 0
        if rows < 2 or not self.targets.ndim or len(self.targets) != rows:
            return 0
        half = rows // 2
        pieces = (slice(None), slice(half), slice(half, None))
        try:
            with _torch().no_grad():
                point = self._tensor(parameters_from_torch(self.module))
                whole, first, second = (float(self._loss_at(point, piece)) for piece in pieces)
        except (RuntimeError, ValueError, IndexError, TypeError):  # it takes all rows, or none
            return 0
        parts = (half * first + (rows - half) * second) / rows
        return rows if abs(parts - whole) <= ROUNDING[self.dtype] * max(abs(whole), 1e-3) else 0

    def _pieces(self) -> list[tuple[float, slice]]:
        """Rows that are evaluated together, with their share of all rows."""
        if self.rows <= PIECE:
            return [(1.0, slice(None))]
        starts = range(0, self.rows, PIECE)
        return [(min(PIECE, self.rows - start) / self.rows, slice(start, start + PIECE)) for start in starts]

    def _tensor(self, w: Vector) -> Any:
        parameter = next(iter(self.parameters.values()))
        return _torch().tensor(w, dtype=parameter.dtype, device=parameter.device)

    def _outputs(self, w: Any, inputs: Any = None) -> Any:
        """What the module gives for these inputs, by default for all rows, with the parameters in the tensor w."""
        if inputs is None:
            inputs = self.inputs
        named = dict(zip(self.parameters, _split(w, self.parameters), strict=True))
        # functional_call replaces the parameters inside the module while it runs: one thread at a time.
        with self._lock:
            return _torch().func.functional_call(self.module, named, (inputs,))

    def _loss_at(self, w: Any, piece: slice = slice(None)) -> Any:
        """The loss on these rows as a tensor, for the parameters in the tensor w."""
        return self._mean_loss(self._outputs(w, self.inputs[piece]), piece)

    def _mean_loss(self, outputs: Any, piece: slice = slice(None)) -> Any:
        found = self.loss(outputs, self.targets[piece])
        row_by_row = isinstance(found, _torch().Tensor) and found.ndim == 1
        return found.mean() if row_by_row else found

    def _value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        torch = _torch()
        point = self._tensor(w).requires_grad_()
        total, gradient = 0.0, np.zeros(w.size)
        for share, piece in self._pieces():
            value = self._loss_at(point, piece)
            total += share * value.item()
            gradient += share * _as_array(torch.autograd.grad(value, point)[0])
        return total, gradient

    def _differentiable_gradient(self, w: Vector) -> tuple[Any, Any]:
        """w and the gradient there as tensors, so that the gradient can be differentiated again."""
        torch = _torch()
        point = self._tensor(w).requires_grad_()
        gradient = torch.autograd.grad(self._loss_at(point), point, create_graph=True)[0]
        # The gradient of a loss that is linear in w does not depend on w; adding 0 w keeps it in the graph.
        return point, gradient + 0.0 * point

    def _hessian(self, w: Vector) -> Matrix:
        torch = _torch()
        if self.gauss_newton:
            point = self._tensor(w)
            found = gauss_newton_matrix(torch, self._outputs, self.loss, point, self.inputs, self.targets)
            return _as_array(found)
        point, gradient = self._differentiable_gradient(w)
        rows = [
            torch.autograd.grad(gradient, point, units, retain_graph=True, is_grads_batched=True)[0]
            for units in torch.eye(w.size, dtype=point.dtype, device=point.device).split(ROWS_TOGETHER)
        ]
        hessian = _as_array(torch.cat(rows))
        return np.asarray(0.5 * (hessian + hessian.T))

    def _check(self, start: Any) -> None:
        """Evaluate once; ProblemError unless the loss is one number, in this precision, that depends on w alone."""
        torch = _torch()
        seed = torch.get_rng_state()
        buffers = [buffer.clone() for buffer in self.module.buffers()]
        try:
            value = self._loss_at(start)
        except Exception as error:
            given = f"inputs: {self.inputs.dtype}, targets: {self.targets.dtype}"
            found = f"{type(error).__name__}: {error} ({given})"
            raise ProblemError(
                f"from_torch: loss(module(inputs), targets) failed with {found}; call it to find out why",
                code="FP-PROBLEM-176",
            ) from error
        drawn = not torch.equal(seed, torch.get_rng_state())
        torch.set_rng_state(seed)
        if not isinstance(value, torch.Tensor) or value.ndim != 0:
            shape = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ProblemError(
                f"from_torch: the loss returned {shape}; return one number, such as losses.mean()",
                code="FP-PROBLEM-177",
            )
        if not value.requires_grad:
            raise ProblemError(
                "from_torch: the loss does not depend on the parameters; compute it from the outputs",
                code="FP-PROBLEM-178",
            )
        if value.dtype != start.dtype:
            raise ProblemError(
                f"from_torch: the loss returned {value.dtype}; compute it in the precision of the outputs",
                code="FP-PROBLEM-179",
            )
        if drawn:
            raise ProblemError(
                "from_torch: the module or the loss is random (dropout?); call module.eval() first",
                code="FP-PROBLEM-180",
            )
        if not all(torch.equal(*pair) for pair in zip(buffers, self.module.buffers(), strict=True)):
            raise ProblemError(
                "from_torch: the module changes its buffers (batch norm?); call module.eval() first",
                code="FP-PROBLEM-181",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


def _trainable(module: Any) -> dict[str, Any]:
    """The parameters that require a gradient, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _split(w: Any, parameters: dict[str, Any]) -> list[Any]:
    """w cut into tensors of the shapes of the parameters."""
    pieces = w.split([parameter.numel() for parameter in parameters.values()])
    return [piece.reshape(p.shape) for piece, p in zip(pieces, parameters.values(), strict=True)]


def _as_tensor(name: str, given: Any, module: Any, device: str) -> Any:
    """A copy of inputs or targets as a tensor; floats in the precision of the module."""
    torch = _torch()
    if isinstance(given, torch.Tensor):
        given = given.detach().cpu().numpy()
    array = as_numbers(f"from_torch: {name}", given)
    if array.dtype.kind == "f":
        precision = next((p.dtype for p in module.parameters()), torch.float64)
        return torch.tensor(array, dtype=precision, device=device)
    return torch.tensor(array, device=device)


def _as_array(tensor: Any) -> Vector:
    """A tensor as float64 numbers."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def import_torch(what: str) -> Any:
    """The package torch, which `what` needs. OptionError where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise OptionError(f"{what} needs the package torch; {install('torch')}", code="FP-OPTION-101") from error


def _torch() -> Any:
    return import_torch("from_torch")
