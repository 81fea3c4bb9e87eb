"""The certificate against hand-solved problems and against a few lines of NumPy written here."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import linprog

import fedpact as fp
from fedpact.cones import Nonnegative, Product, SecondOrder, Zero
from fedpact.functions import Affine, Quadratic, Smooth

EXACT = 1e-14


def two_owners() -> fp.FederatedProblem:
    """min |w|^2 - 2 w_1 - 4 w_2  s.t.  w_1 + w_2 <= 1.5 (owner b), w_1 = 0 (server): w = (0, 1.5), prices 1 and 1."""
    return fp.FederatedProblem(
        [
            fp.Share(Quadratic(np.eye(2), [-2.0, 0.0]), name="a"),
            fp.Share(
                Quadratic(np.eye(2), [0.0, -4.0]), fp.Constraint(Affine([[1.0, 1.0]], [-1.5]), Nonnegative(1)), name="b"
            ),
        ],
        server=fp.Share(None, fp.Constraint(Affine([[1.0, 0.0]]), Zero(1))),
    )


def test_a_hand_solved_qp_is_certified() -> None:
    certificate = fp.certify(two_owners(), [0.0, 1.5], [[1.0], None, [1.0]])
    assert certificate == fp.Certificate(0.0, 0.0, 0.0, {"a": 0.0, "b": 0.0, "server": 0.0})
    assert certificate.meets((1e-300, 1e-300))


@pytest.mark.parametrize(
    ("w", "multipliers", "stationarity", "feasibility", "violation"),
    [
        # the solution with other prices: the gradient misses by the price, the constraints hold
        ([0.0, 1.5], [[0.0], None, [1.0]], 1.0, 0.0, 0.0),
        ([0.0, 1.5], [[1.0], None, [3.0]], 2.0, 0.0, 0.0),
        # inside: a positive price on a constraint that is slack by 0.5 is no complementarity
        ([0.0, 1.0], [[1.0], None, [1.0]], 1.0, 0.5, 0.0),
        ([0.0, 1.0], [[2.0], None, [0.0]], 2.0, 0.0, 0.0),
        # outside, by 0.25 of the equality and 0.25 of the inequality
        ([0.25, 1.5], [[1.0], None, [1.0]], 0.5, 0.25, 0.25),
        ([-0.75, 1.5], [[-3.0], None, [0.0]], 6.5, 0.75, 0.75),
        # a negative price is outside the dual cone by 0.7; an equality's price may have any sign
        ([0.0, 1.5], [[1.0], None, [-0.7]], 1.7, 0.7, 0.0),
    ],
)
def test_points_that_are_not_optimal(
    w: list[float], multipliers: list[list[float] | None], stationarity: float, feasibility: float, violation: float
) -> None:
    certificate = fp.certify(two_owners(), w, multipliers)
    assert certificate.stationarity == pytest.approx(stationarity, abs=EXACT)
    assert certificate.feasibility == pytest.approx(feasibility, abs=EXACT)
    assert certificate.violation == pytest.approx(violation, abs=EXACT)
    assert certificate.worst == max(certificate.stationarity, certificate.feasibility)


def test_the_average_miss_is_over_those_who_hold_a_constraint() -> None:
    """At (0.25, 1.75) owner b misses by 0.5 and the server by 0.25; owner a holds none."""
    certificate = fp.certify(two_owners(), [0.25, 1.75], [[1.0], None, [1.0]])
    assert certificate.feasibility == pytest.approx(0.5, abs=EXACT)
    assert certificate.average_miss == pytest.approx(np.hypot(0.5, 0.25) / 2, abs=EXACT)
    free = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2), [-2.0, 0.0]))])
    assert fp.certify(free, [0.0, 0.0], [None, None]).average_miss == 0.0


def test_meets_takes_both_tolerances() -> None:
    certificate = fp.Certificate(1e-3, 1e-2, 0.0)
    assert certificate.meets((1e-3, 1e-2))
    assert not certificate.meets((0.9e-3, 1e-2))
    assert not certificate.meets((1e-3, 0.9e-2))
    assert not fp.Certificate(np.nan, 0.0, 0.0).meets((0.5, 0.5))


def test_a_hand_solved_lp_with_a_box() -> None:
    """min -w_1 - 2 w_2  s.t.  w_1 + w_2 <= 1, w >= 0: w = (0, 1), price 2."""
    share = fp.Share(
        Quadratic(np.zeros((2, 2)), [-1.0, -2.0]), fp.Constraint(Affine([[1.0, 1.0]], [-1.0]), Nonnegative(1))
    )
    problem = fp.FederatedProblem([share], regularizer=fp.prox.Box(0.0, np.inf))
    assert fp.certify(problem, [0.0, 1.0], [None, [2.0]]).worst == 0.0
    # the other vertex is worse: with price 1 the second coordinate, at its bound, still pulls inward by 1
    assert fp.certify(problem, [1.0, 0.0], [None, [1.0]]).stationarity == 1.0
    assert fp.certify(problem, [-0.5, 1.5], [None, [2.0]]).stationarity == np.inf


def _expected_stationarity(gradient: np.ndarray, w: np.ndarray, regularizer: fp.prox.Prox) -> float:
    """dist_inf(0, gradient + subdiff h(w)), coordinate by coordinate."""
    if isinstance(regularizer, fp.prox.L1):
        weight = regularizer.weight
        misses = [
            abs(g + weight * np.sign(x)) if x else max(abs(g) - weight, 0.0) for g, x in zip(gradient, w, strict=True)
        ]
    elif isinstance(regularizer, fp.prox.Box):
        # at lo the normal cone is (-inf, 0]: only a negative gradient remains; at hi the mirror image
        misses = [
            max(-g, 0.0) if x == regularizer.lo else max(g, 0.0) if x == regularizer.hi else abs(g)
            for g, x in zip(gradient, w, strict=True)
        ]
    else:
        misses = list(np.abs(gradient + regularizer.curvature * w))
    return max(misses)


def _expected_inequality(c: np.ndarray, mu: np.ndarray) -> float:
    return max([abs(v) if m > 0 else max(v, 0.0, -m) for v, m in zip(c, mu, strict=True)])


@pytest.mark.parametrize("regularizer", [fp.prox.Zero(), fp.prox.SquaredL2(0.3), fp.prox.L1(0.4), fp.prox.Box(-1, 1)])
@pytest.mark.parametrize("seed", range(5))
def test_any_point_against_numpy(regularizer: fp.prox.Prox, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, owners = 4, 3
    roots, b = rng.normal(size=(owners, d, d)), rng.normal(size=(owners, d))
    A = np.array([root.T @ root for root in roots])
    C, offset = rng.normal(size=(owners, 2, d)), rng.normal(size=(owners, 2))
    E, e = rng.normal(size=(1, d)), rng.normal(size=1)
    problem = fp.FederatedProblem(
        [
            fp.Share(Quadratic(A[i], b[i]), fp.Constraint(Affine(C[i], offset[i]), Nonnegative(2)))
            for i in range(owners)
        ],
        server=fp.Share(None, fp.Constraint(Affine(E, e), Zero(1))),
        regularizer=regularizer,
    )
    w = np.clip(rng.normal(size=d), -1, 1)
    w[0], w[1] = 0.0, 1.0
    # zero, positive and negative prices all occur
    mu = rng.normal(size=(owners, 2)) * rng.integers(0, 2, size=(owners, 2))
    nu = rng.normal(size=1)

    gradient = A.sum(axis=0) @ w + b.sum(axis=0) + np.einsum("ijk,ij->k", C, mu) + E.T @ nu
    values = C @ w + offset
    certificate = fp.certify(problem, w, [nu, *mu])
    assert certificate.stationarity == pytest.approx(_expected_stationarity(gradient, w, regularizer), rel=1e-12)
    feasibility = max([abs(E @ w + e)[0], *(_expected_inequality(c, m) for c, m in zip(values, mu, strict=True))])
    assert certificate.feasibility == pytest.approx(feasibility, rel=1e-12)
    by_owner = {f"client {i + 1}": max(values[i].max(), 0.0) for i in range(owners)} | {"server": abs(E @ w + e)[0]}
    assert certificate.violations == pytest.approx(by_owner, rel=1e-12)
    assert certificate.violation == max(certificate.violations.values())


# --------------------------------------------------------------------------------------------------- second-order cone

BALL = Affine([[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]], [-1.0, 0.0, 0.0])  # c(w) = -(1, w): |w| <= 1


def ball_problem() -> fp.FederatedProblem:
    """min 1/2 |w - (3, 4)|^2  s.t.  |w|_2 <= 1: w = (0.6, 0.8), price (4, -2.4, -3.2) on the cone's boundary."""
    share = fp.Share(Quadratic(np.eye(2), [-3.0, -4.0]), fp.Constraint(BALL, SecondOrder(3)))
    return fp.FederatedProblem([share])


