"""The seam between algorithms and owners: messages, the session, an owner's side of it, and what is kept of both."""

from fedpact.federation.checkpoint import Checkpoint
from fedpact.federation.fleet import ENGINES, Engine, Fleet, check_count, find_engine
from fedpact.federation.ledger import Communication, Ledger, Traffic, read_record
from fedpact.federation.memory import Step
from fedpact.federation.messages import (
    Answers,
    Largest,
    NotFinite,
    Order,
    Reply,
    Sealed,
    Summed,
    add_up,
    not_finite,
)
from fedpact.federation.owner import Owner, named
from fedpact.federation.patience import Policy
from fedpact.federation.protocol import Hello
from fedpact.federation.remote import RemoteFleet, Site, refuse
from fedpact.federation.session import Session
from fedpact.federation.tickets import Ticket
from fedpact.federation.wire import client_step, skippable

__all__ = [
    "ENGINES",
    "Answers",
    "Checkpoint",
    "Communication",
    "Engine",
    "Fleet",
    "Hello",
    "Largest",
    "Ledger",
    "NotFinite",
    "Order",
    "Owner",
    "Policy",
    "RemoteFleet",
    "Reply",
    "Sealed",
    "Session",
    "Site",
    "Step",
    "Summed",
    "Ticket",
    "Traffic",
    "add_up",
    "check_count",
    "client_step",
    "find_engine",
    "named",
    "not_finite",
    "read_record",
    "refuse",
    "skippable",
]
