"""The cryptography of secure aggregation, and the error that its checks raise.

    FedcalibError
    ├── WireError          (fedcalib.errors) a message or a saved state does not decode
    ├── PolicyError        (fedcalib.errors) a client declined terms that are weaker than its own
    ├── TooFewClients      (fedcalib.errors) fewer sites are left than the threshold
    └── ProtocolError      a message decodes, but the protocol does not allow it here

A handler that raises has changed nothing: the same object may go on with the next message.

- `digest` is the one hash for everything that is signed, bound or compared.
- `KeyPair`, `derive`, `seal` and `unseal` are X25519 key agreement, HKDF and authenticated encryption.
- `MaskedSum` adds and subtracts masks: ChaCha20 keystreams read as 64-bit words, modulo 2^64.
- `split` and `LagrangeBasis` are Shamir's secret sharing over a prime field, for secrets of 32 bytes. A secret is the
  value at zero of a random polynomial of degree threshold - 1; a share is its value at a client's point. Fewer shares
  than the threshold are independent of the secret. The prime is the smallest above 2^256, so that every 32 bytes are
  a field element.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256
from math import prod
from typing import final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcalib.errors import FedcalibError
from fedcalib.types import Words


class ProtocolError(FedcalibError):
    """A message is well formed, but forged, repeated, out of turn or against the protocol."""


HASH_SIZE = 32
_DOMAIN = b"fedcalib/secagg/1"


def digest(label: str, *parts: bytes | str | int) -> bytes:
    """Hash a label and its parts so that no two different lists of parts give the same bytes."""
    state = sha256(_DOMAIN)
    for part in (label, *parts):
        tag, raw = _raw(part)
        # A type tag and a length before each part: moving a byte from one part to the next changes the hash.
        state.update(tag + len(raw).to_bytes(8, "little"))
        state.update(raw)  # apart, because a vector is too long to be copied for nothing
    return state.digest()


def _raw(part: bytes | str | int) -> tuple[bytes, bytes]:
    if isinstance(part, bytes):
        return b"b", part
    if isinstance(part, str):
        return b"s", part.encode()
    return b"i", part.to_bytes(8, "little")


def pieces(raw: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces of one size."""
    return [raw[at : at + size] for at in range(0, len(raw), size)]


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
    """Encrypt and authenticate; a key seals one text per position."""
    return ChaCha20Poly1305(key).encrypt(position.to_bytes(12, "little"), text, None)


def unseal(key: bytes, position: int, box: bytes) -> bytes:
    """Decrypt what was sealed under this key at this position."""
    try:
        return ChaCha20Poly1305(key).decrypt(position.to_bytes(12, "little"), box, None)
    except InvalidTag as error:
        raise ProtocolError("Expected shares sealed for this client, found some that do not open.") from error


_CHUNK_WORDS = 1 << 13  # so that a chunk and its keystream stay in the cache


def seed_key(seed: bytes, binding: bytes, place: int) -> bytes:
    """Derive the key of a client's own mask; `binding` names run, step, attempt and roster."""
    return derive(seed, "self mask", binding, place)


def pair_key(secret: bytes, binding: bytes, one: int, other: int) -> bytes:
    """Derive the key of the mask between two clients, the same on both sides."""
    return derive(secret, "pair mask", binding, min(one, other), max(one, other))


def keystream(key: bytes, words: int) -> Words:
    """Stretch a key of 32 bytes to `words` uniform 64-bit words."""
    stream = MaskedSum(np.zeros(words, np.uint64))
    stream.add(key)
    return stream.words


