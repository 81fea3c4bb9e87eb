"""The Flower app of fedpact: `client_app` runs at every site, `server_app` at the coordinator.

A site says in its --node-config who it is and where its own things are:

    name="hospital 1"       as the coordinator knows it
    data-path="rows.csv"    its table, read here and nowhere else
    state-path="state"      folder for its memory, so that it can be killed and restarted
    bound=0.2 ...           optional: values of the job that this site insists on; an order of another job is refused

The coordinator's run config names a job file; `fedpact run` starts it for a job whose owners are at flower://ADDRESS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedpact.engines.flower.engine import Flower, greet_all
from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.engines.flower.engine import server_app as make_server_app
from fedpact.engines.flower.submit import SITES
from fedpact.errors import FedpactError, OptionError
from fedpact.federation import Site
from fedpact.jobs import read_job, run_job
from fedpact.tasks import TASKS, Custom, FileSource, Task
from fedpact.tasks.base import digest_of_files

#: Entries of a site's config that say where its own things are; all others are conditions.
PLACES = ("name", "data-path", "state-path", "functions")
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
    known = {"task", *PLACES, *(field.name for task in TASKS.values() for field in fields(task))}
    if unknown := sorted(node_config.keys() - known):  # a condition that is misspelt would protect nobody
        raise OptionError(
            f"--node-config states {unknown[0]}, which no task has; it may state: {', '.join(sorted(known))}",
            code="FP-OPTION-013",
        )
    source = SiteSource(node_config)
    return Site(source.owner, source, Path(str(node_config["state-path"]))).handle


class SiteSource(FileSource):
    """A site's own table, which builds shares of tasks that the site agreed to."""

    def __init__(self, node_config: Mapping[str, Any]) -> None:
        super().__init__(str(node_config["name"]), str(node_config["data-path"]))
        self._conditions = dict(node_config)

    def accept(self, task: Task | Mapping[str, Any]) -> Task:
        """The task, where the site agreed to it, with the site's own code. OptionError where it did not."""
        asked = super().accept(task)
        self._check(asked)
        if not isinstance(asked, Custom):
            return asked
        if not self._functions:
            raise OptionError(
                'task "custom": state this site\'s own Python file, --node-config functions="..."',
                code="FP-OPTION-012",
            )
        return replace(asked, functions=self._functions)  # the coordinator never says which code runs here

    def digest(self) -> str:
        if self._functions:
            return digest_of_files(self.path, Path(self._functions))
        return digest_of_files(self.path)

    @property
    def _functions(self) -> str:
        return str(self._conditions.get("functions", ""))

    def _check(self, task: Task) -> None:
        stated = task.stated()
        for key, wanted in self._conditions.items():
            if key in PLACES:
                continue
            value = stated.get(key)  # None: the task has no such key, and cannot keep to it
            if key == "bound" and isinstance(value, Mapping):
                value = value.get(self.owner)
            if str(wanted) != str(value):
                raise OptionError(
                    f"the job states {key} = {value!r}; this site takes part only with {wanted!r}",
                    code="FP-OPTION-011",
                    key=key,
                )


def coordinate(grid: Any, run_config: Mapping[str, Any]) -> None:
    """Run the job that the run config names with the sites of the grid. FedpactError when it is not solved."""
    if run_config.get("sites"):
        log.info("%s%s", SITES, json.dumps(greet_all(grid, float(run_config["sites"]))))
        return
    if not run_config.get("job"):
        raise OptionError("the run config names no job; start it with `fedpact run job.toml`", code="FP-OPTION-340")
    file = read_job(str(run_config["job"]))
    patience = float(file.flower.get("patience", PATIENCE))
    record = run_job(file, engine=Flower(grid, patience), resume=bool(run_config.get("resume")))
    log.info("%s: %s", record.status, record.reason)
    if not record.solved:
        raise FedpactError(f"{record.status}: {record.reason}", code="FP-301")  # so that Flower's run counts as failed


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
