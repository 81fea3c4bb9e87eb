"""Neyman-Pearson classification on the data sets of He24, Table 1: Algorithm 1 against Algorithm 3 and the optimum.

    python benchmarks/neyman_pearson.py --data DIR            all of it, about half an hour on two cores
    python benchmarks/neyman_pearson.py --data DIR --sets monks-1 --owners 5

Prints a Markdown table. The optimum comes from a solver that shares no code with fedpact: Clarabel through cvxpy on the
pooled data, or SciPy's SLSQP where the conic program would be too large (adult).
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import fedpact as fp
from fedpact import data, tasks

LOADERS = {"breast-cancer-wisc": data.breast_cancer_wisconsin, "monks-1": data.monks1, "adult-a": data.adult_a}
BOUND = 0.2
HEADER = (
    "set", "n", "d", "tol", "optimum", "Alg. 1", "Alg. 3", "1 vs 3", "1 vs optimum", "max class-1 loss",
    "status 1 / 3", "outer", "exchanges", "MB", "s, Alg. 1", "s, Alg. 3",
)  # fmt: skip


def owners_of(name: str, n: int, folder: str | None, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    table = LOADERS[name](folder)
    X = data.with_intercept(data.standardize(table.X))
    folds = data.stratified(table.y, n, seed, drop_remainder=True)
    return {f"owner {i}": (X[rows], table.y[rows]) for i, rows in enumerate(folds, 1)}


def class_loss(X: np.ndarray, label: int, w: np.ndarray) -> tuple[float, np.ndarray]:
    sign = 1 - 2 * label
    score = sign * (X @ w)
    return float(np.logaddexp(0, score).mean()), sign * (X.T @ expit(score)) / len(X)


def optimum(owners: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[float, str]:
    zeros = [X[y == 0] for X, y in owners.values()]
    ones = [X[y == 1] for X, y in owners.values()]
    if sum(map(len, zeros + ones)) < 5000:
        import cvxpy as cp

        w = cp.Variable(zeros[0].shape[1])
        cost = sum(cp.sum(cp.logistic(X @ w)) / len(X) for X in zeros) / len(owners)
        problem = cp.Problem(cp.Minimize(cost), [cp.sum(cp.logistic(-X @ w)) / len(X) <= BOUND for X in ones])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an optimum at infinity (monks-1) is "inaccurate"
            problem.solve(solver=cp.CLARABEL)
        return float(problem.value), "Clarabel"
    found = minimize(
        lambda w: tuple(sum(part) / len(owners) for part in zip(*(class_loss(X, 0, w) for X in zeros), strict=True)),
        np.zeros(zeros[0].shape[1]),
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda w: np.array([BOUND - class_loss(X, 1, w)[0] for X in ones]),
            "jac": lambda w: np.array([-class_loss(X, 1, w)[1] for X in ones]),
        },
        options={"maxiter": 2000, "ftol": 1e-10},
    )
    return float(found.fun), "SLSQP" if found.success else "SLSQP, not converged"


def row(name: str, n: int, tol: float, folder: str | None, seed: int, max_rounds: int) -> tuple[str, ...]:
    owners = owners_of(name, n, folder, seed)
    problem = tasks.neyman_pearson(owners, BOUND)
    best, source = optimum(owners)
    seconds = []
    answers = []
    for method, limit in (("proximal-al", max_rounds), ("centralized-proximal-al", 1000)):
        began = time.perf_counter()
        answers.append(fp.solve(problem, method, tol=tol, max_rounds=limit))
        seconds.append(time.perf_counter() - began)
    one, three = answers
    worst = max(class_loss(X[y == 1], 1, one.w)[0] for X, y in owners.values())
    return (
        name,
        str(n),
        str(problem.dim),
        f"{tol:g}",
        f"{best:.5f} ({source})",
        f"{one.objective:.5f}",
        f"{three.objective:.5f}",
        f"{abs(one.objective - three.objective) / three.objective:.1e}",
        f"{abs(one.objective - best) / best:.1e}",
        f"{worst:.5f}",
        f"{one.status} / {three.status}",
        str(one.history.outer[-1].iteration),
        str(one.rounds),
        f"{one.communication.bytes / 1e6:.1f}",
        f"{seconds[0]:.1f}",
        f"{seconds[1]:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the UCI files; default: FEDPACT_DATA, then the cache")
    parser.add_argument("--sets", nargs="+", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--owners", nargs="+", type=int, default=[1, 5, 10, 20])
    parser.add_argument("--tol", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--seed", type=int, default=0, help="of the split into owners")
    parser.add_argument("--max-rounds", type=int, default=20_000, help="budget of a cell; shown as status max_rounds")
    options = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER))
    for name in options.sets:
        for tol in options.tol:
            for n in options.owners:
                cells = row(name, n, tol, options.data, options.seed, options.max_rounds)
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
