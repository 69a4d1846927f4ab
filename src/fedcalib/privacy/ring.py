"""Fixed point in the ring of 64-bit words: how reals and counts are summed exactly.

Cutting a client's whole sum to public norms, on the client, before anything leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import groupby
from math import ceil, inf, log2
from operator import itemgetter
from typing import Final

import numpy as np

from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.privacy import Mechanism
from fedcalib.query import Block, ClientTerms, Query, finite
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints, Words

MODULUS: Final = 1 << 64
LARGEST: Final = 1 << 62  # sums stay below a quarter of the ring, so that a wrapped sum cannot pass for a real one
_BITS: Final = 20  # a real block's largest entry spans at least so many bits of grid steps


class RingMechanism(Mechanism):
    """A mechanism whose shares are summed in the ring, so that the server sees nothing but their sum."""

    @property
    def modulus(self) -> int | None:
        """Show the server only the ring sum."""
        return MODULUS

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        """Make one client's share: what a federation of one would send."""
        return self.gather(query, Federation.of([records]), randomness)

    @abstractmethod
    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Sum all clients' shares in the ring."""


def check_positive(*settings: Mapping[str, float]) -> None:
    """Refuse scales and widths that are not above 0: a negative one would count as a negative cost."""
    for name, number in (item for setting in settings for item in setting.items()):
        if not 0 < number < inf:
            raise InputError(f"Expected scales and noise widths above 0, found {number} for the block '{name}'.")


def grid(block: Block) -> float:
    """Say how many grid steps make one: counts stay whole, reals get a power of two that resolves their largest entry.

    That entry spans at least 2^20 steps.
    """
    return 1.0 if block.integral else 2.0 ** (_BITS - ceil(log2(block.bound.linf)))


def grid_total(query: Query, federation: Federation, randomness: Randomness, scales: Mapping[str, float]) -> Ints:
    """Sum terms on the integer grid, each cut toward zero on its own, and refuse what the ring cannot hold."""
    total: Array = query.total(federation, randomness, query.spread(scales))
    if not _fits(total):
        raise RefusedError(
            f"Expected sums below 2^62 grid steps, found {total.min():.3g} to {total.max():.3g}; the message was not "
            "sent. Use a coarser scale."
        )
    return total.astype(np.int64)


def _fits(total: Array) -> bool:
    """Compare both ends, since the lowest integer has no absolute value; NaN does not fit."""
    return bool(total.min(initial=0) > -LARGEST and total.max(initial=0) < LARGEST)


def noise_a_block(query: Query, widths: Mapping[str, float], draw: Callable[[float, int], Ints]) -> Ints:
    """Draw noise for every cell, (size,), with one call for each run of blocks that share a width."""
    cells = [(widths[name], block.size) for name, block in query.blocks.items()]
    runs = [(width, sum(size for _, size in run)) for width, run in groupby(cells, key=itemgetter(0))]
    return np.concatenate([draw(width, size) for width, size in runs])


def wrap(values: Ints) -> Words:
    """Put signed integers into the ring."""
    return values.astype(np.int64, copy=False).view(np.uint64)


def unwrap(words: Words, query: Query, scales: Mapping[str, float]) -> Floats:
    """Centre ring elements around zero and take the scale out again."""
    centred: Ints = np.ascontiguousarray(words, dtype=np.uint64).view(np.int64)
    if not _fits(centred):
        raise RefusedError("Expected a total below 2^62 grid steps, found one beyond; a client overflowed the ring.")
    values: Floats = centred / query.spread(scales)
    return values


def norms(query: Query, terms: ClientTerms) -> Floats:
    """Take the L2 norm of each client's blocks, (clients, blocks); entries that are no finite numbers count as zero."""
    with np.errstate(over="ignore", under="ignore"):  # a norm too large for a float is infinite, and cut to zero
        squares = np.bincount(_place(query, terms), finite(terms.value) ** 2, terms.clients * len(query.blocks))
    return np.sqrt(squares).reshape(terms.clients, len(query.blocks))


def clipped(query: Query, terms: ClientTerms, clips: Mapping[str, float], *, separate: bool = False) -> Floats:
    """Shrink each client's values until every block is within its clip, (entries,).

    A client has one factor for all its blocks, the smallest that any of them needs, so that ratios between blocks
    survive. `separate` gives each block a factor of its own, as some papers do, at the price of a bias in such ratios.
    """
    with np.errstate(divide="ignore"):  # a block of zeros needs no factor
        factors = np.minimum(np.array([clips[name] for name in query.blocks]) / norms(query, terms), 1.0)
    if not separate:
        factors = np.broadcast_to(factors.min(axis=1, keepdims=True), factors.shape)
    shrunk: Floats = finite(terms.value) * factors.reshape(-1)[_place(query, terms)]
    return shrunk


def _place(query: Query, terms: ClientTerms) -> Ints:
    """Number the (client, block) that each entry belongs to."""
    sizes = [block.size for block in query.blocks.values()]
    place: Ints = terms.owner * len(sizes) + np.repeat(np.arange(len(sizes)), sizes)[terms.cell]
    return place
