"""`fedpact bench decisions`: what is decided, counted, beside the rules that others would use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import click

from fedpact.errors import DataError
from fedpact_experiments.bench.decision_baselines import (
    Fairlearn,
    Fitted,
    Method,
    fit_plain,
    loss_bounds,
    plain_with_thresholds,
)
from fedpact_experiments.bench.decision_counts import Goal, Parity, count, gaps_hold, pool, worth_of_a_row
from fedpact_experiments.bench.decision_models import our_models
from fedpact_experiments.bench.measure import describe
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.datasets import (
    OwnerTables,
    adult_by_workclass,
    communities_by_state,
    compas_by_age_and_charge,
)
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

SETS: dict[str, Callable[[str | None], OwnerTables]] = {
    "adult": adult_by_workclass,
    "adult-blind": partial(adult_by_workclass, workclass=False),
    "compas": compas_by_age_and_charge,
    "communities": communities_by_state,
}
#: The gaps are measured on these: communities has too few rows of a group at an owner.
GAP_SETS = ("adult", "compas")
PARITIES: tuple[Parity, ...] = ("demographic_parity", "equal_opportunity", "equalized_odds")
#: Recall and gap together.
BOTH = Goal(recall=0.8, parity="equal_opportunity", gap=0.05)

TITLE = "Decisions at every owner"
INTRODUCTION = """\
Recall and gaps between groups are counted on what a model decides, on the training rows of every owner and on rows
that no method has seen. Adult has six owners by workclass, which is also among its columns and is not in adult-blind,
COMPAS six by age group and degree of the charge, Communities and Crime six by state; 30 % of the rows are kept
aside. Rows marked fairlearn and plain are fitted on the pooled training rows, with the same logistic model and
ridge.
"""
RECALL_CAPTION = """\
specificity: mean over the owners of the share of rows with y = 0 that are decided 0, given that every owner's recall
is at least the one asked on its training rows. worst recall: of the owner where it is lowest. plain: logistic
regression on pooled rows, its threshold as high as the recall allows, one for all or one for each owner. loss bounds:
every owner's mean loss on its rows with y = 1 is bounded, the bounds sought so that the recall holds, from plain
logistic regression on, whose exchanges are not counted. own intercepts: every owner has one of its own, which it keeps
for itself, and so a threshold of its own. exchanges: one message down and one up, with every owner;
none where rows were pooled.
"""
GAP_CAPTION = """\
gap: the largest difference between the two groups, at the owner where it is largest; with one owner that of all rows.
a row: how much one training row can change it. met: the gap of every owner is at most the bound and one row's worth.
accuracy: of all rows. Rules marked randomized decide by chance, and their numbers are expected values;
ThresholdOptimizer must also be told the group of whom it decides about. ExponentiatedGradient is told the owner as a
control feature, and a bound at which the gap between the groups is the one asked. heaviest: the single model it asks
most often. best single model visited: the most accurate one of all models that ExponentiatedGradient (at all bounds)
and GridSearch fitted, among those that meet the goal. fedpact minimises the loss, as plain does, then goes on to
errors where this saves more training errors than overfitting explains; least loss, fewest errors: the one or the other
in any case.
"""


@dataclass(frozen=True)
class Decided:
    """A rule on one data set: what it decides on training rows and on rows kept aside; None where it does not apply."""

    problem: str
    owners: int
    goal: str
    method: str
    status: str
    specificity_train: float | None = None
    specificity_test: float | None = None
    worst_recall_train: float | None = None
    worst_recall_test: float | None = None
    gap_train: float | None = None
    gap_test: float | None = None
    row: float | None = None
    accuracy_train: float | None = None
    accuracy_test: float | None = None
    exchanges: int | None = None
    seconds: float | None = None
    note: str = ""


SHARE = "{:.3f}".format
WHO = {"data": cell("problem"), "n": cell("owners"), "asked": cell("goal"), "method": cell("method")}
SPECIFICITY = {
    "specificity, train": cell("specificity_train", SHARE),
    "specificity, test": cell("specificity_test", SHARE),
    "worst recall, train": cell("worst_recall_train", SHARE),
    "worst recall, test": cell("worst_recall_test", SHARE),
}
GAP = {
    "gap, train": cell("gap_train", "{:.4f}".format),
    "gap, test": cell("gap_test", "{:.4f}".format),
    "a row": cell("row", "{:.4f}".format),
}
ACCURACY = {"accuracy, train": cell("accuracy_train", SHARE), "accuracy, test": cell("accuracy_test", SHARE)}
COST = {
    "exchanges": cell("exchanges"),
    "seconds": cell("seconds", "{:.1f}".format),
    "status": cell("status"),
}


@click.command()
@among("--tables", ["recall", "gaps", "both"])
@among("--problems", list(SETS))
@several("--recalls", TOLERANCE, [0.8, 0.9], "Recalls asked at every owner.")
@among("--parities", PARITIES)
@several("--bounds", TOLERANCE, [0.05, 0.02, 0.01], "Gaps allowed.")
@several("--owners", click.Choice(["1", "6"]), [1, 6], "Of the gaps: all rows in one place, or at six owners.")
@click.option("--iterations", type=COUNT, default=50, show_default=True, help="Of fairlearn's ExponentiatedGradient.")
@click.option("--grid", type=COUNT, default=75, show_default=True, help="Points of fairlearn's GridSearch.")
@click.option("--quick", is_flag=True, help="COMPAS, one recall, one parity, one bound: to see that it runs.")
@printing(Decided, PAGE, DATA)
def decisions(
    tables: Sequence[str],
    problems: Sequence[str],
    recalls: Sequence[float],
    parities: Sequence[Parity],
    bounds: Sequence[float],
    owners: Sequence[str],
    iterations: int,
    grid: int,
    quick: bool,
    output: Output,
) -> None:
    """Specificity at a recall, and accuracy at a gap between groups, that hold at every owner.

    Counted on training rows and on rows kept aside, beside plain logistic regression with thresholds and fairlearn.

    \b
    fedpact bench decisions --data DIR --page decisions.md
    fedpact bench decisions --data DIR --tables recall --problems adult
    fedpact bench decisions --data DIR --tables gaps --parities equal_opportunity --bounds 0.02
    fedpact bench decisions --data DIR --quick

    Data sets that are not there are skipped, and a line says where to get them.
    """
    if quick:
        problems = ["compas"]
        recalls = recalls[:1]
        parities = parities[:1]
        bounds = bounds[:1]
        iterations = 5
        grid = 5
    sets = _load(problems, output)
    gap_sets = {name: data for name, data in sets.items() if name in GAP_SETS}

    def recall_rows() -> Iterator[Decided]:
        for name, recall in product(sets, recalls):
            yield from measure_recall(name, sets[name], recall)

    def gap_rows() -> Iterator[Decided]:
        for name, parity in product(gap_sets, parities):
            yield from measure_gaps(name, gap_sets[name], parity, bounds, list(map(int, owners)), iterations, grid)

    def both_rows() -> Iterator[Decided]:
        for name in gap_sets:
            yield from measure_both(name, gap_sets[name])

    made = {
        "recall": Table(recall_rows(), {**WHO, **SPECIFICITY, **COST}, RECALL_CAPTION, title="Specificity at a recall"),
        "gaps": Table(gap_rows(), {**WHO, **GAP, **ACCURACY, **COST}, GAP_CAPTION, title="Accuracy at a gap"),
        "both": Table(both_rows(), {**WHO, **SPECIFICITY, **GAP, **COST}, title="A recall and a gap together"),
    }
    words = ("method", "asked", "status")
    asked = [replace(made[name], text=words, section=_section) for name in tables]
    output.report(*asked, title=TITLE, introduction=INTRODUCTION)


def _section(row: Decided) -> object:
    return (row.problem, row.owners, row.goal)


def _load(problems: Sequence[str], output: Output) -> dict[str, OwnerTables]:
    loaded = {}
    for name in problems:
        try:
            loaded[name] = SETS[name](output.folder)
        except DataError as error:
            output.skip(name, error)
    return loaded


def measure_recall(name: str, data: OwnerTables, recall: float) -> Iterator[Decided]:
    """The rows of one recall."""
    goal = Goal(recall=recall)
    methods = {
        "plain, one threshold": plain_with_thresholds(recall, own=False),
        "plain, own thresholds": plain_with_thresholds(recall, own=True),
        "loss bounds": loss_bounds(recall),
        **our_models(goal),
    }
    for method, fit in methods.items():
        yield measure(name, data, goal, method, fit)


def measure_gaps(
    name: str,
    data: OwnerTables,
    parity: Parity,
    bounds: Sequence[float],
    owners: Sequence[int],
    iterations: int,
    grid: int,
) -> Iterator[Decided]:
    """The rows of one parity: for every number of owners and bound, plain, fairlearn's and ours."""
    plain = fit_plain(data.train)
    for n in owners:
        counted = data
        if n == 1:
            counted = OwnerTables({"all": pool(data.train)}, {"all": pool(data.test)})
        click.echo(f"{name}, n = {n}: fairlearn, {parity}", err=True)
        theirs = Fairlearn(counted.train, parity, bounds, iterations=iterations, grid=grid)
        for bound in bounds:
            goal = Goal(parity=parity, gap=bound)
            methods = {"plain": lambda train: plain, **theirs.methods(bound), **our_models(goal)}
            for method, fit in methods.items():
                yield measure(name, counted, goal, method, fit)


