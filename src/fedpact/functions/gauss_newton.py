"""The Gauss-Newton matrix of a network's loss: J' L J, J the Jacobian of the outputs, L the loss's Hessian in them.

It is the Hessian without the curvature of the network itself: positive semidefinite where the loss is convex in the
outputs, as cross entropy is, and near the Hessian where the rows are fitted well. All rows of J cost about as much as
one gradient for each output, where the Hessian costs one for each parameter; and kinks, such as those of ReLU, have no
part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Numbers of J that are held at once.
TOGETHER = 4_000_000


def gauss_newton_matrix(
    torch: Any,
    outputs: Callable[[Any, Any], Any],
    loss: Callable[[Any, Any], Any],
    w: Any,
    inputs: Any,
    targets: Any,
) -> Any:
    """J' L J at w, a tensor.

    outputs: (w, inputs) -> one output or more for each row
    loss:    (outputs, targets) -> a mean over rows, or one number for each
    """
    total = torch.zeros(w.numel(), w.numel(), dtype=w.dtype, device=w.device)
    z = outputs(w, inputs).detach()
    rows = len(inputs)
    width = z[0].numel()
    curvature = _curvature_of_loss(torch, loss, z, targets).reshape(rows, width, width)

    def of_row(point: Any, row: Any) -> Any:
        return outputs(point, row.unsqueeze(0)).reshape(-1)

    jacobian = torch.func.vmap(torch.func.jacrev(of_row), in_dims=(None, 0))
    size = max(TOGETHER // (width * w.numel()), 1)
    for first in range(0, rows, size):
        piece = slice(first, first + size)
        J = jacobian(w, inputs[piece])
        weighted = torch.einsum("rkl,rld->rkd", curvature[piece], J)
        total += weighted.reshape(-1, w.numel()).T @ J.reshape(-1, w.numel())
    return total


def gauss_newton_product(torch: Any, outputs: Callable[[Any], Any], loss: Callable[[Any], Any], w: Any, v: Any) -> Any:
    """J' L J v, by one derivative along v and one back; outputs and loss: with their data."""
    z, along = torch.func.jvp(outputs, (w,), (v,))
    bent = torch.func.jvp(torch.func.grad(loss), (z,), (along,))[1]
    return torch.func.vjp(outputs, w)[1](bent)[0]


def _curvature_of_loss(torch: Any, loss: Callable[[Any, Any], Any], z: Any, targets: Any) -> Any:
    """The Hessian of the loss in the outputs of every row; rows do not meet in a mean, so one product a column does."""
    point = z.clone().requires_grad_()
    value = loss(point, targets)
    if value.ndim == 1:
        value = value.mean()
    slope = torch.autograd.grad(value, point, create_graph=True)[0].reshape(len(z), -1)
    columns = [
        torch.autograd.grad(slope[:, column].sum(), point, retain_graph=True)[0].reshape(len(z), -1)
        for column in range(slope.shape[1])
    ]
    return torch.stack(columns, dim=-1)
