"""What the papers let a caller choose: multipliers to start from, and a consensus penalty for each owner."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative
from fedpact.functions import Affine, Quadratic

TABLES = data.neyman_pearson(4, rows=120, d=6, seed=1)
METHODS = ("accelerated", "proximal-al")


def with_server() -> fp.FederatedProblem:
    """min sum_i |w - a_i|^2 / 2  s.t.  w_3 <= 0 (server), w_1 >= 1 (north), w_1 + w_2 <= 0.5 (all together)."""
    below = fp.Constraint(Affine([[0.0, 0.0, 1.0]]), Nonnegative(1))
    above = fp.Constraint(Affine([[-1.0, 0.0, 0.0]], [1.0]), Nonnegative(1))
    part = Affine([[0.5, 0.5, 0.0]], [-0.25])
    shares = [
        fp.Share(Quadratic(np.eye(3), [-1.0, -2.0, -3.0]), above, coupled=part, name="north"),
        fp.Share(Quadratic(np.eye(3), [1.0, -2.0, -1.0]), coupled=part, name="south"),
    ]
    return fp.FederatedProblem(shares, fp.Share(None, below))


def start_from(answer: fp.Solution) -> dict[str, Any]:
    return {
        "w0": answer.w,
        "multipliers0": answer.multipliers,
        "coupled_multiplier0": answer.coupled_multiplier,
    }


def _itself(share: fp.Share) -> fp.Share:
    return share


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_solve_that_starts_at_the_solution_is_there(method: str, secure: bool) -> None:
    """w = (1, -0.5, 0); the prices by hand from 2 w - (0, 4, 4) + J'(prices) = 0: coupled 5, server 4, north 7."""
    problem = with_server()
    prices: dict[str, Any] = {"multipliers0": [[4.0], [7.0], None], "coupled_multiplier0": [5.0]}
    cold = fp.solve(problem, method, tol=1e-6, secure_sum=secure)
    warm = fp.solve(problem, method, tol=1e-6, secure_sum=secure, w0=[1.0, -0.5, 0.0], **prices)
    assert cold.solved
    assert warm.solved
    assert warm.rounds == 4 + 2 * secure  # prices, scales, the start, the end; keys
    assert warm.rounds < cold.rounds
    for found in (cold, warm):
        np.testing.assert_allclose(found.w, [1.0, -0.5, 0.0], atol=1e-5)
        np.testing.assert_allclose(np.concatenate(found.multipliers), [4.0, 7.0], atol=1e-4)
        np.testing.assert_allclose(found.coupled_multiplier, [5.0], atol=1e-4)


def test_owners_elsewhere_start_from_their_own_prices() -> None:
    problem = with_server()
    exact = fp.solve(problem, "interior-point", tol=1e-9)
    sources = {share.label: partial(_itself, share) for share in problem.shares}
    warm = fp.solve(fp.RemoteProblem(sources, problem.server), "accelerated", tol=1e-6, **start_from(exact))
    assert warm.solved
    assert warm.rounds == 5  # one more, to describe the shares


@pytest.mark.parametrize("method", METHODS)
def test_a_sweep_of_bounds_with_warm_multipliers_needs_fewer_exchanges(method: str) -> None:
    cold = 0
    warm = 0
    last: fp.Solution | None = None
    for bound in (0.40, 0.38, 0.36, 0.34, 0.32):
        problem = tasks.neyman_pearson(TABLES, bound)
        alone = fp.solve(problem, method)
        begun = fp.solve(problem, method, **({} if last is None else start_from(last)))
        assert alone.solved
        assert begun.solved
        assert max(float(np.max(price, initial=0.0)) for price in alone.multipliers) > 0.01, "a bound binds"
        assert begun.objective == pytest.approx(alone.objective, abs=1e-2)
        cold += alone.rounds
        warm += begun.rounds
        last = begun
    assert warm < 0.8 * cold


@pytest.mark.parametrize("elsewhere", [False, True])
def test_prices_that_are_none_are_refused_by_owner_and_entry(elsewhere: bool) -> None:
    problem: Any = with_server()
    if elsewhere:
        sources = {share.label: share for share in problem.shares}
        problem = fp.RemoteProblem(sources, problem.server, problem.regularizer)
    with raises_code("FP-PROBLEM-221", "north", "entry 0", "-5"):
        fp.solve(problem, "accelerated", multipliers0=[[1.0], [-5.0], None])
    with raises_code("FP-PROBLEM-221", "server", "entry 0", "-1"):
        fp.solve(problem, "accelerated", multipliers0=[[-1.0], [5.0], None])
    with raises_code("FP-PROBLEM-220", "north", "entry 0", "nan"):
        fp.solve(problem, "accelerated", multipliers0=[[1.0], [np.nan], None])
    rounded = fp.solve(problem, "accelerated", tol=1e-5, multipliers0=[[-1e-9], [1.0], None])
    assert rounded.solved


def test_what_is_not_a_start_is_refused() -> None:
    problem = with_server()
    with raises_code("FP-OPTION-115"):
        fp.solve(problem, "interior-point", multipliers0=[None, None, None])
    with raises_code("FP-PROBLEM-123"):
        fp.solve(problem, "accelerated", multipliers0=[None])
    with raises_code("FP-PROBLEM-108", "north: "):
        fp.solve(problem, "accelerated", multipliers0=[None, [1.0, 2.0], None])
    chosen = fp.solve(problem, multipliers0=[None, None, None], tol=1e-6)
    assert (chosen.method, chosen.status) == ("accelerated", "solved")


# ------------------------------------------------------------------------------------------------- a rho for each owner


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_penalty_for_each_owner_gives_the_same_answer(method: str, secure: bool) -> None:
    problem = with_server()
    tol = 1e-6 if method == "accelerated" else 1e-4
    found = fp.solve(
        problem, method, tol=tol, consensus_penalty={"north": 0.5, "south": 4.0}, secure_sum=secure, max_rounds=5000
    )
    assert found.solved
    np.testing.assert_allclose(found.w, [1.0, -0.5, 0.0], atol=1e-3)
    np.testing.assert_allclose(found.coupled_multiplier, [5.0], atol=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_equal_penalties_are_one_penalty(method: str) -> None:
    problem = with_server()
    one = fp.solve(problem, method, tol=1e-3, consensus_penalty=2.0)
    each = fp.solve(problem, method, tol=1e-3, consensus_penalty=(2.0, 2.0))
    assert each.w.tobytes() == one.w.tobytes()
    assert each.rounds == one.rounds + 1


def test_penalties_are_for_the_owners_there_are() -> None:
    problem = with_server()
    for given in ({"north": 1.0}, {"north": 1.0, "west": 1.0}, [1.0], (1.0, 2.0, 3.0)):
        with raises_code("FP-OPTION-258"):
            fp.solve(problem, "accelerated", consensus_penalty=given)
    with raises_code("FP-OPTION-252", "consensus_penalty['south'] = -1"):
        fp.solve(problem, "proximal-al", consensus_penalty={"north": 1.0, "south": -1})
    with raises_code("FP-OPTION-252"):
        fp.solve(problem, "proximal-al", penalty={"north": 1.0})
