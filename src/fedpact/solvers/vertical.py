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
from fedpact.solvers.endings import Verdict
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution


class Placed(Protocol):
    """A party's state: it has a theta."""

    @property
    def theta(self) -> Vector: ...


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    reveal: bool


@dataclass(frozen=True, kw_only=True)
class Concluded(Reply):
    theta: Vector  # empty unless it was asked for


@client_step
def conclude(share: Party, state: Any, order: Conclude) -> tuple[Any, Concluded]:
    """The party writes its piece to its own file, and hands it out only when asked."""
    if share.keep:
        share.piece(state.theta).save(Path(share.keep))
    return state, Concluded(theta=state.theta if order.reveal else np.zeros(0))


def certificate_of(problem: VerticalProblem, z: Vector, net: Vector, slopes: Sequence[float]) -> Certificate:
    """Of scores z and net prices, given the largest entry of every holder's gradient of the Lagrangian."""
    feasibility, violation = problem.misses(z, net)
    gaps = np.abs(problem.scored.gaps(z))
    violations = {
        name: float(max(gap - eps, 0.0))
        for name, gap, eps in zip(problem.gap_names, gaps, problem.max_gap, strict=True)
    }
    return Certificate(max(slopes), feasibility, violation, violations)


def finished(
    run: Run, problem: VerticalProblem, net: Vector, intercept: Vector, end: Verdict, reveal: bool
) -> Solution:
    """One exchange: every party keeps its piece; with `reveal` the answer holds them all, else NaN in their place."""
    replies = run.fleet.ask(conclude, Conclude(reveal=reveal))
    widths = [party.X.shape[1] for party in problem.shares]
    parts = [r.theta if reveal else np.full(width, np.nan) for r, width in zip(replies, widths, strict=True)]
    best = run.best
    best.w, best.server_multiplier = np.concatenate([*parts, intercept]), problem.multiplier(net)
    return best.solution(run, end.status, end.reason, [np.zeros(0) for _ in problem.shares])


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
        rows[name] = len(np.asarray(X))
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise DataError(f"the parties have different numbers of rows ({told}); align them by id (fedpact.alignment)")
    return {name: NewRows(known[name], np.asarray(X, dtype=np.float64)) for name, X in parties.items()}


def summed_scores(fleet: Fleet, secure: bool) -> Vector:
    """The sum of all parties' scores; with `secure` nobody sees a single party's."""
    if secure:
        fleet.secure()
    return fleet.ask(score, Score()).total.scores
