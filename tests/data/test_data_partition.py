from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from raising import raises_code

from fedpact.data import by_classes, by_column, by_label, by_quantity, deal_columns, dirichlet, iid, stratified
from fedpact.data.partition import Rows

seeds = st.integers(0, 2**32 - 1)
alphas = st.floats(1e-4, 1e4)

#: name -> folds of rows with these labels among n owners
SPLITS: dict[str, Callable[[NDArray[np.str_], int, float, int], list[Rows]]] = {
    "iid": lambda y, n, alpha, seed: iid(len(y), n, seed),
    "by_label": lambda y, n, alpha, seed: by_label(y, n),
    "dirichlet": lambda y, n, alpha, seed: dirichlet(y, n, alpha, seed),
    "by_classes": lambda y, n, alpha, seed: by_classes(y, n, len(np.unique(y)), seed),
    "by_quantity": lambda y, n, alpha, seed: by_quantity(len(y), n, alpha, seed),
    "stratified": lambda y, n, alpha, seed: stratified(y, n, seed),
}
DRAWN = [name for name in SPLITS if name != "by_label"]


def assert_partition(folds: list[Rows], rows: int) -> None:
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(rows))
    assert min(map(len, folds)) >= 1


def shuffled_labels(counts: list[int], seed: int) -> NDArray[np.str_]:
    return np.random.default_rng(seed).permutation(np.repeat([f"class {c}" for c in range(len(counts))], counts))


@pytest.mark.parametrize("name", SPLITS)
@settings(max_examples=40)
@given(st.integers(1, 9), st.lists(st.integers(0, 30), min_size=1, max_size=5), alphas, seeds)
def test_every_row_is_at_one_owner_and_no_owner_is_empty(
    name: str, n: int, more: list[int], alpha: float, seed: int
) -> None:
    y = shuffled_labels([n + extra for extra in more], seed)
    folds = SPLITS[name](y, n, alpha, seed)
    assert len(folds) == n
    assert_partition(folds, len(y))
    for fold, again in zip(folds, SPLITS[name](y, n, alpha, seed), strict=True):
        np.testing.assert_array_equal(fold, again)
        assert name == "by_label" or (np.diff(fold) > 0).all()


@pytest.mark.parametrize("name", DRAWN)
def test_another_seed_deals_otherwise(name: str) -> None:
    y = shuffled_labels([50, 50, 50], 0)
    one, other = (np.concatenate(SPLITS[name](y, 4, 1.0, seed)).tolist() for seed in (3, 4))
    assert one != other


@settings(max_examples=40)
@given(st.integers(1, 12), st.lists(st.integers(0, 30), min_size=1, max_size=6), st.data(), seeds)
def test_every_owner_has_its_number_of_classes(n: int, more: list[int], data: st.DataObject, seed: int) -> None:
    labels = len(more)
    per_owner = data.draw(st.integers(-(-labels // n), labels))
    y = shuffled_labels([n + extra for extra in more], seed)
    folds = by_classes(y, n, per_owner, seed)
    assert_partition(folds, len(y))
    assert {len(np.unique(y[fold])) for fold in folds} == {per_owner}
    holders = [sum(label in y[fold] for fold in folds) for label in np.unique(y)]
    assert max(holders) - min(holders) <= 1
    for label in np.unique(y):
        shares = [int((y[fold] == label).sum()) for fold in folds if label in y[fold]]
        assert max(shares) - min(shares) <= 1


def test_small_alpha_parts_and_large_alpha_evens() -> None:
    y = shuffled_labels([1000, 1000], 0)
    for seed in range(5):
        for few, all_alike in (
            (by_quantity(2000, 4, 1e-3, seed), by_quantity(2000, 4, 1e6, seed)),
            (dirichlet(y[y == "class 0"], 4, 1e-3, seed), dirichlet(y, 4, 1e6, seed)),
        ):
            assert max(map(len, few)) >= 0.99 * sum(map(len, few))
            assert max(map(len, all_alike)) - min(map(len, all_alike)) <= 20


def test_shares_of_rows_follow_the_dirichlet_law() -> None:
    """Var(share) = (n - 1) / (n^2 (n alpha + 1)) for a symmetric Dirichlet law (its textbook variance)."""
    n, alpha, rows, draws = 5, 0.7, 2000, 2000
    shares = np.array([len(by_quantity(rows, n, alpha, seed)[0]) / rows for seed in range(draws)])
    variance = (n - 1) / (n**2 * (n * alpha + 1))
    assert abs(shares.mean() - 1 / n) < 4 * np.sqrt(variance / draws)
    assert abs(shares.var() / variance - 1) < 0.15


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["north", "south", "Île-de-France", "a/b"]), min_size=1, max_size=40))
def test_by_column_gives_every_value_its_rows(values: list[str]) -> None:
    owners = by_column(values)
    assert list(owners) == sorted(set(values))
    assert_partition(list(owners.values()), len(values))
    for name, rows in owners.items():
        assert {values[row] for row in rows} == {name}


def test_by_column_of_numbers() -> None:
    owners = by_column([10, 9, 10])
    assert list(owners) == ["9", "10"]  # in the order of the numbers
    np.testing.assert_array_equal(owners["10"], [0, 2])


