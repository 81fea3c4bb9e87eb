"""The last digits of a Newton step with h: on the smooth piece of h where the step ends, as one linear system.

A solution x of the model is found to the rounding of M x; what owners need is the step d = x - w, whose rounding is
less by |d| / |w|: near the end, where the barrier makes M large, that is what prices are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpact.functions import Matrix, Vector
from fedpact.prox import L1, Box, ElasticNet, GroupL2, Prox, Simplex
from fedpact.prox.rescaled import Times

#: Newton steps on the piece: one where h is linear there.
STEPS = 3


@dataclass(frozen=True)
class Piece:
    """h around a point, along the directions in which it is smooth.

    free: orthonormal columns that span them
    """

    free: Matrix
    slope: Vector
    curvature: Matrix


def smooth_piece(regularizer: Prox, x: Vector) -> Piece | None:
    """The piece of h at x; None where it is not known, or is a point."""
    dim = x.size
    identity = np.eye(dim)
    flat = np.zeros((dim, dim))
    if isinstance(regularizer, Times):
        inner = smooth_piece(regularizer.inner, x)
        if inner is None:
            return None
        return Piece(inner.free, regularizer.factor * inner.slope, regularizer.factor * inner.curvature)
    if isinstance(regularizer, L1):
        piece = Piece(identity[:, x != 0], regularizer.weight * np.sign(x), flat)
    elif isinstance(regularizer, ElasticNet):
        ridge = np.broadcast_to(regularizer.l2, dim)
        piece = Piece(identity[:, x != 0], regularizer.l1 * np.sign(x) + ridge * x, np.diag(ridge))
    elif isinstance(regularizer, Box):
        piece = Piece(identity[:, (x > regularizer.lo) & (x < regularizer.hi)], np.zeros(dim), flat)
    elif isinstance(regularizer, Simplex):
        piece = Piece(_keeping_sum(x > 0), np.zeros(dim), flat)
    elif isinstance(regularizer, GroupL2):
        piece = _group_piece(regularizer, x)
    else:
        return None
    return piece if piece.free.shape[1] else None


def _keeping_sum(positive: NDArray[np.bool_]) -> Matrix:
    """Orthonormal directions of the positive coordinates in which their sum does not change."""
    columns = np.eye(positive.size)[:, positive]
    mean = np.ones((1, columns.shape[1]))
    return np.asarray(columns @ np.linalg.svd(mean)[2][1:].T)


def _group_piece(regularizer: GroupL2, x: Vector) -> Piece:
    """Groups that are not zero; coordinates of no group are free."""
    free = np.ones(x.size, dtype=bool)
    slope = np.zeros(x.size)
    curvature = np.zeros((x.size, x.size))
    weights = np.broadcast_to(regularizer.weight, len(regularizer.groups))
    for group, weight in zip(regularizer.groups, weights, strict=True):
        length = float(np.linalg.norm(x[group]))
        if not len(group):
            continue
        if length == 0.0:
            free[group] = False
            continue
        unit = x[group] / length
        slope[group] = weight * unit
        curvature[np.ix_(group, group)] = weight / length * (np.eye(len(group)) - np.outer(unit, unit))
    return Piece(np.eye(x.size)[:, free], slope, curvature)


def refine_step(matrix: Matrix, slope: Vector, regularizer: Prox, w: Vector, step: Vector) -> Vector:
    """The minimiser d of d'Md / 2 + slope'd + h(w + d) near `step`, on the piece of h that w + step lies in."""
    best = step
    least = np.inf
    for _ in range(STEPS):
        residual = regularizer.subdifferential_distance(-(matrix @ step + slope), w + step)
        if not residual < least:
            return best
        best = step
        least = residual
        piece = smooth_piece(regularizer, w + step)
        if piece is None:
            return best
        free = piece.free
        reduced = free.T @ (matrix + piece.curvature) @ free
        gradient = free.T @ (matrix @ step + slope + piece.slope)
        scale = 1 / np.sqrt(np.maximum(np.diagonal(reduced), np.finfo(float).tiny))
        try:
            step = step - free @ (scale * np.linalg.solve(reduced * np.outer(scale, scale), scale * gradient))
        except np.linalg.LinAlgError:
            return best
    residual = regularizer.subdifferential_distance(-(matrix @ step + slope), w + step)
    return step if residual < least else best
