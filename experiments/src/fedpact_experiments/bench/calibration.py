"""`fedpact bench calibration`: two ways from scores to probabilities by sums, on rows that neither has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import numpy as np
from scipy.special import expit

import fedpact as fp
from fedpact import data, tasks
from fedpact.data.table import Labels, Matrix
from fedpact.errors import FedpactError
from fedpact.fitting.calibration import calibrate
from fedpact.problem import FederatedProblem
from fedpact.types import Vector
from fedpact_experiments import datasets
from fedpact_experiments.bench.output import MARKDOWN
from fedpact_experiments.options import COUNT, DATA, among
from fedpact_experiments.tables import show_rows

#: Parts of the rows that train the model, calibrate it, and judge the probabilities.
PARTS = (0.6, 0.2, 0.2)
BOUND = 0.2  # on the mean loss of class 1
MAX_GAP = 0.02  # between the mean probabilities of two groups
TOL = 1e-4
#: Bins of equal numbers of rows for the expected calibration error.
JUDGED_BINS = 15
#: Bins of isotonic regression span so many times the usual size of a score, three deviations of a normal distribution;
#: the outer two are open.
SPAN = 4.5
#: A count of fewer rows than this, but of some, is a small cell.
SMALL = 5

Rows = tuple[Matrix, Labels]


@dataclass(frozen=True, eq=False)
class Scores:
    """What an owner calibrates on: its rows as `Share.measures` of a classifier would hold them."""

    X: Matrix
    y: Labels

    @property
    def labels(self) -> Vector:
        return self.y.astype(np.float64)

    def score(self, w: Vector) -> Vector:
        return np.asarray(self.X @ w)

    def __call__(self, w: Vector) -> dict[str, float]:
        return {}


@dataclass(frozen=True, eq=False)
class Trained:
    """A constrained classifier, and the rows kept from it: for calibration by owner, and for judging."""

    w: Vector
    owners: dict[str, Scores]
    X: Matrix
    y: Labels


@dataclass(frozen=True)
class Cost:
    """What probabilities took, and what was told for them.

    exchanges:    with the owners
    numbers:      that each owner adds to, over all exchanges
    small:        of these, counts of 1 to 4 rows at an owner, on average
    small_in_sum: the same in the sum over all owners, which is all that a secure sum shows
    """

    exchanges: int = 0
    numbers: int = 0
    small: float = 0.0
    small_in_sum: int = 0


@dataclass(frozen=True)
class Judged:
    """How good probabilities are, and their cost.

    log_loss, brier: means over rows that were not seen
    error:           expected calibration error: mean distance of probability and rate, over bins of equal size
    """

    log_loss: float
    brier: float
    error: float
    cost: Cost


# ---------------------------------------------------------------------------------------------------------- classifiers


def adult_neyman_pearson(n: int, folder: str | None, seed: int) -> Trained:
    """adult-a, the mean loss of class 1 bounded."""
    table = datasets.adult_a(folder)
    return neyman_pearson(data.with_intercept(data.standardize(table.X)), table.y, n, seed)


def synthetic_neyman_pearson(n: int, folder: str | None, seed: int) -> Trained:
    """Two Gaussian classes, 400 rows an owner, a quarter of them class 1."""
    owners = data.neyman_pearson(n, seed=seed).values()
    X = np.vstack([X for X, _ in owners])
    y = np.concatenate([y for _, y in owners])
    return neyman_pearson(X, y, n, seed)


def adult_fair(n: int, folder: str | None, seed: int) -> Trained:
    """adult-b, both files, the gap between men and women bounded."""
    both = datasets.adult_b(folder)
    clients, server = both.clients, both.server
    assert clients.group is not None
    assert server.group is not None
    group = np.concatenate([clients.group, server.group])
    return fair(np.vstack([clients.X, server.X]), np.concatenate([clients.y, server.y]), group, n, seed)


def compas_fair(n: int, folder: str | None, seed: int) -> Trained:
    """COMPAS, the gap between African-Americans and Caucasians bounded."""
    table = datasets.vertical_compas(folder)
    X = data.with_intercept(data.standardize(table.X))
    return fair(X, table.y, table.group, n, seed)


def neyman_pearson(X: Matrix, y: Labels, n: int, seed: int) -> Trained:
    train, kept, judged = divide(y, seed)
    folds = {f"owner {i}": train[fold] for i, fold in enumerate(data.stratified(y[train], n, seed), 1)}
    problem = tasks.neyman_pearson({name: (X[rows], y[rows]) for name, rows in folds.items()}, BOUND)
    return trained(problem, X, y, kept, judged, n, seed)


def fair(X: Matrix, y: Labels, group: Labels, n: int, seed: int) -> Trained:
    train, kept, judged = divide(y, seed)
    folds = {f"owner {i}": train[fold] for i, fold in enumerate(data.stratified(y[train], n, seed), 1)}
    tables = {name: (X[rows], y[rows], group[rows]) for name, rows in folds.items()}
    ridge = fp.prox.SquaredL2(1e-4)  # one-hot columns depend on each other
    problem = tasks.group_fairness(tables, max_gap=MAX_GAP, parity="equal_opportunity", regularizer=ridge)
    return trained(problem, X, y, kept, judged, n, seed)


def divide(y: Labels, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Rows that train, calibrate and judge, at random."""
    order = np.random.default_rng(seed).permutation(len(y))
    ends = np.cumsum(np.array(PARTS[:-1]) * len(y)).astype(int)
    return np.split(order, ends)


