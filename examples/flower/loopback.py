"""Three hospitals and a coordinator on one machine, as a real Flower deployment: TLS, keys, separate processes.

    python examples/flower/loopback.py                    # made-up tables
    python examples/flower/loopback.py --output answer    # keep the job, the folder of its run, and the logs

Needs the extra `flower`. Nothing listens beyond the loopback interface, and all processes end with this one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from deployment import Deployment

from fedpact.cli.run import show
from fedpact.engines.flower.submit import run_on_flower
from fedpact.federation.identity import Identity
from fedpact.jobs import read_job

SITES = ("hospital 1", "hospital 2", "hospital 3")
COLUMNS = ("age", "dose", "pressure")


def write_table(path: Path, seed: int, rows: int = 200) -> None:
    """A made-up table with header: the columns, and a label y that depends on them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, len(COLUMNS)))
    label = features @ [1.0, -1.0, 0.5] + rng.normal(size=rows) > 0
    table = np.column_stack([features, label])
    np.savetxt(path, table, ["%.6f"] * len(COLUMNS) + ["%d"], ",", header=",".join([*COLUMNS, "y"]), comments="")


def write_policy(path: Path, site: str, coordinator: str, roster: dict[str, str]) -> None:
    """What this site allows; `fedpact site init` writes a file with a comment on every key."""
    lines = [
        "[site]",
        f"name = {json.dumps(site)}",
        'data = "rows.csv"',
        'state = "state"',
        'key = "site.pem"',
        "[coordinators]",
        f"study = {json.dumps(coordinator)}",
        "[peers]",
        *(f"{json.dumps(peer)} = {json.dumps(public)}" for peer, public in roster.items() if peer != site),
        "[allow]",
        f"features = {json.dumps(COLUMNS)}",
        'labels = ["y"]',
        'tasks = ["neyman_pearson"]',
        "[allow.values]",
        "bound = {most = 0.5}",
    ]
    path.write_text("\n".join(lines) + "\n")


def write_job(path: Path, deployment: Deployment, key: Path, roster: dict[str, str]) -> None:
    """A job whose owners are the sites of the deployment."""
    lines = [
        'task = "neyman_pearson"',
        'label = "y"',
        f"features = {json.dumps(COLUMNS)}",
        "bound = 0.4",
        "[owners]",
        *(f'"{site}" = "flower://{deployment.address}"' for site in SITES),
        "[flower]",
        f"root_certificates = {json.dumps(str(deployment.authority))}",
        f"key = {json.dumps(str(key))}",
        "[roster]",
        *(f"{json.dumps(site)} = {json.dumps(public)}" for site, public in roster.items()),
    ]
    path.write_text("\n".join(lines) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="folder of the job, its run and the logs (default: temporary)")
    parser.add_argument("--stock", action="store_true", help="sites under flower-supernode: seconds more per round")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fedpact-flower-") as scratch:
        folder = Path(scratch)
        output = given.output.absolute() if given.output else folder / "output"
        output.mkdir(parents=True, exist_ok=True)
        with Deployment(folder, logs=output / "logs") as deployment:
            deployment.start_superlink()
            coordinator = Identity.create(folder / "coordinator.pem").public
            roster = {site: Identity.create(folder / site / "site.pem").public for site in SITES}
            for number, site in enumerate(SITES):
                home = folder / site
                write_table(home / "rows.csv", number)
                write_policy(home / "site.toml", site, coordinator, roster)
                deployment.register(site)
                config = {"policy": str(home / "site.toml"), "state-path": str(home / "state")}
                deployment.start_site(site, config, stock=given.stock)
            write_job(output / "job.toml", deployment, folder / "coordinator.pem", roster)
            record = run_on_flower(read_job(output / "job.toml"))
    show(record)
    return 0 if record.solved else 1


if __name__ == "__main__":
    sys.exit(main())
