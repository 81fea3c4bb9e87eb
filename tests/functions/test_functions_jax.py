"""Losses written in JAX as functions: derivatives, the same as our own, errors, and a network that is trained."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from marks import slow_but
from networks import assert_derivatives, hospitals
from raising import raises_code

import fedpact as fp
from fedpact import data
from fedpact.functions import LogisticLoss, from_jax, parameters_from_jax, parameters_to_jax

jax = pytest.importorskip("jax", reason="jax is not installed: pip install '.[jax]'")

pytestmark = pytest.mark.extras
jnp = jax.numpy
rng = np.random.default_rng(0)
X, y = rng.standard_normal((25, 3)), rng.integers(0, 2, 25).astype(float)


def network(width: int = 4, inputs: int = 3) -> dict[str, np.ndarray]:
    made = np.random.default_rng(1)
    return {
        "out": {"weight": made.standard_normal(width), "bias": np.zeros(())},
        "hidden": {"weight": made.standard_normal((width, inputs)), "bias": made.standard_normal(width)},
    }


def loss(params, X, y):
    hidden = jnp.tanh(X @ params["hidden"]["weight"].T + params["hidden"]["bias"])
    score = hidden @ params["out"]["weight"] + params["out"]["bias"]
    return jnp.mean(jnp.logaddexp(0, score) - y * score)


def linear(w, X, y, chosen):
    """The mean over the chosen rows; with all rows as data, tables of one size share what is compiled."""
    return jnp.sum(chosen * (jnp.logaddexp(0, X @ w) - y * (X @ w))) / jnp.sum(chosen)


def test_derivatives_are_those_of_finite_differences():
    params = network()
    assert_derivatives(from_jax(loss, (X, y), params), parameters_from_jax(params) + 0.1)


def test_the_same_network_written_by_hand_gives_the_same_value():
    params = network()
    w = parameters_from_jax(params) + 0.1
    a, A, c, b = w[:4], w[4:16].reshape(4, 3), w[16], w[17:]  # dictionaries by their sorted keys
    score = np.tanh(X @ A.T + a) @ b + c
    by_hand = np.mean(np.logaddexp(0, score) - y * score)
    assert from_jax(loss, (X, y), params).value(w) == pytest.approx(by_hand, rel=1e-14)


def test_everything_is_in_double_precision_and_the_configuration_stays():
    assert not jax.config.jax_enable_x64
    function = from_jax(linear, (X.astype(np.float32), y, y >= 0))
    w = np.full(3, 1 / 3)
    ours = LogisticLoss(X.astype(np.float32).astype(np.float64), y)
    assert function.value(w) == pytest.approx(ours.value(w), rel=1e-14)
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32


def test_a_linear_function_is_our_logistic_loss():
    """Values, derivatives, and the answer of a constrained problem."""
    tables = list(data.neyman_pearson(n=3, rows=40, d=3, seed=0).values())

    def problem(make):
        shares = [
            fp.Share(make(A, t, 0) / 3, fp.Constraint(make(A, t, 1) - 0.3, fp.cones.Nonnegative(1))) for A, t in tables
        ]
        return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))

    theirs, ours = from_jax(linear, (*tables[0], np.ones(40))), LogisticLoss(*tables[0])
    w, v = rng.standard_normal(3), rng.standard_normal(3)
    assert theirs.value(w) == pytest.approx(ours.value(w), rel=1e-14)
    np.testing.assert_allclose(theirs.gradient(w), ours.gradient(w), rtol=1e-12)
    np.testing.assert_allclose(theirs.hessian(w), ours.hessian(w), rtol=1e-12)
    np.testing.assert_allclose(theirs.hessian_product(w, v), ours.hessian(w) @ v, rtol=1e-12)
    expected = fp.solve(problem(lambda A, t, label: LogisticLoss(A, t, t == label)), tol=1e-8)
    found = fp.solve(problem(lambda A, t, label: from_jax(linear, (A, t, t == label))), tol=1e-8, w0=np.zeros(3))
    assert found.solved
    np.testing.assert_allclose(found.w, expected.w, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.multipliers), np.concatenate(expected.multipliers), atol=1e-5)


@pytest.mark.parametrize("hessian", slow_but([True, False], True))
def test_a_constrained_network_is_trained(hessian):
    params = network(4, 2)
    shares = []
    for A, t in hospitals(2, rows=80):
        classes = [from_jax(one_class, (A, t, np.array(k)), params, hessian=hessian) for k in (0, 1)]
        shares.append(fp.Share(0.5 * classes[0], fp.Constraint(classes[1] - 0.3, fp.cones.Nonnegative(1))))
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))
    answer = fp.solve(problem)  # from params
    assert answer.method == ("interior-point" if hessian else "accelerated")
    assert answer.solved, answer.reason
    assert "stationary and feasible, not known to be globally optimal" in answer.reason
    assert fp.certify(problem, answer.w, answer.multipliers).meets((1e-3, 1e-3))
    trained = parameters_to_jax(answer.w, params)
    for A, t in hospitals(2, rows=80):
        assert float(loss(trained, A[t == 1], t[t == 1])) <= 0.3 + 1e-3


def one_class(params, X, y, label):
    """The mean loss of one class."""
    chosen = y == label
    hidden = jnp.tanh(X @ params["hidden"]["weight"].T + params["hidden"]["bias"])
    score = hidden @ params["out"]["weight"] + params["out"]["bias"]
    return jnp.sum(chosen * (jnp.logaddexp(0, score) - y * score)) / jnp.sum(chosen)


def test_parameters_come_back_in_their_own_precision():
    params = {"a": jnp.ones((2, 2), jnp.float32), "b": [jnp.zeros(1, jnp.bfloat16), np.ones(2)]}
    w = parameters_from_jax(params)
    np.testing.assert_array_equal(w, [1, 1, 1, 1, 0, 1, 1])
    back = parameters_to_jax(2 * w, params)
    assert back["b"][0].dtype == jnp.bfloat16
    np.testing.assert_array_equal(back["a"], 2 * params["a"])


def test_functions_are_sent_and_shared():
    """Pickled, called from several threads at once, and added up: always the same bits."""
    function = from_jax(loss, (X, y), network())
    points = [rng.standard_normal(21) for _ in range(40)]
    expected = [function.gradient(w) for w in points]
    copy = pickle.loads(pickle.dumps(function))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(function.gradient, points))
    for one, other, w in zip(expected, found, points, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, copy.gradient(w))
        np.testing.assert_allclose((0.5 * function + function - 0.2).gradient(w), 1.5 * one, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: from_jax(loss, (X[:, :2], y), network()), "FP-PROBLEM-171", ["from_jax: ", "TypeError"]),
        (
            lambda: from_jax(lambda p, X: X * p, X, np.zeros(3)),
            "FP-PROBLEM-172",
            ["from_jax: ", "float64 of shape (25, 3)"],
        ),
        (lambda: from_jax(lambda p, X: {"loss": p}, X, np.zeros(3)), "FP-PROBLEM-172", ["from_jax: ", "dict"]),
        (lambda: from_jax(lambda p, X: jnp.int32(1), X, np.zeros(3)), "FP-PROBLEM-172", ["", "int32 of shape ()"]),
        (lambda: from_jax(loss, (X, y.astype(str)), network()), "FP-PROBLEM-150", ["from_jax: data[1] ", "<U"]),
        (lambda: from_jax(loss, (X, y), {"steps": np.arange(3)}), "FP-PROBLEM-170", ["", "int64"]),
        (lambda: parameters_to_jax(np.zeros(3), network()), "FP-PROBLEM-153", ["w has shape (3,)", "(21,)"]),
    ],
)
def test_misuse_is_told(make, code, facts):
    with raises_code(code, *facts):
        make()


def test_missing_values_are_told_with_the_owner():
    bad = X.copy()
    bad[4, 1] = np.nan
    share = fp.Share(from_jax(loss, (bad, y), network()), name="north")
    with raises_code("FP-DATA-100", "north: objective ", "data[0] has 1 ", "row 4"):
        fp.FederatedProblem([share])


def test_without_jax_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with raises_code("FP-OPTION-100", "", "pip install '.[jax]'"):
        from_jax(loss, (X, y))


@pytest.mark.parametrize("each", [False, True])
def test_a_mean_over_rows_has_minibatches(each):
    def losses(params, X, y):
        score = jnp.tanh(X @ params["a"]) @ params["b"]
        found = jnp.logaddexp(0, score) - y * score
        return found if each else found.mean()

    params = {"a": rng.standard_normal((3, 2)), "b": rng.standard_normal(2)}
    whole = from_jax(losses, (X, y), params)
    assert whole.rows == 25
    w = parameters_from_jax(params) + 0.1
    drawn = np.array([3, 17, 4])
    part = from_jax(losses, (X[drawn], y[drawn]), params)
    np.testing.assert_allclose(whole.batch(drawn).gradient(w), part.gradient(w), rtol=1e-13)
    np.testing.assert_allclose(whole.batch(drawn).hessian(w), part.hessian(w), rtol=1e-12, atol=1e-15)
    small = from_jax(losses, (X, y), params, dtype="float32")
    assert small.gradient(w).dtype == np.float64
    assert whole.rounding < abs(small.value(w) - whole.value(w)) / whole.value(w) < small.rounding
    np.testing.assert_allclose(small.gradient(w), whole.gradient(w), rtol=1e-4, atol=1e-6)


def test_what_is_no_mean_over_rows_has_no_minibatches():
    assert from_jax(lambda p, X, y: loss(p, X, y) ** 2, (X, y), network()).rows == 0
    assert from_jax(lambda p, c: jnp.sum(p * c), np.ones(3), np.zeros(3)).rows == 0
    with raises_code("FP-OPTION-882"):
        from_jax(loss, (X, y), network(), dtype="half")
