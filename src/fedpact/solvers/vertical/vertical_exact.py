"""Vertical learning in a handful of exchanges: the coordinator learns the pooled rows up to a rotation of the columns.

With a quadratic h_k(theta_k) = 1/2 theta_k' D_k theta_k the problem depends on the parties' columns only through
K = sum_k X_k D_k^-1 X_k', whose rank is at most d, the number of all columns. For random Omega, n x (d + 8), that all
parties make from one seed, with W_k = D_k^-1/2 X_k' Omega (d_k x (d + 8)) and V_k = W_k T,

    Y = K Omega = sum_k X_k D_k^-1/2 W_k,    G = Omega' K Omega = sum_k W_k' W_k,    T = G^-1/2 on the range of G

F = Y T = sum_k X_k D_k^-1/2 V_k has F F' = K: rank d is all there is, so the Nystroem approximation is K itself (Halko,
Martinsson and Tropp 2011, section 5.5). The columns of V, all parties' together, are orthonormal.

    1. down: a seed        up: Y, block by block of rows, and G, summed
    2. down: T and beta, the solution of min L(F beta) + 1/2 |V beta|^2 under the constraints, which the coordinator
       finds by itself     up: the scores of theta_k = D_k^-1/2 V_k beta, and V' V, summed
    3. down: the slopes of the Lagrangian there     up: the certificate in the parties' own columns
    4. where standard errors are asked for: vertical_exact_errors.py

Where the certificate misses, what 2 and 3 brought corrects the coordinator's problem, and both are done again: V' V is
its quadratic term, the scores that the parties found differ from its own by an offset, the gradient by a linear term.
Columns that are not shrunk (D_kj = 0) have columns of Omega to themselves, D = 1, and no part in the quadratic term.
Where everyone has several scores, beta has coefficients for each of them; sketch and features stay as they are. The
party's half is in vertical_exact_party.py.

Notation
    Omega    random, the same at all parties                    omega
    W_k      the party's columns as seen through Omega          shadow
    T        from the sketch to orthonormal columns             mix
    F        features of the rows                               features
    beta     coefficients of the features                       weights
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Session
from fedpact.functions import Quadratic
from fedpact.problem import FederatedProblem, VerticalProblem
from fedpact.problem.party import score_columns
from fedpact.prox import SquaredL2
from fedpact.solvers.base import Needs, option
from fedpact.solvers.constrained.interior_point import InteriorPoint
from fedpact.solvers.inference import COVARIANCES, SINGULAR, Inference
from fedpact.solvers.loop import run_solver
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.solution import Solution
from fedpact.solvers.steps import Ending
from fedpact.solvers.vertical import vertical_exact_party
from fedpact.solvers.vertical.shared import Reached, VerticalSolver, certificate_of, judge_piece
from fedpact.solvers.vertical.vertical_exact_errors import (
    gather_errors,
    infer_weights,
    keep_errors,
    spread_of,
    tell_errors,
)
from fedpact.solvers.vertical.vertical_exact_party import Move, Sketch, move, sketch
from fedpact.types import Matrix, Vector

#: `Session.ask`, or that of a run.
Ask = Callable[[Any, Order], Answers[Any]]

#: Columns of Omega beyond the rank: Halko, Martinsson and Tropp advise 5 or 10.
MORE = 8
#: The coordinator's own solution is better than the tolerance by this factor: certificates differ by a rotation.
CLOSER = 0.01
#: ... but not better than rounding allows.
CLOSEST = 1e-13
#: Iterations of the coordinator's own solver: they cost no exchange.
OWN_LIMIT = 2000
#: Exchanges besides those of the blocks: two for keys, a move and two judgements, and two for columns not shrunk.
OTHERS = 7
#: Parties are not drawn from many, so errors clustered by party mean nothing.
INFERENCES = ("none", *(kind for kind in COVARIANCES if kind != "clustered"))

REVEALED = (
    "vertical-exact tells the coordinator the inner products between all people's rows, over all parties' columns "
    "together: the pooled rows up to a rotation of the columns"
)
MISSED = "the columns' scales may differ too much for a common sketch: let every party standardize its own"


@dataclass(frozen=True)
class Features:
    """What the coordinator solves with.

    features: F, (n, r); mix: T; shrunk: which features have a part in the quadratic term
    gram:     V' V, the quadratic term where it is shrunk
    free:     columns that are not shrunk
    """

    features: Matrix
    mix: Matrix
    shrunk: Vector
    gram: Matrix
    free: int = 0

    @property
    def quadratic(self) -> Matrix:
        """The quadratic term of all features; a sum of rounded matrices is symmetric up to rounding only."""
        return 0.5 * (self.gram + self.gram.T) * np.outer(self.shrunk, self.shrunk)


@dataclass(frozen=True)
class Point:
    """Where the parties are after the order of this number, and what the coordinator thinks of it.

    weights: of the features; own: the coordinator's coefficients; net: prices
    scores:  as the parties found them, with the coordinator's own part; penalty: likewise
    """

    number: int
    weights: Vector
    own: Vector
    net: Vector
    scores: Vector
    penalty: float


@dataclass
class Coordinator:
    """The coordinator's variables; `judged` is the last point whose certificate is known, `point` where they are."""

    problem: VerticalProblem
    features: Features
    judged: Point
    point: Point
    accuracy: tuple[float, float]
    pull: Vector = field(default_factory=lambda: np.zeros(0))
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class VerticalExact(VerticalSolver[Coordinator]):
    """The coordinator learns the pooled rows up to a rotation of the columns, and solves the whole problem on them.

    As exact as asked, in the fewest exchanges; what it reveals is in docs/explanation/what-the-server-sees.md.
    """

    name: ClassVar[str] = "vertical-exact"
    needs: ClassVar[Needs] = replace(VerticalSolver.needs, loss_bounds=True, own_losses=True, score_cones=True)
    patience: ClassVar[int] = 4
    reserve: ClassVar[int] = 3

    noise: float = option(
        0.0, "of every number of the sketch, relative to their root mean square; added by every party", least=0
    )
    inference: str = option(
        "none", "standard errors, of which every party keeps those of its own coefficients", choices=INFERENCES
    )

    def check(self, run: Run) -> None:
        problem: Any = run.problem
        if self.noise and self.inference != "none":
            raise OptionError(
                "standard errors are found on the sketch, and noise would be in them; leave noise or inference out",
                code="FP-OPTION-937",
                key="inference",
            )
        needed = len(blocks(problem.scored.y.size, length_of(problem))) + OTHERS + (self.inference != "none")
        if run.max_rounds < needed:
            raise OptionError(
                f'max_rounds = {run.max_rounds}: "vertical-exact" needs up to {needed} exchanges for these rows and '
                "columns; give more",
                code="FP-OPTION-256",
            )

    def init(self, run: Run) -> tuple[Coordinator, Iterate]:
        """The sketch; then the parties judge the start and go to the solution."""
        problem: Any = run.problem
        run.note(REVEALED)
        features = learn(run.ask, problem, run.seed, self.noise)
        rank = features.mix.shape[1]
        nothing = np.zeros(problem.price_length)
        scored = problem.scored
        weights = np.zeros(rank * scored.outputs)
        start = Point(0, weights, np.zeros(problem.server.size), nothing, np.zeros(scored.length), 0.0)
        accuracy = (max(CLOSER * run.tol[0], CLOSEST), max(CLOSER * run.tol[1], CLOSEST))
        state = Coordinator(problem, features, start, start, accuracy)
        found, slope = self._move(run, state)
        iterate = self._iterate(run, state, start, slope)
        if found.status in ("infeasible", "unbounded"):
            iterate = replace(iterate, end=Verdict(found.status, found.reason))
        return state, iterate

    def step(self, run: Run, state: Coordinator) -> Iterate:
        """The parties judge where they are; where that was not good enough, they go to a better point first."""
        if state.point is state.judged:
            self._move(run, state)
        replies = run.ask(move, self._order(state, np.zeros(0)))
        state.pull = replies.total.pull
        state.judged = state.point
        return self._iterate(run, state, state.point, replies.total.stationarity)

    def reached(self, run: Run, state: Coordinator) -> Reached:
        at = state.judged
        return Reached([at.number], at.scores, at.net, at.own)

    def excuse(self, run: Run, state: Coordinator) -> str:
        return MISSED

    def finish(self, run: Run, state: Coordinator | None) -> Ending:
        ending = super().finish(run, state)
        if self.inference == "none" or state is None or not ending.certificate.meets(run.tol):
            return ending
        return replace(ending, inference=self._infer(run, state))

    def _infer(self, run: Run, state: Coordinator) -> Inference:
        """One more exchange: every party learns the standard errors of its own coefficients."""
        at = state.judged
        known = state.features
        problem = state.problem
        found = infer_here(state, self.inference)
        if found.covariance is None:
            return gather_errors(found, problem, run.best.w, known.mix)
        step = tell_errors if self.reveal else keep_errors
        replies = run.ask(step, spread_of(found, known.mix, problem.scored.outputs, at.number))
        return gather_errors(found, problem, run.best.w, known.mix, replies)

    def _move(self, run: Run, state: Coordinator) -> tuple[Solution, float]:
        """Solve, and let the parties go there: the solution, and the largest slope of anybody's where they were."""
        found = solve_here(state)
        weights, own = split_model(found.w, state.features, state.problem)
        replies = run.ask(move, self._order(state, weights))
        scores = replies.total.scores + state.problem.server.score(own)
        net = state.problem.net(found.multipliers[0])
        state.point = Point(state.point.number + 1, weights, own, net, scores, replies.total.penalty)
        state.features = replace(state.features, gram=replies.total.gram)
        state.accuracy = (max(0.1 * state.accuracy[0], CLOSEST), max(0.1 * state.accuracy[1], CLOSEST))
        return found, replies.total.stationarity

    def _order(self, state: Coordinator, weights: Vector) -> Move:
        at = state.point
        slopes = state.problem.slopes(at.scores, at.net)
        number = at.number + bool(weights.size)
        return Move(number=number, base=at.number, slopes=slopes, mix=state.features.mix, weights=weights)

    def _iterate(self, run: Run, state: Coordinator, at: Point, slope: float) -> Iterate:
        """A judged point."""
        problem = state.problem
        own = judge_piece(problem.server, at.own, problem.slopes(at.scores, at.net))
        certificate = certificate_of(problem, at.scores, at.net, [own.stationarity, slope])
        objective = float(np.mean(problem.scored.losses(at.scores))) + at.penalty
        iterate = Iterate(
            number=state.k,
            w=np.zeros(0),
            multiplier=problem.multiplier(at.net),
            judged=(certificate, objective),
            gradients=len(run.owners),
        )
        state.k += 1
        return iterate


