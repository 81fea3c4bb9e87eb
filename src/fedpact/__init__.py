"""fedpact: federated learning under constraints that every owner agreed to, with a checked certificate."""

from typing import TYPE_CHECKING, Any

from fedpact import cones, engines, errors, functions, prox
from fedpact.problem import Certificate, Constraint, FederatedProblem, RemoteProblem, Share, VerticalProblem, certify
from fedpact.solve import solve
from fedpact.solvers import Solution

if TYPE_CHECKING:
    from fedpact.estimators import FairVerticalClassifier

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Constraint",
    "FairVerticalClassifier",
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


def __getattr__(name: str) -> Any:
    """Estimators need scikit-learn, an extra, and are imported when they are asked for."""
    if name in ("FairVerticalClassifier",):
        from fedpact import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'fedpact' has no attribute {name!r}")
