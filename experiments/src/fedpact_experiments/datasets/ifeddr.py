"""The data of the iFedDR experiments on logistic regression, split among owners who disagree, and five small problems.

Owners are given as name -> (X, y) with y in {0, 1}; the files code the labels as -1 and 1.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedpact.data.breast_cancer import wdbc
from fedpact.data.partition import by_label
from fedpact.data.table import Labels, Matrix, standardize, with_intercept
from fedpact.errors import DataError
from fedpact_experiments.datasets.folder import find

W8A_COLUMNS = 300


def vehicle23(folder: str | Path | None = None) -> dict[str, tuple[Matrix, Labels]]:
    """The 'vehicle' data at its 23 sensors: 1860 rows (7 to 534 a sensor) of 100 features, as published: no scaling."""
    with np.load(find("vehicle23.npz", folder)) as arrays:
        X = arrays["X"].astype(np.float64)
        y = arrays["y"]
        sensor = arrays["client"]
    labels = (y > 0).astype(np.int64)
    return {f"sensor {i + 1}": (X[sensor == i], labels[sensor == i]) for i in np.unique(sensor)}


def w8a(folder: str | Path | None = None, n: int = 10) -> dict[str, tuple[sp.csr_array, Labels]]:
    """LIBSVM's w8a, sorted by label and cut into n parts: 49749 rows of 300 features of 0 and 1, 1479 rows with y=1.

    X is a sparse matrix. With n = 10 all owners but the last hold rows of one label only.
    """
    path = find("w8a.gz", folder)
    X, y = read_libsvm(gzip.decompress(path.read_bytes()).decode(), W8A_COLUMNS, path.name)
    labels = (y > 0).astype(np.int64)
    return {f"owner {i}": (X[rows], labels[rows]) for i, rows in enumerate(by_label(labels, n), 1)}


def wdbc_by_label(n: int = 10) -> dict[str, tuple[Matrix, Labels]]:
    """Breast Cancer Wisconsin (Diagnostic), sorted by label and cut into n parts; 31 columns.

    Columns are standardized over all rows, a column of ones is appended, and everything is divided by sqrt(31), so that
    a row has length about 1.
    """
    table = wdbc()
    X = with_intercept(standardize(table.X))
    X /= np.sqrt(X.shape[1])
    return {f"owner {i}": (X[rows], table.y[rows]) for i, rows in enumerate(by_label(table.y, n), 1)}


class IFedDRProblems(NamedTuple):
    """Five problems, one leading axis per owner; F_i and f_i are to be averaged over the owners.

    lasso:      f_i = |A_i x - b_i|^2 / (2 m), plus alpha |x|_1
    box:        f_i as in lasso, for x in [lo, hi]
    logistic:   mean loss for labels y of -1 and 1, plus reg/2 |x|^2
    saddle:     F_i(x) = M_i x + q_i; the first 10 coordinates minimize
    boxsaddle:  the same, for x in [-bound, bound]
    """

    lasso_A: Matrix  # 10 x 40 x 60
    lasso_b: Matrix
    lasso_alpha: float
    box_A: Matrix  # 10 x 30 x 40
    box_b: Matrix
    box_lo: float
    box_hi: float
    logistic_A: Matrix  # 23 x 200 x 100
    logistic_y: Matrix
    logistic_reg: float
    saddle_M: Matrix  # 8 x 20 x 20
    saddle_q: Matrix
    boxsaddle_M: Matrix  # 8 x 20 x 20
    boxsaddle_q: Matrix
    boxsaddle_bound: float


def ifeddr_problems(folder: str | Path | None = None) -> IFedDRProblems:
    """The synthetic problems on which local work is counted; made for this package, not by the paper."""
    with np.load(find("ifeddr_problems.npz", folder)) as arrays:
        values = [arrays[name] for name in IFedDRProblems._fields]
    return IFedDRProblems._make(value if value.ndim else float(value) for value in values)


def read_libsvm(text: str, columns: int, file: str) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """Rows 'label column:value column:value ...' (columns count from 1) as a sparse matrix and the labels.

    Raises:
        DataError: a row that is not of this form, or a column beyond the last; the message has file and row.
    """
    labels = []
    values = []
    indices = []
    ends = [0]
    for number, line in enumerate((line for line in text.splitlines() if line.strip()), 1):
        label, *pairs = line.split()
        try:
            labels.append(float(label))
            for pair in pairs:
                column, value = pair.split(":")
                indices.append(int(column) - 1)
                values.append(float(value))
        except ValueError as error:
            raise DataError(f"data file {file}: row {number} is not 'label column:value ...' ({error})") from error
        if any(not 0 <= index < columns for index in indices[ends[-1] :]):
            raise DataError(f"data file {file}: row {number} names a column outside 1 to {columns}")
        ends.append(len(indices))
    X = sp.csr_array((np.array(values), np.array(indices, dtype=np.intp), np.array(ends)), (len(labels), columns))
    return X, np.array(labels)
