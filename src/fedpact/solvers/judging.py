"""The certificate as an exchange: owners give their terms, the server adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedpact.federation import Order, Reply
from fedpact.functions import Vector
from fedpact.problem import Certificate, FederatedProblem, Share, Terms, assemble, owner_terms


@dataclass(frozen=True, kw_only=True)
class At(Order):
    w: Vector


@dataclass(frozen=True, kw_only=True)
class Judged(Reply):
    """The fields of `Terms`, on their way to the server."""

    objective: float
    gradient: Vector
    feasibility: float
    violation: float
    coupled: Vector


def judge(share: Share, state: Any, order: At) -> tuple[Any, Judged]:
    """The terms of the certificate at w with zero multipliers."""
    own, w, multiplier = share.own(order.w, np.zeros(share.multiplier_length))
    coupled = np.zeros(0 if own.coupled is None else own.coupled.length or 0)
    return state, Judged(**term_fields(owner_terms(own, w, multiplier, coupled)))


def term_fields(source: Terms | Judged) -> dict[str, Any]:
    return {f.name: getattr(source, f.name) for f in fields(Terms)}


def certificate_of(
    problem: FederatedProblem, w: Vector, server_multiplier: Vector, replies: Sequence[Judged]
) -> tuple[Certificate, float]:
    """Certificate and objective in the user's variables, from the owners' replies."""
    asked, user_w, multiplier, coupled = problem.own(w, server_multiplier)
    return assemble(asked, user_w, multiplier, coupled, [Terms(**term_fields(r)) for r in replies])
