"""A solve as a run of MLflow, at a tracking server or in a file of one's own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from fedpact.errors import FedpactError
from fedpact.report.tracking.base import Tracker, curves
from fedpact.solvers import Progress, Solution

#: Seconds between two messages to MLflow, and the most values in one (it takes 1000 with tags).
PAUSE, MOST = 1.0, 900


class MLflow(Tracker):
    """Objective, stationarity, feasibility and bytes against exchanges; at the end status and reason, as tags.

    name:       of the run
    experiment: made if there is none of this name
    uri:        of the tracking server, or "sqlite:///runs.db" for a file; None: as MLflow is set up
    params:     settings to be listed with the run, such as {"bound": 0.2}
    resume:     go on with the latest run of this name

    What cannot be delivered is kept and tried again; FedpactError when it is not possible at the start or the end.
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
            remedy = "install it with: pip install 'fedpact[mlflow]'"
            raise FedpactError(f"MLflow is not installed; {remedy}", code="FP-508") from error
        self._metric, self._tag, self._trouble = Metric, RunTag, MlflowException
        self._metrics: list[Any] = []
        self._tags: dict[str, str] = {}
        self._next = 0.0
        try:
            self._client = MlflowClient(tracking_uri=uri)
            self.run_id = self._opened(experiment, name, resume)
            for key, value in (params or {}).items():
                self._client.log_param(self.run_id, key, value)
        except MlflowException as error:
            told = f"MLflow: run {name!r} cannot be opened ({error}); check the address of its tracking server"
            raise FedpactError(told, code="FP-509") from error

    def _opened(self, experiment: str, name: str, resume: bool) -> str:
        """A new run, or the latest of this name; its id."""
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
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
            values["iteration"] = float(progress.iteration)  # once a Progress: a resumed run counts these
        now, step = time.time_ns() // 1_000_000, self.step(progress)
        self._metrics += [self._metric(name, value, now, step) for name, value in values.items()]
        self._tags["method"] = progress.method
        if answer is not None:
            self._tags |= {"status": answer.status, "reason": answer.reason}
        if answer is not None or time.monotonic() >= self._next:
            with suppress(
                self._trouble
            ):  # a server that is away does not end the solve; `close` tells if it stays away
                self._deliver()
            self._next = time.monotonic() + PAUSE

    def _deliver(self) -> None:
        while self._metrics or self._tags:
            tags = [self._tag(key, value) for key, value in self._tags.items()]
            self._client.log_batch(self.run_id, metrics=self._metrics[:MOST], tags=tags)
            del self._metrics[:MOST]
            self._tags.clear()

    def close(self, status: str = "FINISHED") -> None:
        """Deliver what is left, and tell MLflow how the run ended (in its own words)."""
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
        with suppress(FedpactError):  # the error of the solve is the one to hear of
            self.close("KILLED" if issubclass(kind, KeyboardInterrupt) else "FAILED")