def trained(
    problem: FederatedProblem, X: Matrix, y: Labels, kept: Labels, judged: Labels, n: int, seed: int
) -> Trained:
    answer = fp.solve(problem, tol=TOL, seed=seed)
    if not answer.solved:
        raise FedpactError(f"the classifier was not found: {answer.status}, {answer.reason}")
    parts = data.stratified(y[kept], n, seed)
    owners = {f"owner {i}": Scores(X[kept[part]], y[kept[part]]) for i, part in enumerate(parts, 1)}
    return Trained(answer.w, owners, X[judged], y[judged])


# -------------------------------------------------------------------------------------------------------------- methods


def as_they_are(model: Trained) -> Judged:
    """The logistic function of the score, as of a classifier without constraints."""
    return judge(expit(model.X @ model.w), model.y, Cost())


def platt(model: Trained) -> Judged:
    """Platt scaling, `fedpact.fitting.calibration`."""
    with fp.Session() as session:
        session.open({name: fp.Share(name=name, measures=owner) for name, owner in model.owners.items()})
        found = calibrate(session, model.w)
        exchanges = session.ledger.read().rounds
    if found is None:
        raise FedpactError("the scores do not rise with the label")
    counts = np.array([np.bincount(owner.y, minlength=2) for owner in model.owners.values()])
    numbers = 3 + 6 * (exchanges - 1)
    return judge(found.probabilities(model.X @ model.w), model.y, Cost(exchanges, numbers, *small_cells(counts)))


def without_limit(model: Trained) -> Judged:
    """Platt scaling as published, on pooled rows: scores far away count as they are."""
    from sklearn.linear_model import LogisticRegression

    score = np.concatenate([owner.score(model.w) for owner in model.owners.values()])
    y = np.concatenate([owner.y for owner in model.owners.values()])
    fitted = LogisticRegression(C=np.inf, solver="newton-cholesky").fit(score[:, None], y)
    given = fitted.predict_proba((model.X @ model.w)[:, None])[:, 1]
    return judge(given, model.y, Cost())


def isotonic(model: Trained, bins: int) -> Judged:
    """Isotonic regression of the rates in bins of the score: an exchange for the size of scores, one for the counts."""
    from sklearn.isotonic import IsotonicRegression

    scores = {name: owner.score(model.w) for name, owner in model.owners.items()}
    usual = np.mean(np.sqrt(np.abs(np.concatenate(list(scores.values()))))) ** 2  # as `calibrate` has it
    edges = SPAN * usual * np.linspace(-1, 1, bins - 1)
    middle = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    counts = np.array(
        [count(owner.y, np.searchsorted(edges, scores[name]), bins) for name, owner in model.owners.items()]
    )
    none, some = counts.sum(axis=0)
    rows = none + some
    least = 1 / (rows.sum() + 2)  # no probability is 0 or 1 because of the rows that happened to be there
    regression = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
    full = rows > 0
    regression.fit(middle[full], some[full] / rows[full], sample_weight=rows[full])
    told = counts.reshape(len(counts), -1)
    return judge(regression.predict(model.X @ model.w), model.y, Cost(2, 1 + 2 * bins, *small_cells(told)))


