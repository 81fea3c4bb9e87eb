"""What is asked (Share, Constraint, FederatedProblem), and how any answer is judged (certify)."""

from fedpact.problem.certificate import Certificate, Terms, assemble, certify, owner_terms
from fedpact.problem.coupled import coupled_scale, decouple
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share

__all__ = [
    "Certificate",
    "Constraint",
    "FederatedProblem",
    "Share",
    "Terms",
    "assemble",
    "certify",
    "coupled_scale",
    "decouple",
    "owner_terms",
]
