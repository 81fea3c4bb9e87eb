"""Where owners run. Only files of this room import an engine."""

from fedpact.engines.in_process import InProcess
from fedpact.engines.ray import Ray

__all__ = ["InProcess", "Ray"]
