"""Constraints that only a face of their cone admits: found, solved there, and judged as posed."""

import numpy as np
import pytest

import fedpact as fp
from fedpact import cones, functions
from fedpact.cones.psd import svec
from fedpact.problem.faces import find_face, reduce_faces

A = np.array([1.0, -2.0, 0.5])
NONE = np.zeros(3)
BOUND = 0.7


def affine(rows, b, cone):
    return fp.Constraint(functions.Affine(np.array(rows), b), cone)


def pins():
    """a'w = BOUND, said by constraints without interior points."""
    root = np.sqrt(2.0)
    return {
        "second-order": [affine([NONE, A, NONE], [0.0, -BOUND, 0.0], cones.SecondOrder(3))],
        "psd": [affine([NONE, root * A, NONE], [0.0, -root * BOUND, -1.0], cones.PSD(2))],
        "exponential": [
            affine([A, NONE, NONE], [-BOUND, 0.0, -1.0], cones.Exponential()),
            affine([-A], [BOUND], cones.Nonnegative(1)),
        ],
    }


def unreachable():
    """Constraints that points far out meet up to any tolerance, and none meets."""
    return {
        "second-order": affine([-A, -A, NONE], [0.0, 0.0, -1.0], cones.SecondOrder(3)),
        "psd": affine([-A, NONE, NONE], [0.0, -np.sqrt(2.0), 0.0], cones.PSD(2)),
        "exponential": affine([-A, NONE, NONE], [0.0, -1.0, 0.0], cones.Exponential()),
    }


def problem_with(constraints, server=None):
    nearest = fp.Share(functions.Quadratic(np.eye(3)), constraints)
    other = fp.Share(functions.Quadratic(np.eye(3)))
    return fp.FederatedProblem([nearest, other], server)


@pytest.mark.parametrize("how", pins())
@pytest.mark.parametrize("at_server", [False, True])
def test_the_nearest_point_of_a_plane(how, at_server):
    """min |w|^2 on a'w = BOUND: w = BOUND a / |a|^2, with multipliers of the cone as posed."""
    constraints = pins()[how]
    if at_server:
        problem = fp.FederatedProblem([fp.Share(functions.Quadratic(2 * np.eye(3)))], fp.Share(None, constraints))
    else:
        problem = problem_with(constraints)
    answer = fp.solve(problem, tol=1e-6)
    assert answer.solved
    assert answer.rounds <= 20
    np.testing.assert_allclose(answer.w, BOUND * A / (A @ A), atol=1e-5)
    again = fp.certify(problem, answer.w, answer.multipliers)
    assert again.meets((1e-6, 1e-6))
    assert again.stationarity == answer.certificate.stationarity


@pytest.mark.parametrize("how", unreachable())
def test_weak_infeasibility_is_proved(how):
    problem = problem_with([unreachable()[how], affine([A], [-5.0], cones.Nonnegative(1))])
    answer = fp.solve(problem, tol=1e-6)
    assert answer.status == "infeasible"
    assert answer.conflict == ("client 1",)
    assert answer.proof.check(problem) == ("client 1",)


def test_a_proof_on_faces_does_not_hold_where_the_face_is_not_forced():
    """[[a'w, 1], [1, 0]] >= 0 is impossible, [[a'w, 1], [1, 0.1]] >= 0 is not."""
    answer = fp.solve(problem_with([unreachable()["psd"]]), tol=1e-6)
    possible = problem_with([affine([-A, NONE, NONE], [0.0, -np.sqrt(2.0), -0.1], cones.PSD(2))])
    assert not answer.proof.check(possible)
    solved = fp.solve(possible, tol=1e-6)
    assert solved.solved
    assert A @ solved.w == pytest.approx(10.0, rel=1e-5)


def test_constraints_with_interior_points_stay_as_posed():
    rng = np.random.default_rng(4)
    for order in (2, 3, 5):
        M = rng.standard_normal((order, order))
        slope = np.column_stack([svec(np.eye(order)), svec(M + M.T), np.zeros(order * (order + 1) // 2)])
        least_eigenvalue = fp.Constraint(functions.Affine(slope, svec(M @ M.T)), cones.PSD(order))
        assert reduce_faces(problem_with(least_eigenvalue), 3) is None


def test_a_nearly_singular_block_is_no_face():
    """A diagonal entry of 1e-10 is small, and not zero."""
    jacobian = np.array([NONE, np.sqrt(2.0) * A, NONE])
    assert find_face(cones.PSD(2), np.array([-1e-10, 0.0, -1.0]), jacobian) is None
    assert find_face(cones.PSD(2), np.array([0.0, 0.0, -1.0]), jacobian) is not None


def test_a_face_of_a_larger_cone():
    """Two columns of a 4 x 4 matrix are forced to zero by their diagonals, in a rotated basis."""
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    units = [np.zeros((4, 4)) for _ in range(3)]
    units[0][2, 2] = units[1][3, 3] = 1.0
    units[2][0, 2] = units[2][2, 0] = 1.0
    jacobian = -np.column_stack([svec(turn @ unit @ turn.T) for unit in units])
    constant = -svec(turn @ np.diag([0.0, 0.0, 1.0, 2.0]) @ turn.T)
    face = find_face(cones.PSD(4), constant, jacobian)
    assert face.cone == cones.Product([cones.PSD(2), cones.Zero(1)])
    # the equality says that the third variable is zero
    assert np.max(np.abs(face.rows[3:] @ jacobian[:, :2])) <= 1e-12
    assert np.max(np.abs(face.rows[3:] @ constant)) <= 1e-12
