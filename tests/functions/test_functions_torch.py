"""Losses of PyTorch modules as functions: derivatives, the same as our own, errors, and a network that is trained."""

from __future__ import annotations

import pickle
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from networks import assert_derivatives, hospitals
from raising import raises_code

import fedpact as fp
from fedpact import data
from fedpact.functions import LogisticLoss, from_torch, parameters_from_torch, parameters_to_torch
from fedpact.functions.torch_adapter import outputs_from_torch

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

pytestmark = pytest.mark.extras
cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
rng = np.random.default_rng(0)
X, y = rng.standard_normal((25, 3)), rng.integers(0, 2, 25).astype(float)


def loss(outputs, targets):
    return cross_entropy(outputs.squeeze(-1), targets)


def network(width: int = 4, inputs: int = 3, seed: int = 0, outputs: int = 1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(inputs, width), torch.nn.Tanh(), torch.nn.Linear(width, outputs))


def test_derivatives_are_those_of_finite_differences():
    net = network()
    assert_derivatives(from_torch(net, loss, (X, y)), parameters_from_torch(net) + 0.1)


@pytest.mark.parametrize("rows", [0, 1, 20_000])  # none, one, and more than pass through the module together
def test_outputs_are_those_of_double_precision_whatever_the_module_has(rows):
    net = network(outputs=2)
    w = parameters_from_torch(net) + 0.1
    inputs = np.resize(X, (rows, 3))
    A, a, B, b = w[:12].reshape(4, 3), w[12:16], w[16:24].reshape(2, 4), w[24:]
    expected = np.tanh(inputs @ A.T + a) @ B.T + b
    found = outputs_from_torch(net, w, inputs)
    assert found.shape == (rows, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}  # it was copied
    np.testing.assert_array_equal(parameters_from_torch(net), parameters_from_torch(network(outputs=2)))


def test_the_same_network_written_by_hand_gives_the_same_value():
    net = network()
    w = parameters_from_torch(net)
    A, a, b, c = w[:12].reshape(4, 3), w[12:16], w[16:20], w[20]  # the documented order
    score = np.tanh(X @ A.T + a) @ b + c
    by_hand = np.mean(np.logaddexp(0, score) - y * score)
    assert from_torch(net, loss, (X, y)).value(w) == pytest.approx(by_hand, rel=1e-14)


def test_several_classes_and_whole_number_targets():
    classes = rng.integers(0, 3, 25)
    net = torch.nn.Linear(3, 3, bias=False)
    function = from_torch(net, torch.nn.functional.cross_entropy, (torch.tensor(X), torch.tensor(classes)))
    w = rng.standard_normal(9)
    ours = fp.functions.SoftmaxLoss(X, classes, 3)
    assert function.value(w) == pytest.approx(ours.value(w), rel=1e-13)
    np.testing.assert_allclose(function.gradient(w), ours.gradient(w), rtol=1e-12, atol=1e-15)


def test_a_linear_module_is_our_logistic_loss():
    """Values, derivatives, and the answer of a constrained problem."""
    tables = [(A, t.astype(float)) for A, t in data.neyman_pearson(n=3, rows=40, d=3, seed=0).values()]
    linear = torch.nn.Linear(3, 1, bias=False)

    def problem(make):
        shares = [
            fp.Share(
                make(A[t == 0], t[t == 0]) / 3,
                fp.Constraint(make(A[t == 1], t[t == 1]) - 0.3, fp.cones.Nonnegative(1)),
            )
            for A, t in tables
        ]
        return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))

    theirs = from_torch(linear, loss, tables[0])
    ours = LogisticLoss(*tables[0])
    w, v = rng.standard_normal(3), rng.standard_normal(3)
    assert theirs.value(w) == pytest.approx(ours.value(w), rel=1e-14)
    np.testing.assert_allclose(theirs.gradient(w), ours.gradient(w), rtol=1e-13)
    np.testing.assert_allclose(theirs.hessian(w), ours.hessian(w), rtol=1e-12)
    np.testing.assert_allclose(theirs.hessian_product(w, v), ours.hessian(w) @ v, rtol=1e-12)
    expected = fp.solve(problem(LogisticLoss), tol=1e-8)
    for hessian in (True, False):
        found = fp.solve(problem(lambda A, t, h=hessian: from_torch(linear, loss, (A, t), hessian=h)), tol=1e-8)
        assert found.method == ("interior-point" if hessian else "accelerated")
        assert found.solved
        np.testing.assert_allclose(found.w, expected.w, atol=1e-6)
        np.testing.assert_allclose(np.concatenate(found.multipliers), np.concatenate(expected.multipliers), atol=1e-5)


