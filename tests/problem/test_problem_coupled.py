"""Coupled constraints sum_i c_i(w) <= 0: the certificate by hand, and the reformulation with slacks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.functions import Affine, Quadratic, SmoothMap
from fedpact.problem import coupled_scale, decouple

D = 3


class Case(NamedTuple):
    problem: fp.FederatedProblem
    b: np.ndarray  # f_i = 1/2 |w|^2 + b_i'w
    C: np.ndarray  # coupled maps C_i w + d_i of owners 1 and 3
    d: np.ndarray
    own: np.ndarray  # owner 2: own'w - 1 <= 0; owner 3: own'w - 2 <= 0
    top: np.ndarray  # server: top'w <= 0


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(7)
    b, C, d = rng.normal(size=(3, D)), rng.normal(size=(2, 2, D)), rng.normal(size=(2, 2))
    own, top = rng.normal(size=D), rng.normal(size=D)

    def limit(bound: float) -> fp.Constraint:
        return fp.Constraint(Affine(own[None, :], [-bound]), Nonnegative(1))

    shares = [
        fp.Share(Quadratic(np.eye(D), b[0]), coupled=Affine(C[0], d[0])),
        fp.Share(Quadratic(np.eye(D), b[1]), limit(1.0)),
        fp.Share(Quadratic(np.eye(D), b[2]), limit(2.0), coupled=Affine(C[1], d[1])),
    ]
    server = fp.Share(None, fp.Constraint(Affine(top[None, :]), Nonnegative(1)))
    return Case(fp.FederatedProblem(shares, server, fp.prox.L1(0.2)), b, C, d, own, top)


W = np.array([0.5, 0.0, -1.5])
PRICES = [[0.3], None, [0.0], [1.1]]
NU = np.array([0.7, 0.0])


def test_the_certificate_by_hand(case: Case) -> None:
    certificate = fp.certify(case.problem, W, PRICES, NU)
    gradient = 3 * W + case.b.sum(axis=0) + 0.3 * case.top + 1.1 * case.own + case.C.sum(axis=0).T @ NU
    misses = np.where(W == 0, np.maximum(np.abs(gradient) - 0.2, 0), np.abs(gradient + 0.2 * np.sign(W)))
    assert certificate.stationarity == pytest.approx(misses.max(), rel=1e-13)

    total = case.C.sum(axis=0) @ W + case.d.sum(axis=0)
    server, second, third = case.top @ W, case.own @ W - 1, case.own @ W - 2
    feasibility = max(abs(server), max(second, 0), abs(third), abs(total[0]), max(total[1], 0))
    assert certificate.feasibility == pytest.approx(feasibility, rel=1e-13)
    assert certificate.violations == pytest.approx(
        {
            "client 1": 0.0,
            "client 2": max(second, 0),
            "client 3": max(third, 0),
            "server": max(server, 0),
            "coupled": max(total.max(), 0),
        },
        rel=1e-13,
    )


def test_without_a_price_only_the_sum_counts(case: Case) -> None:
    """One owner's part may be positive as long as the sum is not."""
    problem = fp.FederatedProblem([fp.Share(coupled=Affine([[1.0]], [5.0])), fp.Share(coupled=Affine([[1.0]], [-6.0]))])
    certificate = fp.certify(problem, [0.5], [None, None, None])
    assert (certificate.feasibility, certificate.violation) == (0.0, 0.0)
    assert fp.certify(problem, [2.0], [None, None, None]).violations["coupled"] == 3.0
    assert fp.certify(problem, [0.0], [None, None, None], [0.1]).feasibility == 1.0  # a price on a slack of 1
    assert fp.certify(problem, [0.5], [None, None, None], [0.1]).stationarity == pytest.approx(0.2)


def test_a_problem_without_coupling_stays_itself() -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)))])
    assert decouple(problem, 2) is problem


