"""Neyman-Pearson classification: the least loss on the other classes with the loss on one bounded at every owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fedpact.cones import Nonnegative
from fedpact.errors import OptionError
from fedpact.functions import as_map
from fedpact.problem import Constraint, FederatedProblem, Measure, Share
from fedpact.tasks import checks
from fedpact.tasks.base import Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.regression import losses, margins, mean_loss, scores
from fedpact.tasks.tables import ClassTask
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.prox import Prox


def neyman_pearson(
    owners: Mapping[str, tuple[ArrayLike, ArrayLike]],
    bound: float | Mapping[str, float] = 0.2,
    regularizer: Prox | None = None,
    *,
    columns: Sequence[str] | None = None,
    classes: int = 2,
    protected: int = 1,
) -> FederatedProblem:
    """min_w (1/n) sum_i loss_0i(w) + h(w)  s.t.  loss_1i(w) <= bound_i at every owner i.   He24 (30)

    loss_1i is the mean loss of owner i's rows of the protected class, loss_0i that of its other rows: logistic, or
    cross entropy for more than two classes (w then lists the (classes, d) matrix row by row).

    owners:      name -> (X, y), X rows x d (give it an intercept column if the model shall have one), y in {0, 1}, or
                 in {0, ..., classes - 1}
    bound:       one number, or name -> number
    regularizer: h, a Prox
    columns:     names of the columns of X, used in error messages
    protected:   the class whose loss is bounded

    Raises:
        DataError: missing values, other labels, an owner without rows of the protected class or without others,
            different numbers of columns, no owners.
        OptionError: a bound that is not positive, or absent for an owner, or given for an unknown one.
    """
    checks.owner_tables(owners, ("X", "y"))
    bounds = checks.bound_of_each("bound", bound, owners)
    matrices = checks.read_matrices(owners, columns)
    shares = [
        neyman_pearson_share(
            matrices[name], y, bound=bounds[name], owners=len(owners), name=name, classes=classes, protected=protected
        )
        for name, (_, y) in owners.items()
    ]
    return FederatedProblem(shares, regularizer=regularizer)


def neyman_pearson_share(
    X: ArrayLike,
    y: ArrayLike,
    *,
    bound: float,
    owners: int,
    name: str,
    classes: int = 2,
    protected: int = 1,
    min_recall: float = 0.0,
    label: str = "label",
    levels: Sequence[str] = (),
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is.

    min_recall:    a recall of the protected class for which the share measures which bound would give it
    label, levels: words for the label and its classes, used in error messages
    """
    matrix = checks.features(name, X)
    labels = checks.check_codes(name, "label", y, len(matrix), classes)
    inside = labels == protected
    needed = [protected]
    if inside.all():  # the others have no mean loss; any of them will do
        needed = [k for k in range(classes) if k != protected]
    checks.some_of_each(name, label, labels, needed, levels)
    limit = checks.check_positive(f"bound of owner {name!r}", bound)
    loss_others = mean_loss(matrix[~inside], labels[~inside], classes)
    loss_protected = mean_loss(matrix[inside], labels[inside], classes)
    return Share(
        (1 / owners) * loss_others,
        Constraint(as_map(loss_protected - limit), Nonnegative(1)),
        name=name,
        measures=ClassRates(matrix, labels, classes, protected, min_recall),
    )


@dataclass(frozen=True, eq=False)
class ClassRates:
    """Rates of a model's decisions on the owner's rows: recall of the protected class, specificity, accuracy."""

    X: Matrix
    y: Labels
    classes: int
    protected: int
    min_recall: float = 0.0

    def __call__(self, w: Vector) -> dict[str, Measure]:
        score = scores(w, self.X, self.classes)
        inside = self.y == self.protected
        chosen = np.argmax(score, axis=1)
        found = chosen == self.protected
        rows = len(self.y)
        own = int(inside.sum())
        others = rows - own
        cell = min(own, others)  # what is told of one side, beside all rows, tells of the other
        told = {
            "rows": Measure.count(rows),
            "protected rows": Measure.count(own, cell),
            "loss": Measure(losses(score[inside], self.protected).mean(), own, cell),
            "recall": Measure(found[inside].mean(), own, cell),
            "specificity": Measure(1 - found[~inside].mean(), others, cell),
            "accuracy": Measure(np.mean(chosen == self.y), rows),
        }
        if self.min_recall:
            bound = bound_for_recall(score[inside], self.protected, self.min_recall)
            told["bound for recall"] = Measure(bound, own, cell)
        return told