@settings(max_examples=40)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.none() | seeds)
def test_columns_are_dealt_in_the_sizes_asked_for(sizes: list[int], seed: int | None) -> None:
    total, n = sum(sizes), len(sizes)
    dealt, evenly = deal_columns(total, n, seed, sizes=sizes), deal_columns(total, n, seed)
    assert [len(part) for part in dealt] == sizes
    assert_partition(dealt, total)
    assert_partition(evenly, total)
    assert max(map(len, evenly)) - min(map(len, evenly)) <= 1
    for part, again in zip(dealt, deal_columns(total, n, seed, sizes=sizes), strict=True):
        np.testing.assert_array_equal(part, again)
    if seed is None:
        np.testing.assert_array_equal(np.concatenate(dealt), np.arange(total))


def test_another_seed_deals_other_columns() -> None:
    assert not np.array_equal(deal_columns(40, 2, 0), deal_columns(40, 2, 1))


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


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: by_quantity(2, 3, 1.0), "FP-DATA-446", ["2 rows", "3 owners"]),
        (lambda: dirichlet(["a", "b"], 3, 1.0), "FP-DATA-446", ["2 rows", "3 owners"]),
        (lambda: by_label(["a", "b"], 3), "FP-DATA-446", ["2 rows", "3 owners"]),
        (lambda: deal_columns(2, 3), "FP-DATA-446", ["2 columns", "3 owners"]),
        (lambda: by_classes(["a", "b", "b", "b"], 2, 2), "FP-DATA-440", ["class a", "1 rows", "2 owners"]),
        (lambda: by_column(["x", "", "", "", ""]), "FP-DATA-443", ["4 values", "row 1"]),
        (lambda: by_column([1.0, np.nan]), "FP-DATA-443", ["1 values", "row 1"]),
    ],
)
def test_data_that_cannot_be_dealt(make: Callable[[], object], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: by_quantity(9, 3, 0.0), "FP-OPTION-447", ["alpha is 0.0"]),
        (lambda: by_quantity(9, 3, np.nan), "FP-OPTION-447", ["alpha is nan"]),
        (lambda: dirichlet(["a"] * 9, 3, np.inf), "FP-OPTION-447", ["alpha is inf"]),
        (lambda: by_quantity(9, 0, 1.0), "FP-OPTION-445", ["n is 0"]),
        (lambda: by_classes(["a", "b"], 1, 3), "FP-OPTION-441", ["per_owner is 3", "2 labels"]),
        (lambda: by_classes(["a", "b"], 1, 0), "FP-OPTION-441", ["per_owner is 0", "2 labels"]),
        (lambda: by_classes(list("abcde"), 2, 2), "FP-OPTION-442", ["per_owner is 2", "4 of 5 labels", "at least 3"]),
        (lambda: deal_columns(5, 2, sizes=[3, 3]), "FP-OPTION-444", ["sizes are 3, 3", "add up to 5"]),
        (lambda: deal_columns(5, 2, sizes=[5, 0]), "FP-OPTION-444", ["sizes are 5, 0"]),
        (lambda: deal_columns(5, 2, sizes=[5]), "FP-OPTION-444", ["sizes are 5", "2 positive"]),
        (lambda: deal_columns(5, 0), "FP-OPTION-445", ["n is 0"]),
    ],
)
def test_options_out_of_range(make: Callable[[], object], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()


def test_errors() -> None:
    with raises_code("FP-DATA-440", "class 1", "2 rows", "3 owners"):
        stratified([0, 0, 0, 1, 1], 3)
    with raises_code("FP-DATA-446", "2 rows", "3 owners", "at most 2"):
        iid(2, 3)
    with raises_code("FP-OPTION-445", "n is 0"):
        iid(2, 0)
    with raises_code("FP-OPTION-445", "n is -1"):
        stratified([0, 1], -1)


@given(st.integers(1, 15), st.integers(0, 60), st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_dirichlet_is_a_partition_without_empty_owners(n: int, more: int, alpha: float, seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, 4, n + more)
    folds = dirichlet(y, n, alpha, seed)
    assert len(folds) == n
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(n + more))
    assert min(len(fold) for fold in folds) > 0


def test_dirichlet_has_the_share_that_alpha_says() -> None:
    """The largest share of one draw: near one for small alpha, near 1/n for large."""
    y = np.repeat(np.arange(200), 50)

    def largest(alpha: float) -> float:
        folds = dirichlet(y, 5, alpha, 1)
        counts = np.array([np.bincount(y[fold], minlength=200) for fold in folds])
        return float(np.mean(counts.max(axis=0)) / 50)

    assert largest(0.01) > 0.9
    assert largest(1000.0) < 0.25
    rng = np.random.default_rng(0)
    assert largest(0.5) == pytest.approx(np.mean(rng.dirichlet(np.full(5, 0.5), 4000).max(axis=1)), abs=0.04)


def test_by_label_keeps_the_order_of_rows() -> None:
    folds = by_label([1, 0, 1, 0, 0], 2)
    assert [fold.tolist() for fold in folds] == [[1, 3, 4], [0, 2]]


def test_partitions_by_label_and_dirichlet_refuse_nonsense() -> None:
    for split in (lambda y, n: by_label(y, n), lambda y, n: dirichlet(y, n, 1.0)):
        with raises_code("FP-DATA-446", "2 rows", "3 owners", "at most 2"):
            split([0, 1], 3)
        with raises_code("FP-OPTION-445", "n is 0"):
            split([0, 1], 0)
    with raises_code("FP-OPTION-447", "alpha is 0"):
        dirichlet([0, 1], 1, 0)
