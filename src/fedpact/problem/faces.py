"""Facial reduction: a constraint that can be met on a face of its cone only is written on that face.

An affine constraint, s = -(J w + b) in K, has no interior point where some v in K* has

    J'v = 0   and   <v, b> = 0:

then <v, s> = 0 for every w, and s lies in the face of K that v exposes (Borwein and Wolkowicz 1981). There s has fewer
rows, and what is left of them are equalities. Without this, multipliers exist in the limit only, or (where the
equalities that follow contradict each other: weak infeasibility) every proof of it does.

Every holder looks at its own rows, block by block, so this costs no exchange. A v counts when J'v and <v, b> are zero
up to the rounding of their terms: points that it excludes wrongly would be 1 / EXACT times as large as the numbers of
the problem. Answers are taken back to the cones as posed, and are judged there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpact.cones import Cone, Product, Zero
from fedpact.functions import Affine, Map, Stack
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.types import Matrix, Vector

#: J'v is zero when it is no more than this part of the terms that cancel in it, for every entry of v.
EXACT = 1e-15
#: Singular values below this part of the largest are zero.
RANK = 1e-13
#: Projections between the null space and the dual cone: a v is found by then, or none is sought any more.
PROJECTIONS = 200
#: A point of the rows' span that is this far inside the cone shows that there is no v, and so does a v this small.
INSIDE = 1e-3
#: A multiplier on a face tends to one of the cone as multiples of the exposing v are added; rounding grows with them.
#: Of these factors the one is taken that serves the certificate best.
FACTORS = 10.0 ** np.arange(1, 11)


@dataclass(frozen=True)
class Face:
    """Where the slacks of one block of rows lie.

    rows: orthonormal; the first ones times s are coordinates in `cone`, all others times s are zero
    """

    rows: Matrix
    cone: Cone  # of the rows, equalities last
    posed: Cone
    exposing: tuple[Vector, ...]
    contradiction: Vector | None  # weights of the rows by which the equalities have no slope and a positive value

    def lift(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """A multiplier of the cone as posed from one on the face, at a point with this c and J."""
        wanted = self.rows.T @ multiplier
        best = self.posed.project_dual(wanted)
        least = np.inf
        for factor in FACTORS:
            found = wanted
            for v in reversed(self.exposing):
                found = found + factor * float(np.linalg.norm(found)) * v
            found = self.posed.project_dual(found)
            pull = float(np.max(np.abs(jacobian.T @ (found - wanted)), initial=0.0))
            error = max(pull, self.posed.normal_distance(value, found))
            if error < least:
                least = error
                best = found
        return best


@dataclass(frozen=True)
class Piece:
    """Some rows of a holder's constraint, and the face in which their slacks lie; None: all of the cone."""

    function: Map
    cone: Cone
    face: Face | None

    @property
    def constraint(self) -> Constraint:
        """On the face."""
        if self.face is None:
            return Constraint(self.function, self.cone)
        assert self.function.dim is not None  # an Affine map
        value, jacobian = self.function.value_and_jacobian(np.zeros(self.function.dim))
        return Constraint(Affine(self.face.rows @ jacobian, self.face.rows @ value), self.face.cone)

    @property
    def contradiction(self) -> Vector:
        """The face's, on the face; zero without one."""
        if self.face is None:
            return np.zeros(self.cone.dim)
        if self.face.contradiction is None:
            return np.zeros(len(self.face.rows))
        return self.face.rows @ self.face.contradiction

    def lift(self, multiplier: Vector, w: Vector) -> Vector:
        if self.face is None:
            return multiplier
        return self.face.lift(multiplier, *self.function.value_and_jacobian(w))

    def spread(self, weights: Vector) -> Vector:
        return weights if self.face is None else self.face.rows.T @ weights

    def gather(self, weights: Vector) -> Vector:
        return weights if self.face is None else self.face.rows @ weights


@dataclass(frozen=True)
class Reduced:
    """The problem on the faces, and the pieces of every holder, server first."""

    problem: FederatedProblem
    pieces: tuple[tuple[Piece, ...], ...]

    def lift(self, multipliers: Sequence[Vector], w: Vector) -> list[Vector]:
        """Multipliers of the problem as posed, from those on the faces, at w."""
        return [
            np.concatenate([piece.lift(part, w) for piece, part in _split(pieces, held, posed=False)] or [held])
            for pieces, held in zip(self.pieces, multipliers, strict=True)
        ]

    def spread(self, weights: Sequence[Vector]) -> list[Vector]:
        """Weights on the faces as weights of the rows as posed; they need not lie in the dual cones there."""
        return [
            np.concatenate([piece.spread(part) for piece, part in _split(pieces, held, posed=False)] or [held])
            for pieces, held in zip(self.pieces, weights, strict=True)
        ]

    def contradiction(self) -> list[Vector] | None:
        """Weights on the faces by which one holder contradicts itself; None where nobody does."""
        found = [[piece.contradiction for piece in pieces] for pieces in self.pieces]
        if not any(part.any() for parts in found for part in parts):
            return None
        return [np.concatenate([*parts, np.zeros(0)]) for parts in found]

    def gather(self, weights: Sequence[Vector]) -> list[Vector]:
        """The inverse of `spread`."""
        return [
            np.concatenate([piece.gather(part) for piece, part in _split(pieces, held, posed=True)] or [held])
            for pieces, held in zip(self.pieces, weights, strict=True)
        ]


