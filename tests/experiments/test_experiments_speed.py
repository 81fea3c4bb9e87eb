"""`fedpact bench speed`: its rivals solve the same problem, and its floor is the work that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import fedpact as fp
from fedpact import data, tasks
from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.problems import BOUND
from fedpact_experiments.bench.speed import count_calls
from fedpact_experiments.bench.speed_rivals import RIVALS, Pooled


@pytest.mark.parametrize("rival", RIVALS)
def test_the_rivals_solve_the_same_problem(rival: str) -> None:
    if rival == "IPOPT":
        pytest.importorskip("casadi")
    owners = data.neyman_pearson(3, 80, 5, seed=1)
    ours = fp.solve(tasks.neyman_pearson(owners, BOUND), "interior-point", tol=1e-8)
    assert ours.solved
    found = RIVALS[rival](Pooled(owners))
    np.testing.assert_allclose(found.w, ours.w, atol=2e-4)
    np.testing.assert_allclose(found.prices, np.concatenate(ours.multipliers[1:]), atol=2e-3)


def test_the_floor_counts_one_evaluation_an_exchange_and_what_the_last_one_checks() -> None:
    problem = tasks.neyman_pearson(data.neyman_pearson(3, 80, 5, seed=1), BOUND)
    exchanges = fp.solve(problem, "interior-point", tol=1e-6).rounds
    gradients, hessians = count_calls(problem, 1e-6)
    assert hessians == exchanges - 2  # none in the last, nor at the point that it is about
    # two more there, to compare derivatives with values, and of the objective three along the last way and beside it
    assert gradients == exchanges + 2 + 2


def test_the_table_has_a_row_for_each_method() -> None:
    given = ["speed", "--sizes", "2x40x3", "--rivals", "SLSQP", "--growth", "3", "--repeat", "1", "--markdown"]
    found = CliRunner().invoke(bench, given, catch_exceptions=False)
    assert found.exit_code == 0
    for method in ("interior-point", "interior-point, owner by owner", "the arithmetic alone", "SLSQP"):
        assert f"| 2 x 40 x 3 | {method} |" in found.stdout
    assert "| 3 | solved |" in found.stdout
