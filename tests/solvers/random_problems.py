"""Random convex problems that are feasible by construction, each with its conic program on pooled data."""

import warnings
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np

import fedpact as fp
from fedpact import cones, functions, prox

D = 4  # variables


class Inaccurate(Exception):
    """The conic solver does not vouch for its answer."""


@dataclass
class Conic:
    """The same problem in cvxpy; `constraints[i]` are those of holder i (0 is the server)."""

    w: cp.Variable
    objective: cp.Expression
    constraints: list[list[cp.Constraint]] = field(default_factory=list)

    def solve(self) -> tuple[float, np.ndarray, list[np.ndarray]]:
        """Optimal value, w, and the multipliers by holder in our sign: the gradient is zero at grad f + J' mu."""
        problem = cp.Problem(cp.Minimize(self.objective), [c for group in self.constraints for c in group])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is inaccurate is told by the status
            problem.solve(solver=cp.CLARABEL)
        if problem.status != "optimal":
            raise Inaccurate(problem.status)
        return float(problem.value), np.asarray(self.w.value), [_prices(group) for group in self.constraints]


def _prices(group):
    found = [np.zeros(0)]
    for constraint in group:
        dual = constraint.dual_value
        # cvxpy keeps (t's price, x's price) of a second-order cone apart; x's has the other sign
        found.append(np.concatenate([np.ravel(part) for part in dual]) if isinstance(dual, list) else np.ravel(dual))
    return np.concatenate(found)


def random_problem(seed, n, objective="quadratic", kinds=("inequality",), h=None, at_server=(), d=D):
    """A problem with n owners, each with the constraints `kinds`, the server with `at_server`; and its Conic.

    All constraints hold at one random point, inequalities and cones with room, so Slater's condition holds.
    """
    rng = np.random.default_rng(seed)
    inside = rng.standard_normal(d) * 0.5
    if h == "box":
        inside = np.clip(inside, -0.4, 0.4)
    w = cp.Variable(d)
    conic = Conic(w, 0.0)
    # Equalities must not use up all variables together.
    normals = rng.standard_normal((max(d - 2, 1), d))
    used = 0

    def constraint(kind):
        nonlocal used
        if kind == "equality":
            a = normals[used % len(normals)]
            used += 1
            return fp.Constraint(functions.Affine(a[None, :], [-a @ inside]), cones.Zero(1)), a[None] @ w == a @ inside
        if kind == "inequality":
            A = rng.standard_normal((2, d))
            offset = -A @ inside - rng.uniform(0.05, 1.0, 2)
            return fp.Constraint(functions.Affine(A, offset), cones.Nonnegative(2)), A @ w + offset <= 0
        if kind == "ball":  # |A (w - centre)| <= radius, as a second-order cone
            A = rng.standard_normal((2, d))
            centre = rng.standard_normal(d)
            radius = np.linalg.norm(A @ (inside - centre)) + rng.uniform(0.1, 0.5)
            stacked = np.vstack([np.zeros(d), A])
            shift = np.concatenate([[-radius], -A @ centre])
            c = fp.Constraint(functions.Affine(stacked, shift), cones.SecondOrder(3))
            return c, cp.SOC(cp.Constant(radius), -(A @ w - A @ centre))
        assert kind == "curved"  # a convex quadratic below a bound
        root = rng.standard_normal((d, d)) / 2
        Q, q = root.T @ root, rng.standard_normal(d)
        bound = 0.5 * inside @ Q @ inside + q @ inside + rng.uniform(0.05, 0.5)
        c = fp.Constraint(functions.Quadratic(Q, q) - bound, cones.Nonnegative(1))
        return c, 0.5 * cp.sum_squares(root @ w) + q @ w - bound <= 0

    def holder(kinds_here):
        made = [constraint(kind) for kind in kinds_here]
        conic.constraints.append([c for _, c in made])
        return [c for c, _ in made] or None

    server = fp.Share(None, holder(at_server)) if at_server else None
    if server is None:
        conic.constraints.append([])
    shares = []
    for _ in range(n):
        if objective == "quadratic":
            root = rng.standard_normal((d, d))
            A, b = root.T @ root / d + 0.2 * np.eye(d), rng.standard_normal(d)
            f, term = functions.Quadratic(A, b), 0.5 * cp.quad_form(w, cp.psd_wrap(A)) + b @ w
        else:
            X, y = rng.standard_normal((30, d)), rng.integers(0, 2, 30)
            y[:2] = 0, 1
            f = functions.LogisticLoss(X, y) + functions.Quadratic(0.1 * np.eye(d), np.zeros(d))
            term = cp.sum(cp.logistic(X @ w) - cp.multiply(y, X @ w)) / 30 + 0.05 * cp.sum_squares(w)
        conic.objective = conic.objective + term
        shares.append(fp.Share(f, holder(kinds)))
    regularizer = None
    if h == "l1":
        regularizer, conic.objective = prox.L1(0.3), conic.objective + 0.3 * cp.norm1(w)
    elif h == "box":
        regularizer = prox.Box(-0.5, 0.5)
        box = [w <= 0.5, w >= -0.5]
        conic.constraints.append(box)
    return fp.FederatedProblem(shares, server, regularizer), conic
