"""The coefficients of a run's model: with standard errors where the run has them, else alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fedpact.report.record import Record
from fedpact.tasks.model import LinearModel, Model, ModuleModel, NetworkModel, RegressionModel, load_model

INTERCEPT = "intercept"
#: What the exponential of a coefficient is called, by the link of the model; of Cox's the rates are hazards.
RATIOS = {"logit": "Odds ratio", "log": "Rate ratio"}


@dataclass(frozen=True)
class Coefficient:
    """One coefficient in the units of its column; NaN where something is not known.

    scale: of the column over all owners, by which effects are compared; 1 for indicators
    ratio: what its exponential is called; empty where it has no meaning
    """

    name: str
    estimate: float
    se: float = math.nan
    z: float = math.nan
    p: float = math.nan
    low: float = math.nan
    high: float = math.nan
    scale: float = 1.0
    ratio: str = ""


def read_coefficients(folder: str | Path, record: Record) -> tuple[Coefficient, ...]:
    """Those of the model in a run folder; none where it has no model, or a network, or parties have them."""
    if not (Path(folder) / "model.json").exists():
        return ()
    model = load_model(folder)
    if not isinstance(model, LinearModel) or isinstance(model, NetworkModel | ModuleModel):
        return ()
    scales = _read_scales(Path(folder), model)
    if record.coefficients:
        ratio = name_ratio(model, record)
        return tuple(
            Coefficient(**asdict(one), scale=_scale_of(one.name, scales), ratio=ratio) for one in record.coefficients
        )
    return tuple(_list_estimates(model, scales))


def name_ratio(model: LinearModel, record: Record) -> str:
    """What the exponential of a coefficient is called.

    Of a classifier scores are log-odds where its loss was minimised; where errors are, only a bootstrap has its errors.
    """
    if isinstance(model, RegressionModel):
        return RATIOS.get(model.link, "")
    if isinstance(model, Model) and len(model.classes) == 2 and record.inference != "bootstrap":
        return RATIOS["logit"]
    return ""


def _list_estimates(model: LinearModel, scales: dict[str, float]) -> Iterator[Coefficient]:
    for number, (own, intercept) in enumerate(zip(model.coefficients, model.intercept, strict=True)):
        before = ""
        if isinstance(model, Model) and len(model.coefficients) > 1:
            before = f"{model.classes[number]}: "
        for name, value in zip(model.encoding.names, own, strict=True):
            yield Coefficient(f"{before}{name}", float(value), scale=scales.get(name, 1.0))
        yield Coefficient(f"{before}{INTERCEPT}", float(intercept))


def _scale_of(name: str, scales: dict[str, float]) -> float:
    """Of several classes the name is "class: column"."""
    return scales.get(name, scales.get(name.partition(": ")[2], 1.0))


def _read_scales(folder: Path, model: LinearModel) -> dict[str, float]:
    """Deviation of every numeric column over all owners, where the task was scaled."""
    try:
        task = json.loads((folder / "task.json").read_text())["task"]
        return dict(zip(model.encoding.names, map(float, task["scaling"]["scale"]), strict=True))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
