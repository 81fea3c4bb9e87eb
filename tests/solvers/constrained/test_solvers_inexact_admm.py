"""Algorithm 2 against closed forms and against what its theory promises in every round."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import LogisticLoss, Quadratic
from fedpact.solvers import Run
from fedpact.solvers.constrained import inexact_admm as admm
from fedpact.solvers.local import Constant

RNG = np.random.default_rng(5)


def quadratics(n=4, d=6):
    made = []
    for _ in range(n):
        m = RNG.standard_normal((d, d))
        made.append(Quadratic(m @ m.T / d + 0.3 * np.eye(d), RNG.standard_normal(d)))
    return made


def run(shares, w, *, tolerance, penalty, adapt=False, decay=0.1, seen=lambda admm: None, max_rounds=3000):
    problem = fp.FederatedProblem([fp.Share(f) for f in shares])
    with fp.Session() as session:
        session.open(dict(zip(problem.names, problem.shares, strict=True)))
        under_way = Run(problem, session, session.ledger.read(), "inexact-admm", w, (tolerance, tolerance), max_rounds)
        begun = under_way.ask(admm.begin_alone, admm.Begin(w=w, penalty=penalty))
        found = admm.Admm(
            server=Constant(w.size),
            regularizer=problem.regularizer,
            w=w,
            proposals=begun.total.proposal,
            weight=len(shares),
            tolerance=tolerance,
            decay=decay,
            penalty=penalty,
            owners=len(shares),
            adapt=adapt,
        )
        while not found.finished and found.rounds < max_rounds:
            found.exchange(under_way, admm.update_alone)
            seen(found)
    return found


@pytest.mark.parametrize("adapt", [False, True])
@pytest.mark.parametrize("decay", [0.1, 0.7])
def test_reaches_the_closed_form(adapt, decay):
    parts = quadratics()
    exact = np.linalg.solve(sum(f.hessian(np.zeros(6)) for f in parts), -sum(f.gradient(np.zeros(6)) for f in parts))
    found = run(parts, np.ones(6), tolerance=1e-9, penalty=0.5, adapt=adapt, decay=decay)
    assert found.residual <= 1e-9
    np.testing.assert_allclose(found.w, exact, atol=1e-8)


def test_residual_bounds_the_true_stationarity_in_every_round():
    """The proof of Theorem 4.1: dist(0, grad F(w)) <= eps + sum_i eps~_i at every t, not only at the last."""
    X = RNG.standard_normal((40, 3))
    parts = [LogisticLoss(X[i::4] + i, (np.arange(10) % 2).astype(float)) for i in range(4)]
    rounds = []

    def seen(now):
        rounds.append((float(np.max(np.abs(sum(f.gradient(now.w) for f in parts)))), now.residual))

    found = run(parts, np.zeros(3), tolerance=1e-7, penalty=0.3, decay=0.5, seen=seen)
    assert found.residual <= 1e-7
    assert len(rounds) > 10
    assert all(true <= bound for true, bound in rounds)


def test_potential_of_the_proof_never_grows_with_exact_local_solves():
    """He24 (57) with eps = 0: S_t = sum_i rho/2 |w* - u_i|^2 + |lambda* - lambda_i|^2 / (2 rho) is nonincreasing."""
    parts, rho = quadratics(n=3, d=5), 0.7
    best = np.linalg.solve(sum(f.hessian(np.zeros(5)) for f in parts), -sum(f.gradient(np.zeros(5)) for f in parts))
    consensus = [admm.begin(f, np.ones(5), rho) for f in parts]
    proposals = [state.proposal for state in consensus]
    potentials = []
    for _ in range(60):
        order = admm.Round(w=np.mean(proposals, axis=0), push=np.zeros(0), accuracy=1e-13)
        pairs = [admm.update(f, c, order) for f, c in zip(parts, consensus, strict=True)]
        consensus, proposals = [c for c, _ in pairs], [r.proposal for _, r in pairs]
        potentials.append(
            sum(
                rho / 2 * np.sum((best - c.u) ** 2) + np.sum((-f.gradient(best) - c.multiplier) ** 2) / (2 * rho)
                for f, c in zip(parts, consensus, strict=True)
            )
        )
    assert np.all(np.diff(potentials) <= 1e-12 * potentials[0])
    assert potentials[-1] < 1e-6 * potentials[0]


def test_owner_measures_stationarity_with_its_copy_from_before_the_round():
    """(18) uses u^t; with u^{t+1} in its place the residual of the first round would be another number."""
    f, w0, rho = quadratics(n=1, d=3)[0], np.zeros(3), 0.4
    state = admm.begin(f, w0, rho)
    proposal = state.proposal
    order = admm.Round(w=proposal, push=np.zeros(0), accuracy=1e-12)
    after, reply = admm.update(f, state, order)
    before = np.max(np.abs(f.gradient(proposal) + state.multiplier - rho * (proposal - state.u)))
    alias = np.max(np.abs(f.gradient(proposal) + state.multiplier - rho * (proposal - after.u)))
    assert reply.stationarity == pytest.approx(before, rel=1e-12)
    assert abs(reply.stationarity - alias) > 1e-3


@pytest.mark.parametrize("relaxation", [1.0, 1.6])
def test_balancing_takes_the_geometric_mean_of_penalty_and_curvature(relaxation):
    """lambda = -grad F(u), so for F = h/2 |w - a|^2 lambda changes by h times what u does, relaxed or not."""
    curvature, rho = 3.0, 0.75
    f = Quadratic(curvature * np.eye(3), RNG.standard_normal(3))
    state = admm.begin(f, np.zeros(3), rho)
    order = admm.Round(w=np.ones(3), push=np.zeros(0), accuracy=1e-12, relaxation=relaxation, balance=True)
    after, reply = admm.update(f, state, order)
    assert after.penalty == pytest.approx(np.sqrt(curvature * rho), rel=1e-9)
    assert reply.weight == pytest.approx(np.sqrt(curvature / rho), rel=1e-9)
    np.testing.assert_allclose(reply.proposal, reply.weight * (after.u + after.multiplier / after.penalty))


def test_balancing_moves_by_a_bounded_factor():
    f = Quadratic(1e6 * np.eye(3), np.ones(3))
    order = admm.Round(w=np.ones(3), push=np.zeros(0), accuracy=1e-12, balance=True)
    after, _ = admm.update(f, admm.begin(f, np.zeros(3), 1.0), order)
    assert after.penalty == admm.MOST


def test_kept_factor_gives_the_bits_of_a_fresh_one():
    f = quadratics(n=1)[0]
    order = admm.Round(w=np.ones(6), push=np.zeros(0), accuracy=1e-12)
    state, first = admm.update(f, admm.begin(f, np.zeros(6), 0.7), order)
    kept, with_kept = admm.update(f, state, order)
    fresh, with_fresh = admm.update(f, replace(state, factor=None), order)
    assert (first.hessians, with_kept.hessians, with_fresh.hessians) == (1, 0, 1)
    np.testing.assert_array_equal(kept.u, fresh.u)
    np.testing.assert_array_equal(kept.multiplier, fresh.multiplier)


def test_exact_factor_is_dropped_with_the_penalty_it_was_made_for():
    f = quadratics(n=1)[0]
    order = admm.Round(w=np.ones(6), push=np.zeros(0), accuracy=1e-12, balance=True)
    after, _ = admm.update(f, admm.begin(f, np.zeros(6), 50.0), order)
    assert after.penalty != 50.0
    assert after.factor is None
    assert admm.resume(f, replace(after, factor=np.eye(6))).factor is None


def test_summed_stop_bounds_the_stationarity_and_lets_owners_cancel():
    """dist(0, grad F(w)) <= the residual in every round, and hardly less: what cancels in the sum does not count."""
    parts = quadratics(n=6)
    rounds = []

    def seen(now):
        rounds.append((float(np.max(np.abs(sum(f.gradient(now.w) for f in parts)))), now.residual))

    found = run(parts, np.ones(6), tolerance=1e-7, penalty=0.5, adapt=True, decay=None, seen=seen)
    assert found.residual <= 1e-7
    assert len(rounds) > 10
    assert all(true <= bound * (1 + 1e-9) + 1e-13 for true, bound in rounds)
    assert all(bound <= 1.1 * true + 1e-8 for true, bound in rounds)


def test_as_a_method_it_matches_scikit_learn():
    X = RNG.standard_normal((120, 5))
    y = (X[:, 0] + RNG.standard_normal(120) > 0).astype(float)
    shares = [fp.Share((len(y[i::3]) / 120) * LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    answer = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.05)), "inexact-admm", tol=1e-8)
    reference = LogisticRegression(C=1 / (0.05 * 120), fit_intercept=False, tol=1e-12, max_iter=1000).fit(X, y)
    assert answer.status == "solved"
    assert answer.certificate.stationarity <= 1e-8
    np.testing.assert_allclose(answer.w, reference.coef_[0], atol=1e-5)


def test_as_a_method_with_l1_matches_cvxpy():
    import cvxpy as cp

    parts = quadratics()
    answer = fp.solve(
        fp.FederatedProblem([fp.Share(f) for f in parts], regularizer=fp.prox.L1(0.8)), "inexact-admm", tol=1e-8
    )
    w = cp.Variable(6)
    cost = sum(0.5 * cp.quad_form(w, cp.psd_wrap(f.hessian(np.zeros(6)))) + f.gradient(np.zeros(6)) @ w for f in parts)
    problem = cp.Problem(cp.Minimize(cost + 0.8 * cp.norm1(w)))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11)
    assert answer.solved
    assert answer.objective == pytest.approx(problem.value, abs=1e-7)
    assert np.any(answer.w == 0.0)  # the server's prox gives exact zeros


def test_constraints_are_refused_by_name_and_limits_are_a_status():
    constrained = fp.Share(
        Quadratic(np.eye(2)), fp.Constraint(Quadratic(np.eye(2)) - 1, fp.cones.Nonnegative(1)), name="b"
    )
    with pytest.raises(OptionError, match=r"inexact-admm.* b holds more.*auto"):
        fp.solve(fp.FederatedProblem([constrained]), "inexact-admm")
    short = fp.solve(fp.FederatedProblem([fp.Share(f) for f in quadratics()]), "inexact-admm", tol=1e-12, max_rounds=10)
    assert short.status == "max_rounds"
    assert short.rounds <= 10
