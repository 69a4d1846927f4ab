"""The roster of a setup: whose keys arrived, in which order, and who is whose neighbour.

- `pack` and `unpack` write sets of places as bitmaps.
- `roster_hash` and `binding_of` are the hashes that tie every reply to one run, step, attempt and roster.
- `HashTree` lets a client check its neighbours' places without reading everyone's keys. A proof lists, from left to
  right, the hashes of the largest subtrees that hold none of the known leaves.
- `require_neighbourhood` and `require_overall` refuse to go on with too few sites, and name those that are missing.
- `Roster` is the server's view of the whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import final

import numpy as np

from fedcalib.errors import TooFewClients, WireError
from fedcalib.secagg.crypto import HASH_SIZE, ProtocolError, digest, pieces
from fedcalib.secagg.messages import Advert, RosterEntry, RosterView
from fedcalib.secagg.setup import Directory, NeighbourGraph, SetupPlan


def pack(places: Iterable[int], size: int) -> bytes:
    """Write a set of places in a roster of `size` sites as a bitmap."""
    bits = np.zeros(size, np.uint8)
    bits[list(places)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def unpack(bitmap: bytes, size: int) -> frozenset[int]:
    """Read a set of places; refuse a bitmap of another length or with bits beyond the roster."""
    if len(bitmap) != -(-size // 8):
        raise WireError(f"Expected a bitmap of {-(-size // 8)} bytes for {size} sites, found {len(bitmap)}.")
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    if bits[size:].any():
        raise WireError(f"Expected a bitmap of {size} sites, found bits beyond.")
    return frozenset(np.flatnonzero(bits[:size]).tolist())


def roster_hash(plan: SetupPlan, size: int, root: bytes) -> bytes:
    """The hash that names a roster: the plan (and so the run), the number of sites, and the root over their keys."""
    return digest("roster", plan.digest, size, root)


def binding_of(plan: SetupPlan, roster: bytes, slot: int, members: bytes) -> bytes:
    """The hash that names one sum: run, step, attempt, roster, and the members who take part."""
    planned = plan.slots[slot]
    return digest("binding", plan.run, planned.step, planned.attempt, roster, slot, members)


def seed_hash(seed: bytes) -> bytes:
    """The published commitment to a self-mask seed, against which a rebuilt seed is checked."""
    return digest("seed", seed)


@final
class HashTree:
    """A hash tree over a list of leaf hashes."""

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
        """The hashes from which a reader who knows the leaves at these sorted places can compute the root."""
        return b"".join(self._missing(places, 0, self._size))

    def _missing(self, places: Sequence[int], start: int, stop: int) -> Iterator[bytes]:
        if not _any_within(places, start, stop):
            yield self._nodes[start, stop]
        elif stop - start > 1:
            middle = _middle(start, stop)
            yield from self._missing(places, start, middle)
            yield from self._missing(places, middle, stop)


def root_of(size: int, leaves: Mapping[int, bytes], proof: bytes) -> bytes:
    """Compute the root of a tree of `size` leaves from some of them and a proof."""
    if len(proof) % HASH_SIZE:
        raise ProtocolError(f"Expected a proof of whole hashes of {HASH_SIZE} bytes, found {len(proof)} bytes.")
    hashes = iter(pieces(proof, HASH_SIZE))
    root = _rebuild_root(sorted(leaves), leaves, hashes, 0, size)
    if next(hashes, None) is not None:
        raise ProtocolError("Expected a proof that fits the roster, found hashes left over.")
    return root


def _rebuild_root(
    places: Sequence[int], leaves: Mapping[int, bytes], hashes: Iterator[bytes], start: int, stop: int
) -> bytes:
    if not _any_within(places, start, stop):
        node = next(hashes, None)
        if node is None:
            raise ProtocolError("Expected a proof that fits the roster, found too few hashes.")
        return node
    if stop - start == 1:
        return leaves[start]
    middle = _middle(start, stop)
    left = _rebuild_root(places, leaves, hashes, start, middle)
    return digest("node", left, _rebuild_root(places, leaves, hashes, middle, stop))


def _middle(start: int, stop: int) -> int:
    """Cut at the largest power of two below the length: the shape depends on the size alone."""
    return start + (1 << (stop - start - 1).bit_length() - 1)


def _any_within(places: Sequence[int], start: int, stop: int) -> bool:
    at = bisect_left(places, start)
    return at < len(places) and places[at] < stop


_ADVICE = (
    "The step is aborted and nothing can be read. Bring the missing sites back and retry the step as a new attempt "
    "(fresh masks, fresh noise), or plan with a lower quorum."
)
_MAX_NAMES_LISTED = 10


def require_neighbourhood(
    centre: str, places: Sequence[int], present: Set[int], names: Mapping[int, str], *, needed: int, stage: str
) -> None:
    """Abort unless enough of a neighbourhood is present to rebuild the secrets of the site at its centre."""
    missing = [names[place] for place in places if place not in present]
    left = len(places) - len(missing)
    if left < needed:
        raise TooFewClients(
            f"Expected at least {needed} of the {len(places)} sites around {centre!r} at the stage of {stage}, "
            f"found {left}; missing: {_listed(missing)}. {_ADVICE}"
        )


def require_overall(present: int, needed: int, total: int, missing: Sequence[str], stage: str) -> None:
    """Abort unless enough of the whole roster is present for a sum to hide its members."""
    if present < needed:
        who = f"; missing: {_listed(missing)}" if missing else ""
        raise TooFewClients(
            f"Expected at least {needed} of {total} sites at the stage of {stage}, found {present}{who}. {_ADVICE}"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES_LISTED
    return ", ".join(map(repr, names[:_MAX_NAMES_LISTED])) + (f" and {more} more" if more > 0 else "")


@final
class Roster:
    """All sites that sent keys, sorted by name."""

    def __init__(self, plan: SetupPlan, adverts: Iterable[Advert]) -> None:
        self.plan = plan
        self.adverts: Sequence[Advert] = sorted(adverts, key=lambda advert: advert.name)
        self.names = {place: advert.name for place, advert in enumerate(self.adverts)}
        self.size = len(self.adverts)
        self._tree = HashTree([advert.leaf for advert in self.adverts])
        self.hash = roster_hash(plan, self.size, self._tree.root)
        graph = NeighbourGraph(self.size, plan.neighbours(self.size), self.hash)
        self.neighbourhoods = [graph.neighbourhood(place) for place in range(self.size)]
        self.threshold = plan.neighbourhood_threshold(self.size)

    def view(self, place: int) -> RosterView:
        """Show a client its neighbourhood and prove that it belongs to the whole."""
        entries = tuple(RosterEntry(other, self.adverts[other]) for other in self.neighbourhoods[place])
        return RosterView(self.size, place, entries, self._tree.proof(self.neighbourhoods[place]))

    def neighbours(self, place: int, among: Set[int]) -> list[int]:
        """A client's neighbours within a set, without itself, in ascending order."""
        return [other for other in self.neighbourhoods[place] if other in among and other != place]

    def rank(self, place: int, neighbour: int) -> int:
        """The position of a neighbour among the neighbours of a client."""
        return bisect_left(self.neighbourhoods[place], neighbour) - (neighbour > place)

    def verify(self, place: int, statement: bytes, signature: bytes, directory: Directory) -> None:
        """Refuse a message that the site at a place did not sign."""
        if place not in self.names:
            raise ProtocolError(f"Expected a place among {self.size} sites, found {place}.")
        directory.verify(self.names[place], statement, signature)

    def require(self, centres: Iterable[int], present: Set[int], stage: str) -> None:
        """Abort unless enough sites are present as a whole and around each of the centres."""
        missing = [name for place, name in self.names.items() if place not in present]
        require_overall(len(present), self.plan.roster_threshold(self.size), self.size, missing, stage)
        for place in sorted(centres):
            around = self.neighbourhoods[place]
            require_neighbourhood(self.names[place], around, present, self.names, needed=self.threshold, stage=stage)
