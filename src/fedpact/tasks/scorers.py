"""Score models: from the features of rows and a parameter vector w to a score for every class.

A task asks its scorer for scores, losses and smoothed decisions, and does not know whether they come from a linear
model or from a network. Networks are trained by PyTorch, an extra. Their scores, and so counts, thresholds and
predictions, are in float64: of a perceptron by plain NumPy, of a module of the user's by PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.functions import Function, decisions_from_torch, from_torch, parameters_to_torch
from fedpact.functions.rates import SoftDecisions
from fedpact.functions.torch_adapter import import_torch, outputs_from_torch, parameters_from_torch
from fedpact.tasks import regression
from fedpact.tasks.checks import Labels
from fedpact.tasks.network_file import NetworkFile
from fedpact.types import Matrix, Vector

#: Of hidden layers: the function, and the class of torch.nn that is the same.
ACTIVATIONS: dict[str, tuple[Callable[[Matrix], Matrix], str]] = {
    "relu": (lambda x: np.maximum(x, 0.0), "ReLU"),
    "tanh": (np.tanh, "Tanh"),
}
#: In which networks are trained: half the time of float64. What they decide in the end is counted in float64.
PRECISION = "float32"
#: A layer: its weights, (units, inputs), and its biases.
Layer = tuple[Matrix, Vector]


@dataclass(frozen=True)
class Scorer(ABC):
    """How a model scores rows. classes: how many there are"""

    classes: int

    @property
    def outputs(self) -> int:
        """Scores that w gives a row: one, of the second class over the first, or one for each class."""
        return 1 if self.classes == 2 else self.classes

    @abstractmethod
    def scores(self, w: Vector, X: Matrix) -> Matrix:
        """(rows, classes); with two classes those of the first are zero."""

    @abstractmethod
    def mean_loss(
        self, X: Matrix, y: Labels, weight: Vector | None = None, rows: NDArray[np.bool_] | None = None
    ) -> Function:
        """Mean logistic loss for two classes, mean cross entropy for more, as `regression.mean_loss` has it."""

    @abstractmethod
    def decisions(self, X: Matrix, width: float) -> SoftDecisions:
        """The decisions on the rows of X, smoothed by this width."""


@dataclass(frozen=True)
class LinearScorer(Scorer):
    """Scores X @ w, X with a column of ones for the intercept."""

    def scores(self, w: Vector, X: Matrix) -> Matrix:
        return regression.scores(w, X, self.classes)

    def mean_loss(
        self, X: Matrix, y: Labels, weight: Vector | None = None, rows: NDArray[np.bool_] | None = None
    ) -> Function:
        return regression.mean_loss(X, y, self.classes, weight, rows)

    def decisions(self, X: Matrix, width: float) -> SoftDecisions:
        return SoftDecisions(X, width, self.classes)


@dataclass(frozen=True)
class NetworkScorer(Scorer):
    """Scores of a network; w lists its parameters as PyTorch does.

    columns: features of a row
    """

    columns: int

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Numbers in w."""

    @property
    @abstractmethod
    def penalized(self) -> float | Vector:
        """1 where a parameter is weighed by the penalty, 0 where it is free."""

    @abstractmethod
    def start(self, seed: int) -> Vector:
        """Where training starts. At zero all hidden units would be alike, and stay so."""

    @abstractmethod
    def score(self, w: Vector, X: Matrix) -> Matrix:
        """What the network gives the rows, (rows, outputs), in float64."""

    @abstractmethod
    def module(self) -> Any:
        """The network in PyTorch, the same at every owner; a solve starts where the task says.

        OptionError where PyTorch is not installed.
        """

    def scores(self, w: Vector, X: Matrix) -> Matrix:
        score = self.score(w, X)
        if self.classes == 2:
            return np.column_stack([np.zeros(len(score)), score])
        return score

    def mean_loss(
        self, X: Matrix, y: Labels, weight: Vector | None = None, rows: NDArray[np.bool_] | None = None
    ) -> Function:
        parts = np.ones(len(y)) if weight is None else weight / np.mean(weight)
        targets = np.column_stack([y, parts])
        return from_torch(self.module(), weighted_cross_entropy, (X, targets), hessian=False, dtype=PRECISION)

    def decisions(self, X: Matrix, width: float) -> SoftDecisions:
        return decisions_from_torch(self.module(), X, width=width, dtype=PRECISION)


