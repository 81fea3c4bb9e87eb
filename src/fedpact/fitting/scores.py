"""Decisions of a vertical model: rates, gaps and promises, found at the coordinator on features of the pooled rows.

With `vertical-exact` the coordinator has the pooled rows up to a rotation of the columns, and it holds labels and
groups. So a list of constraints on decisions is a fit of one owner, here, to these features: sharpened, corrected by
counts, promised on held-out people, as any other. Two more exchanges hand the model out and judge it: every party takes
its piece, and the certificate and the counts are made anew from the scores and gradients of the parties' own columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import OptionError
from fedpact.federation import Communication, Session
from fedpact.fitting.fit import fit
from fedpact.fitting.inference import describe_price
from fedpact.fitting.result import Fit
from fedpact.problem import Certificate, FederatedProblem, Measure, Share, VerticalProblem, certify
from fedpact.problem.party import score_columns
from fedpact.solvers import Inference, Solution
from fedpact.solvers.vertical.shared import Conclude, conclude, reveal
from fedpact.solvers.vertical.vertical_exact import (
    CLOSER,
    REVEALED,
    Features,
    VerticalExact,
    learn,
    split_model,
)
from fedpact.solvers.vertical.vertical_exact_errors import (
    EVERYONE,
    gather_errors,
    keep_errors,
    spread_of,
    tell_errors,
)
from fedpact.solvers.vertical.vertical_exact_party import Move, move
from fedpact.tasks import Classification, Rows
from fedpact.tasks.decisions import Decisions
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class ScoredFit:
    """A model of decisions over the columns of all parties.

    fit:         on the features: its task, with the threshold that was found, and what it counted there
    solution:    with the certificate of the parties' own columns and, where that, the decisions counted on the parties'
                 own scores, or a promise misses, with the reason; its w: coefficients of all parties in order, and the
                 intercept; NaN where the parties keep theirs
    missed:      1 when the decisions, counted on the parties' own scores, miss a bound
    measures:    rates and gaps counted on these scores
    scores:      of all people, the threshold subtracted: above 0 the last of two classes is decided; of several, that
                 of the largest
    """

    fit: Fit
    solution: Solution
    missed: int
    measures: dict[str, Measure]
    scores: Vector

    @property
    def solved(self) -> bool:
        """Whether the model is certified, its decisions meet every bound, and every promise is made."""
        return self.solution.solved

    @property
    def w(self) -> Vector:
        """The coefficients of all parties in order, and the intercept from which the threshold is subtracted."""
        return self.solution.w

    @property
    def certificate(self) -> Certificate:
        """By the parties' own columns."""
        return self.solution.certificate

    @property
    def prices(self) -> list[float]:
        """Of every bound, in the order of the list: of either side of a gap, the one that is paid."""
        task = self.fit.task
        values = self.fit.values[EVERYONE]
        price = self.solution.multipliers[1]
        return [bound.price for bound in task.bounded(EVERYONE, values, price, self.measures)]


def fit_on_scores(
    task: Classification,
    problem: VerticalProblem,
    session: Session,
    group: ArrayLike | None = None,
    *,
    tol: float | tuple[float, float] = 1e-3,
    seed: int = 0,
    hand_out: bool = True,
    **options: Any,
) -> ScoredFit:
    """Train a classifier whose decisions meet a list of constraints, over the columns of all parties.

    task:     its constraints, classes and groups; what it says of columns and regularization is the parties' business
    problem:  of parties with the same quadratic regularizer, labels and no gaps
    session:  open, with these parties
    group:    number of every person's group among those of the task
    hand_out: whether the answer holds the parties' coefficients; if not, each keeps its own
    options:  of `fit`

    Raises OptionError for tasks that a vertical model cannot have; the parties' errors, and those of `fit`.
    """
    _check(task, problem)
    tolerances = (tol, tol) if isinstance(tol, float) else tol
    begun = session.ledger.read()
    features = learn(session.ask, problem, seed)
    closer = (CLOSER * tolerances[0], CLOSER * tolerances[1])
    posed = pose(task, features, problem.intercept)
    members = None if group is None else np.asarray(group)
    rows = Rows(features.features, _codes(problem), members)
    found = fit(posed, {EVERYONE: rows}, tol=closer, seed=seed, **options)
    scored = _hand_out(found, features, rows, problem, session, begun, tolerances, hand_out)
    if found.inference is None or not scored.solved:
        return scored
    inference = _share_errors(found, features, problem, session, scored.w, hand_out)
    communication = session.ledger.read(since=begun)
    return replace(scored, solution=replace(scored.solution, inference=inference, communication=communication))


