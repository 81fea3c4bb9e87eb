"""`fedpact bench inference`: its truths are optimal, and few repetitions cover as they should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom

from fedpact_experiments.bench.inference import DESIGNS, OWNERS, Design, cover, cover_small


@pytest.mark.parametrize("design", DESIGNS.values(), ids=list(DESIGNS))
def test_the_truth_is_the_constrained_optimum_of_the_population(design: Design) -> None:
    limits = {i: design.expected_loss(i).value(design.optimum) for i in design.losses}
    bounds = [(None, design.optimum[j] if j in design.fixed else None) for j in range(design.optimum.size)]
    losses = [design.expected_loss(i) for i in range(OWNERS)]
    below = [{"type": "ineq", "fun": lambda w, i=i: limits[i] - losses[i].value(w)} for i in limits]
    found = minimize(
        lambda w: sum(loss.value(w) for loss in losses) / OWNERS,
        np.zeros(design.optimum.size),
        method="SLSQP",
        bounds=bounds,
        constraints=below,
        options={"ftol": 1e-13, "maxiter": 300},
    )
    np.testing.assert_allclose(found.x, design.optimum, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a loss", "a loss and two coefficients"])
def test_intervals_hold_as_often_as_they_say(name: str) -> None:
    """40 repetitions: no share may be one that 95 % intervals have less often than once in 10 000 runs."""
    found = {one.method: one for one in cover(name, DESIGNS[name], 40, 2000, seed=1)}["sandwich"]
    least = binom.ppf(1e-4, 40, 0.95) / 40
    assert found.all_bind == 40
    assert found.coefficients_lowest >= least
    assert found.prices_lowest is not None
    assert found.prices_lowest >= least


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 5, 200])
def test_intervals_hold_where_owners_are_small(rows: int) -> None:
    """Five coefficients in 20 repetitions: no share that 95 % intervals have less often than once in 10 000 runs."""
    for one in cover_small(rows, 20, seed=2):
        assert one.coefficients >= binom.ppf(1e-4, 100, 0.93) / 100
        assert one.coefficients_lowest > 0.6
