"""The progress of a solve as TensorBoard event files, written by the extra tensorboardX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpact.errors import FedpactError, install
from fedpact.report.coefficients import read_coefficients
from fedpact.report.files import explain_write_errors
from fedpact.report.record import Record
from fedpact.report.tracking.base import Tracker, curves, metrics
from fedpact.solvers import Progress, Solution

#: Points are on disk after at most so many seconds.
FLUSH = 5
#: Pattern of event files.
FILES = "events.out.tfevents.*"


class TensorBoard(Tracker):
    """Objective, stationarity, feasibility and bytes against exchanges; of a job, measures by owner and the model.

    folder: a folder for this run alone
    resume: continue in the folder of an interrupted solve; without it, existing event files are an error
    """

    def __init__(self, folder: str | Path, *, resume: bool = False) -> None:
        super().__init__()
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            remedy = install("tensorboard")
            raise FedpactError(f"TensorBoard needs tensorboardX; {remedy}", code="FP-506") from error
        self.folder = Path(folder)
        self._new_writer = SummaryWriter
        self._writer: Any = None
        with explain_write_errors(folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob(FILES)) and not resume:
            remedy = "continue them with resume=True, or choose another folder"
            raise FedpactError(f"{folder} holds the curves of another run; {remedy}", code="FP-507")

    def write(self, progress: Progress, answer: Solution | None) -> None:
        step = self.step(progress)
        if self._writer is None:
            # purge_step: drop the points that an interrupted solve wrote from this step on; they come again.
            self._writer = self._new_writer(str(self.folder), flush_secs=FLUSH, purge_step=step)
        for name, value in curves(progress).items():
            self._writer.add_scalar(name, value, step)

    def describe(self, record: Record, folder: Path) -> None:
        """Measures by owner as scalars, and the coefficients as a table, at the last exchange."""
        if self._writer is None:
            return
        for name, value in metrics(record).items():
            self._writer.add_scalar(f"model/{name}", value, record.rounds)
        rows = [f"| {one.name} | {one.estimate:.6g} |" for one in read_coefficients(folder, record)]
        self._writer.add_text("model", "\n".join(["| column | coefficient |", "|---|---|", *rows]), record.rounds)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
