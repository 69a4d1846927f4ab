"""X25519 key agreement, HKDF and authenticated encryption, as the protocol uses them."""

from __future__ import annotations

from typing import final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcalib.secagg.digest import digest
from fedcalib.secagg.errors import ProtocolError

KEY_SIZE = 32
TAG_SIZE = 16


@final
class KeyPair:
    """An X25519 key pair; loading one costs as much as an agreement, so keep it for a whole batch."""

    def __init__(self, private: bytes | None = None) -> None:
        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)

    @property
    def private(self) -> bytes:
        """The secret half, 32 bytes."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The half that others see, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Compute the secret shared with the owner of a public key."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            # Points of small order give an all-zero secret that everyone knows.
            raise ProtocolError("Expected a public key that agrees on a secret, found a degenerate one.") from error


def derive(secret: bytes, label: str, *context: bytes | str | int) -> bytes:
    """Derive a key of 32 bytes from a shared secret, for one purpose and one context."""
    return _stretch(secret, KEY_SIZE, label, *context)


def derive_both(secret: bytes, label: str, roster: bytes, place: int, other: int) -> tuple[bytes, bytes]:
    """Derive the keys for the two directions between two places: from `place` to `other`, and back."""
    keys = _stretch(secret, 2 * KEY_SIZE, label, roster, min(place, other), max(place, other))
    up, down = keys[:KEY_SIZE], keys[KEY_SIZE:]
    return (up, down) if place < other else (down, up)


def _stretch(secret: bytes, size: int, label: str, *context: bytes | str | int) -> bytes:
    return HKDF(hashes.SHA256(), size, salt=None, info=digest(label, *context)).derive(secret)


def seal(key: bytes, position: int, text: bytes) -> bytes:
    """Encrypt and authenticate; a key seals one text a position."""
    return ChaCha20Poly1305(key).encrypt(position.to_bytes(12, "little"), text, None)


def unseal(key: bytes, position: int, box: bytes) -> bytes:
    """Decrypt what was sealed under this key at this position."""
    try:
        return ChaCha20Poly1305(key).decrypt(position.to_bytes(12, "little"), box, None)
    except InvalidTag as error:
        raise ProtocolError("Expected shares sealed for this client, found some that do not open.") from error
