"""The coordinator's half of Fair VFL (Liu et al., Algorithm 2): what it knows of the parties, and its ascent.

It serves both forms: rounds of all parties (fair_vfl.py) and whoever answers first (any_party.py). The coordinator
holds the intercept, and updates it as a party does its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpact.problem import Certificate, Party, VerticalProblem
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.vertical.fair_vfl_party import Place, Update, Updated, update
from fedpact.solvers.vertical.pace import Pace
from fedpact.solvers.vertical.shared import certificate_of
from fedpact.types import Vector

#: The one entry of `Descent.known` where all parties answer together.
ALL = "all"
#: f at which a run counts as diverging, relative to the start.
FAR = 1e3
DIVERGED = "the steps lead away: eta = {:g} is too small for these columns; give a larger one, or leave it out"


@dataclass(frozen=True)
class Known:
    """What the coordinator knows of a party, or of all together: X_k theta_k and h_k after the order of this number."""

    scores: Vector
    penalty: float
    number: int


@dataclass
class Descent:
    """Where a run is.

    share, place: the coordinator's own column and its coefficient
    holders:      K, the coordinator among them
    known:        by party or for `ALL`, and of the coordinator
    prices:       lambda_1 and lambda_2, (2, gaps)
    k, t, sent:   iterations, ascents and orders so far
    before:       replies of the last round that do not count yet, its order, and f at its start
    back:         f rose in it: nobody keeps what they did
    waiting:      tickets of parties at work, and the last slope of everybody: where they answer one by one
    """

    problem: VerticalProblem
    pace: Pace
    share: Party
    place: Place
    noise: float
    holders: int
    known: dict[str, Known]
    prices: Vector
    k: int = 0
    t: int = 0
    sent: int = 0
    before: tuple[Updated, Updated, Update, float] | None = None
    back: bool = False
    waiting: dict[str, Any] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    highest: float = np.inf

    def __post_init__(self) -> None:
        self.highest = FAR * (1 + abs(self.objective))

    @property
    def z(self) -> Vector:
        """The scores of all parties together."""
        return np.asarray(np.sum([known.scores for known in self.known.values()], axis=0))

    @property
    def net(self) -> Vector:
        return np.asarray(self.prices[0] - self.prices[1])

    @property
    def objective(self) -> float:
        return float(np.mean(self.problem.scored.losses(self.z))) + sum(k.penalty for k in self.known.values())

    def lagrangian(self, net: Vector) -> float:
        """f = L + sum_j net_j D_j."""
        return self.objective + float(net @ self.problem.scored.gaps(self.z))

    def ascend(self, part: float = 1.0) -> None:
        """(9), with the scores just received; part: of the parties that sent some."""
        self.t += 1
        gaps = self.problem.scored.gaps(self.z)
        most = self.problem.max_gap
        least = self.problem.least  # -eps, or none at all where a mean loss is bounded: its second price stays 0
        slope = np.stack([gaps - most, least - gaps]) - self.pace.regularization(self.t) * self.prices
        self.prices = np.maximum(self.prices + part * self.pace.ascent(gaps, most, least) * slope, 0.0)

    def order(self, who: str, z: Vector, move: bool = True) -> Update:
        """To update from where the coordinator knows them to be, or only to look."""
        self.sent += 1
        return Update(
            number=self.sent,
            base=self.known[who].number,
            scores=z,
            net=self.net,
            move=move,
            eta=self.pace.eta(self.t),
            scale=self.pace.scale,
            holders=self.holders,
            noise=self.noise,
        )

    def update(self, order: Update) -> Updated:
        """The intercept is updated as a party's columns are."""
        self.place, reply = update(self.share, self.place, replace(order, noise=0.0))
        return reply

    def learn_where(self, who: str, reply: Updated, order: Update) -> None:
        """By this reply they are there, after the order."""
        self.known[who] = Known(reply.scores, reply.penalty, order.number)

    def judge(self, slopes: Sequence[float]) -> tuple[Certificate, float]:
        """Certificate and objective, given every holder's distance from stationarity."""
        return certificate_of(self.problem, self.z, self.net, slopes), self.objective

    def iterate(self, run: Run, slopes: Sequence[float] | None = None, eta: float | None = None) -> Iterate:
        """Where the run is; judged when slopes are given. eta: with which it leads away, the end."""
        judged = None
        if slopes is not None:
            judged = self.judge(slopes)
        end = None
        if eta is not None:
            end = Verdict("stalled", DIVERGED.format(eta))
        return Iterate(
            number=self.k,
            w=np.zeros(0),
            multiplier=self.problem.multiplier(self.net),
            judged=judged,
            penalty=self.pace.dual_step,
            consensus_penalty=self.pace.scale,
            gradients=len(run.owners),
            end=end,
        )
