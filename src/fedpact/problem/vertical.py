"""Vertical problems: parties hold different columns of the same people, and a gap between groups is bounded.

    min_theta  (1/n) sum_i l(z_i, y_i) + sum_k h_k(theta_k)     with scores z = sum_k X_k theta_k + intercept
    s.t.       |D_j(z)| <= eps_j,   D_j(z) = mean of l over one group - mean of l over another

All that is not a party's own depends on the scores only, so it is written for them: loss, slope, gaps. The coordinator
holds labels, groups and the intercept; a party holds its columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from fedpact.cones import Nonnegative
from fedpact.errors import DataError, FedpactError, OptionError, ProblemError
from fedpact.functions import Function, LogisticLoss, Quadratic, as_map
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share
from fedpact.prox import Prox, SquaredL2
from fedpact.types import to_array, to_real

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Loss = Literal["logistic", "squared"]
Gap = Literal["positives", "all", "classes"]


PIECE = "fedpact-piece-1"


@dataclass(frozen=True, eq=False)
class Piece:
    """One holder's part of a model, which it keeps for itself: scores are ((X - mean) / scale) @ theta.

    The coordinator's piece has no columns: its theta is the intercept.
    """

    name: str
    theta: Vector
    mean: Vector
    scale: Vector
    columns: tuple[str, ...] = ()

    def scores(self, X: ArrayLike) -> Vector:
        """This piece's part of the scores of new rows. Raises DataError when they do not fit."""
        rows = table(self.name, X, self.columns)
        if rows.shape[1] != self.theta.size:
            raise DataError(f"{self.name}: X has {rows.shape[1]} columns, its piece of the model {self.theta.size}")
        return np.asarray((rows - self.mean) / self.scale @ self.theta)

    def save(self, path: str | Path) -> Path:
        """Write one .npz; nothing is pickled."""
        target = Path(path) if str(path).endswith(".npz") else Path(f"{path}.npz")
        target.parent.mkdir(parents=True, exist_ok=True)
        meta = json.dumps({"format": PIECE, "name": self.name, "columns": self.columns})
        with target.open("wb") as file:
            np.savez(file, theta=self.theta, mean=self.mean, scale=self.scale, meta=np.array(meta))
        return target

    @classmethod
    def load(cls, path: str | Path) -> Piece:
        """Read what `save` wrote. Raises FedpactError when the file is damaged or of another format."""
        try:
            with np.load(Path(path), allow_pickle=False) as file:
                meta = json.loads(str(file["meta"]))
                if meta["format"] != PIECE:
                    raise FedpactError(f"{path} is not a piece of a model of format {PIECE}")
                arrays = (file["theta"], file["mean"], file["scale"])
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise FedpactError(f"{path} cannot be read as a piece of a model ({error}); save it again") from error
        return cls(meta["name"], *arrays, tuple(meta["columns"]))


@dataclass(frozen=True, eq=False)
class Party:
    """What one party holds.

    X:         its columns of every row, as they enter the model
    curvature: of its quadratic h_k, one for each column
    columns:   their names, for messages
    mean, scale: what it took off its own columns and divided them by, which it keeps for new rows
    keep:      a file to which this party writes its piece of the model at the end; empty: none
    """

    X: Matrix
    curvature: Vector
    name: str
    columns: tuple[str, ...] = ()
    mean: Vector = field(default_factory=lambda: np.zeros(0))
    scale: Vector = field(default_factory=lambda: np.zeros(0))
    keep: str = ""

    multiplier_length: int = 0  # of the constraints, which are the coordinator's

    @property
    def label(self) -> str:
        return self.name

    def piece(self, theta: Vector) -> Piece:
        return Piece(self.name, theta, self.mean, self.scale, self.columns)


@dataclass(frozen=True)
class Scored:
    """Losses of scores, without columns: what the coordinator knows, and what it tells the parties.

    y:    (n,), -1 and 1 for the logistic loss, any numbers for the squared one
    rows: (m, n), one a gap: D = rows @ losses
    """

    loss: str
    y: Vector
    rows: Matrix

    @property
    def smoothness(self) -> float:
        """The largest second derivative of the loss."""
        return 0.25 if self.loss == "logistic" else 1.0

    def losses(self, z: Vector) -> Vector:
        if self.loss == "logistic":
            return np.logaddexp(0.0, -self.y * z)
        return 0.5 * (z - self.y) ** 2

    def slopes(self, z: Vector) -> Vector:
        """l'(z_i, y_i)."""
        return -self.y * expit(-self.y * z) if self.loss == "logistic" else z - self.y

    def weights(self, net: Vector) -> Vector:
        """How much the loss of each row counts in L + sum_j net_j D_j."""
        return 1.0 / self.y.size + net @ self.rows

    def gaps(self, z: Vector) -> Vector:
        return self.rows @ self.losses(z)


