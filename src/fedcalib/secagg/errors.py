"""What secure aggregation raises beyond the package's own errors.

    FedcalibError
    ├── WireError          (fedcalib.errors) a message or a saved state does not decode
    ├── PolicyError        (fedcalib.errors) a client declined terms that are weaker than its own
    ├── TooFewClients      (fedcalib.errors) fewer sites are left than the threshold
    └── ProtocolError      a message decodes, but the protocol does not allow it here

A handler that raises has changed nothing: the same object may go on with the next message.
"""

from __future__ import annotations

from fedcalib.errors import FedcalibError, PolicyError, TooFewClients, WireError

__all__ = ["PolicyError", "ProtocolError", "TooFewClients", "WireError"]


class ProtocolError(FedcalibError):
    """A message is well formed, but forged, repeated, out of turn or against the protocol."""
