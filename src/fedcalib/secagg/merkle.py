"""A hash tree over the roster, so that a client can check its neighbours' places without reading everyone's keys.

A proof lists, from left to right, the hashes of the largest subtrees that hold none of the known leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import final

from fedcalib.secagg.digest import SIZE, digest
from fedcalib.secagg.errors import ProtocolError


@final
class Tree:
    """The tree over a list of leaf hashes."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self._size = len(leaves)
        self._nodes: dict[tuple[int, int], bytes] = {}
        self.root = self._build(leaves, 0, self._size)

    def _build(self, leaves: Sequence[bytes], start: int, stop: int) -> bytes:
        if stop - start == 1:
            node = leaves[start]
        else:
            middle = _middle(start, stop)
            node = digest("node", self._build(leaves, start, middle), self._build(leaves, middle, stop))
        self._nodes[start, stop] = node
        return node

    def proof(self, places: Sequence[int]) -> bytes:
        """Give what a reader who knows the leaves at these sorted places needs to find the root."""
        return b"".join(self._missing(places, 0, self._size))

    def _missing(self, places: Sequence[int], start: int, stop: int) -> Iterator[bytes]:
        if not _any_within(places, start, stop):
            yield self._nodes[start, stop]
        elif stop - start > 1:
            middle = _middle(start, stop)
            yield from self._missing(places, start, middle)
            yield from self._missing(places, middle, stop)


def root_of(size: int, leaves: Mapping[int, bytes], proof: bytes) -> bytes:
    """Find the root of a tree of so many leaves from some of them and a proof."""
    if len(proof) % SIZE:
        raise ProtocolError(f"Expected a proof of whole hashes of {SIZE} bytes, found {len(proof)} bytes.")
    hashes = iter([proof[at : at + SIZE] for at in range(0, len(proof), SIZE)])
    root = _climb(sorted(leaves), leaves, hashes, 0, size)
    if next(hashes, None) is not None:
        raise ProtocolError("Expected a proof that fits the roster, found hashes left over.")
    return root


def _climb(places: Sequence[int], leaves: Mapping[int, bytes], hashes: Iterator[bytes], start: int, stop: int) -> bytes:
    if not _any_within(places, start, stop):
        node = next(hashes, None)
        if node is None:
            raise ProtocolError("Expected a proof that fits the roster, found too few hashes.")
        return node
    if stop - start == 1:
        return leaves[start]
    middle = _middle(start, stop)
    left = _climb(places, leaves, hashes, start, middle)
    return digest("node", left, _climb(places, leaves, hashes, middle, stop))


def _middle(start: int, stop: int) -> int:
    """Cut at the largest power of two below the length: the shape depends on the size alone."""
    return start + (1 << (stop - start - 1).bit_length() - 1)


def _any_within(places: Sequence[int], start: int, stop: int) -> bool:
    at = bisect_left(places, start)
    return at < len(places) and places[at] < stop
