"""vertical-exact against the interior point on pooled columns and closed forms; features; blocks; corrections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import slow_but
from raising import raises_code
from vertical_cases import CUTS, EPS, assert_certified, matrix, pooled, real, rows, small

import fedpact as fp
from fedpact.federation import read_record
from fedpact.problem import Party
from fedpact.solvers.vertical import vertical_exact, vertical_exact_party
from fedpact.solvers.vertical.vertical_exact import blocks, find_features
from fedpact.solvers.vertical.vertical_exact_party import Sketch, omega, sketch

#: Two for keys, the sketch, a move, a judgement and the end.
EXCHANGES = 6


def solve(asked: fp.VerticalProblem, tol: float = 1e-9, **options: Any) -> fp.Solution:
    return fp.solve(asked, "vertical-exact", tol=tol, **options)


def assert_optimal(asked: fp.VerticalProblem, found: fp.Solution, rel: float = 1e-7) -> None:
    assert found.solved, found.reason
    assert_certified(asked, found)
    assert found.objective == pytest.approx(pooled(asked).objective, rel=rel)


def test_the_same_random_numbers_everywhere() -> None:
    """The first numbers of PCG64(5) as NumPy documents the stream: raw bits, not a distribution."""
    raw = np.random.PCG64(5).random_raw(6)
    by_hand = [(int(bits) >> 11) / 2**52 - 1 for bits in raw]
    np.testing.assert_array_equal(omega(5, 3, 2).ravel(), by_hand)
    np.testing.assert_array_equal(omega(5, 3, 3), np.eye(3))
    assert np.abs(omega(1, 1000, 7)).max() < 1


@pytest.mark.parametrize("seed", [0, 1])
def test_features_have_the_inner_products_of_the_pooled_rows(seed: int) -> None:
    """F F' = X D^-1 X' up to the factor that makes the entries of order one; V' V says which."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 7)) * [1, 2, 3, 0.1, 1, 1, 10]
    curvature = rng.uniform(0.1, 2, 7)
    parties = [Party(X[:, part], fp.prox.SquaredL2(curvature[part]), "a") for part in (slice(3), slice(3, 7))]
    order = Sketch(seed=seed, length=15, free_length=0, first=0, last=60, noise=0.0)
    replies = [sketch(party, None, order)[1] for party in parties]
    found = find_features(sum(r.products for r in replies), sum(r.gram for r in replies), 15)
    assert found.features.shape == (60, 7)
    assert np.sqrt(np.mean(found.features**2)) == pytest.approx(1)
    K = found.features @ np.linalg.solve(found.gram, found.features.T)
    np.testing.assert_allclose(K, X / curvature @ X.T, atol=1e-11 * np.abs(K).max())


@pytest.mark.parametrize(
    ("name", "seeds"), slow_but([("compas", 1), ("compas", 5), ("communities", 5), ("adult", 2)], ("compas", 1))
)
def test_real_data_to_machine_precision_in_eight_exchanges(name: str, seeds: int, data_folder: Path) -> None:
    for seed in range(seeds):
        asked, optimum = real(name, seed, data_folder)
        found = solve(asked)
        assert found.solved
        assert found.rounds <= 8
        assert found.certificate.worst < 1e-9
        assert found.objective == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("groups", [2, 3])
def test_the_optimum_of_the_pooled_columns(groups: int) -> None:
    asked = small(3, groups=groups, max_gap=0.02)
    found = solve(asked)
    assert_optimal(asked, found)
    assert found.rounds == EXCHANGES
    assert any("rotation" in note for note in found.history.notes)


def test_columns_that_are_not_shrunk_have_features_of_their_own() -> None:
    """Some columns of one party are free, all of another's are: a second sketch, and the same optimum."""
    weights = [fp.prox.SquaredL2([0.1, 0.0, 2.0]), fp.prox.Zero(), fp.prox.SquaredL2(0.03)]
    asked = small(regularizer=weights)
    found = solve(asked)
    assert_optimal(asked, found)
    assert found.rounds == EXCHANGES + 1


def test_without_any_ridge() -> None:
    asked = small(2, None, loss="squared", gap="all", regularizer=fp.prox.Zero())
    X, _ = matrix(asked)
    found = solve(asked)
    assert found.solved
    np.testing.assert_allclose(found.w, np.linalg.lstsq(X, rows(2).y, rcond=None)[0], atol=1e-8)


def test_columns_that_depend_on_each_other_and_constant_ones() -> None:
    """Two parties have the same columns, one a constant one: the rank is below the number of columns."""
    made = rows()
    double = {"bank": made.X[:, :3], "shop": made.X[:, :4], "clinic": np.ones((len(made.y), 2))}
    asked = fp.VerticalProblem(double, made.y, made.group, EPS, regularizer=fp.prox.SquaredL2(0.1))
    assert_optimal(asked, solve(asked))


