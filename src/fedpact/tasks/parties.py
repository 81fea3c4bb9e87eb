"""The task "vertical": parties hold different columns of the same people, one of them (or the coordinator) the labels.

A party's share is built from its own table, where it is, once the parties are aligned: of the people that all of them
have, in the common order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedpact.alignment import Mode, People
from fedpact.data.cells import Cells, read_cells
from fedpact.data.encoding import Encoding, categories_from
from fedpact.errors import DataError, OptionError
from fedpact.federation.rules import Counts
from fedpact.problem import Party, Piece, scored
from fedpact.problem.certificate import TOGETHER
from fedpact.problem.gaps import Gap
from fedpact.problem.party import CONSTANT, RUN, NewRows, build_party
from fedpact.prox import SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, FileSource, Source, Task, key
from fedpact.tasks.classification import Classification
from fedpact.tasks.requirements import Requirement, read_requirements
from fedpact.tasks.tables import check_distinct
from fedpact.types import Vector

Codes = NDArray[np.int64]
#: Numbers of classes, or the numbers to predict.
Labels = NDArray[Any]
#: Losses by name: "logistic" is of classes, and of more than two of them softmax's.
Loss = Literal["logistic", "squared", "huber", "poisson"]
#: Begins the name of a gap among the measures.
GAP = "gap of mean loss, "


@dataclass(frozen=True, eq=False)
class LabelledParty(Party):
    """What a party trains on: its columns of the people in common, and labels and groups if it holds them."""

    labels: Labels = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: Codes = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class LabelledRows(NewRows):
    """What a party scores: its columns of people whom nobody trained on, and labels and groups if it holds them."""

    task: Vertical
    owner: str
    held: Cells

    @property
    def labels(self) -> Labels:
        return self.task.labels(self.owner, self.held)

    @property
    def groups(self) -> Codes:
        return self.task.members(self.owner, self.held)


@dataclass(frozen=True, kw_only=True)
class Vertical(Task):
    """A linear model of people whose columns are at different parties; gaps of mean loss between groups are bounded.

    The fields are keys of a job.
    """

    name: ClassVar[str] = "vertical"
    title: ClassVar[str] = "owners hold different columns of the same people; the gap of loss between groups is bounded"
    aligned: ClassVar[bool] = True
    has_server_data: ClassVar[bool] = True
    comparable: ClassVar[bool] = True

    id: str = key("id", "column by which parties find the same people; every table has it", "text")
    label: str = key("", "the column to predict", "text", example='"ill"')
    label_at: str = key(
        "", "the party that has the label", "text", shown="the coordinator, in [server]", example='"bank"'
    )
    classes: tuple[str, ...] = key(("0", "1"), "what the label may be; more than two are fine", "list")
    loss: Loss = key(  # noqa: RUF009 - a field
        "logistic",
        "what is minimised: the logistic loss of classes (softmax's of several), or a loss of numbers",
        "text",
        choices=get_args(Loss),
    )
    group: str = key("", "column of the groups", "text", example='"sex"')
    groups: tuple[str, ...] = key(("0", "1"), "what it may be", "list")
    group_at: str = key("", "the party that has the groups", "text", shown="who has the label", example='"bank"')
    attributes: Mapping[str, tuple[str, ...]] = key(
        dict,
        "several protected attributes in the place of group, each a column and what it may be; one party has them all",
        "levels",
        example='{sex = ["f", "m"], age = ["old", "young"]}',
    )
    columns: Mapping[str, tuple[str, ...]] = key(
        dict,
        "the columns that a party brings, by party",
        "columns",
        shown="all numbers of its table but id, label and group",
        example='{bank = ["income", "debts"]}',
    )
    categories: Mapping[str, tuple[str, ...]] = key(
        dict, "columns of text, and all they may hold; agreed, so that no owner tells its own", "levels"
    )
    standardize: bool = key(True, "each party scales its own numbers to mean 0 and deviation 1", "bool")
    intercept: bool = key(True, "does the model have an intercept?", "bool")
    regularization: float | None = key(
        None,
        "weight of the squared norm of the model, without the intercept",
        "number",
        shown="2 / people, the paper's",
    )
    max_gap: float | None = key(None, "largest gap of mean loss between any two groups", "number", example="0.05")
    gap: Gap = key(  # noqa: RUF009 - a field
        "positives",
        "rows whose mean loss is compared: those of the last class, all, or those of either class by themselves",
        "text",
        choices=get_args(Gap),
    )
    alignment: Mode = key(  # noqa: RUF009 - a field
        "private",
        "how people are matched; what each way tells is in the explanation of alignment",
        "text",
        choices=get_args(Mode),
    )
    on_missing: Literal["error", "drop"] = key(
        "error", "people who are not at every party are an error, or left out", "text", choices=("error", "drop")
    )
    constraints: tuple[Requirement, ...] = key(
        (), "the list of constraints; each is a table [[constraint]]", "constraints", name="constraint", shown="none",
        example='[{kind = "recall", at_least = 0.9}]',
    )  # fmt: skip
    confidence: float = key(
        0.0, "confidence of all promises for rows not yet seen, where a constraint states none; 0: training rows",
        "number", example="0.95",
    )  # fmt: skip
    holdout: float = key(
        0.5, "part of the rows that a promise is about, held out of training to test it", "number", name="holdout_rows"
    )
    least_people: int = key(2, "fewer people in common than this are an error", "whole")
    model: str = ""  # the run whose model is evaluated

    def __post_init__(self) -> None:
        self._freeze()
        if not self.label:
            raise OptionError("task 'vertical' needs label=, the column to predict", code="FP-OPTION-920", key="label")
        if not re.fullmatch(r"[\w-]{0,64}", self.model):  # a party has a folder of this name
            raise OptionError(f"model = {self.model!r} is not the name of a run", code="FP-OPTION-927", key="model")
        check_distinct("classes", self.classes, 2)
        self._check_loss()
        for column, levels in self.protected.items():
            check_distinct("groups" if column == self.group else "attributes", levels, 2, column)
        for column, levels in self.categories.items():
            check_distinct("categories", levels, 1, column)
        self._check_fairness()
        self._check_columns()
        self._check_constraints()
        if self.regularization is not None:
            checks.check_nonnegative("regularization", self.regularization)
        for name, choices in (("alignment", get_args(Mode)), ("on_missing", ("error", "drop"))):
            if getattr(self, name) not in choices:
                raise OptionError(
                    f"{name} = {getattr(self, name)!r}: choose {', '.join(map(repr, choices))}",
                    code="FP-OPTION-922",
                    key=name,
                )
        if self.least_people < 2:
            raise OptionError(
                f"least_people = {self.least_people}: give a whole number of at least 2",
                code="FP-OPTION-923",
                key="least_people",
            )

    def _freeze(self) -> None:
        """Lists, as messages and files have them, become tuples."""
        object.__setattr__(self, "constraints", read_requirements(self.constraints))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "columns", {party: tuple(names) for party, names in self.columns.items()})
        object.__setattr__(self, "categories", categories_from(self.categories))
        object.__setattr__(self, "attributes", categories_from(self.attributes))

    def _check_loss(self) -> None:
        """A loss of numbers has no classes, so neither gaps of one class nor decisions."""
        if self.loss not in get_args(Loss):
            raise OptionError(
                f"loss = {self.loss!r}: choose {', '.join(map(repr, get_args(Loss)))}", code="FP-OPTION-980", key="loss"
            )
        if self.of_classes:
            return
        if self.protected and self.gap != "all":
            raise OptionError(
                f'gap = {self.gap!r} needs classes, which loss = {self.loss!r} has not; state gap = "all"',
                code="FP-OPTION-981",
                key="gap",
            )
        if self.constraints:
            raise OptionError(
                f"a list of constraints is about classes, which loss = {self.loss!r} has not; bound the gap of mean "
                "loss by max_gap",
                code="FP-OPTION-982",
                key="constraints",
            )

    def _check_fairness(self) -> None:
        """A gap is between groups: both are stated, or neither."""
        if self.max_gap is not None:
            checks.check_nonnegative("max_gap", self.max_gap)
        if self.group and self.attributes:
            raise OptionError(
                "group and attributes are both stated; list all of them under attributes",
                code="FP-OPTION-983",
                key="attributes",
            )
        if self.protected and self.max_gap is None and not self.constraints:
            raise OptionError(
                f"{', '.join(self.protected)}: groups are stated without max_gap, the largest gap between them; state "
                "it, or take them out",
                code="FP-OPTION-924",
                key="group" if self.group else "attributes",
            )
        if self.max_gap is not None and not self.protected:
            raise OptionError(
                "max_gap is stated without group, the column of the groups; state it, or take max_gap out",
                code="FP-OPTION-925",
                key="max_gap",
            )

    def _check_constraints(self) -> None:
        """The list is about all people, and stands alone."""
        if not self.constraints:
            return
        if self.max_gap is not None:
            raise OptionError(
                "max_gap and a list of constraints are both stated; a gap of losses is one of the list, too: kind = "
                '"loss", gap = true',
                code="FP-OPTION-933",
                key="max_gap",
            )
        for one in self.constraints:
            by_owner = isinstance(one.at_least, Mapping) or isinstance(one.at_most, Mapping)
            if one.held_by == "server" or by_owner:
                raise OptionError(
                    f"{one.words}: constraints of a vertical model are about all people; state one bound, and leave "
                    "held_by out",
                    code="FP-OPTION-934",
                    key="constraints",
                )
        self.decisions()

    def decisions(self, split: int = 0) -> Classification:
        """The list as a task about the scores of all people. split: seed of who is held out to test promises"""
        group = self.group
        groups = self.groups
        if self.attributes:
            group = ", ".join(self.attributes)
            groups = tuple(map(", ".join, product(*self.attributes.values())))
        return Classification(
            columns=("scores",),
            label=self.label,
            classes=self.classes,
            group=group,
            groups=groups,
            attributes=self.attributes,
            constraints=tuple(between_groups(self.constraints, self.attributes)),
            confidence=self.confidence,
            holdout=self.holdout,
            intercept=self.intercept,
            split=split,
        )

    def _check_columns(self) -> None:
        special = {self.id: "id", self.label: "label"}
        for party, names in self.columns.items():
            for column in names:
                if column in special:
                    raise OptionError(
                        f"{column!r} is a column of party {party!r} and the {special[column]} as well; take it out of "
                        "[columns]",
                        code="FP-OPTION-926",
                        key="columns",
                        column=column,
                    )
            check_distinct(f"columns of {party!r}", names, 1)

    # ------------------------------------------------------------------------------------------------- at the party

    def read(self, path: Path) -> Cells:
        return read_cells(path)

    def people(self, owner: str, held: Cells) -> People:
        """Who is in the table; what else of it does not fit the job is found now, before anyone is aligned."""
        if not self.evaluating:
            self._check_table(owner, held)
        return People(owner, _read_ids(held, self.id))

    def take(self, held: Cells, rows: NDArray[np.int64]) -> Cells:
        return held.take(rows)

    def share(self, owner: str, held: Cells) -> LabelledParty:
        encoding = self.encoding(owner, held)
        X = encoding.matrix(held)
        outputs = self.outputs
        mean = np.zeros(X.shape[1])
        scale = np.ones(X.shape[1])
        if self.standardize:
            deviation = X.std(axis=0)
            varies = deviation > CONSTANT * np.max(np.abs(X), axis=0)
            mean = np.where(encoding.numeric, X.mean(axis=0), 0.0)
            scale = np.where(encoding.numeric & varies, deviation, 1.0)
        weight = 2.0 / len(X) if self.regularization is None else self.regularization
        scaled = (X - mean) / scale
        built = build_party(owner, scaled, SquaredL2(weight), len(X), encoding.names, False, None, outputs)
        own = {**vars(built), "mean": mean, "scale": scale}
        return LabelledParty(**own, labels=self.labels(owner, held), groups=self.members(owner, held))

    def score_rows(self, owner: str, held: Cells, piece: Piece) -> LabelledRows:
        """The columns of the piece, of people whom nobody trained on."""
        column_of = {f"{name}={level}": name for name, levels in self.categories.items() for level in levels}
        names = tuple(dict.fromkeys(column_of.get(name, name) for name in piece.columns))
        encoding = Encoding(names, {name: levels for name, levels in self.categories.items() if name in names})
        return LabelledRows(piece, encoding.matrix(held), self, owner, held)

    def labels(self, owner: str, held: Cells) -> Labels:
        """The number of everyone's class, or the number to predict, at their holder; elsewhere none."""
        if owner != self.label_holder:
            return np.zeros(0, dtype=np.int64)
        if not self.of_classes:
            return held.numbers(self.label, feature=False)
        return held.codes(self.label, self.classes, "classes")

    def members(self, owner: str, held: Cells) -> Codes:
        """The number of everyone's group, one row an attribute, at their holder; elsewhere none."""
        if not self.protected or owner != self.group_holder:
            return np.zeros((0, held.rows), dtype=np.int64)
        return np.stack([held.codes(column, levels, "groups") for column, levels in self.protected.items()])

    def _check_table(self, owner: str, cells: Cells) -> None:
        """Raise DataError when the table does not fit the job."""
        if owner != self.label_holder and self.label in cells.names:
            raise DataError(
                f"{cells.path}: column {self.label!r} is the label, which {self.label_holder!r} has; take it out of "
                "this table, or rename it",
                code="FP-DATA-920",
                column=self.label,
            )
        self.labels(owner, cells)
        self.members(owner, cells)
        if owner != SERVER:
            self.encoding(owner, cells)

    def encoding(self, party: str, cells: Cells) -> Encoding:
        """From the columns of the party's table to its features. Raises DataError when there are none."""
        names = self.columns.get(party, ())
        if not names:
            special = {self.id, self.label}
            if party == self.group_holder:
                special |= self.protected.keys()
            names = tuple(name for name in cells.names if name not in special and self._is_feature(cells, name))
        if not names:
            raise DataError(
                f"{cells.path}: there is no column that a model could use beside id, label and group; columns are "
                "numbers, or listed under categories",
                code="FP-DATA-921",
            )
        return Encoding(names, {name: levels for name, levels in self.categories.items() if name in names})

    def _is_feature(self, cells: Cells, name: str) -> bool:
        """Whether a column is a feature when the job lists none: a category, or with at least one number in it.

        A number among text is a mistake, which reading the column then reports.
        """
        return name in self.categories or any(_is_number(cell) for cell in cells.column(name).cells)

    def count(self, held: Cells) -> Counts:
        return Counts(held.rows)

    # ----------------------------------------------------------------------------------------------------- for all

    @property
    def label_holder(self) -> str:
        """Who has the label: a party, or the coordinator."""
        return self.label_at or SERVER

    @property
    def of_classes(self) -> bool:
        """Whether the label is one of some classes, and not a number."""
        return self.loss in scored.OF_CLASSES

    @property
    def problem_loss(self) -> scored.Loss:
        """The loss as `VerticalProblem` calls it."""
        return "softmax" if self.outputs > 1 else self.loss

    @property
    def outputs(self) -> int:
        """Scores of each person."""
        return len(self.classes) if self.of_classes and len(self.classes) > 2 else 1

    @property
    def protected(self) -> Mapping[str, tuple[str, ...]]:
        """The protected attributes: column -> what it may be."""
        if self.group:
            return {self.group: self.groups}
        return self.attributes

    @property
    def group_holder(self) -> str:
        return self.group_at or self.label_holder

    def sentence(self) -> str:
        asked = f"A classifier for {self.label} from the columns of {self.owners} parties"
        if not self.of_classes:
            asked = f"A model of {self.label} ({self.loss} loss) from the columns of {self.owners} parties"
        if self.constraints and self.constrained:
            listed = []
            for one in self.constraints:
                listed.append(f"{one.words} between groups of {one.between}" if one.between else one.words)
            return f"{asked}; over all people together: {', '.join(listed)}."
        if not self.protected or not self.constrained:
            return f"{asked}."
        rows = {
            "positives": f"people with {self.label} = {self.classes[-1]}",
            "all": "all people",
            "classes": f"people of each {self.label}",
        }[self.gap]
        between = f"any two groups of {' and of '.join(self.protected)}"
        return f"{asked}; the gap of mean loss between {between}, over {rows}, is at most {self.max_gap:g}."

    def measure_name(self, name: str) -> str:
        rate, comma, group = name.partition(", ")
        if rate in ("recall", "specificity"):
            return f"{rate} of {self.label} = {self.classes[-1]}{comma}{group}"
        return super().measure_name(name)

    def one_class(self, told: Mapping[str, float]) -> str:
        """Everyone gets one class where all of it are found and none of the other; of several, as it is told."""
        if self.outputs > 1:
            given = [level for level in self.classes if told.get(f"decided {level}") == 1]
            return f"{self.label} = {given[0]}" if given else ""
        for code, (found, other) in enumerate((("specificity", "recall"), ("recall", "specificity"))):
            if told.get(found) == 1 and told.get(other) == 0:
                return f"{self.label} = {self.classes[code]}"
        return ""

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        """One a gap: values are the gaps, price has that of either side of each."""
        if self.max_gap is None:
            return
        names = [name.removeprefix(GAP) for name in told if name.startswith(GAP)]
        for name, value, both in zip(names, values, price.reshape(-1, 2), strict=True):
            yield Bounded(TOGETHER, f"{GAP}{name}", abs(float(value)), self.max_gap, float(np.max(both)))


