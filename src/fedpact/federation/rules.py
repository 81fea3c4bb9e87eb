"""The rules that follow from a site's policy: what each is about, when it holds, the code of its refusal.

They are judged in the owner's own process (`fedpact.federation.gate`), before a step runs or a reply leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fedpact.errors import Refused
from fedpact.federation.policy import KINDS_LISTED, SitePolicy
from fedpact.watching import Watch


@dataclass(frozen=True)
class Charter:
    """What a coordinator asks the sites of a run to take part in; signed by it.

    job:         the task as it was stated, method and tolerance: what a person approves
    coordinator: its public key
    owners:      all who take part, this one among them
    """

    run: str
    coordinator: str
    owners: tuple[str, ...]
    job: Mapping[str, Any]

    @property
    def task(self) -> str:
        return str(self.job.get("task", ""))


@dataclass(frozen=True)
class Found:
    """A field of a task that a fit finds on its way, in the place of what the job states; all others are the job's.

    least, most: of a number, or of every number in a list or table
    choices:     in their place: of a text or flag
    whole:       whether a number must be a whole one
    when:        the key of the job, and its values, with which the field may change; empty: always
    """

    least: float = -1e12
    most: float = 1e12
    choices: tuple[Any, ...] = ()
    whole: bool = False
    when: tuple[str, tuple[Any, ...]] | None = None

    def allows(self, value: Any) -> bool:
        """Whether a fit may find this; None is what it has not found yet."""
        if self.choices:
            return value in self.choices
        return all(self._allows_number(one) for one in numbers_in(value))

    def _allows_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return self.least <= value <= self.most and not (self.whole and value != int(value))

    def may_change(self, job: Mapping[str, Any]) -> bool:
        return self.when is None or job.get(self.when[0]) in self.when[1]


def numbers_in(value: Any) -> Iterator[Any]:
    """What a value of a task holds, however deep; nothing for None."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from numbers_in(one)
    elif value is not None:
        yield value


@runtime_checkable
class Finding(Protocol):
    """What builds an owner's shares, and knows which fields of a task a fit finds."""

    def found(self, task: Mapping[str, Any]) -> Mapping[str, Found]: ...


@runtime_checkable
class Rowed(Protocol):
    """What builds an owner's shares, and gives the rows of its table as they stand there: to compare versions of it."""

    def rows(self) -> Iterator[bytes]: ...


@dataclass(frozen=True)
class Counts:
    """Of an owner's table, for one task: rows by class and group (empty: the task has none), numbers of its model.

    levels: of the column with the most of them, among categories, classes and groups
    spans: deviation of every column that varies here, in the units that the task scales it by
    reach: of the value that is farthest from where the task puts zero, in the same units
    total: weight of its rows, and what the task says is that of all owners' rows (0: it says nothing)
    """

    rows: int
    classes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    parameters: int = 0
    levels: int = 0
    spans: tuple[float, ...] = ()
    reach: float = 0.0
    total: tuple[float, float] = (0.0, 0.0)


#: Of what cannot be counted: admitted only by a policy that asks for nothing.
UNCOUNTED = Counts(rows=0, classes=(0,), groups=(0,), parameters=1)


@dataclass(frozen=True)
class Traffic:
    """Of a run at this site, with the order at hand.

    method: whose step the order asks for; empty for steps that all methods share
    stated: the method that the job states; "auto" and empty: any that the policy allows
    released: answers that left the table in the last month, this one among them
    length: of the longest vector that the order holds or asks for
    steps:  local steps that the order asks for
    """

    method: str
    exchanges: int
    bytes: int
    length: int
    steps: int
    stated: str = ""
    released: int = 0


@dataclass(frozen=True)
class Past:
    """What this site has done before: runs that began in the last 24 hours, and runs that the new one resembles.

    told:    answers of the last month that told numbers of this owner alone
    others:  who took part in the last run about the same label, where they are others than now
    changed: rows by which the table differs from an earlier version that was run on, the fewest; 0: none
    """

    runs_today: int
    similar: int
    approved: bool
    told: int = 0
    others: tuple[str, ...] = ()
    changed: int = 0


F = TypeVar("F")


