"""Rebuilding just the secrets that are needed to take the leftover masks off a sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import final

from fedcalib.secagg.binding import seed_hash
from fedcalib.secagg.errors import ProtocolError
from fedcalib.secagg.keys import KeyPair
from fedcalib.secagg.masks import MaskedSum, pair_key, seed_key
from fedcalib.secagg.messages import Unmasking
from fedcalib.secagg.roster import Roster
from fedcalib.secagg.shamir import SHARE_SIZE, Interpolation
from fedcalib.types import Words


@final
class Recovery:
    """The unmasking of one slot: what was revealed, and the weights that turn shares into secrets."""

    def __init__(self, roster: Roster, slot: int, members: Set[int], alive: Set[int]) -> None:
        self._roster = roster
        self._slot = slot
        self._members = members
        self._alive = alive
        self._shares: dict[int, dict[int, bytes]] = {}
        self._weights: dict[tuple[int, ...], Interpolation] = {}

    def owed(self, place: int) -> tuple[list[int], list[int]]:
        """Say whose seed shares and whose key shares a client reveals."""
        around = [other for other in self._roster.around[place] if other in self._members]
        return [other for other in around if other in self._alive], [o for o in around if o not in self._alive]

    def take(self, unmaskings: Iterable[Unmasking]) -> None:
        """Sort revealed shares by whose secret they belong to."""
        self._shares = {place: {} for place in self._members}
        for unmasking in unmaskings:
            for places, text in zip(self.owed(unmasking.place), (unmasking.seeds, unmasking.keys), strict=True):
                for at, owner in enumerate(places):
                    self._shares[owner][unmasking.place] = text[at * SHARE_SIZE : (at + 1) * SHARE_SIZE]

    def unmask(self, total: Words, binding: bytes) -> Words:
        """Take the survivors' own masks and the lost members' pair masks off a sum."""
        result = MaskedSum(total)
        for place in sorted(self._alive):
            result.subtract(seed_key(self._seed(place), binding, place))
        for place in sorted(self._members - self._alive):
            self._forget(result, place, binding)
        return result.words

    def _forget(self, result: MaskedSum, lost: int, binding: bytes) -> None:
        pair = KeyPair(self._key(lost))
        for other in self._roster.neighbours(lost, self._alive):
            common = pair.agree(self._roster.adverts[other].pledges[self._slot].key)
            result.against(pair_key(common, binding, other, lost), other, lost)

    def _seed(self, place: int) -> bytes:
        seed = self._rebuild(place)
        if seed_hash(seed) != self._roster.adverts[place].pledges[self._slot].seed:
            raise self._wrong(place, "self-mask seed")
        return seed

    def _key(self, place: int) -> bytes:
        key = self._rebuild(place)
        if KeyPair(key).public != self._roster.adverts[place].pledges[self._slot].key:
            raise self._wrong(place, "masking key")
        return key

    def _rebuild(self, place: int) -> bytes:
        shares: Mapping[int, bytes] = self._shares[place]
        holders = tuple(sorted(shares)[: self._roster.threshold])
        if holders not in self._weights:
            self._weights[holders] = Interpolation([holder + 1 for holder in holders])
        return self._weights[holders].secret([shares[holder] for holder in holders])

    def _wrong(self, place: int, what: str) -> ProtocolError:
        holders = sorted(self._shares[place])[: self._roster.threshold]
        names = ", ".join(repr(self._roster.names[holder]) for holder in holders)
        return ProtocolError(
            f"Expected the shares of site {self._roster.names[place]!r} to rebuild its {what}, found that they do not: "
            f"one of {names}, or the site itself, sent a wrong one. Nothing was read; leave the faulty site out and "
            "ask the step again as a new attempt."
        )
