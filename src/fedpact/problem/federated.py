"""The problem: min_w sum_i f_i(w) + h(w) subject to every owner's and the server's constraint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedpact.cones import Cone
from fedpact.errors import DataError, ProblemError
from fedpact.functions import Function
from fedpact.notebook import show
from fedpact.problem.share import Share
from fedpact.prox import Prox, Zero, check_prox
from fedpact.types import Vector, to_real


class FederatedProblem:
    """min_w  sum_i f_i(w) + h(w)   s.t.   c_0(w) <=_{K_0} 0 (server),  c_i(w) <=_{K_i} 0 (owner i)   He24 (5)

    shares:      one Share per owner, in the order in which answers are reported
    server:      a Share with the global constraint (and data only the server sees), or None
    regularizer: h, a Prox; None means h = 0

    Parts of a coupled constraint that owners hold add up: sum_i c~_i(w) <=_K 0, with the `coupled_cone` of the shares.
    Owners with `private` variables v_i minimise over them too: f_i(w, v_i) and c_i(w, v_i); dim is the length of w.

    Checked here, before any exchange: names, dimensions, cone lengths, and the data of every function. Raises
    ProblemError or DataError; the message names the owner and the remedy.
    """

    #: True when the shares hold operators rather than functions; see `MonotoneProblem`.
    monotone = False

    def __init__(self, shares: Iterable[Share], server: Share | None = None, regularizer: Prox | None = None) -> None:
        self.shares: tuple[Share, ...] = _name_owners(list(shares))
        self.server: Share = _name_server(server)
        self.regularizer: Prox = Zero() if regularizer is None else regularizer
        check_prox("the regularizer", self.regularizer)
        for share in self.holders:
            _check_parts(share)
            if not self.monotone:
                _refuse_operators(share)
        _refuse_private(self.server, "the server holds no data, so it has nothing to keep for itself")
        if self.monotone:
            for share in self.shares:
                _refuse_private(share, "the operators of a monotone problem act on common variables only")
        self.dim: int | None = _find_dimension(self.holders)
        self.coupled_length: int = _find_coupled_length(self.shares)
        self.coupled_cone: Cone | None = _find_coupled_cone(self.shares)
        _check_reserved_names(self.names, self.server.label, self.coupled_length)
        check_prox("the regularizer", self.regularizer, self.dim)

    def _repr_html_(self) -> str:
        kind = "Monotone problem" if self.monotone else "Problem"
        facts = [
            f"{len(self.shares)} owners",
            "variables not known yet" if self.dim is None else f"{self.dim} variables",
            f"regularizer {type(self.regularizer).__name__}",
        ]
        if self.coupled_length:
            facts.append(f"coupled constraint of length {self.coupled_length}")
        if self.private:
            facts.append(f"private variables of the owners: {sum(share.private for share in self.shares)}")
        columns = ("owner", "objective", "constraint")
        holders = [one for one in self.holders if one.objective is not None or one.constraint is not None]
        return show(kind, facts, columns, map(_describe_share, holders))

    @property
    def holders(self) -> tuple[Share, ...]:
        """The server and the owners: whoever may hold a constraint, in the order of the multipliers."""
        return (self.server, *self.shares)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the owners."""
        return tuple(share.label for share in self.shares)

    @cached_property
    def constrained(self) -> int:
        """How many owners have a constraint."""
        return sum(share.constraint is not None for share in self.shares)

    @property
    def has_hessian(self) -> bool:
        """Whether all functions have second derivatives."""
        return all(share.has_hessian for share in self.holders)

    @property
    def private(self) -> bool:
        """Whether an owner has variables that it keeps for itself."""
        return any(share.private for share in self.shares)

    @property
    def couples_private(self) -> bool:
        """Whether a coupled constraint may depend on somebody's private variables."""
        return any(share.private and share.coupled is not None for share in self.shares)

    @cached_property
    def convex(self) -> bool:
        """Whether the problem is known to be convex: a stationary and feasible point is then optimal."""
        return all(share.convex for share in self.holders)

    def start(self, w0: ArrayLike | None) -> Vector:
        """The starting point: a copy of w0, or a default inside dom(h) when w0 is None.

        Raises ProblemError when the dimension is unknown, or when w0 has another length, is not finite or lies outside
        dom(h).
        """
        if w0 is None:
            return self._default_start()
        w = read_vector("w0", w0, self.dim).copy()
        finite = np.isfinite(w)
        if not finite.all():
            raise ProblemError(
                f"w0 has {np.sum(~finite)} entries that are NaN or infinite; give finite numbers",
                code="FP-PROBLEM-109",
            )
        check_prox("the regularizer", self.regularizer, w.size)
        if not self.regularizer.contains(w):
            raise ProblemError(
                f"w0 lies outside the domain of {self.regularizer!r}; start at its prox of w0, or leave w0 out",
                code="FP-PROBLEM-110",
            )
        return w

    def _default_start(self) -> Vector:
        """Zero, or the first start that a function suggests, moved into dom(h) by the proximal map.

        A network suggests its own parameters, since zero is a stationary point of most.
        """
        if self.dim is None:
            raise ProblemError(
                "the dimension is not known from the functions; give w0, a vector of that length",
                code="FP-PROBLEM-106",
            )
        w = np.zeros(self.dim)
        parts = (part for share in self.holders for part in share.parts.values())
        suggested = [part.start for part in parts if part.start is not None]
        if suggested:
            w = suggested[0][: self.dim].copy()
        if self.regularizer.contains(w):
            return w
        return self.regularizer.prox(w, 1.0)

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[FederatedProblem, Vector, Vector, Vector]:
        """(problem, w, server multiplier, coupled multiplier) in the user's variables.

        server_multiplier: followed by the coupled constraint's, where a method takes that constraint as it is
        """
        rows = self.server.multiplier_length
        return self, w, server_multiplier[:rows], server_multiplier[rows:]