def test_a_hand_solved_cone_problem() -> None:
    certificate = fp.certify(ball_problem(), [0.6, 0.8], [None, [4.0, -2.4, -3.2]])
    assert certificate.worst < 1e-14
    assert certificate.violation < 1e-15


def _distance_to_ray(c: np.ndarray, ray: np.ndarray) -> float:
    """min over t >= 0 of |c - t ray|_inf as a linear program in (t, delta)."""
    A = np.block([[-ray[:, None], -np.ones((3, 1))], [ray[:, None], -np.ones((3, 1))]])
    return float(linprog([0.0, 1.0], A_ub=A, b_ub=np.concatenate([-c, c]), bounds=[(0, None), (0, None)]).fun)


def _distance_to_negative_cone(c: np.ndarray, norm: float) -> float:
    s = cp.Variable(3)
    program = cp.Problem(cp.Minimize(cp.norm(c - s, norm)), [cp.norm(s[1:]) <= -s[0]])
    program.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(program.value)


@pytest.mark.parametrize("w", [[0.6, 0.8], [0.0, 1.5], [0.3, -0.2], [-2.0, 1.0], [0.0, 0.0]])
def test_a_price_on_the_boundary(w: list[float]) -> None:
    price = np.array([5.0, -3.0, 4.0])
    c = -np.array([1.0, *w])
    certificate = fp.certify(ball_problem(), w, [None, price])
    assert certificate.feasibility == pytest.approx(_distance_to_ray(c, price * [-1, 1, 1]), abs=1e-9)
    assert certificate.stationarity == pytest.approx(np.abs(np.array(w) - [3, 4] - price[1:]).max(), abs=EXACT)


