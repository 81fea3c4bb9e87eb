"""Every task on one set of small tables, beside plain formulas and counts; a new task is one more line of `TASKS`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

import fedpact as fp
from fedpact import data, tasks
from fedpact.tasks import (
    Classification,
    ClassTask,
    Custom,
    FileSource,
    GroupFairness,
    LinearQP,
    Minimax,
    NeymanPearson,
    Regression,
    Task,
)

COLUMNS = ("age", "dose", "weight")
NAMES = ("north", "south", "west")
BOUND, WEIGHT = 0.4, 0.3


@dataclass(frozen=True)
class Rows:
    """An owner's table: the features with an intercept as the last column, labels in classes, members of groups."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray

    @property
    def binary(self) -> np.ndarray:
        """Labels 0 and 1."""
        return (self.y > 0).astype(int)


def made() -> dict[str, Rows]:
    rng = np.random.default_rng(7)
    tables = {}
    for name in NAMES:
        X = rng.normal(size=(60, 3))
        group = rng.integers(0, 3, 60)
        y = np.digitize(X[:, 0] - X[:, 1] + 0.5 * (group == 0) + rng.normal(size=60), [-0.5, 0.7])
        tables[name] = Rows(data.with_intercept(X), y, group)
    return tables


TABLES = made()
Value = Callable[[str, np.ndarray], Any]


@dataclass(frozen=True, eq=False)
class TaskCase:
    """A task, and what is known about it by other means.

    share:      an owner's share from arrays
    dim:        of w
    objective:  of an owner at w, by a formula
    constraint: its value at w, likewise; None: there is none
    counts:     what the owner measures at w, counted row by row; None: nothing
    from_file:  the share from the owner's file, which this writes into a folder; None: there is no such way
    split:      w = (u, v), to be minimised over u, of this length, and maximised over v; None: minimised
    """

    name: str
    share: Callable[[str], fp.Share]
    dim: int
    objective: Value
    constraint: Value | None = None
    counts: Value | None = None
    from_file: Callable[[str, Path], fp.Share] | None = None
    split: int | None = None


# ------------------------------------------------------------------------------------------------------ plain formulas


def mean_loss(rows: Rows, w: np.ndarray, chosen: np.ndarray) -> float:
    """The mean logistic loss of the chosen rows."""
    total = 0.0
    for x, y in zip(rows.X[chosen], rows.binary[chosen], strict=True):
        total += np.log1p(np.exp(-(2 * y - 1) * (x @ w)))
    return float(total / np.count_nonzero(chosen))


def cross_entropy(rows: Rows, w: np.ndarray, chosen: np.ndarray) -> float:
    """The mean cross entropy of the chosen rows, three classes."""
    model = w.reshape(3, -1)
    total = 0.0
    for x, y in zip(rows.X[chosen], rows.y[chosen], strict=True):
        scores = model @ x
        total += np.log(np.sum(np.exp(scores))) - scores[y]
    return float(total / np.count_nonzero(chosen))


def probability(rows: Rows, w: np.ndarray, chosen: np.ndarray) -> float:
    """The mean probability of class 1 over the chosen rows."""
    return float(np.mean([1 / (1 + np.exp(-x @ w)) for x in rows.X[chosen]]))


def everyone(rows: Rows) -> np.ndarray:
    return np.ones(len(rows.y), dtype=bool)


def decided(rows: Rows, w: np.ndarray) -> list[int]:
    """Class 1 where the score is positive."""
    return [int(x @ w > 0) for x in rows.X]


def chosen_class(rows: Rows, w: np.ndarray) -> list[int]:
    model = w.reshape(3, -1)
    return [int(np.argmax(model @ x)) for x in rows.X]


def class_rates(rows: Rows, found: list[int], labels: np.ndarray, protected: int, loss: float) -> dict[str, float]:
    """Of a protected class, by counting rows one by one."""
    inside = right = hits = false_alarms = 0
    for seen, label in zip(found, labels, strict=True):
        inside += label == protected
        right += seen == label
        hits += seen == protected == label
        false_alarms += seen == protected != label
    rows_in_all = len(labels)
    return {
        "rows": rows_in_all,
        "protected rows": int(inside),
        "loss": loss,
        "recall": hits / inside,
        "specificity": 1 - false_alarms / (rows_in_all - inside),
        "accuracy": right / rows_in_all,
    }


