"""What all owners agree on before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from fedpact.data.encoding import Encoding, Missing, Scaling, categories_from
from fedpact.errors import OptionError
from fedpact.prox import SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.group_fairness import PARITIES, Parity

#: Those that train a linear classifier on tables; "linear_qp" and "custom" build their shares in their own way.
TABLES = ("neyman_pearson", "group_fairness")
TASKS = (*TABLES, "linear_qp", "custom")


@dataclass(frozen=True)
class Job:
    """What all owners agree on; it goes to every owner with every order.

    task:        "neyman_pearson" (bound: mean loss on the protected class), "group_fairness" (bound: gap between the
                 groups), "linear_qp" (files of matrices), or "custom" (a Python file)
    bound:       one number for all, or one by owner
    label:       column of the labels
    columns:     the features by name: every owner takes them in this order, whatever the order in its file
    owners:      how many there are
    group:       column of the groups (for "group_fairness")
    intercept:   does the model have one? It becomes the last entry of w (of every class's row of w)
    classes:     what the labels may be; more than two: a row of w a class
    protected:   the class whose loss is bounded; the last one when not given
    groups:      what the groups may be
    parity:      what is compared between groups, see `group_fairness`
    categories:  of columns that are text, the levels they may have; such a column becomes one of 0 and 1 a level
    missing:     "error", or "mean": absent values are taken as the mean over all owners
    standardize: give the numeric columns mean 0 and deviation 1 over all owners
    scaling:     the numbers for this, once they are known
    min_recall:  the recall of the protected class that the bounds shall give, see `fedpact.fitting`
    functions:   Python file with the function of task "custom"
    constrained: False leaves the constraints out and minimises the mean loss: to compare with
    """

    task: str
    bound: float | Mapping[str, float]
    label: str
    columns: tuple[str, ...]
    owners: int
    group: str = ""
    intercept: bool = True
    classes: tuple[str, ...] = ("0", "1")
    protected: str = ""
    groups: tuple[str, ...] = ("0", "1")
    parity: Parity = "loss"
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Missing = "error"
    standardize: bool = False
    scaling: Scaling | None = None
    min_recall: float = 0.0
    functions: str = ""
    constrained: bool = True

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise OptionError(
                f"task {self.task!r} is unknown; choose {', '.join(TASKS)}", code="FP-OPTION-040", key="task"
            )
        if self.task == "group_fairness" and not self.group:
            raise OptionError(
                "task 'group_fairness' needs group=, the name of the column of the groups",
                code="FP-OPTION-041",
                key="group",
            )
        if self.task == "custom" and not self.functions:
            raise OptionError(
                "task 'custom' needs functions=, a Python file with a function share(table, name, owners)",
                code="FP-OPTION-042",
                key="functions",
            )
        if self.task == "linear_qp":
            return
        if not self.columns:
            raise OptionError(
                "a job needs columns=, the names of the features that every owner has",
                code="FP-OPTION-043",
                key="columns",
            )
        for name in (self.label, self.group):
            if name and name in self.columns:
                raise OptionError(
                    f"{name!r} is a feature and the label or group as well; take it out of the columns",
                    code="FP-OPTION-044",
                    column=name,
                )
        if twice := [c for c in self.columns if self.columns.count(c) > 1]:
            raise OptionError(
                f"column {twice[0]!r} is listed twice; list every feature once", code="FP-OPTION-045", column=twice[0]
            )
        if unknown := [c for c in self.categories if c not in self.columns]:
            raise OptionError(
                f"categories are given for {unknown[0]!r}, which is no feature; list it, or drop them",
                code="FP-OPTION-046",
                column=unknown[0],
            )
        for column, levels in self.categories.items():
            _distinct("categories", levels, 1, column)
        _distinct("classes", self.classes, 2)
        _distinct("groups", self.groups, 2)
        if self.protected and self.protected not in self.classes:
            raise OptionError(
                f"protected = {self.protected!r} is none of the classes {', '.join(self.classes)}",
                code="FP-OPTION-047",
                key="protected",
            )
        if self.parity not in PARITIES:
            raise OptionError(
                f"parity = {self.parity!r} is unknown; choose {', '.join(PARITIES)}", code="FP-OPTION-048", key="parity"
            )
        if self.missing not in ("error", "mean"):
            raise OptionError(
                f'missing = {self.missing!r} is unknown; choose "error" or "mean"', code="FP-OPTION-049", key="missing"
            )
        if not 0 <= self.min_recall < 1:
            raise OptionError(
                f"min_recall = {self.min_recall}: give a number above 0 and below 1",
                code="FP-OPTION-050",
                key="min_recall",
            )

    @classmethod
    def read(cls, stated: Mapping[str, Any]) -> Job:
        """The job as it came with an order. OptionError when it is not one."""
        known = {f.name for f in fields(cls)}
        if unknown := set(stated) - known:
            raise OptionError(
                f"the job states {', '.join(sorted(unknown))}, which this version does not know",
                code="FP-OPTION-051",
                key=min(unknown),
            )
        texts = {key: tuple(stated[key]) for key in ("columns", "classes", "groups") if key in stated}
        levels = categories_from(stated.get("categories", {}))
        scaling = stated.get("scaling")
        try:
            scaled = None if scaling is None else Scaling(**{key: tuple(value) for key, value in scaling.items()})
            return cls(**{**stated, **texts, "categories": levels, "scaling": scaled})
        except TypeError as error:
            raise OptionError(f"the job is incomplete: {error}", code="FP-OPTION-052") from error

    def stated(self) -> dict[str, Any]:
        return {key: _listed(value) for key, value in asdict(self).items()}

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.columns, self.categories, self.missing)

    @property
    def needs_scaling(self) -> bool:
        return self.scaling is None and (self.standardize or self.missing == "mean")

    @property
    def protected_class(self) -> int:
        return self.classes.index(self.protected) if self.protected else len(self.classes) - 1

    def bound_of(self, owner: str) -> float:
        if not isinstance(self.bound, Mapping):
            return self.bound
        if owner not in self.bound:
            raise OptionError(
                f"bound has no entry for owner {owner!r}; give one for every owner, or one number for all",
                code="FP-OPTION-053",
                key="bound",
            )
        return self.bound[owner]

    def without_constraints(self) -> Job:
        return replace(self, constrained=False)

    def regularizer(self, weight: float) -> SquaredL2:
        """weight/2 |w|^2 over everything but the intercepts; over all of w where only its owner knows what w is."""
        checks.nonnegative("regularization", weight)
        if self.task == "custom":
            return SquaredL2(weight)
        row = np.full(len(self.encoding.names), weight)
        one = np.append(row, 0.0) if self.intercept else row
        return SquaredL2(one if len(self.classes) == 2 else np.tile(one, len(self.classes)))


def _distinct(key: str, levels: Sequence[str], least: int, column: str = "") -> None:
    if len(levels) < least or len(set(levels)) < len(levels):
        what = f"{key} of {column!r}" if column else key
        words = f"{what} are {list(levels)}; give {least} or more, all different"
        raise OptionError(words, code="FP-OPTION-054", column=column, key=key)


def _listed(value: Any) -> Any:
    """Tuples as lists: what a message and a TOML or JSON file make of them."""
    if isinstance(value, Mapping):
        return {key: _listed(one) for key, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, tuple | list) else value
