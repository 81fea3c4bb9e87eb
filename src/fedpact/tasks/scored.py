"""Classifiers whose scores come from a linear model or from a network: what a task asks of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedpact.errors import OptionError
from fedpact.prox import Prox
from fedpact.tasks.base import key
from fedpact.tasks.model import Model, NetworkModel
from fedpact.tasks.scorers import ACTIVATIONS, LinearScorer, NetworkScorer, Scorer
from fedpact.tasks.tables import ClassTask, penalty
from fedpact.types import Matrix, Vector

LINEAR = "linear"
NETWORK = "mlp"


@dataclass(frozen=True, kw_only=True)
class ScoredTask(ClassTask):
    """A classifier of rows with named columns, whose scores are linear or a multilayer perceptron's."""

    model: Literal["linear", "mlp"] = key(
        LINEAR, "what scores the rows: a linear model, or a network (multilayer perceptron; needs fedpact[torch])",
        "text", choices=(LINEAR, NETWORK),
    )  # fmt: skip
    layers: tuple[int, ...] = key(
        (), "of a network: units of every hidden layer", "wholes", shown="none", example="[64, 32]"
    )
    activation: Literal["relu", "tanh"] = key(
        "relu", "of a network: of its hidden units", "text", choices=tuple(ACTIVATIONS)
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        super().__post_init__()
        self._check_scores()

    def _check_scores(self) -> None:
        if self.model not in (LINEAR, NETWORK):
            raise OptionError(
                f'model = {self.model!r} is unknown; choose "{LINEAR}" or "{NETWORK}"',
                code="FP-OPTION-900",
                key="model",
            )
        if not self.is_network:
            if self.layers:
                raise OptionError(
                    f'layers are those of a network; state model = "{NETWORK}", or leave them out',
                    code="FP-OPTION-901",
                    key="layers",
                )
            return
        if not self.layers or not all(isinstance(units, int) and units > 0 for units in self.layers):
            raise OptionError(
                f"layers = {list(self.layers)}: give the units of every hidden layer, such as [64, 32]",
                code="FP-OPTION-902",
                key="layers",
            )
        if self.activation not in ACTIVATIONS:
            raise OptionError(
                f"activation = {self.activation!r} is unknown; choose {', '.join(ACTIVATIONS)}",
                code="FP-OPTION-903",
                key="activation",
            )
        if not self.intercept or self.l1:
            raise OptionError(
                "a network has a bias in every unit, and its steps need a smooth penalty; leave intercept and l1 out",
                code="FP-OPTION-904",
                key="l1" if self.l1 else "intercept",
            )

    @property
    def is_network(self) -> bool:
        return self.model == NETWORK

    @property
    def scorer(self) -> Scorer:
        """What scores rows whose features are those of `design`."""
        return self.network or LinearScorer(len(self.classes))

    @property
    def network(self) -> NetworkScorer | None:
        """The network that scores rows; None: a linear model does."""
        if not self.is_network:
            return None
        return NetworkScorer(len(self.classes), len(self.encoding.names), self.layers, self.activation)

    def start(self, seed: int) -> Vector | None:
        if self.network is None:
            return None
        return self.network.start(seed)

    def design(self, X: Matrix) -> Matrix:
        if not self.is_network:
            return super().design(X)
        return X if self.scaling is None else self.scaling.apply(X)  # biases are the network's own

    @property
    def parameters(self) -> int:
        if self.network is None:
            return super().parameters
        return self.network.parameters

    def regularizer(self) -> Prox | None:
        if self.network is None:
            return super().regularizer()
        return penalty(0.0, self.regularization, self.network.penalized)

    def make_model(self, w: Vector) -> Model:
        if self.network is None:
            return super().make_model(w)
        layers = self.network.split(w)
        return NetworkModel.of_layers(layers, self.activation, self.encoding, self.classes, self.scaling)