@dataclass(frozen=True)
class Rule(Generic[F]):
    """name: the key of site.toml; code: of the refusal; holds: whether the policy allows the fact."""

    name: str
    code: str
    holds: Callable[[SitePolicy, F], bool]


#: Rules about a run, judged once, before anything else is answered.
ABOUT_RUN: tuple[Rule[Charter], ...] = (
    Rule("coordinators", "FP-REFUSED-001", lambda p, run: run.coordinator in p.coordinators.values()),
    Rule("name", "FP-REFUSED-002", lambda p, run: p.name in run.owners),
    Rule("peers", "FP-REFUSED-003", lambda p, run: set(run.owners) <= {p.name, *p.peers}),
    Rule("owners", "FP-REFUSED-004", lambda p, run: len(set(run.owners)) >= p.owners),
    Rule("tasks", "FP-REFUSED-005", lambda p, run: run.task in p.tasks),
    Rule("label_to", "FP-REFUSED-655", lambda p, run: set(told_labels(run.job, run.owners, p.name)) <= {*p.label_to}),
)
#: Rules about a run in the light of what came before.
ABOUT_PAST: tuple[Rule[Past], ...] = (
    Rule("approval", "FP-REFUSED-010", lambda p, past: past.approved or not p.approval),
    Rule("runs_a_day", "FP-REFUSED-011", lambda p, past: past.runs_today < p.runs_a_day),
    Rule("similar_runs", "FP-REFUSED-012", lambda p, past: past.similar <= p.similar_runs),
    Rule("rows_changed", "FP-REFUSED-646", lambda p, past: not 0 < past.changed < p.rows_changed),
    Rule("same_owners", "FP-REFUSED-647", lambda p, past: not (past.others and p.same_owners)),
)
#: Rules about a task, judged whenever it changes: the scaling and the bounds of a job are found on the way.
ABOUT_TASK: tuple[Rule[Mapping[str, Any]], ...] = (
    Rule("tasks", "FP-REFUSED-020", lambda p, task: task.get("task") in p.tasks),
    Rule("features", "FP-REFUSED-021", lambda p, task: columns_used(task, p.name) <= set(p.features)),
    Rule("labels", "FP-REFUSED-022", lambda p, task: labels_used(task, p.name) <= set(p.labels)),
    Rule("groups", "FP-REFUSED-023", lambda p, task: held_here(task, "group", p.name) <= set(p.groups)),
    Rule("ids", "FP-REFUSED-025", lambda p, task: not is_vertical(task) or task.get("id") in p.ids),
    Rule("sent", "FP-REFUSED-026", lambda p, task: columns_sent(task, p.name) <= set(p.sent)),
    Rule(
        "values",
        "FP-REFUSED-024",
        lambda p, task: all(meets_all(task, name, condition, p.name) for name, condition in p.values.items()),
    ),
    Rule("kinds", "FP-REFUSED-050", lambda p, task: all(one.get("kind") in p.kinds for one in constraints_of(task))),
    Rule("constraints", "FP-REFUSED-051", lambda p, task: len(constraints_of(task)) <= p.constraints),
    Rule("least_share", "FP-REFUSED-640", lambda p, task: least_share(task) >= p.least_share),
    Rule("bounds_apart", "FP-REFUSED-641", lambda p, task: bounds_apart(task) <= p.bounds_apart),
)
#: Rules about the owner's own table.
ABOUT_TABLE: tuple[Rule[Counts], ...] = (
    Rule("rows", "FP-REFUSED-030", lambda p, table: table.rows >= p.rows),
    Rule(
        "rows_per_class",
        "FP-REFUSED-031",
        lambda p, table: min(table.classes, default=p.rows_per_class) >= p.rows_per_class,
    ),
    Rule(
        "rows_per_group",
        "FP-REFUSED-032",
        lambda p, table: min(table.groups, default=p.rows_per_group) >= p.rows_per_group,
    ),
    Rule(
        "rows_per_parameter", "FP-REFUSED-033", lambda p, table: table.rows >= p.rows_per_parameter * table.parameters
    ),
    Rule(
        "scales",
        "FP-REFUSED-639",
        lambda p, table: all(1 / p.scales <= span <= p.scales for span in table.spans) and table.reach <= p.scales,
    ),
    Rule(
        "levels",
        "FP-REFUSED-652",
        lambda p, table: table.levels <= p.levels and table.levels <= p.level_share * table.rows,
    ),
    Rule("total_rows", "FP-REFUSED-642", lambda p, table: not 0 < table.total[1] < table.total[0]),
)
#: Rules about what a step computed, judged before its reply is remembered: the rows behind its sums, and its model.
ABOUT_SUMS: tuple[Rule[Watch], ...] = (
    Rule("effective_rows", "FP-REFUSED-644", lambda p, watch: watch.rows >= p.effective_rows),
    Rule("boundary_rows", "FP-REFUSED-653", lambda p, watch: watch.boundary >= p.boundary_rows),
    Rule("model_size", "FP-REFUSED-645", lambda p, watch: watch.span <= p.model_size),
)
#: Rules about a reply, judged before it leaves: whether it holds sums in the clear.
ABOUT_REPLY: tuple[Rule[bool], ...] = (
    Rule("secure_sums", "FP-REFUSED-007", lambda p, bare: not (bare and p.secure_sums)),
)
#: Rules about a reply that tells numbers of this owner alone, judged before it leaves: how many there are with it, in
#: this run and in the last month.
ABOUT_TOLD: tuple[Rule[tuple[int, int]], ...] = (
    Rule("questions", "FP-REFUSED-041", lambda p, told: told[0] <= p.questions),
    Rule("questions_a_month", "FP-REFUSED-650", lambda p, told: told[1] <= p.questions_a_month),
)
#: Rules about the orders of a run that failed or were refused: what an error tells is told, too.
ABOUT_ERRORS: tuple[Rule[int], ...] = (Rule("errors", "FP-REFUSED-648", lambda p, errors: errors < p.errors),)
#: Rules about an order, judged before it runs.
ABOUT_ORDER: tuple[Rule[Traffic], ...] = (
    Rule(
        "vertical_exact",
        "FP-REFUSED-045",
        lambda p, traffic: traffic.method != "vertical-exact" or p.vertical_exact,
    ),
    Rule("methods", "FP-REFUSED-006", lambda p, traffic: not traffic.method or traffic.method in p.methods),
    Rule(
        "method",
        "FP-REFUSED-643",
        lambda p, traffic: not traffic.method or traffic.stated in ("", "auto", traffic.method),
    ),
    Rule("exchanges", "FP-REFUSED-040", lambda p, traffic: traffic.exchanges <= p.exchanges),
    Rule("releases", "FP-REFUSED-651", lambda p, traffic: traffic.released <= p.releases),
    Rule("bytes", "FP-REFUSED-042", lambda p, traffic: traffic.bytes <= p.bytes),
    Rule("length", "FP-REFUSED-043", lambda p, traffic: traffic.length <= p.length),
    Rule("local_steps", "FP-REFUSED-044", lambda p, traffic: traffic.steps <= p.local_steps),
)


