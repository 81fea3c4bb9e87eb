"""fair-vfl and fedbcd against a transcription of the paper, closed forms and the pooled optimum; delays and losses."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import slow_but
from raising import raises_code
from vertical_cases import (
    CUTS,
    EPS,
    Door,
    assert_certified,
    assert_same_run,
    at_random,
    gone,
    matrix,
    misses,
    pooled,
    real,
    rows,
    small,
    stop_at,
)

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.federation import read_record, secure_sum, tickets
from fedpact.problem import Piece
from fedpact.solvers.vertical.fair_vfl_party import Place
from fedpact.solvers.vertical.pace import TAU, Theory

#: The paper's, section V.
PAPER: dict[str, Any] = {"eta": 100.0, "dual_step": 0.1, "dual_regularization": 1e-3}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "PAUSE", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


# -------------------------------------------------------------------------------------------------------- the answer


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit"), [("compas", 150), ("communities", 600)])
def test_one_percent_of_the_optimum_with_automatic_steps(name: str, limit: int, data_folder: Path) -> None:
    """The optimum is that of the interior point on pooled columns; the loss stays there, the gap has been met."""
    for seed in range(5):
        asked, optimum = real(name, seed, data_folder)
        found = fp.solve(asked, "fair-vfl", tol=1e-6, max_rounds=limit + 50, secure_sum=False)
        rounds, off, violation = misses(found, optimum).T
        assert rounds[-1] > limit
        assert np.all((off <= 1e-2) | (rounds < limit)), seed
        assert np.any((rounds <= limit) & (off <= 1e-2) & (violation <= 1e-3)), seed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compas", "communities"])
def test_more_local_updates_need_fewer_rounds_at_the_papers_step(name: str, data_folder: Path) -> None:
    """Figure 2: rounds until the loss is for good below what Q = 1 has after 400."""
    asked, _ = real(name, 0, data_folder)

    def losses(updates: int, rounds: int) -> np.ndarray:
        options = {**PAPER, "local_updates": updates, "max_rounds": rounds + 5, "secure_sum": False}
        return np.array([r.objective for r in fp.solve(asked, "fair-vfl", tol=1e-6, **options).history.outer])

    target = losses(1, 400)[399]
    for updates, ratio in ((4, 2.5), (7, 4.5)):
        above = np.flatnonzero(losses(updates, 180) > target)
        assert 400 / (above[-1] + 2) >= ratio  # the first round after the last one above, counted from 1


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no constraint": {"max_gap": None},
    "loose": {"max_gap": 5.0},
    "eps = 0": {"max_gap": 0.0},
    "gap of all": {"gap": "all"},
    "both classes": {"gap": "classes", "max_gap": 0.05},
    "three groups": {"groups": 3},
    "no intercept": {"intercept": False},
    "regularizer of each": {"regularizer": [fp.prox.SquaredL2(0.1), fp.prox.Zero(), fp.prox.SquaredL2([0.01, 0.2, 0])]},
    "squared": {"loss": "squared", "gap": "all"},
    "scaled": {"standardize": True},
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["rounds", "asynchronous"])
@pytest.mark.parametrize("variant", slow_but(VARIANTS, "squared", "scaled"))
def test_every_variant_reaches_the_optimum_of_the_pooled_problem(variant: str, asynchronous: bool) -> None:
    asked, tol = small(1, **VARIANTS[variant]), 1e-3 if asynchronous else 1e-4  # its steps are shorter: for time
    found, theirs = fp.solve(asked, "fair-vfl", tol=tol, asynchronous=asynchronous), pooled(asked)
    assert found.solved
    assert_certified(asked, found)
    assert found.objective == pytest.approx(theirs.objective, abs=tol)
    if not asynchronous:
        np.testing.assert_allclose(found.w, theirs.w, atol=2e-2)


def test_several_local_updates_reach_the_optimum_too() -> None:
    asked = small(1)
    for updates in (4, 7):
        found = fp.solve(asked, "fair-vfl", tol=1e-5, local_updates=updates)
        assert found.solved
        assert found.objective == pytest.approx(pooled(asked).objective, abs=1e-5)
        assert_certified(asked, found)


# --------------------------------------------------------------------------------------------- the paper, literally


def transcription(asked: fp.VerticalProblem, rounds: int, updates: int, eta: float, beta: float, c: float) -> Any:
    """Algorithms 1 and 2 in rounds, with (9) after the scores: theta by holder, lambda and f's loss of every round."""
    blocks = [holder.X for holder in (*asked.shares, asked.server) if holder.X.size]
    y, n = asked.scored.y, len(asked.scored.y)
    (row,), (eps,) = asked.scored.rows, asked.max_gap
    theta, lam, path = [np.zeros(B.shape[1]) for B in blocks], np.zeros(2), []
    ridge = [2 / n if holder.name != "coordinator" else 0.0 for holder in (*asked.shares, asked.server)]
    for _ in range(rounds):
        z = sum(B @ t for B, t in zip(blocks, theta, strict=True))
        D = row @ np.log1p(np.exp(-y * z))
        lam = np.maximum(lam + beta * (np.array([D - eps, -D - eps]) - c * lam), 0)  # (7), (9)
        loss = np.mean(np.log1p(np.exp(-y * z))) + sum(0.5 * r * t @ t for r, t in zip(ridge, theta, strict=False))
        path.append((theta, lam, loss))
        moved = []
        for B, t, r in zip(blocks, theta, ridge, strict=False):
            own, seen = t, z
            for _ in range(updates):  # lines 4 to 6 of Algorithm 1, the others as they were
                slope = -y / (1 + np.exp(y * seen))
                gradient = B.T @ ((1 / n + (lam[0] - lam[1]) * row) * slope) + r * own  # (8)
                seen = seen - B @ gradient / eta
                own = own - gradient / eta
            moved.append(own)
        theta = moved
    return path


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("updates", [1, 4])
def test_iterates_are_those_of_algorithms_1_and_2(updates: int, secure: bool) -> None:
    asked, watch = small(0), Door()
    options = {"eta": 2.0, "dual_step": 0.8, "dual_regularization": 0.05, "local_updates": updates}
    found = fp.solve(asked, "fair-vfl", tol=1e-9, max_rounds=45, engine=watch, secure_sum=secure, **options)
    path = transcription(asked, 36, updates, 2.0, 0.8, 0.05)
    for k, name in enumerate(CUTS):
        ours = [s.theta for s in watch.states[name] if isinstance(s, Place)][:36]
        np.testing.assert_allclose(ours, [theta[k] for theta, _, _ in path], rtol=0, atol=1e-11)
    np.testing.assert_allclose([r.objective for r in found.history.outer[:36]], [loss for *_, loss in path], atol=1e-11)
    net = [order.net[0] for name, order, _ in watch.sent if name == "bank" and hasattr(order, "net")][:36]
    np.testing.assert_allclose(net, [lam[0] - lam[1] for _, lam, _ in path], atol=1e-11)
    assert max(net) > 0.01


