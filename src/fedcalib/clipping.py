"""Cutting a client's whole sum to public norms, on the client, before anything leaves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcalib.query import ClientTerms, Query
from fedcalib.rows import finite
from fedcalib.types import Floats, Ints


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