def read_vector(what: str, given: ArrayLike, length: int | None) -> Vector:
    """`given` as a float64 vector of this length, of any length when None; not copied when it is one already.

    what: the subject of the error, such as "w0". Raises ProblemError when it holds other things or does not fit.
    """
    try:
        vector = to_real(given)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{what} is not a vector of real numbers ({error})", code="FP-PROBLEM-107") from error
    if vector.ndim != 1 or length not in (None, vector.size):
        wanted = "of any length" if length is None else f"of length {length}"
        raise ProblemError(f"{what} has shape {vector.shape}; give a vector {wanted}", code="FP-PROBLEM-108")
    return vector


def _describe_share(share: Share) -> tuple[object, ...]:
    """Its owner, and the kinds of its parts."""
    objective = "" if share.objective is None else type(share.objective).__name__
    constraint = ""
    if share.constraint is not None:
        cone = share.constraint.cone
        constraint = f"{type(share.constraint.function).__name__} in {type(cone).__name__}({cone.dim})"
    return share.label, objective, constraint


def _name_owners(shares: Sequence[Share]) -> tuple[Share, ...]:
    """The shares, each with a name of its own: 'client 1' and so on where none was given."""
    if not shares:
        raise ProblemError(
            "a problem needs at least one share; give FederatedProblem([Share(...), ...])", code="FP-PROBLEM-111"
        )
    named: dict[str, Share] = {}
    for number, share in enumerate(shares, 1):
        default = f"client {number}"
        if not isinstance(share, Share):
            raise ProblemError(f"{default}: expected an fp.Share, got {type(share).__name__}", code="FP-PROBLEM-112")
        name = share.name or default
        if name in named:
            raise ProblemError(
                f"two owners are called {name!r}; give each share a name of its own", code="FP-PROBLEM-113"
            )
        if not share.parts:
            raise ProblemError(
                f"{name}: the share is empty; give it an objective or a constraint, or leave it out",
                code="FP-PROBLEM-114",
            )
        named[name] = share if share.name else replace(share, name=name)
    return tuple(named.values())


def _name_server(server: Share | None) -> Share:
    """The server's share, with a name; an empty one for None."""
    if server is None:
        return Share(name="server")
    if not isinstance(server, Share):
        raise ProblemError(
            f"the server must be an fp.Share that holds its constraint, got {type(server).__name__}",
            code="FP-PROBLEM-103",
        )
    if server.coupled is not None:
        raise ProblemError(
            "the server cannot hold a part of a coupled constraint; give it to a share", code="FP-PROBLEM-104"
        )
    return replace(server, name=server.name or "server")


