"""Secure aggregation: the server learns the sum of the clients' vectors modulo 2^64, and nothing else.

State machines without a transport. A `Client` and a `Server` exchange the messages of `messages`.
`docs/explanation/secure-aggregation.md` says what holds against whom.
"""

from fedcalib.secagg.client import Client
from fedcalib.secagg.errors import PolicyError, ProtocolError, TooFewClients, WireError
from fedcalib.secagg.identity import Directory, Identity
from fedcalib.secagg.plan import Plan, Slot
from fedcalib.secagg.policy import Policy
from fedcalib.secagg.round import Round, Total
from fedcalib.secagg.server import Server

__all__ = [
    "Client",
    "Directory",
    "Identity",
    "Plan",
    "Policy",
    "PolicyError",
    "ProtocolError",
    "Round",
    "Server",
    "Slot",
    "TooFewClients",
    "Total",
    "WireError",
]
