"""What every function and every map promises, checked by one body on one list."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from fedpact.functions import (
    Affine,
    CoxLoss,
    Function,
    HuberLoss,
    LogisticLoss,
    Map,
    MeanError,
    MeanExponential,
    MeanProbability,
    NegativeBinomialDeviance,
    OfScores,
    PoissonDeviance,
    PoissonLoss,
    Quadratic,
    Smooth,
    SmoothedRate,
    SmoothedRates,
    SmoothMap,
    SoftmaxLoss,
    SquaredLoss,
    Stack,
    TwoSided,
    as_map,
    extend,
)

DIM = 6


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _symmetric(seed: int) -> np.ndarray:
    root = _random(seed, DIM, DIM)
    return root + root.T


def _sparse(array: np.ndarray) -> sp.coo_matrix:
    return sp.coo_matrix(np.where(np.abs(array) > 0.8, array, 0.0))


def rosenbrock(w: np.ndarray) -> tuple[float, np.ndarray]:
    rise = w[1:] - w[:-1] ** 2
    gradient = np.zeros(w.size)
    gradient[1:] += 2 * rise
    gradient[:-1] += -4 * rise * w[:-1] + 2 * w[:-1]
    return np.sum(rise**2) + np.sum(w[:-1] ** 2), gradient


def rosenbrock_hessian(w: np.ndarray) -> np.ndarray:
    hessian = np.diag(
        np.append(2 + 8 * w[:-1] ** 2 - 4 * (w[1:] - w[:-1] ** 2), 0.0) + np.append(0.0, np.full(DIM - 1, 2))
    )
    return hessian - np.diag(4 * w[:-1], 1) - np.diag(4 * w[:-1], -1)


def cubes(w: np.ndarray) -> tuple[list[float], sp.csr_array]:
    """(sum_j w_j^3, w_0 w_1): a list and a sparse Jacobian, as users may return."""
    cross = np.zeros(w.size)
    cross[:2] = w[1], w[0]
    return [np.sum(w**3), w[0] * w[1]], sp.csr_array(np.stack([3 * w**2, cross]))


def cubes_hessian(w: np.ndarray, weights: np.ndarray) -> np.ndarray:
    hessian = np.diag(6 * weights[0] * w)
    hessian[0, 1] = hessian[1, 0] = weights[1]
    return hessian


X = _random(1, 20, DIM)
y = (_random(2, 20) > 0).astype(int)
WEIGHT = np.abs(_random(3, 20))
X_THIN = _random(4, 15, 2)
y_THIN = np.arange(15) % 3
NUMBERS = 2 * _random(17, 20)
COUNTS = np.arange(20) % 4
OFFSET = _random(18, 20)
TIMES = np.abs(_random(24, 20))
SIGNED = _random(19, 20)
SIGNED_OF_THREE = _random(20, 15, 3)
SEVERAL = _random(21, 4, 20)
SEVERAL_OF_THREE = _random(22, 4, 15, 3)
CONSTANT = _random(23, 4)

quadratic = Quadratic(_symmetric(5), _random(6, DIM))
logistic = LogisticLoss(X, y)
smooth = Smooth(rosenbrock, rosenbrock_hessian, dim=DIM)
affine = Affine(_random(7, 2, DIM), _random(8, 2))
smooth_map = SmoothMap(cubes, cubes_hessian)
short = Quadratic([[2.0, 0.5], [0.5, -1.0]], [1.0, 2.0])

CASES: dict[str, Function | Map] = {
    "quadratic": quadratic,
    "quadratic, no b": Quadratic(_symmetric(5)),
    "quadratic, sparse": Quadratic(_sparse(_symmetric(5)), _random(6, DIM)),
    "logistic": logistic,
    "logistic, weighted": LogisticLoss(X, y, WEIGHT),
    "cox": CoxLoss(X, TIMES, y),
    "cox, tied and weighted": CoxLoss(_sparse(X), COUNTS, y, 0.1 + WEIGHT),
    "cox, Breslow": CoxLoss(X, COUNTS, y, ties="breslow"),
    "mean probability": MeanProbability(X),
    "mean probability, sparse": MeanProbability(_sparse(X)),
    "logistic, sparse": LogisticLoss(_sparse(X), y, WEIGHT),
    "softmax": SoftmaxLoss(X_THIN, y_THIN, 3),
    "softmax, sparse": SoftmaxLoss(_sparse(X_THIN), y_THIN, 3),
    "softmax, offset": SoftmaxLoss(X_THIN, y_THIN, 3, offset=np.linspace(-1, 1, 45).reshape(15, 3)),
    "softmax, weighted": SoftmaxLoss(_sparse(X_THIN), y_THIN, 3, WEIGHT[:15]),
    "logistic, offset": LogisticLoss(X, y, WEIGHT, OFFSET),
    "squared": SquaredLoss(X, NUMBERS),
    "squared, all given": SquaredLoss(_sparse(X), NUMBERS, WEIGHT, OFFSET),
    "huber": HuberLoss(X, NUMBERS),
    "huber, all given": HuberLoss(_sparse(X), NUMBERS, 0.5, WEIGHT, OFFSET),
    "poisson": PoissonLoss(X, COUNTS),
    "poisson, all given": PoissonLoss(_sparse(X), COUNTS, WEIGHT, OFFSET),
    "poisson deviance": PoissonDeviance(X, COUNTS, WEIGHT),
    "negative binomial deviance": NegativeBinomialDeviance(X, COUNTS, 0.7, WEIGHT, OFFSET),
    "mean exponential": MeanExponential(X, COUNTS, WEIGHT, OFFSET),
    "rate": SmoothedRate(X, SIGNED),
    "rate, sparse and narrow": SmoothedRate(_sparse(X), SIGNED, 0.3),
    "rate, three classes": SmoothedRate(X_THIN, SIGNED_OF_THREE, 0.7, 3),
    "rate, three classes, sparse": SmoothedRate(_sparse(X_THIN), SIGNED_OF_THREE, 0.7, 3),
    "rates": SmoothedRates(X, SEVERAL, CONSTANT, 0.5),
    "rates, sparse": SmoothedRates(_sparse(X), SEVERAL, CONSTANT),
    "rates, three classes": SmoothedRates(X_THIN, SEVERAL_OF_THREE, CONSTANT, 0.7, 3),
    "smooth": smooth,
    "smooth, no hessian": Smooth(rosenbrock),
    "sum of functions": 0.5 * logistic + (quadratic - smooth) / 3 - 0.2,
    "extended function": extend(short, DIM, start=3),
    "extended, dim told": extend(Smooth(rosenbrock), DIM, inner_dim=4),
    "affine": affine,
    "affine, no d": Affine(_random(7, 2, DIM)),
    "affine, sparse": Affine(_sparse(_random(7, 2, DIM)), _random(8, 2)),
    "smooth map": smooth_map,
    "smooth map, no hessian": SmoothMap(cubes, length=2, dim=DIM),
    "sum of maps": 2 * affine - smooth_map + np.array([1.0, -1.0]),
    "function as map": as_map(logistic),
    "two sided": TwoSided(logistic, -0.1, 0.3),
    "mean error": MeanError(X, NUMBERS, 0.3, WEIGHT),
    "gap": TwoSided(logistic - LogisticLoss(X, 1 - y), -0.1, 0.3),
    "stack of means": Stack([logistic, MeanError(X, NUMBERS, 0.3)]) - 0.1,
    "stack": Stack([affine, logistic, smooth_map]),
    "of scores": OfScores(smooth_map, _random(9, DIM, DIM)),
    "of scores, offset": OfScores(Stack([affine, logistic]), _random(9, DIM, DIM), _random(10, DIM)),
    "extended map": extend(Stack([short, Affine([[1.0, 2.0]])]), DIM, start=1),
}


@dataclass
class Scalar:
    """A function, or a map weighted to one: then a wrong entry of any row shows, as the weights are generic."""

    case: Function | Map
    weights: np.ndarray

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        if isinstance(self.case, Function):
            return self.case.value_and_gradient(w)
        value, jacobian = self.case.value_and_jacobian(w)
        assert jacobian.shape == (value.size, w.size)
        return float(self.weights @ value), jacobian.T @ self.weights

    def value(self, w: np.ndarray) -> float:
        return self.case.value(w) if isinstance(self.case, Function) else float(self.weights @ self.case.value(w))

    def hessian(self, w: np.ndarray) -> np.ndarray:
        if isinstance(self.case, Function):
            return self.case.hessian(w)
        return self.case.weighted_hessian(w, self.weights)

    def hessian_product(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        if isinstance(self.case, Function):
            return self.case.hessian_product(w, v)
        return self.case.weighted_hessian_product(w, self.weights, v)


def _central(change: object, w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivative of `change` by central differences, one row for each coordinate of w."""
    return np.array([(change(w + step * e) - change(w - step * e)) / (2 * step) for e in np.eye(w.size)])


