"""Networks on pooled rows by Cooper: the rates of all owners are theirs, and multipliers act."""

from __future__ import annotations

import numpy as np
import pytest

from fedpact.functions import decisions_from_torch

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
pytest.importorskip("cooper", reason="Cooper is not installed: pip install -e 'experiments[networks]'")

from fedpact_experiments.bench.cooper import Bounded, PooledRates, train_pooled  # noqa: E402
from fedpact_experiments.bench.networks import loss, network  # noqa: E402

pytestmark = pytest.mark.extras

RECALL = 0.9


def owners() -> list[Bounded]:
    """Two owners, of whom the second also bounds the false alarms; classes overlap and class 1 is rare."""
    rng = np.random.default_rng(0)
    held = []
    for number in (0, 1):
        y = (rng.random(300) < 0.2).astype(np.int64)
        X = rng.standard_normal((300, 2)) + 1.2 * y[:, np.newaxis]
        lines = [(y == 1) / -np.sum(y == 1), (y == 0) / np.sum(y == 0)][: number + 1]
        held.append((X, y, np.stack(lines), np.array([RECALL, -0.9])[: number + 1]))
    return held


def test_the_rates_of_pooled_rows_are_those_of_the_owners() -> None:
    held = owners()
    decided = np.random.default_rng(1).random((600, 1))
    pooled = PooledRates(held)(torch.tensor(decided, dtype=torch.float32), torch.arange(600))
    apart = [
        lines @ share[:, 0] + constant
        for (_, _, lines, constant), share in zip(held, np.split(decided, 2), strict=True)
    ]
    np.testing.assert_allclose(pooled.numpy(), np.concatenate(apart), atol=1e-5)


def test_multipliers_raise_the_recalls_that_they_price() -> None:
    held = owners()
    module = network((2, 8, 1))

    def recalls(bounded: list[Bounded]) -> list[float]:
        w = train_pooled(module, loss, bounded, passes=400)
        return [float(decisions_from_torch(module, X).count(w)[y == 1].mean()) for X, y, _, _ in held]

    idle = [(X, y, lines, np.full(len(lines), -1.0)) for X, y, lines, _ in held]
    assert max(recalls(idle)) < 0.7
    assert min(recalls(held)) > 0.8
