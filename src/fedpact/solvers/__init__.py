"""One file per algorithm, both halves in it. `METHODS` is the list that `fp.solve` chooses from."""

from collections.abc import Callable

from fedpact.solvers.accelerated import accelerated
from fedpact.solvers.centralized_proximal_al import centralized_proximal_al
from fedpact.solvers.describing import described
from fedpact.solvers.inexact_admm import inexact_admm_alone
from fedpact.solvers.interior_point import interior_point, refusal
from fedpact.solvers.proximal_al import proximal_al
from fedpact.solvers.run import Progress, Run
from fedpact.solvers.solution import History, Solution

METHODS: dict[str, Callable[..., Solution]] = {
    "interior-point": interior_point,
    "accelerated": accelerated,
    "proximal-al": proximal_al,
    "centralized-proximal-al": centralized_proximal_al,
    "inexact-admm": inexact_admm_alone,
}

#: Methods that take coupled constraints as they are; for all others they are decoupled by slack variables first.
COUPLES = {"interior-point"}
#: Methods that read all shares in one process.
POOLED = {"centralized-proximal-al"}

__all__ = ["COUPLES", "METHODS", "POOLED", "History", "Progress", "Run", "Solution", "described", "refusal"]