@pytest.mark.parametrize(("updates", "intercept"), [(1, True), (3, False)])
def test_where_everybody_answers_each_step_the_asynchronous_form_is_the_other(updates: int, intercept: bool) -> None:
    """Without threads all replies are there at once. The coordinator updates its intercept once a step, so Q = 1 there.

    Labels of both kinds have equal losses at zero: the first ascent, which only the other form makes, does nothing.
    """
    asked = small(0, intercept=intercept)
    options = {"eta": 2.0, "dual_step": 0.8, "local_updates": updates, "tol": 1e-9, "max_rounds": 60}
    rounds = fp.solve(asked, "fair-vfl", **options, secure_sum=False)
    steps = fp.solve(asked, "fair-vfl", **options, asynchronous=True)
    # theirs are judged after the step, with lambda after it, too
    ours, theirs = ([r.objective for r in found.history.outer] for found in (rounds, steps))
    np.testing.assert_allclose(ours[1:41], theirs[:40], rtol=0, atol=1e-12)
    assert len(set(ours[1:41])) == 40


def test_theory_schedules_are_the_formulas_of_theorem_2() -> None:
    beta, L, L12, K, Q = 0.7, 3.0, 2.0, 6, 4
    schedule = Theory(beta, L, L12, K * Q)
    assert TAU > 8
    for t in (1, 2, 16, 10_000):
        assert schedule.regularization(t) == pytest.approx(beta * t ** (-1 / 4) / 2, rel=1e-14)
        first = (L**2 * (K * Q + 2) * (K * Q - 1) + 2 * (L + 1)) / 4
        second = L12**2 * K * Q * (1 + 32 * TAU * np.sqrt(t)) / (2 * beta)
        assert schedule.eta(t) == pytest.approx(first + second, rel=1e-14)


