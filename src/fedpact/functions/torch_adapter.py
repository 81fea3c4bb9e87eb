"""Losses of PyTorch modules as smooth functions of one vector. Torch is an extra, imported when it is used.

w lists the parameters that require a gradient, in the order of `module.named_parameters()`, each row by row. All other
parameters and all buffers are constants.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError
from fedpact.functions.arrays import as_numbers, as_vector, first_of, non_finite_defect
from fedpact.functions.callables import Smooth
from fedpact.types import Matrix, Vector

#: Rows of the Hessian that are computed together; each takes as much memory as a gradient.
ROWS_TOGETHER = 64


def from_torch(
    module: Any, loss: Callable[[Any, Any], Any], data: tuple[Any, Any], *, hessian: bool = True
) -> TorchLoss:
    """f(w) = loss(module(inputs), targets), where w holds the parameters of the module.

    module:  a torch.nn.Module; it is copied, in double precision on the CPU, and never changed itself
    loss:    loss(outputs, targets) -> a tensor with one number, such as torch.nn.functional.cross_entropy
    data:    (inputs, targets), tensors or arrays; floats become float64, integers (class labels) keep their type
    hessian: False for gradients only; local solvers then use L-BFGS

    Methods assume that f is smooth: prefer tanh, softplus, GELU or SiLU to ReLU. A solve without w0 starts from the
    present parameters of the module, since at w = 0 all hidden units are equal and usually stay equal.

    Raises OptionError when torch is not installed, ProblemError when the loss is not one number, is random (dropout) or
    changes buffers (batch normalisation): put such a module into `eval()` mode first.
    """
    return TorchLoss(module, loss, data, hessian)


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


class TorchLoss(Smooth):
    """loss(module(inputs), targets) as a function of the parameters; made by `from_torch`."""

    def __init__(self, module: Any, loss: Callable[[Any, Any], Any], data: tuple[Any, Any], hessian: bool) -> None:
        torch = _torch()
        if not isinstance(module, torch.nn.Module):
            raise ProblemError(
                f"from_torch: got {type(module).__name__}; give a torch.nn.Module", code="FP-PROBLEM-173"
            )
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise ProblemError(
                "from_torch: data is not a pair; give (inputs, targets), of tensors or arrays", code="FP-PROBLEM-174"
            )
        self.module = copy.deepcopy(module).to("cpu", torch.float64)
        self.loss = loss
        self.inputs = _as_tensor("inputs", data[0])
        self.targets = _as_tensor("targets", data[1])
        self.parameters = _trainable(self.module)
        if not self.parameters:
            raise ProblemError(
                "from_torch: no parameter of the module requires a gradient; call module.requires_grad_()",
                code="FP-PROBLEM-175",
            )
        self._lock = Lock()
        self.start = parameters_from_torch(self.module)
        super().__init__(self._value_and_gradient, self._hessian if hessian else None, self.start.size)
        self._check(torch.from_numpy(self.start.copy()).requires_grad_())

    def value(self, w: Vector) -> float:
        with _torch().no_grad():
            return float(self._loss_at(_torch().from_numpy(w.copy())))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        torch = _torch()
        point, gradient = self._differentiable_gradient(w)
        product = torch.autograd.grad(gradient, point, torch.from_numpy(v.copy()))[0]
        return np.asarray(product.numpy())

    def defect(self) -> str | None:
        inputs = non_finite_defect("inputs", self.inputs.numpy())
        targets = non_finite_defect("targets", self.targets.numpy())
        return first_of([inputs, targets])

    def _loss_at(self, w: Any) -> Any:
        """The loss as a tensor, for the parameters in the tensor w."""
        named = dict(zip(self.parameters, _split(w, self.parameters), strict=True))
        # functional_call replaces the parameters inside the module while it runs: one thread at a time.
        with self._lock:
            outputs = _torch().func.functional_call(self.module, named, (self.inputs,))
        return self.loss(outputs, self.targets)

    def _value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        torch = _torch()
        point = torch.from_numpy(w).requires_grad_()
        value = self._loss_at(point)
        return value.item(), torch.autograd.grad(value, point)[0].numpy()

    def _differentiable_gradient(self, w: Vector) -> tuple[Any, Any]:
        """w and the gradient there as tensors, so that the gradient can be differentiated again."""
        torch = _torch()
        point = torch.from_numpy(w.copy()).requires_grad_()
        gradient = torch.autograd.grad(self._loss_at(point), point, create_graph=True)[0]
        # The gradient of a loss that is linear in w does not depend on w; adding 0 w keeps it in the graph.
        return point, gradient + 0.0 * point

    def _hessian(self, w: Vector) -> Matrix:
        torch = _torch()
        point, gradient = self._differentiable_gradient(w)
        rows = [
            torch.autograd.grad(gradient, point, units, retain_graph=True, is_grads_batched=True)[0]
            for units in torch.eye(w.size, dtype=torch.float64).split(ROWS_TOGETHER)
        ]
        hessian = torch.cat(rows).numpy()
        return np.asarray(0.5 * (hessian + hessian.T))

    def _check(self, start: Any) -> None:
        """Evaluate once; ProblemError unless the loss is one number in double precision that depends on w alone."""
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
        if value.dtype != torch.float64:
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


def _as_tensor(name: str, given: Any) -> Any:
    """A copy of inputs or targets as a tensor; floats as float64."""
    torch = _torch()
    if isinstance(given, torch.Tensor):
        given = given.detach().cpu().numpy()
    array = as_numbers(f"from_torch: {name}", given)
    if array.dtype.kind == "f":
        return torch.from_numpy(array.astype(np.float64))
    return torch.from_numpy(array.copy())


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise OptionError(
            "from_torch needs the package torch; pip install 'fedpact[torch]'", code="FP-OPTION-101"
        ) from error