def pose(task: Classification, features: Features, intercept: bool) -> Classification:
    """The task on the features: their common ridge is what the parties' own amounts to."""
    rank = features.mix.shape[1]
    return replace(
        task,
        columns=tuple(f"feature {k}" for k in range(1, rank + 1)),
        categories={},
        regularization=float(np.mean(np.diag(features.gram))),
        l1=0.0,
        standardize=False,
        intercept=intercept,
        owners=1,
    )


def _codes(problem: VerticalProblem) -> NDArray[np.int64]:
    """The number of everyone's class."""
    y = problem.scored.y
    if problem.scored.outputs > 1:
        return y.astype(np.int64)
    return (y > 0).astype(np.int64)


def _check(task: Classification, problem: VerticalProblem) -> None:
    classes = max(problem.scored.outputs, 2)
    if len(task.classes) != classes:
        raise OptionError(
            f"the task has {len(task.classes)} classes, and the scores of the problem are those of {classes}; pose it "
            'with loss="softmax" for more than two',
            code="FP-OPTION-870",
            key="classes",
        )
    if task.own_intercept or task.calibrate:
        raise OptionError(
            "own_intercept and calibrate are for owners of rows, and parties hold columns; leave them out",
            code="FP-OPTION-871",
            key="own_intercept",
        )


def _hand_out(
    found: Fit,
    features: Features,
    rows: Rows,
    problem: VerticalProblem,
    session: Session,
    begun: Communication,
    tol: tuple[float, float],
    hand_out: bool,
) -> ScoredFit:
    """Two exchanges: every party takes its piece, and judges it by its own columns."""
    task = found.task
    assert isinstance(task, Classification)
    model = found.solution.w
    weights, own = split_model(model, features, problem)
    order = Move(number=1, base=0, slopes=np.zeros(problem.scored.length), mix=features.mix, weights=weights)
    own_part = problem.server.score(own)
    scores = session.ask(move, order).total.scores + own_part

    judged = OnScores.of(task, rows, model)
    ridge = _ridge(task) / task.regularization  # where errors are minimised it is less than the parties' own
    slopes = judged.slopes(scores, found.solution.multipliers[1])
    last = Conclude(number=1, slopes=slopes / ridge)
    if hand_out:
        revealed = session.ask(reveal, last)
        parts = [reply.theta for reply in revealed]
        each = [reply.stationarity for reply in revealed]
        scores = revealed.total.scores + own_part
    else:
        concluded = session.ask(conclude, last)
        parts = [np.full(problem.scored.outputs * party.width, np.nan) for party in problem.shares]
        each = [reply.stationarity for reply in concluded]
        scores = concluded.total.scores + own_part
    if own.size:
        each.append(float(np.max(np.abs(problem.server.pull(slopes)))) / ridge)
    certificate = judged.certify(scores, found.solution.multipliers[1], ridge * max(each))
    met, _ = judged.decisions.tally(judged.trained_part(scores))
    shifted = own.copy()
    if own.size:
        shifted[-1] -= task.decide_at  # of the last class, or the only score
    solution = replace(
        found.solution,
        w=problem.join([*parts, shifted]),
        certificate=certificate,
        tol=tol,
        method=VerticalExact.name,
        communication=session.ledger.read(since=begun),
    )
    solution.history.notes.append(REVEALED)
    if found.solution.solved and not certificate.meets(tol):
        reason = "the certificate by the parties' own columns misses the tolerances"
        solution = replace(solution, status="stalled", reason=reason)
    elif found.solution.solved and not found.solved:
        solution = replace(solution, status="stalled", reason=found.shortfall)
    elif found.solution.solved and not met:
        reason = "decisions counted on the parties' own scores miss a bound"
        solution = replace(solution, status="stalled", reason=reason)
    measures = judged.decisions(judged.trained_part(scores))
    shift = np.zeros(problem.scored.outputs)
    shift[-1] = task.decide_at
    return ScoredFit(found, solution, int(not met), measures, scores - np.repeat(shift, problem.scored.y.size))


