"""One file per algorithm, both halves in it. `METHODS` is the list that `fp.solve` chooses from."""

from collections.abc import Callable

from fedpact.solvers.accelerated import accelerated
from fedpact.solvers.centralized_proximal_al import centralized_proximal_al
from fedpact.solvers.describing import described
from fedpact.solvers.fair_vfl import fair_vfl
from fedpact.solvers.fedavg import fedavg
from fedpact.solvers.fedbcd import fedbcd
from fedpact.solvers.feddr import feddr, fedsplit
from fedpact.solvers.fedprox import fedprox
from fedpact.solvers.ifeddr import ifeddr
from fedpact.solvers.inexact_admm import inexact_admm_alone
from fedpact.solvers.interior_point import interior_point, refusal
from fedpact.solvers.measuring import measure, moments
from fedpact.solvers.proximal_al import proximal_al
from fedpact.solvers.run import Progress, Run
from fedpact.solvers.scaffold import scaffold
from fedpact.solvers.solution import History, Solution
from fedpact.solvers.vertical_al import vertical_al

METHODS: dict[str, Callable[..., Solution]] = {
    "interior-point": interior_point,
    "accelerated": accelerated,
    "proximal-al": proximal_al,
    "centralized-proximal-al": centralized_proximal_al,
    "inexact-admm": inexact_admm_alone,
    "ifeddr": ifeddr,
    "feddr": feddr,
    "fedsplit": fedsplit,
    "scaffold": scaffold,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "vertical-al": vertical_al,
    "fair-vfl": fair_vfl,
    "fedbcd": fedbcd,
}

#: Methods that take coupled constraints as they are; for all others they are decoupled by slack variables first.
COUPLES = {"interior-point"}
#: Methods that take operators which are no gradients.
MONOTONE = {"ifeddr", "feddr", "fedprox"}
#: Methods for a VerticalProblem; the first is the default.
VERTICAL = ("vertical-al", "fair-vfl", "fedbcd")
#: Methods that read all shares in one process.
POOLED = {"centralized-proximal-al"}

__all__ = [
    "COUPLES",
    "METHODS",
    "MONOTONE",
    "POOLED",
    "VERTICAL",
    "History",
    "Progress",
    "Run",
    "Solution",
    "described",
    "measure",
    "moments",
    "refusal",
]