def test_theory_runs_with_those_steps_and_with_constants_that_bound_the_data() -> None:
    """L12 bounds |grad_theta grad_lambda f| = sqrt(2) |grad D|, L the curvature of L(theta); by pooled columns."""
    asked, watch = small(0), Door()
    found = fp.solve(asked, "fair-vfl", schedule="theory", max_rounds=30, tol=1e-9, engine=watch, local_updates=2)
    etas = np.array([o.eta for name, o, _ in watch.sent if name == "bank" and hasattr(o, "eta")])[:20]
    X, curvature = matrix(asked)
    beta, m = 1 / np.log(2), 2 * 4  # three parties and the coordinator, twice
    L = 0.25 * np.linalg.norm(X, 2) ** 2 / len(X) + curvature.max()
    rng = np.random.default_rng(0)
    z = X @ rng.normal(size=(9, 200)) * rng.exponential(3, size=200)
    slopes = -asked.scored.y[:, None] / (1 + np.exp(asked.scored.y[:, None] * z))
    L12 = np.sqrt(2) * np.max(np.linalg.norm(X.T @ (asked.scored.rows.T * slopes), axis=0))
    least = [Theory(beta, L, L12, m).eta(t) for t in range(1, 21)]
    assert np.all(etas >= least)
    grown = np.diff(etas) / np.diff(np.sqrt(np.arange(1, 21)))
    np.testing.assert_allclose(grown, grown[0], rtol=1e-9)  # a + b sqrt(t)
    values = [r.objective for r in found.history.outer]
    assert np.all(np.diff(values[:20]) < 0)


# ------------------------------------------------------------------------------------------------- automatic steps


def assert_bases(watch: Door) -> None:
    """Every update began where the coordinator said: at the outcome of the order that was its base."""
    for name in CUTS:
        bases = {o.number: o.base for n, o, _ in watch.sent if n == name and hasattr(o, "base")}
        outcomes = {}
        for state in [s for s in watch.states[name] if isinstance(s, Place)]:
            if state.number:
                np.testing.assert_array_equal(state.before, outcomes[bases[state.number]])
            outcomes[state.number] = state.theta
        assert len(outcomes) > 20


