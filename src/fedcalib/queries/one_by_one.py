"""Sums over clients that are asked one after the other, so that only one long vector is held at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcalib.federation import Federation
from fedcalib.query import ClientQuery, ClientTerms
from fedcalib.randomness import Randomness
from fedcalib.rows import finite
from fedcalib.types import Array, Floats


def total(query: ClientQuery, federation: Federation, randomness: Randomness, scale: Floats | None) -> Array:
    """Add the clients' vectors up, (size,); with a scale, each is first cut to integers toward zero."""
    summed: Array = np.zeros(query.size, dtype=np.float64 if scale is None else np.int64)
    for term in _each(query, federation, randomness):
        summed += term if scale is None else np.trunc(term * scale).astype(np.int64)
    return summed


def by_client(query: ClientQuery, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
    """Give one client's vector after the other."""
    for term in _each(query, federation, randomness):
        yield ClientTerms(1, np.zeros(query.size, dtype=np.int64), np.arange(query.size), term)


def _each(query: ClientQuery, federation: Federation, randomness: Randomness) -> Iterator[Floats]:
    for client, records in enumerate(federation.clients()):
        yield finite(query.term(records, randomness.derive("term", client).generator()))
