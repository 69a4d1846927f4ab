"""The server of one sum: stages 3 and 4 of the protocol for one slot.

`Round` collects the replies. `Recovery` then rebuilds just the secrets that are needed to subtract the masks that are
left in the sum.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import WireError
from fedcalib.secagg import messages
from fedcalib.secagg.crypto import SHARE_SIZE, KeyPair, LagrangeBasis, MaskedSum, ProtocolError, pair_key, seed_key
from fedcalib.secagg.roster import Roster, binding_of, pack, seed_hash, unpack
from fedcalib.secagg.setup import Directory
from fedcalib.types import Words


@final
class Recovery:
    """The unmasking of one slot: the revealed shares, and the weights that turn them into secrets."""

    def __init__(self, roster: Roster, slot: int, members: Set[int], alive: Set[int]) -> None:
        self._roster = roster
        self._slot = slot
        self._members = members
        self._alive = alive
        self._shares: dict[int, dict[int, bytes]] = {}
        self._weights: dict[tuple[int, ...], LagrangeBasis] = {}

    def expected_shares(self, place: int) -> tuple[list[int], list[int]]:
        """Whose seed shares and whose key shares a client reveals: survivors' seeds, lost members' keys."""
        members = [other for other in self._roster.neighbourhoods[place] if other in self._members]
        return [other for other in members if other in self._alive], [o for o in members if o not in self._alive]

    def take(self, unmaskings: Iterable[messages.Unmasking]) -> None:
        """Group revealed shares by the client whose secret they belong to."""
        self._shares = {place: {} for place in self._members}
        for unmasking in unmaskings:
            seeds, keys = self.expected_shares(unmasking.place)
            for places, text in ((seeds, unmasking.seeds), (keys, unmasking.keys)):
                for at, owner in enumerate(places):
                    self._shares[owner][unmasking.place] = text[at * SHARE_SIZE : (at + 1) * SHARE_SIZE]

    def unmask(self, total: Words, binding: bytes) -> Words:
        """Subtract the survivors' own masks and the lost members' pair masks from a sum."""
        result = MaskedSum(total)
        for place in sorted(self._alive):
            result.subtract(seed_key(self._seed(place), binding, place))
        for place in sorted(self._members - self._alive):
            self._subtract_pair_masks(result, place, binding)
        return result.words

    def _subtract_pair_masks(self, result: MaskedSum, lost: int, binding: bytes) -> None:
        pair = KeyPair(self._key(lost))
        for other in self._roster.neighbours(lost, self._alive):
            common = pair.agree(self._roster.adverts[other].pledges[self._slot].key)
            result.subtract_pair_mask(pair_key(common, binding, other, lost), other, lost)

    def _seed(self, place: int) -> bytes:
        seed = self._rebuild(place)
        if seed_hash(seed) != self._roster.adverts[place].pledges[self._slot].seed:
            raise self._mismatch(place, "self-mask seed")
        return seed

    def _key(self, place: int) -> bytes:
        key = self._rebuild(place)
        if KeyPair(key).public != self._roster.adverts[place].pledges[self._slot].key:
            raise self._mismatch(place, "masking key")
        return key

    def _rebuild(self, place: int) -> bytes:
        shares: Mapping[int, bytes] = self._shares[place]
        holders = tuple(sorted(shares)[: self._roster.threshold])
        if holders not in self._weights:
            self._weights[holders] = LagrangeBasis([holder + 1 for holder in holders])
        return self._weights[holders].secret([shares[holder] for holder in holders])

    def _mismatch(self, place: int, what: str) -> ProtocolError:
        holders = sorted(self._shares[place])[: self._roster.threshold]
        names = ", ".join(repr(self._roster.names[holder]) for holder in holders)
        return ProtocolError(
            f"Expected the shares of site {self._roster.names[place]!r} to rebuild its {what}, found that they do not: "
            f"one of {names}, or the site itself, sent a wrong one. Nothing was read; leave the faulty site out and "
            "retry the step as a new attempt."
        )


@final
@dataclass(frozen=True)
class SurvivorSum:
    """The sum of the survivors' vectors modulo 2^64, and who they are."""

    words: Words
    survivors: tuple[str, ...]


@final
@dataclass(frozen=True)
class RoundState:
    """A round as it is saved; the field names are the saved format."""

    slot: int
    members: bytes
    masked: bytes
    total: bytes
    survivors: bytes | None
    votes: tuple[messages.NeighbourConfirmation, ...]
    unmaskings: tuple[messages.Unmasking, ...]