def learn(ask: Ask, problem: VerticalProblem, seed: int, noise: float = 0.0) -> Features:
    """The features, from as many exchanges as Y has blocks; again where there are columns that are not shrunk."""
    rows = problem.scored.y.size
    length = length_of(problem)
    products, gram, free = _sketch(ask, rows, Sketch(seed=seed, length=length, noise=noise))
    if free:
        order = Sketch(seed=seed, length=length, free_length=min(round(free) + MORE, rows), noise=noise)
        products, gram, _ = _sketch(ask, rows, order)
    return replace(find_features(products, gram, length), free=round(free))


def _sketch(ask: Ask, rows: int, order: Sketch) -> tuple[Matrix, Matrix, float]:
    """Y, G, and how many columns are not shrunk."""
    parts = []
    for first, last in blocks(rows, order.length + order.free_length):
        total = ask(sketch, replace(order, first=first, last=last)).total
        parts.append(total.products)
    return np.vstack(parts), total.gram, total.free


def length_of(problem: VerticalProblem) -> int:
    """Columns of Omega: some more than K can have rank, and no more than there are rows."""
    width: int = sum(party.width for party in problem.shares)
    return min(width + MORE, len(problem.scored.y))


def blocks(rows: int, length: int) -> list[tuple[int, int]]:
    """The rows of Y, cut so that no block has more than BLOCK numbers."""
    height = max(vertical_exact_party.BLOCK // length, 1)
    return [(first, min(first + height, rows)) for first in range(0, rows, height)]


def find_features(products: Matrix, gram: Matrix, length: int) -> Features:
    """F = Y T with T = G^-1/2 on the range of G, found for shrunk and free columns apart.

    Each part is divided by one number, so that entries of F are of order one, as those of scaled columns.
    """
    mixes = []
    for part in (slice(0, length), slice(length, None)):
        mix = np.zeros((len(gram), 0))
        block = gram[part, part]
        if block.size:
            sizes, directions = np.linalg.eigh(block)
            kept = sizes > len(block) * np.finfo(np.float64).eps * sizes[-1]
            mix = np.zeros((len(gram), np.count_nonzero(kept)))
            mix[part] = directions[:, kept] / np.sqrt(sizes[kept])
            features = products @ mix
            mix = mix / max(np.sqrt(np.mean(features**2)) if features.size else 0.0, 1e-300)
        mixes.append(mix)
    mix = np.hstack(mixes)
    shrunk = np.repeat([1.0, 0.0], [mixes[0].shape[1], mixes[1].shape[1]])
    return Features(products @ mix, mix, shrunk, mix.T @ gram @ mix)


def split_model(w: Vector, features: Features, problem: VerticalProblem) -> tuple[Vector, Vector]:
    """Weights of the features and the coordinator's own coefficients, each of one score after the other."""
    by_score = w.reshape(problem.scored.outputs, -1)
    rank = features.mix.shape[1]
    return by_score[:, :rank].ravel(), by_score[:, rank:].ravel()


def solve_here(state: Coordinator) -> Solution:
    """Solve on the features, corrected by what the parties said about the last judged point."""
    problem = state.problem
    known = state.features
    at = state.judged
    outputs = problem.scored.outputs
    rank = known.mix.shape[1]
    X = np.hstack([known.features, problem.server.X])
    start = problem.join([at.weights, at.own])
    offset = None
    linear = np.zeros((outputs, X.shape[1]))
    if at.number:
        offset = at.scores - score_columns(X, start, outputs)
        slopes = problem.slopes(at.scores, at.net).reshape(outputs, -1)
        linear[:, :rank] = state.pull.reshape(outputs, -1) - slopes @ known.features
    curvature = np.zeros((X.shape[1], X.shape[1]))
    curvature[:rank, :rank] = known.quadratic
    smooth = Quadratic(np.kron(np.eye(outputs), curvature), linear.ravel())
    return run_alone(problem.pose(X, smooth, offset), start, state.accuracy)


def infer_here(state: Coordinator, covariance: str) -> Inference:
    """Standard errors of the weights at the judged point, whose scores are those that the parties found."""
    problem = state.problem
    known = state.features
    at = state.judged
    outputs = problem.scored.outputs
    X = np.hstack([known.features, problem.server.X])
    w = problem.join([at.weights, at.own])
    if np.sum(known.shrunk == 0) < known.free:  # neither rows nor a penalty tell these columns apart
        return Inference(w, np.zeros(0), (), None, covariance, np.inf, (SINGULAR,))
    offset = at.scores - score_columns(X, w, outputs)
    ridge = np.append(np.diag(known.quadratic), np.zeros(problem.server.width))
    posed = problem.pose(X, offset=offset, regularizer=SquaredL2(np.tile(ridge, outputs)))
    return infer_weights(posed, w, problem.multiplier(at.net), covariance)


def run_alone(problem: FederatedProblem, start: Vector, tol: tuple[float, float]) -> Solution:
    """Solve a problem of one owner in this process."""
    with Session(secure_sum=False) as session:
        session.open({share.label: share for share in problem.shares})
        solver = InteriorPoint()
        run = Run(problem, session, session.ledger.read(), solver.name, start, tol, OWN_LIMIT)
        return run_solver(run, solver, hidden=False)
