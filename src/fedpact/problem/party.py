"""A party of a vertical problem: the columns that it holds, and the piece of the model that it keeps.

The coordinator's half of a method needs a party's name, its width and whether h_k is quadratic (`PartyLike`), and never
its columns: a party that holds them elsewhere is a `DistantParty` there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError, FedpactError, ProblemError
from fedpact.prox import Prox, SquaredL2, check_prox
from fedpact.types import Matrix, Vector, to_real

#: Written into every file, so that another format is refused rather than misread.
FORMAT = "fedpact-piece-1"
#: In the name of a party's file: the run that the piece is of.
RUN = "{run}"
#: Rows that an error lists.
SHOWN = 5
#: A column counts as constant when its deviation is below this part of its largest entry: rounding.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Piece:
    """One holder's part of a model, which it keeps for itself: scores are ((X - mean) / scale) @ theta.

    Where everyone has several scores, theta has the coefficients of one after the other, and so have the scores. The
    coordinator's piece has no columns: its theta is the intercept.
    """

    name: str
    theta: Vector
    mean: Vector
    scale: Vector
    columns: tuple[str, ...] = ()

    def scores(self, X: ArrayLike) -> Vector:
        """This piece's part of the scores of new rows. Raises DataError when they do not fit."""
        rows = read_table(self.name, X, self.columns)
        if rows.shape[1] != self.mean.size:
            raise DataError(
                f"{self.name}: X has {rows.shape[1]} columns, its piece of the model {self.mean.size}; give the "
                "columns of the training, in their order",
                code="FP-DATA-118",
            )
        return score_columns((rows - self.mean) / self.scale, self.theta, self.theta.size // self.mean.size)

    def save(self, path: str | Path) -> Path:
        """Write one .npz file and return its path; nothing is pickled."""
        target = Path(f"{str(path).removesuffix('.npz')}.npz")
        target.parent.mkdir(parents=True, exist_ok=True)
        meta = json.dumps({"format": FORMAT, "name": self.name, "columns": self.columns})
        with target.open("wb") as file:
            np.savez(file, theta=self.theta, mean=self.mean, scale=self.scale, meta=np.array(meta))
        return target

    @classmethod
    def load(cls, path: str | Path) -> Piece:
        """Read what `save` wrote. Raises FedpactError when the file is damaged or of another format."""
        try:
            with np.load(Path(path), allow_pickle=False) as file:
                meta = json.loads(str(file["meta"]))
                if meta["format"] != FORMAT:
                    raise FedpactError(
                        f"{path} is not a piece of a model of format {FORMAT}; train and save it again", code="FP-100"
                    )
                return cls(meta["name"], file["theta"], file["mean"], file["scale"], tuple(meta["columns"]))
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise FedpactError(
                f"{path} cannot be read as a piece of a model ({error}); save it again", code="FP-101"
            ) from error


@dataclass(frozen=True, eq=False)
class NewRows:
    """A party's piece of the model, and its columns of the people to predict."""

    piece: Piece
    X: Matrix


class PartyLike(Protocol):
    """What the coordinator knows of a party."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """How messages call the party."""

    @property
    def width(self) -> int:
        """How many columns it has in the model."""

    @property
    def quadratic(self) -> bool:
        """Whether its regularizer h_k is."""

    @property
    def multiplier_length(self) -> int: ...


@dataclass(frozen=True)
class DistantParty:
    """A party whose columns are not in this process."""

    name: str
    width: int
    quadratic: bool = True

    multiplier_length: int = 0

    @property
    def label(self) -> str:
        """How messages call the party."""
        return self.name


@dataclass(frozen=True, eq=False)
class Party:
    """What one party holds.

    X:           its columns of every row, as they enter the model
    h:           its regularizer h_k
    columns:     their names, for messages
    mean, scale: subtracted from its own columns and divided by, and kept for new rows
    outputs:     scores of each person, for all of which it has coefficients
    keep:        a file to which this party writes its piece of the model at the end (RUN in it stands for the run);
                 empty: none
    """

    X: Matrix
    h: Prox
    name: str
    columns: tuple[str, ...] = ()
    mean: Vector = field(default_factory=lambda: np.zeros(0))
    scale: Vector = field(default_factory=lambda: np.zeros(0))
    keep: str = ""
    outputs: int = 1

    multiplier_length: int = 0  # of the constraints, which are the coordinator's

    @property
    def label(self) -> str:
        """How messages call the party."""
        return self.name

    @property
    def width(self) -> int:
        """How many columns it has in the model."""
        return int(self.X.shape[1])

    @property
    def size(self) -> int:
        """How many coefficients it has."""
        return self.width * self.outputs

    def score(self, theta: Vector) -> Vector:
        """Its part of everyone's scores."""
        return score_columns(self.X, theta, self.outputs)

    def pull(self, slopes: Vector) -> Vector:
        """The gradient by its coefficients, given that by the scores."""
        if self.outputs == 1:
            return np.asarray(self.X.T @ slopes)
        return np.asarray(slopes.reshape(self.outputs, -1) @ self.X).ravel()

    @property
    def quadratic(self) -> bool:
        """Whether h_k is."""
        return self.h.curvature is not None

    @property
    def curvature(self) -> Any:
        """Of h_k, one number for each coefficient; None when h_k is not quadratic."""
        if self.h.curvature is None:
            return None
        return np.broadcast_to(np.asarray(self.h.curvature, dtype=np.float64), (self.size,))

    def piece(self, theta: Vector) -> Piece:
        """Its piece of the model with these coefficients."""
        return Piece(self.name, theta, self.mean, self.scale, self.columns)

    def keep_piece(self, theta: Vector, run: str) -> None:
        """Write its piece of the model of this run to its file, if it has one."""
        if self.keep:
            self.piece(theta).save(self.keep.replace(RUN, run))

    def keep_table(self, text: str, run: str) -> None:
        """Write a table of its coefficients beside its piece: NAME.csv."""
        if self.keep:
            Path(self.keep.replace(RUN, run)).with_suffix(".csv").write_text(text, encoding="utf-8")

    @property
    def names(self) -> list[str]:
        """Of its coefficients: those of its columns, or numbers; of several scores with the number of the score."""
        return name_coefficients(self.columns or [f"[{j}]" for j in range(self.width)], self.outputs)


def build_party(
    name: str,
    X: ArrayLike,
    h: Prox,
    rows: int,
    columns: tuple[str, ...],
    standardize: bool,
    keep: str | Path | None,
    outputs: int = 1,
) -> Party:
    """What one party holds, from its columns as they were given. outputs: scores of each person"""
    matrix = read_table(name, X, columns)
    width = matrix.shape[1]
    if len(matrix) != rows:
        raise DataError(
            f"{name}: X has {len(matrix)} rows, y has {rows}; align the parties by id first (fedpact.alignment)",
            code="FP-DATA-110",
        )
    check_prox(f"{name}: the regularizer", h, width)
    mean = np.zeros(width)
    scale = np.ones(width)
    if standardize:
        mean = matrix.mean(axis=0)
        deviation = matrix.std(axis=0)
        varies = deviation > CONSTANT * np.max(np.abs(matrix), axis=0, initial=0.0)
        scale = np.where(varies, deviation, 1.0)
        matrix = np.where(varies, (matrix - mean) / scale, 0.0)
    file = ""
    if keep:
        file = str(Path(keep).absolute() / f"{name}.npz")  # absolute: a party may work in a process of its own
    return Party(
        X=np.ascontiguousarray(matrix),  # as it travels: BLAS adds up a slice of a table in another order
        h=repeat_regularizer(name, h, outputs),
        name=name,
        columns=columns,
        mean=mean,
        scale=scale,
        keep=file,
        outputs=outputs,
    )


def name_coefficients(columns: Sequence[str], outputs: int) -> list[str]:
    """The names of columns; where everyone has several scores, those of each score in turn."""
    if outputs == 1:
        return list(columns)
    return [f"{score}: {name}" for score in range(outputs) for name in columns]


def score_columns(X: Matrix, theta: Vector, outputs: int) -> Vector:
    """X theta; where everyone has several scores, theta has the coefficients of one after the other, as the result."""
    if outputs == 1:
        return np.asarray(X @ theta)
    return np.asarray(theta.reshape(outputs, -1) @ X.T).ravel()


def repeat_regularizer(name: str, h: Prox, outputs: int) -> Prox:
    """The same weights for the coefficients of every score. ProblemError unless it is quadratic."""
    if outputs == 1:
        return h
    if h.curvature is None:
        raise ProblemError(
            f"{name}: its regularizer {h!r} is not quadratic, as softmax needs it; use fp.prox.SquaredL2",
            code="FP-PROBLEM-980",
        )
    weights = np.asarray(h.curvature, dtype=np.float64)
    if weights.ndim == 0:
        return h
    return SquaredL2(np.tile(weights, outputs))


def read_table(name: str, X: ArrayLike, columns: Sequence[str] = ()) -> Matrix:
    """X as a matrix of finite numbers, one row per person.

    name: the party, for messages; columns: the names of its columns, or none. Raises DataError.
    """
    try:
        matrix = to_real(X)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}: X is not a dense table of numbers ({error}); encode text columns", code="FP-DATA-106"
        ) from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise DataError(
            f"{name}: X has shape {matrix.shape}; give a matrix with at least one column, one row per person",
            code="FP-DATA-107",
        )
    if columns and len(columns) != matrix.shape[1]:
        raise DataError(
            f"{name}: X has {matrix.shape[1]} columns, but there are {len(columns)} column names; name each once",
            code="FP-DATA-108",
        )
    finite = np.isfinite(matrix)
    if not finite.all():
        first = int(np.flatnonzero(~finite.all(axis=0))[0])
        bad = np.flatnonzero(~finite[:, first])
        column = repr(columns[first]) if columns else str(first)
        shown = ", ".join(str(row) for row in bad[:SHOWN])
        if bad.size > SHOWN:
            shown += ", ..."
        raise DataError(
            f"{name}: column {column} has {bad.size} missing or infinite values (rows {shown}); impute them, or drop "
            "the rows at every party",
            code="FP-DATA-109",
        )
    return matrix
