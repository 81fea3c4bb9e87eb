"""Digits of coefficients: small residuals are none where columns nearly agree. NIST's certified values judge."""

import numpy as np
import pytest

import fedpact as fp
from fedpact.functions import SquaredLoss

#: NIST, Statistical Reference Datasets, Longley: certified coefficients, intercept first.
LONGLEY = [-3482258.63459582, 15.0618722713733, -0.0358191792925910, -2.02022980381683]
LONGLEY += [-1.03322686717359, -0.0511041056535807, 1829.15146461355]
#: NIST, Norris: y = B0 + B1 x.
NORRIS = [-0.262323073774029, 1.00211681802045]
NORRIS_Y = [0.1, 338.8, 118.1, 888.0, 9.2, 228.1, 668.5, 998.5, 449.1, 778.9, 559.2, 0.3, 0.1, 778.1, 668.8, 339.3]
NORRIS_Y += [448.9, 10.8, 557.7, 228.3, 998.0, 888.8, 119.6, 0.3, 0.6, 557.6, 339.3, 888.0, 998.5, 778.9, 10.2, 117.6]
NORRIS_Y += [228.9, 668.4, 449.2, 0.2]
NORRIS_X = [0.2, 337.4, 118.2, 884.6, 10.1, 226.5, 666.3, 996.3, 448.6, 777.0, 558.2, 0.4, 0.6, 775.5, 666.9, 338.0]
NORRIS_X += [447.5, 11.6, 556.0, 228.1, 995.8, 887.6, 120.2, 0.3, 0.3, 556.8, 339.1, 887.2, 999.0, 779.0, 11.1, 118.3]
NORRIS_X += [229.2, 669.1, 448.9, 0.5]


def least_squares(X: np.ndarray, y: np.ndarray) -> fp.FederatedProblem:
    return fp.FederatedProblem([fp.Share(SquaredLoss(X[i::2], y[i::2])) for i in (0, 1)])


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_longley_is_solved_only_with_digits(tol: float) -> None:
    table = pytest.importorskip("statsmodels.datasets.longley").load_pandas()
    X = np.column_stack([np.ones(16), table.exog.to_numpy()])
    answer = fp.solve(least_squares(X, table.endog.to_numpy()), tol=tol, relative=True)
    digits = answer.certificate.digits
    assert digits is not None
    error = abs(answer.w[0] / LONGLEY[0] - 1)
    assert -np.log10(error) >= digits - 0.5  # no more is claimed than there are
    assert (answer.status == "solved") == (digits >= 1)
    assert answer.status == "stalled" or "digits" in repr(answer)


def test_norris_has_the_digits_it_says() -> None:
    X = np.column_stack([np.ones(36), NORRIS_X])
    answer = fp.solve(least_squares(X, np.array(NORRIS_Y)), tol=1e-6, relative=True)
    assert answer.solved
    assert answer.certificate.digits is not None
    assert answer.certificate.digits >= 5
    np.testing.assert_allclose(answer.w, NORRIS, rtol=1e-5)


@pytest.mark.parametrize("degree", [2, 5])
def test_wampler_s_polynomials(degree: int) -> None:
    """NIST, Wampler1 and its kin: y is a polynomial of x = 0, ..., 20 with all coefficients 1."""
    x = np.arange(21.0)
    X = np.vander(x, degree + 1, increasing=True)
    answer = fp.solve(least_squares(X, X.sum(axis=1)), tol=1e-9, relative=True)
    digits = answer.certificate.digits
    assert digits is not None
    if answer.solved:
        assert np.max(np.abs(answer.w - 1)) <= 1.0


def test_a_problem_that_is_far_from_one_has_no_digits_counted() -> None:
    lasso = fp.FederatedProblem([fp.Share(SquaredLoss(np.eye(3), np.ones(3)))], regularizer=fp.prox.L1(0.1))
    answer = fp.solve(lasso, tol=1e-6, relative=True)
    assert answer.solved
    assert answer.certificate.digits is None
