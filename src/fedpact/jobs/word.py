"""Which claims in the files of a signed run are the coordinator's word: no owner signed them, nor do they follow.

Each file names them itself, under `WORD`, and `fedpact verify` compares the list. All other claims are
compared with what the owners signed.
"""

from __future__ import annotations

#: Of run.json. Exchanges are at least as many as owners answered, the times at most a day from those that they signed.
OF_RUN = (
    "title",
    "reason",
    "method",
    "engine",
    "rounds",
    "started",
    "seconds",
    "history",
    "sent",
    "settings",
    "versions",
    "notes",
    "curves",
    "trade_off",
    "coefficients",
    "priced",
    "rates",
    "inference",
    "uncovered",
)
#: How a run ended, unless it ended well: then it follows.
OF_FAILURE = ("status", "trained")
OF_CERTIFICATE = ("reason",)
OF_TASK = ("job_file",)
OF_LEDGER = ("exchanges", "owners")


def words_of_run(usable: bool) -> list[str]:
    """The claims of run.json. usable: whether it says that the model is what was asked for"""
    return list(OF_RUN) if usable else [*OF_RUN, *OF_FAILURE]


def words_of_certificate(usable: bool) -> list[str]:
    return list(OF_CERTIFICATE) if usable else [*OF_CERTIFICATE, "status"]
