"""What the classifiers share whose rows are held by different clients: rows by client, training, prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedpact.errors import DataError, FedpactError
from fedpact.estimators.certified import CertifiedClassifier
from fedpact.federation import Session
from fedpact.fitting import Fit, fit
from fedpact.postprocess.checks import find_levels, read_array
from fedpact.problem import Share
from fedpact.statistics import Summary
from fedpact.tasks import Classification, Model, Rows, TableTask, checks
from fedpact.tasks.checks import Labels
from fedpact.tasks.decisions import Decisions
from fedpact.types import Matrix, Vector


class HorizontalClassifier(CertifiedClassifier):
    """A linear classifier of rows that clients hold; the mean loss of every client counts alike, few rows or many."""

    regularization: float
    standardize: bool
    fit_intercept: bool
    method: str
    tol: float
    max_rounds: int | None
    engine: Any
    secure_sum: bool | None
    inference: str
    seed: int

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients in the units of X, and prices, with standard errors, tests and intervals (`Fit.summary`).

        Raises OptionError where `inference` is "none".
        """
        check_is_fitted(self, "model_")
        found: Fit = self.fit_
        return found.summary(level)

    def decision_function(self, X: ArrayLike, *, client: ArrayLike | None = None) -> Vector:
        """(rows,): the score of the second class; with more than two (rows, classes).

        client: who holds each row, for classifiers whose clients decide at thresholds of their own
        """
        score = self._model().scores(self._features(X))
        if score.shape[1] == 1:
            return score[:, 0] - self._own_thresholds(client, len(score))
        return score

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """(rows, classes)"""
        return self._model().probabilities(self._features(X))

    def predict(self, X: ArrayLike, *, client: ArrayLike | None = None) -> NDArray[Any]:
        """The class of every row; client: as in `decision_function`."""
        score = self.decision_function(X, client=client)
        if score.ndim == 1:
            return np.asarray(self.classes_[(score > 0).astype(int)])
        return np.asarray(self.classes_[np.argmax(score, axis=1)])

    def _own_thresholds(self, client: ArrayLike | None, rows: int) -> Vector:
        """What every row's score is compared with, where clients have thresholds of their own; else zero."""
        own: dict[str, float] = getattr(self, "own_thresholds_", {})
        if not own:
            return np.zeros(rows)
        if client is None:
            raise DataError(
                "predict: every client decides at a threshold of its own; give client=, who holds each row",
                code="FP-DATA-806",
            )
        ids, which = find_levels("client", client, rows)
        unknown = [name for name in map(str, ids) if name not in own]
        if unknown:
            raise DataError(
                f"predict: client {unknown[0]!r} was not there in fit; the clients are {', '.join(own)}",
                code="FP-DATA-807",
            )
        return np.array([own[str(name)] for name in ids])[which]

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
            raise DataError(
                f"y has one class only ({self.classes_[0]!s}); a classifier needs rows of two or more",
                code="FP-DATA-471",
            )
        return matrix, codes

    def _by_client(
        self,
        X: Matrix,
        y: Labels,
        client: ArrayLike | None,
        group: Labels | None = None,
        cluster: ArrayLike | None = None,
    ) -> dict[str, Rows]:
        """Checked rows by the client's name, in the order of the sorted ids."""
        if client is None:
            client = np.full(len(X), "client 1")
        ids, which = find_levels("client", client, len(X))
        shared = None if cluster is None else find_levels("cluster", cluster, len(X))[1]
        clients = {}
        for k, name in enumerate(map(str, ids)):
            checks.check_owner_name(name)
            rows = np.flatnonzero(which == k)
            checks.check_finite(name, X[rows], self._columns(), rows)
            own = None if shared is None else shared[rows]
            clients[name] = Rows(X[rows], y[rows], None if group is None else group[rows], cluster=own)
        return clients

    def _columns(self) -> tuple[str, ...]:
        return tuple(getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)]))

    def _train(self, task: TableTask, clients: Mapping[str, Rows]) -> Fit:
        """Fit the task, and set what every classifier has after fit.

        Raises FedpactError when there is no certified model, or its recall is below the one asked for.
        """
        with Session(self.engine, secure_sum=self.secure_sum) as session:
            found = fit(
                task,
                clients,
                session,
                inference=self.inference,
                method=self.method,
                tol=self.tol,
                max_rounds=self.max_rounds,
                seed=self.seed,
            )
        if found.solution.status != "unproven":
            self._accept(found.solution)
        self.solution_ = found.solution
        if not found.solved:
            raise FedpactError(
                f"no model was found in {found.trials} solves that decides as asked: {found.shortfall}; ask for less, "
                "or add features; the last point is in solution_",
                code="FP-476",
            )
        assert isinstance(found.model, Model)
        self.fit_ = found
        self.model_ = found.model
        self.exchanges_ = found.communication.rounds
        self.own_thresholds_ = self._find_thresholds(found, clients)
        self.thresholds_ = self.own_thresholds_ or dict.fromkeys(clients, 0.0)
        self.coef_ = self.model_.coefficients
        self.intercept_ = self.model_.intercept
        return found

    @staticmethod
    def _find_thresholds(found: Fit, clients: Mapping[str, Rows]) -> dict[str, float]:
        """The clients' own thresholds, in units of the score, from the rows given to fit; empty without such."""
        task = found.task
        if not isinstance(task, Classification) or not task.decide_own:
            return {}
        thresholds = {}
        for name, rows in clients.items():
            share = task.share(name, rows)
            assert isinstance(share, Share)
            assert isinstance(share.measures, Decisions)
            thresholds[name] = share.measures.decide_at(found.solution.w)
        return thresholds


def bound_by_client(what: str, bound: float | Mapping[Any, float], clients: Mapping[str, Rows]) -> dict[str, float]:
    """One positive number for every client, from one for all or from one by client id."""
    if isinstance(bound, Mapping):
        bound = {str(client): value for client, value in bound.items()}
    return checks.bound_of_each(what, bound, clients)


def _refuse_masked(what: str, values: Any) -> None:
    """scikit-learn takes a mask off without a word."""
    if isinstance(values, np.ma.MaskedArray | list | tuple):
        read_array(what, values)


def _refuse_text(X: Any, error: ValueError) -> None:
    """Raise DataError with the name of the first column of a data frame that is not numeric, if there is one."""
    for column in getattr(X, "columns", ()):
        try:
            np.asarray(X[column], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"column {column!r} is not numeric ({error}); encode it, for example by OneHotEncoder in a Pipeline",
                code="FP-DATA-474",
            ) from error
