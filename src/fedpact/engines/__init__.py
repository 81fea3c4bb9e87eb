"""Where owners run. Only files of this room import an engine, and only when it is used."""

from typing import TYPE_CHECKING, Any

from fedpact.engines.in_process import InProcess
from fedpact.engines.ray import Ray
from fedpact.federation import ENGINES

if TYPE_CHECKING:
    from fedpact.engines.flower.engine import Flower

__all__ = ["Flower", "InProcess", "Ray"]

ENGINES["in-process"] = InProcess
ENGINES["threads"] = lambda: InProcess(threads=2)
ENGINES["ray"] = Ray


def __getattr__(name: str) -> Any:
    if name == "Flower":  # importing flwr takes seconds
        from fedpact.engines.flower.engine import Flower

        return Flower
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
