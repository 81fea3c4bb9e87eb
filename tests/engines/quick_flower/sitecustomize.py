"""Read by every process of a deployment in the tests as it starts: who is killed is missed after 20 s, not 60.

Flower waits for two heartbeats; their interval is a constant of Flower's, and 10 s the least that a SuperLink accepts.
"""

import sys
from contextlib import suppress

NAME = "HEARTBEAT_DEFAULT_INTERVAL"

with suppress(ImportError):
    from flwr.common import constant

    for module in (constant, *sys.modules.values()):  # some have copied it already
        if hasattr(module, NAME):
            setattr(module, NAME, 10)