def is_vertical(task: Mapping[str, Any]) -> bool:
    """Whether owners hold different columns, which the task lists by owner."""
    return isinstance(task.get("columns"), Mapping)


def columns_used(task: Mapping[str, Any], owner: str) -> set[str]:
    """Columns of this owner that enter the model or weigh its rows.

    A vertical task that lists none for it would take all columns of its table: they have no name that a policy allows.
    """
    if is_vertical(task):
        return set(task["columns"].get(owner) or [""])
    more = (task.get(name) for name in ("offset", "sample_weight", "cluster"))
    return {*(task.get("columns") or ()), *(column for column in more if column)}


def held_here(task: Mapping[str, Any], role: str, owner: str) -> set[str]:
    """The columns that are the label or the groups, if this owner holds them: one party does in a vertical task."""
    columns = {task[role]} if task.get(role) else set()
    if role == "group":
        columns |= set(task.get("attributes") or ())
    holder: str | None = owner
    if is_vertical(task):
        holder = task.get("label_at")
        if role == "group":
            holder = task.get("group_at") or holder
    return columns if holder == owner else set()


def labels_used(task: Mapping[str, Any], owner: str) -> set[str]:
    """What is predicted: the label and, of times to an event, the column that says whether it was seen."""
    return held_here(task, "label", owner) | held_here(task, "event", owner)


