"""The messages between a server and its sites, as JSON text.

    action    server to site         site to server
    hello     nothing                Introduction
    begin     Begin                  Agreed: with keys where sums are masked, otherwise consent alone
    shares    Relay                  Relay
    ask       Question               Share, or a Relay with a masked vector
    confirm   Relay                  Relay
    unmask    Relay                  Relay

Messages of secure aggregation travel inside as text of their own. A site that declines sends `Refused` with one word
of the fixed list `REASONS`; the full reason stays in the site's own log, so nothing about its data can leak that way.
The names of the classes and their fields are what is sent, so they cannot change.
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
    """A site declines: `word` is sent to the server, the message stays in the site's log."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


ACTIONS = ("hello", "begin", "shares", "ask", "confirm", "unmask")

REASONS = {
    "malformed": "could not read the request; both sides need versions of fedcalib that fit together",
    "query": "does not allow such a query; ask its operator to add it to the policy, or choose another method",
    "mechanism": "does not allow this privacy mechanism; use another privacy model, or ask its operator to allow it",
    "epsilon": "allows a smaller epsilon only; spend less, or ask its operator to change the policy",
    "budget": "has too little of its yearly budget left; spend less, or wait",
    "cohort": "answers only together with more sites; wait for more, or allow fewer drop-outs",
    "protocol": "received a message that the protocol does not allow; nothing was answered, and its log says why",
    "again": "answered this step before, and a second sum could reveal a client; start a new run, under another name",
    "declined": "declined for a reason that is in its own log; ask its operator",
    "disk": "could not write to its disk, so it answered nothing; ask its operator to free space, then run this again",
    "failed": "failed for a reason that is in its own log; ask its operator",
}

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Introduction:
    """A site's name, its number of clients (1 except in simulations), its classes, and its version of fedcalib."""

    site: str
    clients: int
    classes: int
    version: str


@final
@dataclass(frozen=True)
class Begin:
    """The outline of a whole run, and the plan of its secure aggregation where it has one."""

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
            raise WireError("Expected an outline with one mechanism per query, found another number.")
        if not all(isinstance(part, sort) for part, sort in sorts):
            raise WireError("Expected queries, mechanisms and a participation in an outline, found something else.")


@final
@dataclass(frozen=True)
class Agreed:
    """A site's consent, with its keys where sums are masked."""

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
    """One step of a run: the query, which of the site's clients it is for, and the request for a mask."""

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
    """A site's share without masks, for mechanisms that protect it by themselves."""

    run: str
    step: int
    value: Array


@final
@dataclass(frozen=True)
class Refused:
    """Why there is no answer: one of the words of `REASONS`."""

    reason: str


_OWN: dict[str, type] = {
    cls.__name__: cls for cls in (Introduction, Begin, Agreed, Relay, Question, Share, Refused, Outline)
}


def write(message: object) -> str:
    return wire.dumps(message)


def _decoded(text: str, allowed: Collection[str] | None = ()) -> object:
    lookup = partial(registry.lookup, allowed=allowed)
    return wire.decode(wire.parse(text), lambda name: _OWN[name] if name in _OWN else lookup(name))


def read(text: str, kind: type[T], allowed: Collection[str] | None = ()) -> T:
    """The message of a text, which must be of one kind; `allowed` names types of other packages that it may hold."""
    message = _decoded(text, allowed)
    if not isinstance(message, kind):
        raise WireError(f"Expected a message of the kind {kind.__name__}, found {type(message).__name__}.")
    return message


def read_reply(text: str, kind: type[T]) -> T | Refused:
    """The reply of a text, which must be of one kind or a refusal."""
    message = _decoded(text)
    if not isinstance(message, kind | Refused):
        raise WireError(f"Expected a reply of the kind {kind.__name__}, found {type(message).__name__}.")
    return message
