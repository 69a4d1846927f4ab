"""The messages between a server and its sites, as JSON text, and the limits of what a message may hold.

    action    server to site         site to server
    hello     Greeting, or nothing   Introduction: and, where the greeting holds a run, that this site could take part;
                                     with the keys of its masks where the greeting also holds their plan
    begin     Begin                  Agreed: with keys where sums are masked, otherwise consent alone
    shares    Relay                  Relay
    ask       Question               Share, or a Relay with a masked vector
    confirm   Relay                  Relay
    unmask    Relay                  Relay

Messages of secure aggregation travel inside as text of their own. A site that declines sends `Refused` with one word
of the fixed list `REASONS`; the full reason stays in the site's own log, so nothing about its data can leak that way.
The names of the classes and their fields are what is sent, so they cannot change. Mechanisms are never sent: a site
derives its own from the privacy model.

Every limit stands here with its reason. A message beyond one of them is refused after it is parsed and before anything
is built from it, so that a short text cannot take a site's memory or time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeVar, final

from fedcalib import registry, wire
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import PolicyError, WireError
from fedcalib.loop import Outline
from fedcalib.method import Method
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.privacy.local import Coder
from fedcalib.privacy.local_reports import Encoder, Symbols
from fedcalib.query import Query
from fedcalib.types import Array

MAX_TEXT: Final = 1 << 27  # characters: with its parsed and decoded copies, half a gibibyte
MAX_VALUES: Final = 1 << 19  # values in a text, about half a second to parse and decode
MAX_OBJECTS: Final = 1 << 13  # objects with fields, each of which takes some ten microseconds to check and build
MAX_QUERIES: Final = 1 << 9  # in a plan: some privacy models take time with the square of it
MAX_BLOCKS: Final = 1 << 13  # of all queries of a plan, each with a mechanism of its own
MAX_FLOOR: Final = 1 << 20  # clients that noise is sized for: its accounting takes that many numbers per block
MIN_FLOAT: Final = 1e-200  # in magnitude, other than 0: products of such a number and a bound do not vanish
MAX_FLOAT: Final = 1e12  # beyond any weight, clip or parameter; products of a few such numbers stay finite
EPSILONS: Final = (1e-4, 1e6)  # of a privacy model: noise below that is as good as none, and above it as good as all
DELTAS: Final = (1e-30, 0.1)  # of a privacy model that has one; searches for noise end quickly within
SAMPLED: Final = (0.1, 1e-12)  # the least epsilon and delta of sampled runs: their accounting finds no noise for less
CLIPS: Final = (1e-9, 1e9)  # to which clients' sums are clipped
MAX_NETWORK: Final = 1 << 20  # the product of a network's sizes: at most some 100 MiB of weights
MAX_NOISE: Final = 2.0**48  # grid steps, and their inverse: noise and sums stay far from the ends of 64-bit numbers
MAX_CELLS: Final = 1 << 21  # numbers in an answer: 2^20 scores by label
MAX_DENSE: Final = 1 << 8  # cells that a local report writes out per record: half a gibibyte for 2^15 records at a time
MAX_WORK: Final = 1 << 28  # numbers to touch in one answer, about two seconds; see `policy.work`
MAX_INTEGERS: Final = {  # by the name of the field, where the usual 2^20 is too large or too small
    "seed": 1 << 64,  # any seed is as good as another
    "clock": 1 << 40,  # seconds since 1970
    **dict.fromkeys(("fewest", "largest", "clients", "members", "expected", "shape"), 1 << 40),  # counts and sizes
    "classes": 1 << 16,  # one probability per class and record
    **dict.fromkeys(("features", "hidden", "embedding", "characters"), 1 << 12),  # matrices have their square
    **dict.fromkeys(("side", "width", "rank", "collected"), 1 << 8),  # layers of networks, and sketches of weights
    **dict.fromkeys(("channels", "layers", "bits", "height"), 1 << 6),
    **dict.fromkeys(("steps", "epochs"), 1 << 10),  # passes over the records
}
_USUAL_INTEGER: Final = 1 << 20
_NOT_SENT: Final = (Mechanism, Coder, Symbols, Encoder, Method)  # what a site derives, or never needs


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
    "columns": "states no column of that name for such a job; leave it out, or ask its operator to state it with "
    "--group or --rival",
    "mechanism": "does not allow this privacy model here; use another one, or ask its operator to allow it",
    "epsilon": "allows a smaller epsilon only; spend less, or ask its operator to change the policy",
    "budget": "has too little of its yearly budget left; spend less, or wait",
    "work": "allows cheaper queries only; use fewer bins, cells or steps, or ask its operator to raise the limit",
    "roster": "answered an exact sum over nearly the same sites, and the difference would reveal some of them; run "
    "with the same sites as before, or use a privacy model with an epsilon",
    "cohort": "answers only together with more sites; wait for more, or allow fewer drop-outs",
    "protocol": "received a message that the protocol does not allow; nothing was answered, and its log says why",
    "again": "answered this step before, and a second sum could reveal a client; start a new run, under another name",
    "data": "changed its records in the middle of the run, so it answered nothing; start a new run, under another name",
    "setup": "cannot read its own policy, keys or records, so it answered nothing and spent nothing; ask its operator "
    "to look into `fedcalib site log`",
    "declined": "declined for a reason that is in its own log; ask its operator",
    "disk": "could not write to its disk, so it answered nothing; ask its operator to free space, then run this again",
    "failed": "failed for a reason that is in its own log; ask its operator",
}

T = TypeVar("T")

PROTOCOL: Final = 3  # of these messages; 1 had no greeting, 2 no keys in it. Different numbers refuse each other


@final
@dataclass(frozen=True)
class Introduction:
    """A site's name, its clients (1 except in simulations) and classes, its versions, and its clock in seconds.

    `keys` are those of its masks, where the greeting held a plan for them; `epsilon_left` is what is left of its yearly
    budget, and `left_out` the percentage of rows that it could not use, where its policy lets a server know.
    """

    site: str
    clients: int
    classes: int
    version: str
    protocol: int = 1
    clock: int = 0
    keys: str = ""
    epsilon_left: float | None = None
    left_out: int | None = None


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
            (outline.privacy, Privacy),
            (outline.participation, Participation),
        )
        if not 0 < len(outline.queries) <= MAX_QUERIES:
            raise WireError(f"Expected 1 to {MAX_QUERIES} queries in an outline, found {len(outline.queries)}.")
        if not all(isinstance(part, sort) for part, sort in sorts):
            raise WireError("Expected queries, a privacy model and a participation in an outline, found other things.")
        _check_cohort(outline.cohort)


def _check_cohort(cohort: Cohort) -> None:
    whole = 1 <= cohort.floor <= MAX_FLOOR
    if not whole or not 0 < cohort.expected <= 1 << 40 or not 0 < cohort.rate <= 1:
        raise WireError(f"Expected a cohort of 1 to {MAX_FLOOR} clients and a rate from 0 to 1, found {cohort}.")


@final
@dataclass(frozen=True)
class Greeting:
    """A server's versions and, before a run, its outline and classes, so that sites say at once whether they could.

    Where `begin` also holds the plan of secure aggregation, sites that could take part send their keys with the reply.
    """

    protocol: int
    version: str
    classes: int = 0
    begin: Begin | None = None

    def __post_init__(self) -> None:
        if self.begin is not None and not isinstance(self.begin, Begin):
            raise WireError("Expected the outline of a run in a greeting, found something else.")


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
    cls.__name__: cls for cls in (Introduction, Greeting, Begin, Agreed, Relay, Question, Share, Refused, Outline)
}


def write(message: object) -> str:
    return wire.dumps(message)


def _decoded(text: str, allowed: Collection[str] | None = ()) -> object:
    if len(text) > MAX_TEXT or text.count(",") > MAX_VALUES:
        raise WireError(f"Expected at most {MAX_TEXT} characters and {MAX_VALUES} values in a message, found more.")
    data = wire.parse(text)
    check_numbers(data)

    def lookup(name: str) -> type:
        found = _OWN[name] if name in _OWN else registry.lookup(name, allowed)
        if issubclass(found, _NOT_SENT):
            raise WireError(f"Expected queries and a privacy model in a message, found {name}, which is never sent.")
        return found

    return wire.decode(data, lookup)


def check_numbers(data: Any) -> None:
    """Refuse plain JSON data with a number beyond its limit, or with too many objects."""
    objects = 0
    for name, value in _values(data):
        if isinstance(value, dict):
            objects += 1
            if objects > MAX_OBJECTS or value.keys() == {"float"}:  # the form of NaN and infinity
                raise WireError(f"Expected at most {MAX_OBJECTS} objects and finite numbers in a message.")
        elif type(value) is int:
            if abs(value) > MAX_INTEGERS.get(name, _USUAL_INTEGER):
                raise WireError(f"Expected numbers up to {MAX_INTEGERS.get(name, _USUAL_INTEGER)} as {name[:40]}.")
        elif type(value) is float and value and not (isfinite(value) and MIN_FLOAT <= abs(value) <= MAX_FLOAT):
            raise WireError(f"Expected numbers from {MIN_FLOAT:g} to {MAX_FLOAT:g} as {name[:40]}, found another one.")


def _values(data: Any) -> Iterator[tuple[str, Any]]:
    """Every value of plain data with the name of its field; items of a list have the name of the list."""
    open_ = [("", data)]
    while open_:
        name, value = open_.pop()
        yield name, value
        if isinstance(value, dict):
            open_ += [(str(key), item) for key, item in value.items()]
        elif isinstance(value, list):
            open_ += [(name, item) for item in value]


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


def is_refusal(text: str) -> bool:
    """Whether a reply of this site is a refusal."""
    return isinstance(_decoded(text), Refused)
