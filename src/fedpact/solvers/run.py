"""What every method is given, and the best certified point it has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fedpact.federation import Fleet
from fedpact.functions import Vector
from fedpact.problem import Certificate, FederatedProblem
from fedpact.solvers.solution import History, OuterRecord, Solution, Status

#: Feasibility is asked for with this margin, because the objective errs by <mu, c(w)>, a sum over all constraints, and
#: users expect it to be as good as the tolerance says.
MARGIN = 0.3
#: Added to the reason of a solved problem that is not known to be convex.
STATIONARY = ": the point is stationary and feasible, not known to be globally optimal (the problem may not be convex)"


@dataclass(frozen=True)
class Progress:
    """Where a solve is; handed to every callback once per exchange."""

    method: str
    iteration: int
    inner: int
    rounds: int
    bytes: int
    stationarity: float
    feasibility: float
    objective: float
    choice: str = ""  # why "auto" took this method


@dataclass
class Run:
    """One solve. `problem` has no coupled constraints any more; `w0` is a start inside dom(h)."""

    problem: FederatedProblem
    fleet: Fleet
    method: str
    w0: Vector
    tol: tuple[float, float]
    max_rounds: int
    seed: int = 0
    notify: Callable[[Progress], None] = lambda progress: None
    choice: str = ""  # why "auto" took this method
    history: History = field(default_factory=History)
    best: Best = field(default_factory=lambda: Best((1.0, 1.0)))

    def new_best(self) -> Best:
        """A method starts: nothing is certified yet. What it finds can be read here, however it ends."""
        self.best = Best(self.tol)
        return self.best

    @property
    def rounds_left(self) -> int:
        return self.max_rounds - self.fleet.ledger.rounds

    def lost(self, reason: str) -> Solution:
        """The best point so far, without the owners' prices: somebody cannot be asked any more."""
        if self.best.certificate is None:
            nothing = Certificate(stationarity=np.inf, feasibility=np.inf, violation=np.inf)
            prices_of = self.problem.server.multiplier_length + self.problem.coupled_length
            self.best.offer(0, self.w0, np.zeros(prices_of), nothing, np.nan)
        asked = self.problem.own(self.best.w, self.best.server_multiplier)[0]
        prices = [np.full(share.multiplier_length, np.nan) for share in asked.shares]
        found = self.best.solution(self, "client_lost", reason, prices)
        if not self.problem.coupled_length:
            return found
        # A method that takes coupled constraints as they are keeps their price behind the server's.
        server, coupled = np.split(self.best.server_multiplier, [self.problem.server.multiplier_length])
        return replace(found, multipliers=[server, *prices], coupled_multiplier=coupled)

    def record(
        self,
        iteration: int,
        certificate: Certificate,
        objective: float,
        *,
        inner_rounds: int,
        penalty: float,
        consensus_penalty: float,
        gradients: int,
        hessians: int,
    ) -> None:
        """Write down a judged point, with what has been spent so far."""
        self.history.outer.append(
            OuterRecord(
                iteration=iteration,
                objective=objective,
                stationarity=certificate.stationarity,
                feasibility=certificate.feasibility,
                violations=certificate.violations,
                inner_rounds=inner_rounds,
                rounds=self.fleet.ledger.rounds,
                bytes=self.fleet.ledger.bytes,
                penalty=penalty,
                consensus_penalty=consensus_penalty,
                gradients=gradients,
                hessians=hessians,
            )
        )

    def report(self, iteration: int, inner: int, best: Best) -> None:
        """Tell the callbacks where we are."""
        seen = best.certificate
        self.notify(
            Progress(
                self.method,
                iteration,
                inner,
                self.fleet.ledger.rounds,
                self.fleet.ledger.bytes,
                seen.stationarity if seen else np.inf,
                seen.feasibility if seen else np.inf,
                best.objective,
                self.choice,
            )
        )


@dataclass
class Best:
    """The best certified point so far: the one with the smallest ratio of certificate to tolerance."""

    tol: tuple[float, float]
    iteration: int = -1
    certificate: Certificate | None = None
    objective: float = np.nan
    w: Vector = field(default_factory=lambda: np.zeros(0))
    server_multiplier: Vector = field(default_factory=lambda: np.zeros(0))

    def offer(
        self, iteration: int, w: Vector, server_multiplier: Vector, certificate: Certificate, objective: float
    ) -> None:
        if self.certificate is None or self._miss(certificate) <= self._miss(self.certificate):
            self.iteration, self.w, self.server_multiplier = iteration, w, server_multiplier
            self.certificate, self.objective = certificate, objective

    def _miss(self, certificate: Certificate) -> float:
        return max(certificate.stationarity / self.tol[0], certificate.feasibility / self.tol[1])

    def solution(
        self, run: Run, status: Status, reason: str, multipliers: list[Vector], conflict: tuple[str, ...] = ()
    ) -> Solution:
        """The answer in the user's variables; `multipliers` are the owners', in owner order and in those variables."""
        assert self.certificate is not None
        if status == "solved" and not run.problem.convex:
            reason += STATIONARY
        _, w, server_multiplier, coupled = run.problem.own(self.w, self.server_multiplier)
        return Solution(
            w=w,
            multipliers=[server_multiplier, *multipliers],
            coupled_multiplier=coupled,
            status=status,
            reason=reason,
            certificate=self.certificate,
            objective=self.objective,
            tol=run.tol,
            method=run.method,
            history=run.history,
            communication=run.fleet.ledger.read(),
            conflict=conflict,
            convex=run.problem.convex,
        )
