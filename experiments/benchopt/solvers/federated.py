"""Methods of fedpact, and FedSGM beside them: one run gives the whole curve, a point after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchopt import BaseSolver

import fedpact as fp
from fedpact_experiments.bench.fedsgm import FedSGM

#: Exchanges of a run.
MOST = 1000
METHODS: dict[str, Any] = {
    "interior-point": "interior-point",
    "accelerated": "accelerated",
    "proximal-al": "proximal-al",
    "fedsgm": FedSGM(step_size=3 / np.sqrt(MOST), slack=0.0),  # in proportion to 1 / sqrt(T), as in its theorem
}


class Solver(BaseSolver):
    name = "federated"
    parameters = {"method": list(METHODS)}  # noqa: RUF012 - as benchopt wants it

    @staticmethod
    def get_next(stop_val: int) -> int:
        """Every step of the first ten, later every tenth part more."""
        return max(stop_val + 1, int(1.1 * stop_val))

    def set_objective(self, problem: fp.FederatedProblem) -> None:
        self.problem = problem

    def run(self, callback: Callable[[], bool]) -> None:
        self.result = {"w": np.zeros(self.problem.dim or 0), "exchanges": 0, "bytes": 0}
        callback()

        def note(progress: Any) -> bool:
            self.result = {"w": progress.w, "exchanges": progress.rounds, "bytes": progress.bytes}
            return not callback()

        found = fp.solve(self.problem, METHODS[self.method], tol=1e-9, max_rounds=MOST, callbacks=[note])
        self.result = {"w": found.w, "exchanges": found.rounds, "bytes": found.communication.bytes}

    def get_result(self) -> dict[str, Any]:
        return self.result
