"""Signed integers in the ring of 64-bit words, and back.

The words of a vector are summed modulo 2^64, so a sum of signed numbers is exact as long as it fits in an int64.
"""

from __future__ import annotations

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array, Ints, Words

_LARGEST = 2**63 - 1


def to_ring(values: Array, clients: int = 1) -> Words:
    """Turn int64 values into words; refuse those whose sum over so many clients could leave the int64 range."""
    if values.dtype != np.int64:
        raise InputError(f"Expected int64 values to sum, found {values.dtype}; round and convert them first.")
    if clients < 1:
        raise InputError(f"Expected at least one client, found {clients}.")
    largest = _LARGEST // clients
    if clients > 1 and values.size and (int(values.max()) > largest or int(values.min()) < -largest):
        raise InputError(
            f"Expected values within ±{largest} so that {clients} clients cannot overflow 64 bits, found larger ones; "
            "scale the terms down."
        )
    return values.astype(np.int64, copy=True).view(np.uint64)


def from_ring(words: Words) -> Ints:
    """Read words as signed integers: the upper half of the ring is negative."""
    if words.dtype != np.uint64:
        raise InputError(f"Expected uint64 words of a sum, found {words.dtype}.")
    return words.astype(np.uint64, copy=True).view(np.int64)
