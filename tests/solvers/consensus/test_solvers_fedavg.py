"""FedAvg against its theory: gradient descent, and the fixed point of the averaged maps."""

import numpy as np
import pytest
from averaging_cases import Quadratics, Watching, fixed_point, quadratics

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import Quadratic, Smooth

CASE = quadratics(1)
ETA = 0.5 / CASE.lipschitz


def averaged(case: Quadratics, x: np.ndarray, steps: int, eta: float, ridge: float = 0.0) -> np.ndarray:
    """mean_i V_i^tau(x) by powers: V_i(x) = M_i x - eta N b_i, with the minimiser of f_i as its fixed point."""
    total = np.zeros(case.dim)
    for A, b in zip(case.A, case.b, strict=True):
        hessian = case.owners * A + ridge * np.eye(case.dim)
        minimiser = np.linalg.solve(hessian, -case.owners * b)
        power = np.linalg.matrix_power(np.eye(case.dim) - eta * hessian, steps)
        total += minimiser + power @ (x - minimiser)
    return total / case.owners


def test_one_local_step_is_gradient_descent() -> None:
    watch = Watching()
    fp.solve(CASE.problem(), "fedavg", steps=1, step_size=ETA, tol=1e-9, max_rounds=30, engine=watch)
    x = np.zeros(CASE.dim)
    for found in watch.iterates():
        np.testing.assert_allclose(found, x, rtol=0, atol=1e-13)
        x = x - ETA * (CASE.A.sum(0) @ x + CASE.b.sum(0))
    assert len(watch.orders()) == 26  # one exchange to join, one to judge the last point, two kept back for an ending


