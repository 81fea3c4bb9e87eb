"""The rules that follow from a site's policy: what each is about, when it holds, the code of its refusal.

They are judged in the owner's own process (`fedpact.federation.gate`), before a step runs or a reply leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fedpact.errors import Refused
from fedpact.federation.policy import KINDS_LISTED, SitePolicy


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
class Counts:
    """Of an owner's table, for one task: rows by class and group (empty: the task has none), numbers of its model."""

    rows: int
    classes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    parameters: int = 0


#: Of what cannot be counted: admitted only by a policy that asks for nothing.
UNCOUNTED = Counts(rows=0, classes=(0,), groups=(0,), parameters=1)


@dataclass(frozen=True)
class Traffic:
    """Of a run at this site, with the order at hand.

    method: whose step the order asks for; empty for steps that all methods share
    length: of the longest vector that the order holds or asks for
    steps:  local steps that the order asks for
    """

    method: str
    exchanges: int
    bytes: int
    length: int
    steps: int


@dataclass(frozen=True)
class Past:
    """What this site has done before: runs that began in the last 24 hours, and runs that the new one resembles."""

    runs_today: int
    similar: int
    approved: bool


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
)
#: Rules about a run in the light of what came before.
ABOUT_PAST: tuple[Rule[Past], ...] = (
    Rule("approval", "FP-REFUSED-010", lambda p, past: past.approved or not p.approval),
    Rule("runs_a_day", "FP-REFUSED-011", lambda p, past: past.runs_today < p.runs_a_day),
    Rule("similar_runs", "FP-REFUSED-012", lambda p, past: past.similar <= p.similar_runs),
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
)
#: Rules about a reply, judged before it leaves: whether it holds sums in the clear.
ABOUT_REPLY: tuple[Rule[bool], ...] = (
    Rule("secure_sums", "FP-REFUSED-007", lambda p, bare: not (bare and p.secure_sums)),
)
#: Rules about a reply that tells numbers of this owner alone, judged before it leaves: how many there are with it.
ABOUT_TOLD: tuple[Rule[int], ...] = (Rule("questions", "FP-REFUSED-041", lambda p, told: told <= p.questions),)
#: Rules about an order, judged before it runs.
ABOUT_ORDER: tuple[Rule[Traffic], ...] = (
    Rule(
        "vertical_exact",
        "FP-REFUSED-045",
        lambda p, traffic: traffic.method != "vertical-exact" or p.vertical_exact,
    ),
    Rule("methods", "FP-REFUSED-006", lambda p, traffic: not traffic.method or traffic.method in p.methods),
    Rule("exchanges", "FP-REFUSED-040", lambda p, traffic: traffic.exchanges <= p.exchanges),
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
    more = (task.get(name) for name in ("offset", "sample_weight"))
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


def check(policy: SitePolicy, rules: tuple[Rule[F], ...], fact: F) -> None:
    """Refused, with the first rule that does not hold."""
    for rule in rules:
        if not rule.holds(policy, fact):
            raise Refused(f"{policy.name}: refused by the rule {rule.name!r} of its policy", code=rule.code)
