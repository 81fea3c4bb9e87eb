"""Heterogeneous quadratics with known optima, and an engine that shows what the server asks."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.engines import InProcess
from fedpact.federation import Fleet, Order, Sealed, Step
from fedpact.functions import LogisticLoss, Quadratic


@dataclass
class Quadratics:
    """f_i(w) = 1/2 w'A_i w + b_i'w; everything that the theory of the methods needs of it."""

    A: np.ndarray  # (owners, d, d)
    b: np.ndarray  # (owners, d)

    @property
    def owners(self) -> int:
        return len(self.A)

    @property
    def dim(self) -> int:
        return self.b.shape[1]

    def problem(self, regularizer: fp.prox.Prox | None = None) -> fp.FederatedProblem:
        shares = [fp.Share(Quadratic(A, b)) for A, b in zip(self.A, self.b, strict=True)]
        return fp.FederatedProblem(shares, regularizer=regularizer)

    def optimum(self, ridge: float = 0.0) -> np.ndarray:
        """Of sum_i f_i + ridge/2 |w|^2."""
        return np.linalg.solve(self.A.sum(0) + ridge * np.eye(self.dim), -self.b.sum(0))

    def image(self, i: int, x: np.ndarray) -> np.ndarray:
        """F_i(x), N times the gradient."""
        return self.owners * (self.A[i] @ x + self.b[i])

    def resolvent(self, i: int, gamma: float, s: np.ndarray) -> np.ndarray:
        """(id + gamma F_i)^-1(s)"""
        matrix = np.eye(self.dim) + gamma * self.owners * self.A[i]
        return np.linalg.solve(matrix, s - gamma * self.owners * self.b[i])

    @property
    def lipschitz(self) -> float:
        return self.owners * max(np.linalg.eigvalsh(A)[-1] for A in self.A)


def quadratics(seed: int = 0, owners: int = 5, dim: int = 4, spread: float = 0.5) -> Quadratics:
    """Curvatures between 0.2 and 1, times a number of the owner's own between 10^-spread and 10^spread."""
    rng = np.random.default_rng(seed)
    A, b = np.empty((owners, dim, dim)), rng.standard_normal((owners, dim))
    for i in range(owners):
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        curvature = rng.uniform(0.2, 1.0, dim) * 10 ** rng.uniform(-spread, spread)
        A[i] = (basis * curvature) @ basis.T
        A[i] = 0.5 * (A[i] + A[i].T)
    return Quadratics(A, b)


def logistic(seed: int = 0, owners: int = 4, rows: int = 30, dim: int = 3, ridge: float = 0.1) -> fp.FederatedProblem:
    """Owners whose classes lie in different places."""
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(owners):
        X = rng.standard_normal((rows, dim)) + rng.standard_normal(dim)
        y = (X @ rng.standard_normal(dim) + rng.standard_normal(rows) > 0).astype(float)
        shares.append(fp.Share(LogisticLoss(X, y) + Quadratic(ridge * np.eye(dim))))
    return fp.FederatedProblem(shares)


def fixed_point(affine: Callable[[np.ndarray], np.ndarray], dim: int) -> np.ndarray:
    """The fixed point of an affine map, by a linear system."""
    constant = affine(np.zeros(dim))
    matrix = np.stack([affine(e) - constant for e in np.eye(dim)], axis=1)
    return np.linalg.solve(np.eye(dim) - matrix, constant)


@dataclass
class Exchange:
    """One exchange: the step, the order that the first owner got, and who was asked."""

    step: str
    order: Any
    owners: list[str]


@dataclass
class Watching:
    """An engine in this process that keeps what was asked, and of whom."""

    threads: int = 1
    asked: dict[int, Exchange] = field(default_factory=dict)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet = InProcess(self.threads).open(shares, folder)
        start = fleet.start

        def watched(owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
            exchange = self.asked.setdefault(order.round, Exchange(step.__name__, order, []))
            exchange.owners.append(owner)
            return start(owner, step, order)

        fleet.start = watched  # type: ignore[method-assign]
        return fleet

    def orders(self, step: str = "advance") -> list[Any]:
        return [exchange.order for exchange in self.asked.values() if exchange.step == step]

    def samples(self, step: str = "advance") -> list[tuple[str, ...]]:
        return [tuple(exchange.owners) for exchange in self.asked.values() if exchange.step == step]

    def iterates(self, name: str = "w", step: str = "advance") -> np.ndarray:
        """The points that the rounds began with."""
        return np.array([getattr(order, name) for order in self.orders(step)])
