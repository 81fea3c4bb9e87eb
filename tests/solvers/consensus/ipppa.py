"""iPPPA and iDRS, the methods that iFedDR is a case of, for small dense problems: references for tests and readers.

Not federated, and no methods of `fp.solve`: plain functions of vectors, written beside the paper (iFedDR, sections 4-5
and appendices C-D.1). For 0 in T z, T maximally monotone and P positive semidefinite, from z:

    find z' and v' in T z', v' in range P:  P z - P z' = v' + eps,  |eps| <= sigma max(|v'|, |P z - P z'|)
    z <- z - lambda alpha P v',             alpha = <v', P z - P z'> / |P v'|^2

in the norm and product of R^-1, where R = I - Q + P and Q projects onto range P. On range P, R^-1 P is the identity and
R is P, so <v', P z - P z'> is <v', Q z - Q z'>, and the update is the projection of Q z in the norm of R^-1, relaxed,
onto {u : <v', Q z' - u> >= 0}, which holds Q zer T. Hence |Q z - Q z*| in that norm never grows, and

    sum_k lambda (2 - lambda) alpha_k^2 |P v'_k|^2 <= |Q z_0 - Q z*|^2                                              (*)

differs from iFedDR (C.7), whose first line prints (1 - lambda) / lambda for (2 - lambda) / lambda; from Theorem 5.1,
where (1 - sigma)^2 stands on the wrong side; and from Theorem D.1, whose factor gamma (1 + gamma^2) rests on
|R| |R^-1| = 1, which is false. For iDRS (*) says: sum |x'_k - p_k|^2 <= |s_0 - s*|^2 / (lambda (2 - lambda)
(1 - sigma)^2), and the natural residual is |x' - p| / gamma.

Notation
    z^k, s^k           points
    bar z^k, bar x^k   resolved      (z' and x' above)
    bar v^k, bar u^k   images        in T bar z^k, in A bar x^k
    eps^k, eps_1^k     errors
    sigma, lambda      error, relaxation
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpact.functions import Matrix, Vector

#: Attempts at an admissible error before it is taken to be zero.
MOST_ATTEMPTS = 60

#: u -> the z with u in P z + T z, or with u in z + gamma B z.
Resolvent = Callable[[Vector], Vector]
#: (k, attempt, s) -> (x, u): x ~ (id + gamma A)^-1(s) and u in A x, the nearer the later the attempt.
Approximate = Callable[[int, int, Vector], tuple[Vector, Vector]]


@dataclass(frozen=True)
class Iterates:
    """One row a round; `points` has one more, the last."""

    points: Matrix
    resolved: Matrix
    images: Matrix
    errors: Matrix
    alphas: Vector
    attempts: NDArray[np.int64]  # tries that were refused


@dataclass(frozen=True)
class Splitting(Iterates):
    """As Iterates, of s, x, u and eps_1; with p = (id + gamma B)^-1(v), v = x - gamma u, and y = (v - p) / gamma."""

    p: Matrix
    duals: Matrix


def affine_resolvent(M: Matrix, q: Vector, P: Matrix) -> Resolvent:
    """(P + T)^-1 for T z = M z + q, M + M' positive semidefinite and P + M regular."""
    return lambda u: np.asarray(np.linalg.solve(P + M, u - q))


def range_and_metric(P: Matrix) -> tuple[Matrix, Matrix]:
    """Q, the projection onto range P, and R = I - Q + P."""
    values, vectors = np.linalg.eigh(P)
    basis = vectors[:, values > 1e-12 * max(float(values[-1]), 0.0)]
    Q = basis @ basis.T
    return Q, np.eye(len(P)) - Q + P