class VerticalProblem:
    """A linear model over columns that different parties hold, with bounded gaps of mean loss between groups.

    parties:     name -> X, or a list of X; all have the same people in the same order (see `fedpact.alignment`)
    y:           labels 0 and 1 (or -1 and 1); any numbers for loss="squared"
    group:       one label a row; None: no constraint
    max_gap:     eps, one number, or one for each gap in the order of `gap_names`
    loss:        "logistic", or "squared" (half the square)
    gap:         "positives": mean loss of the rows with y = 1 (DEO); "all": of all rows; "classes": of both classes
    pairs:       of groups that are compared; by default every two
    regularizer: fp.prox.SquaredL2, one for all parties or a list; by default weight 2/n, the paper's |theta|^2 / n
    intercept:   has the coordinator one?
    standardize: does every party scale its own columns to mean 0 and deviation 1? Constant columns then count nothing
    columns:     name -> names of the columns, for messages
    keep:        folder in which each party writes its piece of the model at the end, in a file of its own

    Raises DataError or ProblemError; messages name the party, the column and the remedy.
    """

    monotone = False
    coupled_length = 0

    def __init__(
        self,
        parties: Mapping[str, ArrayLike] | Sequence[ArrayLike],
        y: ArrayLike,
        group: ArrayLike | None = None,
        max_gap: ArrayLike | None = None,
        *,
        loss: Loss = "logistic",
        gap: Gap = "positives",
        pairs: Sequence[tuple[Any, Any]] | None = None,
        regularizer: Prox | Sequence[Prox] | None = None,
        intercept: bool = True,
        standardize: bool = False,
        columns: Mapping[str, Sequence[str]] | None = None,
        keep: str | Path | None = None,
    ) -> None:
        for name, value, allowed in (("loss", loss, ("logistic", "squared")), ("gap", gap, _GAPS)):
            if value not in allowed:
                raise OptionError(f"{name} = {value!r}: choose {', '.join(map(repr, allowed))}")
        if loss == "squared" and gap != "all":
            raise OptionError(f'gap = {gap!r} needs classes, which loss="squared" has not; use gap="all"')
        labels = _labels(y, loss)
        given = dict(parties) if isinstance(parties, Mapping) else {f"party {k}": X for k, X in enumerate(parties, 1)}
        if not given:
            raise ProblemError("a vertical problem needs at least one party; give name -> columns")
        for name in given:
            if not isinstance(name, str):
                raise ProblemError(f"party {name!r}: its name is no text; call it 'party {name}'")
        for name in columns or ():
            if name not in given:
                raise ProblemError(f"columns: no party is called {name!r}; they are {', '.join(map(repr, given))}")
        weights = _each(regularizer, len(given), labels.size)
        self.shares: tuple[Party, ...] = tuple(
            _party(name, X, h, labels.size, tuple((columns or {}).get(name, ())), standardize, keep)
            for (name, X), h in zip(given.items(), weights, strict=True)
        )
        rows, self.gap_names = _rows(labels, group, gap, pairs)
        if group is not None and max_gap is None:
            raise ProblemError("groups are given without max_gap, the largest gap between them; give a number, or 0")
        self.max_gap = _bounds(max_gap, self.gap_names)
        self.scored = Scored(loss, labels, rows)
        self.intercept = intercept
        #: The coordinator's own column, of ones, which is not shrunk.
        ones = np.ones((labels.size, 1 if intercept else 0))
        none = np.zeros(ones.shape[1])
        prices = 2 * len(self.gap_names)
        self.server = Party(ones, none, "coordinator", (), none, none + 1.0, multiplier_length=prices)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(party.name for party in self.shares)

    @property
    def dim(self) -> int:
        return sum(party.X.shape[1] for party in (*self.shares, self.server))

    @property
    def convex(self) -> bool:
        """Gaps are differences of convex functions; without them the problem is convex."""
        return not self.gap_names

    def pieces(self, w: ArrayLike) -> dict[str, Vector]:
        """w by holder: the parties in order, then the coordinator's intercept (empty without one)."""
        vector = np.asarray(w, dtype=np.float64)
        if vector.shape != (self.dim,):
            raise ProblemError(f"w has shape {vector.shape}, the parties have {self.dim} columns with the intercept")
        holders = (*self.shares, self.server)
        ends = np.cumsum([holder.X.shape[1] for holder in holders])[:-1]
        return {holder.name: part for holder, part in zip(holders, np.split(vector, ends), strict=True)}

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[VerticalProblem, Vector, Vector, Vector]:
        """(problem, w, multiplier, no coupled multiplier): nothing was rewritten."""
        return self, w, server_multiplier, np.zeros(0)

    def misses(self, z: Vector, net: Vector) -> tuple[float, float]:
        """(feasibility, violation) of the gaps at scores z, with the price net_j = price of D <= eps - of -D <= eps."""
        gaps = self.scored.gaps(z)
        values = np.concatenate([gaps - self.max_gap, -gaps - self.max_gap])
        prices = np.concatenate([np.maximum(net, 0.0), np.maximum(-net, 0.0)])
        feasibility = np.where(prices > 0, np.abs(values), np.maximum(values, 0.0))
        return float(np.max(feasibility, initial=0.0)), float(np.max(values, initial=0.0))

    def multiplier(self, net: Vector) -> Vector:
        """The prices as `pooled` has its constraints: for every gap that of D <= eps, then that of -D <= eps."""
        return np.stack([np.maximum(net, 0.0), np.maximum(-net, 0.0)], axis=1).ravel()

    def pooled(self) -> FederatedProblem:
        """The same problem with all columns in one place: a reference, and what `fp.certify` judges answers by."""
        X = np.hstack([party.X for party in (*self.shares, self.server)])
        curvature = np.concatenate([party.curvature for party in (*self.shares, self.server)])
        constraints = []
        for row, eps in zip(self.scored.rows, self.max_gap, strict=True):
            D = self._mean(X, row > 0) - self._mean(X, row < 0)
            for side in (D - float(eps), -1.0 * D - float(eps)):
                constraints.append(Constraint(as_map(side), Nonnegative(1)))
        share = Share(self._mean(X, np.ones(len(X), dtype=bool)), name="all columns")
        server = Share(constraint=constraints, name=self.server.name) if constraints else None  # type: ignore[arg-type]
        return FederatedProblem([share], server, SquaredL2(curvature))

    def _mean(self, X: Matrix, chosen: NDArray[np.bool_]) -> Function:
        """The mean loss of these rows."""
        A, y = X[chosen], self.scored.y[chosen]
        if self.scored.loss == "logistic":
            return LogisticLoss(A, (y > 0).astype(np.float64))
        return Quadratic(A.T @ A / len(y), -A.T @ y / len(y)) + float(0.5 * np.mean(y**2))


