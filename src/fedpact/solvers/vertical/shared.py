"""What vertical methods share: how a point is judged, how a run ends, and prediction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError
from fedpact.federation import Answers, Order, Reply, Session, Summed, client_step
from fedpact.problem import Certificate, Party, Piece, VerticalProblem
from fedpact.problem.party import NewRows, read_table
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.run import Run
from fedpact.solvers.steps import Ending
from fedpact.types import Vector

S = TypeVar("S")
#: How much farther than where the parties are the far point lies.
FAR = 1e6


@dataclass(frozen=True)
class Placed:
    """A party's state in any method: its theta after the order of this number, and before it."""

    number: int
    before: Vector
    theta: Vector


def theta_at(state: Placed | None, number: int, dim: int) -> Vector:
    """Where the party was after the order of that number, the last of which the coordinator knows the outcome.

    It may have obeyed one more, whose reply was lost, rejected, or not waited for after Ctrl-C. Number 0 is the start.
    """
    if state is None or number == 0:
        return np.zeros(dim)
    if state.number == number:
        return state.theta
    return state.before


def gradient_of(share: Party, theta: Vector, slopes: Vector) -> Vector:
    """A party's gradient of the Lagrangian at theta, given the slopes by score; its h_k is quadratic."""
    return np.asarray(share.pull(slopes) + share.curvature * theta)


def certificate_of(problem: VerticalProblem, z: Vector, net: Vector, slopes: Sequence[float]) -> Certificate:
    """Of scores z and net prices, given the largest entry of every holder's gradient of the Lagrangian."""
    feasibility, violation = problem.misses(z, net)
    return Certificate(max(slopes), feasibility, violation, problem.excesses(z))


# -------------------------------------------------------------------------------------------------------------- the end


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    """number: of the last order that counts; slopes: of the Lagrangian by score"""

    number: int
    slopes: Vector


@dataclass(frozen=True, kw_only=True)
class Concluded(Reply):
    """A party's part of the final certificate."""

    scores: Summed[Vector]  # X_k theta_k
    penalty: Summed[float]  # h_k(theta_k)
    stationarity: float  # distance of its gradient of the Lagrangian from the subdifferential of -h_k


@dataclass(frozen=True, kw_only=True)
class Revealed(Concluded):
    """... and its coefficients."""

    theta: Vector


@client_step
def conclude(share: Party, state: Any, order: Conclude) -> tuple[Any, Concluded]:
    """The party writes its piece to its own file, if it has one, and judges it anew from its own columns."""
    theta = theta_at(state, order.number, share.size)
    share.keep_piece(theta, order.run)
    return state, judge_piece(share, theta, order.slopes)


@client_step
def reveal(share: Party, state: Any, order: Conclude) -> tuple[Any, Revealed]:
    """The same, and it hands its piece out."""
    state, judged = conclude(share, state, order)
    return state, Revealed(theta=theta_at(state, order.number, share.size), **vars(judged))


def judge_piece(share: Party, theta: Vector, slopes: Vector) -> Concluded:
    """What a party's columns say about its coefficients."""
    return Concluded(
        scores=share.score(theta),
        penalty=share.h.value(theta),
        stationarity=share.h.subdifferential_distance(-share.pull(slopes), theta),
    )


@dataclass(frozen=True)
class Reached:
    """Where the parties are, as far as the coordinator knows.

    numbers: of the last order that counts, one for all parties or one each
    own:     the coordinator's coefficients
    """

    numbers: Sequence[int]
    scores: Vector
    net: Vector
    own: Vector


@dataclass(frozen=True, kw_only=True)
class VerticalSolver(Solver[S]):
    """A method for parties that hold columns; each keeps its own coefficients."""

    needs: ClassVar[Needs] = Needs(columns=True, private=True, smooth="its steps follow the gradient of h")
    reserve: ClassVar[int] = 1

    reveal: bool = option(True, "does the answer hold the parties' coefficients? If not, each party has its own only")

    @abstractmethod
    def reached(self, run: Run, state: S) -> Reached:
        """Where the parties are."""

    def finish(self, run: Run, state: S | None) -> Ending:
        """One exchange: every party keeps its piece, and says how good it is by its own columns."""
        problem: Any = run.problem
        scored = problem.scored
        at = start_of(problem) if state is None else self.reached(run, state)
        slopes = problem.slopes(at.scores, at.net)
        orders = [Conclude(number=number, slopes=slopes) for number in at.numbers]
        order = orders[0] if len(orders) == 1 else orders
        if self.reveal:
            revealed = run.ask(reveal, order)
            parts = [reply.theta for reply in revealed]
            replies: Answers[Any] = revealed
        else:
            replies = run.ask(conclude, order)
            parts = [np.full(scored.outputs * party.width, np.nan) for party in problem.shares]
        own = judge_piece(problem.server, at.own, slopes)
        z = replies.total.scores + own.scores
        penalty = replies.total.penalty + own.penalty
        each = [own.stationarity, *(reply.stationarity for reply in replies)]
        certificate = certificate_of(problem, z, at.net, each)
        objective = float(np.mean(scored.losses(z))) + penalty
        run.best.w = problem.join([*parts, at.own])
        run.best.multiplier = problem.multiplier(at.net)
        unbounded = _falls_forever(problem, z, penalty, max(certificate.violation, run.tol[1]))
        prices = [np.zeros(0) for _ in problem.shares]
        return Ending(certificate, objective, prices, 0.0 if unbounded else np.inf, scores=z)


def start_of(problem: VerticalProblem) -> Reached:
    """theta = 0 everywhere."""
    scores = np.zeros(problem.scored.length)
    return Reached([0], scores, np.zeros(problem.price_length), np.zeros(problem.server.size))


def _falls_forever(problem: VerticalProblem, z: Vector, penalty: float, violation: float) -> bool:
    """Does the loss fall forever beyond z? All scores are linear in theta, so nobody needs to be asked."""
    if not all(party.quadratic for party in problem.shares):
        return False  # only of a quadratic is it known how it grows, and that it ends nowhere
    scored = problem.scored
    far = FAR * z
    here = float(np.mean(scored.losses(z))) + penalty
    with np.errstate(over="ignore", invalid="ignore"):  # losses that are infinite there do not fall
        worse = max(problem.excesses(far).values(), default=0.0) > violation
        there = float(np.mean(scored.losses(far))) + FAR**2 * penalty
    return bool(z.any() and not worse and there <= 0.9 * here)


# ---------------------------------------------------------------------------------------------------------- prediction


@dataclass(frozen=True, kw_only=True)
class Score(Order):
    """Score the people to predict."""


@dataclass(frozen=True, kw_only=True)
class Scores(Reply):
    """A party's part of every score."""

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
            trained = ", ".join(known)
            raise DataError(f"{name}: has no piece of this model; its parties are {trained}", code="FP-DATA-252")
        rows[name] = len(read_table(name, X, known[name].columns))
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in rows.items())
        found = f"the parties have different numbers of rows ({counts})"
        raise DataError(f"{found}; align them by id (fedpact.alignment)", code="FP-DATA-253")
    return {name: NewRows(known[name], np.asarray(X, dtype=np.float64)) for name, X in parties.items()}


def summed_scores(session: Session, secure: bool) -> Vector:
    """The sum of all parties' scores; with `secure` nobody sees a single party's."""
    if secure:
        session.secure()
    return session.ask(score, Score()).total.scores
