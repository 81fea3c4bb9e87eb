"""fedpact: federated learning under constraints that every owner agreed to, with a checked certificate."""

from fedpact import cones, engines, errors, functions, prox
from fedpact.problem import Certificate, Constraint, FederatedProblem, RemoteProblem, Share, VerticalProblem, certify
from fedpact.solve import solve
from fedpact.solvers import Solution

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Constraint",
    "FederatedProblem",
    "RemoteProblem",
    "Share",
    "Solution",
    "VerticalProblem",
    "certify",
    "cones",
    "engines",
    "errors",
    "functions",
    "prox",
    "solve",
]
