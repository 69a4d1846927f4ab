"""The messages of the four stages, in the order in which they are sent.

    stage             server to client     client to server
    1 keys            SetupPlan            Advert
    2 shares          RosterView           SealedShares
    3 masked vectors  MaskRequest          MaskedVector
    4 unmask          Survivors            Confirmation
                      UnmaskRequest        Unmasking

Stages 1 and 2 run once per setup, stages 3 and 4 once per slot. Places are positions in the roster, which is sorted
by name; sets of places are bitmaps. Everything that a client sends is signed under its identity. The names of the
fields and of the kinds are what is sent, so they cannot change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from fedcalib.secagg.crypto import HASH_SIZE, KEY_SIZE, SHARE_SIZE, TAG_SIZE, digest
from fedcalib.secagg.setup import SIGNATURE_SIZE, Message, require, require_name, require_size
from fedcalib.types import Words

BOX_SIZE = 2 * SHARE_SIZE + TAG_SIZE
MAX_CLIENTS = 1 << 16


@final
@dataclass(frozen=True)
class Pledge:
    """What a client publishes about one slot: its public masking key, and the hash of its self-mask seed."""

    key: bytes
    seed: bytes


@final
@dataclass(frozen=True)
class Advert(Message):
    """Stage 1: a client's public keys for a setup, signed under its identity."""

    kind: ClassVar[str] = "secagg.advert"

    plan: bytes
    name: str
    encryption: bytes
    pledges: tuple[Pledge, ...]
    signature: bytes

    def check(self) -> None:
        require_name(self.name, "keys of a named site")
        require_size(self.plan, HASH_SIZE, "the hash of a plan")
        require_size(self.encryption, KEY_SIZE, "an encryption key")
        require_size(self.signature, SIGNATURE_SIZE, "a signature")
        for pledge in self.pledges:
            require_size(pledge.key, KEY_SIZE, "a masking key")
            require_size(pledge.seed, HASH_SIZE, "the hash of a seed")

    @cached_property
    def statement(self) -> bytes:
        """The hash that is signed."""
        flat = [part for pledge in self.pledges for part in (pledge.key, pledge.seed)]
        return digest("advert", self.plan, self.name, self.encryption, *flat)

    @cached_property
    def leaf(self) -> bytes:
        """The hash that stands for these keys in the roster."""
        return digest("leaf", self.statement, self.signature)


@final
@dataclass(frozen=True)
class RosterEntry:
    """One line of the roster: a place and the keys of the site there."""

    place: int
    advert: Advert


@final
@dataclass(frozen=True)
class RosterView(Message):
    """Stage 2: a client's neighbourhood in the roster, itself included, with a proof that it is part of the whole."""

    kind: ClassVar[str] = "secagg.roster"

    size: int
    place: int
    entries: tuple[RosterEntry, ...]
    proof: bytes

    def check(self) -> None:
        require(2 <= self.size <= MAX_CLIENTS, f"a roster of 2 to {MAX_CLIENTS} sites", str(self.size))
        places = [entry.place for entry in self.entries]
        require(places == sorted(set(places)), "roster places in ascending order", "another order")
        require(all(place < self.size for place in [*places, self.place]), "places within the roster", "one beyond")


@final
@dataclass(frozen=True)
class SealedShares(Message):
    """Stage 2: the shares of a client's secrets, sealed for each neighbour in ascending order of places."""

    kind: ClassVar[str] = "secagg.shares"

    roster: bytes
    place: int
    boxes: tuple[bytes, ...]
    signature: bytes

    def check(self) -> None:
        require_size(self.roster, HASH_SIZE, "the hash of a roster")
        require_size(self.signature, SIGNATURE_SIZE, "a signature")
        require(all(len(box) % BOX_SIZE == 0 for box in self.boxes), "boxes of one size per slot", "another size")

    @property
    def statement(self) -> bytes:
        """The hash that is signed."""
        return digest("shares", self.roster, self.place, *self.boxes)


