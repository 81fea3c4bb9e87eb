"""A trained linear classifier: what it needs of a table, its coefficients in the columns' own units, and its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedpact.data.cells import Cells
from fedpact.data.encoding import Encoding, Scaling, categories_from
from fedpact.errors import FedpactError
from fedpact.types import Matrix, Vector

FORMAT = "fedpact-model-1"


@dataclass(frozen=True, eq=False)
class Model:
    """score = X @ coefficients.T + intercept, X as `encoding` has it; the class with the largest score is predicted.

    coefficients: (1, columns) for two classes, of the second one's score over the first's; else (classes, columns)
    intercept:    (1,) or (classes,)
    mean:         of every column of X over all owners, where absent values are allowed; else empty
    """

    encoding: Encoding
    classes: tuple[str, ...]
    coefficients: Matrix
    intercept: Vector
    mean: Vector

    @classmethod
    def of(
        cls, w: Vector, encoding: Encoding, classes: tuple[str, ...], *, scaling: Scaling | None, intercept: bool
    ) -> Model:
        """The model that w is, freed of the scaling of the columns."""
        rows = 1 if len(classes) == 2 else len(classes)
        table = w.reshape(rows, -1)
        width = len(encoding.names)
        if scaling is None:
            scaling = Scaling.of(np.zeros(width), np.ones(width), np.zeros(width))
        own, offset = scaling.undo(table[:, :width])
        if intercept:
            offset = offset + table[:, width]
        mean = np.array(scaling.mean) if encoding.missing == "mean" else np.zeros(0)
        return cls(encoding, classes, own, offset, mean)

    def scores(self, X: Matrix) -> Matrix:
        """(rows, 1) or (rows, classes); NaN in X is an absent value."""
        filled = X
        if self.mean.size:
            filled = np.where(np.isnan(X), self.mean, X)
        return np.asarray(filled @ self.coefficients.T + self.intercept)

    def probabilities(self, X: Matrix) -> Matrix:
        """(rows, classes)"""
        score = self.scores(X)
        if score.shape[1] == 1:  # of the second class over the first
            score = np.column_stack([np.zeros(len(score)), score])
        grown = np.exp(score - score.max(axis=1, keepdims=True))
        return np.asarray(grown / grown.sum(axis=1, keepdims=True))

    def predict(self, X: Matrix) -> NDArray[np.int64]:
        """The number of the class of every row."""
        return np.asarray(np.argmax(self.probabilities(X), axis=1))

    def matrix(self, cells: Cells) -> Matrix:
        """The features of a table, as `scores` takes them."""
        return self.encoding.matrix(cells)

    def save(self, folder: Path) -> None:
        """model.npz has the arrays, model.json all the rest; docs/reference/run-folder.md describes them."""
        about: dict[str, Any] = {
            "format": FORMAT,
            "arrays": "model.npz",
            "classes": list(self.classes),
            "columns": list(self.encoding.columns),
            "categories": {column: list(levels) for column, levels in self.encoding.categories.items()},
            "missing": self.encoding.missing,
            "features": list(self.encoding.names),
        }
        (folder / "model.json").write_text(json.dumps(about, indent=1) + "\n")
        with (folder / "model.npz").open("wb") as file:
            np.savez(file, coefficients=self.coefficients, intercept=self.intercept, mean=self.mean)

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Read what `save` wrote. Raises FedpactError when there is none, or it is damaged."""
        source = Path(folder)
        try:
            about = json.loads((source / "model.json").read_text())
            if about["format"] != FORMAT:
                raise ValueError(f"it is not of format {FORMAT}")
            encoding = Encoding(tuple(about["columns"]), categories_from(about["categories"]), about["missing"])
            with np.load(source / about["arrays"], allow_pickle=False) as file:
                arrays = {key: file[key] for key in ("coefficients", "intercept", "mean")}
            return cls(encoding, tuple(about["classes"]), **arrays)
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            words = f"{source} holds no readable model ({error}); run the job again"
            raise FedpactError(words, code="FP-003") from error
