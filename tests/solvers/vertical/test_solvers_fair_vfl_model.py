"""fair-vfl and fedbcd beyond the paper's model: other losses, any prox at a party, and how much each party does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from marks import slow_but
from raising import raises_code
from scipy.optimize import minimize
from vertical_cases import CUTS, Door, assert_certified, matrix, rows, small

import fedpact as fp
from fedpact.problem import Party, Scored
from fedpact.solvers.vertical import fair_vfl_party
from fedpact.solvers.vertical.fair_vfl import MOST
from fedpact.solvers.vertical.fair_vfl_party import Begin, Place, Update, begin, update

METHODS = pytest.mark.parametrize("asynchronous", [False, True], ids=["rounds", "any party"])
RIDGE = fp.prox.SquaredL2(0.1)


def parties(X: np.ndarray) -> dict[str, np.ndarray]:
    return {name: X[:, cut] for name, cut in CUTS.items()}


# -------------------------------------------------------------------------------------------------------------- losses


def huber(r: np.ndarray) -> np.ndarray:
    return np.where(np.abs(r) <= 1, 0.5 * r**2, np.abs(r) - 0.5)


def labelled(loss: str) -> tuple[np.ndarray, Any]:
    """Labels of the rows, and the losses of scores by the textbook."""
    made, rng = rows(1), np.random.default_rng(3)
    truth = made.X @ rng.normal(size=8)
    if loss == "poisson":
        y = rng.poisson(np.exp(np.clip(0.2 * truth, -2, 2)))
        return y, lambda z: np.exp(z) - y * z
    if loss == "huber":
        y = truth + rng.standard_t(2, size=len(truth))
        return y, lambda z: huber(z - y)
    y = made.y
    return y, lambda z: 0.5 * (z - y) ** 2


@METHODS
@pytest.mark.parametrize("loss", slow_but(["squared", "huber", "poisson"], "poisson"))
def test_every_loss_reaches_the_optimum_of_pooled_columns(loss: str, asynchronous: bool) -> None:
    """The optimum by SLSQP, from the textbook's formula; the bound is active."""
    made, eps = rows(1), 0.2
    y, losses = labelled(loss)
    asked = fp.VerticalProblem(parties(made.X), y, made.group, eps, loss=loss, gap="all", regularizer=RIDGE)  # type: ignore[arg-type]
    X, curvature = matrix(asked)

    def gap(w: np.ndarray) -> float:
        each = losses(X @ w)
        return float(each[made.group == 0].mean() - each[made.group == 1].mean())

    theirs = minimize(
        lambda w: losses(X @ w).mean() + 0.5 * curvature @ w**2,
        np.zeros(9),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: [eps - gap(w), eps + gap(w)]},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert theirs.success
    found = fp.solve(asked, "fair-vfl", tol=2e-3, asynchronous=asynchronous)
    assert found.solved, found.reason
    assert_certified(asked, found)
    assert found.objective == pytest.approx(theirs.fun, abs=2e-3)
    assert abs(gap(found.w)) <= eps + 2e-3


def test_counts_below_zero_and_classes_without_classes_are_refused() -> None:
    made = rows()
    with raises_code("FP-DATA-119", "", "poisson"):
        fp.VerticalProblem(parties(made.X), made.y - 0.5, loss="poisson", gap="all")
    with raises_code("FP-OPTION-103", "", "huber", "positives"):
        fp.VerticalProblem(parties(made.X), made.y, made.group, 0.1, loss="huber")
    counts = fp.VerticalProblem(parties(made.X), made.y, made.group, 0.1, loss="poisson", gap="all")
    with raises_code("FP-OPTION-266", "", "poisson"):
        fp.solve(counts, "fair-vfl", schedule="theory")


# -------------------------------------------------------------------------------------------------------- constraints


