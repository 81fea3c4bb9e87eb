"""Federated learning under constraints, for benchopt: where a method is after so many exchanges with the owners.

`value` is the larger of the violation of the constraints and the relative distance of the objective from its optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseObjective
from benchopt.stopping_criterion import NoCriterion

from fedpact.problem import FederatedProblem, certify
from fedpact.types import Vector
from fedpact_experiments.trace import objective_at


class Objective(BaseObjective):
    name = "Federated learning under constraints"
    min_benchopt_version = "1.7"
    sampling_strategy = "callback"
    stopping_criterion = NoCriterion(strategy="callback")  # a method ends by itself, or by --max-runs

    def set_data(self, problem: FederatedProblem, optimum: float) -> None:
        self.problem = problem
        self.optimum = optimum

    def get_objective(self) -> dict[str, Any]:
        return {"problem": self.problem}

    def get_one_result(self) -> dict[str, Any]:
        return {"w": np.zeros(self.problem.dim or 0), "exchanges": 0, "bytes": 0}

    def evaluate_result(self, w: Vector, exchanges: int, bytes: int) -> dict[str, float]:
        none = [np.zeros(holder.multiplier_length) for holder in (self.problem.server, *self.problem.shares)]
        violation = certify(self.problem, w, none).violation
        distance = abs(objective_at(self.problem, w) - self.optimum) / max(abs(self.optimum), 1e-12)
        return {
            "value": max(distance, violation),
            "distance": distance,
            "violation": violation,
            "exchanges": exchanges,
            "bytes": bytes,
        }