def test_a_constrained_network_is_trained():
    net = network(6, 2)
    before = parameters_from_torch(net)
    shares = []
    for A, t in hospitals(2, rows=80):
        miss = from_torch(net, loss, (A[t == 1], t[t == 1]))
        other = from_torch(net, loss, (A[t == 0], t[t == 0]))
        shares.append(fp.Share(0.5 * other, fp.Constraint(miss - 0.3, fp.cones.Nonnegative(1))))
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))
    answer = fp.solve(problem)  # from the parameters of the module
    assert not np.allclose(answer.w, 0.0, atol=0.1)
    assert answer.solved
    assert "stationary and feasible, not known to be globally optimal" in answer.reason
    assert fp.certify(problem, answer.w, answer.multipliers).meets((1e-3, 1e-3))
    np.testing.assert_array_equal(parameters_from_torch(net), before)  # the module did not change
    parameters_to_torch(answer.w, net)
    with torch.no_grad():
        for share, (A, t) in zip(shares, hospitals(2, rows=80), strict=True):
            written = loss(net(torch.tensor(A[t == 1], dtype=torch.float32)), torch.tensor(t[t == 1]).float())
            assert float(written) == pytest.approx(share.constraint.function.value(answer.w)[0] + 0.3, abs=1e-5)
            assert float(written) <= 0.3 + 1e-3


def test_the_example_keeps_its_promise(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "neural_network.py"), run_name="__main__")
    printed = capsys.readouterr().out
    rows = [[float(number) for number in line.split()[2:]] for line in printed.splitlines() if line[:8] == "hospital"]
    assert len(rows) == 5
    for before, after, bound, _, recall, price in rows:
        assert before > bound  # the constraint asks for something
        assert after <= bound + 1e-3
        assert price == 0 or after >= bound - 1e-3
        assert recall >= 0.8
    assert "\nsolved: " in printed


def test_frozen_parameters_stay_and_are_no_part_of_w():
    net = network()
    net[0].weight.requires_grad_(False)
    function = from_torch(net, loss, (X, y))
    assert function.dim == parameters_from_torch(net).size == 21 - 12
    kept = net[0].weight.detach().clone()
    parameters_to_torch(np.arange(9.0), net)
    assert torch.equal(net[0].weight, kept)
    np.testing.assert_array_equal(net[0].bias.detach().numpy(), [0, 1, 2, 3])
    np.testing.assert_array_equal(net[2].weight.detach().numpy(), [[4, 5, 6, 7]])


def test_functions_are_sent_and_shared():
    """Pickled, called from several threads at once, and added up: always the same bits."""
    net = network()
    function = from_torch(net, loss, (X, y))
    points = [rng.standard_normal(21) for _ in range(40)]
    expected = [function.gradient(w) for w in points]
    copy = pickle.loads(pickle.dumps(function))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(function.gradient, points))
    for one, other, w in zip(expected, found, points, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, copy.gradient(w))
        np.testing.assert_allclose((0.5 * function + function - 0.2).gradient(w), 1.5 * one, rtol=1e-14)


def test_engines_agree():
    net = network(3, 2)
    shares = [fp.Share(from_torch(net, loss, table)) for table in hospitals(2, rows=30)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))
    alone, threads = (fp.solve(problem, w0=parameters_from_torch(net), engine=e) for e in (None, "threads"))
    assert alone.solved
    np.testing.assert_array_equal(alone.w, threads.w)


