"""A classifier with the recall of one class, or its loss, bounded at every client; scikit-learn's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.estimators.horizontal import HorizontalClassifier, bound_by_client
from fedpact.tasks import NeymanPearson, Task
from fedpact.tasks.base import Bounded
from fedpact.types import Vector


class NeymanPearsonClassifier(HorizontalClassifier):
    """The fewest errors on the other classes, with one class guarded at every client: by its recall, or by its loss.

    A linear classifier (`fedpact.tasks.NeymanPearson`).

    bound:          of the mean loss on the protected class: one number, or one by client
    min_recall:     in the place of a bound: the share of protected rows that must be found at every client; it is
                    counted on its rows, or promised for new ones, see `confidence`; `bound` is not used
    confidence:     for rows not yet seen: at every client the recall is at least min_recall, together with this
                    probability, e.g. 0.95; None: on the rows it is trained on
    threshold:      with a confidence: one "common" threshold for all clients, or each its "own" (then `predict` needs
                    client=)
    holdout:        with a confidence: part of the protected rows that is held out of training to test the promise
    promise_for:    with a confidence: clients that promise; None: all. The others are trained with, and their recall is
                    counted on the rows trained on
    own_intercept:  with min_recall: every client has an intercept of its own, in place of a common one (then `predict`
                    needs client=)
    protected:      label of the protected class; None: the last one in sorted order
    regularization: weight of |w|^2 / 2, over all but the intercept; a tenth of it where errors are minimised
    standardize:    train on columns of mean 0 and deviation 1 over all clients; only sums leave a client for this
    method, tol, max_rounds, engine, secure_sum, seed: of fp.solve
    inference:      of fp.fit; other than "none", `summary` has standard errors and intervals

    After fit: classes_, coef_ and intercept_ (in the units of X, with the common threshold), solution_, certificate_,
    history_, exchanges_, model_ (which can be saved), and by client multipliers_ (the price: what one unit more of
    bound would save), bounds_, measures_ (rows, recall, specificity, ... on the rows trained on, without
    intervals: the model was fitted to them), before_ (the measures of the model without constraints; empty without
    min_recall), thresholds_ (the scores above which the last class is decided).
    """

    def __init__(
        self,
        bound: float | Mapping[Any, float] = 0.2,
        *,
        min_recall: float | None = None,
        confidence: float | None = None,
        threshold: Literal["common", "own"] = "common",
        holdout: float = 0.5,
        promise_for: Sequence[Any] | None = None,
        own_intercept: bool = False,
        protected: Any = None,
        regularization: float = 1e-3,
        standardize: bool = True,
        fit_intercept: bool = True,
        method: str = "auto",
        tol: float = 1e-3,
        max_rounds: int | None = None,
        engine: Any = None,
        secure_sum: bool | None = None,
        inference: str = "none",
        seed: int = 0,
    ) -> None:
        self.bound = bound
        self.min_recall = min_recall
        self.confidence = confidence
        self.threshold = threshold
        self.holdout = holdout
        self.promise_for = promise_for
        self.own_intercept = own_intercept
        self.protected = protected
        self.regularization = regularization
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.method = method
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.secure_sum = secure_sum
        self.inference = inference
        self.seed = seed

    def fit(
        self, X: ArrayLike, y: ArrayLike, *, client: ArrayLike | None = None, cluster: ArrayLike | None = None
    ) -> Self:
        """client: who holds each row, as texts or numbers; None: one client holds all.
        cluster: what rows share, such as a patient: whole clusters are held out, and one row of each counts for the
                 promise; None: rows are independent of each other.

        Raises DataError or OptionError for bad tables and parameters, also for too few rows for a promise; FedpactError
        when no certified model was found (without an intercept the bounds may conflict; with one they never do).
        """
        matrix, codes = self._table(X, y)
        clients = self._by_client(matrix, codes, client, cluster=cluster)
        task = NeymanPearson(
            bound={} if self.min_recall else bound_by_client("bound", self.bound, clients),
            label="(y)",  # not likely to be the name of a column of X
            columns=self._columns(),
            intercept=self.fit_intercept,
            classes=tuple(map(str, self.classes_)),
            cluster="" if cluster is None else "cluster",
            protected=self._name_protected(),
            standardize=self.standardize,
            min_recall=self.min_recall or 0.0,
            confidence=self.confidence or 0.0,
            threshold=self.threshold,
            holdout=self.holdout,
            promise_for=tuple(map(str, self.promise_for or ())),
            own_intercept=self.own_intercept,
            split=self.seed,
            regularization=self.regularization,
        )
        found = self._train(task, clients)
        asked = {name: self._asked(found.task, name, price) for name, price in found.prices.items() if name in clients}
        self.multipliers_ = {name: one.price for name, one in asked.items()}
        self.bounds_ = {name: one.bound for name, one in asked.items()}
        self.measures_ = {name: dict(told) for name, told in found.measures.items()}
        self.before_ = {name: dict(told) for name, told in found.before.items()}
        return self

    @staticmethod
    def _asked(task: Task, name: str, price: Vector) -> Bounded:
        """The client's bound, with its price."""
        return next(iter(task.bounded(name, np.zeros(price.size), price, {})))

    def _name_protected(self) -> str:
        """The protected class as the task names it: 1 is the class "1.0" of a y of floats."""
        if self.protected is None:
            return ""  # the last one
        equal = self.classes_[np.asarray(self.classes_ == self.protected)]
        return str(equal[0] if equal.size else self.protected)
