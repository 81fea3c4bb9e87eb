"""Centralized proximal augmented Lagrangian method, cProx-AL: Algorithm 3 of He24, the twin that pools all shares.

    l_k(w) = f(w) + h(w) + (dist^2(mu^k + beta c(w), -K) - |mu^k|^2) / (2 beta) + |w - w^k|^2 / (2 beta)

The letters are those of `proximal_al.py`. It reads the shares in its own process and exchanges no message: a reference
for what federation costs, not a federated method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedpact.federation import named
from fedpact.functions import Function, Matrix, Vector
from fedpact.problem import Share, Terms, added, assemble, owner_terms
from fedpact.solvers.augmented_lagrangian import augmented_lagrangian
from fedpact.solvers.endings import Probed, Pull, Verdict, Watch, probed, pull, weighed
from fedpact.solvers.local import anchored, minimize
from fedpact.solvers.proximal_al import drift_of, next_multiplier, outer_accuracy, stops
from fedpact.solvers.run import Run
from fedpact.solvers.scales import default_penalty, look_at, together
from fedpact.solvers.solution import Solution

T = TypeVar("T")


def centralized_proximal_al(run: Run, *, penalty: float | None = None, accuracy: float | None = None) -> Solution:
    """Algorithm 3. penalty (beta) and accuracy (s) as for "proximal-al"; max_rounds bounds the outer iterations."""
    problem = run.problem
    holders = (problem.server, *problem.shares)
    beta = penalty if penalty is not None else default_penalty(together([look_at(h, run.w0) for h in holders]))
    s = run.tol[0] if accuracy is None else accuracy
    w, multipliers = run.w0, [np.zeros(h.multiplier_length) for h in holders]
    pool = Pool(holders, multipliers)
    best, watch = run.new_best(), Watch(run, pool)
    prices = multipliers
    end = Verdict("max_rounds", f"the limit of {run.max_rounds} outer iterations came before the tolerances")
    try:
        for k in range(run.max_rounds):
            tau = outer_accuracy(s, k, run.tol)
            parts = [
                _Named(h.label, augmented_lagrangian(h, m, beta, w.size))
                for h, m in zip(holders, multipliers, strict=True)
            ]
            pooled = anchored(sum(parts[1:], parts[0]), 1 / beta, w)
            found = minimize(pooled, w, tau, regularizer=problem.regularizer)
            updates = _each(_updated, holders, multipliers, found.w, beta)
            pairs = zip(holders, multipliers, updates, strict=True)
            pool.drifts = [drift_of(h, before, after) for h, before, (after, _) in pairs]
            multipliers = [after for after, _ in updates]
            change = max(change for _, change in updates)
            asked, user_w, server_multiplier, coupled = problem.own(found.w, multipliers[0])
            terms = _each(_terms, problem.shares, multipliers[1:], found.w, coupled)
            certificate, objective = assemble(asked, user_w, server_multiplier, coupled, added(terms), terms)
            moved = float(np.max(np.abs(found.w - w)))
            w = found.w
            best.offer(k + 1, w, multipliers[0], certificate, objective)
            if best.iteration == k + 1:
                prices = multipliers
            run.record(
                k + 1,
                certificate,
                objective,
                inner_rounds=0,
                penalty=beta,
                consensus_penalty=0.0,
                gradients=found.gradients,
                hessians=found.hessians,
            )
            run.report(k, 0, best)
            finished = stops(moved, tau, change, beta, run.tol) and certificate.meets(run.tol)
            failure = "" if found.converged else "the pooled subproblem could not be solved to its tolerance"
            if verdict := watch.verdict(finished, failure, change, certificate, objective, w, pool.drifts[0]):
                end = verdict
                break
            beta = beta if penalty is not None else beta * watch.growth()
    except KeyboardInterrupt:
        end = Verdict("max_rounds", f"interrupted after {len(run.history.outer)} outer iterations")
        if best.certificate is None:
            raise
    owned = [h.own(w, m)[2] for h, m in zip(problem.shares, prices[1:], strict=True)]
    return best.solution(run, end.status, end.reason, owned, end.conflict)


def _updated(share: Share, multiplier: Vector, w: Vector, penalty: float) -> tuple[Vector, float]:
    return next_multiplier(share, w, multiplier, penalty)


def _terms(share: Share, multiplier: Vector, w: Vector, coupled: Vector) -> Terms:
    return owner_terms(*share.own(w, multiplier), coupled)


def _each(step: Callable[..., T], holders: Sequence[Share], multipliers: Sequence[Vector], *values: object) -> list[T]:
    """step(holder, multiplier, *values) for each holder; an error names it."""
    results = []
    for holder, multiplier in zip(holders, multipliers, strict=True):
        with named(holder.label, "evaluating the share"):
            results.append(step(holder, multiplier, *values))
    return results


class _Named(Function):
    """A function whose errors name the holder, as they do when it runs at an owner."""

    def __init__(self, label: str, function: Function) -> None:
        self.label, self.function, self.dim = label, function, function.dim
        self.has_hessian, self.constant_hessian = function.has_hessian, function.constant_hessian

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        with named(self.label, "the function"):
            return self.function.value_and_gradient(w)

    def hessian(self, w: Vector) -> Matrix:
        with named(self.label, "the Hessian"):
            return self.function.hessian(w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        with named(self.label, "the Hessian"):
            return self.function.hessian_product(w, v)


@dataclass
class Pool:
    """The evidence for an ending, read from the pooled shares."""

    holders: tuple[Share, ...]
    drifts: list[Vector]

    def weighed(self, w: Vector, server_drift: Vector) -> Pull:
        return pull([weighed(h, w, m) for h, m in zip(self.holders, self.drifts, strict=True)])

    def probed(self, w: Vector) -> Probed:
        there = [probed(h, w) for h in self.holders]
        return Probed(objective=sum(p.objective for p in there), violation=max(p.violation for p in there))