def test_modules_with_statistics_and_dropout_are_taken_in_eval_mode_only():
    normal = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    dropped = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
    seed = torch.get_rng_state()
    with raises_code("FP-PROBLEM-181", "", "module.eval()"):
        from_torch(normal, loss, (X, y))
    with raises_code("FP-PROBLEM-180", "", "module.eval()"):
        from_torch(dropped, loss, (X, y))
    assert torch.equal(seed, torch.get_rng_state())
    assert float(normal[0].num_batches_tracked) == 0
    w = np.array([0.5, 1.0, 2.0, 0.1])
    assert from_torch(dropped.eval(), loss, (X, y)).value(w) == pytest.approx(
        from_torch(dropped[1], loss, (X, y)).value(w), rel=1e-15
    )
    assert from_torch(normal.eval(), loss, (X, y)).dim == 3 + 3 + 4


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda net: from_torch(lambda x: x, loss, (X, y)), "FP-PROBLEM-173", ["from_torch: got function"]),
        (lambda net: from_torch(net, loss, X), "FP-PROBLEM-174", ["", "(inputs, targets)"]),
        (lambda net: from_torch(net, loss, (X[:, :2], y)), "FP-PROBLEM-176", ["", "RuntimeError", "torch.float64"]),
        (lambda net: from_torch(net, lambda o, t: o, (X, y)), "FP-PROBLEM-177", ["", "shape (25, 1)"]),
        (lambda net: from_torch(net, lambda o, t: 1.0, (X, y)), "FP-PROBLEM-177", ["", "float"]),
        (lambda net: from_torch(net, lambda o, t: o.sum().float(), (X, y)), "FP-PROBLEM-179", ["", "torch.float32"]),
        (lambda net: from_torch(net, lambda o, t: t.sum(), (X, y)), "FP-PROBLEM-178", []),
        (lambda net: from_torch(net, loss, (X, y.astype(str))), "FP-PROBLEM-150", ["from_torch: targets ", "<U"]),
        (lambda net: from_torch(net.requires_grad_(False), loss, (X, y)), "FP-PROBLEM-175", []),
        (lambda net: parameters_to_torch(np.zeros(3), net), "FP-PROBLEM-153", ["w has shape (3,)", "(21,)"]),
    ],
)
def test_misuse_is_told(make, code, facts):
    with raises_code(code, *facts):
        make(network())


def test_missing_values_are_told_with_the_owner():
    bad = X.copy()
    bad[4, 1] = np.nan
    share = fp.Share(from_torch(network(), loss, (bad, y)), name="north")
    with raises_code("FP-DATA-100", "north: objective ", "inputs has 1 ", "row 4"):
        fp.FederatedProblem([share])


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with raises_code("FP-OPTION-101", "", "pip install '.[torch]'"):
        from_torch(None, loss, (X, y))


def test_a_mean_over_rows_has_minibatches():
    net = network()
    w = parameters_from_torch(net) + 0.1
    whole = from_torch(net, loss, (X, y))
    assert whole.rows == 25
    drawn = np.array([3, 17, 4])
    part = from_torch(net, loss, (X[drawn], y[drawn]))
    np.testing.assert_allclose(whole.batch(drawn).gradient(w), part.gradient(w), rtol=1e-13)
    np.testing.assert_allclose(whole.batch(drawn).hessian(w), part.hessian(w), rtol=1e-12, atol=1e-15)
    singles = [whole.batch(np.array([i])).gradient(w) for i in range(25)]
    np.testing.assert_allclose(np.mean(singles, axis=0), whole.gradient(w), rtol=1e-12, atol=1e-16)


def test_losses_row_by_row_are_their_mean():
    def each(outputs, targets):
        return cross_entropy(outputs.squeeze(-1), targets, reduction="none")

    net = network()
    w = parameters_from_torch(net)
    function = from_torch(net, each, (X, y))
    assert function.rows == 25
    assert function.value(w) == pytest.approx(from_torch(net, loss, (X, y)).value(w), rel=1e-14)


def test_what_is_no_mean_over_rows_has_no_minibatches():
    function = from_torch(network(), lambda outputs, targets: loss(outputs, targets) ** 2, (X, y))
    assert function.rows == 0
    with pytest.raises(TypeError):
        function.batch(np.array([0]))


def test_float32_computes_in_pieces_and_sums_in_float64(monkeypatch):
    net = network()
    w = parameters_from_torch(net) + 0.1
    exact = from_torch(net, loss, (X, y))
    monkeypatch.setattr("fedpact.functions.torch_adapter.PIECE", 7)
    function = from_torch(net, loss, (X, y), dtype="float32")
    value, gradient = function.value_and_gradient(w)
    assert gradient.dtype == np.float64
    assert value == pytest.approx(exact.value(w), rel=1e-6)
    assert function.value(w) == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(gradient, exact.gradient(w), rtol=1e-4, atol=1e-7)
    pieces = from_torch(net, loss, (X, y))
    np.testing.assert_allclose(pieces.gradient(w), exact.gradient(w), rtol=1e-13, atol=1e-17)
    with raises_code("FP-OPTION-881"):
        from_torch(net, loss, (X, y), dtype="float16")


def test_fedavg_draws_minibatches_of_a_network():
    shares = [fp.Share(from_torch(network(), loss, (X[i::3], y[i::3])) / 3) for i in range(3)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2))
    start = parameters_from_torch(network())
    answer = fp.solve(problem, "fedavg", batch_size=4, step_size=0.1, max_rounds=50, seed=1)
    again = fp.solve(problem, "fedavg", batch_size=4, step_size=0.1, max_rounds=50, seed=1)
    np.testing.assert_array_equal(answer.w, again.w)
    assert answer.objective < sum(share.objective.value(start) for share in shares)
