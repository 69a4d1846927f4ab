"""The server's roster: whose keys arrived, in which order, and who is whose neighbour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set
from typing import final

from fedcalib.secagg.binding import roster_hash
from fedcalib.secagg.errors import ProtocolError
from fedcalib.secagg.graph import Graph
from fedcalib.secagg.identity import Directory
from fedcalib.secagg.merkle import Tree
from fedcalib.secagg.messages import Advert, Entry, RosterView
from fedcalib.secagg.plan import Plan
from fedcalib.secagg.quorum import require_around, require_overall


@final
class Roster:
    """All sites that sent keys, sorted by name."""

    def __init__(self, plan: Plan, adverts: Iterable[Advert]) -> None:
        self.plan = plan
        self.adverts: Sequence[Advert] = sorted(adverts, key=lambda advert: advert.name)
        self.names = {place: advert.name for place, advert in enumerate(self.adverts)}
        self.size = len(self.adverts)
        self._tree = Tree([advert.leaf for advert in self.adverts])
        self.hash = roster_hash(plan, self.size, self._tree.root)
        graph = Graph(self.size, plan.neighbours(self.size), self.hash)
        self.around = [graph.around(place) for place in range(self.size)]
        self.threshold = plan.around(self.size)

    def view(self, place: int) -> RosterView:
        """Show a client its neighbourhood and prove that it belongs to the whole."""
        entries = tuple(Entry(other, self.adverts[other]) for other in self.around[place])
        return RosterView(self.size, place, entries, self._tree.proof(self.around[place]))

    def neighbours(self, place: int, among: Set[int]) -> list[int]:
        """List a client's neighbours within a set, without itself, in ascending order."""
        return [other for other in self.around[place] if other in among and other != place]

    def rank(self, place: int, neighbour: int) -> int:
        """Say how many neighbours of a client come before this one."""
        return bisect_left(self.around[place], neighbour) - (neighbour > place)

    def verify(self, place: int, statement: bytes, signature: bytes, directory: Directory) -> None:
        """Refuse a message that the site at a place did not sign."""
        if place not in self.names:
            raise ProtocolError(f"Expected a place among {self.size} sites, found {place}.")
        directory.verify(self.names[place], statement, signature)

    def require(self, centres: Iterable[int], present: Set[int], stage: str) -> None:
        """Abort unless enough sites are present as a whole and around each of the centres."""
        missing = [name for place, name in self.names.items() if place not in present]
        require_overall(len(present), self.plan.overall(self.size), self.size, missing, stage)
        for place in sorted(centres):
            require_around(
                self.names[place], self.around[place], present, self.names, needed=self.threshold, stage=stage
            )
