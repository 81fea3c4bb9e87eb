"""Classification under a list of constraints on what is decided: rates, gaps between groups, losses.

Rates are not smooth, so a fit solves a sequence of problems (`fedpact.fitting.sharpening`) in which decisions are
smoothed less and less: `width` is that of the smoothing, and at `centre`, the model before, every smoothed rate is
corrected by what the decisions there really count:

    smoothed(w) + counted(centre) - smoothed(centre) <= bound,

so that at a model that reproduces itself the bound is on the counts. An owner finds the correction from its own rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.data import with_intercept
from fedpact.errors import DataError, OptionError
from fedpact.federation.rules import Counts
from fedpact.problem import Measure, Share, Unscaled
from fedpact.problem.certificate import TOGETHER
from fedpact.prox import Prox, SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.decisions import Decisions, Unseen
from fedpact.tasks.holding import Holding
from fedpact.tasks.model import Model
from fedpact.tasks.requirements import (
    LOSS,
    Levels,
    Requirement,
    count_cells,
    counted_rows,
    describe_gap,
    describe_rate,
    outline,
    read_requirements,
    recall_of,
    row_of,
)
from fedpact.tasks.scored import ScoredTask
from fedpact.tasks.tables import GroupedTask, Measures, Rows
from fedpact.tasks.weights import row_weights
from fedpact.types import Matrix, Vector

#: What is minimised: losses, or errors (smoothed); "auto" takes what the constraints are about.
Objective = Literal["auto", "loss", "errors"]
Threshold = Literal["common", "own"]
#: Only the direction of a model matters to rates: a squared norm keeps it finite, this much of what a loss gets.
RATE_RIDGE = 0.1


@dataclass(frozen=True, kw_only=True)
class Classification(ScoredTask, GroupedTask):
    """A classifier, linear or a network, under a list of constraints on its decisions or losses.

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

    name: ClassVar[str] = "classification"
    title: ClassVar[str] = "a list of constraints: rates of decisions, gaps between groups, losses; or none"
    has_server_data: ClassVar[bool] = True

    constraints: tuple[Requirement, ...] = key(
        (), "the list of constraints; each is a table [[constraint]]", "constraints", name="constraint", shown="none",
        example='[{kind = "recall", at_least = 0.9}]',
    )  # fmt: skip
    objective: Objective = key(  # noqa: RUF009 - a field
        "auto", "what is minimised: the loss, or errors on rows that no constraint is about; auto: by the constraints",
        "text", choices=("auto", "loss", "errors"),
    )  # fmt: skip
    confidence: float = key(
        0.0, "confidence of all promises for rows not yet seen, where a constraint states none; 0: training rows",
        "number", example="0.95",
    )  # fmt: skip
    threshold: Threshold = key(  # noqa: RUF009 - a field
        "common", "one threshold for all owners, or one of each owner's own, where a promise is made", "text",
        choices=("common", "own"),
    )  # fmt: skip
    own_intercept: bool = key(
        False, "every owner has an intercept of its own, which it keeps for itself, in place of a common one", "bool"
    )
    calibrate: bool = key(
        False, "make probabilities of the scores of two classes at the end, by sums over the training rows", "bool"
    )
    holdout: float = key(
        0.5, "part of the rows that a promise is about, kept out of training to test it", "number", name="holdout_rows"
    )

    width: float = 0.0
    spread: float = 1.0
    centre: tuple[float, ...] = ()
    tighter: float = 0.0
    cells: Mapping[str, float] | None = None
    relaxed: int = 0
    strictness: float = 1.0
    allowance: float = 1.0
    decide_at: float = 0.0
    decide_own: bool = False
    proven: bool = False
    split: int = 0
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", read_requirements(self.constraints))
        object.__setattr__(self, "centre", tuple(self.centre))
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
        if self.promised and not (self.intercept or self.own_intercept):
            raise OptionError(
                "a promise for new rows is kept by moving the threshold; let the model have an intercept",
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

    @property
    def recalled_class(self) -> int | None:
        """The class whose recall is all that is bounded, of two: then a threshold at an owner keeps its bound."""
        found = {None if about is None else about[0] for about in (recall_of(one, self.levels) for one in self.rates)}
        return found.pop() if len(found) == 1 else None

    @property
    def promised_class(self) -> int | None:
        """The same where all of it is promised: then moving the threshold keeps the promise."""
        return self.recalled_class if len(self.promised) == len(self.rates) else None

    def miss_rate(self, one: Requirement) -> float:
        """How often the promise of one owner may fail: thresholds of the owners' own share what all may."""
        delta = 1 - one.confidence
        return delta / self.owners if self.has_own_thresholds else delta

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

    # ------------------------------------------------------------------------------------------------- at the owner

    def share(self, owner: str, held: Rows) -> Share | Unscaled:
        if not self.promised or self.evaluating:
            return super().share(owner, held)
        agreed = super().share(owner, held)
        if isinstance(
            agreed, Unscaled
        ):  # a promise is exact only if its rows had no part in the model, nor in its scales
            return super().share(owner, self._trained(owner, held))
        return agreed

    def _trained(self, owner: str, rows: Rows) -> Rows:
        """The rows without those held out."""
        labels = checks.check_codes(owner, "label", rows.y, len(rows.X), len(self.classes))
        return rows.select(~self.held_out(owner, labels, rows.group))

    def build(self, owner: str, rows: Rows) -> Share:
        factor = self.weight_of(owner, self._trained(owner, rows)) if owner != SERVER else 0.0
        rows = replace(rows, weight=rows.weight_drawn)
        everyone = replace(self._holding(owner, rows, row_weights(self, rows), factor), counts=rows.drawn)
        held = self.held_out(owner, everyone.y, everyone.group)
        everyone = replace(everyone, weight=stand_in(held, everyone.y, everyone.group, everyone.weight))
        trained = everyone.select(~held)
        decisions = Decisions(trained, everyone.select(held))
        trained.check()
        decisions.check_promises()
        constraint = None
        coupled = None
        if self.constrained:
            constraint = trained.constraint()
            coupled = trained.coupled()
        objective = None if owner == SERVER else trained.objective()
        private = int(self.own_intercept)
        return Share(objective, constraint, coupled, name=owner, measures=decisions, private=private)

    def _holding(self, owner: str, rows: Rows, weight: Vector | None, factor: float) -> Holding:
        """The rows, with the numbers of their classes and groups checked."""
        labels = checks.check_codes(owner, "label", rows.y, len(rows.X), len(self.classes))
        group = rows.group
        if group is not None:
            group = checks.check_codes(owner, "group", group, len(rows.X), len(self.groups))
        return Holding(self, owner, checks.features(owner, rows.X), labels, group, weight, factor)

    def measures_of(self, owner: str, rows: Rows, held: Callable[[], Rows]) -> Measures:
        trained: Decisions | None = None
        if self.decide_own:
            seen = held()
            measures = self.build(owner, replace(seen, X=self.design(seen.X))).measures
            assert isinstance(measures, Decisions)
            trained = measures
        return Unseen(self._holding(owner, rows, None, 0.0), trained)

    def held_out(self, owner: str, y: Labels, group: Labels | None) -> NDArray[np.bool_]:
        """Which rows are kept out of training to test promises: a part of every class and group that one is about."""
        chosen = np.zeros(len(y), dtype=bool)
        about = np.zeros(len(y), dtype=bool)
        for one in self.promised:
            for rate in one.rates:
                about |= counted_rows(rate, self.levels.class_of(one), y)
        kinds = np.zeros(len(y), dtype=np.int64) if group is None else group
        draw = np.random.default_rng([self.split, zlib.crc32(owner.encode())])
        for k in range(len(self.classes)):
            for g in np.unique(kinds):
                cell = np.flatnonzero(about & (y == k) & (kinds == g))
                taken = draw.permutation(cell)[: round(self.holdout * len(cell))]
                chosen[taken] = True
        if about.any() and chosen.all():
            raise DataError(
                f"owner {owner!r}: all of its {len(y)} rows are held out, so that none is left to train on; lower "
                "holdout (holdout_rows in a job), or give this owner more rows",
                code="FP-DATA-802",
            )
        return chosen

    def count(self, held: Rows) -> Counts:
        # Sums rest on the rows that are trained on, which a job that holds out nearly all could make few.
        kept = self.held_out("", held.y, held.group)
        return self.count_unseen(held.select(~kept))

    def count_unseen(self, unseen: Rows) -> Counts:
        counts = super().count(unseen)
        if unseen.group is None:
            return counts
        # Constraints between groups are about means over the rows of a class of each group, too.
        cells = count_cells(unseen.y, unseen.group, self.levels)
        wanted = set()
        for one in self.requirements:
            k = self.levels.class_of(one)
            for rate in one.rates if one.is_gap else ():
                if rate == "recall":
                    wanted |= {f"class {k}, group {g}" for g in range(len(self.groups))}
                elif rate in ("specificity", "false_positive_rate"):
                    wanted |= {f"not class {k}, group {g}" for g in range(len(self.groups))}
        return replace(counts, groups=(*counts.groups, *(int(cells[name]) for name in sorted(wanted))))

    # ------------------------------------------------------------------------------------------------------ for all

    @property
    def common_intercept(self) -> bool:
        """Whether the model that all share has an intercept."""
        return self.intercept and not self.own_intercept

    def design(self, X: Matrix) -> Matrix:
        matrix = super().design(X)
        if self.own_intercept and not self.intercept:  # the last column is the owner's own
            matrix = with_intercept(matrix)
        if self.relaxed:  # one more variable, which no row depends on
            matrix = np.column_stack([matrix, np.zeros(len(matrix))])
        return matrix

    def regularizer(self) -> Prox | None:
        found = super().regularizer()
        if self.relaxed:
            ridge = np.full(self.parameters, RATE_RIDGE / self.spread**2 * max(self.regularization, self.l1))
            return SquaredL2(np.append(ridge, 0.0))
        if self.minimises_errors and isinstance(found, SquaredL2):
            return SquaredL2(RATE_RIDGE / self.spread**2 * np.asarray(found.weight))
        return found

    def make_model(self, w: Vector) -> Model:
        found = replace(super().make_model(w), log_odds=not self.sharpened, own_threshold=self.decide_own)
        if not self.decide_at:
            return found
        return replace(found, intercept=found.intercept - self.decide_at)

    def measure_name(self, name: str) -> str:
        if name == "protected rows":
            k = len(self.classes) - 1 if self.guarded_class is None else self.guarded_class
            return f"rows with {self._class_in_words(k)}"
        for k in range(len(self.classes)):
            if name == f"decided as class {k}":
                return f"decided as {self._class_in_words(k)}"
        return super().measure_name(name)

    def _class_in_words(self, k: int) -> str:
        return f"{self.label} = {self.classes[k]}"

    def one_class(self, told: Mapping[str, float]) -> str:
        if told.get("accuracy", 1.0) == 1.0:  # right about all of them, if there are of one class only
            return ""
        for k in range(len(self.classes)):
            if self._gives_all(k, told):
                return self._class_in_words(k)
        return ""

    def _gives_all(self, k: int, told: Mapping[str, float]) -> bool:
        """Whether the measures show that every row is given class k."""
        if told.get(f"decided as class {k}") == 1.0:
            return True
        rates = [value for name, value in told.items() if name.startswith("positive rate of group ")]
        if rates and len(self.classes) == 2:
            return all(value == k for value in rates)
        guarded = len(self.classes) - 1 if self.guarded_class is None else self.guarded_class
        decided = (told.get("recall"), told.get("specificity"))
        if k == guarded:
            return decided == (1.0, 0.0)
        return len(self.classes) == 2 and decided == (0.0, 1.0)

    # ---------------------------------------------------------------------------------- what all owners hold together

    def cells_together(self) -> Iterator[tuple[Requirement, str, slice]]:
        """The rates or losses that all owners hold together, and where their cells are among all of these."""
        start = 0
        for one in self.requirements:
            if one.held_by != "all":
                continue
            cells = len(self.groups) if one.is_gap else 1
            for rate in one.rates or (LOSS,):
                yield one, rate, slice(start, start + cells)
                start += cells

    def tell_together(self, hits: Vector, rows: Vector) -> dict[str, Measure]:
        """The values of these constraints, by the words for them, from the sums of `Decisions.count_together`."""
        told: dict[str, Measure] = {}
        for one, rate, cells in self.cells_together():
            everyone = rate == LOSS and not one.of
            what = describe_rate(rate, self.levels.class_of(one), self.levels, everyone=everyone)
            counts = rows[cells].astype(int)
            means = hits[cells] / np.maximum(counts, 1)
            if not one.is_gap:
                told[what] = Measure(float(means[0]), int(counts[0]))
                continue
            for a, b in self.levels.pairs:
                gap = describe_gap(what, a, b, self.levels)
                fewest = int(min(counts[a], counts[b]))
                told[gap] = Measure(abs(float(means[b] - means[a])), fewest)
                told[row_of(gap)] = Measure(1 / max(fewest, 1), fewest)
        return told

    def promises_hold_together(self, hits: Vector, rows: Vector) -> bool:
        """Whether the held-out rows of all owners bear out what they promise together: exact tests."""
        for one, _, cells in self.cells_together():
            if not one.confidence:
                continue
            found = hits[cells].round().astype(int).tolist()
            counts = rows[cells].round().astype(int).tolist()
            if not one.borne_out(TOGETHER, found, counts):
                return False
        return True

    # ------------------------------------------------------------------------------------------------ in words

    def promise_in_words(self) -> str:
        """How the promises for new rows are kept; empty without any."""
        if not self.promised:
            return ""
        how = "the model was tested on them, and is the last of a fixed sequence of models that passed"
        if self.promised_class is not None:
            whose = "one threshold for all owners" if self.threshold == "common" else "every owner's own threshold"
            how = f"{whose} is set by the scores of these rows"
        if not self.proven:
            how = "what it shows does not bear the promises out"
        return (
            "Promises are about rows not yet seen, drawn as the owners' rows were. A part of the rows "
            f"({self.holdout:g} of those concerned) was held out of training: {how}."
        )

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        row = 0
        for one in self._held_by(owner):
            for bound in outline(one, self.levels_of(one), owner):
                rows = slice(row, row + bound.rows)
                row += bound.rows
                paid = float(price[rows].max()) if price[rows].size else float("nan")
                if one.rates or owner == TOGETHER:
                    value = told.get(bound.what, float("nan"))
                else:
                    value = float(values[rows].max() + bound.bound) if values[rows].size else float("nan")
                counted = 0
                if isinstance(value, Measure) and one.rates and not one.is_gap:
                    counted = value.rows
                yield Bounded(
                    owner,
                    bound.what,
                    float(value),
                    bound.bound,
                    paid,
                    least=bound.least,
                    allowed=float(told.get(row_of(bound.what), 0.0)),
                    promise=self._promise(one),
                    confidence=one.confidence,
                    rows=counted,
                )

    def _promise(self, one: Requirement) -> str:
        if not one.confidence:
            return ""
        return "kept" if self.proven else "not kept"

    def _held_by(self, owner: str) -> list[Requirement]:
        """The constraints of a holder, in the order of their rows: those on decisions first."""
        wanted = {SERVER: "server", TOGETHER: "all"}.get(owner, "each")
        own = [one for one in self.requirements if one.held_by == wanted]
        if not self.width:
            return [one for one in own if not one.rates]
        return [one for one in own if one.rates] + [one for one in own if not one.rates]


def stand_in(held: NDArray[np.bool_], y: Labels, group: Labels | None, weight: Vector | None) -> Vector | None:
    """Weights of rows in the objective, with which rows trained on stand for those held out, of their class and group.

    Without them a class that is held out in part would seem rarer than it is.
    """
    if not held.any():
        return weight
    found = np.ones(len(y)) if weight is None else weight.copy()
    kinds = np.zeros(len(y), dtype=np.int64) if group is None else group
    for k in np.unique(y):
        for g in np.unique(kinds):
            cell = (y == k) & (kinds == g)
            trained = int(np.sum(cell & ~held))
            if trained:
                found[cell] *= np.sum(cell) / trained
    return found
