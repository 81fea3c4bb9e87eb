"""Where owners run. Only files of this room import an engine, and only when it is used."""

from typing import TYPE_CHECKING, Any

from fedpact.engines.in_process import InProcess
from fedpact.engines.ray import Ray

if TYPE_CHECKING:
    from fedpact.engines.flower import Flower

__all__ = ["Flower", "InProcess", "Ray"]


def __getattr__(name: str) -> Any:
    if name == "Flower":  # importing flwr takes seconds
        from fedpact.engines.flower import Flower

        return Flower
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
