"""FedProx against its theory: the mean of proximal maps, its bias, and FedAvg as its limit."""

import numpy as np
import pytest
from averaging_cases import Watching, fixed_point, quadratics

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import Linear

CASE = quadratics(2)
GAMMA = 1 / CASE.lipschitz


def mean_prox(x: np.ndarray, gamma: float) -> np.ndarray:
    return np.mean([CASE.resolvent(i, gamma, x) for i in range(CASE.owners)], axis=0)


def mean_of_steps(x: np.ndarray, gamma: float, steps: int, eta: float) -> np.ndarray:
    """mean_i V_i^tau(x) by powers; V_i takes a gradient step on f_i(y) + |y - x|^2 / (2 gamma) (times N)."""
    total = np.zeros(CASE.dim)
    for i in range(CASE.owners):
        hessian = CASE.owners * CASE.A[i] + np.eye(CASE.dim) / gamma
        power = np.linalg.matrix_power(np.eye(CASE.dim) - eta * hessian, steps)
        minimiser = CASE.resolvent(i, gamma, x)
        total += minimiser + power @ (x - minimiser)
    return total / CASE.owners


@pytest.mark.parametrize(("times", "steps"), [(1, 40), (4, 120)])
def test_with_exact_solves_it_stops_at_the_fixed_point_of_the_mean_of_proximal_maps(times: int, steps: int) -> None:
    watch, gamma = Watching(), times * GAMMA
    found = fp.solve(CASE.problem(), "fedprox", gamma=gamma, steps=steps, tol=1e-6, engine=watch)
    biased = fixed_point(lambda x: mean_prox(x, gamma), CASE.dim)
    np.testing.assert_allclose(watch.iterates()[-1], biased, rtol=0, atol=1e-8)
    assert np.max(np.abs(biased - CASE.optimum())) > 0.05
    assert found.status == "stalled"
    assert (
        f"FedProx with {steps} local steps stops at a point that is not the optimum when owners differ" in found.reason
    )


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_it_stops_at_the_fixed_point_of_its_steps(steps: int) -> None:
    watch, eta = Watching(), 0.8 / (CASE.lipschitz + 1 / GAMMA)
    fp.solve(CASE.problem(), "fedprox", gamma=GAMMA, steps=steps, step_size=eta, tol=1e-12, engine=watch)
    expected = fixed_point(lambda x: mean_of_steps(x, GAMMA, steps, eta), CASE.dim)
    np.testing.assert_allclose(watch.iterates()[-1], expected, rtol=0, atol=1e-8)
    unbiased = np.max(np.abs(expected - CASE.optimum())) < 1e-10
    assert unbiased == (steps == 1)


@pytest.mark.parametrize("step_rule", ["own", "common"])
def test_a_decreasing_gamma_comes_to_the_optimum(step_rule: str) -> None:
    """Malekmohammadi et al. 2022, Theorem 1: with gamma_k -> 0 and a sum without bound there is no bias left."""
    options = {"gamma": 4 * GAMMA, "steps": 10, "step_rule": step_rule, "tol": 1e-6, "max_rounds": 150}
    fixed = fp.solve(CASE.problem(), "fedprox", **options)
    found = fp.solve(CASE.problem(), "fedprox", gamma_decay=1.0, **options)
    biased = np.linalg.norm(fixed.w - CASE.optimum())
    assert biased > 0.05
    assert np.linalg.norm(found.w - CASE.optimum()) < 0.1 * biased


def test_gamma_of_every_round() -> None:
    watch = Watching()
    fp.solve(CASE.problem(), "fedprox", gamma=2.0, gamma_decay=0.5, max_rounds=9, engine=watch)
    asked = watch.iterates("gamma")
    np.testing.assert_allclose(asked, 2.0 / np.sqrt(np.arange(1, len(asked) + 1)), rtol=1e-12)
    assert len(asked) >= 4


def test_the_bias_vanishes_with_gamma() -> None:
    ends = []
    for part in (1, 10, 100):
        watch, gamma = Watching(), GAMMA / part
        options = {"steps": 8, "step_size": 0.8 * gamma, "relaxation": part}  # as fast as with the large gamma
        fp.solve(CASE.problem(), "fedprox", gamma=gamma, tol=1e-9, engine=watch, **options)
        ends.append(np.linalg.norm(watch.iterates()[-1] - CASE.optimum()))
    # linear in gamma near zero (Malekmohammadi et al. 2022: gamma must go to zero)
    assert ends[1] < 0.2 * ends[0]
    assert ends[2] == pytest.approx(0.1 * ends[1], rel=0.1)


