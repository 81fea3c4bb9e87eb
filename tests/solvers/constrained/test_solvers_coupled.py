"""Coupled constraints of any cone, whose slacks stay with their owners: against conic solvers on pooled data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pooled
import pytest
from raising import raises_code
from watched_session import Watching

import fedpact as fp
from fedpact.cones import PSD, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SmoothMap, as_map
from fedpact.problem import add_slack, decouple, insert_slack
from fedpact.tasks import Classification, Requirement, Rows

METHODS = ("interior-point", "accelerated", "proximal-al")
FIRST_ORDER = ("accelerated", "proximal-al")
SLOWER = pytest.param("proximal-al", marks=pytest.mark.slow)
TOL = 1e-7
D = 3


def elsewhere(problem: fp.FederatedProblem) -> fp.RemoteProblem:
    """The same problem, as the coordinator of owners elsewhere has it."""
    sources = {share.label: share for share in problem.shares}
    return fp.RemoteProblem(sources, problem.server, problem.regularizer)


# ------------------------------------------------------------------------------------------------------------ any cone


class Conic(NamedTuple):
    cone: fp.cones.Cone
    length: int
    state: Callable[[cp.Expression], list[cp.Constraint]]  # -value lies in the cone
    price: Callable[[list[cp.Constraint]], np.ndarray]


def _second_order(value: cp.Expression) -> list[cp.Constraint]:
    return [cp.SOC(-value[0], -value[1:])]


def _second_order_price(limits: list[cp.Constraint]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in limits[0].dual_value])


def _psd(value: cp.Expression) -> list[cp.Constraint]:
    root = np.sqrt(2)  # svec of a 2 x 2 matrix: (a, sqrt 2 b, c)
    matrix = cp.bmat([[-value[0], -value[1] / root], [-value[1] / root, -value[2]]])
    return [matrix >> 0]


CONES = {
    "orthant": Conic(Nonnegative(2), 2, lambda v: [v <= 0], lambda limits: limits[0].dual_value),
    "equality": Conic(Zero(2), 2, lambda v: [v == 0], lambda limits: limits[0].dual_value),
    "second order": Conic(SecondOrder(3), 3, _second_order, _second_order_price),
    "semidefinite": Conic(PSD(2), 3, _psd, lambda limits: fp.cones.svec(limits[0].dual_value)),
    "product": Conic(
        Product([Zero(1), Nonnegative(1)]),
        2,
        lambda v: [v[0] == 0, v[1] <= 0],
        lambda limits: np.array([float(limit.dual_value) for limit in limits]),
    ),
}


def conic_problem(conic: Conic) -> tuple[fp.FederatedProblem, np.ndarray, np.ndarray, np.ndarray]:
    """Three owners, the second without a part, and the data of their affine maps A_i w + b_i."""
    rng = np.random.default_rng(11)
    A = rng.standard_normal((3, conic.length, D))
    b = rng.standard_normal((3, conic.length)) + 0.5
    goals = rng.standard_normal((3, D))
    own = fp.Constraint(Affine(np.ones((1, D)), [-2.0]), Nonnegative(1))
    shares = []
    for i in range(3):
        coupled: dict[str, Any] = {}
        if i != 1:
            coupled = {"coupled": Affine(A[i], b[i]), "coupled_cone": conic.cone}
        shares.append(fp.Share(Quadratic(np.eye(D), -goals[i]), own if i == 1 else None, name=f"bank {i}", **coupled))
    return fp.FederatedProblem(shares), A[[0, 2]].sum(axis=0), b[[0, 2]].sum(axis=0), goals.sum(axis=0)


@pytest.mark.parametrize("method", ["interior-point", "accelerated", SLOWER])
@pytest.mark.parametrize("name", CONES)
def test_every_cone_has_the_optimum_and_the_price_of_a_conic_solver(name: str, method: str) -> None:
    conic = CONES[name]
    problem, A, b, goal = conic_problem(conic)
    w = cp.Variable(D)
    limits = conic.state(A @ w + b)
    value = pooled.solved(1.5 * cp.sum_squares(w) - goal @ w, [*limits, cp.sum(w) <= 2])
    price = np.ravel(conic.price(limits))
    assert np.max(np.abs(price)) > 0.01, "it binds, or this test says nothing"
    tol = 1e-5 if method == "proximal-al" else TOL
    found = fp.solve(elsewhere(problem), method, tol=tol)
    assert found.status == "solved"
    assert found.objective == pytest.approx(value, abs=100 * tol)
    np.testing.assert_allclose(found.w, w.value, atol=1e-4)
    np.testing.assert_allclose(found.coupled_multiplier, price, atol=1e-3)
    assert fp.certify(problem, found.w, found.multipliers, found.coupled_multiplier) == found.certificate


@pytest.mark.parametrize("method", ["interior-point", "accelerated"])
def test_a_coupled_constraint_in_a_cone_that_is_not_symmetric(method: str) -> None:
    """exp(w) <= 2 as -(w, 1, 2) in the exponential cone, in parts of two owners: w = log 2 where w wants to be 5."""
    rows = np.array([[-0.5], [0.0], [0.0]])
    shares = [
        fp.Share(Quadratic(np.eye(1), [-5.0]), coupled=Affine(rows, [0.0, -0.5, -1.0]), coupled_cone=Exponential())
        for _ in range(2)
    ]
    found = fp.solve(fp.FederatedProblem(shares), method, tol=1e-6)
    assert found.status == "solved"
    assert found.w[0] == pytest.approx(np.log(2), abs=1e-5)


def test_cones_must_fit_and_agree() -> None:
    part = Affine(np.eye(3))
    with raises_code("FP-PROBLEM-254", "north: "):
        fp.Share(coupled=part, coupled_cone=SecondOrder(2), name="north")
    with raises_code("FP-PROBLEM-255", "north: "):
        fp.Share(Quadratic(np.eye(3)), coupled_cone=SecondOrder(3), name="north")
    shares = [
        fp.Share(coupled=part, coupled_cone=SecondOrder(3), name="north"),
        fp.Share(coupled=part, name="south"),
    ]
    with raises_code("FP-PROBLEM-256", "south: ", "north"):
        fp.FederatedProblem(shares)


def test_convexity_is_that_of_the_map_with_its_cone() -> None:
    curved = as_map(Quadratic(np.eye(2)))
    assert fp.FederatedProblem([fp.Share(coupled=curved)]).convex
    assert not fp.FederatedProblem([fp.Share(coupled=curved, coupled_cone=Zero(1))]).convex
    assert fp.FederatedProblem([fp.Share(coupled=Affine(np.eye(2)), coupled_cone=Zero(2))]).convex


# ------------------------------------------------------------------------------------------- functions without Hessians


def detections(bound: float = 0.3, hessians: bool = False) -> tuple[fp.FederatedProblem, list[Any]]:
    """Neyman-Pearson over all owners together: the mean loss of the events of all is at most `bound`."""
    rng = np.random.default_rng(3)
    tables = []
    shares = []
    for i in range(3):
        X = rng.normal(size=(40, 5)) + 0.3 * i
        y = (X[:, 0] + rng.normal(size=40) > 0.3 * i).astype(float)
        tables.append((X, y))
    events = sum(float(y.sum()) for _, y in tables)
    for i, (X, y) in enumerate(tables):
        cases = X[y == 1]
        loss = LogisticLoss(X, y)
        limit = as_map((len(cases) / events) * (LogisticLoss(cases, np.ones(len(cases))) - bound))
        if not hessians:
            loss = Smooth(loss.value_and_gradient, dim=5)
            limit = SmoothMap(limit.value_and_jacobian, dim=5, length=1)
        shares.append(fp.Share(loss, coupled=limit, name=f"clinic {i}"))
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.1)), tables


def pooled_detections(tables: list[Any], bound: float = 0.3) -> tuple[float, float]:
    """Objective and price of the same problem in one place."""
    w = cp.Variable(5)
    cases = np.vstack([X[y == 1] for X, y in tables])
    limit = pooled.logistic_mean(cases, np.ones(len(cases)), w) - bound <= 0
    losses = sum(pooled.logistic_mean(X, y, w) for X, y in tables)
    value = pooled.solved(losses + 0.05 * cp.sum_squares(w), [limit])
    return value, float(limit.dual_value)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", ["accelerated", SLOWER])
def test_neyman_pearson_of_all_without_hessians_at_owners_elsewhere(method: str, secure: bool) -> None:
    problem, tables = detections()
    value, price = pooled_detections(tables)
    assert price > 0.1
    found = fp.solve(elsewhere(problem), method, tol=1e-5, secure_sum=secure)
    assert found.status == "solved"
    assert found.objective == pytest.approx(value, abs=1e-4)
    assert found.coupled_multiplier == pytest.approx([price], rel=1e-3)


@pytest.mark.ray
def test_neyman_pearson_of_all_without_hessians_on_ray(ray_actors: Any) -> None:
    problem, tables = detections()
    value, price = pooled_detections(tables)
    found = fp.solve(elsewhere(problem), "auto", tol=1e-6, engine=ray_actors)
    assert found.status == "solved"
    assert found.method == "accelerated"
    assert found.objective == pytest.approx(value, abs=1e-5)
    assert found.coupled_multiplier == pytest.approx([price], rel=1e-4)
    here = fp.solve(elsewhere(problem), "auto", tol=1e-6)
    assert here.w.tobytes() == found.w.tobytes()
    assert here.coupled_multiplier.tobytes() == found.coupled_multiplier.tobytes()


@pytest.mark.ray
def test_recall_over_all_owners_together_on_ray(ray_actors: Any) -> None:
    """A rate of decisions that all owners hold together, by a first-order method."""
    rng = np.random.default_rng(4)
    tables = {}
    for name in ("north", "south", "west"):
        X = rng.normal(size=(80, 2))
        y = (X @ [1.0, -0.7] + rng.normal(size=80) > 0.3).astype(int)
        tables[name] = Rows(X, y)
    recall = Requirement(kind="recall", at_least=0.9, held_by="all")
    task = Classification(label="y", columns=("a", "b"), constraints=(recall,))
    found = fp.fit(task, tables, fp.Session(engine=ray_actors), method="accelerated")
    assert found.solved
    X = np.vstack([rows.X for rows in tables.values()])
    y = np.concatenate([rows.y for rows in tables.values()])
    assert isinstance(found.model, fp.tasks.Model)
    decided = found.model.scores(X)[:, 0] > 0
    assert np.mean(decided[y == 1]) >= 0.9
    assert found.solution.coupled_multiplier[0] > 0
    here = fp.fit(task, tables, method="accelerated")
    assert here.solution.w.tobytes() == found.solution.w.tobytes()


# --------------------------------------------------------------------------------------------------- who learns what


def test_an_owner_adds_its_own_slack() -> None:
    """scale c~(w, v) - s <= 0 behind its own constraint, with the private variables last."""
    own = fp.Constraint(Affine([[1.0, 0.0, 2.0]]), Nonnegative(1))
    share = fp.Share(Quadratic(np.eye(3)), own, coupled=Affine([[0.0, 3.0, 4.0]], [5.0]), private=1, name="north")
    slacked = add_slack(share, 2, scale=0.5)
    assert slacked.slack == 1
    w, s, v = np.array([1.0, 2.0]), np.array([7.0]), np.array([3.0])
    point = np.concatenate([w, s, v])
    assert slacked.constraint is not None
    np.testing.assert_array_equal(slacked.constraint.function.value(point), [7.0, 0.5 * 23.0 - 7.0])
    original, back, price = slacked.own(point, np.array([0.1, 0.2]))
    assert original is share
    np.testing.assert_array_equal(back, [1.0, 2.0, 3.0])
    assert price.tolist() == [0.1]
    np.testing.assert_array_equal(insert_slack(share, back, 0.5), [1.0, 2.0, 11.5, 3.0])
    alone = fp.Share(Quadratic(np.eye(2)))
    assert add_slack(alone, 2, 0.5) is alone


@pytest.mark.parametrize("method", FIRST_ORDER)
def test_the_server_sees_the_sum_of_the_slacks_only(method: str) -> None:
    """Messages have d + m numbers however many owners there are, all of them only summed."""
    problem, _ = detections()
    watch = Watching()
    fp.solve(problem, method, tol=1e-4, session=watch, max_rounds=40)
    step, name = {"accelerated": ("advance", "residual"), "proximal-al": ("inner", "proposal")}[method]
    rounds = watch.of(step)
    assert rounds
    for exchange in rounds:
        assert exchange.order.push.shape == (1,)
        assert getattr(exchange.replies.total, name).shape == (6,)
        assert all(getattr(reply, name) is None for reply in exchange.replies)


# ------------------------------------------------------------------------------------------------------------- conflict


@pytest.mark.parametrize("method", METHODS)
def test_a_coupled_constraint_that_conflicts_with_an_owner_is_named(method: str) -> None:
    """w <= 0 at one owner, 2 - 2 w <= 0 of all together."""
    below = fp.Constraint(Affine([[1.0]]), Nonnegative(1))
    shares = [
        fp.Share(Quadratic(np.eye(1)), below, name="north"),
        fp.Share(Quadratic(np.eye(1)), coupled=Affine([[-1.0]], [1.0]), name="south"),
        fp.Share(Quadratic(np.eye(1)), coupled=Affine([[-1.0]], [1.0]), name="west"),
    ]
    found = fp.solve(elsewhere(fp.FederatedProblem(shares)), method, tol=1e-5)
    assert found.status == "infeasible"
    assert set(found.conflict) == {"north", "coupled"}


# ---------------------------------------------------------------------------------------------------- private variables


@pytest.mark.parametrize("method", FIRST_ORDER)
def test_private_variables_in_a_coupled_constraint_of_owners_elsewhere(method: str) -> None:
    """min sum_i (w - a_i)^2/2 + v_i^2/2  s.t.  sum_i w + v_i <= 0: by hand from w's and v_i's stationarity."""
    goals = (4.0, 8.0)
    shares = [
        fp.Share(Quadratic(np.eye(2), [-goal, 0.0]), coupled=Affine([[1.0, 1.0]]), private=1, name=f"clinic {number}")
        for number, goal in enumerate(goals)
    ]
    # 2 w - 12 + 2 nu = 0, v_i = -nu, 2 w - 2 nu = 0: w = nu = 3
    problem = fp.FederatedProblem(shares)
    found = fp.solve(elsewhere(problem), method, tol=1e-6)
    assert found.status == "solved"
    assert found.w == pytest.approx([3.0], abs=1e-4)
    assert found.coupled_multiplier == pytest.approx([3.0], abs=1e-4)
    here = fp.solve(problem, method, tol=1e-6)
    assert here.private is not None
    np.testing.assert_allclose(np.concatenate(here.private), [-3.0, -3.0], atol=1e-4)
    with raises_code("FP-OPTION-114"):
        fp.solve(elsewhere(problem), "interior-point")
    assert fp.solve(elsewhere(problem), tol=1e-6).method == "accelerated"


# ------------------------------------------------------------------------------------------------------------ hand-over


@pytest.mark.parametrize("method", FIRST_ORDER)
def test_a_problem_that_was_decoupled_before_is_taken_too(method: str) -> None:
    """As it is after interior-point, which has no slacks at owners for coupled constraints of private variables."""
    problem, *_ = conic_problem(CONES["orthant"])
    exact = fp.solve(problem, "interior-point", tol=1e-8)
    found = fp.solve(decouple(problem, D), method, tol=1e-3)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, exact.w, atol=1e-2)
    np.testing.assert_allclose(found.coupled_multiplier, exact.coupled_multiplier, atol=1e-1)


def test_a_method_that_goes_on_takes_the_price_of_the_coupled_constraint() -> None:
    """From the optimum and its prices, accelerated is at rest."""
    problem, _ = detections(hessians=True)
    exact = fp.solve(problem, "interior-point", tol=1e-9)
    again = fp.solve(
        problem,
        "accelerated",
        tol=1e-5,
        w0=exact.w,
        multipliers0=exact.multipliers,
        coupled_multiplier0=exact.coupled_multiplier,
    )
    assert again.status == "solved"
    assert again.rounds <= 4
