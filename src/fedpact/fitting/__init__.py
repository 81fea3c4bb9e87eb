"""From a task to a certified model, in one session."""

from fedpact.fitting.alignment import Alignment, align_parties
from fedpact.fitting.calibration import calibrate
from fedpact.fitting.evaluation import evaluate
from fedpact.fitting.fit import fit
from fedpact.fitting.profile import Description, profile
from fedpact.fitting.result import Fit
from fedpact.fitting.vertical import PartyFitting
from fedpact.statistics.evaluation import Evaluation
from fedpact.tasks import Calibration

__all__ = [
    "Alignment",
    "Calibration",
    "Description",
    "Evaluation",
    "Fit",
    "PartyFitting",
    "align_parties",
    "calibrate",
    "evaluate",
    "fit",
    "profile",
]
