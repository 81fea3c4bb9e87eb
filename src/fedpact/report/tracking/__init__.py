"""Trackers log the progress of a solve: CSV, TensorBoard, MLflow. The last two are extras, imported when used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpact.errors import OptionError
from fedpact.report.tracking.base import Tracker
from fedpact.report.tracking.csv_log import CsvLog
from fedpact.report.tracking.mlflow import MLflow
from fedpact.report.tracking.tensorboard import FILES, TensorBoard

__all__ = ["TRACKERS", "CsvLog", "MLflow", "TensorBoard", "Tracker", "forget", "tracker"]

#: File of CsvLog and folder of TensorBoard, in the output folder of a run.
LOG = "progress.csv"
EVENTS = "tensorboard"
#: name in a job -> (output folder of the run, resume) -> tracker
TRACKERS: dict[str, Callable[[Path, bool], Tracker]] = {
    "csv": lambda folder, resume: CsvLog(folder / LOG, resume=resume),
    "tensorboard": lambda folder, resume: TensorBoard(folder / EVENTS, resume=resume),
    "mlflow": lambda folder, resume: MLflow("/".join(folder.resolve().parts[-2:]), resume=resume),
}


def tracker(name: str, folder: str | Path, resume: bool = False) -> Tracker:
    """The tracker of this name for a run with this output folder. OptionError if the name is unknown."""
    if name not in TRACKERS:
        raise OptionError(f"tracker {name!r} is unknown; choose {', '.join(TRACKERS)}", code="FP-OPTION-501")
    return TRACKERS[name](Path(folder), resume)


def forget(folder: str | Path) -> None:
    """Delete what trackers of a run wrote to its output folder; runs in MLflow are kept."""
    (Path(folder) / LOG).unlink(missing_ok=True)
    for file in (Path(folder) / EVENTS).glob(FILES):
        file.unlink()
