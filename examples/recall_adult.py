"""Nine of ten high incomes found at every one of ten owners: what does it cost?

    python examples/recall_adult.py --data FOLDER        FOLDER holds adult.data (UCI); by default FEDPACT_DATA

It reads the table with the loader of fedpact-experiments: pip install -e experiments

Adult income, divided evenly between ten owners. The table has, owner by owner, recall (with its 95 % Clopper-Pearson
interval) and specificity on the rows trained on, of the model with `min_recall` and of the one without constraints.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

# Before anything imports numpy: small matrices, in which more threads only get into each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fedpact as fp
from fedpact import data
from fedpact_experiments.datasets import adult_a


def specificity(measures: dict[str, dict[str, float]]) -> float:
    """Over the rows of all owners together, as `recall` is."""
    others = [told["rows"] - told["protected rows"] for told in measures.values()]
    return float(np.average([told["specificity"] for told in measures.values()], weights=others))


def recall(measures: dict[str, dict[str, float]]) -> float:
    rows = [told["protected rows"] for told in measures.values()]
    return float(np.average([told["recall"] for told in measures.values()], weights=rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="folder with adult.data")
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--min-recall", type=float, default=0.9)
    options = parser.parse_args()

    table = adult_a(options.data)
    owner = np.empty(len(table.y), dtype="U10")
    for number, rows in enumerate(data.stratified(table.y, options.owners, seed=0), 1):
        owner[rows] = f"owner {number:2}"
    began = time.perf_counter()
    model = fp.NeymanPearsonClassifier(min_recall=options.min_recall).fit(table.X, table.y, client=owner)
    took = time.perf_counter() - began

    rates = f"{'recall':8}{'specificity':>11}"
    print(f"{'':10}{'rows':>7}{'>50K':>6}   {rates}   without: {rates}")
    for name, now in model.measures_.items():
        before = model.before_[name]
        cells = [f"{told['recall']:6.4f}  {told['specificity']:11.4f}" for told in (now, before)]
        print(f"{name:10}{now['rows']:7.0f}{now['protected rows']:6.0f}   {cells[0]}   {'':7}  {cells[1]}")
    free, paid = specificity(model.before_), specificity(model.measures_)
    print(
        f"\nover all rows: recall {recall(model.measures_):.4f} instead of {recall(model.before_):.4f}, specificity "
        f"{paid:.4f} instead of {free:.4f}: it costs {100 * (free - paid):.1f} percentage points of specificity"
    )
    print(f"{model.solution_}\n{took:.1f} s")


if __name__ == "__main__":
    main()