@METHODS
def test_several_attributes_at_once_and_both_classes(asynchronous: bool) -> None:
    """Two attributes, in both classes: four gaps with bounds on either side, and the optimum of pooled columns."""
    made, rng = rows(1), np.random.default_rng(5)
    age = np.where(made.X[:, 0] + rng.normal(size=len(made.y)) > 0, "old", "young")
    groups = {"group": made.group, "age": age}
    asked = fp.VerticalProblem(parties(made.X), made.y, groups, 0.12, gap="classes", regularizer=RIDGE)
    assert len(asked.gap_names) == 4
    found = fp.solve(asked, "fair-vfl", tol=5e-3, asynchronous=asynchronous)
    assert found.solved, found.reason
    assert_certified(asked, found)
    theirs = fp.solve(asked.pooled(), "interior-point", tol=1e-8)
    assert found.objective == pytest.approx(theirs.objective, abs=1e-2)
    losses = np.logaddexp(0, -(2 * made.y - 1) * (matrix(asked)[0] @ found.w))
    for labels in groups.values():
        for positive in (0, 1):
            first, second = (losses[(labels == g) & (made.y == positive)].mean() for g in np.unique(labels))
            assert abs(first - second) <= 0.12 + 5e-3
    assert np.sum(found.multipliers[0] > 1e-3) >= 2


def test_a_bounded_mean_loss_of_one_class() -> None:
    """Neyman-Pearson: a bound from above only, active; the optimum by SLSQP."""
    made, limit = rows(1), 0.3
    asked = fp.VerticalProblem(parties(made.X), made.y, max_loss={1: limit}, regularizer=RIDGE)
    X, curvature = matrix(asked)

    def losses(w: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, -(2 * made.y - 1) * (X @ w))

    theirs = minimize(
        lambda w: losses(w).mean() + 0.5 * curvature @ w**2,
        np.zeros(9),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: limit - losses(w)[made.y == 1].mean()},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert theirs.success
    found = fp.solve(asked, "fair-vfl", tol=1e-3)
    assert found.solved, found.reason
    assert_certified(asked, found)
    assert found.objective == pytest.approx(theirs.fun, abs=1e-3)
    assert found.multipliers[0].shape == (1,)
    assert found.multipliers[0][0] > 0.01


# ------------------------------------------------------------------------------------------------------------ any prox


@METHODS
def test_l1_at_a_party_is_the_pooled_lasso(asynchronous: bool) -> None:
    """By a conic solver on all columns, with the penalty on the columns of that party alone."""
    made = rows(1)
    weight = 0.08
    asked = small(1, None, regularizer=[fp.prox.L1(weight), RIDGE, RIDGE])
    w = cp.Variable(9)
    X = np.column_stack([made.X, np.ones(len(made.X))])
    losses = cp.logistic(-cp.multiply(2 * made.y - 1, X @ w))
    penalty = weight * cp.norm1(w[:3]) + 0.05 * cp.sum_squares(w[3:8])
    theirs = cp.Problem(cp.Minimize(cp.sum(losses) / len(X) + penalty))
    theirs.solve(solver="CLARABEL")
    found = fp.solve(asked, "fair-vfl", tol=1e-4 if not asynchronous else 1e-3, asynchronous=asynchronous)
    assert found.solved
    assert_certified(asked, found)
    assert found.objective == pytest.approx(theirs.value, abs=1e-4)
    np.testing.assert_allclose(found.w, w.value, atol=2e-2)
    assert np.sum(found.w[:3] == 0.0) == np.sum(np.abs(w.value[:3]) < 1e-6) > 0


@pytest.mark.parametrize(
    "h",
    [fp.prox.Box(-0.1, 0.3), fp.prox.ElasticNet(0.05, 0.2), fp.prox.GroupL2([[0, 1, 2]], 0.05)],
    ids=["box", "elastic net", "group"],
)
def test_any_prox_at_a_party_with_an_active_gap(h: Any) -> None:
    """Certified by other code on pooled columns, to which the pieces' regularizers are joined."""
    asked = small(1, regularizer=[h, RIDGE, RIDGE])
    found = fp.solve(asked, "fair-vfl", tol=3e-3)
    assert found.solved, found.reason
    assert_certified(asked, found)
    assert found.multipliers[0].max() > 0
    if isinstance(h, fp.prox.Box):
        assert found.w[:3].min() >= -0.1
        assert found.w[:3].max() <= 0.3


