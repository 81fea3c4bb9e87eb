"""What `fedpact bench` measures: the problems of He24 for any number of owners, each also as a pooled problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpact import data, tasks
from fedpact.cones import Nonnegative
from fedpact.errors import FedpactError, install
from fedpact.functions import LogisticLoss, Stack
from fedpact.problem import Constraint, FederatedProblem, Share
from fedpact_experiments import datasets

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

BOUND = 0.2  # on the class-1 loss, as in He24, Section 5.1
MAX_GAP = 0.1  # between the losses of two groups, as in He24, Section 5.2

#: Options of "proximal-al" in the experiments of He24, by family.
PAPER_NEYMAN_PEARSON = {"penalty": 300.0, "consensus_penalty": 0.01, "accuracy": 1e-3}
PAPER_LCQP = {"penalty": 10.0, "consensus_penalty": 1.0, "accuracy": 0.1}
# differs from He24's text (penalty 10, consensus_penalty 1e8, accuracy 0.001): with 1e8 the model hardly moves in a
# round; these are the values of the authors' script.
PAPER_FAIRNESS = {"penalty": 50.0, "consensus_penalty": 0.1, "accuracy": 0.01}


class Conic(NamedTuple):
    """A cvxpy problem, its variable, and its constraints in the order of the multipliers: server first, if it has."""

    problem: Any
    w: Any
    constraints: list[Any]


@dataclass(frozen=True, eq=False)
class Instance:
    """One problem with its number of owners.

    paper:   the options of "proximal-al" in the paper
    conic:   the pooled problem for cvxpy; None when it is not convex
    pooled:  the same problem in the hands of one owner who has all rows; None where nothing asks for it
    optimum: the exact optimal value where a formula gives it
    """

    name: str
    problem: FederatedProblem
    paper: Mapping[str, float]
    conic: Callable[[], Conic] | None = None
    pooled: Callable[[], FederatedProblem] | None = None
    optimum: float | None = None

    @property
    def owners(self) -> int:
        return len(self.problem.shares)

    @property
    def dim(self) -> int:
        assert self.problem.dim is not None
        return self.problem.dim

    def __str__(self) -> str:
        return f"{self.name}, n = {self.owners}, d = {self.dim}"


def cvxpy() -> Any:
    """The module; FedpactError says how to get it."""
    try:
        import cvxpy as module
    except ImportError as error:
        raise FedpactError(f"the pooled reference needs cvxpy; {install('bench')}") from error
    return module


# ----------------------------------------------------------------------------------------------------- Neyman-Pearson


def neyman_pearson(name: str, owners: Mapping[str, Rows]) -> Instance:
    problem = tasks.neyman_pearson(owners, BOUND)
    zeros, ones = ([X[y == label] for X, y in owners.values()] for label in (0, 1))

    def conic() -> Conic:
        cp = cvxpy()
        w = cp.Variable(problem.dim)
        cost = sum(cp.sum(cp.logistic(X @ w)) / len(X) for X in zeros) / len(zeros)
        constraints = [cp.sum(cp.logistic(-X @ w)) / len(X) <= BOUND for X in ones]
        return Conic(cp.Problem(cp.Minimize(cost), constraints), w, constraints)

    def pooled() -> FederatedProblem:
        # One stacked loss, since that is what somebody who has all rows would write: fewer, larger products.
        weight = np.concatenate([np.full(len(X), 1 / len(X)) for X in zeros])
        X = np.vstack(zeros)
        bounds = Stack([s.constraint.function for s in problem.shares if s.constraint is not None])
        held = Share(LogisticLoss(X, np.zeros(len(X)), weight), Constraint(bounds, Nonnegative(len(ones))), name="all")
        return FederatedProblem([held])

    return Instance(name, problem, PAPER_NEYMAN_PEARSON, conic, pooled)


def synthetic(n: int, folder: str | None, seed: int, d: int = 21) -> Instance:
    return neyman_pearson("synthetic", data.neyman_pearson(n, d=d, seed=seed))


def table(name: str, load: Callable[[str | None], data.Table], n: int, folder: str | None, seed: int) -> Instance:
    """A data set, standardized, with intercept, dealt to n owners with the same class ratios."""
    rows = load(folder)
    X = data.with_intercept(data.standardize(rows.X))
    folds = data.stratified(rows.y, n, seed, drop_remainder=True)
    return neyman_pearson(name, {f"owner {i}": (X[fold], rows.y[fold]) for i, fold in enumerate(folds, 1)})


# --------------------------------------------------------------------------------------------- fairness and quadratics


def fairness(n: int, folder: str | None, seed: int) -> Instance:
    """adult-b: the training rows are dealt to the owners, the server holds the test rows for its own constraint."""
    both = datasets.adult_b(folder)
    parts = [both.clients.select(fold) for fold in data.stratified(both.clients.y, n, seed)]
    owners = {f"owner {i}": _triple(part) for i, part in enumerate(parts, 1)}
    return Instance("adult-b", tasks.group_fairness(owners, _triple(both.server), MAX_GAP), PAPER_FAIRNESS)


def _triple(part: data.Table) -> tuple[Any, Any, Any]:
    return part.X, part.y, part.group


def lcqp(n: int, folder: str | None, seed: int) -> Instance:
    """One equality a holder and d = 100, as the smallest of He24's Table 4; d = 2 (n + 1) when that is more.

    d = n + 1 would do for a solution to exist, but would leave nothing to choose.
    """
    arrays = data.lcqp(n, max(100, 2 * (n + 1)), 1, seed)

    def conic() -> Conic:
        cp = cvxpy()
        w = cp.Variable(arrays.A.shape[1])
        cost = cp.quad_form(w, cp.psd_wrap(arrays.A.sum(axis=0))) / 2 + arrays.b.sum(axis=0) @ w
        constraints = [C @ w + d == 0 for C, d in zip(arrays.C, arrays.d, strict=True)]
        return Conic(cp.Problem(cp.Minimize(cost), constraints), w, constraints)

    optimum = tasks.exact(*arrays).objective
    return Instance("lcqp", tasks.linear_qp(*arrays), PAPER_LCQP, conic, optimum=optimum)


#: name -> (owners, folder of the data or None, seed) -> Instance; DataError when the data is missing or too small.
NEYMAN_PEARSON: dict[str, Callable[[int, str | None, int], Instance]] = {
    "synthetic": synthetic,
    "breast-cancer-wisc": partial(table, "breast-cancer-wisc", datasets.breast_cancer_wisconsin),
    "monks-1": partial(table, "monks-1", datasets.monks1),
    "adult": partial(table, "adult", datasets.adult_a),
}
PROBLEMS = {**NEYMAN_PEARSON, "adult-b": fairness, "lcqp": lcqp}