def group_rates(rows: Rows, w: np.ndarray) -> dict[str, float]:
    found = decided(rows, w)
    told: dict[str, float] = {
        "rows": len(found),
        "accuracy": sum(a == b for a, b in zip(found, rows.binary, strict=True)) / len(found),
    }
    for g in range(3):
        members = [i for i in range(len(found)) if rows.group[i] == g]
        positives = [i for i in members if rows.binary[i] == 1]
        told[f"rows of group {g}"] = len(members)
        told[f"accuracy of group {g}"] = sum(found[i] == rows.binary[i] for i in members) / len(members)
        told[f"positive rate of group {g}"] = sum(found[i] for i in members) / len(members)
        told[f"recall of group {g}"] = sum(found[i] for i in positives) / len(positives)
    return told


def gaps(rows: Rows, w: np.ndarray, mean: Callable[[Rows, np.ndarray, np.ndarray], float], among: np.ndarray) -> Any:
    """Every two groups' difference of a mean, within BOUND on both sides."""
    means = [mean(rows, w, among & (rows.group == g)) for g in range(3)]
    values = []
    for a, b in combinations(range(3), 2):
        values += [means[b] - means[a] - BOUND, -BOUND - (means[b] - means[a])]
    return np.array(values)


def voted(name: str, w: np.ndarray) -> float:
    """iFedDR (6.1), where the owner may move its own vote at a price of 100/2 times the square."""
    u, votes = w[:12], w[12:]
    rows = TABLES[name]
    loss = cross_entropy(rows, u, everyone(rows))
    own = votes[NAMES.index(name)]
    best = minimize_scalar(
        lambda vote: 50 * (vote - own) ** 2 - vote * loss, bounds=(0, 10), method="bounded", options={"xatol": 1e-12}
    )
    return float((-best.fun + 0.5 * WEIGHT * u @ u - 0.1 / (2 * 3) * votes @ votes) / 3)


# --------------------------------------------------------------------------------------------------------------- files


def from_file(task: Task, name: str, path: Path) -> Any:
    """The share of a task that arrives at an owner as JSON."""
    return FileSource(name, path)(json.loads(json.dumps(task.stated())))


def table_file(name: str, folder: Path, labels: np.ndarray) -> Path:
    """The owner's CSV file, with its columns in another order than the job's."""
    rows = TABLES[name]
    shuffled = np.column_stack([rows.group, rows.X[:, [2, 0, 1]]])
    table = data.Table(shuffled, labels, ("group", "weight", "age", "dose"))
    return data.write_csv(folder / f"{name}.csv", table, "label")


def from_table(task: type[ClassTask], three_classes: bool = False, **more: Any) -> Callable[[str, Path], Any]:
    def build(name: str, folder: Path) -> Any:
        labels = TABLES[name].y if three_classes else TABLES[name].binary
        classes = ("0", "1", "2") if three_classes else ("0", "1")
        stated = task(label="label", columns=COLUMNS, owners=len(NAMES), classes=classes, **more)
        return from_file(stated, name, table_file(name, folder, labels))

    return build


CUSTOM = """
import numpy as np
import fedpact as fp

def share(table, name, owners):
    X, y = table.X, table.y
    loss = fp.functions.Quadratic(X.T @ X / owners, -X.T @ y / owners)
    bound = fp.Constraint(fp.functions.Affine(np.ones((1, X.shape[1])), [-1.0]), fp.cones.Nonnegative(1))
    return fp.Share(loss, bound, measures=lambda w: {"worst miss": float(np.max(np.abs(X @ w - y)))})
"""


def custom_from_file(name: str, folder: Path) -> Any:
    code = folder / "task.py"
    code.write_text(CUSTOM)
    return from_table(Custom, functions=str(code))(name, folder)


def custom(name: str) -> fp.Share:
    """The function of the file, called with the table itself."""
    scope: dict[str, Any] = {}
    exec(CUSTOM, scope)
    rows = TABLES[name]
    made: fp.Share = scope["share"](data.Table(rows.X, rows.binary, COLUMNS), name, len(NAMES))
    return fp.Share(made.objective, made.constraint, name=name, measures=made.measures)


REGRESSION = {"label": "label", "group": "group", "groups": ("0", "1", "2"), "max_loss": BOUND, "max_mean_error": BOUND}


def regression_of(family: str) -> Regression:
    return Regression(family=family, columns=COLUMNS, owners=len(NAMES), **REGRESSION)