def test_without_the_proximal_term_it_is_fedavg() -> None:
    free, held = Watching(), Watching()
    options = {"steps": 6, "step_size": 0.5 / CASE.lipschitz, "tol": 1e-9, "max_rounds": 25}
    fp.solve(CASE.problem(), "fedavg", engine=free, **options)
    fp.solve(CASE.problem(), "fedprox", gamma=1e13, engine=held, **options)
    assert len(held.iterates()) == len(free.iterates())
    np.testing.assert_allclose(held.iterates(), free.iterates(), rtol=0, atol=1e-11)


def test_the_relaxed_server_comes_to_the_same_point() -> None:
    ends = []
    for relaxation in (0.9, 1.5):
        watch = Watching()
        fp.solve(CASE.problem(), "fedprox", steps=4, gamma=2 * GAMMA, relaxation=relaxation, tol=1e-9, engine=watch)
        ends.append(watch.iterates()[-1])
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-9)


def test_the_default_gamma_and_step_are_by_curvature() -> None:
    same = quadratics(5, owners=3)
    same.A[:] = 2 * np.eye(4)
    watch = Watching()
    found = fp.solve(same.problem(), "fedprox", max_rounds=10, tol=1e-9, engine=watch)
    order = watch.orders()[0]
    assert order.gamma == pytest.approx(1 / 6, rel=1e-12)  # F_i = 3 grad f_i has the curvature 6
    assert order.step_size == pytest.approx(1 / (1.05 * 6 + 6), rel=1e-12)  # (E.3)
    assert found.history.local[0].gamma == order.gamma


def test_with_h_it_stops_at_a_fixed_point_of_average_and_prox() -> None:
    h, watch = fp.prox.Box(-0.3, 0.3), Watching()
    fp.solve(CASE.problem(h), "fedprox", gamma=4 * GAMMA, steps=100, tol=1e-9, engine=watch)
    w = watch.iterates()[-1]
    np.testing.assert_allclose(w, h.prox(mean_prox(w, 4 * GAMMA), 4 * GAMMA), rtol=0, atol=1e-9)
    assert np.any(np.abs(w) == 0.3)
    exact = fp.solve(CASE.problem(h), "fedprox", gamma=GAMMA, steps=1, tol=1e-9)
    assert exact.status == "solved"  # one step is the projected gradient method


def test_operators_stop_at_the_fixed_point_of_the_mean_of_resolvents() -> None:
    """iFedDR, section 6.1, has FedProx on saddle problems: the steps are then those of an operator."""
    rng, gamma = np.random.default_rng(0), 0.2
    matrices = [np.eye(4) + a @ a.T + b - b.T for a, b in rng.standard_normal((3, 2, 4, 4)) / 3]
    offsets = rng.standard_normal((3, 4))
    watch = Watching()
    problem = fp.problem.MonotoneProblem([Linear(M, q) for M, q in zip(matrices, offsets, strict=True)])
    found = fp.solve(problem, "fedprox", gamma=gamma, steps=60, step_size=0.06, tol=1e-6, engine=watch)

    def mean_resolvent(x: np.ndarray) -> np.ndarray:
        pairs = zip(matrices, offsets, strict=True)
        return np.mean([np.linalg.solve(np.eye(4) + 3 * gamma * M, x - 3 * gamma * q) for M, q in pairs], axis=0)

    np.testing.assert_allclose(watch.iterates()[-1], fixed_point(mean_resolvent, 4), rtol=0, atol=1e-8)
    assert found.status == "stalled"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0}, "gamma = 0: give a number above 0"),
        ({"steps": 0.5}, "steps = 0.5: give a whole number of at least 1"),
        ({"participation": 2}, "participation = 2: give a number above 0 and at most 1"),
        ({"local_solver": "newton"}, "method 'fedprox' has no option 'local_solver'"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_fedprox_misuse(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(CASE.problem(), "fedprox", **options)
