"""The scikit-learn face of the tasks."""

from fedpact.estimators.fair import FairClassifier
from fedpact.estimators.fair_vertical import FairVerticalClassifier
from fedpact.estimators.neyman_pearson import NeymanPearsonClassifier

__all__ = ["FairClassifier", "FairVerticalClassifier", "NeymanPearsonClassifier"]
