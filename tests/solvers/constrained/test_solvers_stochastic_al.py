"""The stochastic method: beside the optimum of a convex problem, on a network whose rates are counted, and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.functions import CountedRates, decisions_from_torch, from_torch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.extras
RECALL = 0.85
#: Of the library itself, so that Ray's processes can import it.
LOSS = torch.nn.functional.binary_cross_entropy_with_logits


def neyman_pearson() -> fp.FederatedProblem:
    return tasks.neyman_pearson(data.neyman_pearson(n=5, seed=0), bound=0.2)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_minibatches_reach_the_optimum_of_a_convex_problem(participation: float) -> None:
    optimum = fp.solve(neyman_pearson(), "interior-point", tol=1e-9)
    found = fp.solve(
        neyman_pearson(), "stochastic-al", tol=1e-3, batch_size=16, passes=100, participation=participation
    )
    assert found.status == "solved", found.reason
    assert found.objective == pytest.approx(optimum.objective, rel=2e-3)
    for price, exact in zip(found.multipliers[1:], optimum.multipliers[1:], strict=True):
        np.testing.assert_allclose(price, exact, atol=0.05)


def test_what_is_left_is_in_the_certificate() -> None:
    found = fp.solve(neyman_pearson(), "stochastic-al", tol=1e-6, batch_size=16, passes=2)
    assert found.status == "max_rounds"
    again = fp.certify(neyman_pearson(), found.w, found.multipliers)
    assert found.certificate.stationarity == pytest.approx(again.stationarity)
    assert found.certificate.violation == pytest.approx(again.violation)


def rings(count: bool = True) -> tuple[fp.FederatedProblem, list[tuple[np.ndarray, np.ndarray]]]:
    """A ReLU network in float32 for class 1 inside a noisy circle; every owner bounds its recall, counted."""
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    shares = []
    tables = []
    for name in ("north", "south", "west"):
        X = 1.2 * rng.standard_normal((200, 2)) + 0.2 * rng.standard_normal(2)
        y = (rng.random(200) < 1 / (1 + np.exp(4 * (np.linalg.norm(X, axis=1) - 1.0)))).astype(float)
        tables.append((X, y))
        objective = from_torch(module, LOSS, (X, y[:, None]), hessian=False, dtype="float32") / 3
        constraint = None
        if count:
            decisions = decisions_from_torch(module, X, dtype="float32")
            recall = CountedRates(decisions, [-y / y.sum()], [RECALL])
            constraint = fp.Constraint(recall, fp.cones.Nonnegative(1))
        shares.append(fp.Share(objective, constraint, name=name))
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-3)), tables


def recalls(problem: fp.FederatedProblem, w: np.ndarray) -> list[float]:
    """By the module itself, row by row."""
    found = []
    for share, (X, y) in zip(problem.shares, rings()[1], strict=True):
        module = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        fp.functions.parameters_to_torch(w, module)
        with torch.no_grad():
            decided = module(torch.tensor(X, dtype=torch.float32)).squeeze(-1).numpy() > 0
        assert share.name
        found.append(float(np.mean(decided[y == 1])))
    return found


def test_a_network_meets_counted_rates_that_it_misses_without_them() -> None:
    free, bounded = rings(count=False)[0], rings()[0]
    before = fp.solve(free, "stochastic-al", passes=40, batch_size=20)
    after = fp.solve(bounded, "stochastic-al", passes=40, batch_size=20)
    assert min(recalls(free, before.w)) < RECALL - 0.02
    assert min(recalls(bounded, after.w)) >= RECALL
    assert after.certificate.violation == 0
    assert after.status == "feasible"
    assert "every bound is met" in after.reason


GAP = 0.05


def biased() -> tuple[fp.FederatedProblem, list[tuple[np.ndarray, np.ndarray]]]:
    """A ReLU network on rows with a skewed column; every owner bounds the gap in recall between two groups, counted."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
    module = torch.nn.Sequential(*layers)
    shares = []
    tables = []
    for name in ("north", "south", "west"):
        group = (rng.random(400) < 0.6).astype(float)
        gain = np.exp(1.5 * rng.standard_normal(400))
        X = np.column_stack([group - 0.6, gain / gain.std(), rng.standard_normal((400, 2))])
        score = 0.6 * group + X[:, 1] + X[:, 2] - X[:, 3] ** 2 - 1
        y = (rng.random(400) < 1 / (1 + np.exp(-2 * score))).astype(float)
        tables.append((y, group))
        objective = from_torch(module, LOSS, (X, y[:, None]), hessian=False, dtype="float32") / 3
        gap = y * group / np.sum(y * group) - y * (1 - group) / np.sum(y * (1 - group))
        decisions = decisions_from_torch(module, X, dtype="float32")
        gaps = CountedRates(decisions, [gap, -gap], [-GAP, -GAP])
        shares.append(fp.Share(objective, fp.Constraint(gaps, fp.cones.Nonnegative(2)), name=name))
    return fp.FederatedProblem(shares), tables


def test_gaps_are_met_without_giving_all_rows_one_class() -> None:
    problem, tables = biased()
    found = fp.solve(problem, "stochastic-al", passes=20, batch_size=20, tol=(1e-3, 1e-9))
    right = []
    for share, (y, group) in zip(problem.shares, tables, strict=True):
        assert share.constraint is not None
        decided = share.constraint.function.soft.count(found.w)  # type: ignore[attr-defined]
        recalls = [np.mean(decided[(y == 1) & (group == one)]) for one in (0, 1)]
        assert abs(recalls[1] - recalls[0]) <= GAP + 1e-9
        right.append(np.mean(decided == y))
    one_class = 1 - np.mean([y for y, _ in tables])
    assert np.mean(right) > one_class + 0.05


def stop_at(exchanges: int) -> Any:
    return lambda progress: progress.rounds >= exchanges


@pytest.mark.parametrize("engine", ["in-process", pytest.param("ray", marks=pytest.mark.ray)])
def test_resumed_in_the_middle_of_a_pass_it_gives_the_same_bits(engine: str, tmp_path: Path, request: Any) -> None:
    if engine == "ray":
        request.getfixturevalue("ray_cluster")
    torch.set_num_threads(1)
    problem = rings()[0]
    options: dict[str, Any] = {"passes": 4, "batch_size": 20, "participation": 0.67}
    whole = fp.solve(problem, "stochastic-al", **options)
    stopped = fp.solve(problem, "stochastic-al", engine=engine, checkpoint=tmp_path, callbacks=[stop_at(9)], **options)
    assert stopped.status == "interrupted"
    resumed = fp.solve(problem, "stochastic-al", engine=engine, checkpoint=tmp_path, resume=True, **options)
    np.testing.assert_array_equal(resumed.w, whole.w)
    for price, same in zip(resumed.multipliers, whole.multipliers, strict=True):
        np.testing.assert_array_equal(price, same)
    assert resumed.certificate == whole.certificate


def test_other_methods_refuse_counted_rates() -> None:
    with raises_code("FP-OPTION-110"):
        fp.solve(rings()[0], "accelerated")


def test_other_methods_refuse_counted_rates_that_only_their_owners_hold() -> None:
    sources = {str(share.name): share for share in rings()[0].shares}
    with raises_code("FP-OPTION-110"):
        fp.solve(fp.RemoteProblem(sources), "accelerated")
