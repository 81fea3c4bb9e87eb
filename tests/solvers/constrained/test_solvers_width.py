"""Sums of interior-point in the width that fits: the same exchanges, fewer bytes, the same answer."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.solvers.constrained import interior_point
from fedpact.solvers.constrained.interior_point import Advance

PROBLEMS = {
    "synthetic": lambda: tasks.neyman_pearson(data.neyman_pearson(n=4, d=21, seed=0), bound=0.2),
    "lcqp": lambda: tasks.linear_qp(*data.lcqp(4, 40, 1, 0)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_narrow_sums_cost_no_exchange(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    problem = PROBLEMS[name]()
    fitted = fp.solve(problem, "interior-point", tol=1e-6, secure_sum=True)
    exactly = {"largest": 0.0, "arrays": 0.0, "coarse": 0.0}
    monkeypatch.setattr(interior_point, "Advance", lambda **given: Advance(**given | exactly))
    monkeypatch.setattr(interior_point, "LARGEST_AT_FIRST", 0.0)
    exact = fp.solve(problem, "interior-point", tol=1e-6, secure_sum=True)
    assert fitted.solved
    assert fitted.rounds <= exact.rounds
    np.testing.assert_allclose(fitted.w, exact.w, atol=1e-5)
    part = fitted.communication.bytes / exact.communication.bytes
    assert part < 0.7


def test_numbers_that_outgrow_their_width_cost_an_exchange_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is made to say that the sums were tiny: owners void their systems, and exact ones follow."""
    pytest.importorskip("cryptography")
    problem = PROBLEMS["synthetic"]()
    said: list[float] = []

    def understated(**given: object) -> Advance:
        if len(said) == 2:
            given |= {"largest": 1e-30, "arrays": 0.0, "coarse": 0.0}
        said.append(float(given.get("largest", 0.0)))  # type: ignore[arg-type]
        return Advance(**given)  # type: ignore[arg-type]

    honest = fp.solve(problem, "interior-point", tol=1e-6, secure_sum=True)
    monkeypatch.setattr(interior_point, "Advance", understated)
    answer = fp.solve(problem, "interior-point", tol=1e-6, secure_sum=True)
    assert said[2] == 1e-30
    assert said[3] == 0.0
    assert answer.solved
    assert honest.rounds < answer.rounds <= honest.rounds + 4
    np.testing.assert_allclose(answer.w, honest.w, atol=1e-5)
