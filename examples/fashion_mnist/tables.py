"""Fashion-MNIST at ten shops: a network that finds every kind of clothes at every one of them.

    python examples/fashion_mnist/tables.py fashion --data FOLDER     FOLDER holds fashion-mnist; default: FEDPACT_DATA
    fedpact run fashion/job.toml
    fedpact report fashion/run
    fedpact evaluate fashion/run
    fedpact run fashion/cnn.toml                                      the same with convolutions, which cnn.py builds

The first line writes the tables of ten shops and the jobs into the folder `fashion`. Every shop has much of some kinds
and little of others: the images of a kind are dealt in shares drawn from Dirichlet(ALPHA). The job asks for a network
of 101,770 parameters that finds at least 70 % of the images of each kind at each shop; that of cnn.toml has 9,226, and
finds at least 75 %. Test images are dealt evenly, and nobody trains on them. It needs
pip install '.[torch,tables]' and pip install -e experiments, for the loader.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedpact import data
from fedpact_experiments.datasets import fashion_mnist

SHOPS, ALPHA, SEED = 10, 2.0, 1
JOBS = ("job.toml", "cnn.toml", "cnn.py")


def write(path: Path, X: np.ndarray, kinds: np.ndarray) -> None:
    """Pixels from 0 to 255, and the kind of clothes."""
    pixels = {f"pixel{j}": column for j, column in enumerate(np.rint(255 * X).astype(np.uint8).T)}
    parquet.write_table(pa.table({**pixels, "kind": kinds}), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tables and job go")
    parser.add_argument("--data", type=Path, default=None, help="folder with fashion-mnist")
    parser.add_argument("--part", type=float, default=1.0, help="of the images that is used")
    options = parser.parse_args()

    held = fashion_mnist(options.data)
    names = np.array([name.lower() for name in held.classes])
    X = np.concatenate([rows for rows, _ in held.owners.values()])
    y = np.concatenate([labels for _, labels in held.owners.values()])
    chosen = np.random.default_rng(SEED).permutation(len(y))[: round(options.part * len(y))]
    X, y = X[chosen], y[chosen]
    options.folder.mkdir(parents=True, exist_ok=True)
    for number, fold in enumerate(data.dirichlet(y, SHOPS, ALPHA, SEED), 1):
        write(options.folder / f"shop{number}.parquet", X[fold], names[y[fold]])
    for number, fold in enumerate(data.stratified(held.test.y, SHOPS, SEED), 1):
        write(options.folder / f"new{number}.parquet", held.test.X[fold], names[held.test.y[fold]])
    for name in JOBS:
        shutil.copy(Path(__file__).with_name(name), options.folder)
    print(
        f"wrote {options.folder}/job.toml and the tables of {SHOPS} shops; next: fedpact run {options.folder}/job.toml"
    )


if __name__ == "__main__":
    main()
