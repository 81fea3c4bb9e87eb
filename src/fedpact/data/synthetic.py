"""Random problems of the papers and of our own measurements. Same seed, same arrays."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fedpact.data.table import Labels, Matrix, with_intercept
from fedpact.errors import OptionError

#: Range of the eigenvalues of A_i in each variant of the quadratic program.
EIGENVALUES = {"he24": (0.5, 1.0), "he24-conic": (5.0, 10.0)}

# With these, bound 0.2 and 5 to 20 owners, 4 to 7 bounds are active at the optimum of neyman_pearson().
CLASS_DISTANCE = 2.0
OWNER_SPREAD = 0.3
CLASS_1_SPREAD = 0.3


class QPArrays(NamedTuple):
    """min_w sum_i w'A_i w / 2 + b_i'w  s.t.  C_0 w + d_0 = 0 (server), C_i w + d_i = 0 (owner i = 1..n)."""

    A: Matrix  # n x d x d
    b: Matrix  # n x d
    C: Matrix  # (n + 1) x m x d, the server's first
    d: Matrix  # (n + 1) x m


def lcqp(n: int, d: int, m: int, seed: int = 0, variant: Literal["he24", "he24-conic"] = "he24") -> QPArrays:
    """The linearly constrained quadratic program of He24 (84), m equalities at the server and at each owner.

    variant:
        "he24" (Appendix E.2): eigenvalues of A_i uniform in [0.5, 1], entries of C normal with deviation 1/sqrt(d),
        b_i and d_i uniform on the unit sphere.
            # differs from He24 E.2: d_0 = 0, because the objectives printed in Table 4 fit that and no unit d_0.
        "he24-conic" (Section 5.1 there): eigenvalues uniform in [5, 10], b, C and d (d_0 included) standard normal.
    """
    _check_at_least(1, n=n, d=d, m=m)
    if variant not in EIGENVALUES:
        raise OptionError(f"variant is {variant!r}; choose {', '.join(EIGENVALUES)}", code="FP-OPTION-448")
    if (n + 1) * m > d:
        raise OptionError(
            f"(n + 1) m = {(n + 1) * m} random equalities in d = {d} variables have no solution; raise d",
            code="FP-OPTION-449",
        )
    rng = np.random.default_rng(seed)
    low, high = EIGENVALUES[variant]
    A = np.stack([_with_eigenvalues(rng.uniform(low, high, d), rng) for _ in range(n)])
    b = rng.standard_normal((n, d))
    C = rng.standard_normal((n + 1, m, d))
    offset = rng.standard_normal((n + 1, m))
    if variant == "he24":
        b /= np.linalg.norm(b, axis=1, keepdims=True)
        C /= np.sqrt(d)
        offset /= np.linalg.norm(offset, axis=1, keepdims=True)
        offset[0] = 0.0
    return QPArrays(A, b, C, offset)


def neyman_pearson(n: int, rows: int = 400, d: int = 21, seed: int = 0) -> dict[str, tuple[Matrix, Labels]]:
    """n owners with `rows` rows of d - 1 normal features and an intercept; a quarter of the rows are class 1.

    The classes lie along one common direction; every owner's rows are shifted by a vector of its own, and class 1
    by another, so the owners disagree and several of the bounds "mean class-1 loss <= 0.2" are active at the
    optimum. The bounds are feasible whatever the seed: a large intercept makes every class-1 loss small.
    """
    _check_at_least(1, n=n)
    _check_at_least(2, d=d)  # a feature and an intercept
    _check_at_least(4, rows=rows)  # one of them of class 1
    rng = np.random.default_rng(seed)
    features = d - 1
    direction = rng.standard_normal(features)
    direction *= CLASS_DISTANCE / np.linalg.norm(direction)
    owners = {}
    for i in range(1, n + 1):
        y = (np.arange(rows) < rows // 4).astype(np.int64)
        shift = OWNER_SPREAD * rng.standard_normal(features)
        shift_of_class_1 = direction + CLASS_1_SPREAD * rng.standard_normal(features)
        X = rng.standard_normal((rows, features)) + shift + np.outer(y, shift_of_class_1)
        owners[f"client {i}"] = (with_intercept(X), y)
    return owners


def _with_eigenvalues(eigenvalues: Matrix, rng: np.random.Generator) -> Matrix:
    """U diag(eigenvalues) U' with U uniform among the orthogonal matrices (QR with the signs of R made positive)."""
    Q, R = np.linalg.qr(rng.standard_normal((len(eigenvalues), len(eigenvalues))))
    U = Q * np.sign(np.diag(R))
    A = (U * eigenvalues) @ U.T
    return np.asarray((A + A.T) / 2)  # exactly symmetric


def _check_at_least(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise OptionError(f"{name} is {size}; it must be at least {least}", code="FP-OPTION-451")
