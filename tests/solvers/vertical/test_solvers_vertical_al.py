"""vertical-al against pooled solvers and a plain NumPy transcription; what the coordinator sees; failures."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import slow_but
from raising import raises_code
from scipy.optimize import minimize
from vertical_cases import (
    CUTS,
    EPS,
    Door,
    assert_certified,
    assert_same_run,
    at_random,
    matrix,
    misses,
    pooled,
    real,
    rows,
    small,
)

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.federation import read_record, secure_sum, tickets
from fedpact.problem import Piece
from fedpact.solvers.vertical import vertical_al
from fedpact.solvers.vertical.vertical_al import Advance, Block, line_search


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "PAUSE", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


@functools.cache
def undisturbed() -> fp.Solution:
    found = fp.solve(small(), tol=1e-7)
    assert found.solved
    return found


# ------------------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize(
    ("name", "seeds", "limit"),
    slow_but([("compas", 1, 30), ("compas", 5, 30), ("communities", 5, 60), ("adult", 2, 70)], ("compas", 1, 30)),
)
def test_a_millionth_in_tens_of_exchanges(name: str, seeds: int, limit: int, data_folder: Path) -> None:
    """The optimum is that of the interior point on pooled columns. ADULT: two seeds of five, for time."""
    for seed in range(seeds):
        asked, optimum = real(name, seed, data_folder)
        found = fp.solve(asked, "vertical-al", tol=1e-6)
        assert found.solved, seed
        assert found.rounds <= limit, seed
        assert found.objective == pytest.approx(optimum, rel=1e-5), seed
        rounds, off, violation = misses(found, optimum).T
        assert np.any((rounds <= limit / 2) & (off <= 1e-2) & (violation <= 1e-3)), seed


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_that_of_slsqp(seed: int) -> None:
    asked = small(seed)
    X, curvature = matrix(asked)
    made = rows(seed)
    y = 2 * made.y - 1

    def losses(w: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, -y * (X @ w))

    def gap(w: np.ndarray) -> float:
        first, second = (losses(w)[(made.y == 1) & (made.group == g)].mean() for g in (0, 1))
        return float(first - second)

    theirs = minimize(
        lambda w: losses(w).mean() + 0.5 * curvature @ w**2,
        np.zeros(9),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: [EPS - gap(w), EPS + gap(w)]},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert theirs.success
    found = fp.solve(asked, tol=1e-7)
    assert found.solved
    assert found.objective == pytest.approx(theirs.fun, abs=1e-8)
    np.testing.assert_allclose(found.w, theirs.x, atol=1e-4)
    assert max(found.multipliers[0]) > 1e-3  # the gap is what decides


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no constraint": {"max_gap": None},
    "loose": {"max_gap": 5.0},
    "eps = 0": {"max_gap": 0.0},
    "gap of all": {"gap": "all"},
    "both classes": {"gap": "classes", "max_gap": 0.05},
    "three groups": {"groups": 3},
    "three groups, two bounds": {"groups": 3, "pairs": [(0, 2), (1, 0)], "max_gap": [0.02, 0.1]},
    "no intercept": {"intercept": False},
    "regularizer of each": {"regularizer": [fp.prox.SquaredL2(0.1), fp.prox.Zero(), fp.prox.SquaredL2([0.01, 0.2, 0])]},
    "squared": {"loss": "squared", "gap": "all"},
    "scaled": {"standardize": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_reaches_the_optimum_and_the_prices_of_the_pooled_problem(variant: str) -> None:
    asked = small(1, **VARIANTS[variant])
    found, theirs = fp.solve(asked, tol=1e-8), pooled(asked)
    assert found.solved
    assert_certified(asked, found)
    assert found.objective == pytest.approx(theirs.objective, abs=1e-8)
    np.testing.assert_allclose(found.w, theirs.w, atol=1e-4)
    if asked.max_gap.size and asked.max_gap[0] == 0:  # D <= 0 and -D <= 0: only the difference of prices is unique
        np.testing.assert_allclose(np.diff(found.multipliers[0]), np.diff(theirs.multipliers[0]), atol=1e-4)
    elif asked.max_gap.size:
        np.testing.assert_allclose(found.multipliers[0], theirs.multipliers[0], atol=1e-5)


def test_squared_loss_without_a_gap_is_ridge_regression() -> None:
    asked = small(2, None, loss="squared", gap="all", regularizer=fp.prox.SquaredL2(0.3))
    X, curvature = matrix(asked)
    expected = np.linalg.solve(X.T @ X / len(X) + np.diag(curvature), X.T @ asked.scored.y / len(X))
    found = fp.solve(asked, tol=1e-10)
    assert found.solved
    np.testing.assert_allclose(found.w, expected, atol=1e-9)


def test_a_single_party_and_constant_columns() -> None:
    made = rows(1)
    X = np.column_stack([made.X, np.full(len(made.y), 4.0), np.zeros(len(made.y))])
    for standardize in (False, True):
        asked = fp.VerticalProblem({"all of it": X}, made.y, made.group, EPS, standardize=standardize)
        found = fp.solve(asked, tol=1e-7)
        assert found.solved
        assert found.objective == pytest.approx(pooled(asked).objective, abs=1e-7)
        assert found.w[-2] == 0  # zeros, just before the intercept
        if standardize:
            assert found.w[-3] == 0


def test_columns_of_very_different_sizes() -> None:
    made = rows(0)
    asked = fp.VerticalProblem({"a": made.X * np.logspace(-3, 3, 8), "b": made.X[:, :2]}, made.y, made.group, EPS)
    found = fp.solve(asked, tol=1e-6)
    assert found.solved
    assert found.objective == pytest.approx(pooled(asked).objective, abs=1e-6)


def test_separable_rows_without_a_regularizer_have_no_minimiser() -> None:
    X = rows(0).X
    X = X[np.abs(X[:, 0]) > 0.5]
    parties, y = {"a": X[:, :4], "b": X[:, 4:]}, (X[:, 0] > 0).astype(int)
    free = fp.VerticalProblem(parties, y, regularizer=fp.prox.Zero())
    for method in ("vertical-al", "fair-vfl"):
        found = fp.solve(free, method)
        assert found.status == "unbounded"
        assert "the objective keeps falling without end" in found.reason
    bounded = fp.VerticalProblem(parties, y, regularizer=fp.prox.SquaredL2(1e-3))
    assert fp.solve(bounded).solved


# ---------------------------------------------------------------------------------------------- the iterations


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("variant", ["plain", "three groups", "both classes", "squared"])
def test_every_point_solves_the_problem_on_the_span_of_the_gradients_before(variant: str, secure: bool) -> None:
    """Its optimality conditions: a point of that span, the gradient of the Lagrangian orthogonal to it, and prices that
    fit the gaps."""
    asked = small(0, intercept=False, **VARIANTS[variant])
    watch = Door()
    found = fp.solve(asked, tol=1e-9, engine=watch, secure_sum=secure)
    assert found.solved
    X, curvature = matrix(asked)
    thetas = [np.concatenate(parts) for parts in zip(*(theta_path(watch, name) for name in CUTS), strict=True)]
    assert len(thetas) >= 8
    orders = [order for name, order, _ in watch.sent if name == "bank" and isinstance(order, Advance)]
    gradients = [X.T @ order.slopes + curvature * theta for order, theta in zip(orders, thetas, strict=True)]
    for k in range(1, 7):
        span = np.linalg.qr(np.array(gradients[:k]).T)[0]
        np.testing.assert_allclose(span @ (span.T @ thetas[k]), thetas[k], atol=1e-9)
        np.testing.assert_allclose(span.T @ gradients[k], 0.0, atol=1e-8)
        assert found.history.outer[k].feasibility <= 1e-6


def test_without_a_gap_squared_losses_are_solved_as_by_conjugate_gradients() -> None:
    asked = small(2, None, loss="squared", gap="all", intercept=False, regularizer=fp.prox.SquaredL2(0.3))
    X, curvature = matrix(asked)
    H = X.T @ X / len(X) + np.diag(curvature)
    w = np.zeros(8)
    residual = direction = X.T @ asked.scored.y / len(X)
    path = [w]
    for _ in range(6):
        length = residual @ residual / (direction @ H @ direction)
        w = w + length * direction
        after = residual - length * H @ direction
        direction = after + (after @ after) / (residual @ residual) * direction
        residual = after
        path.append(w)
    watch = Door()
    fp.solve(asked, tol=1e-10, engine=watch)
    ours = [np.concatenate(parts) for parts in zip(*(theta_path(watch, name) for name in CUTS), strict=True)]
    np.testing.assert_allclose(ours[:7], path, atol=1e-9)


def test_vectors_that_no_longer_fit_leave_the_last_step_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for five vectors of nine columns it takes more exchanges, to the same answer."""
    expected = undisturbed()
    monkeypatch.setattr(vertical_al, "MEMORY", 5)
    watch = Door()
    found = fp.solve(small(), tol=1e-7, engine=watch)
    assert found.solved
    assert found.rounds > expected.rounds
    assert found.objective == pytest.approx(expected.objective, abs=1e-9)
    assert max(len(block.vectors) for block in watch.states["bank"] if isinstance(block, Block)) == 5


