"""Algorithm 1 and Algorithm 3 of He24 side by side: one problem, the same starts, the same penalty and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.engines import InProcess
from fedpact.federation import Fleet
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.solve import solve
from fedpact.solvers import Solution
from fedpact.solvers.constrained.proximal_al import Conclude

#: Of both certificates, in all experiments of the paper.
TOL = 1e-3
#: Exchanges after which a run of Algorithm 1 is ended.
MOST = 20_000
#: Random starts or instances, in all experiments of the paper that have several.
TRIALS = 10


@dataclass(frozen=True)
class Settings:
    """The paper's letters: beta, the penalty; s, of the accuracies; rho, of the consensus (None: adapted, ours)."""

    beta: float
    s: float
    rho: float | None

    def __str__(self) -> str:
        return f"beta = {self.beta:g}, s = {self.s:g}, rho {'adapted' if self.rho is None else f'= {self.rho:g}'}"


@dataclass(frozen=True, eq=False)
class Twins:
    """The two algorithms from the same starts; Algorithm 1 from as many of the first ones as there was time for.

    curve: the points after the outer iterations of the first run of Algorithm 1
    """

    problem: FederatedProblem
    one: Sequence[Solution]
    three: Sequence[Solution]
    curve: Sequence[Vector]

    @property
    def pairs(self) -> list[tuple[Solution, Solution]]:
        return list(zip(self.one, self.three, strict=False))

    @property
    def differences(self) -> list[float]:
        """|f(w_1) - f(w_3)| / |f(w_3)| for every start that both have."""
        return [abs(a.objective - b.objective) / abs(b.objective) for a, b in self.pairs]


def on_sphere(dim: int, trial: int) -> Vector:
    """The start of a trial: uniform on the unit Euclidean sphere."""
    w = np.random.default_rng(trial).standard_normal(dim)
    return np.asarray(w / np.linalg.norm(w))


def twins(
    problem: FederatedProblem, starts: Sequence[Vector], runs: int, settings: Settings, say: Callable[[str], None]
) -> Twins:
    """Algorithm 3 from all starts, Algorithm 1 from the first ones."""
    both: dict[str, Any] = {"penalty": settings.beta, "accuracy": settings.s, "tol": TOL}
    watching = Watching()
    three = [solve(problem, "centralized-proximal-al", w0=w0, **both) for w0 in starts]
    one = []
    for trial, w0 in enumerate(starts[:runs]):
        say(f"trial {trial + 1} of {runs}")
        engine = watching if trial == 0 else None
        rho = settings.rho
        one.append(solve(problem, "proximal-al", w0=w0, consensus_penalty=rho, engine=engine, max_rounds=MOST, **both))
    return Twins(problem, one, three, [starts[0], *watching.points])


@dataclass
class Watching:
    """An engine as `InProcess`, which keeps the point that ends every outer iteration of Algorithm 1."""

    points: list[Vector] = field(default_factory=list)

    def open(self, shares: Any, folder: Path | None = None) -> Fleet:
        fleet = InProcess().open(shares, folder)
        ask = fleet.ask

        def watched(step: Any, orders: Any, owners: Any = None) -> Any:
            if isinstance(orders, Conclude):
                self.points.append(orders.w)
            return ask(step, orders, owners)

        setattr(fleet, "ask", watched)  # noqa: B010 - one fleet is watched, not the class
        return fleet


# ------------------------------------------------------------------------------------------------------ how it is told


def spread(values: Sequence[float] | Vector, form: str = ".4f") -> str:
    """Mean and, in brackets as the paper has it, the standard deviation."""
    deviation = f" ({np.std(values):.1e})" if np.size(values) > 1 else ""  # one run has none
    return f"{np.mean(values):{form}}{deviation}"


def printed_mean(text: str) -> float:
    """The mean of what the paper prints as 'mean (deviation)'."""
    return float(text.split()[0])


def solved(solutions: Sequence[Solution]) -> str:
    return f"{sum(s.solved for s in solutions)} of {len(solutions)}"


def exchanges(solutions: Sequence[Solution]) -> str:
    return f"{np.mean([s.rounds for s in solutions]):.0f}"


def outer(solutions: Sequence[Solution]) -> float:
    return float(np.mean([s.history.outer[-1].iteration for s in solutions]))


def by_owner(problem: FederatedProblem, runs: Sequence[Solution]) -> Vector:
    """Runs x owners: every owner's own mean loss, of which the objective is the mean."""
    n = len(problem.shares)
    return np.array([[n * s.objective.value(run.w) for s in problem.shares if s.objective] for run in runs])


def differences_by_owner(both: Twins) -> Vector:
    """|f_i(w_1) - f_i(w_3)| / |f_i(w_3)|, starts x owners: what the authors' evaluation script averages."""
    one = by_owner(both.problem, both.one)
    three = by_owner(both.problem, both.three[: len(one)])
    return np.asarray(np.abs(one - three) / np.abs(three))
