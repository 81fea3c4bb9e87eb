"""The coefficients of a run's model: with standard errors where the run has them (coefficients.csv), else alone."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

from fedpact.errors import FedpactError
from fedpact.tasks.model import LinearModel, Model, load_model

#: Columns name, estimate, se, z, p, low, high; what else a run writes there is not shown.
FILE = "coefficients.csv"
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Coefficient:
    """One coefficient in the units of its column; NaN where something is not known.

    scale: of the column over all owners, by which effects are compared; 1 for indicators
    """

    name: str
    estimate: float
    se: float = math.nan
    z: float = math.nan
    p: float = math.nan
    low: float = math.nan
    high: float = math.nan
    scale: float = 1.0


def read_coefficients(folder: str | Path) -> tuple[Coefficient, ...]:
    """Those of the model in a run folder; none where it has no model, or parties have the coefficients."""
    folder = Path(folder)
    if not (folder / "model.json").exists():
        return ()
    model = load_model(folder)
    if not isinstance(model, LinearModel):
        return ()
    scales = _read_scales(folder)
    if (folder / FILE).exists():
        return tuple(_read_row(row, scales) for row in _read_rows(folder / FILE))
    return tuple(_list_estimates(model, scales))


def _read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _read_row(row: dict[str, str], scales: dict[str, float]) -> Coefficient:
    try:
        numbers = {name: float(row.get(name) or "nan") for name in ("estimate", "se", "z", "p", "low", "high")}
        return Coefficient(row["name"], **numbers, scale=scales.get(row["name"], 1.0))
    except (KeyError, ValueError, TypeError) as error:
        raise FedpactError(f"{FILE} cannot be read ({error}); run the job again", code="FP-941") from error


def _list_estimates(model: LinearModel, scales: dict[str, float]) -> list[Coefficient]:
    found = []
    for number, (own, intercept) in enumerate(zip(model.coefficients, model.intercept, strict=True)):
        before = ""
        if isinstance(model, Model) and len(model.coefficients) > 1:
            before = f"{model.classes[number]}: "
        for name, value in zip(model.encoding.names, own, strict=True):
            found.append(Coefficient(f"{before}{name}", float(value), scale=scales.get(name, 1.0)))
        found.append(Coefficient(f"{before}{INTERCEPT}", float(intercept)))
    return found


def _read_scales(folder: Path) -> dict[str, float]:
    """Deviation of every numeric column over all owners, where the task was scaled."""
    try:
        task = json.loads((folder / "task.json").read_text())["task"]
        names = load_model(folder).encoding.names  # type: ignore[union-attr]
        return dict(zip(names, map(float, task["scaling"]["scale"]), strict=True))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
