"""Smoothed decisions of a PyTorch network, for `SmoothedRates` and `CountedRates`."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.base import Indices
from fedpact.functions.rates import SoftDecisions, Weights
from fedpact.functions.torch_adapter import from_torch
from fedpact.types import Vector


def decisions_from_torch(
    module: Any, inputs: ArrayLike, *, width: float = 1.0, dtype: str = "float64", device: str = "cpu"
) -> TorchDecisions:
    """What a network decides on the rows of `inputs`, for `SmoothedRates` and `CountedRates`.

    module: one output per row decides for class 1 where it is positive; several are the scores of as many classes
    width:  of the smoothing, in units of the outputs
    dtype, device: as for `from_torch`, which says what is raised
    """
    return TorchDecisions(module, inputs, width, dtype, device)


@dataclass(frozen=True)
class Weigh:
    """The loss whose mean over rows is that of sum_k weights_k decided_k."""

    width: float

    def __call__(self, outputs: Any, weights: Any) -> Any:
        scores = outputs.reshape(len(outputs), -1) / self.width
        decided = scores.sigmoid() if scores.shape[1] == 1 else scores.softmax(dim=1)
        return (weights.reshape(len(outputs), -1) * decided).sum(dim=1)


class TorchDecisions(SoftDecisions):
    """The smoothed decisions of a network; made by `decisions_from_torch`."""

    has_hessian = False

    def __init__(self, module: Any, inputs: ArrayLike, width: float, dtype: str, device: str) -> None:
        if not (np.isfinite(width) and width > 0):
            raise ProblemError(f"decisions_from_torch: width = {width}; give a positive number", code="FP-PROBLEM-263")
        rows = len(np.asarray(inputs))
        self.network = from_torch(
            module, Weigh(float(width)), (inputs, np.ones((rows, 1))), hessian=False, dtype=dtype, device=device
        )
        start = self.network.start
        assert start is not None  # the parameters of the module
        outputs = self.network.outputs(start)
        if outputs.ndim > 2 or len(outputs) != rows:
            raise ProblemError(
                f"decisions_from_torch: outputs of shape {outputs.shape} for {rows} rows; give scores of shape "
                "(rows,), (rows, 1) or (rows, classes)",
                code="FP-PROBLEM-264",
            )
        self.rows = rows
        self.width = float(width)
        self.classes = max(outputs[0].size, 2)
        self.dim = start.size
        self.start = start
        self.rounding = self.network.rounding

    def gradient(self, w: Vector, decided: Weights | None, weights: Weights) -> Vector:
        """By automatic differentiation, in pieces of the rows."""
        return self.network.with_targets(self.rows * weights).gradient(w)

    def batch(self, indices: Indices) -> Self:
        chosen = copy(self)
        chosen.network = self.network.batch(indices)  # type: ignore[assignment]
        chosen.rows = len(indices)
        return chosen

    def defect(self) -> str | None:
        return self.network.defect()

    def _scores(self, w: Vector) -> Weights:
        outputs = self.network.outputs(w)
        if self.classes == 2:
            return np.asarray(outputs.reshape(self.rows))
        return outputs