def measure_both(name: str, data: OwnerTables) -> Iterator[Decided]:
    """The rows of a recall and a gap together."""
    assert BOTH.recall is not None
    methods = {"plain, one threshold": plain_with_thresholds(BOTH.recall, own=False), **our_models(BOTH)}
    for method, fit in methods.items():
        yield measure(name, data, BOTH, method, fit)


def measure(name: str, data: OwnerTables, goal: Goal, method: str, fit: Method) -> Decided:
    """Fit and count. A method that fails has a row that says so: it must not cost the others."""
    click.echo(f"{name}, n = {len(data.train)}: {goal}, {method}", err=True)
    row = Decided(name, len(data.train), str(goal), method, "no model")
    began = time.perf_counter()
    try:
        fitted = fit(data.train)
    except Exception as error:
        return replace(row, seconds=time.perf_counter() - began, note=describe(error))
    seconds = fitted.seconds
    if seconds is None:
        seconds = time.perf_counter() - began
    return replace(_counted(row, data, goal, fitted), seconds=seconds)


def _counted(row: Decided, data: OwnerTables, goal: Goal, fitted: Fitted) -> Decided:
    """The row with what the rule decides; its status says whether the goal is met on the training rows."""
    train = count(fitted.rule, data.train, goal.parity)
    test = count(fitted.rule, data.test, goal.parity)
    worth = None
    if goal.parity is not None:
        worth = worth_of_a_row(data.train, goal.parity)
    met = goal.recall is None or train.worst_recall >= goal.recall
    if goal.parity is not None and goal.gap is not None:
        met = met and gaps_hold(fitted.rule, data.train, goal.parity, goal.gap)
    status = "not met"
    if met:
        status = "met"
    return replace(
        row,
        status=status,
        specificity_train=train.specificity,
        specificity_test=test.specificity,
        worst_recall_train=train.worst_recall,
        worst_recall_test=test.worst_recall,
        gap_train=train.worst_gap,
        gap_test=test.worst_gap,
        row=worth,
        accuracy_train=train.accuracy,
        accuracy_test=test.accuracy,
        exchanges=fitted.exchanges,
        note=fitted.note,
    )
