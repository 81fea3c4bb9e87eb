"""The data sets of the iFedDR experiments: against counts of their publishers and against the raw files."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedpact.errors import DataError
from fedpact_experiments import datasets
from fedpact_experiments.datasets.ifeddr import read_libsvm
from fedpact_experiments.datasets.images import FASHION, _idx


def test_vehicle_is_at_23_sensors(data_folder: Path) -> None:
    owners = datasets.vehicle23(data_folder)
    assert list(owners) == [f"sensor {i}" for i in range(1, 24)]
    sizes = [len(y) for _, y in owners.values()]
    assert (sum(sizes), min(sizes), max(sizes)) == (1860, 7, 534)
    assert {X.shape[1] for X, _ in owners.values()} == {100}
    assert sum(int(y.sum()) for _, y in owners.values()) == 1023
    for X, y in owners.values():
        assert X.dtype == np.float64
        assert set(y.tolist()) <= {0, 1}
    raw = np.load(data_folder / "vehicle23.npz")
    np.testing.assert_array_equal(owners["sensor 2"][0], raw["X"][raw["client"] == 1])


def test_w8a_is_sorted_by_label_at_ten_owners(data_folder: Path) -> None:
    owners = datasets.w8a(data_folder)
    sizes = [X.shape[0] for X, _ in owners.values()]
    assert (len(sizes), sum(sizes), max(sizes) - min(sizes)) == (10, 49749, 1)
    assert [int(y.sum()) for _, y in owners.values()] == 9 * [0] + [1479]
    with gzip.open(data_folder / "w8a.gz", "rt") as file:
        first = next(line for line in file if line.startswith("-1"))  # the first row with label 0
    columns = [int(pair.split(":")[0]) - 1 for pair in first.split()[1:]]
    row = owners["owner 1"][0][[0]].toarray().ravel()
    assert row.shape == (300,)
    np.testing.assert_array_equal(np.flatnonzero(row), columns)
    assert set(row[columns]) == {1.0}


def test_wdbc_by_label_has_rows_of_length_about_one() -> None:
    owners = datasets.wdbc_by_label()
    X = np.vstack([X for X, _ in owners.values()]) * np.sqrt(31)
    y = np.concatenate([y for _, y in owners.values()])
    assert X.shape == (569, 31)
    np.testing.assert_allclose(X[:, 30], 1)
    np.testing.assert_allclose(X[:, :30].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, :30].std(axis=0), 1)
    assert np.all(np.diff(y) >= 0)
    assert {len(y) for _, y in owners.values()} == {56, 57}


def test_ifeddr_problems_have_the_stated_shapes(data_folder: Path) -> None:
    arrays = datasets.ifeddr_problems(data_folder)
    assert arrays.lasso_A.shape == (10, 40, 60)
    assert arrays.box_A.shape == (10, 30, 40)
    assert arrays.logistic_A.shape == (23, 200, 100)
    assert arrays.saddle_M.shape == arrays.boxsaddle_M.shape == (8, 20, 20)
    assert set(np.unique(arrays.logistic_y)) == {-1.0, 1.0}
    assert (arrays.box_lo, arrays.box_hi, arrays.boxsaddle_bound) == (-0.3, 0.5, 0.5)
    for M in (*arrays.saddle_M, *arrays.boxsaddle_M):  # monotone, as iFedDR needs them
        assert np.linalg.eigvalsh(M + M.T)[0] >= -1e-12


def test_fashion_mnist_reads_its_format(data_folder: Path) -> None:
    labels = _idx("fashion-mnist/t10k-labels-idx1-ubyte.gz", data_folder)
    np.testing.assert_array_equal(np.bincount(labels), 10 * [1000])
    images = _idx("fashion-mnist/t10k-images-idx3-ubyte.gz", data_folder)
    assert images.shape == (10000, 28, 28)
    raw = gzip.decompress((data_folder / "fashion-mnist/t10k-images-idx3-ubyte.gz").read_bytes())
    assert images[7].tobytes() == raw[16 + 7 * 784 : 16 + 8 * 784]


def test_fashion_mnist_gives_one_class_to_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny copy of the format: the real one is a third of a gigabyte."""
    monkeypatch.setattr("fedpact_experiments.datasets.folder.KNOWN", {})
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    labels = bytes([*range(10), 3])
    for part in ("train", "t10k"):
        pixels = bytes(255 if i // 784 == 10 else i // 784 for i in range(11 * 784))
        for name, head, body in (
            ("images-idx3", [0, 0, 8, 3, 0, 0, 0, 11, 0, 0, 0, 28, 0, 0, 0, 28], pixels),
            ("labels-idx1", [0, 0, 8, 1, 0, 0, 0, 11], labels),
        ):
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(bytes(head) + body))
    given = datasets.fashion_mnist(tmp_path)
    assert given.classes == tuple(given.owners) == FASHION
    X, y = given.owners["dress"]
    assert y.tolist() == [3, 3]
    np.testing.assert_array_equal(X, np.repeat([[3 / 255], [1.0]], 784, axis=1))
    assert given.test.X.shape == (11, 784)
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\x00\x00\x0d\x01\x00\x00\x00\x00"))
    with pytest.raises(DataError, match="does not begin as an IDX file of bytes does"):
        datasets.fashion_mnist(tmp_path)


def test_cifar_features_are_dealt_by_dirichlet(data_folder: Path) -> None:
    given = datasets.cifar10_features(data_folder)
    assert len(given.classes) == 10
    assert list(given.owners) == [f"client {i}" for i in range(1, 21)]
    y = np.concatenate([y for _, y in given.owners.values()])
    np.testing.assert_array_equal(np.bincount(y), 10 * [400])
    np.testing.assert_array_equal(np.bincount(given.test.y), 10 * [100])
    assert given.test.X.shape == (1000, 1280)
    assert min(len(y) for _, y in given.owners.values()) > 0
    largest = [np.bincount(y).max() / len(y) for _, y in given.owners.values()]
    assert np.median(largest) > 0.4  # owners differ: one label dominates


@pytest.mark.parametrize(
    "load",
    [datasets.vehicle23, datasets.w8a, datasets.ifeddr_problems, datasets.cifar10_features, datasets.fashion_mnist],
)
def test_absent_files_are_named(load: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"data file '\S+' not found; searched: .*FEDPACT_DATA or the option --data"):
        load(tmp_path)  # type: ignore[operator]


def test_a_changed_file_is_refused(data_folder: Path, tmp_path: Path) -> None:
    shutil.copyfile(data_folder / "vehicle23.npz", tmp_path / "vehicle23.npz")
    with (tmp_path / "vehicle23.npz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="SHA-256 is"):
        datasets.vehicle23(tmp_path)


def test_libsvm_rows() -> None:
    X, y = read_libsvm("+1 1:0.5 3:2\n\n-1\n", 3, "toy")
    np.testing.assert_array_equal(X.toarray(), [[0.5, 0, 2], [0, 0, 0]])
    assert y.tolist() == [1, -1]
    with pytest.raises(DataError, match=r"data file toy: row 2 is not 'label column:value \.\.\.'"):
        read_libsvm("1 1:1\n1 two:1\n", 3, "toy")
    with pytest.raises(DataError, match="data file toy: row 1 names a column outside 1 to 3"):
        read_libsvm("1 4:1\n", 3, "toy")
