"""FedSGM, a rival: its mean point and its prices come to those of the exact solution, at its rate and no faster."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative, Zero
from fedpact.functions import Affine, Quadratic
from fedpact_experiments.bench.fedsgm import FedSGM


def nearest(bound: fp.Constraint, server: fp.Share | None = None) -> fp.FederatedProblem:
    """min |w - (2, 1)|^2 / 2 in equal parts of two owners, of whom the first has a bound."""
    half = Quadratic(np.eye(2) / 2, [-1.0, -0.5])
    return fp.FederatedProblem([fp.Share(half, bound, name="a"), fp.Share(half, name="b")], server)


def at_most_one(row: list[float]) -> fp.Constraint:
    return fp.Constraint(Affine([row], [-1.0]), Nonnegative(1))


@pytest.mark.parametrize("options", [{}, {"steps": 3}, {"softness": 8000.0}], ids=str)
def test_it_comes_to_the_projection_and_its_price(options: dict[str, float]) -> None:
    # The nearest point with w_1 <= 1 is (1, 1), and the price of the bound is 1.
    answer = fp.solve(nearest(at_most_one([1.0, 0.0])), FedSGM(**{"step_size": 0.05} | options), max_rounds=1000)
    np.testing.assert_allclose(answer.w, [1.0, 1.0], atol=0.06)
    np.testing.assert_allclose(answer.multipliers[1], [1.0], atol=0.1)
    assert answer.certificate.worst < 0.1


def test_it_takes_equalities_and_the_constraint_of_the_server() -> None:
    # On w_1 + w_2 = 1 the nearest point is (1, 0), price 1.
    server = fp.Share(constraint=fp.Constraint(Affine([[1.0, 1.0]], [-1.0]), Zero(1)))
    answer = fp.solve(nearest(at_most_one([0.0, 1.0]), server), FedSGM(step_size=0.02), max_rounds=2000)
    np.testing.assert_allclose(answer.w, [1.0, 0.0], atol=0.06)
    np.testing.assert_allclose(answer.multipliers[0], [1.0], atol=0.1)
    np.testing.assert_allclose(answer.multipliers[1], [0.0], atol=0.01)


def test_four_times_the_exchanges_halve_the_error() -> None:
    bound = at_most_one([1.0, 0.5])
    # |w - (2, 1)|^2 / 2 on 2 w_1 + w_2 <= 2: the violation of (2, 1) is 1.5 = |a|^2 price, a = (1, 0.5).
    optimum = 0.5 * 1.5**2 / 1.25 - 2.5
    errors = []
    for rounds in (60, 240, 960):
        step = 2 / np.sqrt(rounds)  # as the paper's theorem has it
        answer = fp.solve(nearest(bound), FedSGM(step_size=step, slack=0.0), max_rounds=rounds, tol=1e-9)
        errors.append(abs(answer.objective - optimum) + answer.certificate.violation)
    assert errors[1] < 0.75 * errors[0]
    assert errors[2] < 0.75 * errors[1]
