"""A classifier whose loss on one class, or its recall, is bounded at every client, with scikit-learn's methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.estimators.horizontal import HorizontalClassifier, bound_by_client
from fedpact.tasks import NeymanPearson
from fedpact.tasks.checks import bound_for
from fedpact.tasks.neyman_pearson import confidence_interval


class NeymanPearsonClassifier(HorizontalClassifier):
    """The least loss on the other classes, with the mean loss on the protected class bounded at every client.

    Logistic regression for two classes, softmax for more (`fedpact.tasks.neyman_pearson`).

    bound:          of the mean loss on the protected class: one number, or one by client
    min_recall:     instead of a bound: the share of protected rows that must be found, on the rows of every client; the
                    bounds that give it are sought, and `bound` is not used
    protected:      label of the protected class; None: the last one in sorted order
    regularization: weight of |w|^2 / 2, over all but the intercept; with none a separable table has no optimum
    standardize:    train on columns of mean 0 and deviation 1 over all clients; only sums leave a client for this
    method, tol, max_rounds, engine, secure_sum, seed: of fp.solve

    After fit: classes_, coef_ and intercept_ (in the units of X), solution_, certificate_, history_, model_ (which can
    be saved), and by client multipliers_ (the price: what one unit more of bound would save), bounds_, measures_ (rows,
    recall with its 95 % Clopper-Pearson interval as "recall low" and "recall high", specificity, ...), before_ (the
    measures of the model without constraints; empty unless min_recall is given).
    """

    def __init__(
        self,
        bound: float | Mapping[Any, float] = 0.2,
        *,
        min_recall: float | None = None,
        protected: Any = None,
        regularization: float = 1e-3,
        standardize: bool = True,
        fit_intercept: bool = True,
        method: str = "auto",
        tol: float = 1e-3,
        max_rounds: int | None = None,
        engine: Any = None,
        secure_sum: bool | None = None,
        seed: int = 0,
    ) -> None:
        self.bound = bound
        self.min_recall = min_recall
        self.protected = protected
        self.regularization = regularization
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.method = method
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.secure_sum = secure_sum
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike, *, client: ArrayLike | None = None) -> Self:
        """client: who holds each row, as texts or numbers; None: one client holds all.

        Raises DataError or OptionError for bad tables and parameters, FedpactError when no certified model was found
        (without an intercept the bounds may conflict; with one they never do).
        """
        matrix, codes = self._table(X, y)
        clients = self._by_client(matrix, codes, client)
        task = NeymanPearson(
            bound={} if self.min_recall else bound_by_client("bound", self.bound, clients),
            label="(y)",  # not likely to be the name of a column of X
            columns=self._columns(),
            intercept=self.fit_intercept,
            classes=tuple(map(str, self.classes_)),
            protected=self._name_protected(),
            standardize=self.standardize,
            min_recall=self.min_recall or 0.0,
            regularization=self.regularization,
        )
        found = self._train(task, clients)
        prices = zip(clients, self.solution_.multipliers[1:], strict=True)
        self.multipliers_ = {name: float(price[0]) for name, price in prices}
        assert isinstance(found.task, NeymanPearson)
        self.bounds_ = {name: bound_for(found.task.bound, name) for name in clients}
        self.measures_ = {name: _with_interval(told) for name, told in found.measures.items()}
        self.before_ = {name: _with_interval(told) for name, told in found.before.items()}
        return self

    def _name_protected(self) -> str:
        """The protected class as the task names it: 1 is the class "1.0" of a y of floats."""
        if self.protected is None:
            return ""  # the last one
        equal = self.classes_[np.asarray(self.classes_ == self.protected)]
        return str(equal[0] if equal.size else self.protected)


def _with_interval(told: Mapping[str, float]) -> dict[str, float]:
    """The measures with the confidence interval of the recall, without those that only the search for bounds needs."""
    low, high = confidence_interval(told["recall"], told["protected rows"])
    kept = {key: value for key, value in told.items() if key != "bound for recall"}
    return {**kept, "recall low": low, "recall high": high}
