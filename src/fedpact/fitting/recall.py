"""Bounds that give a recall: tried, measured at the owners, and tried again.

A demanded recall is met by choosing the bounds of its surrogate, the mean loss: the owners measure the recall that the
model has, and say which bound would have given it what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedpact.errors import OptionError
from fedpact.fitting.result import Fit
from fedpact.tasks import NeymanPearson
from fedpact.tasks.checks import bound_for

#: Sets of bounds that are tried after the first, at most.
TRIALS = 40
#: Trials in which bounds may also grow.
RELAXING = 4
#: A bound that did not give its recall shrinks by this factor or more. That ends: a row that is missed has a loss of
#: log 2 or more, so (1 - recall) log 2 is small enough.
SHRINK = 0.99
#: A bound grows when the one that would have given the recall is this much wider.
WIDER = 1.02


def first_bounds(before: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """From what the owners measured at the model without constraints. Raises OptionError where one does not tell."""
    for name, told in before.items():
        if "bound for recall" not in told:
            raise OptionError(
                f"{name}: withholds its recall, which rests on too few rows for its policy; state bound= in place of "
                "min_recall=, or leave this owner out",
                code="FP-OPTION-690",
                key="min_recall",
            )
    return {name: told["bound for recall"] for name, told in before.items()}


def next_bounds(now: Fit, trial: int) -> dict[str, float] | None:
    """Bounds to try next.

    None when the recall is met everywhere and the bounds are as wide as they seem to go, or nothing was found to go on
    from.
    """
    task = now.task
    assert isinstance(task, NeymanPearson)
    if not now.solution.solved or not now.measures:
        return None
    bounds: dict[str, float] = {}
    changed = False
    for (name, told), price in zip(now.measures.items(), now.solution.multipliers[1:], strict=True):
        bound = bound_for(task.bound, name)
        needed = told["bound for recall"]
        bounds[name] = bound
        if told["recall"] < task.min_recall:
            bounds[name] = min(needed, SHRINK * bound)
            changed = True
        elif trial < RELAXING and price[0] > 0 and needed > WIDER * bound:
            bounds[name] = needed
            changed = True
    return bounds if changed else None
