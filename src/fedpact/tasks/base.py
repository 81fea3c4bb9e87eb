"""A task: from an owner's data to its share, what is told about a model, and the words for it.

A task is a frozen dataclass that all owners agree on; it goes to every owner with every order. Its fields are keys of a
job file, declared once by `key`: the reader of jobs, `fedpact init`, the reference page and the schema for editors are
made from that.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from fedpact.alignment import People
from fedpact.data.columns import file_rows
from fedpact.errors import DataError, OptionError, OwnerError
from fedpact.federation.aligned import Rows as RowNumbers
from fedpact.federation.digest import digest
from fedpact.federation.rules import UNCOUNTED, Counts, Found
from fedpact.problem import Party, Share, Unscaled
from fedpact.prox import Prox
from fedpact.types import Vector

#: The name of who coordinates, among owners.
SERVER = "server"
#: The key that lists, in a JSON file of a run, which of its claims no owner signed (fedpact.jobs.word).
WORD = "coordinators_word"

# ----------------------------------------------------------------------------------------------------------------- keys


@dataclass(frozen=True)
class Key:
    """A key of a job file.

    doc:     one line for the reader
    kind:    what its value must be, see `fedpact.jobs.keys.KINDS`
    name:    in the file, where it differs from the field's
    shown:   the default of the file, in TOML or in words, where it differs from the field's
    example: a value in TOML, where the default does not show what one looks like
    choices: of a text
    """

    doc: str
    kind: str
    name: str = ""
    shown: str = ""
    example: str = ""
    choices: tuple[str, ...] = ()


def key(default: Any, doc: str, kind: str, **about: Any) -> Any:
    """A field of a task that is a key of a job; `about` are the fields of `Key`, and `found` where a fit changes it."""
    metadata: dict[str, Any] = {}
    if "found" in about:
        metadata["found"] = about.pop("found")
    metadata["key"] = Key(doc, kind, **about)
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def found(default: Any, **about: Any) -> Any:
    """A field of a task that a fit finds on its way; `about` are the fields of `Found`, which sites check."""
    metadata = {"found": Found(**about)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def found_fields(kind: type[Task]) -> dict[str, Found]:
    """What a fit of such a task finds; all other fields are as the job states them, for a whole run."""
    return {f.name: f.metadata["found"] for f in fields(kind) if "found" in f.metadata}


def keys_of(task: Any) -> dict[str, tuple[str, Any, Key]]:
    """The keys that a task, or another dataclass, declares: name in the file -> (field, default, key)."""
    declared = [(f.name, f.default, f.metadata["key"]) for f in fields(task) if "key" in f.metadata]
    return {about.name or name: (name, default, about) for name, default, about in declared}


# --------------------------------------------------------------------------------------------------------- told things


@dataclass(frozen=True)
class Bounded:
    """One constraint at one owner, in the user's terms.

    owner:    its name, "server", or "all owners" for what they meet together
    what:     the quantity, e.g. "mean loss on class 1"
    value:    at the model handed back; bound: what it may be at most, or at least
    price:    multiplier: by how much the objective would fall per unit of bound more, near this point; NaN: it has none
    withheld: whether the owner does not tell the value (then NaN), since it rests on too few rows for its policy
    least:    whether it is bounded from below
    allowed:  excess that counts as met: of a gap between counted rates one row's worth
    promise:  for rows not yet seen: "" (none is asked for), "made" or "not made", whatever the value here is
    confidence: of the promise; 0 without one
    rows:     on which a rate was counted; 0: it is none, such as a loss or a gap
    """

    owner: str
    what: str
    value: float
    bound: float
    price: float
    withheld: bool = False
    least: bool = False
    allowed: float = 0.0
    promise: str = ""
    confidence: float = 0.0
    rows: int = 0

    @property
    def slack(self) -> float:
        """How far the value is on the right side of its bound."""
        return self.value - self.bound if self.least else self.bound - self.value

    @property
    def counted(self) -> bool:
        """Whether the value comes from counted decisions: met or not, without a tolerance of the solver."""
        return self.rows > 0 or self.allowed > 0


# ---------------------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What all owners agree on.

    owners:      how many there are
    constrained: False leaves the constraints out: to compare with
    evaluating:  asks about rows that nobody trains on: a model can be measured on them, and nothing else
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line for the reader of a job file
    aligned: ClassVar[bool] = False  # do owners hold columns of the same people, to be aligned by ids?
    has_server_data: ClassVar[bool] = False  # may the coordinator have a table of its own?
    comparable: ClassVar[bool] = False  # is there a model without constraints to compare with?

    owners: int = 0
    constrained: bool = found(True, choices=(True, False))
    evaluating: bool = False

    def among(self, names: Sequence[str]) -> Self:
        """The task of these owners."""
        return replace(self, owners=len(names))

    @abstractmethod
    def read(self, path: Path) -> Any:
        """What the task needs of an owner's file; parsed once a session."""

    @property
    def reading(self) -> object:
        """What `read` depends on: read again when it changes."""
        return None

    @abstractmethod
    def share(self, owner: str, held: Any) -> Share | Unscaled | Party:
        """The owner's share, from what `read` gave. Runs where the data is."""

    def evaluation(self, owner: str, unseen: Any, held: Callable[[], Any]) -> Share:
        """What measures a model on rows that nobody trains on: a share without objective and constraint.

        unseen: what `read` gave of these rows; held: gives the same of those that were trained on, where it is needed
        """
        raise OptionError(
            f"task {self.name!r} has no model that other tables could be measured with; train a classifier or a "
            "regression",
            code="FP-OPTION-834",
            key="task",
        )

    def people(self, owner: str, held: Any) -> People:
        """Who is in the owner's table, from what `read` gave: for tasks about parties that hold columns."""
        raise OptionError(
            f"task {self.name!r} has no ids to align parties by; use a task about parties that hold columns",
            code="FP-OPTION-416",
            key="task",
        )

    def take(self, held: Any, rows: RowNumbers) -> Any:
        """What `read` gave, of these rows only and in this order: those of an alignment."""
        raise OptionError(f"task {self.name!r} takes no rows of an alignment", code="FP-OPTION-418", key="task")

    def count(self, held: Any) -> Counts:
        """Count what `read` gave, for the policy of a site. A task that does not say how is refused by most sites."""
        return UNCOUNTED

    def count_unseen(self, unseen: Any) -> Counts:
        """The same of rows that nobody trains on."""
        return self.count(unseen)

    @abstractmethod
    def sentence(self) -> str:
        """What is asked, in one sentence."""

    @abstractmethod
    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        """The owner's constraints in the user's terms.

        values, price: of the constraint at the model; told: what the owner measured there
        """

    def regularizer(self) -> Prox | None:
        """h of the problem."""
        return None

    @property
    def is_network(self) -> bool:
        """Whether the model is a network: trained by minibatches, its rates counted, hardly ever certified."""
        return False

    def start(self, seed: int) -> Vector | None:
        """Where a solve starts, which owners elsewhere cannot suggest; None: at zero."""
        return None

    def is_trained(self, status: str) -> bool:
        """Whether a solve that ended so gives the model: certified, or a network whose passes are done."""
        return status == "solved" or (self.is_network and status in ("feasible", "max_rounds"))

    def server_share(self) -> Share | None:
        """What the coordinator holds without a table of its own: constraints that need no data."""
        return None

    def measure_name(self, name: str) -> str:
        """A measure of the share in the user's words."""
        return name

    def one_class(self, told: Mapping[str, float]) -> str:
        """The class that a classifier gives all rows of an owner, as \"ill = yes\"; empty where it tells rows apart.

        told: what the owner measured
        """
        return ""

    def stated(self) -> dict[str, Any]:
        """The task as JSON, on its way to an owner."""
        return {"task": self.name, **{name: listed(value) for name, value in asdict(self).items()}}

    def identity(self) -> dict[str, Any]:
        """What a resumed run must find unchanged: the task, and the files that it names."""
        return self.stated()


