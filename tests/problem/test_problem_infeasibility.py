"""Proofs that no point meets all constraints: by exact Farkas vectors, in any units, never for a feasible problem."""

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth
from fedpact.problem import prove_infeasible
from fedpact.problem.infeasibility import SMALL, add, gap, owner_evidence

OBJECTIVE = Quadratic(np.eye(2))


def rows(matrix, offset, cone=None):
    matrix = np.atleast_2d(matrix)
    return fp.Constraint(Affine(matrix, offset), cone or Nonnegative(len(matrix)))


def problem(*constraints, server=None, regularizer=None):
    names = ("north", "south", "east")
    shares = [fp.Share(OBJECTIVE, c, name=name) for c, name in zip(constraints, names, strict=False)]
    return fp.FederatedProblem(shares, None if server is None else fp.Share(None, server), regularizer)


CONFLICT = problem(rows([-1.0, 0.0], [1.0]), rows([1.0, 0.0], [1.0]), rows([0.0, 1.0], [-1.0]))


def test_those_who_exclude_each_other_are_named():
    """w_0 >= 1 and w_0 <= -1; w_1 <= 1 has no part in it."""
    assert prove_infeasible(CONFLICT, [0.3, 5.0], [None, [2.0], [2.0], [0.0]]) == ("north", "south")


def test_weights_that_do_not_balance_prove_nothing():
    assert prove_infeasible(CONFLICT, [0.3, 5.0], [None, [2.0], [1.9], [0.0]]) == ()
    assert prove_infeasible(CONFLICT, [0.3, 5.0], [None, [0.0], [0.0], [0.0]]) == ()


def test_weights_outside_the_dual_cone_are_projected_first():
    """w_0 <= 1 twice, with weights 1 and -1: g vanishes, and rounding or a shift could make the value positive."""
    feasible = problem(rows([1.0, 0.0], [-1.0]), rows([1.0, 0.0], [-2.0]))
    assert prove_infeasible(feasible, [0.0, 0.0], [None, [-1.0], [1.0]]) == ()
    assert prove_infeasible(feasible, [0.0, 0.0], [None, [1.0], [-1.0]]) == ()


@pytest.mark.parametrize("far", [1e3, 1e9])
def test_a_feasible_point_far_away_is_not_excluded(far):
    """w_0 >= 1 + w_1 / far and w_0 <= 0 is met at w_1 <= -far: what is far depends on the unit of w_1."""
    feasible = problem(rows([-1.0, 1 / far], [1.0]), rows([1.0, 0.0], [0.0]))
    assert prove_infeasible(feasible, [0.5, 0.0], [None, [1.0], [1.0]]) == ()


@pytest.mark.parametrize("seed", range(20))
def test_units_of_rows_and_columns_do_not_matter(seed):
    """Rows whose positive combination vanishes, and nearly the same rows: the gap is the same number in all units."""
    rng = np.random.default_rng(seed)
    matrix, weights = rng.standard_normal((4, 3)), rng.uniform(0.2, 2, 4)
    matrix[-1] = -(weights[:-1] @ matrix[:-1]) / weights[-1]
    off = rng.choice([0.0, 1e-3])
    matrix[0, 0] += off
    offset, w = rng.uniform(0.1, 1, 4), rng.standard_normal(3)

    def gap_in(columns, units):
        constraint = fp.Constraint(Affine(units[:, None] * matrix * columns, units * offset), Nonnegative(4))
        found = owner_evidence(fp.Share(None, constraint), w / columns, weights / units)
        return gap(fp.prox.Zero(), w / columns, found)

    plain = gap_in(np.ones(3), np.ones(4))
    scaled = gap_in(10 ** rng.uniform(-6, 6, 3), 10 ** rng.uniform(-6, 6, 4))
    assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-9)
    assert (plain <= SMALL) == (off == 0)


