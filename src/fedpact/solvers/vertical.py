"""What vertical methods share: how a point is judged, how the pieces of the model are handed out, and prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError
from fedpact.federation import Fleet, Order, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Certificate, Party, Piece, VerticalProblem
from fedpact.problem.vertical import table
from fedpact.solvers.endings import FAR, SOLVED, UNBOUNDED, Verdict
from fedpact.solvers.run import Best, Run
from fedpact.solvers.solution import Solution


class Placed(Protocol):
    """A party's state: its theta after the order of this number, and before it."""

    @property
    def theta(self) -> Vector: ...

    @property
    def before(self) -> Vector: ...

    @property
    def number(self) -> int: ...


def theta_at(state: Placed, number: int) -> Vector:
    """Where the party was after the order of that number, the last of which the coordinator knows the outcome.

    It may have obeyed one more, whose reply was lost, rejected, or not waited for after Ctrl-C.
    """
    return state.theta if state.number == number else state.before


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    number: int


@dataclass(frozen=True, kw_only=True)
class Kept(Reply):
    """Nothing leaves the party."""


@dataclass(frozen=True, kw_only=True)
class Revealed(Reply):
    theta: Vector


@client_step
def keep(share: Party, state: Any, order: Conclude) -> tuple[Any, Kept]:
    """The party writes its piece to its own file, if it has one."""
    if share.keep:
        share.piece(theta_at(state, order.number)).save(Path(share.keep))
    return state, Kept()


@client_step
def reveal(share: Party, state: Any, order: Conclude) -> tuple[Any, Revealed]:
    """The same, and it hands its piece out."""
    keep(share, state, order)
    return state, Revealed(theta=theta_at(state, order.number))


def certificate_of(problem: VerticalProblem, z: Vector, net: Vector, slopes: Sequence[float]) -> Certificate:
    """Of scores z and net prices, given the largest entry of every holder's gradient of the Lagrangian."""
    feasibility, violation = problem.misses(z, net)
    gaps = np.abs(problem.scored.gaps(z))
    violations = {
        name: float(max(gap - eps, 0.0))
        for name, gap, eps in zip(problem.gap_names, gaps, problem.max_gap, strict=True)
    }
    return Certificate(max(slopes), feasibility, violation, violations)


def judged(
    run: Run, problem: VerticalProblem, k: int, z: Vector, net: Vector, slopes: Sequence[float], objective: float
) -> Best:
    """The certificate of where the parties are now, which is all they could hand out: no earlier point is kept.

    Their w is not known here, hence NaN; only that of the start is, and `run.best` keeps it for when a party is lost.
    """
    certificate = certificate_of(problem, z, net, slopes)
    reached = Best(run.tol)
    reached.offer(k, np.full(problem.dim, np.nan), problem.multiplier(net), certificate, objective)
    if run.best.certificate is None and not z.any():
        run.best.offer(k, run.w0, problem.multiplier(net), certificate, objective)
    return reached


def solved(problem: VerticalProblem, z: Vector, penalty: float, violation: float) -> Verdict:
    """For a point that meets the tolerances: is there a minimiser, or does the loss fall forever beyond it?

    penalty: sum_k h_k; violation: what is allowed. All scores are linear in theta, so nobody needs to be asked.
    """
    far, there = FAR * z, FAR**2 * penalty
    scored = problem.scored
    worse = np.max(np.abs(scored.gaps(far)) - problem.max_gap, initial=0.0) > violation
    ends = np.mean(scored.losses(far)) + there > 0.9 * (np.mean(scored.losses(z)) + penalty)
    return SOLVED if worse or ends or not z.any() else Verdict("unbounded", UNBOUNDED)


def finished(
    run: Run,
    problem: VerticalProblem,
    reached: Best,
    numbers: Sequence[int],
    intercept: Vector,
    end: Verdict,
    shown: bool,
) -> Solution:
    """One exchange: every party keeps its piece; if `shown`, the answer holds them all, else NaN in their place.

    reached: where they are, as `judged` says
    numbers: of the last order that counts, one for all parties or one each
    """
    orders = [Conclude(number=number) for number in numbers]
    asked = orders[0] if len(orders) == 1 else orders
    if shown:
        parts = [reply.theta for reply in run.fleet.ask(reveal, asked)]
    else:
        run.fleet.ask(keep, asked)
        parts = [np.full(party.X.shape[1], np.nan) for party in problem.shares]
    reached.w = np.concatenate([*parts, intercept])
    return reached.solution(run, end.status, end.reason, [np.zeros(0) for _ in problem.shares])


# ---------------------------------------------------------------------------------------------------------- prediction


@dataclass(frozen=True, eq=False)
class NewRows:
    """A party's piece of the model, and its columns of the people to predict."""

    piece: Piece
    X: Vector


@dataclass(frozen=True, kw_only=True)
class Score(Order):
    pass


@dataclass(frozen=True, kw_only=True)
class Scores(Reply):
    scores: Summed[Vector]


@client_step
def score(share: NewRows, state: Any, order: Score) -> tuple[Any, Scores]:
    return state, Scores(scores=share.piece.scores(share.X))


def rows_of(pieces: Sequence[Piece], parties: Mapping[str, ArrayLike]) -> dict[str, NewRows]:
    """Who scores what. Raises DataError for a party without a piece, and for numbers of rows that differ."""
    known = {piece.name: piece for piece in pieces}
    rows: dict[str, int] = {}
    for name, X in parties.items():
        if name not in known:
            raise DataError(f"{name}: has no piece of this model; its parties are {', '.join(known)}")
        rows[name] = len(table(name, X, known[name].columns))
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise DataError(f"the parties have different numbers of rows ({told}); align them by id (fedpact.alignment)")
    return {name: NewRows(known[name], np.asarray(X, dtype=np.float64)) for name, X in parties.items()}


def summed_scores(fleet: Fleet, secure: bool) -> Vector:
    """The sum of all parties' scores; with `secure` nobody sees a single party's."""
    if secure:
        fleet.secure()
    return fleet.ask(score, Score()).total.scores
