"""Trained models: what they need of a table, their coefficients in the columns' own units, and their files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from fedpact.data.cells import Cells
from fedpact.data.encoding import Encoding, Scaling, categories_from
from fedpact.errors import FedpactError, OptionError
from fedpact.functions.torch_adapter import outputs_from_torch
from fedpact.tasks.base import WORD
from fedpact.tasks.network_file import NetworkFile
from fedpact.tasks.scorers import Layer, pass_through
from fedpact.types import Matrix, Vector

FORMAT = "fedpact-model-1"
#: Of a network, which older versions do not know.
NETWORK_FORMAT = "fedpact-network-1"
#: Of a network that a Python file builds.
MODULE_FORMAT = "fedpact-module-1"
#: That file, beside model.json.
MODULE_FILE = "network.py"
#: From the score of a regression to its prediction.
LINKS: dict[str, Callable[[Vector], Vector]] = {
    "identity": lambda score: score,
    "log": lambda score: np.asarray(np.exp(score)),
    "logit": lambda score: np.asarray(expit(score)),
}
#: Of a model whose coefficients are with the parties.
PARTIES = "fedpact-party-model-1"
ARRAYS = ("coefficients", "intercept", "mean")


@dataclass(frozen=True, eq=False)
class LinearModel:
    """scores = X @ coefficients.T + intercept, X as `encoding` has it.

    coefficients: (scores, columns)
    intercept:    (scores,)
    mean:         of every column of X over all owners, where absent values are allowed; else empty
    """

    encoding: Encoding
    coefficients: Matrix
    intercept: Vector
    mean: Vector

    def scores(self, X: Matrix) -> Matrix:
        """(rows, scores); NaN in X is an absent value."""
        return np.asarray(self.fill(X) @ self.coefficients.T + self.intercept)

    def fill(self, X: Matrix) -> Matrix:
        """X with means in the place of absent values."""
        if not self.mean.size:
            return X
        return np.where(np.isnan(X), self.mean, X)

    def matrix(self, cells: Cells) -> Matrix:
        """The features of a table, as `scores` takes them."""
        return self.encoding.matrix(cells)

    def about(self) -> dict[str, Any]:
        """All but the arrays, as model.json has it."""
        return {
            "format": FORMAT,
            "arrays": "model.npz",
            "columns": list(self.encoding.columns),
            "categories": {column: list(levels) for column, levels in self.encoding.categories.items()},
            **({"references": dict(self.encoding.references)} if self.encoding.references else {}),
            "missing": self.encoding.missing,
            "features": list(self.encoding.names),
        }

    def arrays(self) -> dict[str, Any]:
        """The arrays by name, as model.npz has them."""
        return {name: getattr(self, name) for name in ARRAYS}

    def save(self, folder: Path) -> None:
        """model.npz has the arrays, model.json all the rest; docs/reference/run-folder.md describes them."""
        (folder / "model.json").write_text(json.dumps(self.about(), indent=1) + "\n")
        with (folder / "model.npz").open("wb") as file:
            np.savez(file, **self.arrays())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote. Raises FedpactError when there is none, OptionError when it is of another kind."""
        found = load_model(folder)
        if not isinstance(found, cls):
            raise OptionError(
                f"{folder} holds a {type(found).__name__}, not a {cls.__name__}; read it with load_model",
                code="FP-OPTION-713",
            )
        return found


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities of class 1; slope > 0, so that their order stays.

    limit: scores beyond it, either way, count as this
    """

    slope: float
    intercept: float
    limit: float = np.inf

    def probabilities(self, score: ArrayLike) -> Vector:
        """The probability of class 1 for every score."""
        near = np.clip(np.asarray(score, dtype=np.float64), -self.limit, self.limit)
        return np.asarray(expit(self.slope * near + self.intercept))


@dataclass(frozen=True, eq=False)
class Model(LinearModel):
    """A classifier: the class with the largest score is predicted.

    coefficients:  (1, columns) for two classes, of the second one's score over the first's; else (classes, columns)
    log_odds:      whether scores are log-odds, as a loss makes them; constraints on decisions leave their order only
    calibration:   makes probabilities of the scores of two classes
    own_threshold: whether every owner decides at a threshold of its own, which it alone can find
    """

    classes: tuple[str, ...]
    log_odds: bool = True
    calibration: Calibration | None = None
    own_threshold: bool = False

    @classmethod
    def of(
        cls, w: Vector, encoding: Encoding, classes: tuple[str, ...], *, scaling: Scaling | None, intercept: bool
    ) -> Model:
        """The model that w is, freed of the scaling of the columns."""
        rows = 1 if len(classes) == 2 else len(classes)
        return cls(**arrays_of(w.reshape(rows, -1), encoding, scaling, intercept), classes=classes)

    @property
    def has_probabilities(self) -> bool:
        """Whether `probabilities` may be called so: the scores are calibrated, or log-odds."""
        return self.calibration is not None or self.log_odds

    def probabilities(self, X: Matrix) -> Matrix:
        """(rows, classes); only scores between 0 and 1 unless the model `has_probabilities`.

        A class may be predicted that is not the most probable one, where a constraint moved the threshold.
        """
        if self.calibration is not None:
            second = self.calibration.probabilities(self.scores(X)[:, 0])
            return np.column_stack([1 - second, second])
        score = self.scores_by_class(X)
        grown = np.exp(score - score.max(axis=1, keepdims=True))
        return np.asarray(grown / grown.sum(axis=1, keepdims=True))

    def scores_by_class(self, X: Matrix) -> Matrix:
        """(rows, classes); with two classes that of the first is 0."""
        score = self.scores(X)
        if score.shape[1] == 1:  # of the second class over the first
            score = np.column_stack([np.zeros(len(score)), score])
        return score

    def predict(self, X: Matrix, threshold: float = 0.0) -> NDArray[np.int64]:
        """The number of the class of every row. threshold: that of an owner's own, for the last class"""
        score = self.scores_by_class(X)
        score[:, -1] -= threshold
        return np.asarray(np.argmax(score, axis=1))

    def about(self) -> dict[str, Any]:
        found = {**super().about(), "classes": list(self.classes), "log_odds": self.log_odds}
        found["threshold"] = "own" if self.own_threshold else "common"
        if self.calibration is not None:
            found["calibration"] = asdict(self.calibration)
            found[WORD] = ["calibration"]  # from sums over the owners that they do not sign
        return found


