"""Independent answers on pooled data: conic programs through cvxpy and Clarabel, sharing no code with the solvers."""

import cvxpy as cp
import numpy as np


def logistic_mean(X, y, w):
    """Mean logistic loss as a cvxpy expression."""
    return cp.sum(cp.logistic(X @ w) - cp.multiply(y, X @ w)) / len(y)


def solved(objective, constraints, attained=True):
    problem = cp.Problem(cp.Minimize(objective), constraints)
    for accuracy in (1e-9, 1e-8):  # not every build of Clarabel reaches the first
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=accuracy, tol_gap_rel=accuracy, tol_feas=accuracy)
        if problem.status == "optimal":
            break
    # an optimum at infinity is approached, and Clarabel then says that its answer is inaccurate
    assert problem.status in (["optimal"] if attained else ["optimal", "optimal_inaccurate"]), problem.status
    return float(problem.value)


def neyman_pearson(owners, bound, attained=True):
    """Optimal value, w and multipliers of Neyman-Pearson classification on pooled data; owners: name -> (X, y)."""
    w = cp.Variable(next(iter(owners.values()))[0].shape[1])
    tables = list(owners.values())
    objective = sum(logistic_mean(X[y == 0], y[y == 0], w) for X, y in tables) / len(tables)
    constraints = [logistic_mean(X[y == 1], y[y == 1], w) <= bound for X, y in tables]
    value = solved(objective, constraints, attained)
    return value, np.asarray(w.value), [float(c.dual_value) for c in constraints]
