"""`fedpact bench promises`: how often a promise about rows not yet seen is broken, in simulated federations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter

import click
import numpy as np
from scipy.stats import beta, binom

from fedpact.data.table import Table as Rows
from fedpact.errors import FedpactError
from fedpact.functions import Vector
from fedpact_experiments.bench.decision_baselines import (
    Fitted,
    Method,
    fit_plain,
    logistic_regression,
    plain_with_thresholds,
)
from fedpact_experiments.bench.decision_counts import Goal, Parity, Rule, Tables, pool
from fedpact_experiments.bench.decision_models import our_models
from fedpact_experiments.bench.measure import describe
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.bench.populations import Population, draw_federation
from fedpact_experiments.options import COUNT, TOLERANCE, among, several

PARITIES: tuple[Parity, ...] = ("demographic_parity", "equal_opportunity", "equalized_odds")
QUICK = 3

TITLE = "Promises about rows not yet seen"
INTRODUCTION = """\
Every federation is drawn anew: owners with normal distributions of their own, then rows from them. The true recall,
false positive rate, accuracy and gap of a fitted rule at every owner are normal probabilities, computed and not
estimated. A federation counts as broken when any owner's true value misses what was asked.
"""
CAPTION = """\
broken: share of all federations in which any owner's true recall is below the one asked, or its true gap above. at
most: exact upper bound of that probability, at confidence 95 %. no model: federations in which the method gave none,
since the held-out rows do not bear the promise out; they break nothing, and are not in the columns that follow.
owners: share of all owners that miss it. FPR: true false positive rate, mean over
owners and federations. at the limit: that of the same scores with the limits at which the true recall is exactly the
one asked (for one threshold: at the owner that needs the lowest). accuracy: true, mean. Methods without a confidence
promise nothing: they hold on the training rows. order statistic: half of the rows with y = 1 is kept out of the
training of a plain logistic regression, and the limit is that one of their ordered scores that misses the recall with
the probability left; with own thresholds the owners share that probability.
"""


@dataclass(frozen=True)
class Kept:
    """What became of a promise in all federations of one size; None where it does not apply."""

    problem: str
    owners: int
    rows: int
    goal: str
    method: str
    federations: int
    failed: int
    broken: float | None = None
    at_most: float | None = None
    owners_below: float | None = None
    false_positive_rate: float | None = None
    at_the_limit: float | None = None
    accuracy: float | None = None
    exchanges: float | None = None
    note: str = ""


SHARE = "{:.3f}".format
COLUMNS = {
    "rows an owner": cell("rows"),
    "asked": cell("goal"),
    "method": cell("method"),
    "federations": cell("federations"),
    "no model": cell("failed"),
    "broken": cell("broken", SHARE),
    "at most": cell("at_most", SHARE),
    "owners": cell("owners_below", SHARE),
    "FPR": cell("false_positive_rate", SHARE),
    "at the limit": cell("at_the_limit", SHARE),
    "accuracy": cell("accuracy", SHARE),
    "exchanges": cell("exchanges", "{:.0f}".format),
}


@click.command()
@among("--tables", ["recall", "gaps"])
@click.option("--federations", type=COUNT, default=300, show_default=True, help="Drawn for every row of the table.")
@click.option("--owners", type=COUNT, default=5, show_default=True, help="In a federation.")
@several("--rows", COUNT, [400, 2000], "Rows an owner.")
@click.option("--recall", type=TOLERANCE, default=0.9, show_default=True)
@among("--parities", PARITIES)
@click.option("--gap", type=TOLERANCE, default=0.2, show_default=True)
@click.option("--confidence", type=TOLERANCE, default=0.95, show_default=True, help="Of the promises.")
@click.option("--quick", is_flag=True, help=f"{QUICK} federations of the smallest size: to see that it runs.")
@printing(Kept, PAGE, SEED)
def promises(
    tables: Sequence[str],
    federations: int,
    owners: int,
    rows: Sequence[int],
    recall: float,
    parities: Sequence[Parity],
    gap: float,
    confidence: float,
    quick: bool,
    output: Output,
) -> None:
    """How often an owner's true recall, or true gap, misses what was promised.

    \b
    fedpact bench promises --page promises.md
    fedpact bench promises --tables recall --federations 1000 --rows 400
    fedpact bench promises --quick
    """
    if quick:
        federations = QUICK
        rows = rows[:1]

    def simulate(goals: Sequence[Goal]) -> Iterator[Kept]:
        for n, goal in product(rows, goals):
            for method, fit in methods_for(goal, owners).items():
                click.echo(f"{n} rows an owner: {goal}, {method}", err=True)
                yield _summarize(n, owners, goal, method, run(goal, fit, federations, owners, n, output.seed))

    levels = (None, confidence)
    recall_goals = [Goal(recall=recall, confidence=level) for level in levels]
    gap_goals = [Goal(parity=parity, gap=gap, confidence=level) for parity in parities for level in levels]
    made = {
        "recall": Table(simulate(recall_goals), COLUMNS, CAPTION, title="Recall"),
        "gaps": Table(simulate(gap_goals), COLUMNS, title="Gaps between groups"),
    }
    words = ("method", "asked")
    asked = [replace(made[name], text=words, section=lambda row: (row.rows, row.goal)) for name in tables]
    output.report(*asked, title=TITLE, introduction=INTRODUCTION)


def methods_for(goal: Goal, owners: int) -> dict[str, Method]:
    """Ours, and what is beside it."""
    if goal.recall is None:
        if goal.confidence is None:
            return {"plain": fit_plain, "fedpact": our_models(goal)["fedpact"]}
        return our_models(goal)
    if goal.confidence is None:
        one = plain_with_thresholds(goal.recall, own=False)
        own = plain_with_thresholds(goal.recall, own=True)
        ours = {name: fit for name, fit in our_models(goal).items() if name == "fedpact, one threshold"}
        return {"plain, one threshold": one, "plain, own thresholds": own, **ours}
    missed = 1 - goal.confidence
    return {
        "order statistic, one threshold": order_statistic(goal.recall, missed, own=False),
        "order statistic, own thresholds": order_statistic(goal.recall, missed / owners, own=True),
        **our_models(goal),
    }


# ----------------------------------------------------------------------------------------------------- order statistics


def order_statistic(recall: float, missed: float, own: bool) -> Method:
    """Plain logistic regression with limits from rows that it has not seen.

    missed: probability with which an owner's own limit may miss its recall. One limit for all is the lowest of them;
            for it to miss, that of one given owner must, so this probability is also that of all together.
    """

    def fit(train: Tables) -> Fitted:
        rest = {}
        unseen = {}
        for owner, rows in train.items():
            positive = np.flatnonzero(rows.y == 1)
            held_out = positive[::2]  # rows are drawn in random order
            unseen[owner] = rows.select(held_out)
            rest[owner] = rows.select(np.setdiff1d(np.arange(len(rows.y)), held_out))
        table = pool(rest)
        model = logistic_regression(len(table.y)).fit(table.X, table.y)
        limits = {}
        for owner, rows in unseen.items():
            score = np.sort(model.decision_function(rows.X))
            limits[owner] = float(score[rank_for(len(score), recall, missed)])
        if not own:
            limits = dict.fromkeys(train, min(limits.values()))

        def decide(owner: str, rows: Rows) -> Vector:
            return np.asarray(model.decision_function(rows.X) >= limits[owner], dtype=np.float64)

        return Fitted(decide, coefficients=model.coef_[0])

    return fit


def rank_for(rows: int, recall: float, missed: float) -> int:
    """The largest k for which the k-th of so many ordered scores, from 0, misses the recall with this probability.

    The recall at this score is below the one asked when at most k rows fall below its true limit.
    """
    broken = binom.cdf(np.arange(rows), rows, 1 - recall)
    allowed = np.flatnonzero(broken <= missed)
    if allowed.size == 0:
        raise FedpactError(f"{rows} rows are too few to promise a recall of {recall:g} with probability {1 - missed:g}")
    return int(allowed[-1])


# ------------------------------------------------------------------------------------------------------------ simulated


@dataclass(frozen=True)
class Truth:
    """A rule in one federation: what is true of it, in the mean over the owners."""

    owners_below: float
    accuracy: float
    false_positive_rate: float
    at_the_limit: float | None
    exchanges: int | None


def run(
    goal: Goal, fit: Method, federations: int, owners: int, rows: int, seed: int
) -> tuple[list[Truth], dict[str, int]]:
    """What is true in every federation that has a model, and how many have none, by reason."""
    found = []
    failed: dict[str, int] = {}
    for k in range(federations):
        rng = np.random.default_rng([seed, rows, k])
        populations = draw_federation(owners, rng)
        train = {owner: population.draw(rows, rng) for owner, population in populations.items()}
        try:
            fitted = fit(train)
        except Exception as error:
            reason = re.sub(r"in \d+ solves ", "", describe(error))  # which differ from one federation to the next
            failed[reason] = failed.get(reason, 0) + 1
            continue
        found.append(find_truth(goal, fitted, populations))
    return found, failed


def find_truth(goal: Goal, fitted: Fitted, populations: Mapping[str, Population]) -> Truth:
    """The true rates of a linear rule."""
    assert fitted.coefficients is not None
    w = np.ravel(fitted.coefficients)
    limits = {owner: read_limit(fitted.rule, owner, w) for owner in populations}
    broken = [breaks(goal, population, w, limits[owner]) for owner, population in populations.items()]
    at_the_limit = None
    if goal.recall is not None and np.any(w):
        true_limits = {owner: population.true_limit(w, goal.recall) for owner, population in populations.items()}
        if len(set(limits.values())) == 1:
            true_limits = dict.fromkeys(populations, min(true_limits.values()))
        at_the_limit = _mean_false_positives(populations, w, true_limits)
    return Truth(
        owners_below=float(np.mean(broken)),
        accuracy=float(np.mean([p.accuracy(w, limits[owner]) for owner, p in populations.items()])),
        false_positive_rate=_mean_false_positives(populations, w, limits),
        at_the_limit=at_the_limit,
        exchanges=fitted.exchanges,
    )


def breaks(goal: Goal, population: Population, w: Vector, limit: float) -> bool:
    """Does the owner's true recall or gap miss the goal?"""
    if goal.recall is not None and population.recall(w, limit) < goal.recall:
        return True
    if goal.parity is None or goal.gap is None:
        return False
    return population.gap(w, limit, goal.parity) > goal.gap