def test_more_columns_than_people() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 50)), rng.integers(0, 2, 30)
    asked = fp.VerticalProblem([X[:, :20], X[:, 20:]], y, regularizer=fp.prox.SquaredL2(0.1))
    assert_optimal(asked, solve(asked))


@pytest.mark.parametrize("size", [1e-4, 1e3, 1e5])
def test_columns_of_very_different_size(size: float) -> None:
    """One column in other units, not standardized: the certificate is met in the parties' own units."""
    made = rows()
    X = made.X * np.array([1, 1, 1, 1, size, 1, 1, 1])
    parties = {name: X[:, cut] for name, cut in CUTS.items()}
    asked = fp.VerticalProblem(parties, made.y, made.group, EPS, regularizer=fp.prox.SquaredL2(0.1))
    found = solve(asked, tol=1e-7)
    assert found.solved, found.reason
    again = fp.certify(asked.pooled(), found.w, [found.multipliers[0], np.zeros(0)])
    assert max(again.stationarity, again.feasibility) < 1e-7


def test_blocks_of_rows_give_the_same_answer_in_more_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solve(small())
    monkeypatch.setattr(vertical_exact_party, "BLOCK", 800)  # 150 people x 16 numbers: three blocks of 50 people
    assert blocks(150, 16) == [(0, 50), (50, 100), (100, 150)]
    cut = solve(small())
    assert cut.rounds == whole.rounds + 2
    np.testing.assert_allclose(cut.w, whole.w, atol=1e-12)


def test_a_party_sends_no_more_than_a_block_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    party = small().shares[0]
    monkeypatch.setattr(vertical_exact_party, "BLOCK", 800)
    with raises_code("FP-OWNER-340"):
        sketch(party, None, Sketch(seed=0, length=16, free_length=0, first=0, last=51, noise=0.0))


def test_the_exchanges_must_be_enough_for_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertical_exact_party, "BLOCK", 16)
    with raises_code("FP-OPTION-256", "max_rounds = 20"):
        solve(small(), max_rounds=20)


def test_a_problem_that_falls_forever_is_unbounded() -> None:
    """Separable classes and no ridge: the loss has no minimum."""
    X = np.linspace(-1, 1, 40)[:, None]
    asked = fp.VerticalProblem([X, X**2], (X[:, 0] > 0).astype(int), regularizer=fp.prox.Zero())
    assert solve(asked, tol=1e-6).status == "unbounded"


def test_noise_is_corrected_by_what_the_parties_say() -> None:
    """The sketch is off by a part in a thousand, the certificate is not: scores and gradients are exact sums."""
    asked = small(regularizer=fp.prox.SquaredL2(0.1))
    found = solve(asked, tol=1e-6, noise=1e-3)
    assert_optimal(asked, found, rel=1e-5)
    assert found.rounds > EXCHANGES


@pytest.mark.parametrize(("tol", "more"), [(1e-6, 0), (1e-9, 2)])
def test_digits_of_the_sketch_cost_exchanges_and_no_accuracy(
    tol: float, more: int, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounded to float32 it is good enough for 1e-6; beyond, one correction makes up for it."""
    asked, optimum = real("compas", 0, data_folder)
    plain = vertical_exact._sketch

    def rounded(*given: Any) -> Any:
        products, gram, free = plain(*given)
        return products.astype(np.float32).astype(np.float64), gram, free

    monkeypatch.setattr(vertical_exact, "_sketch", rounded)
    found = solve(asked, tol)
    assert found.solved
    assert found.rounds == EXCHANGES + more
    assert found.objective == pytest.approx(optimum, rel=10 * tol)


def test_the_coordinator_sees_sums_only_and_no_coefficient(tmp_path: Path) -> None:
    record = tmp_path / "messages.log"
    found = solve(small(), reveal=False, record=record)
    assert found.solved
    assert np.isnan(found.w[:-1]).all()
    received = [message for message in read_record(record) if "from" in message]
    sums = [message["content"]["sums"] for message in received if "sums" in message["content"]]
    assert sums
    assert all(part.dtype == np.uint64 for part in sums if part.size)


def test_each_party_keeps_its_piece(tmp_path: Path) -> None:
    asked = small(keep=tmp_path)
    found = solve(asked)
    for name, theta in asked.pieces(found.w).items():
        if name in CUTS:
            np.testing.assert_array_equal(fp.problem.Piece.load(tmp_path / f"{name}.npz").theta, theta)
