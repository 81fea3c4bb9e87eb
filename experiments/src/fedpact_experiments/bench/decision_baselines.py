"""Rules that others would use for the same decisions, most of them on the pooled training rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import fedpact as fp
from fedpact.data.table import Table
from fedpact.errors import FedpactError, install
from fedpact.functions import Vector
from fedpact_experiments.bench.decision_counts import (
    Parity,
    Rule,
    Tables,
    cells_of,
    count,
    gaps_hold,
    group_of,
    lowest_needed,
    pool,
)

#: Weight of |w|^2 / 2 beside the mean loss, as in fedpact's classifiers.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Fitted:
    """A rule, and what it took to find it.

    exchanges:    with every owner; None where the rows were pooled
    coefficients: of the scores that the rule compares with a limit, where it does
    seconds:      None: those of the call that made it
    """

    rule: Rule
    exchanges: int | None = None
    coefficients: Vector | None = None
    seconds: float | None = None
    note: str = ""


Method = Callable[[Tables], Fitted]  # from the training rows


def deciding(predict: Callable[[Any], Any]) -> Rule:
    """The rule of a classifier that asks for the columns only."""
    return lambda owner, table: np.asarray(predict(table.X), dtype=np.float64)


# -------------------------------------------------------------------------------------------------- logistic regression


def logistic_regression(rows: int) -> LogisticRegression:
    """scikit-learn's, with the ridge of fedpact's classifiers for this number of rows."""
    return LogisticRegression(C=1 / (RIDGE * rows), max_iter=1000, tol=1e-6)


def fit_plain(train: Tables) -> Fitted:
    """Logistic regression on the pooled rows, decided at probability 1/2."""
    table = pool(train)
    model = logistic_regression(len(table.y)).fit(table.X, table.y)
    return Fitted(deciding(model.predict), coefficients=model.coef_[0])


def plain_with_thresholds(recall: float, own: bool) -> Method:
    """Logistic regression on the pooled rows; the threshold is as high as the recall of the training rows allows.

    own: a threshold for every owner, else the lowest of them for all
    """

    def fit(train: Tables) -> Fitted:
        table = pool(train)
        model = logistic_regression(len(table.y)).fit(table.X, table.y)
        limits = {
            owner: lowest_needed(model.decision_function(rows.X[rows.y == 1]), recall) for owner, rows in train.items()
        }
        if not own:
            lowest = min(limits.values())
            limits = dict.fromkeys(train, lowest)

        def decide(owner: str, rows: Table) -> Vector:
            return np.asarray(model.decision_function(rows.X) >= limits[owner], dtype=np.float64)

        return Fitted(decide, coefficients=model.coef_[0])

    return fit


# ---------------------------------------------------------------------------------------------------------- loss bounds

#: Sets of bounds that are tried, at most.
TRIALS = 40
#: Trials in which bounds may also grow, by this factor or more.
RELAXING = 4
WIDER = 1.02
#: A bound that did not give its recall shrinks by this factor or more.
SHRINK = 0.99


def loss_bounds(recall: float) -> Method:
    """Bounds on the mean loss of the rows with y = 1, by owner, sought so that the recall holds on the training rows.

    A bound is set to the loss that the rows would have if the intercept were shifted just enough for the recall, first
    in plain logistic regression, then in the model that the bounds before gave. This is how fedpact 0.2 met min_recall.
    Of the models tried that have the recall, the one with the best specificity is taken.
    """

    def fit(train: Tables) -> Fitted:
        table = pool(train)
        plain = logistic_regression(len(table.y)).fit(table.X, table.y)
        bounds = {owner: _loss_at_recall(_positive_scores(plain, rows), recall) for owner, rows in train.items()}
        exchanges = 0
        best = -1.0
        found = None
        for trial in range(TRIALS):
            model = _fit_bounded(train, bounds)
            exchanges += model.solution_.rounds
            rule = deciding(model.predict)
            counted = count(rule, train)
            if counted.worst_recall >= recall and counted.specificity > best:
                best = counted.specificity
                found = rule
            wanted = _next_bounds(model, train, bounds, recall, trial)
            if wanted == bounds:
                break
            bounds = wanted
        if found is None:
            raise FedpactError(f"no bounds were found in {TRIALS} solves that give the recall {recall:g}")
        return Fitted(found, exchanges, note=f"{trial + 1} sets of bounds")

    return fit


def _fit_bounded(train: Tables, bounds: Mapping[str, float]) -> Any:
    table = pool(train)
    return fp.NeymanPearsonClassifier(bound=dict(bounds), regularization=RIDGE).fit(
        table.X, table.y, client=owner_of_each_row(train)
    )


def _next_bounds(model: Any, train: Tables, bounds: Mapping[str, float], recall: float, trial: int) -> dict[str, float]:
    """The same bounds where every owner has its recall and none seems too tight."""
    wanted = dict(bounds)
    for owner, rows in train.items():
        score = _positive_scores(model, rows)
        needed = _loss_at_recall(score, recall)
        tight = model.multipliers_[owner] > 0 and needed > WIDER * bounds[owner]
        if np.mean(score > 0) < recall:
            wanted[owner] = min(needed, SHRINK * bounds[owner])
        elif tight and trial < RELAXING:
            wanted[owner] = needed
    return wanted


def _positive_scores(model: Any, rows: Table) -> Vector:
    return np.asarray(model.decision_function(rows.X[rows.y == 1]))


def _loss_at_recall(score: Vector, recall: float) -> float:
    """The mean loss of rows with y = 1 and these scores, if the intercept gave them just this recall."""
    shifted = score - lowest_needed(score, recall)
    return float(np.mean(np.logaddexp(0.0, -shifted)))


def owner_of_each_row(tables: Tables) -> Any:
    """The owner's name for every row of `pool(tables)`."""
    return np.concatenate([np.full(len(table.y), owner) for owner, table in tables.items()])


