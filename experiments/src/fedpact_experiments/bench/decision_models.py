"""fedpact's own rules for the goals of `fedpact bench decisions` and `fedpact bench promises`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.data.table import Table
from fedpact.functions import Vector
from fedpact_experiments.bench.decision_baselines import Fitted, Method, owner_of_each_row
from fedpact_experiments.bench.decision_counts import Goal, Tables, group_of, pool


def our_models(goal: Goal) -> dict[str, Method]:
    """Name -> method, all that fedpact has for this goal."""
    options: dict[str, Any] = {}
    if goal.confidence is not None:
        options["confidence"] = goal.confidence
    if goal.recall is not None and goal.parity is not None:
        return {}  # recall and gap in one model: none of the classifiers takes both
    if goal.recall is not None:
        options["min_recall"] = goal.recall
        return {
            "fedpact, one threshold": _recall_model(options),
            "fedpact, own thresholds": _recall_model({**options, "threshold": "own"}),
        }
    return {"fedpact": _gap_model({**options, "max_gap": goal.gap, "parity": goal.parity})}


def _recall_model(options: Mapping[str, Any]) -> Method:
    own = options.get("threshold") == "own"

    def fit(train: Tables) -> Fitted:
        model = fp.NeymanPearsonClassifier(**options)
        table = pool(train)
        model.fit(table.X, table.y, client=owner_of_each_row(train))

        def decide(owner: str, rows: Table) -> Vector:
            told: dict[str, Any] = {}
            if own:
                told["client"] = np.full(len(rows.X), owner)
            return np.asarray(model.predict(rows.X, **told), dtype=np.float64)

        return Fitted(decide, exchanges_of(model), np.ravel(model.coef_))

    return fit


def _gap_model(options: Mapping[str, Any]) -> Method:
    def fit(train: Tables) -> Fitted:
        model = fp.FairClassifier(**options)
        table = pool(train)
        model.fit(table.X, table.y, group=group_of(table), client=owner_of_each_row(train))

        def decide(owner: str, rows: Table) -> Vector:
            return np.asarray(model.predict(rows.X), dtype=np.float64)

        return Fitted(decide, exchanges_of(model), np.ravel(model.coef_))

    return fit


def exchanges_of(model: Any) -> int:
    """All exchanges of the fit where the model tells, else those of its last solve."""
    return int(getattr(model, "exchanges_", model.solution_.communication.rounds))
