from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpact.data import iid, stratified
from fedpact.data.partition import Rows
from fedpact.errors import DataError, OptionError

seeds = st.integers(0, 2**32 - 1)


def assert_partition(folds: list[Rows], rows: int) -> None:
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(rows))


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 40), seeds)
def test_stratified_folds_are_a_partition_with_even_classes(n: int, more_0: int, more_1: int, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat([0, 1], [n + more_0, n + more_1]))
    folds = stratified(y, n, seed)
    assert len(folds) == n
    assert_partition(folds, len(y))
    positives = [int(y[fold].sum()) for fold in folds]
    sizes = [len(fold) for fold in folds]
    assert max(positives) - min(positives) <= 1
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 12), st.integers(0, 40), seeds)
def test_iid_folds_are_a_partition(n: int, more: int, seed: int) -> None:
    folds = iid(n + more, n, seed)
    assert_partition(folds, n + more)
    sizes = [len(fold) for fold in folds]
    assert len(sizes) == n
    assert max(sizes) - min(sizes) <= 1


def test_drop_remainder_gives_the_papers_equal_folds() -> None:
    y = np.repeat([0, 1], [455, 240])
    folds = stratified(y, 20, drop_remainder=True)
    assert {(len(fold), int(y[fold].sum())) for fold in folds} == {(22 + 12, 12)}
    assert len(np.unique(np.concatenate(folds))) == 20 * (22 + 12)


def test_the_seed_decides() -> None:
    y = np.arange(100) % 2
    for make in (lambda seed: stratified(y, 4, seed), lambda seed: iid(100, 4, seed)):
        np.testing.assert_array_equal(make(3), make(3))
        assert not np.array_equal(make(3), make(4))


def test_errors() -> None:
    with pytest.raises(DataError, match="class 1 has 2 rows, too few for 3 owners; use at most 2"):
        stratified([0, 0, 0, 1, 1], 3)
    with pytest.raises(DataError, match="2 rows are too few for 3 owners; use at most 2"):
        iid(2, 3)
    with pytest.raises(OptionError, match="n is 0; the number of owners must be at least 1"):
        iid(2, 0)
    with pytest.raises(OptionError, match="n is -1"):
        stratified([0, 1], -1)