_GAPS = ("positives", "all", "classes")


def _labels(y: ArrayLike, loss: str) -> Vector:
    try:
        labels = to_real(y)
    except (TypeError, ValueError) as error:
        raise DataError(f"y is not a vector of numbers ({error}); code the classes as 0 and 1") from error
    if labels.ndim != 1 or labels.size == 0:
        raise DataError(f"y has shape {labels.shape}; give one label a row")
    if not np.all(np.isfinite(labels)):
        raise DataError(f"y has {np.sum(~np.isfinite(labels))} missing or infinite values; drop these rows everywhere")
    if loss == "squared":
        return labels
    values = set(np.unique(labels))
    if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
        wrong = next(v for v in labels if v not in (0.0, 1.0))
        raise DataError(
            f'y has values other than 0 and 1, such as {wrong:g}; code the classes so, or use loss="squared"'
        )
    return np.where(labels > 0, 1.0, -1.0)


def table(name: str, X: ArrayLike, columns: Sequence[str] = ()) -> Matrix:
    """X as a finite matrix; `columns` are names for the messages, if there are any."""
    try:
        matrix = to_real(X)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: X is not a dense table of numbers ({error}); encode text columns") from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise DataError(f"{name}: X has shape {matrix.shape}; give a matrix with at least one column, one row a person")
    if columns and len(columns) != matrix.shape[1]:
        raise DataError(f"{name}: X has {matrix.shape[1]} columns, but there are {len(columns)} column names")
    for j in np.flatnonzero(~np.isfinite(matrix).all(axis=0)):
        bad = np.flatnonzero(~np.isfinite(matrix[:, j]))
        column = repr(columns[int(j)]) if columns else str(j)
        shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        raise DataError(
            f"{name}: column {column} has {len(bad)} missing or infinite values (rows {shown}); impute them, or drop "
            "the rows at every party"
        )
    return matrix