@dataclass(frozen=True)
class PerceptronScorer(NetworkScorer):
    """Scores of a multilayer perceptron.

    w lists the layers one after the other: the weights row by row, then the biases.

    layers:     units of every hidden layer
    activation: of the hidden units, in `ACTIVATIONS`
    """

    layers: tuple[int, ...]
    activation: str

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """(inputs, units) of every layer."""
        return list(pairwise((self.columns, *self.layers, self.outputs)))

    @property
    def parameters(self) -> int:
        return sum((inputs + 1) * units for inputs, units in self.sizes)

    @property
    def penalized(self) -> Vector:
        """1 for weights, 0 for biases."""
        parts = [np.repeat([1.0, 0.0], [inputs * units, units]) for inputs, units in self.sizes]
        return np.concatenate(parts)

    def start(self, seed: int) -> Vector:
        """Uniform in +-1 / sqrt(inputs of the layer), as in PyTorch."""
        draw = np.random.default_rng(seed)
        parts = [draw.uniform(-1, 1, (inputs + 1) * units) / np.sqrt(inputs) for inputs, units in self.sizes]
        return np.concatenate(parts)

    def split(self, w: Vector) -> list[Layer]:
        """The layers of w."""
        found = []
        begin = 0
        for inputs, units in self.sizes:
            middle = begin + inputs * units
            end = middle + units
            found.append((w[begin:middle].reshape(units, inputs), w[middle:end]))
            begin = end
        return found

    def score(self, w: Vector, X: Matrix) -> Matrix:
        *hidden, (weights, bias) = self.split(w)
        return np.asarray(pass_through(X, hidden, self.activation) @ weights.T + bias)

    def module(self) -> Any:
        nn = import_torch("a network").nn
        activation = getattr(nn, ACTIVATIONS[self.activation][1])
        parts: list[Any] = []
        for inputs, units in self.sizes:
            parts += [nn.Linear(inputs, units), activation()]
        module = nn.Sequential(*parts[:-1])
        parameters_to_torch(self.start(0), module)
        return module


@dataclass(frozen=True)
class ModuleScorer(NetworkScorer):
    """Scores of a module that a Python file builds."""

    code: NetworkFile

    @property
    def parameters(self) -> int:
        return int(parameters_from_torch(self.module()).size)

    @property
    def penalized(self) -> float:
        """All of them, as PyTorch's weight_decay has it: who checks a certificate need not run the file."""
        return 1.0

    def start(self, seed: int) -> Vector:
        """As the file draws its parameters, from this seed."""
        return parameters_from_torch(self.module(seed)).astype(np.float64)

    def score(self, w: Vector, X: Matrix) -> Matrix:
        return outputs_from_torch(self.module(), w, X)

    def module(self, seed: int = 0) -> Any:
        return self.code.build(self.columns, self.outputs, seed)


def pass_through(X: Matrix, hidden: Sequence[Layer], activation: str) -> Matrix:
    """What the last hidden units make of the rows."""
    activate, _ = ACTIVATIONS[activation]
    for weights, bias in hidden:
        X = activate(X @ weights.T + bias)
    return X


def weighted_cross_entropy(outputs: Any, targets: Any) -> Any:
    """The loss of every row, in PyTorch. targets: the number of its class, and its weight"""
    label = targets[:, 0].long()
    weight = targets[:, 1]
    if outputs.shape[1] == 1:
        score = outputs[:, 0]
        return weight * (score.logaddexp(score.new_zeros(())) - label * score)
    return weight * (outputs.logsumexp(dim=1) - outputs.gather(1, label[:, None])[:, 0])