def test_fedbcd_takes_a_prox_and_a_domain_without_zero_is_refused_by_name() -> None:
    assert fp.solve(small(1, None, regularizer=fp.prox.L1(0.02)), "fedbcd", tol=1e-3).solved
    with raises_code("FP-PROBLEM-253", "shop: ", "Box"):
        fp.solve(small(1, None, regularizer=[RIDGE, fp.prox.Box(1.0, 2.0), RIDGE]), "fedbcd")
    with raises_code("FP-OPTION-110", "", "vertical-al", "bank", "quadratic"):
        fp.solve(small(1, None, regularizer=[fp.prox.L1(0.1), RIDGE, RIDGE]), "vertical-al")


def test_a_proximal_step_falls_by_what_it_predicts() -> None:
    """F(theta) - F(theta+) >= eta / 2 |theta+ - theta|^2 where eta bounds the curvature: the smooth step's promise."""
    made, h = rows(2), fp.prox.L1(0.05)
    party = Party(X=made.X, h=h, name="all")
    state, order = begun(party, made.y)
    scored = state.scored
    z = np.zeros(len(made.y))
    value = np.mean(scored.losses(z))
    for number in range(1, 6):
        state, reply = update(party, state, at(order, number, z, scale=1.0))
        z = reply.scores
        after = np.mean(scored.losses(z)) + reply.penalty
        assert reply.penalty == pytest.approx(0.05 * np.abs(state.theta).sum())
        assert value - after >= reply.predicted - 1e-12
        assert reply.predicted > 0
        value = after


# ---------------------------------------------------------------------------------------------------------- local work


def begun(party: Party, y: Any, work: dict[str, Any] | None = None) -> tuple[Place, Begin]:
    scored = Scored("logistic", np.where(y > 0, 1.0, -1.0), np.zeros((0, len(y))))
    order = Begin(loss=scored.loss, y=scored.y, rows=scored.rows, work=json.dumps({party.name: work or {}}))
    return begin(party, None, order)[0], order


def at(order: Begin, number: int, z: np.ndarray, eta: float = 0.0, scale: float = 1.0) -> Update:
    return Update(
        number=number,
        base=number - 1,
        scores=z,
        net=np.zeros(0),
        move=True,
        eta=eta,
        scale=scale,
        holders=1,
        noise=0.0,
    )


def descended(X: np.ndarray, y: np.ndarray, times: int, eta: float, ridge: float) -> np.ndarray:
    theta = np.zeros(X.shape[1])
    sign = 2 * y - 1
    for _ in range(times):
        theta = theta - (X.T @ (-sign / (1 + np.exp(sign * (X @ theta)))) / len(y) + ridge * theta) / eta
    return theta


