"""A classifier that treats groups alike at every client, with scikit-learn's methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError
from fedpact.estimators.horizontal import HorizontalClassifier, by_name, levels
from fedpact.tasks import GroupFairness, Rows
from fedpact.tasks.base import bound_for
from fedpact.tasks.group_fairness import Parity


class FairClassifier(HorizontalClassifier):
    """The least loss, with the gap between any two groups bounded at every client.

    Logistic regression for two classes, softmax for more (`fedpact.tasks.group_fairness`).

    max_gap:        one number, or one by client
    parity:         what may differ by max_gap between groups: the mean "loss"; the mean probability of the second class
                    ("demographic_parity"), or that over rows of this class ("equal_opportunity")
    regularization: weight of |w|^2 / 2, over all but the intercept
    standardize:    train on columns of mean 0 and deviation 1 over all clients; only sums leave a client for this
    method, tol, max_rounds, engine, secure_sum, seed: of fp.solve

    After fit: classes_, groups_, coef_ and intercept_ (in the units of X), solution_, certificate_, history_, model_
    (which can be saved), and by client bounds_, gaps_ and multipliers_ (by pair of groups: how far apart they are, and
    the price, what one unit more of max_gap would save), measures_ (rows, accuracy, rates by group).
    """

    def __init__(
        self,
        max_gap: float | Mapping[Any, float] = 0.1,
        *,
        parity: Parity = "loss",
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
        self.max_gap = max_gap
        self.parity = parity
        self.regularization = regularization
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.method = method
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.secure_sum = secure_sum
        self.seed = seed

    def fit(
        self, X: ArrayLike, y: ArrayLike, *, group: ArrayLike | None = None, client: ArrayLike | None = None
    ) -> Self:
        """group: one label a row, two groups or more; client: who holds each row; None: one client holds all.

        Without group nothing is bounded, and a warning says so: scikit-learn's tools call fit(X, y) alone.
        Raises DataError or OptionError for bad tables and parameters, FedpactError when no certified model was found.
        """
        matrix, codes = self._table(X, y)
        if group is None:
            warnings.warn(
                "FairClassifier.fit without group: no gap is bounded, this is plain logistic regression; give "
                "group=, one label a row (through a Pipeline or a search: set_fit_request(group=True))",
                UserWarning,
                stacklevel=2,
            )
            self.groups_ = np.zeros(0)
            clients = self._by_client(matrix, codes, client)
        else:
            self.groups_, which = levels("group", group, len(matrix))
            if self.groups_.size < 2:
                raise DataError(f"group: all rows are of group {self.groups_[0]!s}; a gap needs two groups or more")
            clients = self._by_client(matrix, codes, client, which)
            self._check_groups(clients)
        task = GroupFairness(
            bound=by_name("max_gap", self.max_gap, clients),
            columns=self._columns(),
            regularization=self.regularization,
            group="(group)",  # no name that a column has
            intercept=self.fit_intercept,
            classes=tuple(map(str, self.classes_)),
            groups=("0", "1") if group is None else tuple(map(str, self.groups_)),
            parity=self.parity,
            standardize=self.standardize,
            constrained=group is not None,
        )
        found = self._train(task, clients)
        pairs = [f"{a} - {b}" for a, b in combinations(self.groups_, 2)]
        assert isinstance(found.task, GroupFairness)
        self.bounds_ = {name: bound_for(found.task.bound, name) for name in clients} if pairs else {}
        prices = zip(clients, self.solution_.multipliers[1:], strict=True)
        self.multipliers_ = {name: _by_pair(pairs, price) for name, price in prices if pairs}
        self.gaps_ = {name: _by_pair(pairs, found.values[name] + bound) for name, bound in self.bounds_.items()}
        self.measures_ = {
            name: {self._named(key): value for key, value in told.items()} for name, told in found.measures.items()
        }
        return self

    def _check_groups(self, clients: Mapping[str, Rows]) -> None:
        for name, rows in clients.items():
            for g, label in enumerate(self.groups_):
                inside = rows.group == g
                of = ""
                if self.parity == "equal_opportunity":
                    inside, of = inside & (rows.y == 1), f" and of class {self.classes_[1]!s}"
                if not np.any(inside):
                    raise DataError(
                        f"client {name!r}: no row among {len(rows.y)} is of group {label!s}{of}, so that its mean is "
                        "undefined: give it more data, merge it with another client, or leave it out"
                    )

    def _named(self, key: str) -> str:
        """A measure's name with the group's label in the place of its number."""
        what, of, number = key.rpartition(" of group ")
        return f"{what}{of}{self.groups_[int(number)]}" if of else key


def _by_pair(pairs: list[str], two_sided: Any) -> dict[str, float]:
    """Of every pair of groups the larger of the values of its two sides."""
    return {pair: float(two_sided[2 * k : 2 * k + 2].max()) for k, pair in enumerate(pairs)}
