"""The scikit-learn face of the tasks."""

from fedpact.estimators.fair_vertical import FairVerticalClassifier

__all__ = ["FairVerticalClassifier"]
