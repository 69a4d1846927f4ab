"""Why a site does not answer: one word for the server, the reason for the site's own log.

What a server and a site say to each other, as JSON text.

    action    server to site         site to server
    hello     nothing                Introduction
    begin     Begin                  Agreed: the stage of keys under masks, consent alone without
    shares    Relay                  Relay
    ask       Question               Share, or a Relay with a masked vector
    confirm   Relay                  Relay
    unmask    Relay                  Relay

Messages of secure aggregation travel inside as text of their own. A site that declines sends `Refused` with one word
out of a fixed list, and never a word of its data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, final

from fedcalib import registry, wire
from fedcalib.cohort import Participation
from fedcalib.errors import PolicyError, WireError
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.types import Array


@final
class Refusal(PolicyError):  # noqa: N818 - the name says it as one would
    """A site declines; `word` travels, the message stays."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


ACTIONS = ("hello", "begin", "shares", "ask", "confirm", "unmask")

REASONS = {
    "malformed": "could not read the request; both sides need versions of fedcalib that fit together",
    "query": "does not allow such a query; ask the site to add it to its policy, or choose another method",
    "mechanism": "does not allow this privacy mechanism; choose another model, or ask the site to change its policy",
    "epsilon": "allows a smaller epsilon only; ask for less, or ask the site to change its policy",
    "budget": "has too little of its yearly budget left; ask for less, or wait",
    "cohort": "answers only together with more sites; wait for more, or allow fewer drop-outs",
    "protocol": "met a message that the protocol does not allow; nothing was answered, and the site's log says why",
    "again": "gave this sum once and cannot tell it from a trick; start a new run, under another name",
    "declined": "declined for a reason that its own log tells; ask the site",
    "disk": "could not write to its disk, so it answered nothing; ask the site to make room, then run this again",
    "failed": "failed for a reason that its own log tells; ask the site",
}

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Introduction:
    """Who a site is: its name, its clients (one, but in simulations), and the shape of its records."""

    site: str
    clients: int
    classes: int
    version: str


@final
@dataclass(frozen=True)
class Begin:
    """A run as a whole, and the terms of its secure aggregation, if it has any."""

    outline: Outline
    terms: str

    def __post_init__(self) -> None:
        outline = self.outline
        sorts = (
            *((query, Query) for query in outline.queries),
            *((mechanism, Mechanism) for mechanism in outline.mechanisms),
            (outline.participation, Participation),
        )
        if not outline.queries or len(outline.queries) != len(outline.mechanisms):
            raise WireError("Expected an outline with one mechanism a query, found another number.")
        if not all(isinstance(part, sort) for part, sort in sorts):
            raise WireError("Expected queries, mechanisms and a participation in an outline, found something else.")


@final
@dataclass(frozen=True)
class Agreed:
    """A site's consent, with its keys where there are masks."""

    keys: str


@final
@dataclass(frozen=True)
class Relay:
    """A message of secure aggregation for one run."""

    run: str
    text: str


@final
@dataclass(frozen=True, eq=False)
class Question:
    """One step of a run: what is asked, of which of the site's clients, and the request for a mask if there is one."""

    run: str
    step: int
    attempt: int
    query: Query
    members: tuple[int, ...]
    request: str

    def __post_init__(self) -> None:
        if not isinstance(self.query, Query) or self.step < 0 or self.attempt < 0:
            raise WireError("Expected a query with its step and attempt, found something else.")


@final
@dataclass(frozen=True, eq=False)
class Share:
    """A site's share in plain sight, for mechanisms that protect it by themselves."""

    run: str
    step: int
    value: Array


@final
@dataclass(frozen=True)
class Refused:
    """One word that says why there is no answer."""

    reason: str


_OWN: dict[str, type] = {
    cls.__name__: cls for cls in (Introduction, Begin, Agreed, Relay, Question, Share, Refused, Outline)
}


def write(message: object) -> str:
    """Put a message into text."""
    return wire.dumps(message)


def _decoded(text: str, allowed: Collection[str] | None = ()) -> object:
    lookup = partial(registry.lookup, allowed=allowed)
    return wire.decode(wire.parse(text), lambda name: _OWN[name] if name in _OWN else lookup(name))


def read(text: str, kind: type[T], allowed: Collection[str] | None = ()) -> T:
    """Read a message that has to be of one kind; `allowed` names types of other packages that it may hold."""
    message = _decoded(text, allowed)
    if not isinstance(message, kind):
        raise WireError(f"Expected a message of the kind {kind.__name__}, found {type(message).__name__}.")
    return message


def read_reply(text: str, kind: type[T]) -> T | Refused:
    """Read a reply of one kind, or the refusal that came instead."""
    message = _decoded(text)
    if not isinstance(message, kind | Refused):
        raise WireError(f"Expected a reply of the kind {kind.__name__}, found {type(message).__name__}.")
    return message