def columns_sent(task: Mapping[str, Any], owner: str) -> set[str]:
    """Columns of this owner that a task sends to the coordinator row by row."""
    if not is_vertical(task):
        return set()
    return held_here(task, "label", owner) | held_here(task, "group", owner)


def told_labels(job: Mapping[str, Any], owners: Sequence[str], owner: str) -> list[str]:
    """Parties that learn everyone's label from this owner: what a vertical job sends down to them are slopes of it."""
    if not is_vertical(job) or not labels_used(job, owner):
        return []
    return [other for other in owners if other != owner]


def constraints_of(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The list of constraints that a task states."""
    return [one for one in task.get("constraints") or () if isinstance(one, Mapping)]


def meets_all(task: Mapping[str, Any], name: str, condition: Any, owner: str) -> bool:
    """Whether a task satisfies a condition on one of its keys, or on the bounds of a kind of constraint in its list."""
    if name not in KINDS_LISTED:
        return meets(task.get(name), condition, owner)
    listed = [one for one in constraints_of(task) if one.get("kind") == name]
    bounds = [one.get(side) for one in listed for side in ("at_least", "at_most")]
    return all(meets(bound, condition, owner) for bound in bounds if bound is not None)


def meets(value: Any, condition: Any, owner: str) -> bool:
    """Whether a job's value satisfies a condition: equal to it, one of a list, or within a range.

    A value that the job states owner by owner counts with this owner's own; one that it does not state meets nothing.
    """
    if isinstance(value, Mapping):
        value = value.get(owner)
    if value is None:
        return False
    if isinstance(condition, Mapping):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and condition.get("least", value) <= value <= condition.get("most", value)
    if isinstance(condition, list):
        return value in condition
    return bool(value == condition)


def changed_field(task: Mapping[str, Any], job: Mapping[str, Any], found: Mapping[str, Found]) -> str:
    """The first field of a task that is not its job's, nor one that a fit finds within its range; empty: none is."""
    for name, value in task.items():
        same = name in job and is_stated(value, job[name])
        about = found.get(name)
        if about is None and not same:
            return name
        if about is not None and not (about.allows(value) and (same or about.may_change(job))):
            return name
    return ""


def is_stated(value: Any, stated: Any) -> bool:
    """Whether a value is the one that the job states; a file counts by its digest."""
    if isinstance(value, Mapping) and isinstance(stated, str):
        return value.get("digest") == stated
    return bool(value == stated)


def method_stated(job: Mapping[str, Any]) -> str:
    """The method that a job states, whatever its options; empty where it states none."""
    method = job.get("method") or ""
    return str(method.get("name", "")) if isinstance(method, Mapping) else str(method)


#: Keys of a task whose values may differ by owner, and weigh it in a sum, or bound it there.
BOUNDS = ("bound", "max_loss", "max_gap", "max_mean_error")


def least_share(task: Mapping[str, Any]) -> float:
    """What the owner, or class, that weighs least weighs, by the task; 1: what all weigh if they weigh alike.

    The others would stand alone in a sum in which it weighs nothing.
    """
    found = 1.0
    for name in ("owners_weigh", "class_weight"):
        stated = task.get(name)
        if isinstance(stated, Mapping) and stated:
            weights = [float(one) for one in stated.values()]
            found = min(found, min(weights) * len(weights) / sum(weights))
    return found


def bounds_apart(task: Mapping[str, Any]) -> float:
    """By what factor the room differs that the task leaves to its owners: one with none stands alone in a sum."""
    rooms = [task.get(name) for name in BOUNDS]
    for one in constraints_of(task):
        least = one.get("at_least")
        rooms.append(one.get("at_most"))
        if isinstance(least, Mapping):
            rooms.append({owner: 1 - float(value) for owner, value in least.items()})
    found = 1.0
    for room in rooms:
        if isinstance(room, Mapping) and room:
            values = [abs(float(one)) for one in room.values()]
            found = max(found, max(values) / max(min(values), 1e-300))
    return found


def check(policy: SitePolicy, rules: tuple[Rule[F], ...], fact: F) -> None:
    """Refused, with the first rule that does not hold."""
    for rule in rules:
        if not rule.holds(policy, fact):
            raise Refused(f"{policy.name}: refused by the rule {rule.name!r} of its policy", code=rule.code)