# ------------------------------------------------------------------------------------------------------------ fairlearn


class Fairlearn:
    """fairlearn's methods for one parity on the rows of all owners in one place, fitted once for all gaps.

    ExponentiatedGradient is told which owner a row is of (`control_features`), so that its bound holds at each;
    ThresholdOptimizer and GridSearch know no owners. It and ThresholdOptimizer, which moves the thresholds of the
    groups, decide by chance: their rates are expected values.
    """

    def __init__(
        self, train: Tables, parity: Parity, gaps: Sequence[float], *, iterations: int = 50, grid: int = 75
    ) -> None:
        self.train = train
        self.table = pool(train)
        self.parity = parity
        self.plain = self._learner().fit(self.table.X, self.table.y)
        self.grid = self._timed(self._grid_search(grid))
        self.gradients = {}
        control: dict[str, Any] = {}
        if len(train) > 1:
            control["control_features"] = owner_of_each_row(train)
        for gap in gaps:
            self.gradients[gap] = self._timed(self._exponentiated_gradient(gap, iterations), **control)

    def methods(self, gap: float) -> dict[str, Method]:
        """Name -> method. They ignore the rows they are given: the fits are made."""
        return {
            "fairlearn ThresholdOptimizer (randomized)": lambda train: self._threshold_optimizer(gap),
            "fairlearn ExponentiatedGradient (randomized)": lambda train: self._randomized(gap),
            "fairlearn ExponentiatedGradient, heaviest": lambda train: self._heaviest(gap),
            "fairlearn, best single model visited": lambda train: self._best_visited(gap),
        }

    def _learner(self) -> LogisticRegression:
        return logistic_regression(len(self.table.y))

    def _moment(self, **bound: float) -> Any:
        reductions = import_fairlearn().reductions
        moments = {
            "demographic_parity": reductions.DemographicParity,
            "equal_opportunity": reductions.TruePositiveRateParity,
            "equalized_odds": reductions.EqualizedOdds,
        }
        return moments[self.parity](**bound)

    def _exponentiated_gradient(self, gap: float, iterations: int) -> Any:
        moment = self._moment(difference_bound=difference_bound(gap, self.train, self.parity))
        return import_fairlearn().reductions.ExponentiatedGradient(self._learner(), moment, max_iter=iterations)

    def _grid_search(self, size: int) -> Any:
        return import_fairlearn().reductions.GridSearch(self._learner(), self._moment(), grid_size=size)

    def _timed(self, unfitted: Any, **features: Any) -> tuple[Any, float]:
        """The fitted model, and the seconds it took."""
        began = time.perf_counter()
        fitted = unfitted.fit(self.table.X, self.table.y, sensitive_features=group_of(self.table), **features)
        return fitted, time.perf_counter() - began

    def _threshold_optimizer(self, gap: float) -> Fitted:
        names = {"equal_opportunity": "true_positive_rate_parity"}
        constraint = names.get(self.parity, self.parity)
        tolerance = None
        if self.parity != "equalized_odds":  # for which it has none
            tolerance = gap
        optimizer = import_fairlearn().postprocessing.ThresholdOptimizer(
            estimator=self.plain, constraints=constraint, prefit=True, predict_method="predict_proba", tol=tolerance
        )
        model, seconds = self._timed(optimizer)

        def decide(owner: str, rows: Table) -> Vector:
            return np.asarray(model._pmf_predict(rows.X, sensitive_features=group_of(rows))[:, 1], dtype=np.float64)

        return Fitted(decide, seconds=seconds)

    def _randomized(self, gap: float) -> Fitted:
        model, seconds = self.gradients[gap]
        return Fitted(deciding(lambda X: model._pmf_predict(X)[:, 1]), seconds=seconds)

    def _heaviest(self, gap: float) -> Fitted:
        """The one model that the randomized rule asks most often."""
        model, seconds = self.gradients[gap]
        return Fitted(deciding(model.predictors_[model.weights_.idxmax()].predict), seconds=seconds)

    def _best_visited(self, gap: float) -> Fitted:
        """Of all single models that the reductions fitted, the most accurate one whose training gap holds.

        As for fedpact's rules a gap holds when it is at most the bound and one row's worth, at every owner.
        """
        rules = [deciding(model.predict) for model in self._visited()]
        held = [rule for rule in rules if gaps_hold(rule, self.train, self.parity, gap)]
        if not held:
            raise FedpactError(f"none of the {len(rules)} models that fairlearn visited has gaps of at most {gap:g}")
        best = max(held, key=lambda rule: count(rule, self.train).accuracy)
        seconds = self.grid[1] + sum(spent for _, spent in self.gradients.values())
        return Fitted(best, seconds=seconds, note=f"{len(held)} of {len(rules)} models visited hold the gap")

    def _visited(self) -> list[Any]:
        grid, _ = self.grid
        visited = list(grid.predictors_)
        for model, _ in self.gradients.values():
            visited.extend(model.predictors_)
        return visited


def difference_bound(gap: float, tables: Tables, parity: Parity) -> float:
    """What ExponentiatedGradient must be told for gaps between two groups of at most `gap`.

    It bounds the difference between a group's rate and that of all rows. Of two groups the smaller one, with the share
    p, differs most: by 1 - p times the gap.
    """
    larger_shares = []
    for table in tables.values():
        for groups in cells_of(table, parity):
            sizes = [len(rows) for rows in groups]
            larger_shares.append(max(sizes) / sum(sizes))
    return gap * min(larger_shares)


def import_fairlearn() -> Any:
    """fairlearn with its parts, which is loaded when it is needed only. Raises FedpactError where it is absent."""
    try:
        import fairlearn
        import fairlearn.postprocessing
        import fairlearn.reductions
    except ImportError as error:
        raise FedpactError(f"the package fairlearn is not installed; {install('bench')}") from error
    return fairlearn
