"""The Flower app of fedpact: `client_app` runs at every site, `server_app` at the coordinator.

A site says in its --node-config who it is and where its own things are:

    name="hospital 1"       as the coordinator knows it
    data-path="rows.csv"    its table, read here and nowhere else
    state-path="state"      folder for its memory, so that it can be killed and restarted
    bound=0.2 ...           optional: values of the job that this site insists on; an order of another job is refused

The coordinator's run config names a job file; `fedpact run` starts it for a job whose owners are at flower://ADDRESS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpact.engines.flower import Flower
from fedpact.engines.flower import client_app as make_client_app
from fedpact.engines.flower import server_app as make_server_app
from fedpact.errors import OptionError
from fedpact.federation import Site
from fedpact.jobs import read_job, run_job
from fedpact.problem import Share, Unscaled
from fedpact.tasks import Custom, FileSource, Task, read_task
from fedpact.tasks.base import bound_for

#: Seconds to wait for sites that are not online at the start.
PATIENCE = 120.0

log = logging.getLogger("fedpact")


def make_handler(node_config: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """What a site does with the bytes of an order."""
    for key in ("name", "data-path", "state-path"):
        if not node_config.get(key):
            raise OptionError(
                f'--node-config has no {key}; give name="..." data-path="..." state-path="..."', code="FP-OPTION-010"
            )
    source = SiteSource(node_config)
    return Site(source.owner, source, Path(str(node_config["state-path"]))).handle


class SiteSource(FileSource):
    """A site's own table, which builds shares of tasks that the site agreed to."""

    def __init__(self, node_config: Mapping[str, Any]) -> None:
        super().__init__(str(node_config["name"]), str(node_config["data-path"]))
        self._conditions = node_config

    def __call__(self, task: Task | Mapping[str, Any]) -> Share | Unscaled:
        """The site's share of the task. OptionError when it is not what this site agreed to."""
        asked = read_task(task) if isinstance(task, Mapping) else task
        self._check(asked)
        if isinstance(asked, Custom):  # the coordinator never says which code runs here
            if not self._conditions.get("functions"):
                raise OptionError(
                    'task "custom": state this site\'s own Python file, --node-config functions="..."',
                    code="FP-OPTION-012",
                )
            asked = replace(asked, functions=str(self._conditions["functions"]))
        return super().__call__(asked)

    def _check(self, task: Task) -> None:
        stated = task.stated()
        if "bound" in stated:
            stated["bound"] = bound_for(stated["bound"], self.owner)
        for key, value in stated.items():
            wanted = self._conditions.get(key, value)
            if key != "functions" and str(wanted) != str(value):
                raise OptionError(
                    f"the job states {key} = {value!r}; this site takes part only with {wanted!r}",
                    code="FP-OPTION-011",
                    key=key,
                )


def coordinate(grid: Any, run_config: Mapping[str, Any]) -> None:
    """Run the job that the run config names with the sites of the grid."""
    if not run_config.get("job"):
        raise OptionError("the run config names no job; start it with `fedpact run job.toml`")
    file = read_job(str(run_config["job"]))
    patience = float(file.flower.get("patience", PATIENCE))
    record = run_job(file, engine=Flower(grid, patience), resume=bool(run_config.get("resume")))
    log.info("%s: %s", record.status, record.reason)


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
