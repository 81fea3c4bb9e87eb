"""A network trained on pooled rows under counted rates: gradient descent on the Lagrangian, ascent of multipliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.functions import parameters_from_torch
from fedpact.types import Matrix, Vector

#: Rows, labels, weights of decisions and constants of one owner.
Bounded = tuple[Matrix, NDArray[np.int64], NDArray[np.float64], Vector]

BATCH = 64
STEP = 0.02
MOMENTUM = 0.9
#: Of the multipliers, once a pass over the rows.
ASCENT = 0.01


def train_pooled(module: Any, loss: Callable[[Any, Any], Any], owners: Sequence[Bounded], passes: int) -> Vector:
    """The parameters after so many passes.

    The proxy-Lagrangian of Cotter et al. (2019), as Cooper computes it: SGD with momentum on loss + sum_j mu_j
    smoothed_j, where mu_j <- max(mu_j + ASCENT counted_j, 0) after every pass.
    """
    import copy

    import torch

    model = copy.deepcopy(module).float()
    inputs = torch.tensor(np.concatenate([X for X, _, _, _ in owners]), dtype=torch.float32)
    targets = torch.tensor(np.concatenate([y for _, y, _, _ in owners]))
    owned = np.split(np.arange(len(targets)), np.cumsum([len(y) for _, y, _, _ in owners])[:-1])
    prices = [np.zeros(constant.size) for _, _, _, constant in owners]
    optimizer = torch.optim.SGD(model.parameters(), STEP, MOMENTUM)
    draws = torch.Generator().manual_seed(0)
    batches = -(-len(targets) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, 2 * (1 - k / (passes * batches))))
    for _ in range(passes):
        row_weights = np.concatenate([np.tensordot(p, o[2], axes=1) for p, o in zip(prices, owners, strict=True)])
        weights = torch.tensor(row_weights, dtype=torch.float32).reshape(len(targets), -1)
        order = torch.randperm(len(targets), generator=draws)
        for first in range(0, len(targets), BATCH):
            chosen = order[first : first + BATCH]
            outputs = model(inputs[chosen])
            smoothed = outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(dim=1)
            priced = (weights[chosen] * smoothed).sum() * (len(targets) / len(chosen))
            optimizer.zero_grad()
            (loss(outputs, targets[chosen]) + priced).backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            outputs = model(inputs)
        decided = (outputs > 0).double() if outputs.shape[1] == 1 else torch.eye(outputs.shape[1])[outputs.argmax(1)]
        decisions = decided.numpy().squeeze()
        for number, (rows, (_, _, lines, constant)) in enumerate(zip(owned, owners, strict=True)):
            counted = np.sum(lines * decisions[rows], axis=tuple(range(1, lines.ndim))) + constant
            prices[number] = np.maximum(prices[number] + ASCENT * counted, 0.0)
    return np.asarray(parameters_from_torch(model), dtype=np.float64)
