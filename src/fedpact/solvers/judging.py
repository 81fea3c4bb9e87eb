"""The certificate as an exchange: owners give their terms, the server adds up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from fedpact.federation import Answers, Order, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Certificate, FederatedProblem, Share, Terms, assemble, owner_terms


@dataclass(frozen=True, kw_only=True)
class At(Order):
    w: Vector
    coupled_length: int = 0


@dataclass(frozen=True, kw_only=True)
class Judged(Reply):
    """The fields of `Terms`, on their way to the server."""

    objective: Summed[float]
    gradient: Summed[Vector]
    feasibility: float
    violation: float
    coupled: Summed[Vector]


def at(problem: FederatedProblem, w: Vector) -> At:
    """The order to judge w with zero multipliers."""
    asked = problem.own(w, np.zeros(problem.server.multiplier_length))[0]
    return At(w=w, coupled_length=asked.coupled_length)


J = TypeVar("J", bound=Judged)


@client_step
def judge(share: Share, state: Any, order: At) -> tuple[Any, Judged]:
    """The terms of the certificate at w with zero multipliers."""
    own, w, multiplier = share.own(order.w, np.zeros(share.multiplier_length))
    return state, Judged(**term_fields(owner_terms(own, w, multiplier, np.zeros(order.coupled_length))))


def term_fields(source: Terms | Judged) -> dict[str, Any]:
    return {f.name: getattr(source, f.name) for f in fields(Terms)}


def certificate_of(
    problem: FederatedProblem, w: Vector, server_multiplier: Vector, replies: Answers[J]
) -> tuple[Certificate, float]:
    """Certificate and objective in the user's variables, from the owners' replies."""
    asked, user_w, multiplier, coupled = problem.own(w, server_multiplier)
    return assemble(asked, user_w, multiplier, coupled, replies.total, replies)
