"""Neyman-Pearson classification: the fewest errors on the other classes, with one class guarded at every owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from numpy.typing import ArrayLike

from fedpact.errors import OptionError
from fedpact.problem import FederatedProblem, Share
from fedpact.tasks import checks
from fedpact.tasks.base import key
from fedpact.tasks.classification import Classification
from fedpact.tasks.requirements import LOSS, Requirement
from fedpact.tasks.tables import Rows as Table

if TYPE_CHECKING:
    from fedpact.prox import Prox


@dataclass(frozen=True, kw_only=True)
class NeymanPearson(Classification):
    """One class is guarded at every owner: its recall, or its mean loss; the errors on the others are the fewest."""

    name: ClassVar[str] = "neyman_pearson"
    title: ClassVar[str] = "the recall or loss of one class is bounded at every owner; least errors on the others"

    protected: str = key("", "the class that is guarded", "level", shown="the last one", example='"1"')
    min_recall: float = key(0.0, "the recall that each owner must have", "number", example="0.9")
    bound: float | Mapping[str, float] = key(
        dict,
        "in its place: mean loss allowed on this class at every owner; or one each in a table [bound]",
        "bound",
        example="0.35",
    )

    def __post_init__(self) -> None:
        checks.check_bounds(self.bound)
        if self.protected and self.protected not in tuple(self.classes):
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
        if self.bound == {} and not self.min_recall:
            raise OptionError(
                "task 'neyman_pearson' needs bound= or min_recall=; without one there is nothing to certify",
                code="FP-OPTION-056",
                key="bound",
            )
        super().__post_init__()

    @property
    def reported_class(self) -> int:
        """The guarded one, which `protected` names."""
        return self.classes.index(self.protected) if self.protected else len(self.classes) - 1

    def own_requirements(self) -> tuple[Requirement, ...]:
        guarded = self.protected or self.classes[-1]
        if self.min_recall:
            return (Requirement(kind="recall", of=guarded, at_least=self.min_recall),)
        return (Requirement(kind=LOSS, of=guarded, at_most=self.bound),)

    def build(self, owner: str, rows: Table) -> Share:
        if not self.min_recall:
            checks.bound_for(self.bound, owner)  # an error names the key that was stated
        return super().build(owner, rows)


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
    X: ArrayLike, y: ArrayLike, *, bound: float, owners: int, name: str, classes: int = 2, protected: int = 1
) -> Share:
    """One owner's share, from its own rows; `owners` is the number n of all owners. Built where the data is."""
    matrix = checks.features(name, X)
    task = NeymanPearson(
        columns=("x",),  # their names do not matter here
        classes=tuple(map(str, range(classes))),
        label="label",
        protected=str(protected),
        bound={name: checks.check_positive(f"bound of owner {name!r}", bound)},
        owners=owners,
    )
    labels = checks.check_codes(name, "label", y, len(matrix), classes)
    return task.build(name, Table(matrix, labels))
