"""What may stand inside a stochastic method: every design trains a convex model of owners that differ."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.functions import LogisticLoss

pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

from fedpact_experiments.bench.designs import DESIGNS, Design, train
from fedpact_experiments.bench.networks import Owner, Setting, network

pytestmark = pytest.mark.extras


def setting() -> Setting:
    """Three owners whose rows lie in different places, and bounds that never bind: recall above -1."""
    rng = np.random.default_rng(0)
    owners = {}
    for number, centre in enumerate((-1.5, 0.0, 1.5)):
        X = rng.standard_normal((128, 2)) + np.array([centre, -centre])
        y = (X @ [1.0, 0.5] + rng.logistic(size=128) > 0).astype(np.int64)
        recall = (y == 1) / -np.sum(y == 1)
        owners[f"owner {number}"] = Owner(X, y, recall[np.newaxis], np.array([-1.0]))
    return Setting("toy", owners, X, y, network((2, 1)), -1.0, -1)


@pytest.mark.parametrize("inside", DESIGNS, ids=lambda inside: inside.name)
def test_a_design_comes_near_to_the_optimum_of_a_convex_model(inside: type[Design]) -> None:
    given = setting()
    X = np.concatenate([owner.X for owner in given.owners.values()])
    y = np.concatenate([owner.y for owner in given.owners.values()])
    pooled = LogisticLoss(np.column_stack([X, np.ones(len(y))]), y)
    optimum = fp.solve(fp.FederatedProblem([fp.Share(pooled)]), tol=1e-8).objective
    start = given.problem(bounded=False).start(None)
    found = train(given, inside, 0.1, 40, seed=0)
    begun = pooled.value(start) - optimum
    assert begun > 0.1
    assert pooled.value(found) - optimum < 0.05 * begun
