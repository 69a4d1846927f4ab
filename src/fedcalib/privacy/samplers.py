"""Exact integer samplers, built from uniform 64-bit words without one floating-point number.

Every function takes a source of words first: a function from a count to that many independent uniform words. Given
perfect words, the laws below hold exactly, not up to rounding; that is what a proof of privacy needs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from fedcalib.types import Bools, Ints, Words

Source: TypeAlias = Callable[[int], Words]

CHUNK: Final = 1 << 16  # draws at a time, so that memory stays flat
LARGEST: Final = 1 << 62  # bounds, numerators and denominators stay below
_TOP: Final = np.uint64((1 << 64) - 1)
_ONE: Final = np.uint64(1)


def below(source: Source, bound: int | Words, count: int) -> Words:
    """Draw integers uniform from 0 to just below a bound, by rejection."""
    bounds = np.asarray(bound, dtype=np.uint64)
    last = _TOP - (_TOP % bounds + _ONE) % bounds  # the words up to here fall evenly on the residues
    words = source(count)
    while (bad := np.flatnonzero(words > last)).size:
        words = words.copy()
        words[bad] = source(bad.size)
    drawn: Words = words % bounds
    return drawn


def bits(source: Source, widths: int | Ints, count: int) -> Words:
    """Draw integers of so many uniform bits, at most 63."""
    masks = (_ONE << np.asarray(widths, dtype=np.uint64)) - _ONE
    drawn: Words = source(count) & masks
    return drawn


def coins(source: Source, chance: Fraction, count: int) -> Bools:
    """Toss coins that fall on True with a rational chance."""
    return below(source, chance.denominator, count) < np.uint64(chance.numerator)


def halvings(source: Source, count: int) -> Ints:
    """Count the tails before the first head of a fair coin: k with probability 2^-(k+1)."""
    drawn = np.zeros(count, dtype=np.int64)
    waiting = np.arange(count)
    while waiting.size:
        words = source(waiting.size)
        lowest = words & (~words + _ONE)
        ended = lowest > 0
        # a power of two is exact as a float, so its exponent is exact
        drawn[waiting] += np.where(ended, np.frexp(lowest.astype(np.float64))[1] - 1, 64)
        waiting = waiting[~ended]
    return drawn


def unit_poissons(source: Source, count: int) -> Ints:
    """Draw Poisson variables of mean 1.

    Their weights are 1/k!. A proposal k that comes with probability 2^-(k+1) is accepted with probability
    2^(k-1)/k!, which is rational, at most 1, and on average e/4.
    """
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        proposals = halvings(source, (count - drawn.size) * 3 // 2 + 16)
        drawn = np.concatenate([drawn, proposals[_accepted(source, proposals)]])
    return drawn[:count]


def _accepted(source: Source, proposals: Ints) -> Bools:
    """Accept k with probability 2^(k-1)/k!: a fair coin for 0, then one coin of 2/j for each j from 3 to k."""
    accepted: Bools = np.ones(proposals.size, dtype=np.bool_)
    zeros = np.flatnonzero(proposals == 0)
    accepted[zeros] = coins(source, Fraction(1, 2), zeros.size)
    j, alive = 3, np.flatnonzero(proposals >= 3)
    while alive.size:
        kept = coins(source, Fraction(2, j), alive.size)
        accepted[alive[~kept]] = False
        j, alive = j + 1, alive[kept]
        alive = alive[proposals[alive] >= j]
    return accepted


def poisson(source: Source, rate: Fraction) -> int:
    """Draw one Poisson variable of any rational mean: whole units, and one unit thinned to the rest."""
    whole, rest = divmod(rate, 1)
    total = sum(int(unit_poissons(source, size).sum()) for size in chunks(int(whole)))
    return total + int(coins(source, rest, int(unit_poissons(source, 1)[0])).sum())


def chunks(count: int) -> list[int]:
    """Cut a count into chunks of bounded size."""
    full, rest = divmod(count, CHUNK)
    return [CHUNK] * full + ([rest] if rest else [])