@final
class Round:
    """One slot on the server: it collects masked vectors, then confirmations, then shares, then reads the sum."""

    def __init__(self, roster: Roster, directory: Directory, slot: int, members: frozenset[int]) -> None:
        self._roster = roster
        self._directory = directory
        self.slot = slot
        self._members = members
        self.binding = binding_of(roster.plan, roster.hash, slot, pack(members, roster.size))
        self._total: Words = np.zeros(roster.plan.slots[slot].length, np.uint64)
        self._masked: set[int] = set()
        self._survivors: bytes | None = None
        self._confirmations: dict[int, bytes] = {}
        self._unmaskings: dict[int, messages.Unmasking] = {}

    def requests(self, sealed: Mapping[int, messages.SealedShares]) -> dict[str, messages.MaskRequest]:
        """Stage 3: request every member's masked vector, and pass on what its neighbours sealed for it."""
        roster, bitmap = self._roster, pack(self._members, self._roster.size)
        return {
            roster.names[place]: messages.MaskRequest(roster.hash, self.slot, bitmap, self._boxes(sealed, place))
            for place in sorted(self._members)
        }

    def _boxes(self, sealed: Mapping[int, messages.SealedShares], place: int) -> bytes:
        cut = slice(self.slot * messages.BOX_SIZE, (self.slot + 1) * messages.BOX_SIZE)
        senders = self._roster.neighbours(place, self._members)
        return b"".join(sealed[sender].boxes[self._roster.rank(sender, place)][cut] for sender in senders)

    def accept_masked(self, message: messages.MaskedVector) -> None:
        """Stage 3: add a masked vector to the sum."""
        self._check(message.binding, message.place, self._members, self._masked)
        if self._survivors is not None:
            raise ProtocolError(
                f"Expected masked vectors before the survivors were fixed, found that of "
                f"{self._roster.names[message.place]!r} after; it counts as dropped."
            )
        if len(message.vector) != 8 * len(self._total):
            raise ProtocolError(
                f"Expected {len(self._total)} words from site {self._roster.names[message.place]!r}, "
                f"found {len(message.vector) // 8}."
            )
        self._roster.verify(message.place, message.statement, message.signature, self._directory)
        self._total += message.words
        self._masked.add(message.place)

    def close_masked(self) -> dict[str, messages.Survivors]:
        """Stage 4: fix the survivors and ask each of them to confirm the set."""
        self._roster.require(self._members, self._masked, "masked vectors")
        if self._survivors is None:
            self._survivors = pack(self._masked, self._roster.size)
        message = messages.Survivors(self.binding, self.slot, self._survivors)
        return {self._roster.names[place]: message for place in sorted(self._masked)}

    def accept_confirmation(self, message: messages.Confirmation) -> None:
        """Stage 4: keep a survivor's signature on the set."""
        survivors = self._fixed()
        self._check(message.binding, message.place, self._masked, self._confirmations)
        statement = messages.survivors_statement(self.binding, survivors)
        self._roster.verify(message.place, statement, message.signature, self._directory)
        self._confirmations[message.place] = message.signature

    def close_confirmations(self) -> dict[str, messages.UnmaskRequest]:
        """Stage 4: prove to each survivor that enough of its neighbours confirmed, and request its shares."""
        self._fixed()
        self._roster.require(self._members, self._confirmations.keys(), "confirmations")
        return {self._roster.names[place]: self._unmask_request(place) for place in sorted(self._confirmations)}

    def _unmask_request(self, place: int) -> messages.UnmaskRequest:
        # The client counts itself, so one confirmation fewer than the threshold is enough.
        neighbours = self._roster.neighbours(place, self._confirmations.keys())[: self._roster.threshold - 1]
        votes = _votes({other: self._confirmations[other] for other in neighbours})
        return messages.UnmaskRequest(self.binding, self.slot, votes)

    def accept_unmasking(self, message: messages.Unmasking) -> None:
        """Stage 4: keep a survivor's shares."""
        recovery = self._recovery()
        self._check(message.binding, message.place, self._confirmations.keys(), self._unmaskings)
        seeds, keys = recovery.expected_shares(message.place)
        if len(message.seeds) != SHARE_SIZE * len(seeds) or len(message.keys) != SHARE_SIZE * len(keys):
            raise ProtocolError(
                f"Expected {len(seeds)} seed and {len(keys)} key shares from site "
                f"{self._roster.names[message.place]!r}, found another number."
            )
        self._roster.verify(message.place, message.statement, message.signature, self._directory)
        self._unmaskings[message.place] = message

    def total(self) -> SurvivorSum:
        """Read the sum, once enough shares are there."""
        recovery = self._recovery()
        self._roster.require(self._members, self._unmaskings.keys(), "unmasking")
        recovery.take(self._unmaskings.values())
        words = recovery.unmask(self._total, self.binding)
        return SurvivorSum(words, tuple(self._roster.names[place] for place in sorted(self._masked)))

    def _recovery(self) -> Recovery:
        alive = unpack(self._fixed(), self._roster.size)
        return Recovery(self._roster, self.slot, self._members, alive)

    def _fixed(self) -> bytes:
        if self._survivors is None:
            raise ProtocolError("Expected the survivors to be fixed first; close the stage of masked vectors.")
        return self._survivors

    def _check(self, binding: bytes, place: int, expected: Set[int], seen: Container[int]) -> None:
        if binding != self.binding:
            raise ProtocolError(f"Expected a reply to this step and roster, found one from place {place} to another.")
        if place not in expected:
            raise ProtocolError(f"Expected a reply from a site that was asked, found one from place {place}.")
        if place in seen:
            raise ProtocolError(f"Expected one reply from site {self._roster.names[place]!r}, found a second.")

    def state(self) -> RoundState:
        return RoundState(
            slot=self.slot,
            members=pack(self._members, self._roster.size),
            masked=pack(self._masked, self._roster.size),
            total=self._total.astype("<u8", copy=False).tobytes(),
            survivors=self._survivors,
            votes=_votes(self._confirmations),
            unmaskings=tuple(unmasking for _, unmasking in sorted(self._unmaskings.items())),
        )

    @classmethod
    def restore(cls, roster: Roster, directory: Directory, state: RoundState) -> Round:
        restored = cls(roster, directory, state.slot, unpack(state.members, roster.size))
        if len(state.total) != 8 * len(restored._total):
            raise WireError("Expected a saved sum of the plan's length, found another.")
        restored._total = np.frombuffer(state.total, "<u8").astype(np.uint64)
        restored._masked = set(unpack(state.masked, roster.size))
        restored._survivors = state.survivors
        restored._confirmations = {one.place: one.signature for one in state.votes}
        restored._unmaskings = {unmasking.place: unmasking for unmasking in state.unmaskings}
        return restored


def _votes(signatures: Mapping[int, bytes]) -> tuple[messages.NeighbourConfirmation, ...]:
    return tuple(messages.NeighbourConfirmation(place, signature) for place, signature in sorted(signatures.items()))
