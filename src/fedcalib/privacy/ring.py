"""What several mechanisms share: fixed-point sums in the ring of 64-bit words, and clipping of a client's sum.

Reals and counts are summed exactly as integers on a grid, modulo 2^64. Clipping reduces a client's whole sum to public
norms, on the client, before anything leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import groupby
from math import ceil, log2
from operator import itemgetter
from typing import Final

import numpy as np

from fedcalib.cohort import MAX_CLIENTS
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.numeric import MAX_STEPS, finite, unwarned
from fedcalib.privacy import Mechanism
from fedcalib.query import Block, ClientTerms, Query
from fedcalib.randomness import MAX_NOISE, Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints, Words

MODULUS: Final = 1 << 64
MAX_SUM: Final = MAX_STEPS + 1  # a quarter of the ring, so that a sum that wrapped around is recognised
_MIN_BITS: Final = 20  # of grid steps that a real block's largest entry spans


class RingMechanism(Mechanism):
    """A mechanism whose shares are summed in the ring, so that the server sees nothing but their sum."""

    @property
    def modulus(self) -> int | None:
        return MODULUS

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        return self.gather(query, Federation.of([records]), randomness)

    @abstractmethod
    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """The sum of all clients' shares in the ring."""


def check_positive(*settings: Mapping[str, float]) -> None:
    """Refuse scales and clips that are not above 0, which would count as a negative loss, or beyond the ring."""
    for name, number in (item for setting in settings for item in _by_block(setting).items()):
        if not 0 < number <= MAX_SUM:
            raise InputError(f"Expected scales and clips above 0, up to 2^62, found {number} for the block '{name}'.")


def check_noise(widths: Mapping[str, float], floor: int = 1) -> None:
    """Refuse noise that is not above 0 or that a sampler cannot draw, and a floor of shares that no cohort has."""
    for name, width in _by_block(widths).items():
        if not 0 < width < MAX_NOISE:
            raise InputError(
                f"Expected noise above 0 and below 2^50 grid steps for the block '{name}', found {width}. "
                "Raise epsilon, or send fewer queries."
            )
    if not 1 <= floor <= MAX_CLIENTS:
        raise InputError(f"Expected noise of 1 to 2^30 shares, found {floor}; choose a smaller cohort.")


def _by_block(setting: Mapping[str, float]) -> Mapping[str, float]:
    """Refuse what a message may hold instead of one number per block."""
    if not isinstance(setting, Mapping):
        raise InputError(f"Expected one number per block, found {type(setting).__name__}.")
    return setting


def grid(block: Block) -> float:
    """The number of grid steps per unit: 1 for counts, and for reals a power of two.

    The largest entry of a real block then spans at least 2^20 steps.
    """
    return 1.0 if block.integral else 2.0 ** (_MIN_BITS - ceil(log2(block.bound.linf)))


def grid_total(query: Query, federation: Federation, randomness: Randomness, scales: Mapping[str, float]) -> Ints:
    """The sum of terms on the integer grid, each within its bounds; beyond 2^62 - 1 steps it saturates.

    A refusal would reveal something about the records. Clamping a sum does not raise its sensitivity: two numbers are
    never further apart after it.
    """
    with unwarned():
        total: Array = query.total(federation, randomness, query.spread(scales))
    if total.dtype != np.int64:  # a query that sums in floats
        total = np.clip(np.where(np.isnan(total), 0.0, total), -(2.0**62), 2.0**62).astype(np.int64)
    return np.clip(total, -MAX_STEPS, MAX_STEPS)


def exact_total(query: Query, federation: Federation, randomness: Randomness, scales: Mapping[str, float]) -> Ints:
    """As `grid_total`, where nothing is hidden from the reader of the sum: what the ring cannot hold is refused."""
    steps = query.spread(scales)
    with unwarned():
        total: Array = query.rounded(federation, randomness, steps)
    if not _fits(total, MAX_STEPS) or query.grid(steps).too_fine:
        raise RefusedError(
            f"Expected sums below 2^62 grid steps, found {total.min():.3g} to {total.max():.3g}; the message was not "
            "sent. Use a coarser scale."
        )
    return total.astype(np.int64, copy=False)


def _fits(total: Array, limit: int = MAX_SUM) -> bool:
    """Compare both ends, since the lowest integer has no absolute value; NaN does not fit."""
    return bool(total.min(initial=0) > -limit and total.max(initial=0) < limit)


def noise_by_block(query: Query, widths: Mapping[str, float], draw: Callable[[float, int], Ints]) -> Ints:
    """Draw noise for every cell, (size,), with one call for each run of blocks that share a width."""
    cells = [(widths[name], block.size) for name, block in query.blocks.items()]
    runs = [(width, sum(size for _, size in run)) for width, run in groupby(cells, key=itemgetter(0))]
    return np.concatenate([draw(width, size) for width, size in runs])


def wrap(values: Ints) -> Words:
    """Signed integers as elements of the ring."""
    return values.astype(np.int64, copy=False).view(np.uint64)


def unwrap(words: Words, query: Query, scales: Mapping[str, float]) -> Floats:
    """Ring elements as numbers: centred around zero and divided by the scale."""
    centred: Ints = np.ascontiguousarray(words, dtype=np.uint64).view(np.int64)
    if not _fits(centred):
        raise RefusedError("Expected a total below 2^62 grid steps, found one beyond; a client overflowed the ring.")
    values: Floats = centred / query.spread(scales)
    return values


def norms(query: Query, terms: ClientTerms) -> Floats:
    """The L2 norm of each client's blocks, (clients, blocks); entries that are not finite count as zero.

    Entries whose squares underflow count as zero too, so a norm is a float's estimate: a mechanism that clips by it
    enforces the clip again in integers.
    """
    with np.errstate(over="ignore", under="ignore"):  # a norm too large for a float is infinite, and clipped to zero
        squares = np.bincount(_client_block(query, terms), finite(terms.value) ** 2, terms.clients * len(query.blocks))
    return np.sqrt(squares).reshape(terms.clients, len(query.blocks))


def clipped(query: Query, terms: ClientTerms, clips: Mapping[str, float], *, separate: bool = False) -> Floats:
    """Scale each client's values down until every block is within its clip, (entries,).

    A client has one factor for all its blocks, the smallest that any of them needs, so that ratios between blocks
    stay the same. With `separate` each block has a factor of its own, as in some papers, which biases such ratios.
    """
    with np.errstate(divide="ignore"):  # a block of zeros needs no factor
        factors = np.minimum(np.array([clips[name] for name in query.blocks]) / norms(query, terms), 1.0)
    if not separate:
        factors = np.broadcast_to(factors.min(axis=1, keepdims=True), factors.shape)
    scaled: Floats = finite(terms.value) * factors.reshape(-1)[_client_block(query, terms)]
    return scaled


def _client_block(query: Query, terms: ClientTerms) -> Ints:
    """The index of the (client, block) that each entry belongs to."""
    sizes = [block.size for block in query.blocks.values()]
    index: Ints = terms.owner * len(sizes) + np.repeat(np.arange(len(sizes)), sizes)[terms.cell]
    return index