def _share_errors(
    found: Fit, features: Features, problem: VerticalProblem, session: Session, w: Vector, hand_out: bool
) -> Inference:
    """One exchange: every party learns the standard errors of its own coefficients, from those of the features."""
    of_weights = found.inference
    assert of_weights is not None
    words = tuple((describe_price(found, holder, row)[0], row) for holder, row in of_weights.binding)
    replies = None
    if of_weights.covariance is not None:
        order = spread_of(of_weights, features.mix, problem.scored.outputs, 1)
        replies = session.ask(tell_errors if hand_out else keep_errors, order)
    return replace(gather_errors(of_weights, problem, w, features.mix, replies), binding=words)


def _ridge(task: Classification) -> float:
    """Weight of the squared norm of the features' coefficients."""
    regularizer: Any = task.regularizer()
    return float(np.max(regularizer.curvature))


@dataclass(frozen=True, eq=False)
class OnScores:
    """The last problem of a fit as one about the scores of its rows: their columns are those of the identity.

    trained: which people were trained on; the others test promises
    """

    share: Share
    decisions: Decisions
    trained: NDArray[np.bool_]

    @classmethod
    def of(cls, task: Classification, rows: Rows, w: Vector) -> OnScores:
        built = task.share(EVERYONE, rows)
        assert isinstance(built, Share)
        assert isinstance(built.measures, Decisions)
        on_features = built.measures.rows
        scores = np.zeros(0)
        if task.centre:
            outputs = 1 if len(task.classes) == 2 else len(task.classes)
            scores = score_columns(on_features.X, np.array(task.centre), outputs)
        about = replace(task, centre=tuple(scores.tolist()))
        number = len(on_features.y)
        identity: Any = sp.eye_array(number, format="csr")  # functions of rows take sparse ones as well
        on_scores = replace(on_features, X=identity, task=about)
        trained = ~task.held_out(EVERYONE, rows.y, rows.group)
        decisions = Decisions(on_scores, replace(built.measures.kept, task=about))
        return cls(Share(on_scores.objective(), on_scores.constraint(), name=EVERYONE), decisions, trained)

    def trained_part(self, scores: Vector) -> Vector:
        """The scores of the people trained on."""
        return scores.reshape(-1, self.trained.size)[:, self.trained].ravel()

    def slopes(self, scores: Vector, price: Vector) -> Vector:
        """The derivatives of the Lagrangian by all people's scores."""
        z = self.trained_part(scores)
        assert self.share.objective is not None
        slope = self.share.objective.gradient(z)
        if self.share.constraint is not None:
            slope = slope + self.share.constraint.function.jacobian(z).T @ price
        found = np.zeros((len(scores) // self.trained.size, self.trained.size))
        found[:, self.trained] = slope.reshape(len(found), -1)
        return found.ravel()

    def certify(self, scores: Vector, price: Vector, stationarity: float) -> Certificate:
        """The certificate at these scores, with the stationarity that the holders of the columns found."""
        problem = FederatedProblem([self.share])
        at_scores = certify(problem, self.trained_part(scores), [np.zeros(0), price])
        return replace(at_scores, stationarity=stationarity)