def test_decoupling_keeps_the_objective_and_splits_the_constraint(case: Case) -> None:
    slacks = np.array([[0.1, -0.2], [0.4, 0.3]])
    lifted = np.concatenate([W, slacks.ravel()])
    split = decouple(case.problem, D)
    assert split.dim == D + 4
    assert split.coupled_length == 0
    assert split.names == case.problem.names
    for ours, theirs in zip(split.shares, case.problem.shares, strict=True):
        assert ours.objective.value(lifted) == theirs.objective.value(W)
        np.testing.assert_array_equal(ours.objective.gradient(lifted)[:D], theirs.objective.gradient(W))
    assert split.regularizer.value(lifted) == case.problem.regularizer.value(W)

    first, second, third = (share.constraint.function.value(lifted) for share in split.shares)
    np.testing.assert_allclose(first, case.C[0] @ W + case.d[0] - slacks[0], rtol=1e-14)
    np.testing.assert_allclose(second, [case.own @ W - 1], rtol=1e-14)
    np.testing.assert_allclose(third, [case.own @ W - 2, *(case.C[1] @ W + case.d[1] - slacks[1])], rtol=1e-14)
    server = split.server.constraint.function.value(lifted)
    np.testing.assert_allclose(server, [case.top @ W, *slacks.sum(axis=0)], rtol=1e-14)


def test_own_translates_back(case: Case) -> None:
    split = decouple(case.problem, D)
    lifted = np.concatenate([W, np.zeros(4)])
    problem, w, server_price, coupled_price = split.own(lifted, np.array([0.3, 0.7, 0.1]))
    assert problem is case.problem
    np.testing.assert_array_equal(w, W)
    assert (server_price.tolist(), coupled_price.tolist()) == ([0.3], [0.7, 0.1])
    lengths = [share.multiplier_length for share in split.shares]
    assert lengths == [2, 1, 3]
    for share, theirs, length in zip(split.shares, case.problem.shares, lengths, strict=True):
        own, w, price = share.own(lifted, np.arange(1.0, 1.0 + length))
        assert own is theirs
        np.testing.assert_array_equal(w, W)
        assert price.tolist() == [1.0][: theirs.multiplier_length]


def test_a_plain_problem_translates_to_itself() -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)))])
    w, price = np.ones(2), np.zeros(0)
    asked, same_w, same_price, coupled = problem.own(w, price)
    assert asked is problem
    assert same_w is w
    assert same_price.size == coupled.size == 0


def test_the_certificate_with_slacks_equals_the_one_without(case: Case) -> None:
    """At s_i = c_i(w) and equal prices the reformulation is as stationary as the problem itself."""
    slacks = np.concatenate([C @ W + d for C, d in zip(case.C, case.d, strict=True)])
    lifted = np.concatenate([W, slacks])
    split = decouple(case.problem, D)
    ours = fp.certify(split, lifted, [[0.3, *NU], NU, [0.0], [1.1, *NU]])
    theirs = fp.certify(case.problem, W, PRICES, NU)
    assert ours.stationarity == pytest.approx(theirs.stationarity, rel=1e-12)
    assert ours.feasibility == pytest.approx(theirs.feasibility, rel=1e-12)
    # prices that differ from the server's leave the slack's gradient
    other = fp.certify(split, lifted, [[0.3, *NU], NU + 50.0, [0.0], [1.1, *NU]])
    assert other.stationarity >= 50.0