def count(y: Labels, bins_of_rows: Labels, bins: int) -> Matrix:
    """Rows of class 0 and of class 1 in every bin."""
    return np.array([np.bincount(bins_of_rows[y == label], minlength=bins) for label in (0, 1)], dtype=np.float64)


def small_cells(counts: Matrix) -> tuple[float, int]:
    """How many counts are of 1 to 4 rows: at an owner on average, and in the sum. counts: owners x cells"""
    small = (counts > 0) & (counts < SMALL)
    total = counts.sum(axis=0)
    return float(small.sum(axis=1).mean()), int(np.sum((total > 0) & (total < SMALL)))


METHODS: dict[str, Callable[[Trained], Judged]] = {
    "score as it is": as_they_are,
    "Platt": platt,
    "Platt, no limit, pooled": without_limit,
    "isotonic, 10 bins": lambda model: isotonic(model, 10),
    "isotonic, 50 bins": lambda model: isotonic(model, 50),
}
CLASSIFIERS: dict[str, Callable[[int, str | None, int], Trained]] = {
    "synthetic-np": synthetic_neyman_pearson,
    "adult-np": adult_neyman_pearson,
    "adult-fair": adult_fair,
    "compas-fair": compas_fair,
}


def judge(probability: Vector, y: Labels, cost: Cost) -> Judged:
    """Measures of probabilities on rows that were not seen."""
    rows = np.array_split(np.argsort(probability, kind="stable"), JUDGED_BINS)
    off = [len(part) * abs(probability[part].mean() - y[part].mean()) for part in rows]
    right = np.where(y == 1, probability, 1 - probability)
    with np.errstate(divide="ignore"):  # what is certain and wrong has an infinite loss
        log_loss = float(-np.log(right).mean())
    return Judged(log_loss, float(np.mean((probability - y) ** 2)), sum(off) / len(y), cost)


# ---------------------------------------------------------------------------------------------------------- the command


@click.command()
@among("--classifiers", list(CLASSIFIERS))
@click.option("--owners", type=COUNT, default=5, show_default=True, help="Number of owners.")
@click.option("--seeds", type=COUNT, default=5, show_default=True, help="Splits of the rows to average over.")
@DATA
@MARKDOWN
def calibration(classifiers: Sequence[str], owners: int, seeds: int, folder: str | None, markdown: bool) -> None:
    """Probabilities from the scores of constrained classifiers: Platt scaling beside isotonic regression on bins.

    From sums over the owners, on rows that the classifier was not trained on; judged on others. Means over several
    splits of the rows, and in how many of them the log loss is below Platt's. Small cells: counts of 1 to 4 rows, by
    which single people may be known.
    """
    table = []
    for name in classifiers:
        click.echo(f"{name}: {seeds} splits", err=True)
        models = [CLASSIFIERS[name](owners, folder, seed) for seed in range(seeds)]
        judged = {method: [calibrated(model) for model in models] for method, calibrated in METHODS.items()}
        table += [_row(name, method, rows, judged["Platt"]) for method, rows in judged.items()]
    show_rows(table, markdown, text=("method",))


def _row(name: str, method: str, judged: Sequence[Judged], platt: Sequence[Judged]) -> dict[str, str]:
    better = sum(one.log_loss < other.log_loss for one, other in zip(judged, platt, strict=True))
    return {
        "classifier": name,
        "method": method,
        "log loss": f"{np.mean([one.log_loss for one in judged]):.4f}",
        "below Platt's": f"{better} of {len(judged)}",
        "Brier": f"{np.mean([one.brier for one in judged]):.4f}",
        "calibration error": f"{np.mean([one.error for one in judged]):.4f}",
        "exchanges": f"{np.mean([one.cost.exchanges for one in judged]):.1f}",
        "numbers": f"{np.mean([one.cost.numbers for one in judged]):.0f}",
        "small cells, an owner": f"{np.mean([one.cost.small for one in judged]):.1f}",
        "small cells, sum": f"{np.mean([one.cost.small_in_sum for one in judged]):.1f}",
    }