@pytest.mark.parametrize("name", CASES)
def test_contract(name: str) -> None:
    case = CASES[name]
    w, other, v = _random(10, DIM), _random(11, DIM), _random(12, DIM)
    for point in (w, other, v):
        point.setflags(write=False)  # a function that writes into its argument fails here
    length = 1 if isinstance(case, Function) else case.value(w).size
    scalar = Scalar(case, _random(13, length))

    value, gradient = scalar.value_and_gradient(w)
    assert case.dim in (DIM, None)
    assert isinstance(case, Function) or case.length in (length, None)
    assert gradient.shape == (DIM,)
    assert gradient.dtype == np.float64
    assert scalar.value(w) == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(gradient, _central(scalar.value, w), rtol=1e-7, atol=1e-8)
    derivative = case.gradient(w) if isinstance(case, Function) else case.jacobian(w).T @ scalar.weights
    np.testing.assert_array_equal(derivative, gradient)

    expanded, derivative, curvature = case.expand(w)
    np.testing.assert_array_equal(expanded, case.value(w) if isinstance(case, Map) else value)
    np.testing.assert_array_equal(derivative, case.gradient(w) if isinstance(case, Function) else case.jacobian(w))
    if case.has_hessian:
        hessian = scalar.hessian(w)
        again = curvature() if isinstance(case, Function) else curvature(scalar.weights)
        np.testing.assert_array_equal(again, hessian)
        np.testing.assert_allclose(
            hessian, _central(lambda at: scalar.value_and_gradient(at)[1], w), rtol=1e-7, atol=1e-8
        )
        np.testing.assert_array_equal(hessian, hessian.T)
        np.testing.assert_allclose(scalar.hessian_product(w, v), hessian @ v, rtol=1e-12, atol=1e-12)
        if isinstance(case, Function) and case.constant_hessian:
            np.testing.assert_array_equal(hessian, scalar.hessian(other))
    else:
        with pytest.raises(TypeError, match="has no Hessian"):
            scalar.hessian(w)
    if isinstance(case, Map) and case.affine:
        np.testing.assert_array_equal(case.jacobian(w), case.jacobian(other))

    assert case.defect() is None
    assert len(repr(case)) < 80
    assert type(case).__name__ in repr(case)
    # Engines send functions to other processes, and calls must leave no trace.
    copy = Scalar(pickle.loads(pickle.dumps(case)), scalar.weights)
    for again in (scalar, copy):
        assert again.value_and_gradient(w)[0] == value
        np.testing.assert_array_equal(again.value_and_gradient(w)[1], gradient)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_matrix])