def test_when_f_rises_the_updates_are_taken_back() -> None:
    """No kept point has a larger f at the prices of its round than the one before; and some steps were too long."""
    asked, watch = small(0), Door()
    fp.solve(asked, "fair-vfl", tol=1e-7, engine=watch, secure_sum=False, max_rounds=200)
    X, curvature = matrix(asked)
    blocks = {name: [s for s in watch.states[name] if isinstance(s, Place)] for name in CUTS}
    orders = [o for name, o, _ in watch.sent if name == "bank" and hasattr(o, "base") and o.move]
    back = [o.base for a, o in itertools.pairwise(orders) if o.base != a.number]
    assert back
    assert_bases(watch)
    scored, kept = asked.scored, 0

    def penalty(k: int) -> float:
        thetas = [blocks[name][k].theta for name in CUTS]
        return 0.5 * sum(2 / len(X) * t @ t for t in thetas)

    for k, (one, other) in enumerate(itertools.pairwise(orders)):
        if other.base != one.number or k == 0:
            continue
        f = [np.mean(scored.losses(o.scores)) + one.net @ scored.gaps(o.scores) for o in (one, other)]
        start = next(j for j, s in enumerate(blocks["bank"]) if s.number == one.base)
        assert f[1] + penalty(k + 1) <= f[0] + penalty(start) + 1e-12
        kept += 1
    assert kept > 20
    assert curvature.max() == pytest.approx(2 / len(X))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_fixed_step_that_is_too_long_ends_in_words(asynchronous: bool) -> None:
    found = fp.solve(small(), "fair-vfl", eta=1e-3, asynchronous=asynchronous)
    assert found.status == "stalled"
    assert found.reason.startswith("the steps lead away: eta = 0.001 is too small for these columns")


# ------------------------------------------------------------------------------------------------------------ FedBCD


def test_fedbcd_of_one_party_is_gradient_descent() -> None:
    """On half squares, from zero: theta_t = (I - (I - H / eta)^t) theta*, H = X'X / n + ridge."""
    made, ridge, eta = rows(2), 0.3, 6.0
    asked = fp.VerticalProblem(
        {"all": made.X}, made.y, loss="squared", gap="all", regularizer=fp.prox.SquaredL2(ridge), intercept=False
    )
    watch = Door()
    fp.solve(asked, "fedbcd", eta=eta, tol=1e-9, max_rounds=40, engine=watch)
    H = made.X.T @ made.X / len(made.y) + ridge * np.eye(8)
    optimum = np.linalg.solve(H, made.X.T @ made.y / len(made.y))
    ours = [s.theta for s in watch.states["all"] if isinstance(s, Place)][:30]
    for t, theta in enumerate(ours):
        expected = optimum - np.linalg.matrix_power(np.eye(8) - H / eta, t) @ optimum
        np.testing.assert_allclose(theta, expected, atol=1e-12)
    assert len(ours) == 30


@pytest.mark.parametrize("updates", [1, 5])
def test_fedbcd_reaches_the_optimum_without_a_constraint(updates: int) -> None:
    asked = small(1, None)
    found = fp.solve(asked, "fedbcd", tol=1e-6, local_updates=updates)
    assert found.solved
    assert found.certificate.feasibility == 0
    assert found.objective == pytest.approx(pooled(asked).objective, abs=1e-8)
    assert_certified(asked, found)


def test_fedbcd_is_fair_vfl_without_groups() -> None:
    asked = small(1, None)
    one, other = (fp.solve(asked, method, tol=1e-6, local_updates=3) for method in ("fedbcd", "fair-vfl"))
    assert one.w.tobytes() == other.w.tobytes()
    assert one.history == other.history


# ------------------------------------------------------------------------------------------ what the coordinator sees


@pytest.mark.parametrize("secure", [None, False])
def test_no_partys_scores_are_in_the_transcript_unless_sums_are_open(secure: bool | None, tmp_path: Path) -> None:
    watch = Door()
    fp.solve(small(), "fair-vfl", tol=1e-4, max_rounds=40, engine=watch, secure_sum=secure, record=tmp_path / "record")
    own = {
        name: [party.X @ s.theta for s in watch.states[name] if isinstance(s, Place)][1:]
        for name, party in zip(CUTS, small().shares, strict=True)
    }
    counts, seen = dict.fromkeys(CUTS, 0), []
    for message in read_record(tmp_path / "record"):
        if message["type"].endswith("Updated"):
            sums, who = message["content"]["sums"], message["from"]
            values = secure_sum.decode(sums) if sums.dtype == np.uint64 else sums
            seen.append([np.allclose(values[:150], scores, rtol=1e-3) for scores in own[who]])
            assert np.any(own[who][counts[who]])
            counts[who] += 1
    assert min(counts.values()) > 25
    if secure is None:
        assert not np.any(seen)
    else:
        assert all(np.any(row) for row in seen)


