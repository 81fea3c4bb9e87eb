"""The scikit-learn face of the tasks."""

from fedpact.errors import OptionError, install

try:
    from sklearn.utils.validation import validate_data  # noqa: F401 - new in scikit-learn 1.6
except ImportError as error:
    raise OptionError(
        f"estimators need scikit-learn 1.6 or newer: {install('sklearn')}", code="FP-OPTION-470"
    ) from error

from fedpact.estimators.fair import FairClassifier
from fedpact.estimators.fair_vertical import FairVerticalClassifier
from fedpact.estimators.neyman_pearson import NeymanPearsonClassifier

__all__ = ["FairClassifier", "FairVerticalClassifier", "NeymanPearsonClassifier"]
