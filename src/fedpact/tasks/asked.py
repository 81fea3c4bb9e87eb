"""What a classification asks for: the keys of a job for it, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedpact.data.cells import ABSENT, Cells, find_defect
from fedpact.errors import DataError, OptionError
from fedpact.federation.rules import Found
from fedpact.tasks.base import found, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.requirements import LOSS, Levels, Requirement, read_requirements, recall_of
from fedpact.tasks.scored import ScoredTask
from fedpact.tasks.tables import GroupedTask

#: What is minimised: losses, or errors (smoothed); "auto" takes what the constraints are about.
Objective = Literal["auto", "loss", "errors"]
AIMS = get_args(Objective)
Threshold = Literal["common", "own"]


@dataclass(frozen=True, kw_only=True)
class AskedTask(ScoredTask, GroupedTask):
    """A list of constraints on decisions or losses, and the objective under them.

    Keys of a job first; then what a fit finds on its way:

    width:     of the smoothing of decisions, in units of `spread`; 0: rates are left out, which gives the start
    spread:    deviation of the scores of the start, where errors are minimised: nothing else sets their scale; where a
               loss is minimised, of the model before if it is below 1
    centre:    model at which smoothed rates are corrected by the counts; empty: nowhere
    tighter:   rows by which every owner tightens its rates, since the models before missed them
    cells:     rows of every cell at all owners together, for constraints that all hold together
    relaxed:   number of the constraint whose least relaxation is sought, counted from 1; 0: none
    strictness: part of every bound that the models for a promise have to meet; 1: the bounds themselves
    allowance: multiple of what every bound allows, for models around the asked one; 1: as it was asked
    decide_at: score above which the last class is decided: found for a promise about new rows
    decide_own: whether every owner decides at a threshold of its own, found from its held-out rows
    proven:    whether the held-out rows of all owners bear out the promises
    split:     seed of which rows are held out
    attributes: of a vertical task several columns of groups, each with what it may be; a row's group is then its
               combination of them, and every gap is between the groups of one
    """

    constraints: tuple[Requirement, ...] = key(
        (), "the list of constraints; each is a table [[constraint]]", "constraints", name="constraint", shown="none",
        example='[{kind = "recall", at_least = 0.9}]',
    )  # fmt: skip
    objective: Objective = key(  # noqa: RUF009 - a field
        "auto", "what is minimised: the loss, or errors on rows that no constraint is about; auto: by the constraints",
        "text", choices=AIMS, found=Found(choices=AIMS, when=("objective", ("auto", "errors"))),
    )  # fmt: skip
    confidence: float = key(
        0.0, "confidence of all promises for rows not yet seen, where a constraint states none; 0: training rows",
        "number", example="0.95",
    )  # fmt: skip
    threshold: Threshold = key(  # noqa: RUF009 - a field
        "common", "one threshold for all owners, or one of each owner's own, where a promise is made", "text",
        choices=("common", "own"),
    )  # fmt: skip
    cluster: str = key(
        "", "column of what rows share, such as a patient: whole clusters are held out, and one row of each counts",
        "text", example='"patient"',
    )  # fmt: skip
    promise_for: tuple[str, ...] = key(
        (), "owners that promise; the others are trained with, and their bounds are counted on the rows trained on",
        "texts", shown="all owners", example='["north", "south"]',
    )  # fmt: skip
    own_intercept: bool = key(
        False, "every owner has an intercept of its own, which it keeps for itself, in place of a common one", "bool"
    )
    calibrate: bool = key(
        False, "make probabilities of the scores of two classes at the end, by sums over the training rows", "bool"
    )
    holdout: float = key(
        0.5, "part of the rows that a promise is about, held out of training to test it", "number", name="holdout_rows"
    )

    width: float = found(0.0, least=0.0, most=1e9)
    spread: float = found(1.0, least=1e-9, most=1e9)
    centre: tuple[float, ...] = found((), least=-1e6, most=1e6)
    tighter: float = found(0.0, least=0.0, most=100.0)
    cells: Mapping[str, float] | None = found(None, least=0.0)
    relaxed: int = found(0, least=0, most=1000, whole=True)
    strictness: float = found(1.0, least=0.01, most=1.0)
    allowance: float = found(1.0, least=0.01, most=100.0, when=("trade_off", (True,)))
    decide_at: float = found(0.0, least=-1e6, most=1e6)
    decide_own: bool = found(False, choices=(True, False))
    proven: bool = found(False, choices=(True, False))
    split: int = 0
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", read_requirements(self.constraints))
        object.__setattr__(self, "centre", tuple(self.centre))
        object.__setattr__(self, "promise_for", tuple(self.promise_for))
        super().__post_init__()
        self._check_constraints()
        if self.is_network:
            self._check_network()
        if not 0 < self.holdout < 1:
            raise OptionError(
                f"holdout = {self.holdout:g}: give the part of the rows that is kept out of training, above 0 and "
                "below 1",
                code="FP-OPTION-820",
                key="holdout",
            )

        if self.calibrate and len(self.classes) != 2:
            raise OptionError(
                f"calibrate is for two classes, and there are {len(self.classes)}; leave it out",
                code="FP-OPTION-860",
                key="calibrate",
            )

    def _check_constraints(self) -> None:
        if self.confidence and not any(one.confidence for one in self.requirements):
            raise OptionError(
                f"confidence = {self.confidence:g}, but no constraint is about decisions at the owners",
                code="FP-OPTION-821",
                key="confidence",
            )
        for one in self.requirements:
            self.levels.class_of(one)
            if one.is_gap and not self.group and self.constrained:
                raise OptionError(
                    f"{one.words}: it is between groups; state group = ..., the column of the groups",
                    code="FP-OPTION-822",
                    key="group",
                )
            known = tuple(self.attributes) or ("", self.group)
            if one.is_gap and one.between not in known:
                raise OptionError(
                    f"{one.words} between = {one.between!r}: choose {', '.join(filter(None, known))}",
                    code="FP-OPTION-815",
                    key="between",
                )
        kept_by_threshold = not self.rates or self.recalled_class is not None
        if self.own_intercept and not kept_by_threshold:
            raise OptionError(
                "own_intercept goes with losses, and with the recall, specificity or false-positive rate of one class "
                "of two at each owner, which a threshold of its own keeps; leave it out for gaps and other rates",
                code="FP-OPTION-825",
                key="own_intercept",
            )
        if self.promise_for and not self.promised:
            raise OptionError(
                "promise_for says who promises, and nothing is promised; state a confidence, or leave it out",
                code="FP-OPTION-319",
                key="promise_for",
            )
        if self.promise_for and any(one.held_by == "all" for one in self.promised):
            raise OptionError(
                "promise_for leaves owners out of a promise that all make together; let each owner hold the bound "
                '(held_by = "each"), or leave promise_for out',
                code="FP-OPTION-318",
                key="promise_for",
            )
        if self.promised and not (self.intercept or self.own_intercept):
            raise OptionError(
                "a promise for new rows needs a threshold that can move; let the model have an intercept",
                code="FP-OPTION-823",
                key="intercept",
            )

    def _check_network(self) -> None:
        if self.objective == "errors":
            raise OptionError(
                "a network is trained by its loss; leave objective out", code="FP-OPTION-905", key="objective"
            )
        if self.own_intercept:
            raise OptionError(
                'own_intercept is for linear models; leave it out, or state threshold = "own"',
                code="FP-OPTION-906",
                key="own_intercept",
            )
        if self.coupled:
            raise OptionError(
                "no method for networks takes bounds over all owners together; let each owner hold them",
                code="FP-OPTION-907",
                key="held_by",
            )

    @property
    def columns_read(self) -> tuple[str, ...]:
        more = (self.cluster,) if self.cluster else ()
        return (*super().columns_read, *more)

    def read_clusters(self, cells: Cells) -> NDArray[np.intp] | None:
        if not self.cluster:
            return None
        distinct, which = cells.column(self.cluster).codes()
        if any(find_defect(str(cell)) is ABSENT for cell in distinct):
            raise DataError(
                f"{cells.path}: column {self.cluster!r} has absent cells; give every row its cluster, if need be one "
                "of its own",
                code="FP-DATA-320",
                column=self.cluster,
            )
        return np.asarray(which, dtype=np.intp)

    def among(self, names: Sequence[str]) -> Self:
        if unknown := [name for name in self.promise_for if name not in names]:
            raise OptionError(
                f"promise_for names {unknown[0]!r}, which is no owner; the owners are {', '.join(names)}",
                code="FP-OPTION-317",
                key="promise_for",
            )
        return super().among(names)

    # ------------------------------------------------------------------------------------------------- what is asked

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All constraints, with the confidence of the task where they state none of their own."""
        found = []
        for one in (*self.own_requirements(), *self.constraints):
            promised = self.confidence and one.kind != LOSS and one.held_by != "server" and not one.confidence
            found.append(replace(one, confidence=self.confidence) if promised else one)
        return tuple(found)

    def own_requirements(self) -> tuple[Requirement, ...]:
        """Those that the keys of a kind of task state, besides the list."""
        return ()

    @property
    def levels(self) -> Levels:
        groups = self.groups if self.group else ()
        return Levels(self.classes, groups, self.label, self.group)

    def levels_of(self, one: Requirement) -> Levels:
        """Names of the classes and of the groups that a constraint is about: of several attributes, of one of them."""
        if not (self.attributes and one.is_gap):
            return self.levels
        return Levels(self.classes, self.attributes[one.between], self.label, one.between)

    def codes_of(self, one: Requirement, group: Labels | None) -> Labels | None:
        """The number of every row's group among those."""
        if group is None or not (self.attributes and one.is_gap):
            return group
        sizes = [len(levels) for levels in self.attributes.values()]
        return np.asarray(np.unravel_index(group, sizes)[list(self.attributes).index(one.between)])

    @property
    def rates(self) -> tuple[Requirement, ...]:
        """The constraints on decisions."""
        return tuple(one for one in self.requirements if one.rates)

    @property
    def sharpened(self) -> bool:
        """Whether decisions are constrained: then a sequence of smoothed problems is solved."""
        return bool(self.rates) and self.constrained

    @property
    def promised(self) -> tuple[Requirement, ...]:
        """The constraints that shall hold on rows not yet seen."""
        return tuple(one for one in self.requirements if one.confidence)

    def promised_by(self, owner: str) -> tuple[Requirement, ...]:
        """The same at an owner: none where it is left out of the promise. owner: "" stands for any that promises"""
        left_out = self.promise_for and owner and owner not in self.promise_for
        return () if left_out else self.promised

    @property
    def recalled_class(self) -> int | None:
        """The class whose recall is all that is bounded, of two: then a threshold at an owner keeps its bound."""
        found = {None if about is None else about[0] for about in (recall_of(one, self.levels) for one in self.rates)}
        return found.pop() if len(found) == 1 else None

    @property
    def promised_class(self) -> int | None:
        """The same where all of it is promised: then moving the threshold suffices for the promise."""
        return self.recalled_class if len(self.promised) == len(self.rates) else None

    def miss_rate(self, one: Requirement) -> float:
        """How often the promise of one owner may fail: thresholds of the owners' own share what all may."""
        delta = 1 - one.confidence
        promising = len(self.promise_for) or self.owners
        return delta / promising if self.has_own_thresholds else delta

    @property
    def has_own_thresholds(self) -> bool:
        """Whether every owner decides at a threshold of its own in the end."""
        return self.threshold == "own" or self.own_intercept

    @property
    def coupled(self) -> bool:
        """Whether a constraint is about all owners' rows together."""
        return any(one.held_by == "all" for one in self.requirements)

    @property
    def guarded_class(self) -> int | None:
        """The class that all one-sided constraints are about, where the errors on the others are what is minimised.

        None: the constraints are about several classes, about groups only, or about all owners' rows together, which
        one threshold meets.
        """
        found = set()
        for one in self.requirements:
            if one.is_gap:
                continue
            if one.held_by == "all":
                return None
            k = self.levels.class_of(one)
            if one.kind in ("specificity", "false_positive_rate") and len(self.classes) == 2:
                k = 1 - k
            elif one.kind != "recall" and not (one.kind == LOSS and one.of):
                return None
            found.add(k)
        if len(found) != 1:
            return None
        return found.pop()

    @property
    def reported_class(self) -> int:
        """The class that "recall" and "specificity" are of among the measures, whatever is bounded.

        Of two classes the positive one, the last, as elsewhere; of several the guarded one, or the last.
        """
        if len(self.classes) == 2 or self.guarded_class is None:
            return len(self.classes) - 1
        return self.guarded_class

    @property
    def minimises_others(self) -> bool:
        """Whether the objective is about the rows that no constraint guards, and not about all.

        A network whose rates are bounded needs the slopes of its loss on all rows: those of smoothed rates vanish where
        decisions are certain.
        """
        if self.objective == "loss" or (self.is_network and self.rates):
            return False
        return self.guarded_class is not None

    @property
    def bounds_gaps_only(self) -> bool:
        """Whether all that is constrained are gaps in decisions, each holder's own."""
        return all(one.is_gap and one.rates and one.held_by != "all" for one in self.requirements)

    @property
    def smoothing(self) -> float:
        """Width of the smoothing in units of the scores."""
        return self.width * self.spread

    @property
    def aims_at_errors(self) -> bool:
        """Whether errors are minimised in the end, and not a loss."""
        if not self.rates or self.objective == "loss" or self.is_network:
            return False
        return self.objective == "errors" or self.guarded_class is not None

    @property
    def minimises_errors(self) -> bool:
        """Whether the objective is a rate of errors: once decisions are smoothed."""
        return bool(self.width) and self.aims_at_errors

    @property
    def counts_objective(self) -> bool:
        """Whether what is minimised can be counted: errors."""
        return self.minimises_errors and not self.relaxed

    def sentence(self) -> str:
        if not self.requirements:
            return "Least loss on all rows, without constraints."
        return self._ask_for(self.requirements)

    def _ask_for(self, requirements: Iterable[Requirement]) -> str:
        words = "; ".join([*map(self._describe, requirements), self._aim()])
        return f"{words[0].upper()}{words[1:]}."

    def _describe(self, one: Requirement) -> str:
        k = self.levels.class_of(one)
        of_class = f" of {self.label} = {self.classes[k]}" if one.rates and not one.is_gap else ""
        if one.kind == LOSS and one.of:
            of_class = f" on {self.label} = {self.classes[k]}"
        between = f" between groups of {one.between or self.group}" if one.is_gap else ""
        where = {"each": self.everyone(), "all": "over all owners together", "server": "at the coordinator"}
        promised = f", on rows not yet seen with confidence {one.confidence:g}" if one.confidence else ""
        return f"{one.words}{of_class}{between} {one.bounds_in_words()} {where[one.held_by]}{promised}"

    def _aim(self) -> str:
        about = "errors" if self.aims_at_errors else "loss"
        if self.minimises_others:
            return f"least {about} on the others"
        return f"least {about} on all rows"