def regression(family: str) -> Callable[[str], fp.Share]:
    def share(name: str) -> fp.Share:
        rows = TABLES[name]
        made = regression_of(family).share(name, tasks.Rows(rows.X[:, :3], rows.y, rows.group))
        assert isinstance(made, fp.Share)
        return made

    return share


def regression_from_file(family: str) -> Callable[[str, Path], Any]:
    def build(name: str, folder: Path) -> Any:
        return from_file(regression_of(family), name, table_file(name, folder, TABLES[name].y))

    return build


def predictions(family: str, name: str, w: np.ndarray) -> list[float]:
    scores = [float(x @ w) for x in TABLES[name].X]
    return [math.exp(s) for s in scores] if family == "poisson" else scores


def regression_loss(family: str, name: str, w: np.ndarray) -> float:
    """Half the squared error, or half the deviance, of one row after the other."""
    total = 0.0
    for seen, y in zip(predictions(family, name, w), TABLES[name].y.tolist(), strict=True):
        if family == "squared":
            total += (seen - y) ** 2 / 2
        else:
            total += seen - y + (y * math.log(y / seen) if y else 0.0)
    return total / len(TABLES[name].y)


def mean_errors(family: str, name: str, w: np.ndarray) -> list[float]:
    """Of each group."""
    rows = TABLES[name]
    found = predictions(family, name, w)
    members = [[i for i in range(len(found)) if rows.group[i] == g] for g in range(3)]
    return [sum(found[i] - rows.y[i] for i in own) / len(own) for own in members]


def regression_measures(family: str, name: str, w: np.ndarray) -> Mapping[str, float]:
    rows = TABLES[name]
    errors = [seen - y for seen, y in zip(predictions(family, name, w), rows.y, strict=True)]
    told: dict[str, float] = {
        "rows": len(errors),
        "mean error": sum(errors) / len(errors),
        "mean absolute error": sum(map(abs, errors)) / len(errors),
        "root mean squared error": math.sqrt(sum(error**2 for error in errors) / len(errors)),
        "mean loss": regression_loss(family, name, w),
    }
    for g, error in enumerate(mean_errors(family, name, w)):
        told[f"rows of group {g}"] = int(np.sum(rows.group == g))
        told[f"mean error of group {g}"] = error
    return told


def regression_case(family: str) -> TaskCase:
    def bounds(name: str, w: np.ndarray) -> list[float]:
        sides = [side for error in mean_errors(family, name, w) for side in (error - BOUND, -error - BOUND)]
        return [regression_loss(family, name, w) - BOUND, *sides]

    return TaskCase(
        f"regression, {family}",
        regression(family),
        4,
        lambda name, w: regression_loss(family, name, w) / 3,
        bounds,
        lambda name, w: regression_measures(family, name, w),
        regression_from_file(family),
    )


def times(name: str) -> np.ndarray:
    """Time and event of every row: three times, so that many events are tied."""
    rows = TABLES[name]
    return np.column_stack([1.0 + rows.group, rows.binary])


def cox(name: str) -> fp.Share:
    task = Regression(family="cox", label="time", event="seen", columns=COLUMNS, owners=len(NAMES), max_loss=4.0)
    made = task.share(name, tasks.Rows(TABLES[name].X[:, :3], times(name)))
    assert isinstance(made, fp.Share)
    return made


def partial_loss(name: str, w: np.ndarray) -> float:
    """The mean negative log partial likelihood with Efron's ties, one event after the other."""
    time, event = times(name).T
    risk = [math.exp(x[:3] @ w) for x in TABLES[name].X]
    total = 0.0
    for t in sorted(set(time)):
        tied = [i for i in range(len(risk)) if time[i] == t and event[i]]
        for k, i in enumerate(tied):
            at_risk = sum(risk[j] for j in range(len(risk)) if time[j] >= t)
            total += math.log(at_risk - k / len(tied) * sum(risk[j] for j in tied)) - math.log(risk[i])
    return total / len(risk)


def cox_counts(name: str, w: np.ndarray) -> Mapping[str, float]:
    return {"rows": 60, "events": int(TABLES[name].binary.sum()), "mean loss": partial_loss(name, w)}


COX = TaskCase(
    "regression, cox",
    cox,
    3,
    lambda name, w: partial_loss(name, w) / 3,
    lambda name, w: [partial_loss(name, w) - 4.0],
    cox_counts,
)


def worst_miss(rows: Rows, w: np.ndarray) -> float:
    return max(abs(x @ w - y) for x, y in zip(rows.X, rows.binary, strict=True))