def test_a_curved_constraint_without_a_point_has_no_slope_where_it_is_smallest():
    """|w|^2 + 1 <= 0. Near w = 0 the slope is small against the curvature, at any distance from it it is not."""
    ball = problem(fp.Constraint(2 * Quadratic(np.eye(2)) + 1.0, Nonnegative(1)))
    assert prove_infeasible(ball, [1e-9, -1e-9], [None, [1.0]]) == ("north",)
    assert prove_infeasible(ball, [0.1, 0.0], [None, [1.0]]) == ()


def test_a_loss_that_only_falls_slowly_is_not_excluded():
    """log(1 + exp(-w)) <= 0.01 holds from w = 4.6 on; before that its slope is never small against its curvature."""
    loss = fp.Constraint(LogisticLoss(np.ones((1, 1)), [1]) - 0.01, Nonnegative(1))
    feasible = fp.FederatedProblem([fp.Share(None, loss)])
    for w in np.linspace(-40, 4.5, 90):
        assert prove_infeasible(feasible, [w], [None, [1.0]]) == ()


def test_a_constraint_that_bends_down_proves_nothing():
    """w^2 >= 1 at w = 0, where its slope vanishes."""
    away = fp.Constraint(1.0 - 2.0 * Quadratic(np.eye(2)), Nonnegative(1))
    assert prove_infeasible(problem(away), [0.0, 0.0], [None, [1.0]]) == ()
    hill = Smooth(lambda w: (1.0 - float(w @ w), -2 * w), hess=lambda w: -2 * np.eye(2), dim=2)
    assert prove_infeasible(problem(fp.Constraint(hill, Nonnegative(1))), [0.0, 0.0], [None, [1.0]]) == ()


def test_equalities_cones_and_the_server():
    """w_0 + w_1 = 4 at the server, |w| <= 1 at an owner: the nearest points are 2^0.5 (2 - 2^-0.5) apart."""
    sum_is_four = rows([1.0, 1.0], [-4.0], Zero(1))
    disc = rows(np.vstack([np.zeros(2), np.eye(2)]), [-1.0, 0.0, 0.0], SecondOrder(3))
    asked = problem(disc, server=sum_is_four)
    normal = [np.sqrt(2), 1.0, 1.0]
    assert prove_infeasible(asked, [0.5, 0.5], [[-1.0], normal]) == ("server", "north")
    assert prove_infeasible(asked, [0.5, 0.5], [[1.0], normal]) == ()


def test_domains():
    """w_0 >= 2 is excluded by a box and by the simplex, whatever the slope; in a box without that wall it is not."""
    beyond = rows([-1.0, 0.0], [2.0])
    for regularizer in (fp.prox.Box(-1, 1), fp.prox.Simplex()):
        asked = problem(beyond, regularizer=regularizer)
        assert prove_infeasible(asked, [0.5, 0.5], [None, [3.0]]) == ("north",)
    for wall in (np.inf, 2.5):
        asked = problem(beyond, regularizer=fp.prox.Box(-1, [wall, 1.0]))
        assert prove_infeasible(asked, [0.5, 0.5], [None, [3.0]]) == ()


def test_a_set_of_ones_own_counts_by_its_normal_cone():
    halfplane = fp.prox.Custom(
        lambda w: 0.0 if w[0] <= 1e-12 else np.inf,
        lambda v, step: np.array([min(v[0], 0.0), v[1]]),
        lambda v, w: float(max(abs(v[1]), -v[0] if w[0] == 0 else abs(v[0]))),
        indicator=True,
    )
    asked = problem(rows([-1.0, 0.0], [2.0]), regularizer=halfplane)
    assert prove_infeasible(asked, [0.0, 0.5], [None, [1.0]]) == ("north",)
    assert prove_infeasible(asked, [-0.5, 0.5], [None, [1.0]]) == ()  # inside, nothing is normal


