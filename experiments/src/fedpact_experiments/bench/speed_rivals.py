"""What `fedpact bench speed` compares with, on pooled rows: the arithmetic alone, and three solvers at their best.

Every rival gets the Neyman-Pearson problem as somebody who has all rows would write it: two matrices, one weight a row,
and the constraints of all owners in one vector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from fedpact.errors import FedpactError, install
from fedpact.types import Matrix, Vector
from fedpact_experiments.bench.problems import BOUND, cvxpy

#: A change of the objective by this ends SLSQP: it is of second order in the certificate.
SLSQP_CHANGE = 1e-12
#: IPOPT's own tolerance, in its scaled units: with 1e-7 some answers miss the certificate of 1e-6.
IPOPT_TOL = 1e-8


@dataclass(frozen=True)
class Answer:
    """CPU seconds without the set-up, the set-up (a model, derivatives), the point, and a price for every owner."""

    seconds: float
    setup: float
    w: Vector
    prices: Vector


class Pooled:
    """The rows of all owners: class 0 (A) is in the objective, class 1 (B) in the owners' constraints."""

    def __init__(self, owners: Mapping[str, tuple[Matrix, NDArray[np.int64]]]) -> None:
        self.parts = [(np.array(X[y == 0]), np.array(X[y == 1])) for X, y in owners.values()]
        n = len(self.parts)
        self.A = np.vstack([zeros for zeros, _ in self.parts])
        self.B = np.vstack([ones for _, ones in self.parts])
        self.weight_A = np.concatenate([np.full(len(zeros), 1 / len(zeros) / n) for zeros, _ in self.parts])
        self.weight_B = np.concatenate([np.full(len(ones), 1 / len(ones)) for _, ones in self.parts])
        counts = [len(ones) for _, ones in self.parts]
        self.owner_of_row = np.repeat(np.arange(n), counts)
        self.first_rows = np.cumsum([0, *counts[:-1]])
        self.dim = int(self.A.shape[1])

    def objective(self, w: Vector) -> tuple[float, Vector]:
        score = self.A @ w
        return float(self.weight_A @ np.logaddexp(0.0, score)), self.A.T @ (self.weight_A * expit(score))

    def room(self, w: Vector) -> Vector:
        """How far each owner's loss is below its bound."""
        losses = self.weight_B * np.logaddexp(0.0, -(self.B @ w))
        return BOUND - np.add.reduceat(losses, self.first_rows)

    def room_slopes(self, w: Vector) -> Matrix:
        slopes = self.weight_B * expit(-(self.B @ w))
        return np.asarray(np.add.reduceat(slopes[:, None] * self.B, self.first_rows, axis=0))


def run_floor(pooled: Pooled, gradients: int, hessians: int) -> float:
    """CPU seconds of the arithmetic alone: so many gradients and Gram products of both functions of every owner."""
    w = np.zeros(pooled.dim)
    began = time.process_time()
    for number in range(max(gradients, hessians)):
        for zeros, ones in pooled.parts:
            for X, sign in ((zeros, 1.0), (ones, -1.0)):
                score = sign * (X @ w)
                wrong = expit(score)
                if number < gradients:
                    np.logaddexp(0.0, score).sum()
                    X.T @ (wrong / len(X))
                if number < hessians:
                    half = np.sqrt(wrong * (1 - wrong) / len(X))[:, None] * X
                    half.T @ half  # NumPy calls BLAS's syrk here
    return time.process_time() - began


def run_slsqp(pooled: Pooled) -> Answer:
    """SciPy's SLSQP, exact gradients."""
    scipy_minimize: Any = minimize  # its stubs know no answer with multipliers
    constraint = {"type": "ineq", "fun": pooled.room, "jac": pooled.room_slopes}
    options = {"ftol": SLSQP_CHANGE, "maxiter": 1000}
    began = time.process_time()
    found = scipy_minimize(
        pooled.objective, np.zeros(pooled.dim), jac=True, method="SLSQP", constraints=constraint, options=options
    )
    seconds = time.process_time() - began
    prices = found.get("multipliers")  # since SciPy 1.16
    if prices is None:
        prices = np.full(len(pooled.parts), np.nan)
    return Answer(seconds, 0.0, found.x, np.asarray(prices))


def run_ipopt(pooled: Pooled) -> Answer:
    """IPOPT through CasADi, exact Hessians by its automatic differentiation."""
    casadi = _casadi()

    def softplus(x: Any) -> Any:
        return casadi.fmax(x, 0) + casadi.log1p(casadi.exp(-casadi.fabs(x)))

    began = time.process_time()
    n = len(pooled.parts)
    rows = len(pooled.B)
    w = casadi.MX.sym("w", pooled.dim)
    triplets = casadi.Sparsity.triplet(n, rows, pooled.owner_of_row.tolist(), list(range(rows)))
    add_by_owner = casadi.DM(triplets, pooled.weight_B)
    objective = casadi.dot(casadi.DM(pooled.weight_A), softplus(casadi.mtimes(casadi.DM(pooled.A), w)))
    losses = casadi.mtimes(add_by_owner, softplus(-casadi.mtimes(casadi.DM(pooled.B), w)))
    options = {
        "print_time": False,
        "ipopt": {"print_level": 0, "sb": "yes", "tol": IPOPT_TOL, "acceptable_iter": 0},
    }
    solver = casadi.nlpsol("solver", "ipopt", {"x": w, "f": objective, "g": losses - BOUND}, options)
    built = time.process_time()
    found = solver(x0=np.zeros(pooled.dim), ubg=0.0, lbg=-np.inf)
    done = time.process_time()
    w_found = np.array(found["x"]).ravel()
    return Answer(done - built, built - began, w_found, np.array(found["lam_g"]).ravel())


def _casadi() -> Any:
    """The module; FedpactError says how to get it."""
    try:
        import casadi
    except ImportError as error:
        raise FedpactError(f"IPOPT comes with CasADi; {install('bench')}") from error
    return casadi


def run_clarabel(pooled: Pooled) -> Answer:
    """Clarabel on the exponential cones that cvxpy makes of it; its own tolerances, 1e-8."""
    import scipy.sparse as sp

    cp = cvxpy()
    began = time.process_time()
    n = len(pooled.parts)
    rows = np.arange(len(pooled.B))
    add_by_owner = sp.csr_array((pooled.weight_B, (pooled.owner_of_row, rows)), shape=(n, len(rows)))
    w = cp.Variable(pooled.dim)
    cost = pooled.weight_A @ cp.logistic(pooled.A @ w)
    bound = add_by_owner @ cp.logistic(-pooled.B @ w) <= BOUND
    problem = cp.Problem(cp.Minimize(cost), [bound])
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts={})
    built = time.process_time()
    raw = chain.solve_via_data(problem, data, solver_opts={})
    done = time.process_time()
    problem.unpack_results(raw, chain, inverse)
    return Answer(done - built, built - began, np.asarray(w.value), np.asarray(bound.dual_value))


RIVALS: dict[str, Callable[[Pooled], Answer]] = {
    "SLSQP": run_slsqp,
    "IPOPT": run_ipopt,
    "Clarabel": run_clarabel,
}
