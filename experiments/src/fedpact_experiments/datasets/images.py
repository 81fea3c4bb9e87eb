"""Image classes among owners: Fashion-MNIST with one class each, and features of CIFAR-10 in a Dirichlet split."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpact.data.partition import dirichlet
from fedpact.data.table import Labels, Matrix, Table
from fedpact.errors import DataError
from fedpact_experiments.datasets.folder import find

FASHION = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


@dataclass(frozen=True, eq=False)
class OwnersAndTest:
    """Training rows, name -> (X, y), and a common test table; y counts the classes from 0."""

    owners: dict[str, tuple[Matrix, Labels]]
    test: Table
    classes: tuple[str, ...]


def fashion_mnist(folder: str | Path | None = None) -> OwnersAndTest:
    """Fashion-MNIST, 60000 and 10000 images of 28 x 28 in [0, 1]; the owner of a class has all its 6000 images."""
    images, labels, test_images, test_labels = (
        _idx(f"fashion-mnist/{part}-{kind}-ubyte.gz", folder)
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    )
    rows = [labels == label for label in range(len(FASHION))]
    owners = {name: _flat(images[own], labels[own]) for name, own in zip(FASHION, rows, strict=True)}
    X, y = _flat(test_images, test_labels)
    columns = tuple(f"pixel {j}" for j in range(X.shape[1]))
    return OwnersAndTest(owners, Table(X, y, columns), FASHION)


def cifar10_features(folder: str | Path | None = None, n: int = 20, alpha: float = 0.1, seed: int = 0) -> OwnersAndTest:
    """1280 features of CIFAR-10 images (400 a class to train, 100 to test) from a network trained on ImageNet.

    The training rows are dealt by `dirichlet(y, n, alpha, seed)`. The network is EfficientNet-Lite0, a stand-in for the
    ResNet18 of iFedDR, whose features are not public.
    """
    with np.load(find("cifar10_efficientnetlite0_features.npz", folder)) as arrays:
        X = arrays["X_train"].astype(np.float64)
        X_test = arrays["X_test"].astype(np.float64)
        y = arrays["y_train"].astype(np.int64)
        y_test = arrays["y_test"].astype(np.int64)
        classes = tuple(str(name) for name in arrays["classes"])
    owners = {f"client {i}": (X[rows], y[rows]) for i, rows in enumerate(dirichlet(y, n, alpha, seed), 1)}
    columns = tuple(f"feature {j}" for j in range(X.shape[1]))
    return OwnersAndTest(owners, Table(X_test, y_test, columns), classes)


def _flat(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> tuple[Matrix, Labels]:
    return images.reshape(len(images), -1) / 255.0, labels.astype(np.int64)


def _idx(name: str, folder: str | Path | None) -> NDArray[np.uint8]:
    """An array of bytes in the IDX format: two zeros, 8 for bytes, the number of axes, their lengths, the bytes."""
    path = find(name, folder)
    raw = gzip.decompress(path.read_bytes())
    zeros, kind, axes = struct.unpack_from(">HBB", raw)
    if (zeros, kind) != (0, 8):
        raise DataError(f"data file {path}: it does not begin as an IDX file of bytes does; get it again")
    shape = struct.unpack_from(f">{axes}I", raw, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)
