"""Cox's partial likelihood of one owner's rows: the sum over owners is that of a model stratified by owner."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import ProblemError
from fedpact.functions.arrays import Data, as_data, as_vector, count, first_of, gram, non_finite_defect, to_dense
from fedpact.functions.base import Function, Indices
from fedpact.functions.contributions import Contributions
from fedpact.functions.scored import quietly, weight_defect
from fedpact.types import Matrix, Vector
from fedpact.watching import note_scores, note_weights

Ties = Literal["efron", "breslow"]
TIES: tuple[str, ...] = get_args(Ties)


class CoxLoss(Function):
    """f(w) = -(1 / sum_i u_i) log PL(w), the mean negative log partial likelihood of proportional hazards (Cox 1972).

    With s_i = x_i'w, v_i = u_i exp(s_i), and one term e for every row with an event, at time t_e,

        log PL(w) = sum_e ( u_e s_e - m_e log A_e ),    A_e = sum_{i: t_i >= t_e} v_i - q_e sum_{i: tied with e} v_i.

    m_e is the mean weight of the events tied with e. q_e = 0 with Breslow's ties; with Efron's (1977) it is 0, 1/d, ...
    up to (d - 1)/d for d events at one time. Every pass is over rows sorted by time, by cumulative sums: O(rows dim^2)
    for the Hessian, O(rows dim) for the rest.

    X:      (rows, dim), dense or scipy sparse; without a column of ones, on which the likelihood does not depend
    time:   (rows,), until the event or until the row was last seen
    event:  (rows,), 1 where the event was seen, 0 where the row is censored
    weight: (rows,), u, above zero; 1 when None
    ties:   "efron" or "breslow"

    Raises ProblemError on wrong shapes or unknown ties; `defect` reports invalid values.
    """

    has_hessian = True
    convex = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        time: ArrayLike,
        event: ArrayLike,
        weight: ArrayLike | None = None,
        ties: Ties = "efron",
    ) -> None:
        if ties not in TIES:
            raise ProblemError(f"CoxLoss: ties = {ties!r}; choose {' or '.join(TIES)}", code="FP-PROBLEM-985")
        data = as_data("CoxLoss: X", X)
        self.count, self.dim = (int(size) for size in data.shape)
        self.given_time = as_vector("CoxLoss: time", time, self.count, "one for each row of X")
        self.given_event = as_vector("CoxLoss: event", event, self.count, "one for each row of X")
        self.given_weight: Vector = np.ones(self.count)
        if weight is not None:
            self.given_weight = as_vector("CoxLoss: weight", weight, self.count, "one for each row of X")
        self.equal = weight is None
        self.ties = ties
        self.order: Indices = np.argsort(self.given_time, kind="stable")
        self.X: Data = data[self.order]
        self.weight = self.given_weight[self.order]
        self.total = max(float(np.sum(self.weight)), np.finfo(float).tiny)
        self._sort_events(self.given_time[self.order], self.given_event[self.order] == 1)

    def _sort_events(self, time: Vector, seen: NDArray[np.bool_]) -> None:
        """Where every event is among the sorted rows, who is at risk then, and who is tied with it."""
        self.seen = seen
        self.at: Indices = np.flatnonzero(seen)  # rows of the events
        first = np.searchsorted(time, time, side="left")
        last = np.searchsorted(time, time, side="right")
        self.risk: Indices = first[self.at]  # rows from here on are at risk at the event
        _, self.tie, tied = np.unique(time[self.at], return_inverse=True, return_counts=True)
        self.tied = tied[self.tie]  # events at the time of each event
        self.mean = self._tied_sum(self.weight[self.at]) / self.tied  # m
        self.first: Indices = np.searchsorted(self.tie, self.tie, side="left")  # the first event of each tie
        self.part: Vector = np.zeros(self.at.size)  # q
        if self.ties == "efron":
            self.part = (np.arange(self.at.size) - self.first) / self.tied
        self.until: Indices = np.searchsorted(self.at, last, side="left")  # events up to the time of each row

    # ------------------------------------------------------------------------------------------------------------- sums

    def _tied_sum(self, terms: Vector) -> Vector:
        """For every event, the sum of these over the events tied with it."""
        return np.asarray(np.bincount(self.tie, terms)[self.tie], dtype=np.float64)

    def _log_risk(self, score: Vector) -> Vector:
        """log A of every event, free of overflow."""
        own = score + np.log(self.weight)
        at_risk = np.logaddexp.accumulate(own[::-1])[::-1][self.risk]
        tied = self._tied_sum(np.exp(own[self.at] - at_risk))
        return np.asarray(at_risk + np.log1p(-self.part * tied))

    def _hazard(self, score: Vector, log_risk: Vector) -> Vector:
        """exp(s_i) (sum of m / A over events until t_i, less q m / A over those that it is tied with)"""
        terms = np.log(self.mean) - log_risk
        passed = np.append(-np.inf, np.logaddexp.accumulate(terms))[self.until]
        hazard = np.exp(score + passed)
        base = terms[self.first]  # within a tie they differ little, so that nothing is lost
        hazard[self.at] -= np.exp(score[self.at] + base) * self._tied_sum(self.part * np.exp(terms - base))
        return np.asarray(np.maximum(hazard, 0.0))  # it is; rounding may not know

    def _means(self, score: Vector) -> Matrix:
        """Z_e = (sum of v_i x_i at risk - q sum of v_i x_i tied) / A: the mean row at risk at every event."""
        v = self.weight * np.exp(score - np.max(score, initial=-np.inf))
        weighted = v[:, None] * to_dense(self.X)
        together = np.column_stack([v, weighted])
        at_risk = np.cumsum(together[::-1], axis=0)[::-1][self.risk]
        left = at_risk - self.part[:, None] * self._tied_rows(together[self.at])
        # Far away the hazard of all at risk may underflow; any mean does there.
        return np.asarray(np.divide(left[:, 1:], left[:, :1], out=np.zeros(left[:, 1:].shape), where=left[:, :1] > 0))

    # ------------------------------------------------------------------------------------------------------ derivatives

    @quietly
    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        score = np.asarray(self.X @ w)
        log_risk = self._log_risk(score)
        slope = self.weight * (self._hazard(score, log_risk) - self.seen)
        note_scores(self, score - np.mean(score))  # only their differences matter
        note_weights(self, "gradient", slope)
        return self._value(score, log_risk), np.asarray(self.X.T @ slope) / self.total

    @quietly
    def value(self, w: Vector) -> float:
        score = np.asarray(self.X @ w)
        return self._value(score, self._log_risk(score))

    def _value(self, score: Vector, log_risk: Vector) -> float:
        return float(self.mean @ log_risk - self.weight[self.at] @ score[self.at]) / self.total

    @quietly
    def hessian(self, w: Vector) -> Matrix:
        score = np.asarray(self.X @ w)
        hazard = self._hazard(score, self._log_risk(score))
        found = gram(self.X, self.weight * hazard) - gram(self._means(score), self.mean)
        return found / self.total

    @quietly
    def contributions(self, w: Vector) -> list[Contributions]:
        """Derivatives by the weights of rows; those of the gradient are the score residuals of Lin and Wei (1989)."""
        score = np.asarray(self.X @ w)
        X = to_dense(self.X)
        log_risk = self._log_risk(score)
        hazard = self._hazard(score, log_risk)
        means = self._means(score)
        terms = np.exp(np.log(self.mean) - log_risk)[:, None] * means
        passed = np.vstack([np.zeros(X.shape[1]), np.cumsum(terms, axis=0)])[self.until]
        gradient = hazard[:, None] * X - np.exp(score)[:, None] * passed
        value = hazard.copy()
        value[self.at] += self._tied_sum(log_risk) / self.tied - score[self.at]
        # Rows with an event: their own term, and what Efron's ties take from the risk of those tied.
        gradient[self.at] += self._tied_rows(means) / self.tied[:, None] - X[self.at]
        gradient[self.at] += np.exp(score[self.at])[:, None] * self._tied_rows(self.part[:, None] * terms)
        weight = self.weight / self.total
        return [Contributions(self.order, weight, weight * value, weight[:, None] * gradient)]

    def _tied_rows(self, rows: Matrix) -> Matrix:
        """`_tied_sum` of every column."""
        sums = np.zeros((self.tie.max(initial=-1) + 1, rows.shape[1]))
        np.add.at(sums, self.tie, rows)
        return sums[self.tie]

    def information(self, w: Vector) -> Matrix | None:
        return self.hessian(w) / self.total if self.equal else None

    # ----------------------------------------------------------------------------------------------------------- checks

    def defect(self) -> str | None:
        if self.count == 0:
            return "X has no rows; leave this owner out or give it data"
        wrong = int(np.sum(~np.isin(self.given_event, (0.0, 1.0))))
        coding = f"event has {count(wrong, 'value')} other than 0 and 1; code it as 1 for seen, 0 for censored"
        zero = int(np.sum(self.given_weight == 0))
        weightless = f"weight has {count(zero, 'zero')}; leave such rows out"
        return first_of(
            [
                non_finite_defect("X", self.X),
                non_finite_defect("time", self.given_time),
                non_finite_defect("event", self.given_event),
                coding if wrong else None,
                weight_defect(self.given_weight),
                weightless if zero else None,
            ]
        )

    def __repr__(self) -> str:
        return f"CoxLoss(rows={self.count}, events={self.at.size}, dim={self.dim}, ties={self.ties!r})"
