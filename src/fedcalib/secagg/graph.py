"""Who masks with whom: everyone with everyone up to 50 clients, a random k-regular graph beyond (Bell et al. 2020).

The graph is a ring in random order where each client is joined to the k/2 next ones on either side. The order comes
from the hash of the roster, so nobody picks neighbours and every client can work out its own.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import final

import numpy as np

from fedcalib.secagg.digest import digest
from fedcalib.secagg.masks import keystream

COMPLETE_UP_TO = 50
CORRUPT = Fraction(1, 5)  # clients that pool what they know with the server
DROPPED = Fraction(1, 10)  # clients that fail during one sum
SECRECY = Fraction(1, 2**40)  # chance that corrupt clients can rebuild anyone's secret
FAILURE = Fraction(1, 2**10)  # chance that some neighbourhood then loses too many, and the step is asked again


def threshold(quorum: Fraction, sites: int) -> int:
    """Say how many of so many sites are more than the quorum."""
    return int(quorum * sites) + 1


@lru_cache(maxsize=256)
def degree(clients: int, quorum: Fraction) -> int:
    """Find the fewest neighbours a client needs in a federation of this size.

    With a fifth of the clients corrupt, no neighbourhood holds a threshold of them but with probability 2^-40; with a
    tenth dropping out at random, none falls below the threshold but with probability 2^-10.
    """
    if clients <= COMPLETE_UP_TO:
        return max(clients - 1, 0)
    for k in range(2, clients - 1, 2):
        needed = threshold(quorum, k + 1)
        secret = clients * _tail(clients - 1, int(CORRUPT * clients), k, needed) <= SECRECY
        if secret and clients * _tail(clients - 1, int(DROPPED * clients), k, k - needed + 1) <= FAILURE:
            return k
    return clients - 1


def _tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """Give the exact chance that at least so many of the drawn are marked."""
    ways = sum(comb(marked, i) * comb(population - marked, drawn - i) for i in range(least, min(marked, drawn) + 1))
    return Fraction(ways, comb(population, drawn))


@final
class Graph:
    """The neighbourhoods of a roster of `size` clients with `k` neighbours each, in the order that a hash gives."""

    def __init__(self, size: int, k: int, roster: bytes) -> None:
        self.size = size
        self.k = min(k, size - 1)
        self._complete = self.k == size - 1
        if not self._complete:
            self._ring = _order(size, roster)
            self._position = np.argsort(self._ring)

    def around(self, place: int) -> tuple[int, ...]:
        """List a client's neighbourhood, itself included, in ascending order of places."""
        if self._complete:
            return tuple(range(self.size))
        offsets = np.arange(-(self.k // 2), self.k // 2 + 1)
        return tuple(sorted(self._ring[(self._position[place] + offsets) % self.size].tolist()))


def _order(size: int, roster: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Shuffle places by sorting them on a keystream that the roster's hash seeds."""
    return np.argsort(keystream(digest("ring", roster), size), kind="stable")
