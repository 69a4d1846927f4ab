"""Secure aggregation: the server learns the sum of the clients' vectors modulo 2^64, and nothing else.

State machines without a transport. A `Client` and a `Server` exchange the messages of `messages`.
`docs/explanation/secure-aggregation.md` says what holds against whom.

- `crypto`: hash, key agreement, masks, secret sharing
- `setup`: identities, the plan of a setup, what a client insists on, the graph of neighbours
- `messages`: the messages of the four stages
- `roster`: the sites of a setup in order, and the hashes that bind replies to it
- `client`, `client_steps`: a site's side; `server`, `round`: the server's side
"""

from fedcalib.errors import PolicyError, TooFewClients, WireError
from fedcalib.secagg.client import Client
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.round import Round, SurvivorSum
from fedcalib.secagg.server import Server
from fedcalib.secagg.setup import Directory, MinimumTerms, SetupPlan, SigningIdentity, Slot

__all__ = [
    "Client",
    "Directory",
    "MinimumTerms",
    "PolicyError",
    "ProtocolError",
    "Round",
    "Server",
    "SetupPlan",
    "SigningIdentity",
    "Slot",
    "SurvivorSum",
    "TooFewClients",
    "WireError",
]
