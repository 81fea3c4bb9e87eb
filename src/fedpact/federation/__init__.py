"""The seam between algorithms and owners: messages, the fleet, an owner's side of it, and what is kept of both."""

from fedpact.federation.checkpoint import Checkpoint
from fedpact.federation.fleet import Fleet, Policy, Ticket
from fedpact.federation.ledger import Communication, Ledger, Traffic, read_record
from fedpact.federation.messages import Answers, Order, Reply, Sealed, Summed, not_finite
from fedpact.federation.owner import Owner, Step, named
from fedpact.federation.remote import RemoteFleet, Site, refuse
from fedpact.federation.wire import client_step, skippable

__all__ = [
    "Answers",
    "Checkpoint",
    "Communication",
    "Fleet",
    "Ledger",
    "Order",
    "Owner",
    "Policy",
    "RemoteFleet",
    "Reply",
    "Sealed",
    "Site",
    "Step",
    "Summed",
    "Ticket",
    "Traffic",
    "client_step",
    "named",
    "not_finite",
    "read_record",
    "refuse",
    "skippable",
]
