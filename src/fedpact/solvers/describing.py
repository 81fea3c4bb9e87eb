"""A first exchange with owners whose shares the server does not hold: what is the problem like?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedpact.federation import Fleet, Order, Reply, client_step
from fedpact.problem import Description, FederatedProblem, RemoteProblem, Share, describe


@dataclass(frozen=True, kw_only=True)
class Described(Reply):
    """The fields of `Description`, on their way to the server."""

    dim: int
    objective: bool
    cone: str
    coupled: int
    hessian: bool
    convex: bool


@client_step
def introduce_share(share: Share, state: Any, order: Order) -> tuple[Any, Described]:
    """Build and check the share, and say what the server must know of it."""
    return state, Described(**asdict(describe(share)))


def described(problem: RemoteProblem, fleet: Fleet) -> FederatedProblem:
    """One exchange: the problem as the server sees it."""
    answers = fleet.ask(introduce_share, Order())
    said = {owner: Description(**vars(answer)) for owner, answer in zip(fleet.owners, answers, strict=True)}
    return problem.described(said)
