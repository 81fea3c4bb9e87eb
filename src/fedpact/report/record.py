"""A run as it is kept in its folder: what was asked, how it ended, and what everyone measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedpact.errors import FedpactError
from fedpact.tasks.base import Bounded

FORMAT = "fedpact-run-1"
FILE = "run.json"


@dataclass(frozen=True)
class Measured:
    """What one owner tells about the model on its own rows.

    numbers:   by name, e.g. "rows", "recall", "specificity"
    intervals: 95 % confidence intervals of some of them, from the number of rows behind them
    """

    owner: str
    numbers: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One judged point on the way, and what had been spent when it was reached."""

    rounds: int
    bytes: int
    objective: float
    stationarity: float
    feasibility: float
    violations: dict[str, float]


@dataclass(frozen=True)
class Sent:
    """What passed between the coordinator and one owner; fields: the name of everything that left it."""

    owner: str
    messages_down: int
    messages_up: int
    bytes_down: int
    bytes_up: int
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """One run.

    title:       of the job
    asked:       what was asked, in a sentence or two
    settings:    the job as it was read, with defaults filled in
    versions:    of Python and packages
    started:     when, ISO 8601; seconds: how long it took
    stationarity, feasibility, tol: the certificate, and what was asked of each of the two
    convex:      False where the problem is not known to be convex: then the answer is stationary, not proven optimal
    notes:       choices made on the way
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

    @property
    def solved(self) -> bool:
        return self.status == "solved"

    def save(self, folder: Path) -> Path:
        target = folder / FILE
        target.write_text(json.dumps({"format": FORMAT, **_finite(asdict(self))}, indent=1, allow_nan=False) + "\n")
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """What `save` wrote. FedpactError when the folder holds no run, or a damaged one."""
        source = Path(folder) / FILE
        try:
            found = json.loads(source.read_text())
            if found.pop("format", None) != FORMAT:
                raise FedpactError(f"{source} is not a run of format {FORMAT}; run the job again", code="FP-511")
            parts: dict[str, Any] = {"bounded": Bounded, "measured": Measured, "history": Step, "sent": Sent}
            values = {key: _number(value) for key, value in found.items()}
            values |= {key: tuple(_made(kind, one) for one in found[key]) for key, kind in parts.items()}
            return cls(**{**values, "tol": tuple(found["tol"]), "notes": tuple(found["notes"])})
        except FileNotFoundError as error:
            told = f"{source} does not exist; give the output folder of a finished `fedpact run`"
            raise FedpactError(told, code="FP-512") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            told = f"{source} cannot be read as a run ({error}); run the job again"
            raise FedpactError(told, code="FP-513") from error


def _made(kind: Any, found: dict[str, Any]) -> Any:
    values = {f.name: _number(found[f.name]) for f in fields(kind)}
    if None in values.values():
        raise ValueError(f"an entry of {kind.__name__.lower()} is null")
    if kind is Measured:
        values["intervals"] = {name: (low, high) for name, (low, high) in values["intervals"].items()}
    if kind is Sent:
        values["fields"] = tuple(values["fields"])
    return kind(**values)


def _finite(value: Any) -> Any:
    """JSON has no infinities and no NaN: they are written as the texts "inf", "-inf" and "nan"."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _number(one) for key, one in value.items()}
    return float(value) if value in ("inf", "-inf", "nan") else value
