"""Ctrl-C anywhere inside an owner's step: the best point so far comes back, with its own certificate."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.engines import InProcess
from fedpact.functions import Affine, Quadratic, Smooth


class Interrupting:
    """1/2 |w - centre|^2 whose call number `at` is where the user presses Ctrl-C."""

    def __init__(self, centre: float, at: int) -> None:
        self.centre, self.at, self.calls = centre, at, 0

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return float(0.5 * np.sum((w - self.centre) ** 2)), w - self.centre


def problem(fun: Interrupting) -> fp.FederatedProblem:
    def limit(*row: float) -> fp.Constraint:
        return fp.Constraint(Affine([row], [-1.0]), Nonnegative(1))

    return fp.FederatedProblem(
        [
            fp.Share(Quadratic(np.diag([1.0, 5.0]), [-3.0, -2.0]), limit(1.0, 0.1), name="a"),
            fp.Share(Smooth(fun, hess=lambda w: np.eye(2), dim=2), limit(-0.2, 1.0), name="b"),
            fp.Share(Quadratic(np.eye(2), [-3.0, 5.0]), limit(1.0, 1.0), name="c"),
        ]
    )


TOL = 1e-5


@pytest.fixture(scope="module")
def needed() -> int:
    """How often a solve that nobody interrupts calls the function."""
    counter = Interrupting(2.0, at=0)
    assert fp.solve(problem(counter), tol=TOL, max_rounds=2000).solved
    return counter.calls


@pytest.mark.parametrize("engine", [None, InProcess(threads=3)], ids=["sequence", "threads"])
@pytest.mark.parametrize("part", [0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_the_point_given_back_is_the_point_certified(part: float, engine: InProcess | None, needed: int) -> None:
    fun = Interrupting(2.0, at=max(int(part * needed), 10))
    asked = problem(fun)
    answer = fp.solve(asked, tol=TOL, engine=engine, max_rounds=2000)
    assert fun.calls >= fun.at
    assert answer.status == ("solved" if answer.certificate.meets(answer.tol) else "interrupted")
    assert fp.certify(asked, answer.w, answer.multipliers) == answer.certificate
    # no iteration of the history was better than what is given back
    seen = [max(record.stationarity, record.feasibility) for record in answer.history.outer]
    assert answer.certificate.worst <= min(seen, default=np.inf)
