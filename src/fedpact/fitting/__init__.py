"""From a task to a certified model, in one session."""

from fedpact.fitting.calibration import calibrate
from fedpact.fitting.evaluation import Evaluation, evaluate
from fedpact.fitting.fit import fit
from fedpact.fitting.result import Fit
from fedpact.tasks import Calibration

__all__ = ["Calibration", "Evaluation", "Fit", "calibrate", "evaluate", "fit"]