def _mean_false_positives(populations: Mapping[str, Population], w: Vector, limits: Mapping[str, float]) -> float:
    return float(np.mean([p.false_positive_rate(w, limits[owner]) for owner, p in populations.items()]))


#: Points asked at once, and how often: the limit is then known to the last digit of its bracket.
POINTS = 1001
REFINEMENTS = 6
#: In deviations of w'x: no owner's mean is this far away.
REACH = 100.0


def read_limit(rule: Rule, owner: str, w: Vector) -> float:
    """The limit of "decide 1 when w'x >= limit", read off the decisions along w: nothing but the rule is trusted.

    Infinite where all rows within REACH are decided alike, as they are where w is zero.
    """
    length = float(np.linalg.norm(w)) or 1.0
    low = -REACH * length
    high = REACH * length
    for _ in range(REFINEMENTS):
        score = np.linspace(low, high, POINTS)
        X = np.outer(score / length**2, w)
        nothing = np.zeros(POINTS, dtype=np.int64)
        decided = rule(owner, Rows(X, nothing, (), nothing))
        if np.all(decided == 1):
            return -np.inf
        if np.all(decided == 0):
            return np.inf
        first = int(np.argmax(decided == 1))
        low = float(score[first - 1])
        high = float(score[first])
    return high


def _summarize(rows: int, owners: int, goal: Goal, method: str, ran: tuple[Sequence[Truth], Mapping[str, int]]) -> Kept:
    found, failed = ran
    missing = sum(failed.values())
    note = ""
    if failed:
        reason, count = max(failed.items(), key=itemgetter(1))
        note = f"{missing} without a model, {count} of them for this reason: {reason}"
    kept = Kept("normal", owners, rows, str(goal), method, len(found) + missing, missing, note=note)
    if not found:
        return kept
    broken = sum(truth.owners_below > 0 for truth in found)
    return replace(
        kept,
        broken=broken / kept.federations,
        at_most=upper_bound(broken, kept.federations),
        owners_below=_mean(truth.owners_below for truth in found),
        false_positive_rate=_mean(truth.false_positive_rate for truth in found),
        at_the_limit=_mean(truth.at_the_limit for truth in found),
        accuracy=_mean(truth.accuracy for truth in found),
        exchanges=_mean(truth.exchanges for truth in found),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return float(np.mean(known))


def upper_bound(hits: int, trials: int, confidence: float = 0.95) -> float:
    """The exact (Clopper-Pearson) upper confidence bound of a probability."""
    if hits == trials:
        return 1.0
    return float(beta.ppf(confidence, hits + 1, trials - hits))
