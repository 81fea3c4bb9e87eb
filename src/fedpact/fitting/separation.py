"""Which columns separate the data, in words: a fit without a minimiser names those whose coefficients have no end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpact.fitting.inference import INTERCEPT, list_names
from fedpact.solvers import Solution
from fedpact.tasks import TableTask, Task

#: A column is named whose coefficient grows at this part of the rate of the fastest, in units of its spread.
NAMED = 0.6
#: No more than so many are named.
MOST = 4
SEPARATED = (
    "{columns}: alone or together {they} the outcome of some rows, so the loss falls forever as {coefficients} without "
    "end; leave out what separates, merge the level with another, or add a penalty (regularization = 0.001). In short: "
    "{reason}"
)


def name_separation(task: Task, answer: Solution) -> Solution:
    """The answer, with the columns in its reason along which the loss falls forever; others stay as they are."""
    if answer.status != "unbounded" or answer.ray is None or not isinstance(task, TableTask):
        return answer
    names = list_names(task) if task.comparable else []
    if len(names) != answer.ray.size:
        return answer
    rates = np.abs(answer.ray)
    intercepts = np.array([name.endswith(INTERCEPT) for name in names])
    if np.any(rates[~intercepts] > 1e-6 * np.max(rates)):
        rates = np.where(intercepts, 0.0, rates)  # it moves along where columns are centred
    fastest = np.argsort(-rates, kind="stable")[:MOST]
    called = [names[number] for number in fastest if rates[number] >= NAMED * rates[fastest[0]]]
    one = len(called) == 1
    reason = SEPARATED.format(
        columns=("the column " if one else "the columns ") + ", ".join(called),
        they="it decides" if one else "they decide",
        coefficients="its coefficient grows" if one else "their coefficients grow",
        reason=answer.reason,
    )
    return replace(answer, reason=reason)