@final
class MaskedSum:
    """A vector of words modulo 2^64, to which the masks of keys are added and from which they are subtracted."""

    def __init__(self, words: Words) -> None:
        self.words: Words = words.copy()
        self._zeros = memoryview(bytes(8 * min(_CHUNK_WORDS, len(words))))
        self._stream = bytearray(len(self._zeros) + 63)  # the cipher wants room for a block more
        self._mask = np.frombuffer(self._stream, "<u8", count=len(self._zeros) // 8)

    def add(self, key: bytes) -> None:
        self._apply(key, np.add)

    def subtract(self, key: bytes) -> None:
        self._apply(key, np.subtract)

    def add_pair_mask(self, key: bytes, place: int, other: int) -> None:
        """Apply the mask of the pair as the client at `place` does: the lower place adds, the higher one subtracts."""
        self._apply(key, np.add if place < other else np.subtract)

    def subtract_pair_mask(self, key: bytes, place: int, other: int) -> None:
        """Undo `add_pair_mask`."""
        self._apply(key, np.subtract if place < other else np.add)

    def _apply(self, key: bytes, operation: np.ufunc) -> None:
        # The nonce may be constant because a key is derived for one vector and never used again.
        encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
        for start in range(0, len(self.words), _CHUNK_WORDS):
            chunk = self.words[start : start + _CHUNK_WORDS]
            encryptor.update_into(self._zeros[: 8 * len(chunk)], self._stream)
            operation(chunk, self._mask[: len(chunk)], out=chunk)


PRIME = 2**256 + 297
SECRET_SIZE = 32
SHARE_SIZE = 33


def split(hidden: Sequence[bytes], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """Split secrets so that any `threshold` points can rebuild each of them; returns one list of shares per point."""
    # All polynomials are evaluated at once, side by side in one long integer. Points are small, so there is room
    # for them to grow without touching, and one reduction at the end is cheaper than one per multiplication.
    room = -(-(PRIME.bit_length() + threshold * (max(points).bit_length() + 1)) // 8)
    leading = [_pack_side_by_side([secrets.randbelow(PRIME) for _ in hidden], room) for _ in range(threshold - 1)]
    constant = _pack_side_by_side([int.from_bytes(secret, "little") for secret in hidden], room)
    return [_unpack_side_by_side(_value(leading, constant, point), room, len(hidden)) for point in points]


def _pack_side_by_side(numbers: Sequence[int], room: int) -> int:
    return int.from_bytes(b"".join(number.to_bytes(room, "little") for number in numbers), "little")


def _value(leading: Sequence[int], constant: int, point: int) -> int:
    value = 0
    for coefficient in leading:
        value = (value + coefficient) * point
    return value + constant


def _unpack_side_by_side(value: int, room: int, count: int) -> list[bytes]:
    numbers = (int.from_bytes(piece, "little") for piece in pieces(value.to_bytes(room * count, "little"), room))
    return [(number % PRIME).to_bytes(SHARE_SIZE, "little") for number in numbers]


@final
class LagrangeBasis:
    """The Lagrange weights at zero that turn shares at these points into the secret; computed once for many secrets."""

    def __init__(self, points: Sequence[int]) -> None:
        if len(set(points)) != len(points) or min(points, default=0) < 1:
            raise ProtocolError("Expected shares from different clients, found two of the same.")
        product = prod(points)
        denominators = [x * prod(y - x for y in points if y != x) % PRIME for x in points]
        self._weights = [product * inverse % PRIME for inverse in _inverses(denominators)]

    def secret(self, shares: Sequence[bytes]) -> bytes:
        """Rebuild the secret from shares in the order of the points."""
        pairs = zip(self._weights, shares, strict=True)
        value = sum(weight * int.from_bytes(share, "little") for weight, share in pairs) % PRIME
        if value >> 8 * SECRET_SIZE:
            raise ProtocolError("Expected shares of one secret, found some that do not belong together.")
        return value.to_bytes(SECRET_SIZE, "little")


def _inverses(values: Sequence[int]) -> list[int]:
    """Invert many field elements with one modular inversion (Montgomery's trick)."""
    before = [1]
    for value in values:
        before.append(before[-1] * value % PRIME)
    running = pow(before[-1], -1, PRIME)
    inverses = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        inverses.append(running * product % PRIME)
        running = running * value % PRIME
    return inverses[::-1]