@final
@dataclass(frozen=True)
class MaskRequest(Message):
    """Stage 3: who takes part in a slot, and the neighbours' shares sealed for this client, in ascending order."""

    kind: ClassVar[str] = "secagg.mask_request"

    roster: bytes
    slot: int
    members: bytes
    boxes: bytes

    def check(self) -> None:
        require_size(self.roster, HASH_SIZE, "the hash of a roster")
        require(len(self.boxes) % BOX_SIZE == 0, f"boxes of {BOX_SIZE} bytes", "another size")


@final
@dataclass(frozen=True)
class MaskedVector(Message):
    """Stage 3: a client's vector under its masks, as little-endian 64-bit words."""

    kind: ClassVar[str] = "secagg.masked_vector"

    binding: bytes
    slot: int
    place: int
    vector: bytes
    signature: bytes

    def check(self) -> None:
        require_size(self.binding, HASH_SIZE, "a binding")
        require_size(self.signature, SIGNATURE_SIZE, "a signature")
        require(len(self.vector) % 8 == 0, "whole words of 8 bytes", f"{len(self.vector)} bytes")

    @property
    def words(self) -> Words:
        """The vector as numbers."""
        return np.frombuffer(self.vector, "<u8")

    @property
    def statement(self) -> bytes:
        """The hash that is signed."""
        return digest("masked", self.binding, self.slot, self.place, self.vector)


@final
@dataclass(frozen=True)
class Survivors(Message):
    """Stage 4: whose masked vectors arrived, for the clients to confirm."""

    kind: ClassVar[str] = "secagg.survivors"

    binding: bytes
    slot: int
    survivors: bytes

    def check(self) -> None:
        require_size(self.binding, HASH_SIZE, "a binding")


def survivors_statement(binding: bytes, survivors: bytes) -> bytes:
    """The hash that clients sign to confirm a survivor set; it is the same for all of them."""
    return digest("survivors", binding, survivors)


@final
@dataclass(frozen=True)
class Confirmation(Message):
    """Stage 4: a client's signature on the survivor set; it signs one set per slot, ever."""

    kind: ClassVar[str] = "secagg.confirmation"

    binding: bytes
    slot: int
    place: int
    signature: bytes

    def check(self) -> None:
        require_size(self.binding, HASH_SIZE, "a binding")
        require_size(self.signature, SIGNATURE_SIZE, "a signature")


@final
@dataclass(frozen=True)
class NeighbourConfirmation:
    """A neighbour's confirmation as the server passes it on."""

    place: int
    signature: bytes


@final
@dataclass(frozen=True)
class UnmaskRequest(Message):
    """Stage 4: the confirmations of enough neighbours, which prove that they all saw the same survivors."""

    kind: ClassVar[str] = "secagg.unmask_request"

    binding: bytes
    slot: int
    votes: tuple[NeighbourConfirmation, ...]

    def check(self) -> None:
        require_size(self.binding, HASH_SIZE, "a binding")
        places = [vote.place for vote in self.votes]
        require(places == sorted(set(places)), "confirmations in ascending order of places, each once", "another order")
        for vote in self.votes:
            require_size(vote.signature, SIGNATURE_SIZE, "a signature")


@final
@dataclass(frozen=True)
class Unmasking(Message):
    """Stage 4: shares of survivors' self-mask seeds and of lost members' masking keys, in ascending order of places."""

    kind: ClassVar[str] = "secagg.unmasking"

    binding: bytes
    slot: int
    place: int
    seeds: bytes
    keys: bytes
    signature: bytes

    def check(self) -> None:
        require_size(self.binding, HASH_SIZE, "a binding")
        require_size(self.signature, SIGNATURE_SIZE, "a signature")
        whole = len(self.seeds) % SHARE_SIZE == 0 and len(self.keys) % SHARE_SIZE == 0
        require(whole, f"shares of {SHARE_SIZE} bytes", "another size")

    @property
    def statement(self) -> bytes:
        """The hash that is signed."""
        return digest("unmasking", self.binding, self.slot, self.place, self.seeds, self.keys)