def _party(
    name: str,
    X: ArrayLike,
    h: Prox,
    rows: int,
    columns: tuple[str, ...],
    standardize: bool,
    keep: str | Path | None,
) -> Party:
    if name == "coordinator":
        raise ProblemError("a party is called 'coordinator', the name of the coordinator itself; give it another name")
    matrix = table(name, X, columns)
    width = matrix.shape[1]
    if matrix.shape[0] != rows:
        raise DataError(
            f"{name}: X has {matrix.shape[0]} rows, y has {rows}; align the parties by id first (fedpact.alignment)"
        )
    if h.curvature is None:
        raise ProblemError(f"{name}: the regularizer {h!r} is not smooth; vertical methods take fp.prox.SquaredL2")
    if defect := h.defect(width):
        raise ProblemError(f"{name}: regularizer: {defect}")
    mean, scale = np.zeros(width), np.ones(width)
    if standardize:
        mean, deviation = matrix.mean(axis=0), matrix.std(axis=0)
        varies = deviation > 1e-12 * np.max(np.abs(matrix), axis=0, initial=0.0)
        scale = np.where(varies, deviation, 1.0)
        matrix = np.where(varies, (matrix - mean) / scale, 0.0)
    curvature = np.broadcast_to(np.asarray(h.curvature, dtype=np.float64), (width,)).copy()
    kept = str(Path(keep).absolute() / f"{name}.npz") if keep else ""  # a party may work in a process of its own
    matrix = np.ascontiguousarray(matrix)  # as it travels: BLAS adds up a slice of a table in another order
    return Party(matrix, curvature, name, columns, mean, scale, kept)


def _each(regularizer: Prox | Sequence[Prox] | None, parties: int, rows: int) -> list[Prox]:
    if regularizer is None:
        return [SquaredL2(2.0 / rows)] * parties  # the paper's (1/n) |theta|^2
    several = list(regularizer) if isinstance(regularizer, Sequence) else [regularizer] * parties
    if len(several) != parties or not all(isinstance(h, Prox) for h in several):
        raise ProblemError(f"regularizer: give one fp.prox.SquaredL2, or a list of {parties}, one a party")
    return several


def _rows(
    y: Vector, group: ArrayLike | None, gap: Gap, pairs: Sequence[tuple[Any, Any]] | None
) -> tuple[Matrix, tuple[str, ...]]:
    """One row a gap, whose product with the losses it is, and its name."""
    if group is None:
        if pairs is not None:
            raise ProblemError("pairs of groups are given without group; give one group label a row")
        return np.zeros((0, y.size)), ()
    try:
        members = to_array(group)
    except ValueError as error:  # ragged lists, masks
        raise DataError(f"group is not a vector ({error}); give one group label a row") from error
    if members.shape != y.shape:
        raise DataError(f"group has shape {members.shape}, y has {y.size} rows; give one group label a row")
    if members.dtype.kind == "f" and not np.all(np.isfinite(members)):
        raise DataError(f"group has {np.sum(~np.isfinite(members))} missing values; give every row a group")
    if any(member is None for member in members.flat):
        raise DataError(f"group has {sum(m is None for m in members.flat)} missing values; give every row a group")
    try:
        names = list(np.unique(members))
    except TypeError as error:
        raise DataError(f"group has labels that cannot be compared ({error}); use text or numbers only") from error
    if pairs is not None and not (len(pairs) and all(len(set(pair)) == len(pair) == 2 for pair in pairs)):
        raise ProblemError(f"pairs = {pairs!r}: give at least one pair of two different groups, or leave it out")
    if len(names) < 2:
        raise DataError(f"all rows are of group {names[0]!s}; a gap needs two groups")
    among = {"positives": {"y = 1": y > 0}, "all": {"": y == y}, "classes": {"y = 1": y > 0, "y = 0": y <= 0}}[gap]
    rows, told = [], []
    for a, b in combinations(names, 2) if pairs is None else pairs:
        for what, counted in among.items():
            row = np.zeros(y.size)
            for one, sign in ((a, 1.0), (b, -1.0)):
                if one not in names:
                    raise DataError(f"pairs: no row is of group {one!s}; the groups are {', '.join(map(str, names))}")
                chosen = counted & (members == one)
                if not chosen.any():
                    raise DataError(
                        f"group {one!s} has no row with {what}, so its mean loss is undefined; leave the group out of "
                        'pairs, or use gap="all"'
                    )
                row[chosen] = sign / chosen.sum()
            rows.append(row)
            told.append(f"{a!s} - {b!s}{', ' if what else ''}{what}")
    return np.array(rows), tuple(told)


def _bounds(max_gap: ArrayLike | None, names: tuple[str, ...]) -> Vector:
    if not names:
        if max_gap is not None:
            raise ProblemError("max_gap is given without group; give one group label a row")
        return np.zeros(0)
    try:
        bounds = np.atleast_1d(to_real(max_gap))
    except (TypeError, ValueError):
        bounds = np.zeros(0)
    if bounds.shape not in ((1,), (len(names),)) or not np.all(np.isfinite(bounds)) or np.any(bounds < 0):
        raise ProblemError(
            f"max_gap = {max_gap!r}: give a number of at least 0, or one for each of {', '.join(map(repr, names))}"
        )
    return np.broadcast_to(bounds, (len(names),)).copy()