def test_one_local_step_reaches_the_optimum() -> None:
    found = fp.solve(CASE.problem(), "fedavg", steps=1, tol=1e-10)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, CASE.optimum(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("relaxation", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("steps", [2, 10])
def test_several_local_steps_stop_at_the_fixed_point_of_the_averaged_maps(steps: int, relaxation: float) -> None:
    watch = Watching()
    found = fp.solve(
        CASE.problem(), "fedavg", steps=steps, step_size=ETA, relaxation=relaxation, tol=1e-6, engine=watch
    )
    biased = fixed_point(lambda x: averaged(CASE, x, steps, ETA), CASE.dim)
    np.testing.assert_allclose(watch.iterates()[-1], biased, rtol=0, atol=1e-8)
    assert np.max(np.abs(biased - CASE.optimum())) > 0.01
    assert found.status == "stalled"
    assert (
        f"FedAvg with {steps} local steps stops at a point that is not the optimum when owners differ" in found.reason
    )
    assert found.certificate.stationarity > 1e-2
    # the best certified point is given, and on the way there may have been better ones than the last
    at_the_end = fp.certify(CASE.problem(), biased, [None] * 6).stationarity
    assert found.certificate.stationarity <= at_the_end * (1 + 1e-9)


def test_owners_that_are_alike_have_no_bias_and_gain_from_local_steps() -> None:
    same = Quadratics(np.stack([CASE.A[0]] * 4), np.stack([CASE.b[0]] * 4))
    many = fp.solve(same.problem(), "fedavg", steps=10, tol=1e-9)
    one = fp.solve(same.problem(), "fedavg", steps=1, tol=1e-9)
    for found in (many, one):
        assert found.status == "solved"
        np.testing.assert_allclose(found.w, same.optimum(), rtol=0, atol=1e-8)
    assert many.rounds < one.rounds / 3


def isotropic(sizes: list[float]) -> Quadratics:
    b = np.random.default_rng(3).standard_normal((len(sizes), 3))
    return Quadratics(np.stack([a * np.eye(3) for a in sizes]), b)


def test_steps_by_the_owners_own_curvature_are_biased_even_one_by_one() -> None:
    """With eta_i = 1 / L_i the fixed point has sum_i eta_i F_i = 0: the mean of the owners' minimisers."""
    case = isotropic([1.0, 2.0, 10.0])
    watch = Watching()
    found = fp.solve(case.problem(), "fedavg", steps=1, step_rule="own", tol=1e-6, engine=watch)
    minimisers = -case.b / np.array([[1.0], [2.0], [10.0]])
    np.testing.assert_allclose(watch.iterates()[-1], minimisers.mean(0), rtol=0, atol=1e-8)
    assert found.status == "stalled"
    assert "unequal step sizes" in found.reason


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_the_common_step_is_by_the_largest_curvature(factor: float) -> None:
    watch = Watching()
    fp.solve(isotropic([1.0, 2.0, 10.0]).problem(), "fedavg", step_factor=factor, max_rounds=10, engine=watch)
    # F_i = 3 grad f_i; the estimate is exact for multiples of the identity, and 5 % is added to it
    assert watch.orders()[0].step_size == pytest.approx(factor / (1.05 * 3 * 10), rel=1e-12)


def test_history_counts_every_owners_gradients() -> None:
    found = fp.solve(CASE.problem(), "fedavg", steps=7, max_rounds=20, tol=1e-6)
    assert [r.gradients for r in found.history.local] == [(7,) * 5] * len(found.history.local)
    assert [r.iteration for r in found.history.local] == list(range(1, len(found.history.local) + 1))
    assert all(r.alpha == 1.0 and r.refinements == 0 for r in found.history.local)
    gradient = CASE.b.sum(0)  # at w = 0, where the natural residual is its length
    assert found.history.local[0].residual == pytest.approx(np.linalg.norm(gradient), rel=1e-12)
    assert found.history.outer[0].stationarity == pytest.approx(np.max(np.abs(gradient)), rel=1e-12)
    assert sum(r.gradients for r in found.history.outer) == sum(sum(r.gradients) for r in found.history.local)


def test_running_out_of_rounds_says_that_more_would_not_help() -> None:
    found = fp.solve(CASE.problem(), "fedavg", steps=10, max_rounds=12, tol=1e-6)
    assert found.status == "max_rounds"
    assert found.rounds <= 12
    assert "12 exchanges" in found.reason
    assert "not the optimum" in found.reason


# ---------------------------------------------------------------------------------------------------- with a function h


def test_with_h_one_local_step_is_the_proximal_gradient_method() -> None:
    """min sum_i a_i/2 |w|^2 + b_i'w + t |w|_1 is solved by a soft threshold."""
    case, weight = isotropic([1.0, 2.0, 10.0]), 0.3
    found = fp.solve(case.problem(fp.prox.L1(weight)), "fedavg", steps=1, tol=1e-10)
    slope = case.b.sum(0)
    expected = -np.sign(slope) * np.maximum(np.abs(slope) - weight, 0) / 13
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, expected, rtol=0, atol=1e-8)


def test_with_h_several_steps_stop_at_a_fixed_point_of_average_and_prox() -> None:
    watch, h = Watching(), fp.prox.L1(0.2)
    found = fp.solve(CASE.problem(h), "fedavg", steps=5, step_size=ETA, tol=1e-7, engine=watch)
    w = watch.iterates()[-1]
    assert found.status == "stalled"
    np.testing.assert_allclose(w, h.prox(averaged(CASE, w, 5, ETA), 5 * ETA), rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight", [0.5, [0.5] * 4], ids=["number", "vector"])
def test_owners_take_a_quadratic_h_in_parts(weight: object) -> None:
    h = fp.prox.SquaredL2(weight)
    exact = fp.solve(CASE.problem(h), "fedavg", steps=1, tol=1e-10)
    np.testing.assert_allclose(exact.w, CASE.optimum(ridge=0.5), rtol=0, atol=1e-8)
    watch = Watching()
    fp.solve(CASE.problem(h), "fedavg", steps=4, step_size=ETA, tol=1e-9, engine=watch)
    biased = fixed_point(lambda x: averaged(CASE, x, 4, ETA, ridge=0.5), CASE.dim)
    np.testing.assert_allclose(watch.iterates()[-1], biased, rtol=0, atol=1e-8)


# ------------------------------------------------------------------------------------------------------------ bad ends


@pytest.mark.parametrize("steps", [1, 10])
def test_steps_that_are_too_long_are_a_status(steps: int) -> None:
    found = fp.solve(CASE.problem(), "fedavg", steps=steps, step_size=20 / CASE.lipschitz)
    assert found.status == "stalled"
    assert "too long for this problem; give a smaller step_size" in found.reason
    assert np.all(np.isfinite(found.w))


def steep(w: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.sum(np.exp(w**2))), 2 * w * np.exp(w**2)


def test_a_function_that_overflows_on_the_way_is_a_status() -> None:
    problem = fp.FederatedProblem([fp.Share(Smooth(steep, dim=2), name="a"), fp.Share(Smooth(steep, dim=2), name="b")])
    found = fp.solve(problem, "fedavg", steps=3, step_size=1.0, w0=[1.0, 2.0])
    assert found.status == "stalled"
    assert found.reason.startswith("the steps of a, b lead away")
    np.testing.assert_array_equal(found.w, [1.0, 2.0])


def test_an_objective_that_falls_forever_is_unbounded() -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.zeros((2, 2)), [1.0, 0.0])), fp.Share(Quadratic(np.eye(2)))])
    falling = fp.FederatedProblem([fp.Share(Quadratic(np.diag([0.0, 1.0]), [1.0, 0.0]))])
    assert fp.solve(problem, "fedavg", steps=1, tol=1e-8).status == "solved"
    assert fp.solve(falling, "fedavg", steps=1, max_rounds=2000).status == "unbounded"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2.5}, "steps = 2.5: give a whole number of at least 1"),
        ({"batch_size": 0.5}, "batch_size = 0.5: give a whole number of at least 1"),
        ({"batch_size": 4}, r"client 1: batch_size needs rows .* Quadratic\(dim=4\)"),
        ({"participation": 1.5}, "participation = 1.5: give a number above 0 and at most 1"),
        ({"step_rule": "best"}, "step_rule = 'best': choose 'common', 'own'"),
        ({"relaxation": -1}, "relaxation = -1: give a number above 0"),
        ({"seed": -1}, "seed = -1: give a whole number of at least 0"),
        ({"gamma": 1.0}, "method 'fedavg' has no option 'gamma'"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_fedavg_misuse(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(CASE.problem(), "fedavg", **options)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "feddr", "fedsplit"])
def test_constraints_are_refused_by_name(method: str) -> None:
    limit = fp.Constraint(fp.functions.Affine([[1.0, 1.0]]), fp.cones.Nonnegative(1))
    ours = [fp.Share(Quadratic(np.eye(2))), fp.Share(Quadratic(np.eye(2)), limit, name="hospital b")]
    with pytest.raises(OptionError, match=f'"{method}" takes objectives of owners .*, hospital b holds more'):
        fp.solve(fp.FederatedProblem(ours), method)
    with pytest.raises(OptionError, match=f'"{method}" takes objectives of owners .*, server holds more'):
        fp.solve(fp.FederatedProblem(ours[:1], server=fp.Share(Quadratic(np.eye(2)))), method)
