"""One hash for everything that is signed, bound or compared."""

from __future__ import annotations

from hashlib import sha256

SIZE = 32
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
