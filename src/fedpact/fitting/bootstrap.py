"""Intervals by the bootstrap: owners draw weights of their rows, and the whole problem is solved again, many times.

For what normal distributions do not describe: constraints that bind weakly or nearly, penalties that are not tiny. The
weights are independent exponentials (the Bayesian bootstrap of Rubin, 1981), drawn at the owner by a generator that its
own rows seed: the coordinator, who only says the number of the draw, does not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedpact.solvers import Inference, Solution
from fedpact.tasks import Regression
from fedpact.tasks.base import SERVER
from fedpact.types import Vector

#: Draws of all rows' weights. A standard error is then known to about 7 %.
REPETITIONS = 100


def bootstrap(
    solve_once: Callable[[Regression, Vector], Solution], task: Regression, solution: Solution, owners: tuple[str, ...]
) -> Inference:
    """Solve again with drawn weights, each time from the solution: some exchanges for each draw.

    Raises KeyboardInterrupt when a solve was interrupted; draws that are not solved, as where the constraints conflict,
    are left out and counted in a note.
    """
    names = (SERVER, *owners)
    binding = []
    for name, price in zip(names, solution.multipliers, strict=True):
        binding += [(name, int(row)) for row in np.flatnonzero(price)]
    draws = []
    for number in range(1, REPETITIONS + 1):
        found = solve_once(replace(task, resample=number), solution.w)
        if found.status in ("interrupted", "client_lost"):
            raise KeyboardInterrupt
        if found.solved:
            draws.append(np.append(found.w, _prices(found, names, binding)))
    notes = [f"bootstrap: {REPETITIONS} draws of the rows' weights at every owner, intervals by percentiles"]
    if len(draws) < REPETITIONS:
        notes.append(f"{REPETITIONS - len(draws)} draws have no solution, and are left out: intervals are too narrow")
    return Inference(
        solution.w,
        _prices(solution, names, binding),
        tuple(binding),
        None,
        "bootstrap",
        np.inf,
        tuple(notes),
        np.array(draws).reshape(len(draws), solution.w.size + len(binding)),
    )


def _prices(solution: Solution, names: tuple[str, ...], binding: list[tuple[str, int]]) -> Vector:
    """Of these constraints; zero where one does not bind in this draw."""
    held = dict(zip(names, solution.multipliers, strict=True))
    return np.array([held[name][row] for name, row in binding])
