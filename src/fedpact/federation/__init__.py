"""The seam between algorithms and owners: messages, the fleet, an owner's side of it, and the ledger."""

from fedpact.federation.fleet import Fleet, Ticket
from fedpact.federation.ledger import Communication, Ledger, Traffic
from fedpact.federation.messages import Order, Reply, not_finite
from fedpact.federation.owner import Owner, Step, named

__all__ = [
    "Communication",
    "Fleet",
    "Ledger",
    "Order",
    "Owner",
    "Reply",
    "Step",
    "Ticket",
    "Traffic",
    "named",
    "not_finite",
]
