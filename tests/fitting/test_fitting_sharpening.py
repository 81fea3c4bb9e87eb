"""From losses to decisions: what is certified is what is counted, on training rows, at every owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from scipy.special import expit, log_expit

import fedpact as fp
from fedpact.fitting.sharpening import Path as DecisionPath
from fedpact.fitting.sharpening import Sharpened
from fedpact.tasks import Classification, HeldSource, NeymanPearson, Requirement, Rows
from fedpact.tasks.base import SERVER

COLUMNS = ("a", "b", "c")
Tables = dict[str, Rows]


def tables(owners: int = 3, rows: int = 150, classes: int = 2) -> Tables:
    """Owners whose rows differ, groups that differ in a column and in their labels."""
    made = {}
    for k in range(owners):
        rng = np.random.default_rng([5, k])
        group = rng.integers(0, 2, rows)
        X = rng.normal(size=(rows, 3)) + 0.3 * k
        score = X @ [1.0, -0.8, 0.3] + 0.8 * (group - 0.5) + 1.5 * rng.normal(size=rows)
        X[:, 2] += 0.8 * group
        y = (score > 0.4).astype(int) if classes == 2 else np.digitize(score, [-0.5, 0.8])
        made[f"owner {k + 1}"] = Rows(X, y, group)
    return made


def without_groups(given: Tables) -> Tables:
    return {name: replace(rows, group=None) for name, rows in given.items()}


def task(*constraints: Requirement, **more: Any) -> Classification:
    return Classification(label="y", columns=COLUMNS, standardize=True, constraints=constraints, **more)


RECALL = Requirement(kind="recall", at_least=0.9)


def decide(found: fp.Fit, rows: Rows) -> np.ndarray:
    """By the model in the units of the columns, apart from the tasks."""
    assert isinstance(found.model, fp.tasks.Model)
    score = found.model.scores(rows.X)
    if score.shape[1] == 1:
        return (score[:, 0] > 0).astype(int)
    return np.argmax(score, axis=1)


def recall(found: fp.Fit, rows: Rows, k: int = 1, chosen: Any = True) -> float:
    return float(np.mean(decide(found, rows)[(rows.y == k) & chosen] == k))


def gap(found: fp.Fit, rows: Rows, inside: Any) -> tuple[float, float]:
    """In the rate of decisions for class 1, and one row's worth of it."""
    assert rows.group is not None
    decided = decide(found, rows)
    cells = [decided[inside & (rows.group == g)] for g in (0, 1)]
    return abs(cells[1].mean() - cells[0].mean()), 1 / min(map(len, cells))


# ---------------------------------------------------------------------------------------------------- what is promised


def plain_with_one_threshold(found: fp.Fit, given: Tables, least: float) -> float:
    """Specificity, mean over owners, of logistic regression at the highest threshold with this recall everywhere."""
    assert isinstance(found.task, Classification)
    assert found.task.scaling is not None
    designs = {n: np.column_stack([found.task.scaling.apply(r.X), np.ones(len(r.y))]) for n, r in given.items()}

    def loss(w: np.ndarray) -> float:
        means = [-np.mean(log_expit((2 * given[n].y - 1) * (Z @ w))) for n, Z in designs.items()]
        return float(np.mean(means) + 0.5e-3 * w[:3] @ w[:3])

    w = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    limits = []
    for name, Z in designs.items():
        score = np.sort((Z @ w)[given[name].y == 1])
        misses = int(np.floor((1 - least) * len(score) + 1e-9))
        limits.append(score[misses])
    threshold = min(limits)
    return float(np.mean([np.mean((Z @ w)[given[n].y == 0] < threshold) for n, Z in designs.items()]))


def test_recall_is_met_by_count_and_cheaper_than_a_threshold_of_logistic_regression() -> None:
    given = without_groups(tables())
    found = fp.fit(task(RECALL), given)
    assert found.solved
    assert found.missed == 0
    assert min(recall(found, rows) for rows in given.values()) >= 0.9
    specificity = np.mean([np.mean(decide(found, rows)[rows.y == 0] == 0) for rows in given.values()])
    assert specificity >= plain_with_one_threshold(found, given, 0.9)