@dataclass(frozen=True, eq=False)
class NetworkModel(Model):
    """A network: a linear classifier of its last hidden units, to which the coefficients belong, not to columns.

    hidden:     the hidden layers, the first one in the units of the columns
    activation: of their units
    """

    hidden: tuple[Layer, ...] = ()
    activation: str = "relu"

    @classmethod
    def of_layers(
        cls,
        layers: Sequence[Layer],
        activation: str,
        encoding: Encoding,
        classes: tuple[str, ...],
        scaling: Scaling | None,
    ) -> NetworkModel:
        """The network of these layers, the last of which gives the scores, freed of the scaling of the columns."""
        (weights, bias), *others, (coefficients, intercept) = layers
        first = arrays_of(np.column_stack([weights, bias]), encoding, scaling, intercept=True)
        return cls(
            encoding,
            coefficients,
            intercept,
            first["mean"],
            classes,
            hidden=((first["coefficients"], first["intercept"]), *others),
            activation=activation,
        )

    def scores(self, X: Matrix) -> Matrix:
        units = pass_through(self.fill(X), self.hidden, self.activation)
        return np.asarray(units @ self.coefficients.T + self.intercept)

    def about(self) -> dict[str, Any]:
        layers = [len(bias) for _, bias in self.hidden]
        return {**super().about(), "format": NETWORK_FORMAT, "layers": layers, "activation": self.activation}

    def arrays(self) -> dict[str, Any]:
        found = super().arrays()
        for number, (weights, bias) in enumerate(self.hidden, 1):
            found |= {f"weights {number}": weights, f"bias {number}": bias}
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class ModuleModel(Model):
    """A network that a Python file builds. To score rows is to run that file, a copy of which is saved with the model.

    coefficients: (1, parameters), in the order of the module
    intercept:    (scores,), added to what the module gives: zero unless a promise moved the threshold
    shift, scale: the module gets (X - shift) / scale
    """

    code: NetworkFile
    shift: Vector
    scale: Vector

    @classmethod
    def of_module(
        cls, w: Vector, code: NetworkFile, encoding: Encoding, classes: tuple[str, ...], scaling: Scaling | None
    ) -> ModuleModel:
        """The network with the parameters w. Nothing is run, and the file need not be there."""
        outputs = 1 if len(classes) == 2 else len(classes)
        scaling = scaling or no_scaling(encoding)
        return cls(
            encoding,
            w[None, :],
            np.zeros(outputs),
            means_of(encoding, scaling),
            classes,
            code=code,
            shift=np.array(scaling.shift),
            scale=np.array(scaling.scale),
        )

    def scores(self, X: Matrix) -> Matrix:
        module = self.code.build(X.shape[1], len(self.intercept), seed=0)
        features = (self.fill(X) - self.shift) / self.scale
        return outputs_from_torch(module, self.coefficients[0], features) + self.intercept

    def about(self) -> dict[str, Any]:
        found = {**super().about(), "format": MODULE_FORMAT}
        return {**found, "module": MODULE_FILE, "model": self.code.model, "digest": self.code.digest}

    def arrays(self) -> dict[str, Any]:
        return {**super().arrays(), "shift": self.shift, "scale": self.scale}

    def save(self, folder: Path) -> None:
        """The Python file too, as it is. Raises OptionError when it is not there any more, or another one."""
        (folder / MODULE_FILE).write_bytes(self.code.read())
        super().save(folder)


