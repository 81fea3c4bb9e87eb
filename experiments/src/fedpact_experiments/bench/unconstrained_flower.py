"""FedAvg of Flower, in its simulation, on logistic regression; `unconstrained.py` measures it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.types import Matrix, Vector

#: Rows, labels and ridge of an owner.
Part = tuple[Matrix, Vector, float]


@dataclass(frozen=True)
class Simulated:
    """w after the last round; seconds of the rounds but the first, scaled to all; start: all that came before."""

    w: Vector
    seconds: float
    start: float


def descend(part: Part, w: Vector, steps: int, step_size: float) -> Vector:
    """Steps down the owner's mean loss and ridge, by its gradient over all rows."""
    X, y, ridge = part
    for _ in range(steps):
        slope = X.T @ (1 / (1 + np.exp(-(X @ w))) - y) / len(y) + ridge * w
        w = w - step_size * slope
    return w


def simulate(parts: Sequence[Part], rounds: int, steps: int, step_size: float) -> Simulated:
    """Run FedAvg with every owner in every round, weighted by rows."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    os.environ.setdefault("FLWR_HOME", tempfile.mkdtemp(prefix="fedpact-flwr-"))
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client = ClientApp()

    @client.train()  # type: ignore[untyped-decorator,unused-ignore]
    def train(message: Message, context: Context) -> Message:
        part = parts[int(context.node_config["partition-id"])]
        given = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
        w = descend(part, given, steps, step_size)
        found: dict[str, Any] = {"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": len(part[1])})}
        return Message(RecordDict(found), reply_to=message)

    server = ServerApp()
    moments: list[float] = []
    arrays: list[Vector] = []

    @server.main()  # type: ignore[untyped-decorator,unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        def note(number: int, found: ArrayRecord) -> None:
            moments.append(time.perf_counter())

        first = ArrayRecord([np.zeros(parts[0][0].shape[1])])
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=len(parts))
        result = strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds, evaluate_fn=note)
        arrays.append(result.arrays.to_numpy_ndarrays()[0])

    began = time.perf_counter()
    resources: dict[str, Any] = {"client_resources": {"num_cpus": 1}}
    run_simulation(server_app=server, client_app=client, num_supernodes=len(parts), backend_config=resources)
    each = float(np.median(np.diff(moments[1:])))  # the first round starts the workers
    return Simulated(arrays[0], rounds * each, moments[1] - each - began)