@pytest.mark.parametrize("w", [[0.0, 1.5], [-2.0, 1.0], [30.0, -40.0]])
def test_no_price_outside_the_cone(w: list[float]) -> None:
    c = -np.array([1.0, *w])
    certificate = fp.certify(ball_problem(), w, [None, None])
    assert certificate.feasibility == pytest.approx(_distance_to_negative_cone(c, np.inf), rel=1e-6)
    # the violation is the max-norm of the Euclidean projection's step: half of |w| - 1 in every nonzero direction
    length = float(np.hypot(*w))
    step = (length - 1) / 2 * np.array([1.0, *(np.abs(w) / length)])
    assert certificate.violation == pytest.approx(step.max(), rel=1e-12)


def test_a_price_inside_the_dual_cone_wants_the_value_zero() -> None:
    certificate = fp.certify(ball_problem(), [0.6, 0.8], [None, [5.0, -2.4, -3.2]])
    assert certificate.feasibility == 1.0  # |c|_inf = |(-1, -0.6, -0.8)|_inf
    assert certificate.violation < 1e-15


def test_a_price_outside_the_dual_cone_counts_by_its_distance() -> None:
    # (1, 0, 5) projects to (3, 0, 3): it misses by (-2, 0, 2)
    certificate = fp.certify(ball_problem(), [0.0, -1.0], [None, [1.0, 0.0, 5.0]])
    assert certificate.feasibility == pytest.approx(2.0, abs=EXACT)


# ----------------------------------------------------------------------------------------------------------- the call


