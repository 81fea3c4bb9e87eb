"""What the classifiers share whose rows are held by different clients: rows by client, training, prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact import tasks
from fedpact.errors import DataError, FedpactError, OptionError
from fedpact.federation import Session
from fedpact.fitting import Fit, fit
from fedpact.functions import Vector
from fedpact.tasks import Model, Rows, TableTask
from fedpact.tasks.checks import Labels, Matrix
from fedpact.types import to_array

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise OptionError("estimators need scikit-learn 1.6 or newer: pip install 'fedpact[sklearn]'") from error


class HorizontalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier of rows that clients hold; the mean loss of every client counts alike, few rows or many."""

    regularization: float
    standardize: bool
    fit_intercept: bool
    method: str
    tol: float
    max_rounds: int | None
    engine: Any
    secure_sum: bool | None
    seed: int

    def decision_function(self, X: ArrayLike) -> Vector:
        """(rows,): the score of the second class; with more than two (rows, classes)."""
        score = self._model().scores(self._features(X))
        return score[:, 0] if score.shape[1] == 1 else score

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """(rows, classes)"""
        return self._model().probabilities(self._features(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        number = self._model().predict(self._features(X))
        return np.asarray(self.classes_[number])

    def _model(self) -> Model:
        check_is_fitted(self, "model_")
        model: Model = self.model_
        return model

    def _features(self, X: ArrayLike) -> Matrix:
        _refuse_masked("X", X)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _table(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Labels]:
        """X, in which values may be absent, and the number of every row's class. Sets classes_."""
        self.__dict__.pop("model_", None)  # a fit that fails shall not leave the model of the one before
        _refuse_masked("X", X)
        _refuse_masked("y", y)
        try:
            matrix, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        except ValueError as error:
            _refuse_text(X, error)
            raise
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:
            raise DataError(f"y has one class only ({self.classes_[0]!s}); a classifier needs rows of two or more")
        return matrix, codes

    def _by_client(
        self, X: Matrix, y: Labels, client: ArrayLike | None, group: Labels | None = None
    ) -> dict[str, Rows]:
        """Checked rows by the client's name, in the order of the sorted ids."""
        ids, which = levels("client", np.full(len(X), "client 1") if client is None else client, len(X))
        clients = {}
        for k, name in enumerate(map(str, ids)):
            if name == "server":
                raise DataError("a client is called 'server', the name of the server itself; give it another name")
            rows = np.flatnonzero(which == k)
            self._check_finite(name, X, rows)
            clients[name] = Rows(X[rows], y[rows], None if group is None else group[rows])
        return clients

    def _columns(self) -> tuple[str, ...]:
        return tuple(getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)]))

    def _check_finite(self, name: str, X: Matrix, rows: NDArray[np.int64]) -> None:
        bad = ~np.isfinite(X[rows])
        for j in np.flatnonzero(bad.any(axis=0)):
            found = rows[bad[:, j]]
            listed = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
            raise DataError(
                f"client {name!r}: column {self._columns()[j]!r} has {len(found)} missing (NaN) or infinite values "
                f"(rows {listed} of X); impute them or drop the rows"
            )

    def _train(self, task: TableTask, clients: Mapping[str, Rows]) -> Fit:
        """Solve, and set what every classifier has after fit. FedpactError when there is no certified model."""
        with Session(self.engine, secure_sum=self.secure_sum) as session:
            found = fit(
                task, clients, session, method=self.method, tol=self.tol, max_rounds=self.max_rounds, seed=self.seed
            )
        self.solution_ = found.solution
        # A model that misses what was asked for is not handed out as one that has it; a warning would be read too late.
        if not found.solution.solved:
            raise FedpactError(
                f"no certified model: {self.solution_.status}, {self.solution_.reason}; the best point so far is in "
                "solution_"
            )
        if found.short:
            told = ", ".join(f"{name} has {found.measures[name]['recall']:.4f}" for name in found.short)
            raise FedpactError(
                f"no bounds were found in {found.trials} solves that give the recall asked for: {told}; ask for less, "
                "or add features; the last point is in solution_"
            )
        assert found.model is not None
        self.certificate_ = self.solution_.certificate
        self.history_ = self.solution_.history
        self.model_ = found.model
        self.coef_ = self.model_.coefficients
        self.intercept_ = self.model_.intercept
        return found


def levels(what: str, values: ArrayLike, rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted different values of a label that every row has one of, and which of them each row has."""
    _refuse_masked(what, values)
    given = np.asarray(values)
    if given.shape != (rows,):
        raise DataError(f"{what} has shape {given.shape}, X has {rows} rows; give one {what} a row")
    absent = np.flatnonzero([one is None or (one == one) is not True for one in given.tolist()])
    if absent.size:
        raise DataError(f"{what} is missing in {absent.size} rows, the first is row {absent[0]}; fill in or drop them")
    try:
        found, which = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise DataError(f"{what} mixes kinds that have no order ({error}); give only texts or only numbers") from error
    return found, which


def _refuse_masked(what: str, values: Any) -> None:
    """scikit-learn takes a mask off without a word."""
    if isinstance(values, np.ma.MaskedArray | list | tuple):
        try:
            to_array(values)
        except ValueError as error:
            raise DataError(f"{what} is not an array ({error})") from error


def by_name(what: str, bound: float | Mapping[Any, float], clients: Mapping[str, Rows]) -> dict[str, float]:
    """One positive number for every client, from one for all or from one by client id."""
    stated = {str(key): value for key, value in bound.items()} if isinstance(bound, Mapping) else bound
    return tasks.checks.bound_of_each(what, stated, clients)


def _refuse_text(X: Any, error: ValueError) -> None:
    """DataError with the name of the column of a data frame that cannot be read as numbers, if there is one."""
    for column in getattr(X, "columns", ()):
        try:
            np.asarray(X[column], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"column {column!r} is not numeric ({error}); encode it, for example by OneHotEncoder in a Pipeline"
            ) from error