@pytest.mark.parametrize(
    ("work", "ticks", "times"),
    [
        ({"updates": 3}, 1.0, 3),
        ({"updates": 50, "seconds": 4.0}, 1.0, 4),
        ({"updates": 2, "seconds": 4.0}, 1.0, 2),
        ({"updates": 50, "seconds": 0.5}, 1.0, 1),
    ],
    ids=["a number", "as many as fit", "at most Q", "at least one"],
)
def test_a_party_updates_at_least_once_and_at_most_q_times_while_it_has_time(
    work: dict[str, Any], ticks: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look at the clock is one second later."""
    seconds = itertools.count(0.0, ticks)
    monkeypatch.setattr(fair_vfl_party, "clock", lambda: next(seconds))
    made = rows(2)
    party = Party(X=made.X, h=fp.prox.SquaredL2(0.3), name="all")
    state, order = begun(party, made.y, work)
    state, _ = update(party, state, at(order, 1, np.zeros(len(made.y)), eta=2.0))
    np.testing.assert_allclose(state.theta, descended(made.X, made.y, times, 2.0, 0.3), atol=1e-13)


def thetas(door: Door, count: int) -> dict[str, Sequence[np.ndarray]]:
    return {name: [s.theta for s in door.states[name] if isinstance(s, Place)][:count] for name in CUTS}


@METHODS
def test_each_party_has_its_own_number_of_updates(asynchronous: bool) -> None:
    """The first order meets zero scores of the others: each party does plain descent, as often as it is allowed."""
    asked, door = small(2, None, regularizer=fp.prox.SquaredL2(0.3)), Door()
    options: dict[str, Any] = {"local_updates": {"bank": 5, "clinic": 2}, "eta": 3.0, "max_rounds": 8, "tol": 1e-9}
    fp.solve(asked, "fair-vfl", engine=door, asynchronous=asynchronous, **options)
    made = rows(2)
    first = {name: states[1] for name, states in thetas(door, 2).items()}
    for name, times in (("bank", 5), ("shop", 1), ("clinic", 2)):
        np.testing.assert_allclose(first[name], descended(made.X[:, CUTS[name]], made.y, times, 3.0, 0.3), atol=1e-13)


@METHODS
def test_a_time_budget_reaches_the_same_answer(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much each party manages: here the clock is a random one."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(fair_vfl_party, "clock", lambda: float(rng.uniform(0, 4)))
    asked = small(1, regularizer=RIDGE)
    found = fp.solve(asked, "fair-vfl", tol=5e-3, local_seconds={"bank": 1.0, "shop": 2.0}, asynchronous=asynchronous)
    assert found.solved
    assert_certified(asked, found)
    (note,) = [note for note in found.history.notes if "local_seconds" in note]
    assert note.startswith("bank, shop: ")


def test_a_budget_without_a_number_has_one_that_assumption_1_needs() -> None:
    door = Door()
    fp.solve(small(), "fair-vfl", local_seconds=3600.0, engine=door, max_rounds=8, tol=1e-9)
    works = {s.work for name in CUTS for s in door.states[name] if isinstance(s, Place)}
    assert works == {fair_vfl_party.Work(MOST, 3600.0)}


def test_a_party_with_one_or_two_columns_is_named() -> None:
    """Theorem 1 needs m_k > 2; the shop has two columns."""
    for method, max_gap in (("fair-vfl", 0.01), ("fedbcd", None)):
        notes = [n for n in fp.solve(small(0, max_gap), method, max_rounds=8).history.notes if "Theorem 1" in n]
        assert len(notes) == 1
        assert notes[0].startswith("shop: ")
    wide = fp.VerticalProblem({"a": rows().X[:, :4], "b": rows().X[:, 4:]}, rows().y)
    assert not any("Theorem 1" in note for note in fp.solve(wide, "fedbcd", max_rounds=8).history.notes)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"local_updates": {"bank": 0}}, "FP-OPTION-252", ("local_updates['bank'] = 0", "at least 1")),
        ({"local_updates": {"bank": True}}, "FP-OPTION-252", ("local_updates['bank']",)),
        ({"local_seconds": {"shop": -1.0}}, "FP-OPTION-252", ("local_seconds['shop'] = -1.0", "above 0")),
        ({"local_seconds": 0}, "FP-OPTION-252", ("local_seconds = 0", "above 0")),
        ({"local_updates": {"school": 2}}, "FP-OPTION-265", ("local_updates", "'school'", "'bank'")),
        ({"eta": {"bank": 2.0}}, "FP-OPTION-252", ("eta",)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_misuse(options: dict[str, Any], code: str, facts: tuple[str, ...]) -> None:
    with raises_code(code, "", *facts):
        fp.solve(small(), "fair-vfl", **options)
