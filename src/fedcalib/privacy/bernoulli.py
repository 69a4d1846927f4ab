"""Coins of a fixed-point rate, and exact sums of many of them."""

from __future__ import annotations

from typing import Final

import numpy as np

from fedcalib.privacy.samplers import Source
from fedcalib.types import Bools, Ints, Words

BITS: Final = 32
_WORDS: Final = 1 << 20  # random words at a time
_ONES: Final = np.array([i.bit_count() for i in range(1 << 8)], dtype=np.uint8)


def tosses(source: Source, numerator: int, count: int) -> Bools:
    """Toss coins that fall on True with probability numerator / 2^32."""
    halves = source((count + 1) // 2).view(np.uint32)[:count]
    return halves.astype(np.uint64) < np.uint64(numerator)


def heads(source: Source, numerator: int, tossed: Ints) -> Ints:
    """Count the heads among so many coins of probability numerator / 2^32, one count a cell.

    All coins of a cell are compared with the rate together, bit by bit from the top: half of them fall on a 0 and half
    on a 1, and only those that equal the rate so far stay undecided. That takes two random bits a coin, not 32.
    """
    if numerator >> BITS:
        return tossed.copy()
    total, undecided = np.zeros_like(tossed), tossed
    for place in reversed(range(BITS)):
        zeros = fair_heads(source, undecided)
        if numerator >> place & 1:
            total, undecided = total + zeros, undecided - zeros
        else:
            undecided = zeros
    return total


def fair_heads(source: Source, tossed: Ints) -> Ints:
    """Count the heads among so many fair coins, one count a cell: the ones in as many random bits."""
    total = np.zeros_like(tossed)
    left = tossed.copy()
    while (open_ := np.flatnonzero(left)).size:
        taken = np.minimum(left[open_], 64 * max(_WORDS // open_.size, 1))
        total[open_] += _ones_in(source, taken)
        left[open_] -= taken
    return total


def _ones_in(source: Source, widths: Ints) -> Ints:
    """Count the ones in random strings of so many bits, at least one bit each."""
    lengths = -(-widths // 64)
    ends = np.cumsum(lengths)
    words: Words = source(int(ends[-1])).copy()
    words[ends - 1] >>= (-widths % 64).astype(np.uint64)  # the last word of a string may be a part of one
    ones = _ONES[words.view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.int64)
    return np.add.reduceat(ones, ends - lengths)
