"""What is asked (Share, Constraint, FederatedProblem), and how any answer is judged (certify)."""

from fedpact.problem.certificate import Certificate, Terms, added, assemble, certify, owner_terms
from fedpact.problem.coupled import coupled_scale, decouple
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.infeasibility import Evidence, conflict, owner_evidence, prove_infeasible
from fedpact.problem.monotone import MinimaxProblem, MonotoneProblem
from fedpact.problem.remote import Description, RemoteProblem, describe
from fedpact.problem.share import Constraint, Share, Unscaled
from fedpact.problem.vertical import Party, Piece, Scored, VerticalProblem

__all__ = [
    "Certificate",
    "Constraint",
    "Description",
    "Evidence",
    "FederatedProblem",
    "MinimaxProblem",
    "MonotoneProblem",
    "Party",
    "Piece",
    "RemoteProblem",
    "Scored",
    "Share",
    "Terms",
    "Unscaled",
    "VerticalProblem",
    "added",
    "assemble",
    "certify",
    "conflict",
    "coupled_scale",
    "decouple",
    "describe",
    "owner_evidence",
    "owner_terms",
    "prove_infeasible",
]