def test_noise_is_added_to_scores_but_not_to_the_coordinators_own(tmp_path: Path) -> None:
    """One update from zero: X_k theta_k is known, what is sent is off by the deviation, and the intercept is not."""
    asked, watch, deviation = small(), Door(), 0.05
    options = {"eta": 5.0, "dual_step": 0.5, "max_rounds": 8, "tol": 1e-9, "secure_sum": False}
    clear = fp.solve(asked, "fair-vfl", **options)
    noisy = fp.solve(asked, "fair-vfl", noise=deviation, engine=watch, record=tmp_path / "record", **options)
    exact = transcription(asked, 2, 1, 5.0, 0.5, 0.0)[1][0]
    sent = [m for m in read_record(tmp_path / "record") if m["type"].endswith("Updated")][:3]
    for party, theta, message in zip(asked.shares, exact, sent, strict=False):
        off = message["content"]["sums"][:150] - party.X @ theta
        assert 0.5 * deviation < np.std(off) < 2 * deviation
    again = next(o for name, o, _ in watch.sent if name == "bank" and getattr(o, "base", 0) > 0)
    total = sum(m["content"]["sums"][:150] for m in sent)
    np.testing.assert_allclose(again.scores - total, exact[-1][0], atol=1e-12)  # the intercept, the same for all rows
    assert clear.w[-1] != noisy.w[-1]
    assert np.abs(clear.w - noisy.w).max() < 1.0


def test_pieces_stay_with_their_parties(tmp_path: Path) -> None:
    shown = fp.solve(small(), "fair-vfl", tol=1e-3)
    hidden = fp.solve(small(keep=tmp_path), "fair-vfl", tol=1e-3, reveal=False)
    assert np.isnan(hidden.w[:-1]).all()
    assert hidden.w[-1] == shown.w[-1]
    assert not any("theta" in f for t in hidden.communication.owners.values() for f in t.fields)
    for name, part in small().pieces(shown.w).items():
        if name != "coordinator":
            assert Piece.load(tmp_path / f"{name}.npz").theta.tobytes() == part.tobytes()


# ------------------------------------------------------------------------------------------------ late, lost and gone


def random_delays(seed: int, longest: float) -> Any:
    rng, lock = np.random.default_rng(seed), threading.Lock()

    def delay(owner: str, order: Any) -> float:
        with lock:
            return float(rng.uniform(0, longest))

    return delay


@pytest.mark.parametrize("seed", [0, 1])
def test_asynchronous_runs_with_random_delays_end_within_tolerance(seed: int) -> None:
    asked = small(1)
    door = Door(random_delays(seed, 0.003), threads=3)
    found = fp.solve(asked, "fair-vfl", asynchronous=True, tol=1e-3, engine=door)
    assert found.solved
    assert_certified(asked, found)
    assert found.objective == pytest.approx(pooled(asked).objective, abs=2e-3)
    assert any("the coordinator sees" in note for note in found.history.notes)


@pytest.mark.slow
def test_a_party_ten_steps_late_does_not_keep_the_others_from_the_optimum() -> None:
    asked = small(1)
    door = Door(lambda owner, order: 0.05 if owner == "shop" else 0.002, threads=3)  # far above the computation
    found = fp.solve(asked, "fair-vfl", asynchronous=True, tol=1e-3, engine=door)
    assert found.solved
    obeyed = {name: sum(1 for n, o, _ in door.sent if n == name and getattr(o, "move", False)) for name in CUTS}
    assert obeyed["shop"] < 0.3 * min(obeyed["bank"], obeyed["clinic"])
    assert found.objective == pytest.approx(pooled(asked).objective, abs=2e-3)


