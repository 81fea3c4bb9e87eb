"""A network trained on pooled rows under counted rates by Cooper (Gallego-Posada et al. 2025)."""

from __future__ import annotations

import copy
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


class PooledRates:
    """The rates of all owners as one vector, of any rows: every row counts in the lines of its owner alone."""

    def __init__(self, owners: Sequence[Bounded]) -> None:
        import torch

        lines = max(constant.size for _, _, _, constant in owners)
        first = np.cumsum([0, *(constant.size for _, _, _, constant in owners)])
        weights, places = [], []
        for (_, y, own, constant), begin in zip(owners, first, strict=False):
            missing = lines - constant.size
            own = own.reshape(constant.size, len(y), -1)
            weights.append(np.concatenate([own, np.zeros((missing, *own.shape[1:]))]))
            # Lines that this owner does not have weigh nothing, wherever they are added.
            of_owner = [*range(begin, begin + constant.size), *(missing * [begin])]
            places.append(np.tile(np.array(of_owner)[:, np.newaxis], len(y)))
        self.weights = torch.tensor(np.concatenate(weights, axis=1), dtype=torch.float32)
        self.places = torch.tensor(np.concatenate(places, axis=1))
        self.constant = torch.tensor(np.concatenate([constant for *_, constant in owners]), dtype=torch.float32)

    def __call__(self, decided: Any, chosen: Any) -> Any:
        """Of the chosen rows, scaled up to all."""
        parts = (self.weights[:, chosen] * decided).sum(dim=2) * (self.weights.shape[1] / len(chosen))
        return self.constant.index_add(0, self.places[:, chosen].flatten(), parts.flatten())


def train_pooled(module: Any, loss: Callable[[Any, Any], Any], owners: Sequence[Bounded], passes: int) -> Vector:
    """The parameters after so many passes.

    The proxy-Lagrangian of Cotter et al. (2019): SGD with momentum on the loss and the priced smoothed rates of a
    minibatch; multipliers follow the counted rates of all rows, once a pass.
    """
    import cooper
    import torch
    from cooper.constraints import ConstraintState

    model = copy.deepcopy(module).float()
    inputs = torch.tensor(np.concatenate([X for X, *_ in owners]), dtype=torch.float32)
    targets = torch.tensor(np.concatenate([y for _, y, *_ in owners]))
    rates = PooledRates(owners)
    everyone = torch.arange(len(targets))
    multiplier = cooper.multipliers.DenseMultiplier(num_constraints=len(rates.constant))
    bounds = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

    class Bounds(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]  # Cooper has no types
        def __init__(self) -> None:
            super().__init__()
            self.bounds = bounds

        def compute_cmp_state(self, chosen: Any) -> Any:
            outputs = model(inputs[chosen])
            smoothed = outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(dim=1)
            state = ConstraintState(rates(smoothed, chosen), contributes_to_dual_update=False)
            return cooper.CMPState(loss(outputs, targets[chosen]), {bounds: state})

        def count(self) -> Any:
            """The rates of all rows, for the multipliers alone."""
            with torch.no_grad():
                outputs = model(inputs)
            classes = outputs.shape[1]
            decided = (outputs > 0).float() if classes == 1 else torch.eye(classes)[outputs.argmax(1)]
            state = ConstraintState(rates(decided, everyone), contributes_to_primal_update=False)
            return cooper.CMPState(None, {bounds: state})

    problem = Bounds()
    descent = torch.optim.SGD(model.parameters(), STEP, MOMENTUM)
    ascent = torch.optim.SGD(multiplier.parameters(), ASCENT, maximize=True)
    optimizer = cooper.optim.SimultaneousOptimizer(problem, descent, ascent)
    draws = torch.Generator().manual_seed(0)
    batches = -(-len(targets) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(descent, lambda k: min(1.0, 2 * (1 - k / (passes * batches))))
    for _ in range(passes):
        for chosen in torch.split(torch.randperm(len(targets), generator=draws), BATCH):
            optimizer.zero_grad()
            problem.compute_cmp_state(chosen).compute_primal_lagrangian().backward()
            optimizer.primal_step()
            schedule.step()
        problem.count().compute_dual_lagrangian().backward()
        optimizer.dual_step()
    return np.asarray(parameters_from_torch(model), dtype=np.float64)