def theta_path(watch: Door, name: str) -> list[np.ndarray]:
    """theta of the party after every order about steps."""
    blocks = [state for state in watch.states[name] if isinstance(state, Block)]
    return [block.theta for k, block in enumerate(blocks) if k + 1 == block.number]


def test_any_division_of_the_columns_gives_the_same_iterations() -> None:
    """Sums over the parties are all that is used: one party, three or eight."""
    made = rows(3)
    options = {"tol": 1e-9, "max_rounds": 25, "secure_sum": False}
    runs = [
        fp.solve(fp.VerticalProblem(np.array_split(made.X, parts, axis=1), made.y, made.group, EPS), **options)
        for parts in (1, 3, 8)
    ]
    for other in runs[1:]:
        for a, b in zip(runs[0].history.outer[:14], other.history.outer[:14], strict=True):
            assert a.objective == pytest.approx(b.objective, abs=1e-10)
            assert a.stationarity == pytest.approx(b.stationarity, abs=1e-8)


@pytest.mark.parametrize("root", [1e-6, 0.3, 1.0, 3.7, 2e6])
def test_the_line_search_is_exact(root: float) -> None:
    assert line_search(lambda t: t - root) == pytest.approx(root, rel=1e-9, abs=1e-11)
    assert line_search(lambda t: np.tanh(3 * (t / root - 1))) == pytest.approx(root, rel=1e-9, abs=1e-11)


