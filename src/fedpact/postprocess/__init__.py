"""Fairness after training: baselines that change the scores of a finished model, on rows that are in one place."""

from fedpact.postprocess.calibrated_equalized_odds import CalibratedPredictor, calibrated_equalized_odds
from fedpact.postprocess.equalized_odds import DerivedPredictor, Mixture, Rates, equalized_odds

__all__ = [
    "CalibratedPredictor",
    "DerivedPredictor",
    "Mixture",
    "Rates",
    "calibrated_equalized_odds",
    "equalized_odds",
]