def bound_for_recall(score: Matrix, protected: int, recall: float) -> float:
    """The mean loss these rows would have if the protected class were favoured just enough for this recall."""
    ahead = np.sort(margins(score, protected))
    least = int(np.ceil(recall * len(ahead) - 1e-9))  # rows to find; 0.9 times 10 is 9, whatever it is rounded to
    last = ahead[len(ahead) - least]  # the margin of the last row that must be found
    shifted = score.copy()
    shifted[:, protected] += np.nextafter(-last, np.inf) + 1e-9 * (1 + abs(last))
    return float(losses(shifted, protected).mean())


def confidence_interval(rate: float, rows: float, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) confidence interval of a rate that was found on so many rows."""
    hits = round(rate * rows)
    tail = (1 - level) / 2
    low = 0.0
    if hits > 0:
        low = float(betaincinv(hits, rows - hits + 1, tail))
    high = 1.0
    if hits < rows:
        high = float(betaincinv(hits + 1, rows - hits, 1 - tail))
    return low, high


@dataclass(frozen=True, kw_only=True)
class NeymanPearson(ClassTask):
    """The least loss on the other classes, with the mean loss on the protected class bounded at every owner.

    With `min_recall` the bounds are found that give every owner this recall (`fedpact.fitting.recall`).
    """

    name: ClassVar[str] = "neyman_pearson"
    title: ClassVar[str] = "the loss on one class is bounded at every owner, that on the others is as small as can be"

    protected: str = key("", "the class whose loss is bounded", "level", shown="the last one", example='"1"')
    bound: float | Mapping[str, float] = key(
        dict, "mean loss allowed on this class at every owner; or one each in a table [bound]", "bound", example="0.35"
    )
    min_recall: float = key(
        0.0, "in its place: the recall each owner must have; the bounds are found", "number", example="0.9"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.protected and self.protected not in self.classes:
            raise OptionError(
                f"protected = {self.protected!r} is none of the classes {', '.join(self.classes)}",
                code="FP-OPTION-047",
                key="protected",
            )
        if not 0 <= self.min_recall < 1:
            raise OptionError(
                f"min_recall = {self.min_recall}: give a number above 0 and below 1",
                code="FP-OPTION-050",
                key="min_recall",
            )
        checks.check_bounds(self.bound)
        if self.bound == {} and not self.min_recall:
            raise OptionError(
                "task 'neyman_pearson' needs bound= or min_recall=; without one there is nothing to certify",
                code="FP-OPTION-056",
                key="bound",
            )

    @property
    def protected_class(self) -> int:
        """Its number among the classes."""
        if not self.protected:
            return len(self.classes) - 1
        return self.classes.index(self.protected)

    @property
    def protected_rows(self) -> str:
        """Which rows are protected, in words."""
        return f"{self.label} = {self.classes[self.protected_class]}"

    def share_of_rows(self, owner: str, X: Matrix, y: Labels, group: Labels | None) -> Share:
        return neyman_pearson_share(
            X,
            y,
            bound=checks.bound_for(self.bound, owner) if self.constrained else 1.0,  # which is left out
            owners=self.owners,
            name=owner,
            classes=len(self.classes),
            protected=self.protected_class,
            min_recall=self.min_recall,
            label=self.label,
            levels=self.classes,
        )

    def sentence(self) -> str:
        where = f"on {self.protected_rows}"
        if self.min_recall:
            asked = f"A recall of at least {self.min_recall:g} {where}"
        elif isinstance(self.bound, Mapping):
            asked = f"Mean loss {where} of at most its own bound"
        else:
            asked = f"Mean loss {where} of at most {self.bound:g}"
        return f"{asked} {self.everyone()}; least loss on the others."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        limit = checks.bound_for(self.bound, owner)
        yield Bounded(owner, f"mean loss on {self.protected_rows}", float(values[0] + limit), limit, float(price[0]))
        if self.min_recall and "recall" in told:
            what = f"share of {self.protected_rows} that is missed"
            yield Bounded(owner, what, 1 - told["recall"], 1 - self.min_recall, float("nan"))

    def measure_name(self, name: str) -> str:
        if name == "protected rows":
            return f"rows with {self.protected_rows}"
        return name
