"""Classification without constraints: logistic regression for two classes, softmax regression for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.functions import Function, LogisticLoss, SoftmaxLoss, Vector
from fedpact.functions.arrays import Data
from fedpact.problem import FederatedProblem, Share
from fedpact.tasks import checks
from fedpact.tasks.checks import Labels, Matrix

#: A table of features, dense or sparse.
Features = ArrayLike | sp.sparray | sp.spmatrix


class SquaredNorm(Function):
    """weight/2 |w|^2, without a matrix: it costs no more than a vector."""

    has_hessian = constant_hessian = convex = True

    def __init__(self, weight: float, dim: int) -> None:
        self.weight, self.dim = weight, dim

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return float(self.weight / 2 * (w @ w)), self.weight * w

    def hessian(self, w: Vector) -> Matrix:
        return self.weight * np.eye(w.size)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.weight * v


def logistic_regression(
    owners: Mapping[str, tuple[Features, ArrayLike]], weight: float = 0.0, *, columns: Sequence[str] | None = None
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_i(w) + weight/2 |w|^2, loss_i the mean logistic loss of owner i's rows.

    The squared norm is a part of every share, so that the owners' functions are strongly convex.

    owners:  name -> (X, y), X rows x d, dense or scipy sparse (give it an intercept column if the model shall have
             one), y in {0, 1} or in {-1, 1}
    columns: names of the columns of X, used in error messages

    Raises:
        DataError: missing values, other labels, different numbers of columns, no owners.
        OptionError: a negative weight.
    """
    matrices = _matrices(owners, columns)
    shares = [
        logistic_regression_share(matrices[name], y, weight=weight, owners=len(owners), name=name)
        for name, (_, y) in owners.items()
    ]
    return FederatedProblem(shares)


def logistic_regression_share(X: Features, y: ArrayLike, *, weight: float, owners: int, name: str) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.data(name, X)
    labels = checks.binary(name, "label", _zero_for_minus_one(y), matrix.shape[0], both=False)
    return Share(_regularized(LogisticLoss(matrix, labels), weight, owners), name=name)


def softmax_regression(
    owners: Mapping[str, tuple[Features, ArrayLike]], classes: int | None = None, weight: float = 0.0
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_i(w) + weight/2 |w|^2, loss_i the mean cross entropy of owner i's rows.

    w lists the (classes, d) matrix of the linear model row by row.

    owners:  name -> (X, y), X rows x d, dense or scipy sparse, y in {0, ..., classes - 1}
    classes: None takes one more than the largest label of all owners

    Raises:
        DataError, OptionError: as `logistic_regression`.
    """
    matrices = _matrices(owners, None)
    number = class_number(owners) if classes is None else classes
    shares = [
        softmax_regression_share(matrices[name], y, classes=number, weight=weight, owners=len(owners), name=name)
        for name, (_, y) in owners.items()
    ]
    return FederatedProblem(shares)


def softmax_regression_share(
    X: Features, y: ArrayLike, *, classes: int, weight: float, owners: int, name: str
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.data(name, X)
    labels = checks.whole(name, "label", y, matrix.shape[0], classes)
    return Share(_regularized(SoftmaxLoss(matrix, labels, classes), weight, owners), name=name)


def class_accuracies(w: ArrayLike, X: Features, y: ArrayLike, classes: int) -> Matrix:
    """Of each class, the share of its rows that the softmax model w puts there; NaN for a class without rows.

    w: the (classes, d) matrix row by row; what follows it (the votes of `fair_classification`) is not looked at
    """
    matrix = checks.data("test", X)
    model = np.asarray(w, dtype=np.float64)[: classes * matrix.shape[1]].reshape(classes, matrix.shape[1])
    right = np.argmax(np.asarray(matrix @ model.T), axis=1) == np.asarray(y)
    rows = [right[np.asarray(y) == label] for label in range(classes)]
    return np.array([np.mean(own) if len(own) else np.nan for own in rows])


def class_number(owners: Mapping[str, tuple[Features, ArrayLike]]) -> int:
    """One more than the largest label of all owners, at least 2."""
    return max(2, 1 + max(int(np.max(np.asarray(y), initial=0)) for _, y in owners.values()))


def _matrices(owners: Mapping[str, tuple[Features, ArrayLike]], columns: Sequence[str] | None) -> dict[str, Data]:
    checks.owner_tables(owners, ("X", "y"))
    matrices = {name: checks.data(name, X, columns) for name, (X, _) in owners.items()}
    checks.same_columns(matrices)
    return matrices


def _regularized(loss: Function, weight: float, owners: int) -> Function:
    checks.check_nonnegative("weight", weight)
    assert loss.dim is not None
    return (1 / owners) * (loss + SquaredNorm(weight, loss.dim) if weight > 0 else loss)


def _zero_for_minus_one(y: ArrayLike) -> Labels | ArrayLike:
    labels = np.asarray(y)
    if np.ma.is_masked(y):
        return y  # refused with the owner's name
    return np.where(labels == -1, 0, labels) if np.all(np.isin(labels, (-1, 1))) else y