@pytest.mark.parametrize("kind", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_gaps_are_met_by_count(kind: str) -> None:
    given = tables()
    found = fp.fit(task(Requirement(kind=kind, at_most=0.03), group="g"), given)
    assert found.solved
    for name, rows in given.items():
        counted = {"demographic_parity": [rows.y >= 0], "equal_opportunity": [rows.y == 1]}
        for inside in counted.get(kind, [rows.y == 1, rows.y == 0]):
            value, row = gap(found, rows, inside)
            assert value <= 0.03 + row + 1e-12, name
    before = [
        abs(told["positive rate of group 1"] - told["positive rate of group 0"]) for told in found.before.values()
    ]
    assert max(before) > 0.15


def test_recall_and_equal_opportunity_together() -> None:
    given = tables()
    asked = task(
        Requirement(kind="recall", at_least=0.85), Requirement(kind="equal_opportunity", at_most=0.05), group="g"
    )
    found = fp.fit(asked, given)
    assert found.solved
    for rows in given.values():
        assert recall(found, rows) >= 0.85
        value, row = gap(found, rows, rows.y == 1)
        assert value <= 0.05 + row + 1e-12


def test_each_class_has_its_recall() -> None:
    given = without_groups(tables(classes=3))
    asked = (Requirement(kind="recall", of="mid", at_least=0.5), Requirement(kind="recall", of="high", at_least=0.7))
    found = fp.fit(task(*asked, classes=("low", "mid", "high")), given)
    assert found.solved
    for rows in given.values():
        assert recall(found, rows, 1) >= 0.5
        assert recall(found, rows, 2) >= 0.7


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("precision", {"at_least": 0.8}),
        ("accuracy", {"at_least": 0.7}),
        ("selection_rate", {"at_least": 0.2, "at_most": 0.3}),
        ("specificity", {"at_least": 0.9}),
        ("false_positive_rate", {"at_most": 0.1}),
    ],
)
def test_other_rates_are_met_by_count(kind: str, bounds: dict[str, float]) -> None:
    given = without_groups(tables())
    found = fp.fit(task(Requirement(kind=kind, **bounds)), given)
    assert found.solved
    for rows in given.values():
        decided = decide(found, rows)
        negative = decided[rows.y == 0]
        rates = {
            "precision": np.mean(rows.y[decided == 1]),
            "accuracy": np.mean(decided == rows.y),
            "selection_rate": np.mean(decided),
            "specificity": np.mean(negative == 0),
            "false_positive_rate": np.mean(negative),
        }
        assert bounds.get("at_least", 0.0) <= rates[kind] + 1e-12
        assert rates[kind] - 1e-12 <= bounds.get("at_most", 1.0)


