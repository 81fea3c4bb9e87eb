"""Every estimator on one small table of people; a new estimator is one more line of `ESTIMATORS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedpact as fp
from fedpact import data, tasks

ROWS, TOL, WEIGHT, BOUND = 240, 1e-6, 0.01, 0.3
GAP = 0.05


def made() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns in units of their own, labels, groups for which columns and labels differ, and two clients."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, ROWS)
    client = rng.choice(["north", "east"], ROWS, p=[0.6, 0.4])
    X = rng.normal(size=(ROWS, 4)) + 0.7 * group[:, None]
    y = (X @ [1.0, -1.0, 0.5, 0.7] + 0.8 * group + rng.logistic(size=ROWS) > 0.7).astype(int)
    return X * [1, 100, 0.01, 5] + [0, 1000, 3, -2], y, np.array(["f", "m"])[group], client


X, Y, GROUP, CLIENT = made()
CLIENTS = ("east", "north")  # as they are sorted
PARTIES = {"bank": X[:, :2], "shop": X[:, 2:]}


def standardized(table: np.ndarray) -> np.ndarray:
    return (table - table.mean(axis=0)) / table.std(axis=0)


@dataclass(frozen=True, eq=False)
class EstimatorCase:
    """An estimator, what it is fitted to, and the same problem stated without it.

    table:       its first argument to fit and predict
    metadata:    the other ones of fit
    problem:     what it solves, for fp.certify
    multipliers: the prices of that problem, from `multipliers_` of a fitted model
    sklearn:     does scikit-learn's own check_estimator apply?
    """

    kind: Callable[..., Any]
    table: Any
    metadata: dict[str, np.ndarray]
    problem: Callable[[], fp.FederatedProblem]
    multipliers: Callable[[Any], list[Any]]
    parameters: dict[str, Any] = field(default_factory=dict)
    sklearn: bool = True

    @property
    def name(self) -> str:
        return self.kind.__name__

    def make(self, **parameters: Any) -> Any:
        return self.kind(**{"tol": TOL, **self.parameters, **parameters})

    def fit(self, **parameters: Any) -> Any:
        return self.make(**parameters).fit(self.table, Y, **self.metadata)


# ---------------------------------------------------------------------------------------------- the problems themselves


def regularizer() -> fp.prox.SquaredL2:
    return fp.prox.SquaredL2(np.array([WEIGHT] * 4 + [0.0]))


def neyman_pearson() -> fp.FederatedProblem:
    Z = data.with_intercept(standardized(X))
    owners = {name: (Z[name == CLIENT], Y[name == CLIENT]) for name in CLIENTS}
    return tasks.neyman_pearson(owners, BOUND, regularizer())


def neyman_pearson_prices(model: Any) -> list[Any]:
    return [None, *([model.multipliers_[name]] for name in CLIENTS)]


def fair() -> fp.FederatedProblem:
    Z = data.with_intercept(standardized(X))
    members = (GROUP == "m").astype(int)
    owners = {name: tuple(part[name == CLIENT] for part in (Z, Y, members)) for name in CLIENTS}
    return tasks.group_fairness(owners, max_gap=GAP, regularizer=regularizer())


def fair_prices(model: Any) -> list[Any]:
    """A price is of the side on which the gap is: m above f, or f above m."""
    losses = -np.log(model.predict_proba(X)[np.arange(ROWS), Y])
    prices = [None]
    for name in CLIENTS:
        first, second = (losses[(name == CLIENT) & (g == GROUP)].mean() for g in ("f", "m"))
        price = model.multipliers_[name]["f - m"]
        prices.append([price, 0.0] if second > first else [0.0, price])
    return prices


def vertical() -> fp.FederatedProblem:
    parties = {name: standardized(columns) for name, columns in PARTIES.items()}
    return fp.VerticalProblem(parties, Y, GROUP, GAP, regularizer=fp.prox.SquaredL2(WEIGHT)).pooled()


def vertical_prices(model: Any) -> list[Any]:
    losses = -np.log(model.predict_proba(PARTIES)[:, 1])
    first, second = (losses[(Y == 1) & (g == GROUP)].mean() for g in ("f", "m"))
    (price,) = model.multipliers_.values()
    return [[price, 0.0] if first > second else [0.0, price], None]


ESTIMATORS = [
    EstimatorCase(
        fp.NeymanPearsonClassifier,
        X,
        {"client": CLIENT},
        neyman_pearson,
        neyman_pearson_prices,
        {"bound": BOUND, "regularization": WEIGHT},
    ),
    EstimatorCase(
        fp.FairClassifier,
        X,
        {"client": CLIENT, "group": GROUP},
        fair,
        fair_prices,
        {"max_gap": GAP, "regularization": WEIGHT},
    ),
    EstimatorCase(
        fp.FairVerticalClassifier,
        PARTIES,
        {"group": GROUP},
        vertical,
        vertical_prices,
        {"max_gap": GAP, "weight": WEIGHT},
        sklearn=False,
    ),
]
