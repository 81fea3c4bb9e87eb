"""Breast Cancer Wisconsin (Diagnostic), the table of the demo."""

from __future__ import annotations

import numpy as np

from fedpact.data.table import Table
from fedpact.errors import DataError, install


def wdbc() -> Table:
    """Breast Cancer Wisconsin (Diagnostic), scikit-learn's copy: 357 benign (y=0), 212 malignant (y=1), 30 features.

    Standardized, the classes are linearly separable: without a regularizer a logistic optimum is at infinity.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise DataError(
            f"wdbc() reads the copy in scikit-learn, which is absent: {install('sklearn')}",
            code="FP-DATA-450",
        ) from error
    bunch = load_breast_cancer()
    y = 1 - np.asarray(bunch.target, dtype=np.int64)  # scikit-learn codes malignant as 0
    return Table(np.asarray(bunch.data, dtype=np.float64), y, tuple(str(name) for name in bunch.feature_names))
