"""Logistic regression without constraints: what is measured side by side is one problem."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.unconstrained import deal, run_ours, run_sklearn
from fedpact_experiments.bench.unconstrained_flower import descend

pytest.importorskip("sklearn")


def test_scikit_learn_and_our_methods_come_to_one_optimum() -> None:
    dealt = deal("synthetic", 3, None, 0)
    pooled = run_sklearn(dealt, "newton-cholesky")[1]
    for method in ("interior-point", "fedavg"):
        row, w = run_ours(dealt, method, 1e-6, 1000)
        assert row.status == "solved"
        np.testing.assert_allclose(w, pooled, atol=1e-4)


def test_a_round_of_flower_s_fedavg_is_a_gradient_step_of_all_rows() -> None:
    dealt = deal("breast-cancer", 4, None, 0)
    w = np.linspace(-0.1, 0.1, dealt.parts[0][0].shape[1])
    moved = [descend((X, y, 1e-3), w, 1, 0.5) for X, y in dealt.parts]
    averaged = np.average(moved, axis=0, weights=[len(y) for _, y in dealt.parts])
    step = 1e-6
    slope = [(dealt.objective(w + step * e) - dealt.objective(w - step * e)) / (2 * step) for e in np.eye(w.size)]
    np.testing.assert_allclose(averaged, w - 0.5 * np.array(slope), atol=1e-6)


def test_the_command_prints_a_row_for_each() -> None:
    asked = ["unconstrained", "--problems", "synthetic", "--owners", "2", "--methods", "lbfgs,interior-point"]
    shown = CliRunner().invoke(bench, asked)
    assert shown.exit_code == 0, shown.output
    assert "scikit-learn lbfgs" in shown.output
    assert "interior-point" in shown.output