@dataclass(frozen=True, eq=False)
class RegressionModel(LinearModel):
    """Predicts a number: the score of a row, its exponential, or the probability of 1 whose log-odds it is.

    link:   "identity", "log" or "logit"; of Cox's model "log": the hazard relative to the owner's baseline
    offset: column whose values are added to the scores; empty: there is none
    """

    link: str = "identity"
    offset: str = ""

    @classmethod
    def of(
        cls,
        w: Vector,
        encoding: Encoding,
        *,
        scaling: Scaling | None,
        intercept: bool,
        link: str = "identity",
        offset: str = "",
    ) -> RegressionModel:
        """The model that w is, freed of the scaling of the columns."""
        return cls(**arrays_of(w[None, :], encoding, scaling, intercept), link=link, offset=offset)

    def predict(self, X: Matrix, offset: Vector | None = None) -> Vector:
        """The number of every row; `offset` has the values of its column, where the model has one."""
        score = self.scores(X)[:, 0]
        if offset is not None:
            score = score + offset
        return LINKS[self.link](score)

    def predict_table(self, cells: Cells) -> Vector:
        """The number of every row of a table, its offset included."""
        offset = cells.numbers(self.offset, feature=False) if self.offset else None
        return self.predict(self.matrix(cells), offset)

    def about(self) -> dict[str, Any]:
        return {**super().about(), "log": self.link == "log", "link": self.link, "offset": self.offset}


def arrays_of(table: Matrix, encoding: Encoding, scaling: Scaling | None, intercept: bool) -> dict[str, Any]:
    """The fields of a `LinearModel`, from its coefficients for scaled columns, the intercept's last."""
    width = len(encoding.names)
    scaling = scaling or no_scaling(encoding)
    own, offset = scaling.undo(table[:, :width])
    if intercept:
        offset = offset + table[:, width]
    return {
        "encoding": encoding,
        "coefficients": own,
        "intercept": offset,
        "mean": means_of(encoding, scaling),
    }


def no_scaling(encoding: Encoding) -> Scaling:
    """That of columns that stay as they are."""
    width = len(encoding.names)
    return Scaling.of(np.zeros(width), np.ones(width), np.zeros(width))


def means_of(encoding: Encoding, scaling: Scaling) -> Vector:
    """Of every column where absent values are allowed; else empty."""
    return np.array(scaling.mean) if encoding.missing == "mean" else np.zeros(0)


