"""Evaluations of functions, counted where they take place: at the owners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import get_annotations
from typing import Any

from fedpact.functions import Function, Indices, Map
from fedpact.problem import Constraint, FederatedProblem, MonotoneProblem, Share


@dataclass
class Counts:
    """Evaluations at one owner: a gradient or Jacobian, a Hessian or a product with it. Objective and constraint count
    each; a value alone counts only where the function cannot give it without the gradient."""

    gradients: int = 0
    hessians: int = 0


def _counted_as(kind: str, name: str) -> Callable[..., Any]:
    """The method of this name of the inner function, which counts as a gradient or as a Hessian."""

    def method(self: Any, *arguments: Any) -> Any:
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)
        return getattr(self.inner, name)(*arguments)

    return method


class CountedFunction(Function):
    """The same function, counting. It is none of the classes of `functions`, so sums cannot open it and get around."""

    def __init__(self, inner: Function, counts: Counts) -> None:
        self.inner, self.counts = inner, counts
        for name in get_annotations(Function):  # dim, has_hessian, ...: solvers choose by them
            setattr(self, name, getattr(inner, name))

    value_and_gradient = _counted_as("gradients", "value_and_gradient")
    hessian = _counted_as("hessians", "hessian")
    hessian_product = _counted_as("hessians", "hessian_product")

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
        self.inner, self.counts = inner, counts
        for name in get_annotations(Map):
            setattr(self, name, getattr(inner, name))

    value_and_jacobian = _counted_as("gradients", "value_and_jacobian")
    weighted_hessian = _counted_as("hessians", "weighted_hessian")
    weighted_hessian_product = _counted_as("hessians", "weighted_hessian_product")

    def value(self, w: Any) -> Any:
        self.counts.gradients += type(self.inner).value is Map.value
        return self.inner.value(w)

    def defect(self) -> str | None:
        return self.inner.defect()


def counted(problem: FederatedProblem) -> tuple[FederatedProblem, list[Counts]]:
    """The same problem, and the counts of its owners in their order; the server's own evaluations are not counted."""
    counts = [Counts() for _ in problem.shares]
    shares = [_counted(share, owner) for share, owner in zip(problem.shares, counts, strict=True)]
    if problem.monotone:
        return MonotoneProblem(shares, problem.regularizer), counts
    return FederatedProblem(shares, problem.server, problem.regularizer), counts


def _counted(share: Share, counts: Counts) -> Share:
    objective, constraint = share.objective, share.constraint
    if objective is not None:
        objective = CountedFunction(objective, counts)
    if constraint is not None:
        constraint = Constraint(CountedMap(constraint.function, counts), constraint.cone)
    return replace(share, objective=objective, constraint=constraint)
