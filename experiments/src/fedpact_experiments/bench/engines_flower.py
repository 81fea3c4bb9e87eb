"""The Flower apps of `fedpact bench engines`: sites that hold next to nothing, and a coordinator with a stopwatch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpact.engines import Flower
from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.engines.flower.engine import server_app as make_server_app
from fedpact.federation import Site
from fedpact_experiments.bench.engines import Exchanged, measure_engine, share

ROWS = "rows.json"


def make_handler(node_config: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """A site that builds its share for the dimension that the job states."""
    return Site(node_config["name"], lambda job: share(job["dim"]), Path(node_config["state-path"])).handle


def coordinate(grid: Any, config: Mapping[str, Any]) -> None:
    rows = [
        measure_engine("flower", Flower(grid), config["owners"], dim, config["rounds"])
        for dim in map(int, config["dims"].split(","))
    ]
    Path(config["output"], ROWS).write_text(json.dumps([asdict(row) for row in rows]))


def read_rows(folder: Path) -> list[Exchanged]:
    """What a run left in its output folder."""
    return [Exchanged(**row) for row in json.loads((folder / ROWS).read_text())]


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
