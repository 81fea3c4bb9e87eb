"""What a site's disk keeps of past runs, and for how long: a state holds keys of masks and replies.

A run that its coordinator ended has only a digest of the data left (`Owner`). Files are removed, not overwritten: on
present disks that would not erase more.
"""

from __future__ import annotations

import time
from pathlib import Path

#: How the memory of a run is called on disk; and when the run has ended.
STATE = ".state"
ENDED = ".ended"
#: What an owner signed about it, which it keeps.
SIGNED = ".signed"
#: Runs of which a site keeps anything.
RUNS = 200
#: Seconds after which a run that was neither ended nor gone on with is given up: its keys must not stay for ever.
AGE = 30 * 24 * 3600.0


def forget(folder: Path, runs: int = RUNS, age: float = AGE) -> None:
    """Erase what is older than `age`; then, of more than `runs`, those that have ended, then all, the oldest first."""
    found = [path for path in folder.glob("*/*") if path.suffix in (STATE, ENDED)]
    changed = {path: path.stat().st_mtime for path in found}
    found.sort(key=lambda path: (path.suffix != ENDED, changed[path]))
    too_many = len(found) - runs + 1  # there is to be room for another one
    too_old = time.time() - age
    for number, path in enumerate(found):
        if number < too_many or changed[path] < too_old:
            path.unlink(missing_ok=True)
