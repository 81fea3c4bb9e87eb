"""The Flower app of fedpact: `client_app` runs at every site, `server_app` at the coordinator.

A site is described by its `site.toml` (`fedpact.federation.policy`), which its --node-config names:

    policy="site.toml"      read strictly, enforced before a step runs
    name="hospital 1"       the same as in the file: how Flower shows the site to the coordinator

`fedpact site start site.toml` states both. The coordinator's run config names a job file; `fedpact run` starts it for a
job whose owners are at flower://ADDRESS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.engines.flower.engine import greet_all
from fedpact.engines.flower.engine import server_app as make_server_app
from fedpact.engines.flower.submit import SITES, answer_run, ask_sites, engine_of, own_table
from fedpact.errors import FedpactError, OptionError
from fedpact.federation.policy import read_policy
from fedpact.jobs import JobFile, evaluate_run, read_job, run_job
from fedpact.jobs.evaluation import score_party_run
from fedpact.jobs.profile import profile_job
from fedpact.jobs.site import open_site

#: Entries of a site's config; state-path is where Flower's node number is kept.
CONFIG = ("name", "policy", "state-path")

log = logging.getLogger("fedpact")


def make_handler(node_config: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """What a site does with the bytes of an order."""
    if unknown := sorted(node_config.keys() - set(CONFIG)):  # a rule that nobody reads would protect nobody
        raise OptionError(
            f"--node-config states {unknown[0]}; what a site allows stands in its site.toml", code="FP-OPTION-013"
        )
    if not node_config.get("policy"):
        raise OptionError(
            '--node-config has no policy; give policy="site.toml", or start it with `fedpact site start site.toml`',
            code="FP-OPTION-010",
        )
    site = open_site(str(node_config["policy"]))
    if node_config.get("name") != site.name:
        raise OptionError(
            f"--node-config has the name {node_config.get('name')!r}, site.toml {site.name!r}; give the same",
            code="FP-OPTION-011",
        )
    return site.handle


def coordinate(grid: Any, run_config: Mapping[str, Any]) -> None:
    """Run the job that the run config names with the sites of the grid. FedpactError when it is not solved.

    The file `answer` gets how it ended.
    sites: list who is online instead
    ask:   have the sites recompute what they signed about the run in this folder; the file `answer` gets what differs
    evaluate: have them measure the model of the run in this folder on tables that nobody trained on; `answer` gets it
    predict:  the same, and it gets the scores of a vertical model; server: the coordinator's table of these people;
              absent: parties that do not take part, a list in JSON
    profile:  have them describe their tables; `answer` gets it
    """
    if run_config.get("sites"):
        log.info("%s%s", SITES, json.dumps(greet_all(grid, float(run_config["sites"]))))
        return
    if not run_config.get("job"):
        raise OptionError("the run config names no job; start it with `fedpact run job.toml`", code="FP-OPTION-340")
    file = read_job(str(run_config["job"]))
    if folder := run_config.get("ask"):
        failed = [asdict(one) for one in ask_sites(Path(str(folder)), file, grid)]
        Path(str(run_config["answer"])).write_text(json.dumps(failed))
        return
    if run_config.get("evaluate") or run_config.get("predict") or run_config.get("profile"):
        Path(str(run_config["answer"])).write_text(json.dumps(_ask_sites(file, grid, run_config)))
        return
    resume, force = (bool(run_config.get(name)) for name in ("resume", "force"))
    record = answer_run(
        file,
        Path(str(run_config["answer"])) if run_config.get("answer") else None,
        lambda: run_job(file, engine=engine_of(file, grid), resume=resume, force=force),
    )
    log.info("%s: %s", record.status, record.reason)
    if not record.usable:
        raise FedpactError(f"{record.status}: {record.reason}", code="FP-301")  # so that Flower's run counts as failed


def _ask_sites(file: JobFile, grid: Any, run_config: Mapping[str, Any]) -> dict[str, Any]:
    """What the sites described, measured or scored, or code and text of the error that kept them from it."""
    server = own_table(Path(str(run_config["server"])) if run_config.get("server") else None)
    absent = json.loads(str(run_config.get("absent", "[]")))
    try:
        if run_config.get("profile"):
            return profile_job(file, engine_of(file, grid)).to_json()
        if folder := run_config.get("evaluate"):
            return evaluate_run(Path(str(folder)), file, server, engine_of(file, grid), absent=absent).to_json()
        folder = Path(str(run_config["predict"]))
        ids, scores = score_party_run(folder, file, server or {}, engine_of(file, grid), absent)
    except FedpactError as error:
        return {"code": error.code, "text": str(error)}
    return {"ids": ids, "scores": scores.tolist()}


def policy_digest(node_config: Mapping[str, Any]) -> str:
    """Of the rules that the site enforces now."""
    return read_policy(str(node_config["policy"])).digest


client_app = make_client_app(make_handler, policy_digest)
server_app = make_server_app(coordinate)