@dataclass(frozen=True)
class PartyModel:
    """The coordinator's part of a vertical model: the sum of the parties' scores and the intercept decides.

    classes:   none where a number is predicted
    intercept: one for each score of a person
    columns:   by party, the names of its columns; their coefficients are in the party's own `Piece`
    loss:      its name, as the job states it
    """

    classes: tuple[str, ...]
    intercept: tuple[float, ...]
    columns: dict[str, tuple[str, ...]]
    loss: str = "logistic"

    def add_intercept(self, scores: Vector) -> Vector:
        """Everyone's scores from the sums over the parties."""
        return np.asarray(scores + np.repeat(self.intercept, scores.size // len(self.intercept)))

    def predict(self, scores: Vector) -> NDArray[np.int64]:
        """The number of everyone's class. scores: of all parties together, with the intercept"""
        if len(self.intercept) > 1:
            return np.asarray(np.argmax(scores.reshape(len(self.intercept), -1), axis=0))
        return (scores > 0).astype(np.int64)

    def probabilities(self, scores: Vector) -> Matrix:
        """(people, classes)"""
        if len(self.intercept) > 1:
            return np.asarray(softmax(scores.reshape(len(self.intercept), -1), axis=0).T)
        second = expit(scores)
        return np.column_stack([1 - second, second])

    def numbers(self, scores: Vector) -> Vector:
        """What is predicted, where it is a number: the mean of counts, or the score itself."""
        return np.exp(scores) if self.loss == "poisson" else scores

    def save(self, folder: Path) -> None:
        """model.json; the parties write their pieces."""
        (folder / "model.json").write_text(json.dumps({"format": PARTIES, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def read(cls, about: dict[str, Any]) -> Self:
        columns = {party: tuple(names) for party, names in about["columns"].items()}
        intercept = tuple(np.atleast_1d(about["intercept"]).tolist())
        return cls(tuple(about["classes"]), intercept, columns, about.get("loss", "logistic"))


def load_model(folder: str | Path) -> Model | RegressionModel | PartyModel:
    """Read what `save` wrote, of any kind. Raises FedpactError when there is none, or it is damaged.

    Of a network that a Python file builds, the copy of that file in the folder is run as soon as rows are scored: have
    it read only folders that you trust as you trust code.
    """
    source = Path(folder)
    try:
        about = json.loads((source / "model.json").read_text())
        if about["format"] == PARTIES:
            return PartyModel.read(about)
        if about["format"] not in (FORMAT, NETWORK_FORMAT, MODULE_FORMAT):
            raise ValueError(f"it is not of format {FORMAT}, {NETWORK_FORMAT} or {MODULE_FORMAT}")
        categories = categories_from(about["categories"])
        encoding = Encoding(tuple(about["columns"]), categories, about["missing"], about.get("references", {}))
        with np.load(source / about["arrays"], allow_pickle=False) as file:
            arrays = {key: file[key] for key in ARRAYS}
            hidden = tuple(
                (file[f"weights {n}"], file[f"bias {n}"]) for n in range(1, 1 + len(about.get("layers", [])))
            )
            if about["format"] == MODULE_FORMAT:
                code = NetworkFile(about["model"], str(source / MODULE_FILE), about["digest"])
                scales = {key: file[key] for key in ("shift", "scale")}
                return ModuleModel(encoding, **arrays, **_read_decisions(about), code=code, **scales)
        if "log" in about:
            before = "log" if about["log"] else "identity"  # files of version 0.2.0 have no link
            return RegressionModel(encoding, **arrays, link=about.get("link", before), offset=about["offset"])
        if hidden:
            decisions = _read_decisions(about)
            return NetworkModel(encoding, **arrays, **decisions, hidden=hidden, activation=about["activation"])
        return Model(encoding, **arrays, **_read_decisions(about))
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, RecursionError) as error:
        words = f"{source} holds no readable model ({error}); run the job again"
        raise FedpactError(words, code="FP-003") from error


def _read_decisions(about: dict[str, Any]) -> dict[str, Any]:
    """What model.json says of a classifier; files of version 0.2.0 have the classes alone."""
    found: dict[str, Any] = {"classes": tuple(about["classes"])}
    found["log_odds"] = about.get("log_odds", True)
    found["own_threshold"] = about.get("threshold", "common") == "own"
    if "calibration" in about:
        found["calibration"] = Calibration(**about["calibration"])
    return found
