"""Vertical problems: losses, gaps and the pooled problem against plain NumPy; pieces of a model; misuse in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.errors import DataError
from fedpact.problem import DistantParty, Piece, VerticalProblem
from fedpact.problem.scored import Loss
from fedpact.solvers.vertical.shared import rows_of

RNG = np.random.default_rng(3)
N = 90
X = RNG.normal(size=(N, 5))
GROUP = np.array(["north", "south", "west"])[RNG.integers(0, 3, N)]
Y = (X[:, 0] + (GROUP == "north") + RNG.normal(size=N) > 0.4).astype(int)
PARTIES = {"bank": X[:, :2], "shop": X[:, 2:]}
PAIRS = [("north", "south"), ("north", "west"), ("south", "west")]


def problem(**options: Any) -> VerticalProblem:
    return VerticalProblem(PARTIES, Y, GROUP, 0.05, **options)


def of(name: str) -> np.ndarray:
    return np.equal(GROUP, name)


def logistic(w: np.ndarray, chosen: np.ndarray) -> float:
    """Mean of log(1 + exp(-y z)) over these rows, with y = -1 and 1 and the intercept last."""
    z = X[chosen] @ w[:5] + w[5]
    return float(np.mean(np.log1p(np.exp(-(2 * Y[chosen] - 1) * z))))


# ------------------------------------------------------------------------------------------------- losses and gaps


@pytest.mark.parametrize("gap", ["positives", "all", "classes"])
def test_gaps_are_differences_of_mean_losses(gap: Any) -> None:
    asked, w = problem(gap=gap), RNG.normal(size=6)
    z = X @ w[:5] + w[5]
    among = {"positives": [("y = 1", Y == 1)], "all": [("", Y >= 0)], "classes": [("y = 1", Y == 1), ("y = 0", Y == 0)]}
    expected = {
        f"{a} - {b}{', ' if what else ''}{what}": logistic(w, rows & of(a)) - logistic(w, rows & of(b))
        for a, b in PAIRS
        for what, rows in among[gap]
    }
    assert asked.gap_names == tuple(expected)
    np.testing.assert_allclose(asked.scored.gaps(z), list(expected.values()), rtol=1e-12)
    assert asked.server.multiplier_length == 2 * len(expected)


def test_chosen_pairs_have_the_sign_in_which_they_are_given() -> None:
    z = RNG.normal(size=N)
    one, other = (problem(pairs=[pair]).scored.gaps(z) for pair in (("west", "north"), ("north", "west")))
    np.testing.assert_array_equal(one, -other)
    assert problem(pairs=[("west", "north")]).gap_names == ("west - north, y = 1",)


@pytest.mark.parametrize("loss", [loss for loss in get_args(Loss) if loss != "softmax"])
def test_slopes_are_derivatives_of_the_losses(loss: Any) -> None:
    scored = problem(loss=loss, gap="all").scored
    z, step = 3 * RNG.normal(size=N), 1e-6
    numeric = (scored.losses(z + step) - scored.losses(z - step)) / (2 * step)
    np.testing.assert_allclose(scored.slopes(z), numeric, rtol=1e-6, atol=1e-8)
    second = (scored.slopes(z + step) - scored.slopes(z - step)) / (2 * step)
    assert np.all(second <= scored.smoothness(z) * (1 + 1e-5) + 1e-8)
    if loss == "squared":
        np.testing.assert_allclose(scored.losses(z), 0.5 * (z - Y) ** 2)


def test_scores_far_out_neither_overflow_nor_lose_their_loss() -> None:
    scored = problem().scored
    z = np.where(Y == 1, -1e5, 1e5).astype(float)  # all wrong
    np.testing.assert_array_equal(scored.losses(z), 1e5)
    np.testing.assert_array_equal(scored.slopes(z), np.where(Y == 1, -1.0, 1.0))
    np.testing.assert_array_equal(scored.losses(-z), 0.0)


def test_weights_are_those_of_the_lagrangian() -> None:
    scored, z, net = problem().scored, RNG.normal(size=N), np.array([0.3, -0.2, 0.1])
    by_hand = np.mean(scored.losses(z)) + net @ scored.gaps(z)
    assert scored.weights(net) @ scored.losses(z) == pytest.approx(by_hand, rel=1e-13)


# ---------------------------------------------------------------------------------------------- the pooled problem


@pytest.mark.parametrize("intercept", [True, False])
def test_the_pooled_problem_has_the_same_values(intercept: bool) -> None:
    weights = [fp.prox.SquaredL2(0.3), fp.prox.SquaredL2([0.1, 0.2, 0.0])]
    asked = problem(intercept=intercept, regularizer=weights, pairs=PAIRS[:2])
    pooled, w = asked.pooled(), RNG.normal(size=6)
    w = w if intercept else np.append(w[:5], 0.0)
    given = w if intercept else w[:5]
    assert pooled.dim == asked.dim == len(given)
    assert pooled.shares[0].objective.value(given) == pytest.approx(logistic(w, np.ones(N, dtype=bool)), rel=1e-12)
    ridge = 0.5 * (0.3 * (w[0] ** 2 + w[1] ** 2) + 0.1 * w[2] ** 2 + 0.2 * w[3] ** 2)
    assert pooled.regularizer.value(given) == pytest.approx(ridge, rel=1e-12)
    gaps = [logistic(w, (Y == 1) & of(a)) - logistic(w, (Y == 1) & of(b)) for a, b in PAIRS[:2]]
    sides = np.ravel([[gap - 0.05, -gap - 0.05] for gap in gaps])
    np.testing.assert_allclose(pooled.server.constraint.function.value(given), sides, rtol=1e-11)


def test_the_default_regularizer_is_the_papers_and_spares_the_intercept() -> None:
    asked, w = problem(), RNG.normal(size=6)
    assert asked.pooled().regularizer.value(w) == pytest.approx(np.sum(w[:5] ** 2) / N)


def test_the_order_of_multipliers_is_that_of_the_pooled_constraints() -> None:
    """fp.certify adds mu_j grad c_j: where net is the price of D, (max(net, 0), max(-net, 0)) has the same gradient."""
    asked, w, net = problem(), RNG.normal(size=6), np.array([0.4, -0.7, 0.0])
    np.testing.assert_array_equal(asked.multiplier(net), [0.4, 0.0, 0.0, 0.7, 0.0, 0.0])
    z = X @ w[:5] + w[5]
    columns = np.column_stack([X, np.ones(N)])
    gradient = columns.T @ (asked.scored.weights(net) * asked.scored.slopes(z)) + np.append(2 / N * w[:5], 0.0)
    found = fp.certify(asked.pooled(), w, [asked.multiplier(net), np.zeros(0)])
    assert found.stationarity == pytest.approx(np.max(np.abs(gradient)), rel=1e-11)
    feasibility, violation = asked.misses(z, net)
    assert found.feasibility == pytest.approx(feasibility, rel=1e-11)
    assert found.violation == pytest.approx(violation, rel=1e-11)


def test_w_is_cut_by_holder() -> None:
    cut = {name: part.tolist() for name, part in problem().pieces(np.arange(6.0)).items()}
    assert cut == {"bank": [0, 1], "shop": [2, 3, 4], "coordinator": [5]}
    assert problem(intercept=False).pieces(np.arange(5.0))["coordinator"].size == 0
    with raises_code("FP-PROBLEM-108", "w has shape (7,)", "length 6"):
        problem().pieces(np.zeros(7))


def test_labels_of_minus_one_and_one_are_those_of_zero_and_one() -> None:
    np.testing.assert_array_equal(VerticalProblem(PARTIES, 2 * Y - 1).scored.y, VerticalProblem(PARTIES, Y).scored.y)


def test_a_list_of_tables_gets_names() -> None:
    assert VerticalProblem(list(PARTIES.values()), Y).names == ("party 1", "party 2")


# -------------------------------------------------------------------------------------------------- scaled columns


def test_each_party_scales_its_own_columns_and_keeps_how() -> None:
    raw = {"bank": 1e4 * X[:, :2] + 7e4, "shop": np.column_stack([X[:, 2], np.full(N, 3.7)])}
    asked = VerticalProblem(raw, Y, standardize=True)
    for party in asked.shares:
        varies = raw[party.name].std(axis=0) > 1e-9
        np.testing.assert_allclose(party.X.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(party.X.std(axis=0), varies, atol=1e-12)
        theta = RNG.normal(size=2) * varies
        piece = party.piece(theta)
        np.testing.assert_allclose(piece.scores(raw[party.name]), party.X @ theta, atol=1e-11)
    np.testing.assert_array_equal(asked.shares[1].X[:, 1], 0.0)  # constant: nothing is left of it


def test_a_piece_is_saved_and_loaded(tmp_path: Path) -> None:
    piece = Piece("bank", RNG.normal(size=2), RNG.normal(size=2), np.array([2.0, 0.5]), ("age", "income"))
    path = piece.save(tmp_path / "deep" / "bank")
    assert path == tmp_path / "deep" / "bank.npz"
    again = Piece.load(path)
    assert (again.name, again.columns) == ("bank", ("age", "income"))
    np.testing.assert_array_equal(again.scores(X[:, :2]), piece.scores(X[:, :2]))
    by_hand = [sum((row[j] - piece.mean[j]) / piece.scale[j] * piece.theta[j] for j in (0, 1)) for row in X[:, :2]]
    np.testing.assert_allclose(again.scores(X[:, :2]), by_hand, rtol=1e-12)


def test_damaged_and_foreign_files_are_no_pieces(tmp_path: Path) -> None:
    path = Piece("bank", np.ones(1), np.zeros(1), np.ones(1)).save(tmp_path / "piece")
    (tmp_path / "half.npz").write_bytes(path.read_bytes()[:100])
    np.savez(tmp_path / "other.npz", theta=np.ones(1))
    np.savez(tmp_path / "old.npz", meta=np.array('{"format": "fedpact-piece-0"}'))
    for name in ("half", "other", "absent"):
        with raises_code("FP-101", str(tmp_path / f"{name}.npz")):
            Piece.load(tmp_path / f"{name}.npz")
    with raises_code("FP-100", str(tmp_path / "old.npz"), "fedpact-piece-1"):
        Piece.load(tmp_path / "old.npz")


def test_new_rows_that_do_not_fit_a_piece_are_refused() -> None:
    piece = Piece("bank", np.ones(2), np.zeros(2), np.ones(2), ("age", "income"))
    with raises_code("FP-DATA-108", "bank: X has 3 columns", "2 column names"):
        piece.scores(np.ones((4, 3)))
    with raises_code("FP-DATA-109", "bank: column 'income' has 1 ", "(rows 2)"):
        piece.scores(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, np.nan]]))
    bare = Piece("bank", np.ones(2), np.zeros(2), np.ones(2))
    with raises_code("FP-DATA-118", "bank: X has 3 columns", "the model 2"):
        bare.scores(np.ones((4, 3)))
    with pytest.raises(DataError, match="shop: has no piece of this model; its parties are bank"):
        rows_of([piece], {"shop": np.ones((4, 2))})
    with pytest.raises(DataError, match=r"different numbers of rows \(bank 4, shop 5\); align them by id"):
        rows_of([piece, Piece("shop", *[np.ones(1)] * 3)], {"bank": np.ones((4, 2)), "shop": np.ones((5, 1))})
    with raises_code("FP-DATA-106", "bank: "):
        rows_of([piece], {"bank": [["old", "rich"]]})


# ---------------------------------------------------------------------------------------------------------- misuse

NAN = X[:, :2].copy()
NAN[[4, 19], 1] = np.nan


@pytest.mark.parametrize(
    ("parties", "code", "facts"),
    [
        ({}, "FP-PROBLEM-126", []),
        ({"coordinator": X}, "FP-PROBLEM-130", ["", "'coordinator'"]),
        ({7: X}, "FP-PROBLEM-127", ["party 7: "]),
        ({"bank": X, "shop": X[:-1]}, "FP-DATA-110", ["shop: X has 89 rows, y has 90"]),
        ({"bank": NAN}, "FP-DATA-109", ["bank: column 1 has 2 ", "(rows 4, 19)"]),
        ({"bank": X[:, 0]}, "FP-DATA-107", ["bank: X has shape (90,)"]),
        ({"bank": X[:, :0]}, "FP-DATA-107", ["bank: X has shape (90, 0)"]),
        ({"bank": [["a"]] * N}, "FP-DATA-106", ["bank: "]),
    ],
    ids=["none", "coordinator", "number", "rows", "nan", "vector", "no column", "text"],
)
def test_tables_that_cannot_be_used(parties: Any, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        VerticalProblem(parties, Y)


@pytest.mark.parametrize(
    ("y", "code", "fact"),
    [
        (Y + 1, "FP-DATA-105", "such as 2"),
        (np.where(np.arange(N) < 2, -1, Y), "FP-DATA-105", "such as -1"),
        (Y[:, None], "FP-DATA-103", "shape (90, 1)"),
        ([], "FP-DATA-103", "shape (0,)"),
        (np.where(np.arange(N) < 3, np.nan, Y), "FP-DATA-104", "has 3 "),
        (["yes"] * N, "FP-DATA-102", "yes"),
    ],
    ids=["two", "mixed", "matrix", "empty", "nan", "text"],
)
def test_labels_that_cannot_be_used(y: Any, code: str, fact: str) -> None:
    with raises_code(code, "y ", fact):
        VerticalProblem(PARTIES, y)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"group": GROUP[:-1]}, "FP-DATA-112", ["group has shape (89,), y has 90 rows"]),
        ({"group": np.zeros(N)}, "FP-DATA-115", ["all rows are of group 0.0"]),
        ({"group": np.where(np.arange(N) < 4, np.nan, Y)}, "FP-DATA-113", ["group has 4 missing"]),
        ({"group": [None, *GROUP[1:]]}, "FP-DATA-113", ["group has 1 missing"]),
        ({"group": np.array([1, *GROUP[1:]], dtype=object)}, "FP-DATA-114", ["group "]),
        ({"group": [[1], [2, 3]]}, "FP-DATA-111", ["group "]),
        ({"group": np.where(Y == 1, "a", "b")}, "FP-DATA-117", ["group b has no row with y = 1"]),
        ({"pairs": [("north", "east")]}, "FP-DATA-116", ["pairs: ", "group east", "north, south, west"]),
        ({"pairs": [("north", "north")]}, "FP-PROBLEM-134", ["pairs = "]),
        ({"pairs": [("north", "south", "west")]}, "FP-PROBLEM-134", ["pairs = "]),
        ({"pairs": []}, "FP-PROBLEM-134", ["pairs = []"]),
        ({"max_gap": -0.1}, "FP-PROBLEM-136", ["max_gap = -0.1", "at least 0"]),
        ({"max_gap": np.nan}, "FP-PROBLEM-136", ["max_gap = nan"]),
        ({"max_gap": "small"}, "FP-PROBLEM-136", ["max_gap = 'small'"]),
        ({"max_gap": [0.1, 0.2]}, "FP-PROBLEM-136", ["max_gap", "'north - south, y = 1', 'north - west, y = 1'"]),
        ({"max_gap": None}, "FP-PROBLEM-129", []),
        ({"group": None}, "FP-PROBLEM-135", []),
        ({"group": None, "max_gap": None, "pairs": PAIRS}, "FP-PROBLEM-133", []),
        ({"loss": "hinge"}, "FP-OPTION-102", ["loss = 'hinge'", "'logistic', 'squared'"]),
        ({"gap": "rates"}, "FP-OPTION-102", ["gap = 'rates'", "'positives', 'all', 'classes'"]),
        ({"loss": "squared"}, "FP-OPTION-103", ["gap = 'positives'", 'gap="all"']),
        ({"regularizer": [fp.prox.Zero()]}, "FP-PROBLEM-132", ["regularizer: 1 for 2 parties"]),
        ({"regularizer": [0.1, 0.1]}, "FP-PROBLEM-185", ["bank: the regularizer", "float"]),
        ({"regularizer": fp.prox.SquaredL2(-1)}, "FP-PROBLEM-186", ["bank: the regularizer", "weight is -1"]),
        ({"regularizer": fp.prox.SquaredL2([1, 2])}, "FP-PROBLEM-186", ["shop: the regularizer", "has 2 entries"]),
        ({"columns": {"bank": ["age"]}}, "FP-DATA-108", ["bank: X has 2 columns", "1 column names"]),
        ({"columns": {"bnak": ["age", "sex"]}}, "FP-PROBLEM-128", ["columns: ", "'bnak'", "'bank', 'shop'"]),
    ],
    ids=lambda value: f"{next(iter(value))} {str(next(iter(value.values())))[:14]}" if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_used(options: dict[str, Any], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        VerticalProblem(PARTIES, Y, **{"group": GROUP, "max_gap": 0.05, **options})


def test_a_missing_value_is_told_by_the_name_of_its_column() -> None:
    with raises_code("FP-DATA-109", "bank: column 'income' has 2 missing"):
        VerticalProblem({"bank": NAN}, Y, columns={"bank": ["age", "income"]})


# ------------------------------------------------------------------------------------------ parties that are elsewhere


def test_a_problem_of_parties_is_that_of_their_tables() -> None:
    asked = problem(pairs=PAIRS[:2])
    again = VerticalProblem.of_parties(asked.shares, Y, GROUP, 0.05, pairs=PAIRS[:2])
    one, other = (fp.solve(each, tol=1e-6) for each in (asked, again))
    assert one.w.tobytes() == other.w.tobytes()


def test_a_problem_needs_only_the_names_and_widths_of_its_parties() -> None:
    """Stand-ins at the coordinator, the columns behind the engine: the same bits as with everything in one place."""
    asked = problem()
    distant = [DistantParty(party.name, party.width) for party in asked.shares]
    elsewhere = VerticalProblem.of_parties(distant, Y, GROUP, 0.05, sources=asked.sources)
    assert (elsewhere.dim, elsewhere.names) == (asked.dim, asked.names)
    for method in ("vertical-al", "fair-vfl"):
        one, other = (fp.solve(each, method, max_rounds=40) for each in (asked, elsewhere))
        assert one.w.tobytes() == other.w.tobytes()
    with raises_code("FP-PROBLEM-141", "bank: its columns"):
        elsewhere.pooled()


def test_a_regularizer_that_is_not_quadratic_is_refused_by_the_methods_that_need_one() -> None:
    asked = VerticalProblem(PARTIES, Y, regularizer=[fp.prox.SquaredL2(0.1), fp.prox.L1(0.1)])
    w = RNG.normal(size=6)
    assert asked.pooled().regularizer.value(w) == pytest.approx(
        0.05 * np.sum(w[:2] ** 2) + 0.1 * np.sum(np.abs(w[2:5]))
    )
    with raises_code("FP-OPTION-110", 'method "vertical-al"', "shop"):
        fp.solve(asked, "vertical-al")
