"""Count the evaluations of functions at the owners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import get_annotations
from typing import Any

from fedpact.functions import Function, Indices, Map
from fedpact.problem import Constraint, FederatedProblem, MonotoneProblem, Share


@dataclass
class Counts:
    """Evaluations at one owner, of objective and constraint separately.

    gradients: gradients and Jacobians; a value counts only if the function computes the gradient for it
    hessians:  Hessians and products with them
    """

    gradients: int = 0
    hessians: int = 0


def _count_as(kind: str, name: str) -> Callable[..., Any]:
    """A method that calls the inner function's method of this name and counts it. kind: a field of Counts."""

    def method(self: Any, *arguments: Any) -> Any:
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)
        return getattr(self.inner, name)(*arguments)

    return method


class CountedFunction(Function):
    """A function that counts its evaluations. Of no class of `functions`, so that sums cannot simplify it away."""

    def __init__(self, inner: Function, counts: Counts) -> None:
        self.inner = inner
        self.counts = counts
        for name in get_annotations(Function):  # dim, has_hessian, ...: solvers choose by them
            setattr(self, name, getattr(inner, name))

    value_and_gradient = _count_as("gradients", "value_and_gradient")
    hessian = _count_as("hessians", "hessian")
    hessian_product = _count_as("hessians", "hessian_product")

    def value(self, w: Any) -> float:
        self.counts.gradients += type(self.inner).value is Function.value
        return self.inner.value(w)

    def batch(self, indices: Indices) -> Function:
        return CountedFunction(self.inner.batch(indices), self.counts)

    def defect(self) -> str | None:
        return self.inner.defect()


class CountedMap(Map):
    """As CountedFunction, for a constraint's map."""

    def __init__(self, inner: Map, counts: Counts) -> None:
        self.inner = inner
        self.counts = counts
        for name in get_annotations(Map):
            setattr(self, name, getattr(inner, name))

    value_and_jacobian = _count_as("gradients", "value_and_jacobian")
    weighted_hessian = _count_as("hessians", "weighted_hessian")
    weighted_hessian_product = _count_as("hessians", "weighted_hessian_product")

    def value(self, w: Any) -> Any:
        self.counts.gradients += type(self.inner).value is Map.value
        return self.inner.value(w)

    def defect(self) -> str | None:
        return self.inner.defect()


def count_evaluations(problem: FederatedProblem) -> tuple[FederatedProblem, list[Counts]]:
    """The problem with counting functions, and the counts in owner order. The server's evaluations are not counted."""
    counts = [Counts() for _ in problem.shares]
    shares = [_wrap_share(share, owner) for share, owner in zip(problem.shares, counts, strict=True)]
    if problem.monotone:
        return MonotoneProblem(shares, problem.regularizer), counts
    return FederatedProblem(shares, problem.server, problem.regularizer), counts


def _wrap_share(share: Share, counts: Counts) -> Share:
    objective = share.objective
    constraint = share.constraint
    if objective is not None:
        objective = CountedFunction(objective, counts)
    if constraint is not None:
        constraint = Constraint(CountedMap(constraint.function, counts), constraint.cone)
    return replace(share, objective=objective, constraint=constraint)