def test_none_stands_for_zero_prices() -> None:
    problem = two_owners()
    zero = fp.certify(problem, [0.2, 1.9], [[0.0], np.zeros(0), [0.0]])
    assert fp.certify(problem, [0.2, 1.9], [None, None, None]) == zero
    assert zero.violation == pytest.approx(0.6)


def test_one_number_is_a_price_of_length_one() -> None:
    assert fp.certify(two_owners(), [0.0, 1.5], [1.0, None, 1.0]).worst == 0.0


def test_several_constraints_of_one_owner_are_judged_together() -> None:
    rows = [fp.Constraint(Affine([[1.0, 0.0]], [-1.0]), Nonnegative(1)), fp.Constraint(Affine([[0.0, 1.0]]), Zero(1))]
    share = fp.Share(Quadratic(np.eye(2)), rows)
    assert isinstance(share.constraint.cone, Product)
    certificate = fp.certify(fp.FederatedProblem([share]), [3.0, -0.5], [None, [0.0, 7.0]])
    assert certificate.violations == {"client 1": 2.0}
    assert certificate.stationarity == 6.5  # (3, -0.5 + 7)


def test_the_server_may_hold_an_objective() -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(1)))], server=fp.Share(Quadratic(np.eye(1), [-4.0])))
    assert fp.certify(problem, [2.0], [None, None]).stationarity == 0.0
    assert fp.certify(problem, [1.0], [None, None]).stationarity == 2.0


def test_a_value_that_is_not_finite_is_never_certified() -> None:
    share = fp.Share(Quadratic(np.eye(2)), fp.Constraint(BALL, SecondOrder(3)))
    problem = fp.FederatedProblem([share])
    for w, price in (([np.nan, 0.0], None), ([np.inf, 0.0], None), ([0.0, 0.0], [np.nan, 0.0, 0.0])):
        with np.errstate(invalid="ignore"):
            assert not fp.certify(problem, w, [None, price]).meets((0.9, 0.9))
    broken = fp.FederatedProblem([fp.Share(Smooth(lambda w: (0.0, np.full(2, np.nan))))])
    assert not fp.certify(broken, [0.0, 0.0], [None, None]).meets((0.9, 0.9))


@pytest.mark.parametrize(
    ("w", "multipliers", "code", "facts"),
    [
        ([0.0, 1.0, 2.0], [None, None, None], "FP-PROBLEM-108", ["w ", "shape (3,)", "length 2"]),
        ([[0.0, 1.0]], [None, None, None], "FP-PROBLEM-108", ["w ", "shape (1, 2)", "length 2"]),
        ([0.0, 1.0], [None, None], "FP-PROBLEM-123", ["expected 3 multipliers [server, a, b]", "got 2"]),
        ([0.0, 1.0], [None, None, [1.0, 2.0]], "FP-PROBLEM-108", ["b: the multiplier", "shape (2,)", "length 1"]),
        ([0.0, 1.0], [None, [1.0], None], "FP-PROBLEM-108", ["a: the multiplier", "shape (1,)", "length 0"]),
        ([0.0, 1.0], [[[1.0]], None, None], "FP-PROBLEM-108", ["server: the multiplier", "shape (1, 1)", "length 1"]),
        ([0.0, 1.0], [None, None, ["high"]], "FP-PROBLEM-107", ["b: the multiplier"]),
    ],
)
def test_wrong_lengths_name_the_owner(w: object, multipliers: list, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        fp.certify(two_owners(), w, multipliers)


def test_a_number_is_a_multiplier_of_length_one() -> None:
    by_number = fp.certify(two_owners(), [0.0, 1.0], [None, None, 0.5])
    assert by_number == fp.certify(two_owners(), [0.0, 1.0], [None, None, [0.5]])


def test_a_price_of_a_coupled_constraint_that_is_not_there() -> None:
    with raises_code("FP-PROBLEM-108", "coupled constraint: the multiplier", "shape (1,)", "length 0"):
        fp.certify(two_owners(), [0.0, 1.0], [None, None, None], coupled_multiplier=[1.0])