def between_groups(
    constraints: Iterable[Requirement], attributes: Mapping[str, tuple[str, ...]]
) -> Iterator[Requirement]:
    """The list, in which a gap between the groups of several attributes is one for each of them."""
    for one in constraints:
        if not attributes or not one.is_gap:
            yield one
            continue
        for name in [one.between] if one.between else attributes:
            yield replace(one, between=name, held_by="each")  # all people are in one place: the holder does not matter


class PartySource(FileSource):
    """A party's table, and where the party keeps its piece of the model: known here, and never told by a job.

    pieces: the folder; None: it keeps none
    """

    def __init__(
        self,
        owner: str,
        path: str | Path,
        unseen: Source | None = None,
        secret: str | Path | None = None,
        pieces: str | Path | None = None,
    ) -> None:
        super().__init__(owner, path, unseen, secret)
        self.pieces = None if pieces is None else Path(pieces).absolute()

    def __call__(self, task: Task | Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> Any:
        asked = self.accept(task)
        if isinstance(asked, Vertical) and asked.evaluating and rows is not None:
            file = self.piece(asked.model)
            if file is None or not file.exists():
                raise DataError(
                    f"{self.owner}: has no piece of this model; train it with this party, or restore its folder",
                    code="FP-DATA-922",
                )
            return asked.score_rows(self.owner, self._taken(asked, rows), Piece.load(file))
        share = super().__call__(asked, rows)
        if isinstance(share, Party) and asked.constrained and self.pieces is not None:
            return replace(share, keep=str(self.piece(RUN)))
        return share

    def counts(self, task: Task | Mapping[str, Any], rows: NDArray[np.int64] | None = None) -> Counts:
        """Rows, by class and group where it holds these, and the numbers of its own piece of the model."""
        asked = self.accept(task)
        if not isinstance(asked, Vertical):
            return super().counts(asked, rows)
        held = self._taken(asked, rows)
        parameters = 0 if asked.evaluating else len(asked.encoding(self.owner, held).names)
        classes: tuple[int, ...] = ()
        if asked.of_classes:
            classes = _tally(asked.labels(self.owner, held), asked.classes)
        levels = asked.protected.values()
        tallies = [_tally(codes, each) for codes, each in zip(asked.members(self.owner, held), levels, strict=False)]
        return Counts(held.rows, classes, tuple(rows for tally in tallies for rows in tally), parameters)

    def piece(self, run: str) -> Path | None:
        """The file of its piece of the model of a run; None: it keeps none. A folder here is of one run only."""
        return None if self.pieces is None else self.pieces / piece_file(self.owner)


def _tally(codes: Codes, levels: tuple[str, ...]) -> tuple[int, ...]:
    """Rows of each level; none where the party does not hold them."""
    if not codes.size:
        return ()
    return tuple(np.bincount(codes, minlength=len(levels)).tolist())


def piece_file(party: str) -> str:
    """The name of the file in which a party keeps its piece, valid on every system."""
    safe = re.sub(r"[^A-Za-z0-9_ -]", "_", party)[:40]
    if safe == party:
        return f"{party}.npz"
    return f"{safe}-{hashlib.sha256(party.encode()).hexdigest()[:8]}.npz"  # "a/b" and "a_b" are two parties


def _read_ids(cells: Cells, name: str) -> list[str | int]:
    """The ids as they stand; whole numbers, which a Parquet file may have as floats, as whole numbers."""
    column = cells.column(name).cells
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in column]


def _is_number(cell: str | float) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False
