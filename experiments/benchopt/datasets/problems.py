"""The problems of `fedpact bench`. Data sets other than synthetic ones and lcqp are found by FEDPACT_DATA."""

from __future__ import annotations

from typing import Any

from benchopt import BaseDataset

from fedpact_experiments.bench.measure import reference
from fedpact_experiments.bench.problems import PROBLEMS


class Dataset(BaseDataset):
    name = "problems"
    parameters = {"problem": ["synthetic", "lcqp"], "owners": [5, 20]}  # noqa: RUF012 - as benchopt wants it

    def get_data(self) -> dict[str, Any]:
        instance = PROBLEMS[self.problem](self.owners, None, 0)
        known = reference(instance, budget=60.0)
        assert known is not None
        return {"problem": instance.problem, "optimum": known.objective}
