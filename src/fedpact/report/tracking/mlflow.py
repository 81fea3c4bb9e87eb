"""The progress of a solve as an MLflow run, at a tracking server or in a local file."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fedpact.errors import FedpactError, install
from fedpact.report.record import Record
from fedpact.report.tracking.base import Tracker, curves, metrics
from fedpact.solvers import Progress, Solution

#: Seconds between two requests to MLflow.
PAUSE = 1.0
#: What names of metrics may not hold.
FORBIDDEN = re.compile(r"[^\w\-. /]")
#: Files of a run that are kept with it.
FILES = ("model.json", "model.npz", "network.py", "coefficients.csv", "certificate.json", "run.json")
#: Values per request: MLflow accepts 1000, tags included.
MOST = 900


class MLflow(Tracker):
    """Objective, stationarity, feasibility and bytes against exchanges; at the end status and reason, as tags.

    Of a job also what owners measured with the model, and the model as artifacts.

    name:       name of the run
    experiment: created if it does not exist
    uri:        tracking server, or "sqlite:///runs.db" for a file; None: as MLflow is configured
    params:     parameters of the run, such as {"bound": 0.2}
    resume:     continue the latest run of this name

    Values that cannot be delivered are kept and sent again; FedpactError if that fails at the start or at the end.
    """

    def __init__(
        self,
        name: str,
        *,
        experiment: str = "fedpact",
        uri: str | None = None,
        params: Mapping[str, object] | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__()
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, RunTag
            from mlflow.exceptions import MlflowException
        except ImportError as error:
            remedy = install("mlflow")
            raise FedpactError(f"MLflow is not installed; {remedy}", code="FP-508") from error
        self._metric = Metric
        self._tag = RunTag
        self._trouble = MlflowException
        self._metrics: list[Any] = []
        self._tags: dict[str, str] = {}
        self._next = 0.0
        try:
            self._client = MlflowClient(tracking_uri=uri)
            self.run_id = self._open(experiment, name, resume)
            for key, value in (params or {}).items():
                self._client.log_param(self.run_id, key, value)
        except MlflowException as error:
            told = f"MLflow: run {name!r} cannot be opened ({error}); check the address of its tracking server"
            raise FedpactError(told, code="FP-509") from error

    def _open(self, experiment: str, name: str, resume: bool) -> str:
        """Create a run, or reopen the latest of this name; its id."""
        if found := self._client.get_experiment_by_name(experiment):
            number = found.experiment_id
        else:
            number = self._client.create_experiment(experiment)
        if resume:
            for run in self._client.search_runs([number], order_by=["attributes.start_time DESC"]):
                if run.info.run_name == name:
                    self.known = len(self._client.get_metric_history(run.info.run_id, "iteration"))
                    self._client.update_run(run.info.run_id, status="RUNNING")
                    return str(run.info.run_id)
        return str(self._client.create_run(number, run_name=name).info.run_id)

    def write(self, progress: Progress, answer: Solution | None) -> None:
        values = curves(progress)
        if answer is None:
            values["iteration"] = float(progress.iteration)  # one per Progress: a resumed run counts these
        now = time.time_ns() // 1_000_000
        step = self.step(progress)
        self._metrics += [self._metric(name, value, now, step) for name, value in values.items()]
        self._tags["method"] = progress.method
        if answer is not None:
            self._tags |= {"status": answer.status, "reason": answer.reason}
        if answer is not None or time.monotonic() >= self._next:
            with suppress(self._trouble):  # an unreachable server does not end the solve; `close` raises
                self._deliver()
            self._next = time.monotonic() + PAUSE

    def describe(self, record: Record, folder: Path) -> None:
        """Measures by owner as metrics, and the files of the model with its certificate as artifacts."""
        now = time.time_ns() // 1_000_000
        for name, value in metrics(record).items():
            self._metrics.append(self._metric(FORBIDDEN.sub("_", name), value, now, record.rounds))
        with suppress(self._trouble):  # as with curves; `close` delivers the metrics
            for file in FILES:
                if (folder / file).exists():
                    self._client.log_artifact(self.run_id, str(folder / file))

    def _deliver(self) -> None:
        while self._metrics or self._tags:
            tags = [self._tag(key, value) for key, value in self._tags.items()]
            self._client.log_batch(self.run_id, metrics=self._metrics[:MOST], tags=tags)
            del self._metrics[:MOST]
            self._tags.clear()

    def close(self, status: str = "FINISHED") -> None:
        """Deliver what is left and end the run with this MLflow status."""
        try:
            self._deliver()
            self._client.set_terminated(self.run_id, status)
        except self._trouble as error:
            lost = f"{len(self._metrics)} values of run {self.run_id} could not be delivered ({error})"
            raise FedpactError(f"MLflow: {lost}; call close() again once it answers", code="FP-510") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with suppress(FedpactError):  # it would hide the error of the solve
            self.close("KILLED" if issubclass(kind, KeyboardInterrupt) else "FAILED")