def test_the_asynchronous_server_does_not_wait_for_the_slowest_party() -> None:
    """One party begins when another has got ten orders more: a server that waits for it would wait for ever."""
    passed = threading.Condition()
    bank = 0
    ended = False

    def begin_at(count: int) -> None:
        with passed:
            assert passed.wait_for(lambda: bank >= count or ended, timeout=60)

    def what(owner: str, order: Any) -> str | Callable[[], None]:
        nonlocal bank
        with passed:
            if ended:
                return ""
            bank += owner == "bank"
            passed.notify_all()
            slow = owner == "shop" and getattr(order, "move", False)
            return functools.partial(begin_at, bank + 10) if slow else ""

    def watch(progress: Any) -> None:
        nonlocal ended
        with passed:
            ended = ended or progress.rounds > 80
            passed.notify_all()

    door = Door(what, threads=3)
    options: dict[str, Any] = {"eta": 3.0, "dual_step": 0.1, "tol": 1e-9, "max_rounds": 100}
    fp.solve(small(), "fair-vfl", asynchronous=True, secure_sum=False, engine=door, callbacks=[watch], **options)
    assert ended
    assert 3 <= sum(callable(what) for _, _, what in door.sent) <= bank / 5


@pytest.mark.parametrize("seed", [0, 1])
def test_a_third_of_the_messages_lost_and_the_same_bits(seed: int) -> None:
    expected = fp.solve(small(), "fair-vfl", tol=1e-4)
    door = Door(at_random(0.3, ("order lost", "reply lost"), seed))
    assert_same_run(fp.solve(small(), "fair-vfl", tol=1e-4, engine=door, retries=30), expected, traffic=False)
    assert {what for *_, what in door.sent} == {"", "order lost", "reply lost"}


@pytest.mark.parametrize("kind", ["order lost", "reply lost"])
def test_asynchronously_a_third_of_the_messages_lost_and_the_point_is_what_it_says(kind: str) -> None:
    """A party whose reply was lost obeys the order sent again from the same base: nothing is done twice."""
    asked = small(1)
    door = Door(at_random(0.3, (kind,)))
    found = fp.solve(asked, "fair-vfl", asynchronous=True, tol=1e-3, engine=door, retries=30)
    assert found.solved
    assert_certified(asked, found)
    assert found.objective == pytest.approx(pooled(asked).objective, abs=2e-3)
    assert {what for *_, what in door.sent} == {"", kind}
    assert_bases(door)


def test_a_silent_party_is_asked_again_after_the_deadline() -> None:
    late: list[int] = []

    def what(owner: str, order: Any) -> str | float:
        if owner == "shop" and getattr(order, "move", False) and len(late) < 3 and order.round > 20:
            late.append(order.round)
            return 0.3
        return ""

    asked, door = small(1), Door(what, threads=3)
    found = fp.solve(asked, "fair-vfl", asynchronous=True, tol=1e-3, engine=door, deadline=0.1, retries=40)
    assert found.solved
    assert len(late) == 3
    assert_certified(asked, found)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("on_failure", ["retry", "stop"])
def test_a_party_that_stays_away_is_named(asynchronous: bool, on_failure: Any) -> None:
    door = Door(gone("shop", 30))
    options = {"asynchronous": asynchronous, "on_failure": on_failure, "retries": 2}
    found = fp.solve(small(), "fair-vfl", tol=1e-8, engine=door, **options)
    assert found.status == "client_lost"
    assert found.reason == "shop: its order lost"
    assert found.w.tolist() == [0.0] * 9
    if asynchronous:
        assert found.certificate.worst == np.inf  # nobody judged the start
        assert np.isnan(found.objective)
    else:
        assert_certified(small(), found, by_squares=True)
    asked = [what for name, _, what in door.sent if name == "shop" and what]
    assert len(asked) == (3 if on_failure == "retry" else 1)