def _check_parts(share: Share) -> None:
    """The data of every function, and that constraint and cone are of one length."""
    for role, part in share.parts.items():
        defect = part.defect()
        if defect is not None:
            raise DataError(f"{share.label}: {role} {part!r}: {defect}", code="FP-DATA-100")
    if share.constraint is None:
        return
    function = share.constraint.function
    cone = share.constraint.cone
    if function.length not in (None, cone.dim):
        raise ProblemError(
            f"{share.label}: its constraint {function!r} has length {function.length}, its cone {cone!r} has dimension "
            f"{cone.dim}; use a cone of dimension {function.length}",
            code="FP-PROBLEM-116",
        )


def _refuse_operators(share: Share) -> None:
    for part in share.parts.values():
        if isinstance(part, Function) and not part.gradient_field:
            raise ProblemError(
                f"{share.label}: holds an operator; give operators to MonotoneProblem or MinimaxProblem",
                code="FP-PROBLEM-105",
            )


def _refuse_private(share: Share, why: str) -> None:
    if share.private:
        raise ProblemError(
            f"{share.label}: private = {share.private}, but {why}; make them common variables",
            code="FP-PROBLEM-138",
        )


def _check_reserved_names(names: Sequence[str], server: str, coupled_length: int) -> None:
    """The certificate reports violations by name: no owner may share one with the server or the coupled constraint."""
    reserved = {server: "the server"}
    if coupled_length:
        reserved["coupled"] = "the coupled constraint"
    for name in names:
        if name in reserved:
            raise ProblemError(
                f"an owner is called {name!r}, which names {reserved[name]}; give that share another name",
                code="FP-PROBLEM-115",
            )


def _find_dimension(shares: Iterable[Share]) -> int | None:
    """The length of w that all functions take; None when none of them knows its own."""
    dim: int | None = None
    first = ""
    for share in shares:
        for role, part in share.parts.items():
            if part.dim is None:
                continue
            common = part.dim - share.private
            if common < 1 and share.private:
                raise ProblemError(
                    f"{share.label}: its {role} takes vectors of length {part.dim}, which leaves no common variable "
                    f"beside {share.private} private ones; let it take (w, v), or lower private",
                    code="FP-PROBLEM-139",
                )
            if dim is None:
                dim = common
                first = f"{share.label}'s {role}"
            elif common != dim:
                raise ProblemError(
                    f"{share.label}: its {role} takes vectors of length {_count(common, share)}, but {first} takes "
                    f"length {dim}; all owners must use the same columns in the same order",
                    code="FP-PROBLEM-117",
                )
    return dim


def _count(common: int, share: Share) -> str:
    """The length that a function takes, for a message."""
    if not share.private:
        return str(common)
    return f"{common + share.private}, {common} without its private variables"


def _find_coupled_length(shares: Iterable[Share]) -> int:
    """The length of the coupled constraint; 0 when no owner holds a part of it."""
    length = 0
    first = ""
    for share in shares:
        if share.coupled is None:
            continue
        if share.coupled.length is None:
            raise ProblemError(
                f"{share.label}: the length of its coupled map is unknown; give SmoothMap(fun, length=...)",
                code="FP-PROBLEM-118",
            )
        if not first:
            length = share.coupled.length
            first = share.label
        elif share.coupled.length != length:
            raise ProblemError(
                f"{share.label}: its coupled map has length {share.coupled.length}, but {first}'s has {length}; the "
                "maps are added up, so all lengths must agree",
                code="FP-PROBLEM-119",
            )
    return length


def _find_coupled_cone(shares: Iterable[Share]) -> Cone | None:
    """The cone of the coupled constraint; None when no owner holds a part of it."""
    cone: Cone | None = None
    first = ""
    for share in shares:
        if share.coupled_cone is None:
            continue
        if cone is None:
            cone = share.coupled_cone
            first = share.label
        elif _kinds(share.coupled_cone) != _kinds(cone):
            raise ProblemError(
                f"{share.label}: the cone of its coupled map is {share.coupled_cone!r}, but {first}'s is {cone!r}; the "
                "maps are added up, so all cones must agree",
                code="FP-PROBLEM-256",
            )
    return cone


def _kinds(cone: Cone) -> list[tuple[type[Cone], int]]:
    """What two cones must have in common to be the same: kind and dimension of every block."""
    return [(type(block), block.dim) for block in cone.blocks]
