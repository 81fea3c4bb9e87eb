"""Intervals by the bootstrap: owners draw weights of their rows, and the whole problem is solved again, many times.

For what normal distributions do not describe: constraints that bind weakly or nearly, penalties that are not tiny,
rates of decisions. The weights are independent exponentials (the Bayesian bootstrap of Rubin, 1981), drawn at the owner
by a generator that its own rows seed: the coordinator, who only says the number of the draw, does not know them.

Rates of decisions are smoothed, and corrected by counts at the fitted model (`fedpact.tasks.classification`). A draw
keeps the smoothing and the place of the correction, and counts there with its weights: to first order in 1 / sqrt(rows)
that is how a model under bounds on counts moves with its rows. Every drawn model is also counted on the rows as they
are, which stand for those not yet seen: so far may the rates of a model trained on other rows be from those asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedpact.federation import Session
from fedpact.fitting.sharpening import OVER, agree_on_cells, is_worse
from fedpact.fitting.trade_off import measure_all
from fedpact.problem.certificate import TOGETHER
from fedpact.solvers import Inference, Solution
from fedpact.tasks import Classification, TableTask
from fedpact.tasks.base import SERVER
from fedpact.types import Vector

#: Draws of all rows' weights. A standard error is then known to about 7 %.
REPETITIONS = 100
#: Exchanges of one draw at most: it starts at the fitted model, near its own.
EXCHANGES = 60


def bootstrap(
    session: Session,
    solve_once: Callable[[TableTask, Vector, int], Solution],
    task: TableTask,
    solution: Solution,
) -> Inference:
    """Solve again with drawn weights, each time from the solution: some exchanges for each draw.

    solve_once: solves a task from a start in so many exchanges at most
    Raises KeyboardInterrupt when a solve was interrupted; draws that are not solved, as where the constraints conflict,
    or that end at a far worse model, are left out and counted in a note.
    """
    binding = [(name, int(row)) for name, price in _held(session, solution).items() for row in np.flatnonzero(price)]
    rates = _count_rates(session, task, solution.w)
    sharpened = isinstance(task, Classification) and task.sharpened  # not convex: a solve may end elsewhere
    draws = []
    for number in range(1, REPETITIONS + 1):
        drawn = replace(task, resample=number)
        if isinstance(drawn, Classification) and drawn.coupled:
            drawn = agree_on_cells(session, drawn)
        found = solve_once(drawn, solution.w, EXCHANGES)
        if found.status in OVER:
            raise KeyboardInterrupt
        if not found.solved or (sharpened and is_worse(solution, found)):
            continue
        told = _count_rates(session, task, found.w)
        achieved = [told.get(name, np.nan) for name in rates]
        w = found.w
        if isinstance(task, Classification) and task.minimises_errors:
            w = w * (_length(task, solution.w) / _length(task, w))
        draws.append(np.concatenate([w, _prices(session, found, binding), achieved]))
    return Inference(
        w=solution.w,
        prices=_prices(session, solution, binding),
        binding=tuple(binding),
        covariance=None,
        kind="bootstrap",
        degrees=np.inf,
        notes=tuple(_note(task, len(draws))),
        draws=np.array(draws).reshape(len(draws), solution.w.size + len(binding) + len(rates)),
        rates=rates,
    )


def _count_rates(session: Session, task: TableTask, w: Vector) -> dict[str, float]:
    """One exchange: rates of a classifier's decisions over the rows of all owners, as they are."""
    if not isinstance(task, Classification):
        return {}
    return measure_all(session, task, w)


def _prices(session: Session, solution: Solution, binding: list[tuple[str, int]]) -> Vector:
    """Of these constraints; zero where one does not bind in this draw."""
    held = _held(session, solution)
    return np.array([held[name][row] for name, row in binding])


def _held(session: Session, solution: Solution) -> dict[str, Vector]:
    """Prices of everyone's constraint, and of what all owners hold together."""
    own = dict(zip((SERVER, *session.owners), solution.multipliers, strict=True))
    return {TOGETHER: solution.coupled_multiplier, **own}


def _length(task: TableTask, w: Vector) -> float:
    """Of the coefficients of the columns: where errors are minimised nothing but the penalty sets it."""
    by_score = w.reshape(task.scores, -1)
    return float(np.linalg.norm(by_score[:, :-1] if task.common_intercept else by_score))


def _note(task: TableTask, solved: int) -> list[str]:
    """What the draws are, and what they take as given, in words."""
    notes = [f"bootstrap: {REPETITIONS} draws of the rows' weights at every owner, intervals by percentiles"]
    if solved < REPETITIONS:
        missing = REPETITIONS - solved
        notes.append(f"{missing} draws did not come to a certified model, and are left out: intervals are too narrow")
    if not isinstance(task, Classification):
        return notes
    notes.append("rates are those of every drawn model on all training rows: of models trained on other rows")
    if task.sharpened:
        notes.append("how sharply decisions are smoothed is taken as given")
    if task.minimises_errors:
        notes.append("only the direction of coefficients matters to errors: drawn models are scaled to one length")
    if task.promised:
        notes.append("the thresholds behind the promises, and the rows held out for them, are taken as given")
    return notes