# ------------------------------------------------------------------------------------------ what the coordinator sees


@pytest.mark.parametrize("secure", [None, False])
def test_no_partys_scores_are_in_the_transcript_unless_sums_are_open(secure: bool | None, tmp_path: Path) -> None:
    watch = Door()
    found = fp.solve(small(), tol=1e-4, engine=watch, secure_sum=secure, record=tmp_path / "record")
    own = {
        (name, block.number): party.X @ block.vectors[-1]
        for name, party in zip(CUTS, small().shares, strict=True)
        for block in watch.states[name]
        if block is not None
    }
    n, counts, seen = 150, dict.fromkeys(CUTS, 0), []
    masked: dict[int, list[np.ndarray]] = {}
    for message in read_record(tmp_path / "record"):
        if "from" not in message or not message["type"].endswith("Advanced"):
            continue
        counts[message["from"]] += 1
        number = counts[message["from"]]
        sums = message["content"]["sums"]
        hidden = sums.dtype == np.uint64
        masked.setdefault(number, []).append(sums)
        values = secure_sum.decode(sums)[:n] if hidden else sums[:n]
        expected = own[message["from"], number]
        seen.append(np.linalg.norm(values - expected) <= 1e-3 * np.linalg.norm(expected))
        others = [key for key in own if key != (message["from"], number)]
        assert not any(np.allclose(values, own[key]) for key in others if np.any(own[key]))
    assert len(seen) == 3 * len(found.history.outer) > 20
    assert seen == [secure is False] * len(seen)
    if secure is None:  # and their sum is what was meant
        total = sum(own[name, 5] for name in CUTS)
        np.testing.assert_allclose(secure_sum.reveal(masked[5])[:n], total, atol=1e-12)
    fields = found.communication.owners["bank"].fields
    assert ("Advanced.scores (masked)" in fields) == (secure is None)
    assert ("Advanced.scores" in fields) == (secure is False)


