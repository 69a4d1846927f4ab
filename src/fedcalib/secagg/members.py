"""Sets of places in the roster, and the bitmaps that carry them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedcalib.errors import WireError


def pack(places: Iterable[int], size: int) -> bytes:
    """Write a set of places in a roster of so many as one bit each."""
    bits = np.zeros(size, np.uint8)
    bits[list(places)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def unpack(bitmap: bytes, size: int) -> frozenset[int]:
    """Read a set of places; refuse a bitmap of another length or with bits beyond the roster."""
    if len(bitmap) != -(-size // 8):
        raise WireError(f"Expected a bitmap of {-(-size // 8)} bytes for {size} sites, found {len(bitmap)}.")
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    if bits[size:].any():
        raise WireError(f"Expected a bitmap of {size} sites, found bits beyond.")
    return frozenset(np.flatnonzero(bits[:size]).tolist())
