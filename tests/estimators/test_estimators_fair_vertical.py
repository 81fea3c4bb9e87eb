"""FairVerticalClassifier against the pooled problem, in pieces, without a party, and with bad tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")
pytest.importorskip("cryptography", reason="needs the extra 'secure'")


import fedpact as fp
from fedpact.errors import DataError, FedpactError, ProblemError
from fedpact.estimators import FairVerticalClassifier
from fedpact.federation import Fleet
from fedpact.problem import Piece


def people(seed: int = 0, rows: int = 400) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Three parties' columns in units of their own, labels, and two groups for which they say different things."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    X = rng.normal(size=(rows, 6)) + 0.8 * group[:, None]
    y = (X @ [1.0, -1.0, 0.5, 0.7, 0.0, 0.3] + 0.8 * group + rng.normal(size=rows) > 0.8).astype(int)
    return {"bank": 100 * X[:, :2] + 7, "shop": X[:, 2:5], "post": 0.01 * X[:, 5:]}, y, group


def pooled_scores(parties: dict[str, np.ndarray], y: np.ndarray, group: np.ndarray, max_gap: float) -> np.ndarray:
    """Of the same model with all columns in one place, by another method."""
    X = np.hstack([(P - P.mean(0)) / P.std(0) for P in parties.values()])
    problem = fp.VerticalProblem([X], y, group, max_gap).pooled()
    answer = fp.solve(problem, "interior-point", tol=1e-9)
    assert answer.solved
    return X @ answer.w[:-1] + answer.w[-1]


def test_scores_are_those_of_the_pooled_problem() -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02, tol=1e-7).fit(parties, y, group=group)
    expected = pooled_scores(parties, y, group, 0.02)
    np.testing.assert_allclose(model.decision_function(parties), expected, atol=1e-4)
    np.testing.assert_array_equal(model.predict(parties), (expected > 0).astype(int))
    assert model.score(parties, y) == np.mean((expected > 0) == y)
    probabilities = model.predict_proba(parties)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(probabilities[:, 1] > 0.5, expected > 0)


@pytest.mark.parametrize("method", ["vertical-al", "vertical-exact"])
def test_several_classes_have_a_score_each(method: str, tmp_path: Path) -> None:
    parties, _, group = people()
    X = np.hstack([(P - P.mean(0)) / P.std(0) for P in parties.values()])
    y = np.digitize(X[:, 0] - X[:, 4] + 0.6 * group + np.sin(np.arange(400)), [-0.4, 0.9])
    words = np.array(["a", "b", "c"])[y]
    model = FairVerticalClassifier(0.02, gap="all", tol=1e-7, method=method).fit(parties, words, group=group)
    asked = fp.VerticalProblem([X], y, group, 0.02, loss="softmax", gap="all")
    exact = fp.solve(asked.pooled(), "interior-point", tol=1e-9)
    expected = X @ exact.w.reshape(3, 7)[:, :-1].T + exact.w.reshape(3, 7)[:, -1]
    probability = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(parties), probability, atol=1e-4)
    np.testing.assert_array_equal(model.predict(parties), np.array(["a", "b", "c"])[np.argmax(expected, axis=1)])
    assert model.gaps_["0 - 1"] == pytest.approx(0.02, abs=1e-5)
    again = FairVerticalClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(parties), model.predict(parties))
    without = X[:, :5] @ exact.w.reshape(3, 7)[:, :5].T + exact.w.reshape(3, 7)[:, -1]
    losses = np.log(np.exp(without).sum(axis=1)) - without[np.arange(400), y]
    gap = abs(losses[group == 0].mean() - losses[group == 1].mean())
    absent = again.recheck({"bank": parties["bank"], "shop": parties["shop"]}, words, group=group)
    assert absent["0 - 1"] == pytest.approx(gap, abs=1e-4)


def test_decisions_for_the_last_of_several_classes() -> None:
    parties, _, group = people()
    X = np.hstack([(P - P.mean(0)) / P.std(0) for P in parties.values()])
    y = np.digitize(X[:, 0] - X[:, 4] + 0.6 * group + np.sin(np.arange(400)), [-0.4, 0.9])
    model = FairVerticalClassifier(0.05, parity="equal_opportunity", tol=1e-5).fit(parties, y, group=group)
    decided = model.predict(parties)
    cells = [(y == 2) & (group == g) for g in (0, 1)]
    gap = abs(np.mean(decided[cells[0]] == 2) - np.mean(decided[cells[1]] == 2))
    assert model.gaps_["recall: 0 - 1"] == pytest.approx(gap)
    assert gap <= 0.05 + 1 / min(cell.sum() for cell in cells)


def test_the_gap_is_bounded_and_would_not_be_otherwise() -> None:
    parties, y, group = people()
    fair = FairVerticalClassifier(0.02).fit(parties, y, group=group)
    free = FairVerticalClassifier(10.0).fit(parties, y, group=group)
    (name,) = fair.gaps_
    assert name == "0 - 1, y = 1"
    assert fair.gaps_[name] <= 0.021
    assert free.gaps_[name] > 0.1
    assert fair.multipliers_[name] > 0 == free.multipliers_[name]
    assert fair.certificate_.meets((1e-3, 1e-3))
    assert len(fair.history_) > 0
    assert fair.solution_.multipliers[0].max() > 0


@pytest.mark.parametrize("method", ["vertical-al", "fair-vfl"])
@pytest.mark.parametrize("secure", [True, False])
def test_methods_and_masks_give_one_model(method: str, secure: bool) -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02, method=method, tol=1e-4, secure_sum=secure).fit(parties, y, group=group)
    expected = pooled_scores(parties, y, group, 0.02)
    np.testing.assert_allclose(model.decision_function(parties), expected, atol=0.02)
    masked = any("(masked)" in f for f in model.solution_.communication.owners["bank"].fields)
    assert masked == secure


class Counting:
    """Parties in this process, and whom each fleet had."""

    def __init__(self) -> None:
        self.fleets: list[tuple[str, ...]] = []

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self.fleets.append(tuple(shares))
        return fp.engines.InProcess().open(shares, folder)


def test_prediction_asks_the_parties_through_the_engine() -> None:
    parties, y, group = people()
    engine = Counting()
    model = FairVerticalClassifier(0.02, engine=engine).fit(parties, y, group=group)
    trained = len(engine.fleets)
    expected = FairVerticalClassifier(0.02).fit(parties, y, group=group).predict_proba(parties)
    np.testing.assert_array_equal(model.predict_proba(parties), expected)
    model.predict({"bank": parties["bank"], "post": parties["post"]}, missing="mean")
    assert engine.fleets[trained:] == [("bank", "shop", "post"), ("bank", "post")]


def test_lists_names_and_labels_of_any_kind() -> None:
    parties, y, group = people()
    words = np.where(y == 1, "paid", "owes")  # the second in sorted order is the positive one
    named = FairVerticalClassifier(0.02).fit(parties, words, group=np.where(group == 1, "f", "m"))
    listed = FairVerticalClassifier(0.02).fit(list(parties.values()), y, group=group)
    assert list(named.classes_) == ["owes", "paid"]
    np.testing.assert_array_equal(named.predict(parties) == "paid", listed.predict(list(parties.values())) == 1)
    assert set(named.pieces_) == {"bank", "shop", "post"}
    assert set(listed.pieces_) == {"party 1", "party 2", "party 3"}


# ------------------------------------------------------------------------------------------------------------ in pieces


def test_a_model_is_saved_and_loaded_in_pieces(tmp_path: Path) -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02).fit(parties, y, group=group)
    model.save(tmp_path / "model")
    elsewhere = tmp_path / "shop only" / "piece.npz"
    elsewhere.parent.mkdir()
    (tmp_path / "model" / "shop.npz").rename(elsewhere)  # the shop took its own away
    again = FairVerticalClassifier.load(tmp_path / "model", {"shop": elsewhere})
    np.testing.assert_array_equal(again.decision_function(parties), model.decision_function(parties))
    assert again.gaps_ == model.gaps_
    assert again.get_params() == model.get_params()
    # no file holds what another party keeps
    piece = Piece.load(elsewhere)
    assert piece.name == "shop"
    assert piece.theta.shape == piece.mean.shape == (3,)
    assert "theta" not in (tmp_path / "model" / "coordinator.json").read_text()


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    parties, y, group = people()
    FairVerticalClassifier(0.02).fit(parties, y, group=group).save(tmp_path)
    whole = (tmp_path / "bank.npz").read_bytes()
    (tmp_path / "bank.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FedpactError, match=r"bank\.npz cannot be read as a piece"):
        FairVerticalClassifier.load(tmp_path)
    (tmp_path / "coordinator.json").write_text("{}")
    with raises_code("FP-480", str(tmp_path)):
        FairVerticalClassifier.load(tmp_path)
    (tmp_path / "coordinator.json").write_text('{"format": "another-1"}')
    with raises_code("FP-480", str(tmp_path), "fedpact-vertical-model-1"):
        FairVerticalClassifier.load(tmp_path)


# ------------------------------------------------------------------------------------------------------ without a party


def test_without_a_party_the_gap_is_checked_again() -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02).fit(parties, y, group=group)
    rest = {name: X for name, X in parties.items() if name != "shop"}
    with raises_code("FP-DATA-478", "shop", "recheck"):
        model.predict(rest)
    with raises_code("FP-DATA-479", ""):
        model.predict({}, missing="mean")
    assert model.recheck(parties, y, group=group) == model.gaps_
    (gap,) = model.recheck(rest, y, group=group).values()
    scores = model.decision_function(rest, missing="mean")
    losses = np.logaddexp(0, -scores)  # of rows with y = 1
    expected = abs(losses[(y == 1) & (group == 0)].mean() - losses[(y == 1) & (group == 1)].mean())
    assert gap == pytest.approx(expected)
    assert gap > 0.03  # no longer what was agreed
    # as if everyone had the shop's mean columns
    mean = {**parties, "shop": np.tile(parties["shop"].mean(axis=0), (len(y), 1))}
    np.testing.assert_allclose(scores, model.decision_function(mean), atol=1e-12)


# ----------------------------------------------------------------------------------------------------------- bad tables


def test_bad_tables_are_named() -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02)
    holes = {**parties, "shop": np.where(np.arange(3) == 1, np.nan, parties["shop"])}
    with pytest.raises(
        DataError, match=r"shop: column 1 has 400 missing or infinite values \(rows 0, 1, 2, 3, 4, \.\.\.\)"
    ):
        model.fit(holes, y, group=group)
    with pytest.raises(DataError, match="bank: X has 399 rows, y has 400; align"):
        model.fit({**parties, "bank": parties["bank"][:-1]}, y, group=group)
    with raises_code("FP-DATA-477"):
        model.fit(parties, np.ones(400), group=group)
    with pytest.raises(DataError, match="group 1 has no row with y = 1"):
        model.fit(parties, np.where(group == 1, 0, y), group=group)
    with pytest.raises(ProblemError, match="max_gap = -1"):
        FairVerticalClassifier(-1.0).fit(parties, y, group=group)
    with raises_code("FP-475", "", "max_rounds"):
        FairVerticalClassifier(0.02, tol=1e-9, max_rounds=8).fit(parties, y, group=group)


def test_bad_rows_at_prediction_are_named() -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02).fit(parties, y, group=group)
    with pytest.raises(DataError, match=r"different numbers of rows \(bank 10, shop 400, post 400\)"):
        model.predict({**parties, "bank": parties["bank"][:10]})
    with pytest.raises(DataError, match="mint: has no piece of this model; its parties are bank, shop, post"):
        model.predict({**parties, "mint": parties["bank"]})
    with pytest.raises(DataError, match="bank: X has 1 columns, its piece of the model 2"):
        model.predict({**parties, "bank": parties["bank"][:, :1]})
    with raises_code("FP-DATA-481", "2 blocks", "3 parties", "bank, shop, post"):
        model.predict(list(parties.values())[:2])


@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_a_single_party_and_no_gap_at_all(eps: float) -> None:
    parties, y, group = people()
    X = np.hstack([*parties.values(), np.ones((len(y), 1))])  # and a constant column
    model = FairVerticalClassifier(eps, tol=1e-5).fit([X], y, group=group)
    assert model.pieces_["party 1"].theta[-1] == 0
    assert max(model.gaps_.values()) <= eps + 1e-5
    expected = pooled_scores(parties, y, group, eps)
    np.testing.assert_allclose(model.decision_function([X]), expected, atol=2e-3)


# ---------------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_gaps_of_decisions_are_counted(parity: str) -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.03, parity=parity, weight=0.01, tol=1e-6).fit(parties, y, group=group)
    decided = model.predict(parties)
    for name, gap in model.gaps_.items():
        rate = name.partition(":")[0]
        among = {"selection_rate": y >= 0, "recall": y == 1, "false_positive_rate": y == 0}[rate]
        rates = [decided[among & (group == g)].mean() for g in (0, 1)]
        assert gap == pytest.approx(abs(rates[0] - rates[1]), abs=1e-12)
        rows = min(np.sum(among & (group == g)) for g in (0, 1))
        assert gap <= 0.03 + 1 / rows + 1e-9
    assert len(model.gaps_) == len(model.multipliers_) == (2 if parity == "equalized_odds" else 1)
    assert model.certificate_.worst < 1e-6
    assert model.solution_.method == "vertical-exact"
    assert any("rotation" in note for note in model.history_.notes)
    plain = FairVerticalClassifier(10.0, weight=0.01).fit(parties, y, group=group).predict(parties)
    recalls = [plain[(y == 1) & (group == g)].mean() for g in (0, 1)]
    assert abs(recalls[0] - recalls[1]) > 0.04  # the bounds do something


def test_gaps_of_several_attributes_are_counted() -> None:
    parties, y, group = people()
    age = (parties["shop"][:, 0] > 0.4).astype(int) + (parties["shop"][:, 0] > 1.2)
    asked = {"sex": np.array(["f", "m"])[group], "age": age}
    model = FairVerticalClassifier(0.05, parity="equal_opportunity", weight=0.01, tol=1e-6).fit(parties, y, group=asked)
    decided = model.predict(parties)
    assert list(model.gaps_) == list(model.multipliers_)
    assert len(model.gaps_) == 4
    for name, gap in model.gaps_.items():
        attribute, _, pair = name.split(": ")
        cells = [(y == 1) & (asked[attribute].astype(str) == g) for g in pair.split(" - ")]
        assert gap == pytest.approx(abs(decided[cells[0]].mean() - decided[cells[1]].mean()), abs=1e-12)
        assert gap <= 0.05 + 1 / min(cell.sum() for cell in cells) + 1e-9
    plain = FairVerticalClassifier(10.0, weight=0.01).fit(parties, y, group=group)
    before = FairVerticalClassifier(1.0, parity="equal_opportunity", weight=0.01).fit(parties, y, group=asked)
    assert before.recheck(parties, y, group=asked).keys() == model.gaps_.keys()
    recalls = [plain.predict(parties)[(y == 1) & (age == g)].mean() for g in (0, 2)]
    assert abs(recalls[0] - recalls[1]) > 0.1  # the bounds do something


def test_a_model_has_standard_errors_in_the_units_of_the_columns() -> None:
    parties, y, group = people()
    model = FairVerticalClassifier(0.02, method="vertical-exact", tol=1e-9, inference="sandwich")
    table = model.fit(parties, y, group=group).summary()
    X = np.hstack([(P - P.mean(0)) / P.std(0) for P in parties.values()])
    asked = fp.VerticalProblem([X], y, group, 0.02)
    expected = fp.solve(asked, "vertical-exact", tol=1e-9, inference="sandwich").summary(asked)
    units = np.concatenate([*(P.std(0) for P in parties.values()), [1.0]])
    errors = np.array([one.se for one in expected.coefficients])
    np.testing.assert_allclose([one.se for one in table.coefficients], errors / units, rtol=1e-6)
    assert [one.name for one in table.coefficients][:3] == ["bank: 0", "bank: 1", "shop: 0"]
    assert table.prices[0].name == next(iter(model.gaps_))
    assert table.prices[0].se == pytest.approx(expected.prices[0].se, rel=1e-6)
    with raises_code("FP-OPTION-472", "", "inference"):
        FairVerticalClassifier().fit(parties, y, group=group).summary()


def test_decisions_need_the_method_that_can() -> None:
    parties, y, group = people()
    with raises_code("FP-OPTION-471", "method 'vertical-al'"):
        FairVerticalClassifier(parity="equal_opportunity", method="vertical-al").fit(parties, y, group=group)
    with raises_code("FP-DATA-482"):
        FairVerticalClassifier(parity="equal_opportunity").fit(parties, y, group=np.zeros(len(y)))


def test_a_promise_that_too_few_people_bear_out_is_not_handed_out() -> None:
    parties, y, group = people(rows=120)
    with pytest.raises(FedpactError) as caught:
        FairVerticalClassifier(0.02, parity="equal_opportunity", confidence=0.9).fit(parties, y, group=group)
    assert caught.value.code == "FP-475"