def squares(name: str, w: np.ndarray) -> float:
    rows = TABLES[name]
    misses = rows.X @ w - rows.binary
    return float((misses @ misses - rows.binary @ rows.binary) / (2 * len(NAMES)))


def matrices(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(NAMES.index(name))
    root = rng.normal(size=(4, 4))
    return {"A": root @ root.T, "b": rng.normal(size=4), "C": rng.normal(size=(2, 4)), "d": rng.normal(size=2)}


def program_from_file(name: str, folder: Path) -> Any:
    path = folder / f"{name}.npz"
    np.savez(path, **matrices(name))
    return from_file(LinearQP(owners=len(NAMES)), name, path)


def quadratic(name: str, w: np.ndarray) -> float:
    A, b = matrices(name)["A"], matrices(name)["b"]
    return float(w @ A @ w / 2 + b @ w)


# --------------------------------------------------------------------------------------------------------------- tasks


def neyman_pearson(name: str) -> fp.Share:
    rows = TABLES[name]
    return tasks.neyman_pearson_share(rows.X, rows.binary, bound=BOUND, owners=3, name=name)


def neyman_pearson_of_three(name: str) -> fp.Share:
    rows = TABLES[name]
    return tasks.neyman_pearson_share(rows.X, rows.y, bound=BOUND, owners=3, name=name, classes=3, protected=2)


def group_fairness(parity: Any) -> Callable[[str], fp.Share]:
    def share(name: str) -> fp.Share:
        rows = TABLES[name]
        return tasks.group_fairness_share(
            rows.X, rows.binary, rows.group, max_gap=BOUND, owners=3, name=name, parity=parity, groups=3
        )

    return share


#: Parities of decisions: the rates that are compared, by name, and the rows that each is counted on.
COMPARED: dict[str, dict[str, Callable[[Rows], np.ndarray]]] = {
    "loss": {},
    "demographic_parity": {"selection rate": lambda rows: everyone(rows)},
    "equal_opportunity": {"recall": lambda rows: rows.binary == 1},
    "equalized_odds": {"recall": lambda rows: rows.binary == 1, "false-positive rate": lambda rows: rows.binary == 0},
}


def counted_gaps(rows: Rows, w: np.ndarray, parity: str) -> dict[str, float]:
    """Between every two groups, and what one row more or less would change each by at most."""
    found = decided(rows, w)
    told = {}
    for rate, chosen in COMPARED[parity].items():
        among = chosen(rows)
        members = [[i for i in range(len(found)) if among[i] and rows.group[i] == g] for g in range(3)]
        for a, b in combinations(range(3), 2):
            what = f"gap in {rate} of label = 1 between group = {a} and {b}"
            rates = [sum(found[i] for i in members[g]) / len(members[g]) for g in (a, b)]
            told[what] = abs(rates[1] - rates[0])
            told[f"one row of the {what}"] = 1 / min(len(members[a]), len(members[b]))
    return told


def fairness_case(parity: str) -> TaskCase:
    """Decisions are smoothed with width 1: then they count by their probability."""

    def bounded(name: str, w: np.ndarray) -> Any:
        rows = TABLES[name]
        if parity == "loss":
            return gaps(rows, w, mean_loss, everyone(rows))
        return np.concatenate([gaps(rows, w, probability, chosen(rows)) for chosen in COMPARED[parity].values()])

    return TaskCase(
        f"group_fairness, {parity}",
        group_fairness(parity),
        4,
        lambda name, w: mean_loss(TABLES[name], w, everyone(TABLES[name])) / 3,
        bounded,
        lambda name, w: group_rates(TABLES[name], w) | counted_gaps(TABLES[name], w, parity),
        from_table(GroupFairness, bound=BOUND, group="group", groups=("0", "1", "2"), parity=parity, width=1.0),
    )


# -------------------------------------------------------------------------------------------------- several constraints

WIDTH = 0.6
RECALLS = {"north": 0.7, "south": 0.8, "west": 0.9}
#: Recall of class 1 and the gap in selection rates, by decisions; the loss on class 1 beside them.
TWO = {
    "constraints": (
        tasks.Requirement(kind="recall", at_least=RECALLS),
        tasks.Requirement(kind="loss", of="1", at_most=BOUND),
        tasks.Requirement(kind="demographic_parity", at_most=BOUND),
    ),
    "group": "group",
    "groups": ("0", "1", "2"),
    "width": WIDTH,
}
#: Constraints on several classes: then the loss on all rows is minimised.
THREE = {
    "constraints": (
        tasks.Requirement(kind="recall", of="1", at_least=0.5),
        tasks.Requirement(kind="precision", of="2", at_least=0.6),
        tasks.Requirement(kind="accuracy", at_least=0.4, at_most=0.95),
    ),
    "width": WIDTH,
}


def several(stated: Mapping[str, Any], classes: int) -> Callable[[str], fp.Share]:
    """The share from arrays; the design adds the intercept itself."""

    def share(name: str) -> fp.Share:
        rows = TABLES[name]
        names = tuple(map(str, range(classes)))
        task = Classification(label="label", columns=COLUMNS, owners=len(NAMES), classes=names, **stated)
        labels = rows.binary if classes == 2 else rows.y
        made = task.share(name, tasks.Rows(rows.X[:, :3], labels, rows.group if "group" in stated else None))
        assert isinstance(made, fp.Share)
        return made

    return share


def smoothed(rows: Rows, w: np.ndarray, chosen: np.ndarray) -> float:
    """The mean smoothed decision for class 1 over the chosen rows."""
    return probability(rows, w / WIDTH, chosen)


def errors_on_the_others(name: str, w: np.ndarray) -> float:
    rows = TABLES[name]
    return smoothed(rows, w, rows.binary == 0) / 3


def rounded_up(share: float, rows: int) -> float:
    """The least rate, of so many rows, that is no less than this share."""
    return math.ceil(share * rows - 1e-9) / rows


def two_bounded(name: str, w: np.ndarray) -> Any:
    """Those on decisions come first."""
    rows = TABLES[name]
    ill = rows.binary == 1
    recall = rounded_up(RECALLS[name], int(ill.sum())) - smoothed(rows, w, ill)
    return np.array([recall, *gaps(rows, w, smoothed, everyone(rows)), mean_loss(rows, w, ill) - BOUND])


def two_counts(name: str, w: np.ndarray) -> Mapping[str, float]:
    rows = TABLES[name]
    told = np_counts(name, w)
    gaps_told = counted_gaps(rows, w, "demographic_parity")
    return {**told, **group_rates(rows, w), "recall of label = 1": told["recall"], **gaps_told}


def soft_decisions(rows: Rows, w: np.ndarray) -> list[np.ndarray]:
    """How far each row is given each of three classes."""
    found = []
    for x in rows.X:
        weights = np.exp(w.reshape(3, -1) @ x / WIDTH)
        found.append(weights / weights.sum())
    return found


def three_bounded(name: str, w: np.ndarray) -> Any:
    rows = TABLES[name]
    soft = soft_decisions(rows, w)
    number = len(soft)
    middle = [i for i in range(number) if rows.y[i] == 1]
    recall = sum(soft[i][1] for i in middle) / len(middle)
    taken = sum(soft[i][2] for i in range(number))
    rightly = sum(soft[i][2] for i in range(number) if rows.y[i] == 2)
    accuracy = sum(soft[i][rows.y[i]] for i in range(number)) / number
    return [
        rounded_up(0.5, len(middle)) - recall,
        (0.6 * taken - rightly) / number,
        rounded_up(0.4, number) - accuracy,
        accuracy - (1 - rounded_up(0.05, number)),
    ]


def three_counts(name: str, w: np.ndarray) -> Mapping[str, float]:
    rows = TABLES[name]
    found = chosen_class(rows, w)
    number = len(found)
    middle = [i for i in range(number) if rows.y[i] == 1]
    taken = [i for i in range(number) if found[i] == 2]
    accuracy = sum(found[i] == rows.y[i] for i in range(number)) / number
    return {
        "rows": number,
        **{f"decided as class {k}": sum(one == k for one in found) / number for k in range(3)},
        "accuracy": accuracy,
        "recall of label = 1": sum(found[i] == 1 for i in middle) / len(middle),
        "precision of label = 2": sum(rows.y[i] == 2 for i in taken) / len(taken),
    }


def logistic_regression(name: str) -> fp.Share:
    rows = TABLES[name]
    return tasks.logistic_regression_share(rows.X, rows.binary, weight=WEIGHT, owners=3, name=name)


def softmax_regression(name: str) -> fp.Share:
    rows = TABLES[name]
    return tasks.softmax_regression_share(rows.X, rows.y, classes=3, weight=WEIGHT, owners=3, name=name)


def fair_classification(name: str) -> fp.Share:
    rows = TABLES[name]
    return tasks.fair_classification_share(
        rows.X, rows.y, classes=3, own=NAMES.index(name), owners=3, name=name, weight=WEIGHT
    )


VOTED = Minimax(
    label="label", columns=COLUMNS, classes=("0", "1", "2"), owners=3, roster=NAMES, smoothing=0.1, penalty=100.0
)


def minimax(name: str) -> fp.Share:
    rows = TABLES[name]
    made = VOTED.share(name, tasks.Rows(rows.X[:, :3], rows.y))
    assert isinstance(made, fp.Share)
    return made


def minimax_from_file(name: str, folder: Path) -> Any:
    return from_file(VOTED, name, table_file(name, folder, TABLES[name].y))


def voted_by_rows(name: str, w: np.ndarray) -> float:
    """As above; the squared norm of the model is the coordinator's."""
    return voted(name, w) - 0.5 * WEIGHT * w[:12] @ w[:12] / 3


def votes_told(name: str, w: np.ndarray) -> Mapping[str, float]:
    rows, u = TABLES[name], w[:12]
    found = chosen_class(rows, u)
    return {
        "rows": len(found),
        "mean loss": cross_entropy(rows, u, everyone(rows)),
        "accuracy": sum(a == b for a, b in zip(found, rows.y, strict=True)) / len(found),
        "vote": w[12 + NAMES.index(name)],
    }


def np_counts(name: str, w: np.ndarray) -> Mapping[str, float]:
    rows = TABLES[name]
    return class_rates(rows, decided(rows, w), rows.binary, 1, mean_loss(rows, w, rows.y > 0))


def np_counts_of_three(name: str, w: np.ndarray) -> Mapping[str, float]:
    rows = TABLES[name]
    return class_rates(rows, chosen_class(rows, w), rows.y, 2, cross_entropy(rows, w, rows.y == 2))


TASKS = [
    TaskCase(
        "neyman_pearson",
        neyman_pearson,
        4,
        lambda name, w: mean_loss(TABLES[name], w, TABLES[name].y == 0) / 3,
        lambda name, w: [mean_loss(TABLES[name], w, TABLES[name].y > 0) - BOUND],
        np_counts,
        from_table(NeymanPearson, bound=BOUND),
    ),
    TaskCase(
        "neyman_pearson, three classes",
        neyman_pearson_of_three,
        12,
        lambda name, w: cross_entropy(TABLES[name], w, TABLES[name].y < 2) / 3,
        lambda name, w: [cross_entropy(TABLES[name], w, TABLES[name].y == 2) - BOUND],
        np_counts_of_three,
        from_table(NeymanPearson, bound=BOUND, three_classes=True),
    ),
    fairness_case("loss"),
    fairness_case("demographic_parity"),
    fairness_case("equal_opportunity"),
    fairness_case("equalized_odds"),
    TaskCase(
        "classification, two classes",
        several(TWO, 2),
        4,
        errors_on_the_others,
        two_bounded,
        two_counts,
        from_table(Classification, **TWO),
    ),
    TaskCase(
        "classification, three classes",
        several(THREE, 3),
        12,
        lambda name, w: cross_entropy(TABLES[name], w, everyone(TABLES[name])) / 3,
        three_bounded,
        three_counts,
        from_table(Classification, three_classes=True, **THREE),
    ),
    regression_case("squared"),
    regression_case("poisson"),
    COX,
    TaskCase(
        "linear_qp",
        lambda name: tasks.linear_qp_share(**matrices(name), name=name),
        4,
        quadratic,
        lambda name, w: matrices(name)["C"] @ w + matrices(name)["d"],
        from_file=program_from_file,
    ),
    TaskCase(
        "custom",
        custom,
        4,
        squares,
        lambda name, w: [w.sum() - 1],
        lambda name, w: {"worst miss": worst_miss(TABLES[name], w)},
        custom_from_file,
    ),
    TaskCase(
        "logistic_regression",
        logistic_regression,
        4,
        lambda name, w: (mean_loss(TABLES[name], w, everyone(TABLES[name])) + 0.5 * WEIGHT * w @ w) / 3,
    ),
    TaskCase(
        "softmax_regression",
        softmax_regression,
        12,
        lambda name, w: (cross_entropy(TABLES[name], w, everyone(TABLES[name])) + 0.5 * WEIGHT * w @ w) / 3,
    ),
    TaskCase("fair_classification", fair_classification, 15, voted, split=12),
    TaskCase("minimax", minimax, 15, voted_by_rows, None, votes_told, minimax_from_file, split=12),
]
