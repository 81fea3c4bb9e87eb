"""FedBCD: parallel block coordinate descent with local updates (Liu, Kang, Zhang, Li, Cheng, Chen, Hong, Yang 2019).

    party k, Q times between two messages, with the scores of the others as they were:
        theta_k <- theta_k - (1 / eta) grad_k L(theta)

It is Fair VFL without the constraint: the gap is neither looked at nor bounded, and the certificate's feasibility is
that of no constraint.
"""

from __future__ import annotations

from typing import Any

from fedpact.errors import OptionError
from fedpact.solvers.fair_vfl import descend
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution


def fedbcd(run: Run, *, eta: float | None = None, local_updates: int = 1, reveal: bool = True) -> Solution:
    """eta: fixed when given; by default adapted, as in "fair-vfl". local_updates: Q. reveal: the coefficients, too?"""
    problem: Any = run.problem
    if problem.gap_names:
        raise OptionError('"fedbcd" has no constraint: leave group and max_gap out, or use "fair-vfl"')
    if local_updates != int(local_updates):
        raise OptionError(f"local_updates = {local_updates!r}: give a whole number of at least 1")
    return descend(run, problem, eta=eta, updates=int(local_updates), reveal=reveal)