def listed(value: Any) -> Any:
    """Tuples as lists: what a message and a TOML or JSON file make of them."""
    if isinstance(value, Mapping):
        return {name: listed(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [listed(one) for one in value]
    return value


# -------------------------------------------------------------------------------------------------------------- sources


class Source(ABC):
    """What an owner holds: builds its share of any task, where the data is. Stands for the owner in `Session.open`.

    unseen: rows that nobody trains on, for tasks that are `evaluating`; None: it has none; itself: what was trained on
            is not known here, and not needed
    secret: file of the key of keyed hashes, which parties share and the coordinator has not; None: it has none
    """

    def __init__(self, owner: str, unseen: Source | None = None, secret: str | Path | None = None) -> None:
        self.owner = owner
        self.unseen = unseen
        self.secret = None if secret is None else Path(secret)

    def __call__(self, task: Task | Mapping[str, Any], rows: RowNumbers | None = None) -> Share | Unscaled | Party:
        """The owner's share of the task; rows: those that an alignment gave, in the common order."""
        asked = self.accept(task)
        if asked.aligned and rows is None:
            raise OwnerError(
                f"{self.owner}: rows of parties were asked for before the parties were aligned; align them first",
                code="FP-OWNER-416",
            )
        if asked.evaluating:
            if self._has_trained_on_unseen():
                refuse_trained(self.owner)
            return asked.evaluation(self.owner, self._taken(asked, rows), lambda: self.held(asked))
        return asked.share(self.owner, self._taken(asked, rows))

    def counts(self, task: Task | Mapping[str, Any], rows: RowNumbers | None = None) -> Counts:
        """Rows that the task would rest on, which a site's policy judges before there is a share."""
        asked = self.accept(task)
        if asked.evaluating:
            return asked.count_unseen(self._taken(asked, rows))
        return asked.count(self._taken(asked, rows))

    def found(self, task: Mapping[str, Any]) -> Mapping[str, Found]:
        """The fields of a task, as it came with an order, that a fit finds."""
        return found_fields(find_task(task.get("task")))

    def people(self, task: Task | Mapping[str, Any]) -> People:
        """Who is in the table that the task is about."""
        asked = self.accept(task)
        people = asked.people(self.owner, self._taken(asked, None))
        people = replace(people, tables=asked.owners)  # those of the other owners, and perhaps the coordinator's
        if self.secret is None:
            return people
        return replace(people, key=_read_secret(self.secret))

    def table(self, task: Task | Mapping[str, Any]) -> str:
        """Digest of the table that the task is about."""
        if self.accept(task).evaluating and self.unseen is not None:
            return self.unseen.digest()
        return self.digest()

    def _taken(self, task: Task, rows: RowNumbers | None) -> Any:
        """What `Task.read` gives of the table that the task is about, or of these rows of it."""
        held = self._unseen(task) if task.evaluating else self.held(task)
        if rows is None:
            return held
        return task.take(held, rows)

    def _has_trained_on_unseen(self) -> bool:
        if self.unseen is None or self.unseen is self:
            return False
        try:
            return self.unseen.digest() == self.digest()
        except DataError:  # a table that is gone by now is not this one
            return False

    def _unseen(self, task: Task) -> Any:
        """What `Task.read` gives of the rows that nobody trains on. DataError where there are none."""
        if self.unseen is None:
            raise DataError(
                f"owner {self.owner!r} has no table that nobody trains on; state one for it: in [holdout] of the job, "
                "or a site in [site] of its site.toml",
                code="FP-DATA-830",
            )
        return self.unseen.held(task)

    def accept(self, task: Task | Mapping[str, Any]) -> Task:
        """The task as it came with an order. Raises OptionError when it is not one."""
        if isinstance(task, Mapping):
            return read_task(task)
        return task

    @abstractmethod
    def held(self, task: Task) -> Any:
        """What `Task.read` gives."""

    @abstractmethod
    def digest(self) -> str:
        """Digest of the data: a resumed run must find it unchanged."""


class FileSource(Source):
    """An owner's file, read where it is and once a session. It is small, so it can be sent to where the file is."""

    def __init__(
        self, owner: str, path: str | Path, unseen: Source | None = None, secret: str | Path | None = None
    ) -> None:
        super().__init__(owner, unseen, secret)
        self.path = Path(path)
        self._read: dict[object, Any] = {}

    def held(self, task: Task) -> Any:
        if task.reading not in self._read:
            self._read = {task.reading: task.read(self.path)}
        return self._read[task.reading]

    def digest(self) -> str:
        return digest_of_files(self.path)

    def rows(self) -> Iterator[bytes]:
        """Its rows as they stand there."""
        return file_rows(self.path)

    def __getstate__(self) -> dict[str, Any]:
        """A copy reads the file itself."""
        return {**self.__dict__, "_read": {}}


class HeldSource(Source):
    """What an owner holds in memory, as a task's `read` would give it."""

    def __init__(self, owner: str, held: Any, unseen: Source | None = None, secret: str | Path | None = None) -> None:
        super().__init__(owner, unseen, secret)
        self._held = held

    def held(self, task: Task) -> Any:
        return self._held

    def digest(self) -> str:
        return digest(self._held)


def refuse_trained(owner: str) -> NoReturn:
    """Raise DataError: a model is to be measured, as if on new rows, on a table that it was trained on."""
    raise DataError(
        f"owner {owner!r}: the model was trained on this very table, so that it says nothing about new rows; give a "
        "table that nobody trained on",
        code="FP-DATA-316",
    )


def _read_secret(path: Path) -> bytes:
    """The key of keyed hashes in a file, as it is. DataError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read as the key of keyed hashes ({error}); write 32 random bytes to it",
            code="FP-DATA-091",
        ) from error


def digest_of_files(*paths: Path) -> str:
    """SHA-256 of their contents. Raises DataError when one cannot be read."""
    found = hashlib.sha256()
    for path in paths:
        try:
            found.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error}); restore it", code="FP-DATA-090") from error
    return found.hexdigest()


def find_task(name: Any) -> type[Task]:
    """The class of the task of this name. Raises OptionError when there is none."""
    from fedpact.tasks import QUESTIONS, TASKS  # the list of tasks imports the tasks, which import this

    if name not in TASKS and name not in QUESTIONS:
        raise OptionError(f"task {name!r} is unknown; choose {', '.join(TASKS)}", code="FP-OPTION-040", key="task")
    return TASKS.get(name) or QUESTIONS[name]


def read_task(stated: Mapping[str, Any]) -> Task:
    """The task as it came with an order. Raises OptionError when it is not one."""
    kind = find_task(stated.get("task"))
    values = {key: value for key, value in stated.items() if key != "task"}
    known = {f.name for f in fields(kind)}
    if unknown := values.keys() - known:
        raise OptionError(
            f"the job states {', '.join(sorted(unknown))}, which this version does not know",
            code="FP-OPTION-051",
            key=min(unknown),
        )
    if absent := known - values.keys():  # a default here may not be what was agreed on
        raise OptionError(f"the job is incomplete: it lacks {', '.join(sorted(absent))}", code="FP-OPTION-052")
    return kind(**values)
