"""The record of a run in its folder (run.json): what was asked, how it ended, and what owners measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedpact.errors import FedpactError
from fedpact.federation.wire import write_atomically
from fedpact.statistics import BoundPrice, Estimate, ScoreCounts, Summary
from fedpact.tasks.base import Bounded

FORMAT = "fedpact-run-1"
FILE = "run.json"


@dataclass(frozen=True)
class Measured:
    """What one owner measured with the model on its own rows.

    numbers:   by name, e.g. "rows", "recall", "specificity"; rates without intervals, since the model was fitted to
               these rows: none would hold for others
    withheld:  names of those that rest on too few rows for the owner's policy
    one_class: the class that the model gives all rows of this owner, as "ill = yes"; empty: it tells rows apart
    """

    owner: str
    numbers: dict[str, float]
    withheld: tuple[str, ...] = ()
    one_class: str = ""


@dataclass(frozen=True)
class Step:
    """A judged iterate, and the exchanges and bytes spent until then."""

    rounds: int
    bytes: int
    objective: float
    stationarity: float
    feasibility: float
    violations: dict[str, float]


@dataclass(frozen=True)
class Sent:
    """Traffic between the coordinator and one owner. fields: the name of everything that left the owner."""

    owner: str
    messages_down: int
    messages_up: int
    bytes_down: int
    bytes_up: int
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """One run.

    title:    title of the job
    asked:    what was asked, in a sentence or two
    tol:      tolerances of stationarity and feasibility, the two numbers of the certificate
    convex:   False if the problem is not known to be convex: the answer is stationary, not proven optimal
    started:  ISO 8601
    seconds:  how long it took
    settings: the job as it was read, with defaults filled in
    versions: versions of Python and packages
    notes:    choices made on the way
    run:      name of the run in its messages; evidence is signed for it
    promised: what promises for new rows rest on; empty: there are none
    parties:  of a vertical model, the names of every party's columns; empty: owners hold rows
    curves:   scores by class, where they were counted
    trade_off: models for other bounds, where they were asked for
    coefficients, priced: with standard errors and 95 % intervals, where the job asks for them; prices of what binds
    inference, uncovered: where the standard errors come from, and what they do not cover, in words
    model:    digest of the files of the model; empty: there is none, or the record is of an earlier version
    trained:  whether it is a network without a certificate that meets every bound by count, and every promise
    coordinators_word: of a signed run, which of these no owner signed, see `fedpact.jobs.word`
    """

    title: str
    asked: str
    status: str
    reason: str
    method: str
    engine: str
    tol: tuple[float, float]
    stationarity: float
    feasibility: float
    objective: float
    rounds: int
    convex: bool
    started: str
    seconds: float
    bounded: tuple[Bounded, ...]
    measured: tuple[Measured, ...]
    history: tuple[Step, ...]
    sent: tuple[Sent, ...]
    settings: dict[str, Any]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    run: str = ""
    promised: str = ""
    parties: dict[str, list[str]] = field(default_factory=dict)
    curves: ScoreCounts | None = None
    trade_off: tuple[BoundPrice, ...] = ()
    coefficients: tuple[Estimate, ...] = ()
    priced: tuple[Estimate, ...] = ()
    rates: tuple[Estimate, ...] = ()
    inference: str = ""
    uncovered: tuple[str, ...] = ()
    trained: bool = False
    model: str = ""
    coordinators_word: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """Coefficients and prices with their standard errors, 95 %."""
        return Summary(self.coefficients, self.priced, self.inference, 0.95, self.uncovered, rates=self.rates)

    @property
    def solved(self) -> bool:
        return self.status == "solved"

    @property
    def usable(self) -> bool:
        """Whether the model is what was asked for: certified, or a network whose decisions were counted."""
        return self.solved or self.trained

    def to_json(self) -> dict[str, Any]:
        """What run.json holds."""
        return {"format": FORMAT, **_to_json(asdict(self))}

    def save(self, folder: Path) -> Path:
        """Write run.json into the folder; its path."""
        target = folder / FILE
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        # the whole file or none: a folder that has it is complete; its user's alone, since it holds owners' own numbers
        write_atomically(target, f"{text}\n".encode(), durable=False)
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Read what `save` wrote. FedpactError if the folder holds no run, or a damaged one."""
        source = Path(folder) / FILE
        try:
            found = json.loads(source.read_text())
            if found.pop("format", None) != FORMAT:
                raise FedpactError(f"{source} is not a run of format {FORMAT}; run the job again", code="FP-511")
            values = {key: _from_json(value) for key, value in found.items()}
            for key, kind in PARTS.items():
                values[key] = tuple(_build(kind, one) for one in found.get(key, ()))
            if found.get("curves"):
                values["curves"] = ScoreCounts(**{name: tuple(numbers) for name, numbers in found["curves"].items()})
            values["tol"] = tuple(found["tol"])
            values["notes"] = tuple(found["notes"])
            values["uncovered"] = tuple(found.get("uncovered", ()))
            values["coordinators_word"] = tuple(found.get("coordinators_word", ()))
            return cls(**values)
        except FileNotFoundError as error:
            told = f"{source} does not exist; give the output folder of a finished `fedpact run`"
            raise FedpactError(told, code="FP-512") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told = f"{source} cannot be read as a run ({error}); run the job again"
            raise FedpactError(told, code="FP-513") from error


@dataclass(frozen=True)
class Failed:
    """What does not hold. file: of the run folder; owner: whom it is about, or empty"""

    file: str
    what: str
    owner: str = ""


@dataclass(frozen=True)
class Verification:
    """What checking the evidence of a run folder found (`fedpact.jobs.verification`).

    signed:      owner -> public key, where the signature holds
    coordinator: public key of the coordinator, where its signature holds; else empty
    pinned:      whether the keys are those that the auditor knows, and not only those that the folder names
    asked:       whether the owners were asked again
    failed:      what does not hold
    own_term:    whether the certificate rests on a table of the coordinator's that nobody else has compared
    foreign:     files in the folder that no run writes
    """

    signed: dict[str, str]
    coordinator: str
    pinned: bool
    asked: bool
    failed: tuple[Failed, ...]
    own_term: bool = False
    foreign: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts what the owners signed."""
        return not self.failed

    @property
    def verified(self) -> bool:
        """Whether it holds, and rests on nothing but what the owners signed."""
        return self.holds and not self.own_term


#: Fields of a record that are tuples of dataclasses.
PARTS: dict[str, type] = {
    "bounded": Bounded,
    "measured": Measured,
    "history": Step,
    "sent": Sent,
    "coefficients": Estimate,
    "priced": Estimate,
    "rates": Estimate,
    "trade_off": BoundPrice,
}
#: Fields of these that records of version 0.2.0 lack.
NEWER = {"withheld", "least", "allowed", "promise", "confidence", "rows", "one_class"}


def _build(kind: Any, found: dict[str, Any]) -> Any:
    """A dataclass from its JSON object. ValueError if a field is null, KeyError if one is missing."""
    newer = NEWER - found.keys()
    values = {f.name: _from_json(found[f.name]) for f in fields(kind) if f.name not in newer}
    if None in values.values():
        raise ValueError(f"an entry of {kind.__name__.lower()} is null")
    if kind is Measured:
        values["withheld"] = tuple(values.get("withheld", ()))
    if kind is Sent:
        values["fields"] = tuple(values["fields"])
    return kind(**values)


def _to_json(value: Any) -> Any:
    """JSON has no infinities and no NaN: they are written as the strings "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(one) for key, one in value.items()}
    if value in ("inf", "-inf", "nan"):
        return float(value)
    return value