@pytest.mark.parametrize("method", ["auto", "accelerated", pytest.param("proximal-al", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["recall", "demographic_parity"])
def test_what_all_hold_together_is_met_on_the_pooled_rows(kind: str, method: str) -> None:
    given = tables()
    bound = {"at_least": 0.9} if kind == "recall" else {"at_most": 0.02}
    found = fp.fit(task(Requirement(kind=kind, held_by="all", **bound), group="g"), given, method=method)
    assert found.solved
    pooled = Rows(
        np.concatenate([rows.X for rows in given.values()]),
        np.concatenate([rows.y for rows in given.values()]),
        np.concatenate([rows.group for rows in given.values() if rows.group is not None]),
    )
    # The owners' parts of the line, as they tell them, sum to the count on the pooled rows.
    parts = 0.0
    for name, rows in given.items():
        share = found.task.share(name, rows)
        parts += share.measures.tally(found.solution.w)[1][0]
    if kind == "recall":
        counted = np.ceil(0.9 * np.sum(pooled.y == 1) - 1e-9) / np.sum(pooled.y == 1) - recall(found, pooled)
        assert recall(found, pooled) >= 0.9
    else:
        decided = decide(found, pooled)
        assert pooled.group is not None
        sizes = [np.sum(pooled.group == g) for g in (0, 1)]
        counted = decided[pooled.group == 1].mean() - decided[pooled.group == 0].mean() - 0.02 - 1 / min(sizes)
        assert counted <= 0
    assert parts == pytest.approx(counted, abs=1e-12)


def test_the_coordinators_table_is_met_as_well() -> None:
    given = without_groups(tables(4))
    server = given.pop("owner 4")
    at_server = Requirement(kind="recall", at_least=0.95, held_by="server")
    found = fp.fit(task(RECALL, at_server), given, server=server)
    assert found.solved
    assert recall(found, server) >= 0.95
    assert min(recall(found, rows) for rows in given.values()) >= 0.9
    assert found.measures[SERVER]["recall of y = 1"] == recall(found, server)


# ------------------------------------------------------------------------------------------------- what is certified


def test_the_last_smoothed_problem_is_certified_from_the_same_shares() -> None:
    given = without_groups(tables())
    found = fp.fit(task(RECALL), given, tol=1e-5)
    shares = [HeldSource(name, rows)(found.task) for name, rows in given.items()]
    problem = fp.FederatedProblem(shares, regularizer=found.task.regularizer())
    again = fp.certify(problem, found.solution.w, found.solution.multipliers)
    assert again.meets((1e-5, 1e-5))
    assert again.stationarity == pytest.approx(found.solution.certificate.stationarity, rel=1e-6, abs=1e-12)


def test_nothing_better_is_nearby() -> None:
    """SLSQP from the answer, on the last smoothed problem written by hand, finds no lower objective."""
    given = without_groups(tables())
    found = fp.fit(task(RECALL), given, tol=1e-7)
    assert isinstance(found.task, Classification)
    last = found.task
    assert last.scaling is not None
    owners = [(np.column_stack([last.scaling.apply(r.X), np.ones(len(r.y))]), r.y) for r in given.values()]
    centre = np.array(last.centre)

    def objective(w: np.ndarray) -> float:
        alarms = [np.mean(expit(Z[y == 0] @ w / last.smoothing)) for Z, y in owners]
        return float(np.mean(alarms) + 0.5e-4 / last.spread**2 * w[:3] @ w[:3])

    def room(w: np.ndarray) -> np.ndarray:
        left = []
        for Z, y in owners:
            ill = Z[y == 1]
            needed = np.ceil(0.9 * len(ill) - 1e-9) / len(ill) + last.tighter / len(ill)
            counted = np.mean(ill @ centre > 0) - np.mean(expit(ill @ centre / last.smoothing))
            left.append(np.mean(expit(ill @ w / last.smoothing)) + counted - needed)
        return np.array(left)

    w = found.solution.w
    assert objective(w) == pytest.approx(found.solution.objective, rel=1e-9)
    assert np.min(room(w)) >= -1e-6
    best = minimize(
        objective, w, constraints={"type": "ineq", "fun": room}, method="SLSQP", options={"ftol": 1e-12, "maxiter": 200}
    )
    assert objective(w) <= best.fun + 1e-5


# ------------------------------------------------------------------------------------------------------ the same again


def test_two_fits_give_equal_bits() -> None:
    given = without_groups(tables())
    first, second = (fp.fit(task(RECALL), given) for _ in range(2))
    assert first.solution.w.tobytes() == second.solution.w.tobytes()
    assert first.communication.rounds == second.communication.rounds


def test_secure_sums_give_the_same_decisions() -> None:
    pytest.importorskip("cryptography", reason="secure sums need cryptography")
    given = tables()
    asked = task(RECALL, Requirement(kind="demographic_parity", at_most=0.1, held_by="all"), group="g")
    plain = fp.fit(asked, given)
    with fp.Session(secure_sum=True) as session:
        masked = fp.fit(asked, given, session)
    assert plain.solved
    assert masked.solved
    for rows in given.values():
        np.testing.assert_array_equal(decide(plain, rows), decide(masked, rows))


def stop_after(iterations: int) -> Any:
    """A callback that stops at the iteration of this number, counted over all solves."""
    seen = [0]

    def see(progress: Any) -> bool:
        seen[0] += 1
        return seen[0] == iterations

    return see


@pytest.mark.parametrize("iterations", [15, 40])
def test_a_fit_that_is_stopped_and_resumed_gives_the_same_model(tmp_path: Path, iterations: int) -> None:
    given = without_groups(tables())
    whole = fp.fit(task(RECALL), given)
    with fp.Session(checkpoint=tmp_path / "run") as session:
        stopped = fp.fit(task(RECALL), given, session, callbacks=[stop_after(iterations)])
    assert stopped.solution.status == "interrupted"
    assert not stopped.solved
    assert set(stopped.measures) == set(given)
    with fp.Session(checkpoint=tmp_path / "run", resume=True) as session:
        resumed = fp.fit(task(RECALL), given, session)
    assert resumed.solution.w.tobytes() == whole.solution.w.tobytes()
    assert resumed.missed == whole.missed == 0


# ------------------------------------------------------------------------------------------------ what cannot be had


def line(rows: int = 60) -> tuple[Tables, np.ndarray, np.ndarray]:
    """One owner, one column: all models are thresholds."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], rows)
    x = rng.normal(size=2 * rows) + 1.2 * y
    return {"a": Rows(x[:, None], y)}, x, y


def fewest_alarms(x: np.ndarray, y: np.ndarray, least: float) -> float:
    """The least false-positive rate of any threshold, either way, with this recall."""
    found = []
    for threshold in x:
        for sign in (1, -1):
            decided = sign * x >= sign * threshold
            if decided[y == 1].mean() >= least:
                found.append(decided[y == 0].mean())
    return min(found)


def test_the_advice_is_the_least_relaxation_of_the_last_constraint() -> None:
    given, x, y = line()
    asked = (RECALL, Requirement(kind="false_positive_rate", at_most=0.2))
    found = fp.fit(replace(task(*asked), columns=("a",)), given)
    assert not found.solved
    assert found.missed == 1
    assert "recall of at least 0.9" in found.advice
    assert "false-positive rate of at most 0.2" in found.advice
    reachable = float(found.advice.rpartition("at ")[2].partition(" ")[0])
    least = fewest_alarms(x, y, 0.9)
    assert least - 1e-3 <= reachable <= least + 4 / 60  # it can be had, and four rows less cannot
    again = fp.fit(replace(task(RECALL, replace(asked[1], at_most=reachable + 1 / 60)), columns=("a",)), given)
    assert again.solved


def test_bounds_that_conflict_by_themselves_are_told_without_advice() -> None:
    rng = np.random.default_rng(0)
    given = {f"owner {k}": Rows(rng.normal(size=(60, 3)), np.arange(60) % 2) for k in range(2)}
    found = fp.fit(task(Requirement(kind="recall", at_least=0.99), intercept=False), given)
    assert not found.solved
    assert found.missed > 0
    assert found.advice == ""


# ---------------------------------------------------------------------------------------------------------- objectives


@pytest.mark.parametrize("objective", ["loss", "errors"])
def test_the_objective_is_the_one_asked_for(objective: Any) -> None:
    """Loss counts every row, errors those that no constraint guards."""
    given = without_groups(tables())
    found = fp.fit(task(RECALL, objective=objective), given)
    assert found.solved
    last = found.task
    assert isinstance(last, Classification)
    assert last.scaling is not None
    w = found.solution.w
    parts = []
    for rows in given.values():
        score = np.column_stack([last.scaling.apply(rows.X), np.ones(len(rows.y))]) @ w
        if objective == "loss":
            parts.append(-np.mean(log_expit((2 * rows.y - 1) * score)))
        else:
            parts.append(np.mean(expit(score[rows.y == 0] / last.smoothing)))
    ridge = 1e-3 if objective == "loss" else 1e-4 / last.spread**2
    expected = np.mean(parts) + ridge / 2 * w[:3] @ w[:3]
    assert found.solution.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("objective", ["loss", "errors"])
def test_weights_of_rows_classes_and_owners_are_in_the_objective(objective: Any) -> None:
    rng = np.random.default_rng(2)
    given = {name: replace(r, weight=rng.uniform(0.5, 2.0, len(r.y))) for name, r in without_groups(tables()).items()}
    owners_weigh = {"owner 1": 1.0, "owner 2": 2.0, "owner 3": 5.0}
    accuracy = Requirement(kind="accuracy", at_least=0.6)
    asked = task(accuracy, objective=objective, class_weight={"0": 1.0, "1": 3.0}, owners_weigh=owners_weigh)
    found = fp.fit(asked, given)
    assert found.solved
    last = found.task
    assert isinstance(last, Classification)
    assert last.scaling is not None
    w = found.solution.w
    expected = 0.0
    for name, rows in given.items():
        assert rows.weight is not None
        score = np.column_stack([last.scaling.apply(rows.X), np.ones(len(rows.y))]) @ w
        weight = rows.weight * np.where(rows.y == 1, 3.0, 1.0)
        signed = (2 * rows.y - 1) * score
        each = -log_expit(signed) if objective == "loss" else expit(-signed / last.smoothing)
        expected += owners_weigh[name] / 8 * float(weight @ each / weight.sum())
    ridge = 1e-3 if objective == "loss" else 1e-4 / last.spread**2
    assert found.solution.objective == pytest.approx(expected + ridge / 2 * w[:3] @ w[:3], rel=1e-9)


# ---------------------------------------------------------------------------------------------------------- other ways


@pytest.mark.parametrize(("method", "at_most"), [("accelerated", 0.05), ("proximal-al", 0.15)])
def test_other_methods_meet_the_counts(method: str, at_most: float) -> None:
    """A tighter gap needs less smoothing than the inner loop of Algorithm 1 can be sure to end with."""
    given = tables()
    found = fp.fit(task(Requirement(kind="equal_opportunity", at_most=at_most), group="g"), given, method=method)
    assert found.solved
    for rows in given.values():
        value, row = gap(found, rows, rows.y == 1)
        assert value <= at_most + row + 1e-12


def test_a_model_without_an_intercept() -> None:
    given = without_groups(tables())
    found = fp.fit(task(Requirement(kind="recall", at_least=0.7), intercept=False), given)
    assert found.solved
    assert min(recall(found, rows) for rows in given.values()) >= 0.7


def test_one_owner_alone() -> None:
    given = {"owner 1": without_groups(tables())["owner 1"]}
    found = fp.fit(task(RECALL), given)
    assert found.solved
    assert recall(found, given["owner 1"]) >= 0.9


def test_owners_with_very_few_rows() -> None:
    given = {n: Rows(r.X[:12], r.y[:12]) for n, r in tables().items()}
    found = fp.fit(task(RECALL), given)
    assert found.solved
    assert [recall(found, rows) for rows in given.values()] == [1.0] * 3  # 0.9 of so few rows is all of them


def test_an_owner_without_the_class_is_told_before_anything_is_solved() -> None:
    given = without_groups(tables())
    given["owner 2"] = replace(given["owner 2"], y=np.zeros(150, dtype=int))
    solves: list[Any] = []
    with raises_code("FP-DATA-047", "owner 'owner 2'", "y = 1"):
        fp.fit(NeymanPearson(label="y", columns=COLUMNS, min_recall=0.9), given, callbacks=[solves.append])
    assert solves == []


def test_an_owner_with_three_rows_does_not_stall_a_fit() -> None:
    """Counts or certificate were missed before, after hundreds of exchanges: the threshold moves until counts hold."""
    columns = tuple(f"x{j}" for j in range(8))
    for seed in (4, 9):
        rng = np.random.default_rng([5, seed])
        w = rng.normal(size=8)
        owners = {}
        for name, number in (("big", 400), ("mid", 150), ("tiny", 3)):
            X = rng.normal(size=(number, 8)) + 0.5 * rng.normal(size=8)
            y = (X @ w + 1.5 * rng.logistic(size=number) > 1).astype(int)
            owners[name] = Rows(X, np.array([1, 1, 0]) if name == "tiny" else y)
        asked = NeymanPearson(label="y", columns=columns, min_recall=0.8, standardize=True)
        found = fp.fit(asked, owners)
        assert found.solved, found.solution.reason
        assert found.solution.certificate.meets(found.solution.tol)
        assert found.model is not None
        for rows in owners.values():
            assert np.mean(found.model.predict(rows.X[rows.y == 1]) == 1) >= 0.8


def test_the_last_step_moves_the_threshold_until_the_counts_hold() -> None:
    """Of a certified model that misses the recall of its owners: as few errors as one threshold for all allows."""
    rng = np.random.default_rng(11)
    owners = {}
    for name in ("a", "b"):
        X = rng.normal(size=(120, 2)) + (0.5 if name == "a" else 0.0)
        owners[name] = Rows(X, (X[:, 0] + rng.logistic(size=120) > 0.5).astype(int))
    asked = NeymanPearson(label="y", columns=("u", "v"), min_recall=0.9).among(("a", "b"))
    with fp.Session() as session:
        session.open({name: HeldSource(name, rows) for name, rows in owners.items()}, asked.identity())
        free = fp.fit(replace(asked, constrained=False), owners)
        certified = Sharpened(replace(asked, width=0.5), free.solution, 2, 1.0)
        path = DecisionPath(session, lambda task, start: free.solution, lambda task: None)
        moved = path.meet_by_threshold(certified, certified)
    assert moved.missed == 0
    scores = {name: asked.design(rows.X) @ free.solution.w for name, rows in owners.items()}
    limits = []
    for name, rows in owners.items():
        own = np.sort(scores[name][rows.y == 1])
        limits.append(own[len(own) - int(np.ceil(0.9 * len(own)))])
    assert moved.task.decide_at == pytest.approx(min(limits), abs=1e-3)
    assert moved.task.decide_at < min(limits)
