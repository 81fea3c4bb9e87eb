"""Where owners run. Only files of this room import an engine."""

from fedpact.engines.in_process import InProcess

__all__ = ["InProcess"]
