"""Exact integer samplers, built from uniform 64-bit words without one floating-point number.

Most functions take a source of words first: a function from a count to that many independent uniform words. Given
perfect words, the distributions below are exact, not up to rounding; that is what a proof of privacy needs.

From the bottom: uniform integers, coins and Poisson variables of rational probabilities; then coins of a fixed-point
rate (`tosses`) and exact sums of many of them (`heads`). Discrete Laplace and discrete Gaussian noise come from
OpenDP's exact samplers, which bring their own source.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf, nextafter
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from fedcalib.types import Bools, Ints, Words

Source: TypeAlias = Callable[[int], Words]

CHUNK: Final = 1 << 16  # draws at a time, so that memory stays flat
MAX_BOUND: Final = 1 << 62  # of bounds, numerators and denominators
_MAX_WORD: Final = np.uint64((1 << 64) - 1)
_ONE: Final = np.uint64(1)


def below(source: Source, bound: int | Words, count: int) -> Words:
    """Draw integers uniform from 0 to just below a bound, by rejection."""
    bounds = np.asarray(bound, dtype=np.uint64)
    last = _MAX_WORD - (_MAX_WORD % bounds + _ONE) % bounds  # the words up to here fall evenly on the residues
    words = source(count)
    while (bad := np.flatnonzero(words > last)).size:
        words = words.copy()
        words[bad] = source(bad.size)
    return words % bounds


def bits(source: Source, widths: int | Ints, count: int) -> Words:
    """Draw integers of `widths` uniform bits, at most 63."""
    masks = (_ONE << np.asarray(widths, dtype=np.uint64)) - _ONE
    return source(count) & masks


def coins(source: Source, probability: Fraction, count: int) -> Bools:
    """Draw booleans that are true with a rational probability."""
    return below(source, probability.denominator, count) < np.uint64(probability.numerator)


def halvings(source: Source, count: int) -> Ints:
    """Count the tails before the first head of a fair coin: k with probability 2^-(k+1)."""
    tails = np.zeros(count, dtype=np.int64)
    waiting = np.arange(count)
    while waiting.size:
        words = source(waiting.size)
        lowest_bit = words & (~words + _ONE)
        ended = lowest_bit > 0
        # a power of two is exact as a float, so its exponent is exact
        tails[waiting] += np.where(ended, np.frexp(lowest_bit.astype(np.float64))[1] - 1, 64)
        waiting = waiting[~ended]
    return tails


def unit_poissons(source: Source, count: int) -> Ints:
    """Draw Poisson variables of mean 1, by rejection.

    Their weights are 1/k!. A proposal k that comes with probability 2^-(k+1) is accepted with probability
    2^(k-1)/k!, which is rational, at most 1, and on average e/4.
    """
    accepted = np.empty(0, dtype=np.int64)
    while accepted.size < count:
        proposals = halvings(source, (count - accepted.size) * 3 // 2 + 16)
        accepted = np.concatenate([accepted, proposals[_accepted(source, proposals)]])
    return accepted[:count]


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
    """Draw one Poisson variable of any rational mean: whole units, and one unit thinned to the fractional rest."""
    whole, rest = divmod(rate, 1)
    total = sum(int(unit_poissons(source, size).sum()) for size in chunks(int(whole)))
    return total + int(coins(source, rest, int(unit_poissons(source, 1)[0])).sum())


def chunks(count: int) -> list[int]:
    """Cut a count into chunks of bounded size."""
    full, rest = divmod(count, CHUNK)
    return [CHUNK] * full + ([rest] if rest else [])


_RATE_BITS: Final = 32
_MAX_WORDS: Final = 1 << 20  # random words at a time
_BIT_COUNTS: Final = np.array([i.bit_count() for i in range(1 << 8)], dtype=np.uint8)


def tosses(source: Source, numerator: int, count: int) -> Bools:
    """Draw booleans that are true with probability numerator / 2^32."""
    halves = source((count + 1) // 2).view(np.uint32)[:count]
    return halves.astype(np.uint64) < np.uint64(numerator)


def heads(source: Source, numerator: int, trials: Ints) -> Ints:
    """Draw binomial counts of `trials` coins of probability numerator / 2^32, one count per cell.

    All coins of a cell are compared with the rate together, bit by bit from the top: half of them fall on a 0 and half
    on a 1, and only those that equal the rate so far stay undecided. That takes two random bits per coin, not 32.
    """
    if numerator >> _RATE_BITS:
        return trials.copy()
    total, undecided = np.zeros_like(trials), trials
    for bit in reversed(range(_RATE_BITS)):
        zeros = fair_heads(source, undecided)
        if numerator >> bit & 1:
            total, undecided = total + zeros, undecided - zeros
        else:
            undecided = zeros
    return total


def fair_heads(source: Source, trials: Ints) -> Ints:
    """Draw binomial counts of `trials` fair coins, one count per cell: the ones in as many random bits."""
    total = np.zeros_like(trials)
    left = trials.copy()
    while (open_ := np.flatnonzero(left)).size:
        taken = np.minimum(left[open_], 64 * max(_MAX_WORDS // open_.size, 1))
        total[open_] += _ones_in(source, taken)
        left[open_] -= taken
    return total


def _ones_in(source: Source, widths: Ints) -> Ints:
    """Count the ones in random strings of `widths` bits, at least one bit each."""
    lengths = -(-widths // 64)
    ends = np.cumsum(lengths)
    words: Words = source(int(ends[-1])).copy()
    words[ends - 1] >>= (-widths % 64).astype(np.uint64)  # the last word of a string may be a part of one
    ones = _BIT_COUNTS[words.view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.int64)
    return np.add.reduceat(ones, ends - lengths)


def laplace(scale: Fraction, count: int) -> Ints:
    """Draw integers k with probability proportional to e^(-|k|/scale)."""
    domains, measurements, metrics = _opendp()
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    return _draw(measurements.make_laplace(*space, scale=at_least(scale)), count)


def gaussian(sigma: Fraction, count: int) -> Ints:
    """Draw integers k with probability proportional to e^(-k^2 / (2 sigma^2))."""
    domains, measurements, metrics = _opendp()
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="f64")
    return _draw(measurements.make_gaussian(*space, scale=at_least(sigma)), count)


def at_least(value: Fraction) -> float:
    """Round a fraction up to a float, so that noise is never less than requested."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else nextafter(nearest, inf)


def _draw(measurement: Any, count: int) -> Ints:
    """Release zeros, so that what comes back is the noise alone."""
    noise = [np.asarray(measurement([0] * size), dtype=np.int64) for size in chunks(count)]
    return np.concatenate(noise) if noise else np.zeros(0, dtype=np.int64)


@cache
def _opendp() -> tuple[ModuleType, ModuleType, ModuleType]:
    """OpenDP's domains, measurements and metrics; its prelude would also import scikit-learn where there is one."""
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    return domains, measurements, metrics
