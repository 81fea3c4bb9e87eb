"""One file per algorithm, both halves in it. `METHODS` is the list that `fp.solve` chooses from."""

from typing import Any

from fedpact.solvers.base import Needs, Solver, option, steps_of
from fedpact.solvers.consensus.fedavg import FedAvg
from fedpact.solvers.consensus.feddr import FedDR, FedSplit
from fedpact.solvers.consensus.fedprox import FedProx
from fedpact.solvers.consensus.ifeddr import IFedDR
from fedpact.solvers.consensus.monotone_newton import MonotoneNewton
from fedpact.solvers.consensus.scaffold import Scaffold
from fedpact.solvers.constrained import many_owners as _many_owners  # noqa: F401 - the twins of steps
from fedpact.solvers.constrained.accelerated import Accelerated
from fedpact.solvers.constrained.centralized_proximal_al import CentralizedProximalAL
from fedpact.solvers.constrained.inexact_admm import InexactADMM
from fedpact.solvers.constrained.interior_point import InteriorPoint
from fedpact.solvers.constrained.newton_al import NewtonAL
from fedpact.solvers.constrained.proximal_al import ProximalAL
from fedpact.solvers.constrained.stochastic_al import StochasticAL
from fedpact.solvers.inference import COVARIANCES, Inference, infer
from fedpact.solvers.loop import run_solver
from fedpact.solvers.run import Iterate, PooledRun, Progress, Run, Verdict
from fedpact.solvers.solution import History, Solution
from fedpact.solvers.steps import Judged, certificate_of, describe_problem, judged_terms
from fedpact.solvers.vertical.fair_vfl import FairVFL, FedBCD
from fedpact.solvers.vertical.vertical_al import VerticalAL
from fedpact.solvers.vertical.vertical_exact import VerticalExact

METHODS: dict[str, type[Solver[Any]]] = {
    kind.name: kind
    for kind in (
        InteriorPoint,
        Accelerated,
        ProximalAL,
        NewtonAL,
        CentralizedProximalAL,
        InexactADMM,
        StochasticAL,
        MonotoneNewton,
        IFedDR,
        FedDR,
        FedSplit,
        FedAvg,
        FedProx,
        Scaffold,
        VerticalAL,
        VerticalExact,
        FairVFL,
        FedBCD,
    )
}

__all__ = [
    "COVARIANCES",
    "METHODS",
    "History",
    "Inference",
    "Iterate",
    "Judged",
    "Needs",
    "PooledRun",
    "Progress",
    "Run",
    "Solution",
    "Solver",
    "Verdict",
    "certificate_of",
    "describe_problem",
    "infer",
    "judged_terms",
    "option",
    "run_solver",
    "steps_of",
]