def test_coupled_constraints_are_one_holder():
    parts = [fp.Share(OBJECTIVE, coupled=2 * Quadratic(np.eye(2)) + 0.5) for _ in range(2)]
    asked = fp.FederatedProblem(parts)
    assert prove_infeasible(asked, [0.0, 0.0], [None, None, None], [1.0]) == ("coupled",)
    assert prove_infeasible(asked, [0.0, 0.0], [None, None, None], [-1.0]) == ()
    hill = [fp.Share(OBJECTIVE, coupled=0.5 - 2 * Quadratic(np.eye(2))) for _ in range(2)]
    assert prove_infeasible(fp.FederatedProblem(hill), [0.0, 0.0], [None, None, None], [1.0]) == ()


def test_a_miss_of_the_size_of_rounding_is_none():
    """One equality at two owners, computed in two ways."""
    third = problem(rows([1.0, 0.0], [-0.1 - 0.2], Zero(1)), rows([1.0, 0.0], [-0.3], Zero(1)))
    assert prove_infeasible(third, [0.3, 0.0], [None, [-1.0], [1.0]]) == ()
    assert prove_infeasible(third, [0.3, 0.0], [None, [1.0], [-1.0]]) == ()


def test_a_tangent_elsewhere_is_below_the_constraint_too():
    """The same affine rows give the same evidence; a curved one gives less value."""
    w, u = np.array([0.3, -0.4]), np.array([1.0, 2.0])
    straight = fp.Share(None, rows([1.0, -2.0], [0.5]))
    here, there = owner_evidence(straight, w, np.ones(1)), owner_evidence(straight, w, np.ones(1), tangent=u)
    assert there.value == pytest.approx(here.value, rel=1e-14)
    assert there.size == pytest.approx(here.size, rel=1e-14)
    curved = fp.Share(None, fp.Constraint(Quadratic(np.eye(2)) + 1.0, Nonnegative(1)))
    assert owner_evidence(curved, w, np.ones(1), tangent=u).value < owner_evidence(curved, w, np.ones(1)).value


def test_what_does_not_fit_is_refused():
    with raises_code("FP-PROBLEM-123", "expected 4 multipliers"):
        prove_infeasible(CONFLICT, [0.0, 0.0], [None])
    with raises_code("FP-PROBLEM-108", "north: the multiplier has shape"):
        prove_infeasible(CONFLICT, [0.0, 0.0], [None, [1.0, 2.0], None, None])


def test_evidence_adds_up():
    parts = [owner_evidence(share, np.array([0.3, 5.0]), np.array([2.0])) for share in CONFLICT.shares]
    total = add(parts)
    assert total.value == sum(p.value for p in parts)
    np.testing.assert_array_equal(total.gradient, sum(p.gradient for p in parts))
    assert total.size == sum(p.size for p in parts)


def test_a_miss_within_the_tolerance_is_no_proof() -> None:
    """w >= 1e-5 and w <= 0: a point between them misses both by less than 1e-4, and by more than 1e-6."""
    above = fp.Share(None, fp.Constraint(Affine([[-1.0]], [1e-5]), Nonnegative(1)), name="above")
    below = fp.Share(None, fp.Constraint(Affine([[1.0]], [0.0]), Nonnegative(1)), name="below")
    problem = fp.FederatedProblem([above, below])
    proof = fp.problem.Proof(np.zeros(1), (np.zeros(0), np.ones(1), np.ones(1)), np.zeros(0))
    assert proof.check(problem)
    assert proof.check(problem, 1e-6)
    assert proof.check(problem, 1e-4) == ()


@pytest.mark.parametrize("offset", [30.0, -3e3])
def test_a_square_that_touches_zero_excludes_no_point(offset: float) -> None:
    """(a'w - b)^2 <= 0, whose value where it is met is rounding of b^2."""
    slope = np.array([3.0, -1.0, 0.5])
    square = Quadratic(2 * np.outer(slope, slope), -2 * offset * slope) + offset**2
    problem = fp.FederatedProblem([fp.Share(None, fp.Constraint(square, Nonnegative(1)))])
    w = offset * slope / (slope @ slope)
    value = float(square.value(w))
    tol = 1e-6
    assert abs(value) <= tol
    assert fp.problem.Proof(w, (np.zeros(0), np.ones(1)), np.zeros(0)).check(problem, tol) == ()