def ipppa(
    resolvent: Resolvent,
    P: Matrix,
    z0: Vector,
    *,
    rounds: int,
    errors: Matrix | None = None,
    error: float = 0.9,
    relaxation: float = 1.0,
    tol: float = 0.0,
    printed: bool = True,
) -> Iterates:
    """The inexact preconditioned proximal point algorithm.

    resolvent: (P + T)^-1
    tol: of |v'| in R^-1; the last round is the first that meets it, if any of the `rounds` does
    errors: (rounds, d): the eps of each round, projected onto range P and halved until they are admissible; None: exact
    printed: the update above. With eps = 0 it is z - lambda alpha P^2 (z - z'), the exact method (PPPA) only where P^2
        is a multiple of P, as it is for (4.2). False: the projection in the norm of R, along R^-1 v'; that is PPPA
        with alpha = 1 for every P when eps = 0, and alpha >= 1 - sigma always.
    """
    Q, R = range_and_metric(P)
    inverse = np.linalg.inv(R)
    z, log = np.array(z0, dtype=np.float64), _Log()
    for k in range(rounds):
        for attempt in range(MOST_ATTEMPTS + 1):
            eps = np.zeros_like(z) if errors is None or attempt == MOST_ATTEMPTS else 0.5**attempt * (Q @ errors[k])
            resolved = resolvent(P @ z - eps)
            # differs from (iPPPA) in section 4, which prints P bar z - P z here and in alpha: its signs contradict
            # bar z = (P + T)^-1 (P z - eps). Appendix D.1 prints them right.
            moved = P @ (z - resolved)
            image = moved - eps  # in T bar z, and in range P because eps is
            size = max(image @ inverse @ image, moved @ inverse @ moved)
            if eps @ inverse @ eps <= error**2 * size:
                break
        step = P @ image if printed else inverse @ image
        square = float(image @ step)  # |P v|^2 in R^-1, or |v|^2 in R^-1
        alpha = float(image @ inverse @ moved) / square if square > 0 else 1.0
        log.add(z, resolved, image, eps, alpha, attempt)
        z = z - relaxation * alpha * step
        if image @ inverse @ image <= tol**2:
            break
    return Iterates(*log.arrays(z))


def idrs(
    approximate: Approximate,
    resolvent: Resolvent,
    s0: Vector,
    *,
    gamma: float,
    rounds: int,
    error: float = 0.9,
    relaxation: float = 1.0,
    tol: float = 0.0,
) -> Splitting:
    """Algorithm II for 0 in A x + B x: iPPPA with the primal dual T of (2.6) and P of (4.2), in s = x - gamma y.

    approximate: the resolvent of A and the element of A that belongs to it; asked again while its error is too large
    resolvent: (id + gamma B)^-1, exact
    tol: of |x - p|

    alpha is Algorithm II's, gamma times that of Algorithm I. Algorithm I is this on the consensus problem (2.4) with
    the step N gamma: there A = (F_i / N) and (id + N gamma B)^-1 is (id + gamma G)^-1 of the mean.
    """
    s, log, ps, duals = np.array(s0, dtype=np.float64), _Log(), [], []
    for k in range(rounds):
        for attempt in range(MOST_ATTEMPTS + 1):
            x, u = approximate(k, attempt, s)
            eps = (s - x) / gamma - u  # (D.6)
            # (D.7). differs from (D.4), which prints s for x - gamma u (the two differ by 2 gamma u + gamma eps_1)
            p = resolvent(x - gamma * u)
            y = (x - gamma * u - p) / gamma
            barred = x - gamma * y
            size = max(np.linalg.norm(u + y), np.linalg.norm(barred - s) / gamma)
            if np.linalg.norm(eps) <= error * size:
                break
        square = float((u + y) @ (u + y))
        alpha = float((u + y) @ (s - barred)) / square if square > 0 else gamma
        log.add(s, x, u, eps, alpha, attempt)
        ps.append(p)
        duals.append(y)
        s = s - relaxation * alpha * (u + y)
        if gamma**2 * square <= tol**2:
            break
    return Splitting(*log.arrays(s), np.array(ps), np.array(duals))


class _Log:
    """Rows of Iterates, as they come."""

    def __init__(self) -> None:
        self.rows: list[tuple[Vector, Vector, Vector, Vector, float, int]] = []

    def add(self, *row: *tuple[Vector, Vector, Vector, Vector, float, int]) -> None:
        self.rows.append(row)

    def arrays(self, last: Vector) -> tuple[Matrix, Matrix, Matrix, Matrix, Vector, NDArray[np.int64]]:
        points, resolved, images, errors, alphas, attempts = zip(*self.rows, strict=True)
        return (
            np.array([*points, last]),
            np.array(resolved),
            np.array(images),
            np.array(errors),
            np.array(alphas),
            np.array(attempts, dtype=np.int64),
        )
