"""What tasks share that train a linear classifier: its loss, its scores, and how right it is by class."""

from __future__ import annotations

import numpy as np

from fedpact.functions import Function, LogisticLoss, SoftmaxLoss, Vector
from fedpact.tasks.checks import Labels, Matrix


def mean_loss(X: Matrix, y: Labels, classes: int) -> Function:
    """Logistic loss for two classes (w has an entry a column), cross entropy for more (a row of columns a class)."""
    return LogisticLoss(X, y) if classes == 2 else SoftmaxLoss(X, y, classes)


def scores(w: Vector, X: Matrix, classes: int) -> Matrix:
    """(rows, classes); with two classes the first one's are zero."""
    if classes == 2:
        return np.column_stack([np.zeros(len(X)), X @ w])
    return np.asarray(X @ w.reshape(classes, X.shape[1]).T)


def losses(score: Matrix, label: int) -> Vector:
    """Of every row, if its class were `label`."""
    top = score.max(axis=1)
    return np.asarray(np.log(np.exp(score - top[:, None]).sum(axis=1)) + top - score[:, label])


def margins(score: Matrix, label: int) -> Vector:
    """By how much `label` leads the best of the other classes; above zero it is predicted.

    A tie goes to the first class, so for all but class 0 zero is not enough.
    """
    return np.asarray(score[:, label] - np.delete(score, label, axis=1).max(axis=1))