def _split(pieces: Sequence[Piece], values: Vector, posed: bool) -> Iterator[tuple[Piece, Vector]]:
    """Every piece with its part of the values: one for each row as posed, or on the face."""
    start = 0
    for piece in pieces:
        length = piece.cone.dim
        if piece.face is not None and not posed:
            length = len(piece.face.rows)
        yield piece, values[start : start + length]
        start += length


def reduce_faces(problem: FederatedProblem, dim: int) -> Reduced | None:
    """The problem on the faces that its holders find; None where all constraints stay as posed."""
    found = tuple(tuple(_pieces(share.constraint, dim)) for share in problem.holders)
    if not any(piece.face for pieces in found for piece in pieces):
        return None
    server, *owners = (_on_faces(share, pieces) for share, pieces in zip(problem.holders, found, strict=True))
    return Reduced(FederatedProblem(owners, server if server.parts else None, problem.regularizer), found)


def _on_faces(share: Share, pieces: Sequence[Piece]) -> Share:
    if not any(piece.face for piece in pieces):
        return share
    return replace(share, constraint=combine([piece.constraint for piece in pieces]))


def _pieces(constraint: Constraint | None, dim: int) -> Iterator[Piece]:
    """The blocks of an affine constraint, each on its face; a curved one whole; a stack part by part."""
    if constraint is None:
        return
    function = constraint.function
    cone = constraint.cone
    if isinstance(function, Stack) and isinstance(cone, Product):
        lengths = [part.length for part in function.parts]
        if lengths == [one.dim for one in cone.cones]:
            for part, one in zip(function.parts, cone.cones, strict=True):
                yield from _pieces(Constraint(part, one), dim)
            return
    if not function.affine:
        yield Piece(function, cone, None)
        return
    value, jacobian = function.value_and_jacobian(np.zeros(dim))
    start = 0
    for block in cone.blocks:
        at = slice(start, start + block.dim)
        start = at.stop
        yield Piece(Affine(jacobian[at], value[at]), block, find_face(block, value[at], jacobian[at]))


def find_face(cone: Cone, value: Vector, jacobian: Matrix) -> Face | None:
    """The face of the cone in which -(J w + value) lies for every w that meets the constraint; None: all of it."""
    terms = np.column_stack([jacobian, value])
    rows = np.eye(cone.dim)
    equal = np.zeros((0, cone.dim))
    left: Cone | None = cone
    exposing = []
    while left is not None:
        v = _exposing(left, rows @ terms)
        if v is None:
            break
        found = left.face(v)
        if found is None:
            break
        exposing.append(rows.T @ v)
        inner, left = found
        equal = np.vstack([equal, _complement(inner) @ rows])
        rows = inner @ rows
    if not exposing:
        return None
    equal = _independent(equal, terms)
    cones: list[Cone] = [] if left is None else [left]
    if len(equal):
        cones.append(Zero(len(equal)))
    if not cones:
        return None
    return Face(
        rows=np.vstack([rows, equal]),
        cone=cones[0] if len(cones) == 1 else Product(cones),
        posed=cone,
        exposing=tuple(exposing),
        contradiction=_contradiction(equal, value, jacobian),
    )


def _contradiction(equal: Matrix, value: Vector, jacobian: Matrix) -> Vector | None:
    """Of independent equalities: weights of the rows as posed, where those of the slopes alone are dependent."""
    slopes = equal @ jacobian
    if not len(equal):
        return None
    lengths = np.linalg.norm(jacobian, axis=0)
    left, values, _ = np.linalg.svd(slopes / np.where(lengths > 0, lengths, 1.0))
    rank = np.count_nonzero(values > RANK)
    if rank == len(equal):
        return None
    found = equal.T @ left[:, -1]
    return np.asarray(found * np.sign(found @ value))


def _exposing(cone: Cone, terms: Matrix) -> Vector | None:
    """A unit v of the dual cone with v'terms = 0 up to rounding; None where none is found."""
    lengths = np.linalg.norm(terms, axis=0)
    if not np.any(lengths > 0) or not np.all(np.isfinite(lengths)):
        return None
    left, values, _ = np.linalg.svd(terms[:, lengths > 0] / lengths[lengths > 0])
    null = left[:, np.count_nonzero(values > RANK * values[0]) :]
    if not null.shape[1]:
        return None
    identity = cone.identity()
    v = null @ (null.T @ identity)
    inside = identity - v - INSIDE * identity
    if cone.distance(inside) == 0.0:  # no v: <v, inside> would have to be zero, and is positive
        return None
    for _ in range(PROJECTIONS):
        v = cone.project_dual(v)
        if np.linalg.norm(v) <= INSIDE:
            return None
        if _vanishes(v, terms):
            return np.asarray(v / np.linalg.norm(v))
        v = null @ (null.T @ v)
    return None


def _vanishes(v: Vector, terms: Matrix) -> bool:
    cancelling = np.abs(terms).T @ np.abs(v)
    return bool(np.all(np.abs(terms.T @ v) <= EXACT * v.size * cancelling))


def _complement(rows: Matrix) -> Matrix:
    """Orthonormal rows that span what is orthogonal to these orthonormal rows."""
    _, _, right = np.linalg.svd(rows)
    return np.asarray(right[len(rows) :])


def _independent(rows: Matrix, terms: Matrix) -> Matrix:
    """Of equalities rows' terms = 0, as many as are independent: the others say nothing new."""
    said = rows @ terms
    lengths = np.linalg.norm(terms, axis=0)
    said = said[:, lengths > 0] / lengths[lengths > 0]
    if not said.size:
        return rows[:0]
    left, values, _ = np.linalg.svd(said)
    rank = np.count_nonzero(values > RANK)
    return np.asarray(left[:, :rank].T @ rows)
