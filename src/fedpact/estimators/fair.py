"""A classifier that treats groups alike at every client, with scikit-learn's methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError
from fedpact.estimators.horizontal import HorizontalClassifier, bound_by_client
from fedpact.postprocess.checks import find_levels
from fedpact.tasks import GroupFairness
from fedpact.tasks.checks import Labels
from fedpact.tasks.group_fairness import Parity


class FairClassifier(HorizontalClassifier):
    """The least loss, or the fewest errors, with the gap between any two groups bounded at every client.

    A linear classifier (`fedpact.tasks.GroupFairness`).

    max_gap:        one number, or one by client
    parity:         what may differ by max_gap between groups: the mean "loss"; the share of rows that are given the
                    last class ("demographic_parity"), of rows of this class ("equal_opportunity"), or of these and of
                    the others ("equalized_odds"). Decisions are counted: a gap is met when it is at most max_gap and
                    one row's worth
    confidence:     for rows not yet seen: gaps of decisions are at most max_gap at all clients, together with this
                    probability; None: on the rows it is trained on
    holdout:        with a confidence: part of the rows that is held out of training to test the promise
    objective:      what is minimised: the "loss", or, where gaps of decisions are bounded, the "errors": decisions that
                    are right more often on the training rows; "auto": the loss, then errors, where that saves more
                    training errors than overfitting explains
    regularization: weight of |w|^2 / 2, over all but the intercept
    standardize:    train on columns of mean 0 and deviation 1 over all clients; only sums leave a client for this
    method, tol, max_rounds, engine, secure_sum, seed: of fp.solve
    inference:      of fp.fit; other than "none", `summary` has standard errors and intervals

    After fit: classes_, groups_, coef_ and intercept_ (in the units of X), solution_, certificate_, history_, model_
    (which can be saved), and by client bounds_, gaps_ and multipliers_ (by pair of groups: how far apart they are, and
    the price, what one unit more of max_gap would save), measures_ (rows, accuracy, rates by group).
    """

    def __init__(
        self,
        max_gap: float | Mapping[Any, float] = 0.1,
        *,
        parity: Parity = "loss",
        confidence: float | None = None,
        holdout: float = 0.5,
        objective: Literal["auto", "loss", "errors"] = "auto",
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
        self.max_gap = max_gap
        self.parity = parity
        self.confidence = confidence
        self.holdout = holdout
        self.objective = objective
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
        self, X: ArrayLike, y: ArrayLike, *, group: ArrayLike | None = None, client: ArrayLike | None = None
    ) -> Self:
        """group: one label a row, two groups or more; client: who holds each row; None: one client holds all.

        Without group nothing is bounded, and a warning says so: scikit-learn's tools call fit(X, y) alone.
        Raises DataError or OptionError for bad tables and parameters, FedpactError when no certified model was found.
        """
        matrix, codes = self._table(X, y)
        members = self._find_groups(group, len(matrix))
        clients = self._by_client(matrix, codes, client, members)
        bounds = bound_by_client("max_gap", self.max_gap, clients)
        task = GroupFairness(
            bound=bounds,
            columns=self._columns(),
            regularization=self.regularization,
            label="(y)",  # not likely to be the name of a column of X
            group="(group)",
            intercept=self.fit_intercept,
            classes=tuple(map(str, self.classes_)),
            groups=tuple(map(str, self.groups_)) or ("0", "1"),  # without groups any names do
            parity=self.parity,
            confidence=self.confidence or 0.0 if members is not None else 0.0,
            holdout=self.holdout,
            objective=self.objective,
            split=self.seed,
            standardize=self.standardize,
            constrained=members is not None,
        )
        found = self._train(task, clients)
        self.bounds_ = bounds if members is not None else {}
        self.gaps_ = {}
        self.multipliers_ = {}
        for name in self.bounds_:
            told = found.measures[name]
            bounded = list(found.task.bounded(name, found.values[name], found.prices[name], told))
            names = self._name_gaps(len(bounded))
            self.gaps_[name] = {pair: gap.value for pair, gap in zip(names, bounded, strict=True)}
            self.multipliers_[name] = {pair: gap.price for pair, gap in zip(names, bounded, strict=True)}
        self.measures_ = {
            name: {self._name_measure(key): value for key, value in told.items()}
            for name, told in found.measures.items()
        }
        return self

    def _find_groups(self, group: ArrayLike | None, rows: int) -> Labels | None:
        """The number of every row's group among groups_, which it sets. Warns when there are none."""
        if group is None:
            warnings.warn(
                "FairClassifier.fit without group: no gap is bounded, this is plain logistic regression; give "
                "group=, one label a row (through a Pipeline or a search: set_fit_request(group=True))",
                UserWarning,
                stacklevel=3,
            )
            self.groups_ = np.zeros(0)
            return None
        self.groups_, members = find_levels("group", group, rows)
        if self.groups_.size < 2:
            raise DataError(
                f"group: all rows are of group {self.groups_[0]!s}; a gap needs two groups or more", code="FP-DATA-472"
            )
        return members

    def _name_gaps(self, number: int) -> list[str]:
        """Every two groups; where two rates are compared, with the rate in front."""
        pairs = [f"{a} - {b}" for a, b in combinations(self.groups_, 2)]
        if number == len(pairs):
            return pairs
        return [f"{rate}: {pair}" for rate in ("recall", "false-positive rate") for pair in pairs]

    def _name_measure(self, key: str) -> str:
        """A measure's name with the group's label in the place of its number."""
        what, of, number = key.rpartition(" of group ")
        if not of:
            return key
        return f"{what}{of}{self.groups_[int(number)]}"