@pytest.mark.parametrize("regularizer", [fp.prox.SquaredL2(0.5), fp.prox.Box(-2, 2), fp.prox.Zero()])
def test_the_regularizer_leaves_the_slacks_free(regularizer: fp.prox.Prox) -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)), coupled=Affine(np.eye(2)))], regularizer=regularizer)
    lifted = decouple(problem, 2).regularizer
    v = np.array([3.0, -1.0, 9.0, -9.0])
    np.testing.assert_array_equal(lifted.prox(v, 0.5), [*regularizer.prox(v[:2], 0.5), 9.0, -9.0])
    assert lifted.value(v) == regularizer.value(v[:2])
    w = np.array([1.0, -1.0, 50.0, 50.0])
    assert lifted.subdifferential_distance(np.array([0.0, 0.0, 0.0, -4.0]), w) == 4.0
    assert lifted.indicator == regularizer.indicator
    if regularizer.curvature is None:
        assert lifted.curvature is None
    else:
        np.testing.assert_array_equal(lifted.curvature, [regularizer.curvature] * 2 + [0.0, 0.0])


def test_solving_a_coupled_problem_gives_the_price_by_hand() -> None:
    """min 1/2 (w - 1)^2 + 1/2 (w - 3)^2  s.t.  (w - 4) + (w + 2) <= 0: w = 1, price 1."""
    shares = [
        fp.Share(Quadratic(np.eye(1), [-1.0]), coupled=Affine([[1.0]], [-4.0])),
        fp.Share(Quadratic(np.eye(1), [-3.0]), coupled=Affine([[1.0]], [2.0])),
    ]
    problem = fp.FederatedProblem(shares)
    answer = fp.solve(problem, tol=1e-8)
    assert answer.status == "solved"
    assert answer.w == pytest.approx([1.0], abs=1e-7)
    assert answer.coupled_multiplier == pytest.approx([1.0], abs=1e-7)
    assert [m.size for m in answer.multipliers] == [0, 0, 0]
    assert fp.certify(problem, answer.w, answer.multipliers, answer.coupled_multiplier) == answer.certificate


def test_lengths_must_agree() -> None:
    shares = [
        fp.Share(Quadratic(np.eye(2)), coupled=Affine(np.eye(2)), name="north"),
        fp.Share(Quadratic(np.eye(2)), coupled=Affine(np.ones((1, 2))), name="south"),
    ]
    with raises_code("FP-PROBLEM-119", "south: its coupled map has length 1", "north's has 2"):
        fp.FederatedProblem(shares)


def test_an_unknown_length_is_asked_for() -> None:
    unknown = SmoothMap(lambda w: (w, np.eye(2)))
    with raises_code("FP-PROBLEM-118", "client 2: "):
        fp.FederatedProblem([fp.Share(coupled=Affine(np.eye(2))), fp.Share(coupled=unknown)])


def test_the_server_holds_no_part() -> None:
    with raises_code("FP-PROBLEM-104"):
        fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)))], server=fp.Share(coupled=Affine(np.eye(2))))


def test_the_scale_brings_the_steepest_row_to_slope_one_and_prices_back(case: Case) -> None:
    scale = coupled_scale(case.problem, W)
    assert scale == pytest.approx(1 / max(np.linalg.norm(C, axis=1).max() for C in case.C), rel=1e-14)
    split = decouple(case.problem, D, scale)
    lifted = np.concatenate([W, np.zeros(4)])
    first = split.shares[0].constraint.function.value(lifted)
    np.testing.assert_allclose(first, scale * (case.C[0] @ W + case.d[0]), rtol=1e-13)
    np.testing.assert_allclose(split.own(lifted, np.array([0.3, 0.7, 0.1]))[3], scale * np.array([0.7, 0.1]))


def test_a_coupled_map_that_is_not_finite_at_the_start_names_its_owner() -> None:
    bad = SmoothMap(lambda w: (np.array([np.nan]), np.ones((1, 2))), length=1, dim=2)
    shares = [fp.Share(Quadratic(np.eye(2))), fp.Share(Quadratic(np.eye(2)), coupled=bad, name="bank b")]
    with raises_code("FP-DATA-250", "bank b: "):
        fp.solve(fp.FederatedProblem(shares))
    with raises_code("FP-DATA-101", "bank b: "):  # which decouples it in one process
        fp.solve(fp.FederatedProblem(shares), "centralized-proximal-al")
