"""The problem: min_w sum_i f_i(w) + h(w) subject to every owner's and the server's constraint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, ProblemError
from fedpact.functions import Function
from fedpact.problem.share import Share
from fedpact.prox import Prox, Zero
from fedpact.types import to_real

Vector = NDArray[np.float64]


class FederatedProblem:
    """min_w  sum_i f_i(w) + h(w)   s.t.   c_0(w) <=_{K_0} 0 (server),  c_i(w) <=_{K_i} 0 (owner i)   He24 (5)

    shares:      one Share per owner, in the order in which answers are reported
    server:      a Share with the global constraint (and data only the server sees), or None
    regularizer: h, a Prox; None means h = 0

    Checked here, before any round: names, dimensions, cone lengths, and the data of every function. Raises
    ProblemError or DataError; the message names the owner and the remedy.
    """

    #: Is it about operators rather than functions? See `MonotoneProblem`.
    monotone = False

    def __init__(self, shares: Iterable[Share], server: Share | None = None, regularizer: Prox | None = None) -> None:
        self.shares: tuple[Share, ...] = _named(list(shares))
        if server is not None and not isinstance(server, Share):
            raise ProblemError(f"the server must be an fp.Share that holds its constraint, got {type(server).__name__}")
        self.server: Share = Share(name="server") if server is None else replace(server, name=server.name or "server")
        self.regularizer: Prox = Zero() if regularizer is None else regularizer
        if not isinstance(self.regularizer, Prox):
            raise ProblemError(f"the regularizer must be one of fedpact.prox, got {type(regularizer).__name__}")
        if self.server.coupled is not None:
            raise ProblemError("the server cannot hold a part of a coupled constraint: give it to a share")
        for share in (self.server, *self.shares):
            _check_data(share)
            if not self.monotone and any(
                isinstance(p, Function) and not p.gradient_field for p in share.parts.values()
            ):
                raise ProblemError(
                    f"{share.label}: holds an operator; give operators to MonotoneProblem or MinimaxProblem"
                )
        self.dim: int | None = _common_dimension((self.server, *self.shares))
        self.coupled_length: int = _coupled_length(self.shares)
        _check_reserved(self.names, self.server.label, self.coupled_length)
        if self.dim is not None and (defect := self.regularizer.defect(self.dim)):
            raise ProblemError(f"regularizer: {defect}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(share.label for share in self.shares)

    @property
    def has_hessian(self) -> bool:
        return all(share.has_hessian for share in (self.server, *self.shares))

    @cached_property
    def convex(self) -> bool:
        """Is it known to be convex? Then a stationary and feasible point is optimal."""
        return all(share.convex for share in (self.server, *self.shares))

    def start(self, w0: ArrayLike | None) -> Vector:
        """A start inside dom(h): w0 checked, or the point of dom(h) that h prefers near zero, or near the start that a
        function suggests (a network begins with its own parameters, since zero is a stationary point of most).

        Raises ProblemError when the dimension is unknown or w0 does not fit.
        """
        if w0 is None:
            if self.dim is None:
                raise ProblemError("the dimension is not known from the functions; give w0, a vector of that length")
            parts = [part for share in (self.server, *self.shares) for part in share.parts.values()]
            w = next((part.start.copy() for part in parts if part.start is not None), np.zeros(self.dim))
            return w if self.regularizer.contains(w) else self.regularizer.prox(w, 1.0)
        try:
            w = to_real(w0).copy()
        except (TypeError, ValueError) as error:
            raise ProblemError(f"w0 is not a vector of real numbers ({error})") from error
        if w.ndim != 1 or (self.dim is not None and w.size != self.dim):
            raise ProblemError(f"w0 has shape {w.shape}, the problem needs a vector of length {self.dim}")
        if not np.all(np.isfinite(w)):
            raise ProblemError(f"w0 has {np.sum(~np.isfinite(w))} non-finite entries; give finite numbers")
        if defect := self.regularizer.defect(w.size):
            raise ProblemError(f"regularizer: {defect}")
        if not self.regularizer.contains(w):
            raise ProblemError(
                f"w0 lies outside the domain of {self.regularizer!r}; start at its prox of w0, or leave w0 out"
            )
        return w

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[FederatedProblem, Vector, Vector, Vector]:
        """(problem, w, server multiplier, coupled multiplier) in the user's variables.

        server_multiplier: the coupled constraint's behind it, where a method takes that as it is
        """
        server, coupled = np.split(server_multiplier, [self.server.multiplier_length])
        return self, w, server, coupled


def _named(shares: Sequence[Share]) -> tuple[Share, ...]:
    if not shares:
        raise ProblemError("a problem needs at least one share; give FederatedProblem([Share(...), ...])")
    for i, share in enumerate(shares, 1):
        if not isinstance(share, Share):
            raise ProblemError(f"client {i}: expected an fp.Share, got {type(share).__name__}")
    named = tuple(share if share.name else replace(share, name=f"client {i}") for i, share in enumerate(shares, 1))
    names = [share.label for share in named]
    for name in names:
        if names.count(name) > 1:
            raise ProblemError(f"two owners are called {name!r}; give each share a name of its own")
    for share in named:
        if not share.parts:
            raise ProblemError(
                f"{share.label}: the share is empty; give it an objective or a constraint, or leave it out"
            )
    return named


def _check_reserved(names: Sequence[str], server: str, coupled_length: int) -> None:
    """The certificate reports violations by name: no owner may share one with the server or the coupled constraint."""
    for taken, by in ((server, "the server"), ("coupled" if coupled_length else None, "the coupled constraint")):
        if taken in names:
            raise ProblemError(f"an owner is called {taken!r}, which names {by}; give that share another name")


def _check_data(share: Share) -> None:
    for role, part in share.parts.items():
        if defect := part.defect():
            raise DataError(f"{share.label}: {role} {part!r}: {defect}")
    if share.constraint is not None:
        length, cone = share.constraint.function.length, share.constraint.cone
        if length not in (None, cone.dim):
            raise ProblemError(
                f"{share.label}: its constraint {share.constraint.function!r} has length {length}, its cone {cone!r} "
                f"has dimension {cone.dim}; use a cone of dimension {length}"
            )


def _common_dimension(shares: Iterable[Share]) -> int | None:
    dim: int | None = None
    first = ""
    for share in shares:
        for role, part in share.parts.items():
            if part.dim is None:
                continue
            if dim is None:
                dim, first = part.dim, f"{share.label}'s {role}"
            elif part.dim != dim:
                raise ProblemError(
                    f"{share.label}: its {role} takes vectors of length {part.dim}, but {first} takes length {dim}; "
                    "all owners must use the same columns in the same order"
                )
    return dim


def _coupled_length(shares: Sequence[Share]) -> int:
    parts = [(share.label, share.coupled) for share in shares if share.coupled is not None]
    for label, part in parts:
        if part.length is None:
            raise ProblemError(f"{label}: the length of its coupled map is unknown; give SmoothMap(fun, length=...)")
        if part.length != parts[0][1].length:
            raise ProblemError(
                f"{label}: its coupled map has length {part.length}, but {parts[0][0]}'s has {parts[0][1].length}; "
                "the maps are added up, so all lengths must agree"
            )
    return int(parts[0][1].length or 0) if parts else 0
