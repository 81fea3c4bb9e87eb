"""Problems whose status is known by construction: no method claims what is not so, and "auto" is mostly right."""

import time

import pytest

import fedpact as fp
from fedpact.errors import FedpactError
from fedpact.problem.ray import check_ray
from fedpact_experiments.bench.known_problems import CLAIMS, KINDS, draw_known, is_false

METHODS = ("auto", "interior-point", "accelerated", "proximal-al", "ifeddr")


def claim(seed: int, method: str, tol: float = 1e-5, rounds: int = 200) -> str:
    """How a solve ends; empty where the method does not take the problem."""
    known = draw_known(seed)
    try:
        answer = fp.solve(known.problem, method, tol=tol, w0=known.start, max_rounds=rounds)
    except FedpactError as refused:
        if refused.code != "FP-OPTION-110":
            raise
        return ""
    assert not is_false(known, answer, tol), (seed, known.kind, method, answer, answer.reason)
    if answer.status == "unbounded":
        assert answer.ray is not None
        assert check_ray(known.problem, answer.w, answer.ray), (seed, known.kind, method)
    if answer.status == "infeasible" and answer.proof is not None:
        assert answer.proof.check(known.problem)
    return answer.status


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_auto_claims_nothing_false(seed: int) -> None:
    status = claim(seed, "auto")
    if draw_known(seed).kind != "touching square":  # that may stall: it has no multiplier
        assert status == draw_known(seed).ending


@pytest.mark.parametrize("seed", [96, pytest.param(80, marks=pytest.mark.slow)])
def test_squares_that_touch_zero_are_handed_over(seed: int) -> None:
    """Their prices grow until no owner can solve a proximal step: Algorithm 1 goes on, within the same exchanges."""
    known = draw_known(seed)
    answer = fp.solve(known.problem, tol=1e-6, relative=True, w0=known.start, max_rounds=1000)
    assert answer.status == "solved"
    assert answer.rounds <= 1000


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_method_claims_what_is_not_so(method: str) -> None:
    begun = time.process_time()
    found = []
    for seed in range(8, 208):
        found.append(claim(seed, method))
        if time.process_time() - begun > 25:
            break
    assert sum(status in CLAIMS for status in found) >= 0.6 * sum(bool(status) for status in found)
