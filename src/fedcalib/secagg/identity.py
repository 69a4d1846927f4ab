"""Who signs: long-lived Ed25519 identities, and the directory by which clients know each other.

The directory reaches a site outside the protocol (by its operator, like an SSH known-hosts file). A server that
swaps a key would have to sign for a name of the directory, and cannot.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcalib.errors import InputError
from fedcalib.secagg.errors import ProtocolError

SIGNATURE_SIZE = 64
LONGEST_NAME = 200


@final
class Identity:
    """A site's name and the key that signs for it."""

    def __init__(self, name: str, private: bytes | None = None) -> None:
        check_name(name)
        if private is not None and len(private) != 32:
            raise InputError(f"Expected an Ed25519 private key of 32 bytes for {name!r}, found {len(private)}.")
        self.name = name
        self._key = Ed25519PrivateKey.generate() if private is None else Ed25519PrivateKey.from_private_bytes(private)

    @property
    def private(self) -> bytes:
        """The secret half, 32 bytes; it never leaves the site."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The half that goes into the directory."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Sign the hash of a statement."""
        return self._key.sign(statement)


@final
@dataclass(frozen=True)
class Directory:
    """The public identity keys of all sites that may take part, by name."""

    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for name, key in self.keys.items():
            check_name(name)
            if not isinstance(key, bytes) or len(key) != 32:
                raise InputError(f"Expected an Ed25519 public key of 32 bytes for {name!r}, found something else.")
        if len(set(self.keys.values())) != len(self.keys):
            raise InputError("Expected a key of its own for each site, found one that two sites share.")

    def verify(self, name: str, statement: bytes, signature: bytes) -> None:
        """Refuse a signature that is not the named site's on the statement."""
        if name not in self.keys:
            raise ProtocolError(
                f"Expected a site of the directory, found {name[:60]!r}; if it should take part, "
                "add its identity key to the directory of every site."
            )
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[name]).verify(signature, statement)
        except InvalidSignature as error:
            raise ProtocolError(
                f"Expected a message signed by site {name!r}, found a signature that is not its own; "
                "the message was forged or changed on the way."
            ) from error

    def to_json(self) -> str:
        """Write the directory as JSON text."""
        return json.dumps({name: base64.b64encode(key).decode() for name, key in sorted(self.keys.items())}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Directory:
        """Read a directory from JSON text: an object of site names and base64 keys."""
        try:
            data: Any = json.loads(text)
            return cls({name: base64.b64decode(key, validate=True) for name, key in data.items()})
        except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
            raise InputError("Expected a JSON object of site names and base64 identity keys.") from error


def check_name(name: str) -> None:
    """Refuse a name that is empty, very long, or not printable."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InputError(f"Expected a printable name of 1 to {LONGEST_NAME} characters, found {name[:60]!r}.")
