"""Fair classification as a game: the model against votes that go to the owners with the largest losses. iFedDR (6.1)

The problem, with v_i the vote of owner i (the votes average one) and l_i its mean cross entropy:

    min_u  max_{v >= 0, sum_i v_i = n}   (1/n) sum_i v_i l_i(u) + weight/2 |u|^2 - smoothing/(2 n) |v|^2

which is n times (6.1) with v = n times the paper's. The simplex is the server's; an owner's own iterates leave it, and
for v_i < 0 the function v_i l_i(u) is concave in u: not monotone, so no theory applies. There is no smooth remedy that
leaves v_i l_i(u) as it is for v_i >= 0: a continuation that is concave in v lies below v_i l_i(u) for v_i < 0, hence
falls to minus infinity wherever the loss grows, forth and back along a line; a function that is convex in u cannot.
(With max(v_i, 0) in the place of v_i it is convex in u, but no longer concave in v.)

So every owner may move its own vote, to w >= 0, at a price:

    f_i(u, v) = max_{w >= 0}  w l_i(u) - penalty/2 (w - v_i)^2        attained at w = max(v_i + l_i(u) / penalty, 0)

As a maximum of convex functions of u it is convex in u; as the Moreau envelope of a concave function of w it is concave
and smooth in v: monotone everywhere. Where w > 0 it is v_i l_i + l_i^2 / (2 penalty), so the votes that count are
v_i + l_i / penalty: with the default penalty of 100, a loss of 1 counts as one hundredth of an average vote more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedpact.functions import Function, Saddle, SoftmaxLoss
from fedpact.problem import MinimaxProblem, Share
from fedpact.prox import Simplex
from fedpact.tasks import checks
from fedpact.tasks.regression import Features, class_accuracies, count_classes
from fedpact.types import Matrix, Vector


class VotedLoss(Saddle):
    """(1/n) times: f_i(u, v) + weight/2 |u|^2 - smoothing/(2 n) |v|^2, for owner number `own` of n.

    loss: l_i, a convex Function of u that is never negative
    """

    def __init__(
        self, loss: Function, own: int, owners: int, *, weight: float, smoothing: float, penalty: float
    ) -> None:
        assert loss.dim is not None
        self.loss = loss
        self.own = own
        self.owners = owners
        self.weight = weight
        self.smoothing = smoothing / owners
        self.penalty = penalty
        jacobian = self._jacobian if loss.has_hessian else None
        super().__init__(self._value_and_gradients, loss.dim, jacobian, loss.dim + owners)

    def vote(self, u: Vector, v: Vector) -> float:
        """w: the vote that counts."""
        return self._vote(self.loss.value(u), v)

    def _vote(self, loss: float, v: Vector) -> float:
        return max(float(v[self.own]) + loss / self.penalty, 0.0)

    def _value_and_gradients(self, u: Vector, v: Vector) -> tuple[float, Vector, Vector]:
        loss, slope = self.loss.value_and_gradient(u)
        vote = self._vote(loss, v)
        moved = vote - v[self.own]
        value = vote * loss - self.penalty / 2 * moved**2 + self.weight / 2 * (u @ u) - self.smoothing / 2 * (v @ v)
        by_u = vote * slope + self.weight * u
        by_v = -self.smoothing * v
        by_v[self.own] += self.penalty * moved
        return value / self.owners, by_u / self.owners, by_v / self.owners

    def _jacobian(self, x: Vector) -> Matrix:
        m = self.split
        i = m + self.own
        u = x[:m]
        v = x[m:]
        loss, slope = self.loss.value_and_gradient(u)
        vote = self._vote(loss, v)
        matrix = np.diag(np.repeat([self.weight, self.smoothing], [m, v.size]))
        if vote > 0:
            matrix[:m, :m] += vote * self.loss.hessian(u) + np.outer(slope, slope) / self.penalty
            matrix[:m, i] += slope
            matrix[i, :m] -= slope
        else:
            matrix[i, i] += self.penalty
        return matrix / self.owners

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Jacobian times v without forming it: models have thousands of coordinates."""
        m = self.split
        i = m + self.own
        u = w[:m]
        loss, slope = self.loss.value_and_gradient(u)
        vote = self._vote(loss, w[m:])
        product = np.concatenate([self.weight * v[:m], self.smoothing * v[m:]])
        if vote > 0:
            along = slope @ v[:m]
            product[:m] += vote * self.loss.hessian_product(u, v[:m]) + slope * (along / self.penalty + v[i])
            product[i] -= along
        else:
            product[i] += self.penalty * v[i]
        return product / self.owners

    def defect(self) -> str | None:
        return self.loss.defect()


def fair_classification(
    owners: Mapping[str, tuple[Features, ArrayLike]],
    classes: int | None = None,
    *,
    weight: float = 1e-5,
    smoothing: float = 0.1,
    penalty: float = 100.0,
) -> MinimaxProblem:
    """The softmax model whose worst owners, weighted by votes, do best; the answer is w = (u, v).

    owners:    name -> (X, y), X rows x d, dense or scipy sparse, y in {0, ..., classes - 1}
    classes:   None takes one more than the largest label of all owners
    weight:    of the squared norm of u
    smoothing: delta of iFedDR (6.1): the larger, the more equal the votes; zero gives all votes to the worst
    penalty:   for an owner that moves its own vote; the larger, the nearer to (6.1) and the harder the local problems

    u is the (classes, d) matrix of the model row by row, v one vote per owner; see `worst_class_accuracy`.

    Raises:
        DataError: missing values, other labels, different numbers of columns, no owners.
        OptionError: a negative weight or smoothing, a penalty that is not positive.
    """
    checks.owner_tables(owners, ("X", "y"))
    matrices = checks.read_matrices(owners)
    number = classes or count_classes(owners)
    shares = [
        fair_classification_share(
            matrices[name],
            y,
            classes=number,
            own=i,
            owners=len(owners),
            name=name,
            weight=weight,
            smoothing=smoothing,
            penalty=penalty,
        )
        for i, (name, (_, y)) in enumerate(owners.items())
    ]
    return MinimaxProblem(shares, maximizer=Simplex(len(owners)))


def fair_classification_share(
    X: Features,
    y: ArrayLike,
    *,
    classes: int,
    own: int,
    owners: int,
    name: str,
    weight: float = 1e-5,
    smoothing: float = 0.1,
    penalty: float = 100.0,
) -> Share:
    """One owner's share, from its own rows; it is number `own` (from 0) of `owners`. Built where the data is."""
    matrix = checks.data(name, X)
    labels = checks.check_codes(name, "label", y, matrix.shape[0], classes)
    checks.check_nonnegative("weight", weight)
    checks.check_nonnegative("smoothing", smoothing)
    checks.check_positive("penalty", penalty)
    loss = SoftmaxLoss(matrix, labels, classes)
    return Share(VotedLoss(loss, own, owners, weight=weight, smoothing=smoothing, penalty=penalty), name=name)


def worst_class_accuracy(w: ArrayLike, X: Features, y: ArrayLike, classes: int) -> float:
    """The smallest share of rows that the model puts into their class, over the classes that have rows."""
    return float(np.nanmin(class_accuracies(w, X, y, classes)))