def test_pauses_between_attempts_do_not_stop_the_other_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "PAUSE", 0.02)
    door = Door(gone("shop", 30))
    found = fp.solve(small(), "fair-vfl", asynchronous=True, tol=1e-8, engine=door, retries=3)
    assert found.status == "client_lost"
    lost = [k for k, (*_, what) in enumerate(door.sent) if what]
    between = door.sent[lost[0] : lost[-1]]
    assert len(lost) == 4
    assert sum(name == "bank" for name, *_ in between) > 8


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("at", [6, 17, 30])
def test_ctrl_c_gives_the_point_that_is_certified(at: int, asynchronous: bool) -> None:
    asked = small()
    presses = ["interrupt"]

    def press(owner: str, order: Any) -> str:
        return presses.pop() if presses and owner == "shop" and order.round >= at else ""

    for options in ({"callbacks": [stop_at(at)]}, {"engine": Door(press)}):
        stopped = fp.solve(asked, "fair-vfl", tol=1e-7, asynchronous=asynchronous, **options)
        assert stopped.status == "interrupted"
        assert_certified(asked, stopped)


def test_the_limit_of_exchanges_is_kept() -> None:
    for asynchronous in (False, True):
        for limit in (8, 25):
            door = Door(random_delays(0, 0.002), threads=3)
            options = {"asynchronous": asynchronous, "max_rounds": limit, "engine": door}
            found = fp.solve(small(), "fair-vfl", tol=1e-9, **options)
            assert found.status == "max_rounds"
            assert found.rounds <= limit
            assert_certified(small(), found)


# ------------------------------------------------------------------------------------------------------------ misuse


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"eta": 0}, "FP-OPTION-252", ("eta = 0", "above 0")),
        ({"dual_step": -1}, "FP-OPTION-252", ("dual_step = -1", "above 0")),
        ({"noise": -0.1}, "FP-OPTION-252", ("noise = -0.1", "at least 0")),
        ({"local_updates": 1.5}, "FP-OPTION-252", ("local_updates = 1.5", "whole number of at least 1")),
        ({"schedule": "linear"}, "FP-OPTION-251", ("schedule = 'linear'", "'constant'", "'theory'")),
        ({"schedule": 3}, "FP-OPTION-251", ("schedule = 3", "'constant'", "'theory'")),
        ({"asynchronous": 1}, "FP-OPTION-250", ("asynchronous = 1",)),
        ({"penalty": 1}, "FP-OPTION-253", ("'fair-vfl'", "'penalty'", "eta", "dual_step")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_misuse(options: dict[str, Any], code: str, facts: tuple[str, ...]) -> None:
    with raises_code(code, "", *facts):
        fp.solve(small(), "fair-vfl", **options)


@pytest.mark.parametrize(
    ("options", "fact"),
    [({"asynchronous": True, "secure_sum": True}, "secure_sum=True"), ({"w0": np.zeros(9)}, "w0")],
    ids=["secure_sum", "w0"],
)
def test_what_no_vertical_method_takes(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(OptionError, match=fact):
        fp.solve(small(), "fair-vfl", **options)


def test_fedbcd_refuses_a_constraint_and_half_updates() -> None:
    with raises_code("FP-OPTION-254", "", "group", "max_gap", "fair-vfl"):
        fp.solve(small(), "fedbcd")
    with raises_code("FP-OPTION-252", "", "local_updates = 2.5", "at least 1"):
        fp.solve(small(0, None), "fedbcd", local_updates=2.5)
    with raises_code("FP-OPTION-253", "", "'fedbcd'", "'asynchronous'"):
        fp.solve(small(0, None), "fedbcd", asynchronous=True)


def test_the_gap_allowed_is_met_at_the_end() -> None:
    found = fp.solve(small(), "fair-vfl", tol=(1e-3, 1e-4))
    z = matrix(small())[0] @ found.w
    assert np.abs(small().scored.gaps(z)).max() <= EPS + 1e-4
