"""A problem in units of its own: the same problem, with derivatives of size one."""

import numpy as np
import pytest

import fedpact as fp
from fedpact import cones, functions, prox
from fedpact.errors import OptionError
from fedpact.problem.units import measure_units

COLUMNS = np.array([1e-4, 1.0, 1e5])


def uneven(factor=1e6, regularizer=None):
    """Two owners; columns, rows and objective in units that differ by up to 1e9."""
    rng = np.random.default_rng(3)
    shares = []
    for rows in (1e-5, 1e4):
        root = rng.standard_normal((3, 3))
        hessian = factor * (root.T @ root + np.eye(3)) * np.outer(COLUMNS, COLUMNS)
        objective = functions.Quadratic(0.5 * (hessian + hessian.T), factor * rng.standard_normal(3) * COLUMNS)
        normal = rng.standard_normal((1, 3)) * COLUMNS
        shares.append(fp.Share(objective, fp.Constraint(functions.Affine(rows * normal, [rows]), cones.Nonnegative(1))))
    return fp.FederatedProblem(shares, regularizer=regularizer)


def test_derivatives_are_of_size_one():
    problem = uneven()
    units = measure_units(problem, np.zeros(3))
    rescaled = units.rescale(problem)
    hessian = sum(share.objective.hessian(np.zeros(3)) for share in rescaled.shares)
    assert 0.2 < np.max(np.abs(hessian)) < 5
    assert np.all(np.max(np.abs(hessian), axis=0) > 0.01)
    for share in rescaled.shares:
        assert 0.5 <= np.max(np.abs(share.constraint.function.jacobian(np.zeros(3)))) <= 2


@pytest.mark.parametrize(
    "h",
    [
        None,
        prox.L1(2.0),
        prox.SquaredL2([1.0, 2.0, 3.0]),
        prox.ElasticNet(1.0, 2.0),
        prox.Box(-1.0, [1.0, 2.0, np.inf]),
        prox.GroupL2([[0, 1], [2]], 1.5),
        prox.Simplex(2.0),
    ],
    ids=repr,
)
def test_it_is_the_same_problem(h):
    """Values, slopes and regularizer at a point are those at the point in the user's units, times factors."""
    problem = uneven(regularizer=h)
    units = measure_units(problem, problem.start(None))
    rescaled = units.rescale(problem)
    v = rescaled.start(None) + 0.1
    if not rescaled.regularizer.contains(v):
        v = rescaled.regularizer.prox(v, 1.0)
    w = units.columns * v
    assert np.isclose(rescaled.regularizer.value(v), units.objective * problem.regularizer.value(w))
    for mine, theirs, rows in zip(rescaled.holders, problem.holders, units.rows, strict=True):
        if mine.objective is not None:
            assert np.isclose(mine.objective.value(v), units.objective * theirs.objective.value(w))
            gradient = units.objective * units.columns * theirs.objective.gradient(w)
            np.testing.assert_allclose(mine.objective.gradient(v), gradient)
        if mine.constraint is not None:
            np.testing.assert_allclose(mine.constraint.function.value(v), rows * theirs.constraint.function.value(w))
    slope = np.array([0.3, -0.2, 0.1])
    distance = rescaled.regularizer.subdifferential_distance(slope, v)
    if np.ptp(units.columns) == 0:
        theirs = problem.regularizer.subdifferential_distance(slope / units.objective / units.columns, w)
        assert np.isclose(distance, units.objective * units.columns[0] * theirs)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_relative_tolerances_do_not_depend_on_units(factor):
    """The optimum, to the same part of it, whatever the objective is counted in."""
    problem = uneven(factor)
    plain = uneven(1.0)
    answer = fp.solve(problem, tol=1e-7, relative=True)
    exact = fp.solve(plain, tol=1e-9, relative=True)
    assert answer.solved
    assert exact.solved
    np.testing.assert_allclose(COLUMNS * answer.w, COLUMNS * exact.w, atol=1e-5)
    np.testing.assert_allclose(answer.objective, factor * exact.objective, rtol=1e-6)
    prices = [price / factor for price in answer.multipliers[1:]]
    for one, other in zip(prices, exact.multipliers[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-12)


def test_auto_judges_in_the_units_given():
    problem = uneven(1.0)
    answer = fp.solve(problem, tol=1e-4)
    assert answer.solved
    assert fp.certify(problem, answer.w, answer.multipliers).meets((1e-4, 1e-4))


def test_relative_tolerances_need_functions_with_hessians():
    smooth = functions.Smooth(lambda w: (float(w @ w), 2 * w), dim=2)
    with pytest.raises(OptionError) as caught:
        fp.solve(fp.FederatedProblem([fp.Share(smooth)]), relative=True)
    assert caught.value.code == "FP-OPTION-968"