def test_pieces_stay_with_their_parties(tmp_path: Path) -> None:
    shown = fp.solve(small(standardize=True), tol=1e-6)
    hidden = fp.solve(small(standardize=True, keep=tmp_path), tol=1e-6, reveal=False)
    assert hidden.solved
    assert np.isnan(hidden.w[:-1]).all()
    assert hidden.w[-1] == shown.w[-1]  # the coordinator's own
    assert not any("theta" in f for t in hidden.communication.owners.values() for f in t.fields)
    assert "Revealed.theta" in shown.communication.owners["shop"].fields
    made, asked = rows(), small(standardize=True)
    parts = asked.pieces(shown.w)
    total = np.full(150, hidden.w[-1])
    for name, party in zip(CUTS, asked.shares, strict=True):
        piece = Piece.load(tmp_path / f"{name}.npz")
        assert piece.theta.tobytes() == parts[name].tobytes()
        scores = piece.scores(made.X[:, CUTS[name]])  # of the raw columns
        np.testing.assert_allclose(scores, party.X @ parts[name], atol=1e-12)
        total += scores
    assert np.abs(asked.scored.gaps(total)) == pytest.approx(EPS, abs=1e-6)


# --------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("seed", [0, 1])
def test_a_third_of_the_messages_lost_and_the_same_bits(seed: int) -> None:
    door = Door(at_random(0.3, ("order lost", "reply lost"), seed))
    found = fp.solve(small(), tol=1e-7, engine=door, retries=30)
    assert_same_run(found, undisturbed(), traffic=False)
    assert {what for *_, what in door.sent} == {"", "order lost", "reply lost"}


@pytest.mark.parametrize("party", CUTS)
@pytest.mark.parametrize("at", [4, 5, 9])
def test_ctrl_c_while_some_parties_have_moved_gives_the_point_that_was_certified(
    at: int, party: str, tmp_path: Path
) -> None:
    asked = small()
    door = Door(lambda name, order: "interrupt" if (name, order.round) == (party, at) and not order.look else "")
    stopped = fp.solve(asked, tol=1e-7, engine=door, checkpoint=tmp_path)
    assert stopped.status == "interrupted"
    assert_certified(asked, stopped)
    last = stopped.history.outer[-1]
    assert stopped.objective == pytest.approx(last.objective, rel=1e-14)
    most = np.sqrt(len(asked.shares)) * stopped.certificate.stationarity  # on the way: the root of a sum of squares
    assert stopped.certificate.stationarity * (1 - 1e-9) <= last.stationarity <= most * (1 + 1e-9)
    resumed = fp.solve(asked, tol=1e-7, checkpoint=tmp_path, resume=True)
    assert_same_run(resumed, undisturbed())


# ------------------------------------------------------------------------------------------------------------ misuse


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("auto", {"w0": np.zeros(9)}, "w0: vertical methods start at zero, as no one holds a whole w; leave it out"),
        ("interior-point", {}, 'interior-point" needs all columns at every owner.*vertical-al.*fair-vfl'),
        (
            "vertical-al",
            {"secure_sum": True, "on_failure": "stale"},
            'on_failure="stale" needs replies of single owners',
        ),
    ],
    ids=["w0", "interior-point", "stale"],
)
def test_misuse(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(small(), method, **options)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"penalty": -1}, "FP-OPTION-252", ("penalty = -1", "above 0")),
        ({"reveal": "no"}, "FP-OPTION-250", ("reveal = 'no'",)),
        ({"eta": 100}, "FP-OPTION-253", ("'vertical-al'", "'eta'", "penalty")),
    ],
    ids=["penalty", "reveal", "eta"],
)
def test_options_out_of_range(options: dict[str, Any], code: str, facts: tuple[str, ...]) -> None:
    with raises_code(code, "", *facts):
        fp.solve(small(), "vertical-al", **options)


def test_a_single_party_cannot_ask_for_secure_sums() -> None:
    made = rows()
    with pytest.raises(OptionError, match="secure_sum=True hides nothing with a single owner"):
        fp.solve(fp.VerticalProblem({"one": made.X}, made.y), secure_sum=True)


@pytest.mark.parametrize("method", ["vertical-al", "fair-vfl", "fedbcd"])
def test_vertical_methods_refuse_other_problems(method: str) -> None:
    with pytest.raises(
        OptionError, match=f'method "{method}" is for an fp.VerticalProblem, whose parties hold different'
    ):
        fp.solve(small().pooled(), method)


def test_auto_takes_vertical_al() -> None:
    assert undisturbed().method == "vertical-al"
