"""Losses of PyTorch modules as smooth functions of one vector. Torch is an extra, imported when it is asked for.

w lists the parameters that require a gradient, in the order of `module.named_parameters()`, each row by row. All other
parameters and all buffers stay as they are.
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
from fedpact.functions.arrays import first_of, non_finite
from fedpact.functions.base import Matrix, Vector
from fedpact.functions.callables import Smooth

#: Rows of the Hessian that are computed at once: each takes as much memory as a gradient.
AT_ONCE = 64


def from_torch(
    module: Any, loss: Callable[[Any, Any], Any], data: tuple[Any, Any], *, hessian: bool = True
) -> TorchLoss:
    """f(w) = loss(module(inputs), targets), where w holds the parameters of the module.

    module:  a torch.nn.Module; a copy in double precision on the CPU is used, and the module itself never changes
    loss:    loss(outputs, targets) -> a tensor with one number, such as torch.nn.functional.cross_entropy
    data:    (inputs, targets), tensors or arrays; real numbers become float64, whole numbers (classes) stay so
    hessian: False leaves gradients only, and then local solvers use L-BFGS

    Methods assume that f is smooth: prefer tanh, softplus, GELU or SiLU to ReLU. A solve without w0 starts from the
    parameters that the module has now: in w = 0 all hidden units are alike, and most networks never leave it.

    Raises OptionError when torch is not installed, ProblemError when the loss is not one number, is random (dropout) or
    changes buffers (batch normalisation): modules that do so in training must be in `eval()` mode.
    """
    return TorchLoss(module, loss, data, hessian)


def parameters_from_torch(module: Any) -> Vector:
    """w: the parameters of a module that require a gradient, as one vector."""
    return np.concatenate([np.zeros(0), *(p.detach().cpu().numpy().ravel() for p in _trained(module).values())])


def parameters_to_torch(w: ArrayLike, module: Any) -> None:
    """Write w into the parameters of the module, in the precision of each. Raises ProblemError when it does not fit."""
    torch, parameters = _torch(), _trained(module)
    vector = np.array(w, dtype=np.float64)
    dim = sum(p.numel() for p in parameters.values())
    if vector.shape != (dim,):
        raise ProblemError(f"w has shape {vector.shape}; the module takes ({dim},): is it the one that was trained?")
    with torch.no_grad():
        for parameter, part in zip(parameters.values(), _split(torch.from_numpy(vector), parameters), strict=True):
            parameter.copy_(part)


class TorchLoss(Smooth):
    """loss(module(inputs), targets) as a function of the parameters; made by `from_torch`."""

    def __init__(self, module: Any, loss: Callable[[Any, Any], Any], data: tuple[Any, Any], hessian: bool) -> None:
        torch = _torch()
        if not isinstance(module, torch.nn.Module):
            raise ProblemError(f"from_torch: expected a torch.nn.Module, got {type(module).__name__}")
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise ProblemError("from_torch: data must be the pair (inputs, targets), of tensors or arrays")
        self.module = copy.deepcopy(module).to("cpu", torch.float64)
        self.loss = loss
        self.inputs, self.targets = (_tensor(name, d) for name, d in zip(("inputs", "targets"), data, strict=True))
        self.parameters = _trained(self.module)
        if not self.parameters:
            raise ProblemError("from_torch: no parameter of the module requires a gradient; there is nothing to train")
        self._lock = Lock()
        self.start = parameters_from_torch(self.module)
        super().__init__(self._value_and_gradient, self._hessian if hessian else None, self.start.size)
        self._check(torch.from_numpy(self.start.copy()).requires_grad_())

    def value(self, w: Vector) -> float:
        with _torch().no_grad():
            return float(self._at(_torch().from_numpy(w.copy())))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        torch, (point, slope) = _torch(), self._slope(w)
        product = torch.autograd.grad(slope, point, torch.from_numpy(v.copy()))[0]
        return np.asarray(product.numpy())

    def defect(self) -> str | None:
        return first_of(non_finite(n, getattr(self, n).numpy()) for n in ("inputs", "targets"))

    def _at(self, w: Any) -> Any:
        named = dict(zip(self.parameters, _split(w, self.parameters), strict=True))
        # functional_call exchanges the parameters inside the module for a while: one thread at a time.
        with self._lock:
            outputs = _torch().func.functional_call(self.module, named, (self.inputs,))
        return self.loss(outputs, self.targets)

    def _value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        torch = _torch()
        point = torch.from_numpy(w).requires_grad_()
        value = self._at(point)
        return value.item(), torch.autograd.grad(value, point)[0].numpy()

    def _slope(self, w: Vector) -> tuple[Any, Any]:
        """w and the gradient there, ready to be differentiated again."""
        torch = _torch()
        point = torch.from_numpy(w.copy()).requires_grad_()
        slope = torch.autograd.grad(self._at(point), point, create_graph=True)[0]
        return point, slope + 0.0 * point  # a loss that is linear in w has a constant slope

    def _hessian(self, w: Vector) -> Matrix:
        torch, (point, slope) = _torch(), self._slope(w)
        rows = [
            torch.autograd.grad(slope, point, some, retain_graph=True, is_grads_batched=True)[0]
            for some in torch.eye(w.size, dtype=torch.float64).split(AT_ONCE)
        ]
        hessian = torch.cat(rows).numpy()
        return np.asarray(0.5 * (hessian + hessian.T))

    def _check(self, start: Any) -> None:
        """Evaluate once: is it one number of double precision, and a function of w and of nothing else?"""
        torch = _torch()
        seed, buffers = torch.get_rng_state(), [buffer.clone() for buffer in self.module.buffers()]
        try:
            value = self._at(start)
        except Exception as error:
            given = f"inputs: {self.inputs.dtype}, targets: {self.targets.dtype}"
            found = f"{type(error).__name__}: {error} ({given})"
            raise ProblemError(f"from_torch: loss(module(inputs), targets) failed with {found}") from error
        drawn = not torch.equal(seed, torch.get_rng_state())
        torch.set_rng_state(seed)
        if not isinstance(value, torch.Tensor) or value.ndim != 0:
            shape = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ProblemError(f"from_torch: the loss came back as {shape}; return one number, such as losses.mean()")
        if value.dtype != torch.float64 or not value.requires_grad:
            how = "does not depend on the parameters" if not value.requires_grad else f"came back as {value.dtype}"
            raise ProblemError(f"from_torch: the loss {how}; compute it from the outputs, in their precision")
        if drawn:
            raise ProblemError("from_torch: the module or the loss is random (dropout?); call module.eval() first")
        if not all(torch.equal(*pair) for pair in zip(buffers, self.module.buffers(), strict=True)):
            raise ProblemError("from_torch: the module changes its buffers (batch norm?); call module.eval() first")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


def _trained(module: Any) -> dict[str, Any]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _split(w: Any, parameters: dict[str, Any]) -> list[Any]:
    """w in pieces of the shapes of the parameters."""
    pieces = w.split([parameter.numel() for parameter in parameters.values()])
    return [piece.reshape(p.shape) for piece, p in zip(pieces, parameters.values(), strict=True)]


def _tensor(name: str, given: Any) -> Any:
    torch = _torch()
    array = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"from_torch: {name} holds {array.dtype} values, not real numbers; encode them as numbers")
    return torch.from_numpy(array.astype(np.float64) if array.dtype.kind == "f" else array.copy())


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise OptionError("from_torch needs the package torch: pip install 'fedpact[torch]'") from error
