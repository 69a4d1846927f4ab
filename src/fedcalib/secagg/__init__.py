"""Secure aggregation: the server learns the sum of the clients' vectors modulo 2^64, and nothing else.

State machines without a transport. A `Client` and a `Server` exchange the messages of `messages`.
`docs/explanation/secure-aggregation.md` says what holds against whom.
"""

from fedcalib.errors import PolicyError, TooFewClients, WireError
from fedcalib.secagg.client import Client
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.round import Round, Total
from fedcalib.secagg.server import Server
from fedcalib.secagg.setup import Directory, Identity, Plan, Policy, Slot

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
