"""What a client remembers between messages: frozen, JSON-able, and without what it no longer needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, final

from fedcalib.secagg import codec
from fedcalib.secagg.messages import Advert, Confirmation, MaskedVector, SealedShares, Unmasking
from fedcalib.secagg.plan import Plan


@final
@dataclass(frozen=True)
class Secret:
    """A client's own two secrets of a slot: the masking key and the self-mask seed."""

    key: bytes
    seed: bytes


@final
@dataclass(frozen=True)
class Neighbour:
    """A neighbour's place and name, its masking keys by slot, and the key that opens what it seals for this client."""

    place: int
    name: str
    keys: tuple[bytes, ...]
    opener: bytes


@final
@dataclass(frozen=True)
class Circle:
    """A client's place in the roster and the neighbours around it; `own` are its shares of its own seeds, by slot."""

    roster: bytes
    size: int
    place: int
    neighbours: tuple[Neighbour, ...]
    own: tuple[bytes, ...]


@final
@dataclass(frozen=True)
class Held:
    """The two shares that a client holds of a neighbour's secrets; it will reveal at most one of them."""

    place: int
    key: bytes
    seed: bytes


@final
@dataclass(frozen=True)
class Progress:
    """How far a slot has come since its vector was masked; each later reply replaces what only earlier ones needed."""

    binding: bytes
    members: bytes
    held: tuple[Held, ...]
    masked: MaskedVector | None
    survivors: bytes | None = None
    confirmation: Confirmation | None = None
    unmasking: Unmasking | None = None


@final
@dataclass(frozen=True)
class Session:
    """One setup and the slots that it prepared."""

    plan: Plan
    advert: Advert
    encryption: bytes | None
    secrets: tuple[Secret | None, ...]
    progress: tuple[Progress | None, ...]
    circle: Circle | None = None
    sealed: SealedShares | None = None


@final
@dataclass(frozen=True)
class Asked:
    """The latest attempt at a step that this client answered, and whether it ever confirmed one."""

    step: int
    attempt: int
    confirmed: bool


@final
@dataclass(frozen=True)
class ClientState:
    """Everything a client must find again after a restart, but for its identity."""

    kind: ClassVar[str] = "secagg.client_state"

    name: str
    session: Session | None = None
    history: tuple[Asked, ...] = ()

    def to_json(self) -> str:
        """Write the state as JSON text; it holds secrets, so keep the file to its owner."""
        return codec.dumps(self.kind, self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the state from JSON text."""
        return codec.loads(cls.kind, cls, text)
