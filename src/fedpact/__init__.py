"""fedpact: federated learning under constraints that every owner agreed to, with a checked certificate."""

from typing import TYPE_CHECKING, Any

from fedpact import cones, engines, functions, prox
from fedpact import errors as errors
from fedpact.comparison import Comparison as Comparison
from fedpact.comparison import compare as compare
from fedpact.federation import Session
from fedpact.fitting import Fit, fit
from fedpact.problem import Certificate, Constraint, FederatedProblem, Share, VerticalProblem, certify
from fedpact.problem import Measure as Measure
from fedpact.problem import RemoteProblem as RemoteProblem
from fedpact.solve import solve
from fedpact.solvers import Solution

if TYPE_CHECKING:
    from fedpact.estimators import FairClassifier, FairVerticalClassifier, NeymanPearsonClassifier

__version__ = "0.2.0"

__all__ = [
    "Certificate",
    "Constraint",
    "FairClassifier",
    "FairVerticalClassifier",
    "FederatedProblem",
    "Fit",
    "NeymanPearsonClassifier",
    "Session",
    "Share",
    "Solution",
    "VerticalProblem",
    "certify",
    "cones",
    "engines",
    "fit",
    "functions",
    "prox",
    "solve",
]


def __getattr__(name: str) -> Any:
    """Estimators need scikit-learn, an extra, and are imported when they are asked for."""
    if name in ("FairClassifier", "FairVerticalClassifier", "NeymanPearsonClassifier"):
        from fedpact import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'fedpact' has no attribute {name!r}")
