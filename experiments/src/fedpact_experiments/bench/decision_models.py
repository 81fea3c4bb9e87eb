"""fedpact's own rules for the goals of `fedpact bench decisions` and `fedpact bench promises`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.data.table import Table
from fedpact.errors import FedpactError
from fedpact.functions import Vector
from fedpact.tasks import Classification, Model, Requirement, Rows
from fedpact_experiments.bench.decision_baselines import Fitted, Method, owner_of_each_row
from fedpact_experiments.bench.decision_counts import Goal, Tables, group_of, pool


def our_models(goal: Goal) -> dict[str, Method]:
    """Name -> method, all that fedpact has for this goal."""
    options: dict[str, Any] = {}
    if goal.confidence is not None:
        options["confidence"] = goal.confidence
    if goal.recall is not None and goal.parity is not None:
        return {"fedpact": _listed_model(goal)}
    if goal.parity is not None:
        options |= {"max_gap": goal.gap, "parity": goal.parity}
        models = {"fedpact": _gap_model(options)}
        if goal.confidence is None:
            models["fedpact, least loss"] = _gap_model({**options, "objective": "loss"})
            models["fedpact, fewest errors"] = _gap_model({**options, "objective": "errors"})
        return models
    options["min_recall"] = goal.recall
    models = {"fedpact, one threshold": _recall_model(options)}
    if goal.confidence is not None:  # without a promise there is no threshold beside the intercept
        models["fedpact, own thresholds"] = _recall_model({**options, "threshold": "own"})
    else:
        models["fedpact, own intercepts"] = _recall_model({**options, "own_intercept": True})
    return models


def _recall_model(options: Mapping[str, Any]) -> Method:
    own = options.get("threshold") == "own" or options.get("own_intercept", False)

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


def _listed_model(goal: Goal) -> Method:
    """A recall and a gap in one list of constraints."""
    asked = (
        Requirement(kind="recall", at_least=goal.recall),
        Requirement(kind=str(goal.parity), at_most=goal.gap),
    )

    def fit(train: Tables) -> Fitted:
        first, *_ = train.values()
        task = Classification(
            constraints=asked,
            confidence=goal.confidence or 0.0,
            label="y",
            group="group",
            columns=first.columns,
        )
        found = fp.fit(task, {owner: Rows.of(rows.X, rows.y, rows.group) for owner, rows in train.items()})
        if not found.solved:
            raise FedpactError(f"{found.solution.status}: {found.shortfall}")
        model = found.model
        assert isinstance(model, Model)

        def decide(owner: str, rows: Table) -> Vector:
            return np.asarray(model.scores(rows.X)[:, 0] > 0, dtype=np.float64)

        return Fitted(decide, found.communication.rounds, np.ravel(model.coefficients))

    return fit


def exchanges_of(model: Any) -> int:
    """All exchanges of the fit where the model tells, else those of its last solve."""
    return int(getattr(model, "exchanges_", model.solution_.communication.rounds))