@pytest.mark.parametrize(
    "make",
    [
        lambda data: Quadratic(data(X.T @ X), X[0]),
        lambda data: LogisticLoss(data(X), y, WEIGHT),
        lambda data: SquaredLoss(data(X), NUMBERS, WEIGHT),
        lambda data: HuberLoss(data(X), NUMBERS, 0.5, WEIGHT, OFFSET),
        lambda data: PoissonLoss(data(X), COUNTS, WEIGHT, OFFSET),
        lambda data: SoftmaxLoss(data(X_THIN), y_THIN, 3),
        lambda data: SmoothedRate(data(X_THIN), SIGNED_OF_THREE, 0.7, 3),
        lambda data: SmoothedRates(data(X), SEVERAL, CONSTANT, 0.5),
        lambda data: as_map(Affine(data(X), WEIGHT)),
    ],
    ids=["quadratic", "logistic", "squared", "huber", "poisson", "softmax", "rate", "rates", "affine"],
)
def test_dense_equals_sparse(make: object, kind: object) -> None:
    dense, sparse = make(lambda a: a), make(kind)
    weights = _random(14, getattr(dense, "length", None) or 1)
    w, v = _random(15, DIM), _random(16, DIM)
    one, two = Scalar(dense, weights), Scalar(sparse, weights)
    assert one.value(w) == pytest.approx(two.value(w), rel=1e-13)
    np.testing.assert_allclose(one.value_and_gradient(w)[1], two.value_and_gradient(w)[1], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(one.hessian(w), two.hessian(w), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(one.hessian_product(w, v), two.hessian_product(w, v), rtol=1e-12, atol=1e-13)


def test_hessian_and_jacobian_handed_out_cannot_be_overwritten() -> None:
    w = np.zeros(DIM)
    for matrix in (quadratic.hessian(w), affine.jacobian(w)):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 1.0


def test_the_given_matrix_may_change_afterwards() -> None:
    A, b = np.eye(2), np.ones(2)
    function, map_ = Quadratic(A, b), Affine(A, b)
    A[0, 0], b[0] = 100.0, 100.0
    assert function.value(np.ones(2)) == 3.0
    np.testing.assert_array_equal(map_.value(np.ones(2)), [2.0, 2.0])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case, Function)])
def test_what_rows_add_is_the_gradient_and_their_weights_are_one(name: str) -> None:
    case = CASES[name]
    assert isinstance(case, Function)
    w = 0.3 * _random(31, case.dim or DIM)
    rows = case.contributions(w)
    if rows is None:
        pytest.skip("it is not known what rows add")
    assert sum(one.weight.sum() for one in rows) == pytest.approx(len(rows))
    together = sum(one.gradient.sum(axis=0) for one in rows)
    np.testing.assert_allclose(together, case.gradient(w), atol=1e-12)
    for one in rows:
        assert np.abs(one.centre().gradient.sum(axis=0)).max() < 1e-12
        assert abs(one.centre().value.sum()) < 1e-12


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case, Map)])
def test_what_rows_add_to_a_map_is_its_jacobian(name: str) -> None:
    case = CASES[name]
    assert isinstance(case, Map)
    w = 0.3 * _random(32, case.dim or DIM)
    rows = case.contributions(w)
    if rows is None:
        pytest.skip("it is not known what rows add")
    jacobian = case.jacobian(w)
    for slope, each in zip(jacobian, rows, strict=True):
        np.testing.assert_allclose(sum(one.gradient.sum(axis=0) for one in each), slope, atol=1e-12)
