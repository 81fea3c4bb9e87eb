"""Classifiers whose scores come from a linear model or from a network: what a task asks of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from fedpact.errors import OptionError
from fedpact.prox import Prox
from fedpact.tasks.base import key
from fedpact.tasks.model import Model, ModuleModel, NetworkModel
from fedpact.tasks.network_file import NetworkFile, names_file
from fedpact.tasks.scorers import (
    ACTIVATIONS,
    LinearScorer,
    ModuleScorer,
    NetworkScorer,
    PerceptronScorer,
    Scorer,
)
from fedpact.tasks.tables import ClassTask, penalty
from fedpact.types import Matrix, Vector

LINEAR = "linear"
NETWORK = "mlp"


@dataclass(frozen=True, kw_only=True)
class ScoredTask(ClassTask):
    """A classifier of rows with named columns, whose scores are linear or a network's.

    code: the Python file of `model`, once it is found; None: there is none, or it is where `model` says
    """

    model: str = key(
        LINEAR, 'what scores the rows: "linear", or a network (needs the extra torch): "mlp", a multilayer perceptron, '
        'or "network.py:build", a function of a Python file', "text",
    )  # fmt: skip
    layers: tuple[int, ...] = key(
        (), 'of "mlp": units of every hidden layer', "wholes", shown="none", example="[64, 32]"
    )
    activation: Literal["relu", "tanh"] = key(
        "relu", 'of "mlp": of its hidden units', "text", choices=tuple(ACTIVATIONS)
    )
    code: NetworkFile | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if isinstance(self.code, Mapping):
            object.__setattr__(self, "code", NetworkFile(**self.code))
        super().__post_init__()
        self._check_scores()

    def _check_scores(self) -> None:
        if self.model not in (LINEAR, NETWORK) and not self.has_code:
            raise OptionError(
                f'model = {self.model!r} is unknown; choose "{LINEAR}", "{NETWORK}", or a Python file and its '
                'function, "network.py:build"',
                code="FP-OPTION-900",
                key="model",
            )
        if self.model == NETWORK:
            self._check_layers()
        elif self.layers:
            raise OptionError(
                f'layers are those of a perceptron; state model = "{NETWORK}", or leave them out',
                code="FP-OPTION-901",
                key="layers",
            )
        if self.is_network and (not self.intercept or self.l1):
            raise OptionError(
                "a network has a bias in every unit, and its steps need a smooth penalty; leave intercept and l1 out",
                code="FP-OPTION-904",
                key="l1" if self.l1 else "intercept",
            )

    def _check_layers(self) -> None:
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

    @property
    def is_network(self) -> bool:
        return self.model != LINEAR

    @property
    def has_code(self) -> bool:
        """Whether a Python file builds the model."""
        return names_file(self.model)

    @property
    def scorer(self) -> Scorer:
        """What scores rows whose features are those of `design`."""
        return self.network or LinearScorer(len(self.classes))

    @property
    def network(self) -> NetworkScorer | None:
        """The network that scores rows; None: a linear model does."""
        if not self.is_network:
            return None
        columns = len(self.encoding.names)
        if self.model == NETWORK:
            return PerceptronScorer(len(self.classes), columns, self.layers, self.activation)
        return ModuleScorer(len(self.classes), columns, self.find_code())

    def find_code(self) -> NetworkFile:
        """The Python file of the model. Raises OptionError when it is not there."""
        if self.code is None or self.code.model != self.model:
            return NetworkFile.find(self.model)
        return self.code

    def with_code_at(self, path: str | Path) -> Self:
        """The same task, where the Python file of its model is there. OptionError when its digest is not known."""
        if self.code is None:  # whoever poses a task finds its file
            raise OptionError(
                f"model = {self.model!r} comes without the digest of its file; run the job again",
                code="FP-OPTION-918",
                key="model",
            )
        return replace(self, code=NetworkFile(self.model, str(path), self.code.digest))

    def among(self, names: Sequence[str]) -> Self:
        """Before anybody is asked: a file that builds no network is an error here."""
        found = super().among(names)
        if not self.has_code:
            return found
        found = replace(found, code=self.find_code())
        assert found.network is not None
        found.network.start(0)
        return found

    def identity(self) -> dict[str, Any]:
        """A Python file counts by its digest, wherever it is."""
        found = super().identity()
        if self.code is not None:
            found["code"] = self.code.digest
        return found

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
        network = self.network
        if isinstance(network, PerceptronScorer):
            layers = network.split(w)
            return NetworkModel.of_layers(layers, self.activation, self.encoding, self.classes, self.scaling)
        if isinstance(network, ModuleScorer):
            return ModuleModel.of_module(w, network.code, self.encoding, self.classes, self.scaling)
        return super().make_model(w)
