"""What is asked (Share, Constraint, FederatedProblem), and how any answer is judged (certify)."""

from fedpact.problem.certificate import Certificate, Misses, Terms, add_terms, assemble, certify, owner_terms, weigh
from fedpact.problem.coupled import add_slack, coupled_scale, decouple, insert_slack
from fedpact.problem.derivatives import find_wrong_parts
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.infeasibility import (
    Evidence,
    Proof,
    conflict,
    coupled_evidence,
    owner_evidence,
    prove_infeasible,
)
from fedpact.problem.measure import Measure, round_to_rows, round_up
from fedpact.problem.monotone import MinimaxProblem, MonotoneProblem
from fedpact.problem.party import DistantParty, Party, PartyLike, Piece
from fedpact.problem.remote import Description, RemoteProblem, describe
from fedpact.problem.scored import OwnScored, Scored, score_losses
from fedpact.problem.share import Constraint, Share, Unscaled
from fedpact.problem.vertical import VerticalProblem

__all__ = [
    "Certificate",
    "Constraint",
    "Description",
    "DistantParty",
    "Evidence",
    "FederatedProblem",
    "Measure",
    "MinimaxProblem",
    "Misses",
    "MonotoneProblem",
    "OwnScored",
    "Party",
    "PartyLike",
    "Piece",
    "Proof",
    "RemoteProblem",
    "Scored",
    "Share",
    "Terms",
    "Unscaled",
    "VerticalProblem",
    "add_slack",
    "add_terms",
    "assemble",
    "certify",
    "conflict",
    "coupled_evidence",
    "coupled_scale",
    "decouple",
    "describe",
    "find_wrong_parts",
    "insert_slack",
    "owner_evidence",
    "owner_terms",
    "prove_infeasible",
    "round_to_rows",
    "round_up",
    "score_losses",
    "weigh",
]
