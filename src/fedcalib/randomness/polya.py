"""Exact shares of discrete Laplace noise.

A share is X - Y with X and Y independent negative binomials of shape r and decay q = e^-a; n shares of shape 1/n sum to
discrete Laplace noise P(k) ~ e^(-a|k|). A negative binomial is a sum of jumps: jumps of size k come as a Poisson
process of rate r q^k / k. So a share needs no logarithm and no float, only a Poisson process of rational rate that
dominates this one, thinned:

    octave j < J      rate r, k uniform in [2^j, 2^(j+1)), kept with probability (2^j/k) e^(-ak)
    octave j = J + i  rate r 2^-i, k as before, kept with probability (2^j/k) 2^i e^(-ak)

where a 2^J = alpha >= 1, so that the last probability is at most 1. The octaves up from J together have rate 2r, each
half of the one before: all octaves have r (J + 2), and the work grows with the logarithm of the noise scale only.

The exponential is sampled by counting hits of a Poisson process of mean ak: there are none with probability e^(-ak),
and exactly one with probability ak e^(-ak), which two coins of 2^j/k and 1/alpha turn into (2^j/k) 2^i e^(-ak).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.randomness.samplers import MAX_BOUND, Source, below, bits, chunks, coins, halvings, poisson, unit_poissons
from fedcalib.types import Bools, Ints

_MAX_SCALE: Final = Fraction(1 << 50)
_MAX_DECAY: Final = Fraction(1 << 20)  # 1/scale; beyond it a share is 0 with probability above 1 - e^-1000000
_MAX_TAIL_OCTAVES: Final = 12  # past J; a jump beyond has ak > 8192, probability below e^-8192, and is dropped
_UNITS_PER_PASS: Final = 16  # Poisson units per point


def shares(source: Source, r: Fraction, scale: Fraction, cells: int) -> Ints:
    """Draw one share per cell, of shape r, for noise of the given scale."""
    decay = _Decay.of(scale)
    total = np.zeros(cells, dtype=np.int64)
    points = poisson(source, 2 * _rounded_up(r) * (decay.octaves + 2) * cells) if cells else 0
    for count in chunks(points):
        jumps = _jumps(source, decay, count)
        jumps = np.where(coins(source, Fraction(1, 2), jumps.size), jumps, -jumps)
        np.add.at(total, below(source, cells, jumps.size).astype(np.int64), jumps)
    return total


@final
@dataclass(frozen=True)
class _Decay:
    """How fast jumps become rare: a = alpha / 2^octaves, and alpha = fraction * 2^doublings."""

    octaves: int
    doublings: int
    fraction: Fraction  # at most 1
    inverse: Fraction  # 1 / alpha, at most 1

    @classmethod
    def of(cls, scale: Fraction) -> _Decay:
        """Take a = 1/scale, rounded down where its fraction is too long, so that noise is never less than requested."""
        if not 0 < scale <= _MAX_SCALE:
            raise InputError(
                f"Expected a noise scale above 0 and at most 2^50, found {float(scale):.3g}; use a coarser grid."
            )
        a = min(1 / scale, _MAX_DECAY)
        octaves = (ceil(1 / a) - 1).bit_length()
        alpha = a * 2**octaves
        if max(alpha.numerator, alpha.denominator) >= MAX_BOUND:
            alpha = Fraction(int(alpha * 2**40), 2**40)
        doublings = (ceil(alpha) - 1).bit_length()
        return cls(octaves, doublings, alpha / 2**doublings, 1 / alpha)


def _rounded_up(r: Fraction) -> Fraction:
    """Keep a shape whose fraction is short; otherwise round it up, which adds a little noise."""
    return r if r.denominator < MAX_BOUND else Fraction(ceil(r * 2**60), 2**60)


def _jumps(source: Source, decay: _Decay, count: int) -> Ints:
    """Draw the points of the dominating process and keep the sizes of those that survive."""
    slots = below(source, decay.octaves + 2, count).astype(np.int64)
    tail = slots >= decay.octaves
    octaves = np.where(tail, decay.octaves + halvings(source, count), slots)
    inside = octaves <= decay.octaves + _MAX_TAIL_OCTAVES
    tail, octaves = tail[inside], octaves[inside]
    starts = np.left_shift(np.int64(1), octaves)
    sizes = starts + bits(source, octaves, octaves.size).astype(np.int64)
    kept = _harmonic(source, starts, sizes)
    kept[tail] &= _harmonic(source, starts[tail], sizes[tail]) & coins(source, decay.inverse, int(tail.sum()))
    kept[kept] &= _hits(source, decay, octaves[kept], sizes[kept], tail[kept]) == tail[kept]
    return sizes[kept]


def _harmonic(source: Source, starts: Ints, sizes: Ints) -> Bools:
    """Draw booleans that are true with probability 2^j / k."""
    return below(source, sizes.astype(np.uint64), sizes.size) < starts.astype(np.uint64)


def _hits(source: Source, decay: _Decay, octaves: Ints, sizes: Ints, allowed: Bools) -> Ints:
    """Count Poisson hits of mean a k each, and stop counting where there are more than allowed.

    With m = max(J, j + 1) the mean a k is 2^(doublings + m - J) units, each thinned by `fraction` and by k / 2^m.
    """
    widths = np.maximum(octaves + 1, decay.octaves)
    units = np.left_shift(np.int64(1), decay.doublings + widths - decay.octaves)
    hits = np.zeros(sizes.size, dtype=np.int64)
    while (open_ := np.flatnonzero((units > 0) & (hits <= allowed))).size:
        taken = np.minimum(units[open_], _UNITS_PER_PASS)
        owners = np.repeat(open_, taken)
        owners = np.repeat(owners, unit_poissons(source, owners.size))
        struck = coins(source, decay.fraction, owners.size)
        struck &= bits(source, widths[owners], owners.size) < sizes[owners].astype(np.uint64)
        hits += np.bincount(owners[struck], minlength=sizes.size)
        units[open_] -= taken
    return hits
