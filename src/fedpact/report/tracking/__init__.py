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
#: name in a job -> (folder in which the run works, its name, resume) -> tracker
TRACKERS: dict[str, Callable[[Path, str, bool], Tracker]] = {
    "csv": lambda folder, name, resume: CsvLog(folder / LOG, resume=resume),
    "tensorboard": lambda folder, name, resume: TensorBoard(folder / EVENTS, resume=resume),
    "mlflow": lambda folder, name, resume: MLflow(name, resume=resume),
}


def tracker(name: str, folder: str | Path, resume: bool = False, output: Path | None = None) -> Tracker:
    """The tracker of this name for a run that works in this folder. OptionError if the name is unknown.

    output: the folder that the run is named after, if it works in another one
    """
    if name not in TRACKERS:
        raise OptionError(f"tracker {name!r} is unknown; choose {', '.join(TRACKERS)}", code="FP-OPTION-501")
    called = "/".join((output or Path(folder)).resolve().parts[-2:])
    return TRACKERS[name](Path(folder), called, resume)


def forget(folder: str | Path) -> None:
    """Delete what trackers of a run wrote to its output folder; runs in MLflow are kept."""
    (Path(folder) / LOG).unlink(missing_ok=True)
    for file in (Path(folder) / EVENTS).glob(FILES):
        file.unlink()
