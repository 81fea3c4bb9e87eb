"""The problems of `fedpact bench local`: eight that were tuned by hand, and two whose owners differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpact import tasks
from fedpact.functions import Linear, Quadratic, Vector
from fedpact.problem import FederatedProblem, MonotoneProblem, Share
from fedpact.prox import L1, Box
from fedpact_experiments import datasets

WEIGHT = 1e-5  # of the squared norm in the logistic problems, as in iFedDR, Table 2


def _least_squares(A: Vector, b: Vector) -> list[Share]:
    n, rows = b.shape
    return [Share(Quadratic(M.T @ M / (rows * n), -M.T @ c / (rows * n))) for M, c in zip(A, b, strict=True)]


def lasso(folder: str | None) -> FederatedProblem:
    arrays = datasets.ifeddr_problems(folder)
    return FederatedProblem(_least_squares(arrays.lasso_A, arrays.lasso_b), None, L1(arrays.lasso_alpha))


def box(folder: str | None) -> FederatedProblem:
    arrays = datasets.ifeddr_problems(folder)
    return FederatedProblem(_least_squares(arrays.box_A, arrays.box_b), None, Box(arrays.box_lo, arrays.box_hi))


def logistic(folder: str | None) -> FederatedProblem:
    arrays = datasets.ifeddr_problems(folder)
    owners = {f"owner {i}": own for i, own in enumerate(zip(arrays.logistic_A, arrays.logistic_y, strict=True), 1)}
    return tasks.logistic_regression(owners, arrays.logistic_reg)


def _linear(M: Vector, q: Vector) -> list[Share]:
    return [Share(Linear(matrix / len(M), offset / len(M))) for matrix, offset in zip(M, q, strict=True)]


def saddle(folder: str | None) -> FederatedProblem:
    arrays = datasets.ifeddr_problems(folder)
    return MonotoneProblem(_linear(arrays.saddle_M, arrays.saddle_q))


def box_saddle(folder: str | None) -> FederatedProblem:
    arrays = datasets.ifeddr_problems(folder)
    bound = arrays.boxsaddle_bound
    return MonotoneProblem(_linear(arrays.boxsaddle_M, arrays.boxsaddle_q), Box(-bound, bound))


def uneven(seed: int = 0, n: int = 10, d: int = 20, rows: int = 200) -> FederatedProblem:
    """Logistic regression at owners whose curvatures differ by 100: rows of owner 1 are a tenth as long as the last's.

    Each has labels from a model of its own, near a common one.
    """
    rng = np.random.default_rng(seed)
    common_model = rng.standard_normal(d)
    owners = {}
    for i, curvature in enumerate(np.logspace(-1, 1, n), 1):
        X = rng.standard_normal((rows, d)) * np.sqrt(curvature)
        score = X @ (common_model + 0.5 * rng.standard_normal(d))
        score *= 2 * np.sqrt(rows) / np.linalg.norm(score)
        owners[f"owner {i}"] = (X, (score + rng.logistic(size=rows) > 0).astype(np.int64))
    return tasks.logistic_regression(owners, 1e-3)


def conditioned(seed: int = 0, n: int = 10, d: int = 20) -> FederatedProblem:
    """Quadratics whose condition numbers rise from 1 at the first owner to 100 at the last; largest eigenvalues 1."""
    rng = np.random.default_rng(seed)
    shares = []
    for number in np.logspace(0, 2, n):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        half = np.sqrt(np.logspace(-np.log10(number), 0, d))[:, None] * Q.T
        A = half.T @ half
        shares.append(Share(Quadratic(A / n, -A @ rng.standard_normal(d) / n)))
    return FederatedProblem(shares)


def wdbc(folder: str | None) -> FederatedProblem:
    return tasks.logistic_regression(datasets.wdbc_by_label(), WEIGHT)


def vehicle(folder: str | None) -> FederatedProblem:
    return tasks.logistic_regression(datasets.vehicle23(folder), WEIGHT)


def w8a(folder: str | None) -> FederatedProblem:
    return tasks.logistic_regression(datasets.w8a(folder), WEIGHT)


#: name -> the problem, from the folder of the data
PROBLEMS: dict[str, Callable[[str | None], FederatedProblem]] = {
    "lasso": lasso,
    "box": box,
    "logistic": logistic,
    "saddle": saddle,
    "box-saddle": box_saddle,
    "wdbc": wdbc,
    "vehicle": vehicle,
    "w8a": w8a,
}
#: name -> the problem, from a seed
UNEVEN: dict[str, Callable[[int], FederatedProblem]] = {"uneven": uneven, "conditioned": conditioned}
