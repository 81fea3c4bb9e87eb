"""Small tables of counts whose columns are nearly dependent: Newton's first step goes far too far."""

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Zero
from fedpact.functions import Affine, PoissonLoss


def counts(seed, equality):
    """10 rows and 7 columns of condition near 900 at three owners; the server may ask for two equal coefficients."""
    rng = np.random.default_rng([5, seed])
    X = rng.standard_normal((10, 7))
    X[:, 0] = 1.0
    X[:, 6] = X[:, 5] + X[:, 6] / 400
    y = rng.poisson(np.exp(1.5 + 0.5 * X[:, :6] @ rng.standard_normal(6))).astype(float)
    equal = fp.Constraint(Affine(np.array([[1.0, -1.0, 0, 0, 0, 0, 0]]), np.zeros(1)), Zero(1))
    shares = [fp.Share(PoissonLoss(X[owner::3], y[owner::3])) for owner in range(3)]
    return fp.FederatedProblem(shares, fp.Share(None, equal) if equality else None)


@pytest.mark.parametrize("equality", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_few_exchanges(seed, equality):
    found = fp.solve(counts(seed, equality), tol=1e-8)
    assert found.status == "solved"
    assert found.rounds <= 26
