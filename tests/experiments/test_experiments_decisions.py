"""`fedpact bench decisions` and `promises`: owners of the data sets, rules of others and true rates, computed twice."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix

from fedpact.data.table import Table
from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.decision_baselines import (
    RIDGE,
    Fairlearn,
    Fitted,
    difference_bound,
    fit_plain,
    loss_bounds,
    plain_with_thresholds,
)
from fedpact_experiments.bench.decision_counts import (
    Goal,
    Parity,
    count,
    gap_between_groups,
    lowest_needed,
    pool,
    worth_of_a_row,
)
from fedpact_experiments.bench.decision_models import our_models
from fedpact_experiments.bench.populations import Population, draw_federation
from fedpact_experiments.bench.promises import (
    breaks,
    find_truth,
    order_statistic,
    rank_for,
    read_limit,
    run,
    upper_bound,
)
from fedpact_experiments.datasets import (
    OwnerTables,
    adult_by_workclass,
    communities_by_state,
    compas_by_age_and_charge,
)

pytestmark = [
    pytest.mark.xdist_group("decisions"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:fairlearn"),
]

PARITIES: list[Parity] = ["demographic_parity", "equal_opportunity", "equalized_odds"]


@pytest.fixture(scope="module")
def compas(data_folder: Path) -> OwnerTables:
    return compas_by_age_and_charge(data_folder)


def bench_run(*args: str) -> Result:
    return CliRunner().invoke(bench, args)


def cells(data: OwnerTables) -> Counter[tuple[str, int, int]]:
    """How many rows an owner has of every class and group, in train and test together."""
    counted: Counter[tuple[str, int, int]] = Counter()
    for part in (data.train, data.test):
        for owner, table in part.items():
            assert table.group is not None
            counted.update((owner, int(y), int(g)) for y, g in zip(table.y, table.group, strict=True))
    return counted


def assert_scaled(data: OwnerTables, columns: int) -> None:
    train = pool(data.train)
    assert train.X.shape[1] == columns == len(train.columns)
    np.testing.assert_allclose(train.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(train.X.std(axis=0), 1)


def assert_split_within(data: OwnerTables) -> None:
    for owner, table in data.train.items():
        rows = len(table.y) + len(data.test[owner].y)
        assert abs(len(table.y) - 0.7 * rows) <= 0.5


# -------------------------------------------------------------------------------------------------------------- loaders


def adult_records(folder: Path) -> list[list[str]]:
    with (folder / "adult.data").open() as file:
        records = [[field.strip() for field in record] for record in csv.reader(file) if record]
    return [record for record in records if "?" not in record]


def test_adult_by_workclass(data_folder: Path) -> None:
    records = adult_records(data_folder)
    assert len(records) == 30162
    assert all(record[14] == "<=50K" for record in records if record[1] == "Without-pay")
    owners = ["Self-emp-not-inc" if record[1] == "Without-pay" else record[1] for record in records]
    kinds = [(int(record[14] == ">50K"), int(record[9] == "Male")) for record in records]
    data = adult_by_workclass(data_folder)
    assert cells(data) == Counter((owner, *kind) for owner, kind in zip(owners, kinds, strict=True))
    assert len(data.train) == 6
    drawn = np.random.default_rng(1).random(30162) < 0.7
    trained = Counter(owner for owner, chosen in zip(owners, drawn, strict=True) if chosen)
    assert {owner: len(table.y) for owner, table in data.train.items()} == trained
    levels = {field: len({record[field] for record in records}) - 1 for field in (5, 6, 7, 8, 1)}  # the one-hot fields
    assert 6 + 1 + sum(levels.values()) == 41
    assert_scaled(data, columns=41)
    assert_scaled(adult_by_workclass(data_folder, workclass=False), columns=41 - levels[1])


def test_plain_thresholds_on_adult_have_the_specificities_found_elsewhere(data_folder: Path) -> None:
    """scikit-learn alone on columns built here, in other units and with hardly any ridge."""
    records = adult_records(data_folder)
    fields = list(zip(*records, strict=True))
    numbers = np.column_stack([np.array(fields[j], dtype=float) for j in (0, 2, 4, 10, 11, 12)])
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    categories = [np.array(fields[j])[:, None] == sorted(set(fields[j]))[1:] for j in (5, 6, 7, 8, 1, 9)]
    X = np.column_stack([numbers, *categories])
    assert X.shape == (30162, 41)
    y = np.array(fields[14]) == ">50K"
    owner = np.array(["Self-emp-not-inc" if name == "Without-pay" else name for name in fields[1]])
    train = np.random.default_rng(1).random(30162) < 0.7
    score = LogisticRegression(C=1e3, max_iter=2000).fit(X[train], y[train]).decision_function(X)
    expected = []
    for name in np.unique(owner):
        positives = np.sort(score[train & (owner == name) & y])
        limit = positives[int(0.2 * len(positives))]
        expected.append([np.mean(score[part & (owner == name) & ~y] < limit) for part in (train, ~train)])
    data = adult_by_workclass(data_folder)
    rule = plain_with_thresholds(0.8, own=True)(data.train).rule
    found = [count(rule, part).specificity for part in (data.train, data.test)]
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=0.005)


def test_a_workclass_column_is_an_intercept_of_its_owner(data_folder: Path) -> None:
    data = adult_by_workclass(data_folder)
    for owner in ("Local-gov", "Private", "Self-emp-inc", "State-gov"):  # Federal-gov is the level left out
        table = data.test[owner]
        values = table.X[:, table.columns.index(f"workclass={owner}")]
        assert np.ptp(values) == 0
        assert values[0] > 0


@pytest.mark.parametrize(("group", "field", "one"), [("race", "race", "African-American"), ("sex", "sex", "Male")])
def test_compas_by_age_and_charge(data_folder: Path, group: str, field: str, one: str) -> None:
    with (data_folder / "compas-scores-two-years.csv").open(encoding="utf-8-sig", newline="") as file:
        kept = [
            record
            for record in csv.DictReader(file)
            if record["race"] in ("African-American", "Caucasian")
            and record["days_b_screening_arrest"]
            and -30 <= float(record["days_b_screening_arrest"]) <= 30
            and record["is_recid"] != "-1"
            and record["c_charge_degree"] != "O"
            and record["score_text"] != "N/A"
        ]
    assert len(kept) == 5278
    ages = {"Less than 25": "under 25", "25 - 45": "25 to 45", "Greater than 45": "over 45"}
    degrees = {"F": "felony", "M": "misdemeanor"}
    expected = Counter(
        (f"{ages[r['age_cat']]}, {degrees[r['c_charge_degree']]}", int(r["two_year_recid"]), int(r[field] == one))
        for r in kept
    )
    data = compas_by_age_and_charge(data_folder, group=group)  # type: ignore[arg-type]
    assert cells(data) == expected
    assert len(data.train) == 6
    assert_scaled(data, columns=19)
    assert_split_within(data)


def test_communities_by_state(data_folder: Path) -> None:
    with (data_folder / "communities.data").open(newline="") as file:
        records = list(csv.reader(file))
    assert len(records) == 1994
    black = 7  # of communities.names, from 0
    crimes = sorted(float(record[-1]) for record in records)
    shares = sorted(float(record[black]) for record in records)
    middle_crime = (crimes[996] + crimes[997]) / 2
    middle_share = (shares[996] + shares[997]) / 2
    data = communities_by_state(data_folder)
    expected: Counter[tuple[str, int, int]] = Counter()
    for record in records:
        state = int(record[0])
        (owner,) = [name for name in data.train if int(name[7:9]) <= state <= int(name[-2:])]
        expected[owner, int(float(record[-1]) > middle_crime), int(float(record[black]) > middle_share)] += 1
    assert cells(data) == expected
    sizes = Counter[str]()
    for (owner, _, _), rows in expected.items():
        sizes[owner] += rows
    assert len(sizes) == 6
    assert max(sizes.values()) < 1.5 * min(sizes.values())
    assert_scaled(data, columns=99)
    assert_split_within(data)


def test_another_seed_draws_other_rows_of_the_same_owners(data_folder: Path, compas: OwnerTables) -> None:
    other = compas_by_age_and_charge(data_folder, seed=2)
    assert cells(other) == cells(compas)
    assert any(not np.array_equal(other.train[owner].y, compas.train[owner].y) for owner in compas.train)


# ------------------------------------------------------------------------------------------------------------- counting


def test_counts_are_those_of_scikit_learn_and_fairlearn(compas: OwnerTables) -> None:
    metrics = pytest.importorskip("fairlearn.metrics", reason="needs fairlearn")
    fitted = fit_plain(compas.train)
    rates = []
    for owner, table in compas.test.items():
        (tn, fp), (fn, tp) = confusion_matrix(table.y, fitted.rule(owner, table))
        rates.append((tn / (tn + fp), tp / (tp + fn)))
    everything = pool(compas.test)
    decided = fitted.rule("any", everything)
    counted = count(fitted.rule, compas.test, "equal_opportunity")
    assert counted.specificity == pytest.approx(np.mean([specificity for specificity, _ in rates]))
    assert counted.worst_recall == pytest.approx(min(recall for _, recall in rates))
    assert counted.accuracy == pytest.approx(accuracy_score(everything.y, decided))
    theirs = {
        "demographic_parity": metrics.demographic_parity_difference,
        "equal_opportunity": metrics.equal_opportunity_difference,
        "equalized_odds": metrics.equalized_odds_difference,
    }
    for parity in PARITIES:
        expected = theirs[parity](everything.y, decided, sensitive_features=everything.group)
        assert gap_between_groups(decided, everything, parity) == pytest.approx(expected)


def test_one_row_changes_a_gap_by_at_most_its_worth() -> None:
    y = np.array([1, 1, 1, 0, 0, 1, 1, 0])
    group = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    table = Table(np.zeros((8, 1)), y, ("x",), group)
    decided = np.array([1.0, 0, 1, 0, 1, 0, 1, 0])
    for parity in PARITIES:
        before = gap_between_groups(decided, table, parity)
        changes = []
        for row in range(8):
            other = decided.copy()
            other[row] = 1 - other[row]
            changes.append(abs(gap_between_groups(other, table, parity) - before))
        assert max(changes) <= worth_of_a_row({"all": table}, parity) + 1e-12
    assert worth_of_a_row({"all": table}, "equal_opportunity") == 1 / 2


@pytest.mark.parametrize("recall", [0.5, 0.8, 0.9, 0.95])
def test_no_higher_limit_has_the_recall(recall: float) -> None:
    score = np.random.default_rng(3).normal(size=30)
    limit = lowest_needed(score, recall)
    assert np.mean(score >= limit) >= recall
    assert np.mean(score > limit) < recall


# ------------------------------------------------------------------------------------------------------------ baselines


def test_plain_thresholds_against_a_search_over_all_scores(compas: OwnerTables) -> None:
    train = pool(compas.train)
    model = LogisticRegression(C=1 / (RIDGE * len(train.y)), max_iter=5000, tol=1e-8).fit(train.X, train.y)
    lowest = np.inf
    expected = {}
    for owner, table in compas.train.items():
        score = model.decision_function(table.X)
        holding = [s for s in score if np.mean(score[table.y == 1] >= s) >= 0.8]
        lowest = min(lowest, max(holding))
        expected[owner] = np.mean(score[table.y == 0] < max(holding))
    common = count(plain_with_thresholds(0.8, own=False)(compas.train).rule, compas.train)
    own = count(plain_with_thresholds(0.8, own=True)(compas.train).rule, compas.train)
    assert own.specificity == pytest.approx(np.mean(list(expected.values())), abs=0.005)
    specificities = [
        np.mean(model.decision_function(table.X[table.y == 0]) < lowest) for table in compas.train.values()
    ]
    assert common.specificity == pytest.approx(np.mean(specificities), abs=0.005)
    assert min(own.worst_recall, common.worst_recall) >= 0.8


def test_loss_bounds_have_the_recall_at_every_owner(compas: OwnerTables) -> None:
    fitted = loss_bounds(0.8)(compas.train)
    counted = count(fitted.rule, compas.train)
    assert counted.worst_recall >= 0.8
    # a model that decides 1 for everyone has the recall too; one threshold for all is what bounds must beat here
    assert (
        counted.specificity > count(plain_with_thresholds(0.8, own=False)(compas.train).rule, compas.train).specificity
    )
    assert fitted.exchanges is not None
    assert fitted.exchanges > 0


@pytest.mark.parametrize("parity", PARITIES)
def test_fairlearn_rules_against_fairlearn_itself(compas: OwnerTables, parity: Parity) -> None:
    reductions = pytest.importorskip("fairlearn.reductions", reason="needs fairlearn")
    table = pool(compas.train)
    everything = {"all": table}
    moments = {
        "demographic_parity": reductions.DemographicParity,
        "equal_opportunity": reductions.TruePositiveRateParity,
        "equalized_odds": reductions.EqualizedOdds,
    }
    learner = LogisticRegression(C=1 / (RIDGE * len(table.y)), max_iter=1000, tol=1e-6)
    moment = moments[parity](difference_bound=difference_bound(0.05, everything, parity))
    model = reductions.ExponentiatedGradient(learner, moment, max_iter=6)
    model.fit(table.X, table.y, sensitive_features=table.group)
    theirs = Fairlearn(everything, parity, [0.05], iterations=6, grid=6)
    fitted = {name: method(compas.train) for name, method in theirs.methods(0.05).items() if "best" not in name}
    test = pool(compas.test)
    weights = [model.weights_[k] for k in range(len(model.predictors_))]
    assert sum(weights) == pytest.approx(1)
    mixed = np.sum([weight * model.predictors_[k].predict(test.X) for k, weight in enumerate(weights)], axis=0)
    expected = fitted["fairlearn ExponentiatedGradient (randomized)"].rule("any", test)
    np.testing.assert_allclose(mixed, expected, atol=1e-12)
    heaviest = model.predictors_[int(np.argmax(weights))]
    told = fitted["fairlearn ExponentiatedGradient, heaviest"].rule("any", test)
    np.testing.assert_array_equal(told, heaviest.predict(test.X))
    moved = fitted["fairlearn ThresholdOptimizer (randomized)"].rule("any", table)
    assert gap_between_groups(moved, table, parity) <= 0.05 + worth_of_a_row({"all": table}, parity)
    assert np.all((moved >= 0) & (moved <= 1))


def test_exponentiated_gradient_is_asked_for_the_gap_between_groups(compas: OwnerTables) -> None:
    """Once with all rows in one place, where the gap is then the bound, and once at every owner."""
    pytest.importorskip("fairlearn", reason="needs fairlearn")
    name = "fairlearn ExponentiatedGradient (randomized)"
    everything = {"all": pool(compas.train)}
    at_one = Fairlearn(everything, "demographic_parity", [0.05], grid=3)
    counted = count(at_one.methods(0.05)[name](everything).rule, everything, "demographic_parity")
    assert counted.worst_gap == pytest.approx(0.05, abs=0.01)  # its tolerance nu is of this size
    at_six = Fairlearn(compas.train, "demographic_parity", [0.05], grid=3)
    told = count(at_six.methods(0.05)[name](compas.train).rule, compas.train, "demographic_parity")
    untold = count(at_one.methods(0.05)[name](everything).rule, compas.train, "demographic_parity")
    assert told.worst_gap is not None
    assert untold.worst_gap is not None
    assert told.worst_gap < untold.worst_gap / 2


def test_the_best_visited_model_is_the_best_of_those_that_hold(compas: OwnerTables) -> None:
    pytest.importorskip("fairlearn", reason="needs fairlearn")
    table = pool(compas.train)
    theirs = Fairlearn({"all": table}, "demographic_parity", [0.1], iterations=10, grid=20)
    worth = worth_of_a_row({"all": table}, "demographic_parity")
    best = -1.0
    for model in [*theirs.grid[0].predictors_, *theirs.gradients[0.1][0].predictors_]:
        decided = model.predict(table.X)
        gap = abs(decided[table.group == 1].mean() - decided[table.group == 0].mean())
        if gap <= 0.1 + worth:
            best = max(best, np.mean(decided == table.y))
    found = theirs.methods(0.1)["fairlearn, best single model visited"](compas.train)
    counted = count(found.rule, {"all": table}, "demographic_parity")
    assert counted.accuracy == pytest.approx(best)
    assert counted.worst_gap is not None
    assert counted.worst_gap <= 0.1 + worth


def test_our_models_meet_a_recall(compas: OwnerTables) -> None:
    fitted = our_models(Goal(recall=0.8))["fedpact, one threshold"](compas.train)
    assert count(fitted.rule, compas.train).worst_recall >= 0.8
    assert fitted.exchanges is not None
    assert fitted.exchanges > 0


# ---------------------------------------------------------------------------------------------------------- populations


@pytest.fixture(scope="module")
def population() -> Population:
    return draw_federation(1, np.random.default_rng(5))["owner 1"]


W = np.array([1.0, -0.5, 0.3, 0.8, -1.2])


def test_true_rates_against_monte_carlo(population: Population) -> None:
    table = population.draw(400_000, np.random.default_rng(6))
    assert table.group is not None
    decided = (table.X @ W >= 0.2).astype(float)
    margin = 0.008  # four deviations of a rate over the 60,000 rows of the smallest cell
    for y in (0, 1):
        for g in (0, 1):
            inside = (table.y == y) & (table.group == g)
            assert decided[inside].mean() == pytest.approx(population.decided(W, 0.2)[y, g], abs=margin)
            assert inside.mean() == pytest.approx(population.joint()[y, g], abs=margin)
    assert decided[table.y == 1].mean() == pytest.approx(population.recall(W, 0.2), abs=margin)
    assert decided[table.y == 0].mean() == pytest.approx(population.false_positive_rate(W, 0.2), abs=margin)
    assert np.mean(decided == table.y) == pytest.approx(population.accuracy(W, 0.2), abs=margin)
    for parity in PARITIES:
        assert gap_between_groups(decided, table, parity) == pytest.approx(
            population.gap(W, 0.2, parity), abs=2 * margin
        )


def test_at_the_true_limit_the_recall_is_exact(population: Population) -> None:
    for recall in (0.5, 0.9, 0.99):
        assert population.recall(W, population.true_limit(W, recall)) == pytest.approx(recall, abs=1e-10)


def test_the_limit_is_read_off_the_decisions() -> None:
    limits = {"a": 0.7301, "b": -2.5}

    def rule(owner: str, table: Table) -> NDArray[np.float64]:
        return np.asarray(limits[owner] <= table.X @ W, dtype=np.float64)

    for owner, limit in limits.items():
        assert read_limit(rule, owner, W) == pytest.approx(limit, abs=1e-9)


def test_a_rule_that_decides_alike_for_all_has_an_infinite_limit(population: Population) -> None:
    everyone = read_limit(lambda owner, table: np.ones(len(table.X)), "a", W)
    nobody = read_limit(lambda owner, table: np.zeros(len(table.X)), "a", W)
    assert population.recall(W, everyone) == population.false_positive_rate(W, everyone) == 1
    assert population.recall(W, nobody) == population.false_positive_rate(W, nobody) == 0
    assert read_limit(lambda owner, table: np.ones(len(table.X)), "a", 0 * W) == -np.inf


def test_truth_counts_owners_that_miss(population: Population) -> None:
    limit = population.true_limit(W, 0.9)
    limits = {"kept": limit - 0.01, "broken": limit + 0.01}
    fitted = Fitted(lambda owner, table: (limits[owner] <= table.X @ W).astype(float), 7, W)
    truth = find_truth(Goal(recall=0.9), fitted, {"kept": population, "broken": population})
    assert truth.owners_below == 0.5
    assert truth.exchanges == 7
    assert truth.at_the_limit == pytest.approx(population.false_positive_rate(W, limit))
    for parity in PARITIES:
        gap = population.gap(W, limit, parity)
        assert breaks(Goal(parity=parity, gap=gap - 1e-6), population, W, limit)
        assert not breaks(Goal(parity=parity, gap=gap + 1e-6), population, W, limit)


# ------------------------------------------------------------------------------------------------------------- promises


def test_the_rank_is_the_largest_that_keeps_the_promise() -> None:
    assert rank_for(29, 0.9, 0.05) == 0  # 0.9^29 = 0.047, and 28 rows would not do
    with pytest.raises(Exception, match="28 rows"):
        rank_for(28, 0.9, 0.05)
    rank = rank_for(200, 0.9, 0.05)
    assert binom.cdf(rank, 200, 0.1) <= 0.05 < binom.cdf(rank + 1, 200, 0.1)


def test_the_rank_by_simulation() -> None:
    """Of uniform scores the recall at limit t is 1 - t."""
    rng = np.random.default_rng(8)
    limits = np.sort(rng.random((20_000, 60)), axis=1)[:, rank_for(60, 0.9, 0.05)]
    assert np.mean(1 - limits < 0.9) == pytest.approx(binom.cdf(rank_for(60, 0.9, 0.05), 60, 0.1), abs=0.006)


@pytest.mark.parametrize("own", [False, True])
def test_order_statistics_keep_what_training_rows_break(own: bool) -> None:
    goal = Goal(recall=0.9)
    missed = 0.05
    if own:
        missed /= 3
    found, failed = run(goal, order_statistic(0.9, missed, own), 40, 3, 300, seed=0)
    assert failed == {}
    broken = sum(truth.owners_below > 0 for truth in found)
    assert binom.sf(broken - 1, 40, 0.05) > 1e-4  # not refuted: at most 5 % are broken
    naive, _ = run(goal, plain_with_thresholds(0.9, own), 40, 3, 300, seed=0)
    assert sum(truth.owners_below > 0 for truth in naive) > 15
    for truth in found:
        assert truth.at_the_limit is not None


def test_the_upper_bound_is_the_exact_binomial_one() -> None:
    assert binom.cdf(4, 300, upper_bound(4, 300)) == pytest.approx(0.05)
    assert upper_bound(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert upper_bound(3, 3) == 1


# ------------------------------------------------------------------------------------------------------------- commands


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_quick_decisions_and_their_page(data_folder: Path, tmp_path: Path, compas: OwnerTables) -> None:
    pytest.importorskip("fairlearn", reason="needs fairlearn")
    page = tmp_path / "decisions.md"
    page.write_text("# Old\n\n## Remarks\n\nKept by hand.\n")
    where = ["--page", str(page), "--csv", str(tmp_path / "rows.csv"), "--data", str(data_folder)]
    done = bench_run("decisions", "--quick", "--markdown", *where)
    assert done.exit_code == 0, done.output
    rows = read(tmp_path / "rows.csv")
    plain = {row["method"]: row for row in rows if row["goal"] == "recall 0.8"}["plain, own thresholds"]
    counted = count(plain_with_thresholds(0.8, own=True)(compas.train).rule, compas.test)
    assert float(plain["specificity_test"]) == counted.specificity
    assert float(plain["worst_recall_test"]) == counted.worst_recall
    pooled = [row for row in rows if row["owners"] == "1" and row["method"] == "plain"]
    table = pool(compas.test)
    expected = gap_between_groups(fit_plain(compas.train).rule("any", table), table, "demographic_parity")
    assert float(pooled[0]["gap_test"]) == pytest.approx(expected)
    assert pooled[0]["status"] == "not met"
    text = page.read_text()
    (typed,) = [line for line in text.splitlines() if line.startswith("fedpact bench")]
    assert set(typed.split()) == {"fedpact", "bench", "decisions", "--data", "DIR", "--quick", "--markdown"}
    assert str(tmp_path) not in text
    assert str(data_folder) not in text
    assert text.endswith("## Remarks\n\nKept by hand.\n")
    assert text.count("\n## ") >= 4


def test_missing_data_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPACT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = bench_run("decisions", "--tables", "recall", "--problems", "compas", "--data", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "compas-scores-two-years.csv" in done.output


def test_quick_promises(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = bench_run("promises", "--quick", "--tables", "recall", "--csv", str(path))
    assert done.exit_code == 0, done.output
    rows = {(row["goal"], row["method"]): row for row in read(path)}
    row = rows["recall 0.9", "plain, own thresholds"]
    found, _ = run(Goal(recall=0.9), plain_with_thresholds(0.9, own=True), 3, 5, 400, seed=0)
    assert float(row["false_positive_rate"]) == pytest.approx(np.mean([t.false_positive_rate for t in found]))
    assert row["federations"] == "3"
    ours = rows["recall 0.9", "fedpact, one threshold"]
    assert ours["failed"] == "0"
    assert float(ours["exchanges"]) > 0
