"""The Flower app of fedpact: `client_app` runs at every site, `server_app` at the coordinator.

A site says in its --node-config who it is and where its own things are:

    name="hospital 1"       as the coordinator knows it
    data-path="rows.csv"    its table, read here and nowhere else
    state-path="state"      folder for its memory, so that it can be killed and restarted
    bound=0.2 ...           optional: values of the job that this site insists on; an order of another job is refused

The coordinator states the job in --run-config (see `CONFIG`), for example

    flwr run app NAME --run-config 'owners="hospital 1,hospital 2" label="y" columns="age,dose" bound=0.2 output="out"'

or names a job file (`fedpact run` does this for a job whose owners are at flower://ADDRESS).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.engines.flower import Flower
from fedpact.engines.flower import client_app as make_client_app
from fedpact.engines.flower import server_app as make_server_app
from fedpact.errors import FedpactError, OptionError
from fedpact.federation import Site
from fedpact.jobs import read_job, run_job
from fedpact.problem import RemoteProblem, Share, Unscaled
from fedpact.prox import SquaredL2
from fedpact.solve import solve
from fedpact.tasks import Job, share_from_file

#: The run config by key: what it is when it is not given. Empty means: it must be given.
CONFIG: dict[str, Any] = {
    "owners": "",  # names of the sites, with commas
    "label": "",
    "columns": "",  # features, with commas
    "output": "",  # folder of the coordinator for the solution and the checkpoint
    "task": "neyman_pearson",
    "bound": 0.2,
    "group": "-",
    "intercept": True,
    "weight": 0.0,  # of the squared-L2 regularizer; the intercept is free
    "method": "auto",
    "tol": 1e-3,
    "secure-sum": "default",  # or true, false
    "resume": False,
    "record": False,  # keep every message in output/messages.log
    "deadline": 600.0,
    "retries": 30,  # some two minutes: time to restart a site
    "patience": 120.0,  # seconds to wait for sites that are not online at the start
}

log = logging.getLogger("fedpact")


def make_handler(node_config: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """What a site does with the bytes of an order."""
    for key in ("name", "data-path", "state-path"):
        if not node_config.get(key):
            raise OptionError(
                f'--node-config has no {key}; give name="..." data-path="..." state-path="..."', code="FP-OPTION-010"
            )
    name = str(node_config["name"])
    return Site(name, partial(build_share, name, node_config), Path(str(node_config["state-path"]))).handle


def build_share(name: str, node_config: Mapping[str, Any], stated: Mapping[str, Any]) -> Share | Unscaled:
    """The site's share of the job, from its own table. OptionError when the job is not what this site agreed to."""
    job = Job.read(stated)
    for key, asked in {**job.stated(), "bound": job.bound_of(name)}.items():
        if key in node_config and key != "functions" and str(node_config[key]) != str(asked):
            raise OptionError(
                f"the job states {key} = {asked!r}; this site takes part only with {node_config[key]!r}",
                code="FP-OPTION-011",
                key=key,
            )
    if job.task == "custom":  # the coordinator never says which code runs here
        if not node_config.get("functions"):
            raise OptionError(
                'task "custom": state this site\'s own Python file, --node-config functions="..."', code="FP-OPTION-012"
            )
        job = replace(job, functions=str(node_config["functions"]))
    return share_from_file(job, name, str(node_config["data-path"]))


def coordinate(grid: Any, run_config: Mapping[str, Any]) -> None:
    """Solve the job of the run config with the sites of the grid, and write the answer to its output folder."""
    if run_config.get("job"):
        file = read_job(str(run_config["job"]))
        patience = float(file.flower.get("patience", CONFIG["patience"]))
        record = run_job(
            file, engine=lambda job: Flower(grid, job.stated(), patience), resume=bool(run_config.get("resume"))
        )
        log.info("%s: %s", record.status, record.reason)
        return
    config = read_config(run_config)
    owners, columns = listed(config["owners"]), listed(config["columns"])
    group = "" if config["group"] == "-" else config["group"]
    job = Job(config["task"], config["bound"], config["label"], columns, len(owners), group, config["intercept"])
    weight = np.full(len(columns), float(config["weight"]))
    output = Path(config["output"])
    output.mkdir(parents=True, exist_ok=True)
    answer = solve(
        RemoteProblem(
            dict.fromkeys(owners), regularizer=SquaredL2(np.append(weight, 0.0) if job.intercept else weight)
        ),
        config["method"],
        tol=config["tol"],
        engine=Flower(grid, job.stated(), config["patience"]),
        callbacks=[lambda p: log.info("exchange %d: certificate %.2e %.2e", p.rounds, p.stationarity, p.feasibility)],
        secure_sum={"default": None, "true": True, "false": False}[str(config["secure-sum"]).lower()],
        deadline=config["deadline"],
        retries=config["retries"],
        checkpoint=output / "checkpoint",
        resume=config["resume"],
        record=output / "messages.log" if config["record"] else None,
    )
    answer.save(output / "solution.npz")
    log.info("%r: %s", answer, answer.reason)
    if not answer.solved:
        raise FedpactError(f"{answer.status}: {answer.reason}")  # the run counts as failed


def read_config(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The run config with its defaults. OptionError when a key is unknown, absent, or of another type."""
    for key, value in run_config.items():
        if key not in CONFIG:
            raise OptionError(f"--run-config has no key {key!r}; it has {', '.join(CONFIG)}")
        default = CONFIG[key]
        if isinstance(default, float) and type(value) is int:
            continue
        if key != "secure-sum" and type(value) is not type(default):
            raise OptionError(f"--run-config {key} = {value!r}: give a {type(default).__name__}")
    config = {**CONFIG, **run_config}
    for key, value in config.items():
        if value == "":
            raise OptionError(f'--run-config needs {key}, for example {key}="..."')
    return config


def listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
