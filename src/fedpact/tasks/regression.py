"""Linear classifiers: logistic regression for two classes, softmax regression for more, and what their scores say.

A model of two classes has a coefficient per column; one of more lists its (classes, d) matrix row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.functions import Function, LogisticLoss, SoftmaxLoss
from fedpact.functions.arrays import Data
from fedpact.problem import FederatedProblem, Share
from fedpact.tasks import checks
from fedpact.tasks.checks import Labels
from fedpact.types import Matrix, Vector

#: A table of features, dense or sparse.
Features = ArrayLike | sp.sparray | sp.spmatrix

# -------------------------------------------------------------------------------------------------------- linear models


def mean_loss(
    X: Data, y: Labels, classes: int, weight: Vector | None = None, rows: NDArray[np.bool_] | None = None
) -> Function:
    """Mean logistic loss for two classes, mean cross entropy for more; `weight` of the rows, all the same when None.

    rows: which of the owner's rows these are; all of them when None
    """
    loss = LogisticLoss(X, y, weight) if classes == 2 else SoftmaxLoss(X, y, classes, weight)
    return loss if rows is None else loss.of_rows(np.flatnonzero(rows))


def scores(w: Vector, X: Matrix, classes: int) -> Matrix:
    """Scores of every row, (rows, classes); with two classes those of the first are zero."""
    if classes == 2:
        return np.column_stack([np.zeros(X.shape[0]), X @ w])
    return np.asarray(X @ w.reshape(classes, X.shape[1]).T)


def losses(score: Matrix, label: int) -> Vector:
    """The loss of every row, if its class were `label`."""
    top = score.max(axis=1)
    normalizer = np.log(np.exp(score - top[:, None]).sum(axis=1)) + top
    return np.asarray(normalizer - score[:, label])


def margins(score: Matrix, label: int) -> Vector:
    """By how much `label` leads the best of the other classes; above zero it is predicted.

    A tie goes to the first class, so for all but class 0 zero is not enough.
    """
    return np.asarray(score[:, label] - np.delete(score, label, axis=1).max(axis=1))


def class_accuracies(w: ArrayLike, X: Features, y: ArrayLike, classes: int) -> Matrix:
    """Accuracy of the softmax model w on the rows of each class; NaN for a class without rows.

    w: what follows the model in it (the votes of `fair_classification`) is ignored
    """
    matrix = checks.data("test", X)
    width = matrix.shape[1]
    model = np.asarray(w, dtype=np.float64)[: classes * width].reshape(classes, width)
    labels = np.asarray(y)
    right = np.argmax(np.asarray(matrix @ model.T), axis=1) == labels
    accuracies = np.full(classes, np.nan)
    for label in range(classes):
        own = right[labels == label]
        if len(own):
            accuracies[label] = np.mean(own)
    return accuracies


# ------------------------------------------------------------------------------------------------------------- problems


class SquaredNorm(Function):
    """weight/2 |w|^2, without a matrix: it costs no more than a vector."""

    has_hessian = constant_hessian = convex = True

    def __init__(self, weight: float, dim: int) -> None:
        self.weight = weight
        self.dim = dim

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
    checks.owner_tables(owners, ("X", "y"))
    matrices = checks.read_matrices(owners, columns)
    shares = [
        logistic_regression_share(matrices[name], y, weight=weight, owners=len(owners), name=name)
        for name, (_, y) in owners.items()
    ]
    return FederatedProblem(shares)


def logistic_regression_share(X: Features, y: ArrayLike, *, weight: float, owners: int, name: str) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.data(name, X)
    labels = checks.check_codes(name, "label", _zero_for_minus_one(y), matrix.shape[0], 2)
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
    checks.owner_tables(owners, ("X", "y"))
    matrices = checks.read_matrices(owners)
    number = classes or count_classes(owners)
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
    labels = checks.check_codes(name, "label", y, matrix.shape[0], classes)
    return Share(_regularized(SoftmaxLoss(matrix, labels, classes), weight, owners), name=name)


def count_classes(owners: Mapping[str, tuple[Features, ArrayLike]]) -> int:
    """One more than the largest label of all owners, at least 2."""
    largest = [int(np.max(np.asarray(y), initial=0)) for _, y in owners.values()]
    return max(2, 1 + max(largest))


def _regularized(loss: Function, weight: float, owners: int) -> Function:
    checks.check_nonnegative("weight", weight)
    assert loss.dim is not None
    if weight > 0:
        loss = loss + SquaredNorm(weight, loss.dim)
    return (1 / owners) * loss


def _zero_for_minus_one(y: ArrayLike) -> Labels | ArrayLike:
    """Labels -1 and 1 as 0 and 1; all others as they are, to be refused with the owner's name."""
    labels = np.asarray(y)
    if np.ma.is_masked(y) or not np.all(np.isin(labels, (-1, 1))):
        return y
    return np.where(labels == -1, 0, labels)
