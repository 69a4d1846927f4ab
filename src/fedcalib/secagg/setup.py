"""What server and clients agree on before any vector is sent: identities, the plan of a setup, and the mask graph.

`Message` is the common part of everything that is sent. `SetupPlan` is the first message: which sums the setup
prepares, and how many sites must stay. `MinimumTerms` is what a client insists on, whatever plan the server proposes.

`SigningIdentity` and `Directory` decide who may sign. The directory reaches a site outside the protocol (by its
operator, like an SSH known-hosts file). A server that swaps a key would have to sign for a name of the directory,
and cannot.

`NeighbourGraph` decides who masks with whom: every pair up to 50 clients, a random k-regular graph beyond (Bell et
al. 2020). That graph is a ring in random order where each client is joined to the k/2 next ones on either side. The
order comes from the hash of the roster, so nobody picks neighbours and every client can work out its own.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any, ClassVar, Self, final

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcalib import wire
from fedcalib.errors import InputError, PolicyError, WireError
from fedcalib.secagg.crypto import ProtocolError, digest, keystream


class Written(ABC):
    """A frozen dataclass that is written as JSON text under the name of its kind."""

    kind: ClassVar[str]

    def to_json(self) -> str:
        return wire.dumps_as(self.kind, self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a value of this kind from JSON text."""
        return wire.loads_as(cls.kind, cls, text)


class Message(Written):
    """What travels, and refuses fields that cannot be right."""

    def __post_init__(self) -> None:
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise WireError for fields that no honest sender would write."""


def require(condition: bool, expected: str, found: str) -> None:
    """Raise WireError unless the condition holds."""
    if not condition:
        raise WireError(f"Expected {expected}, found {found}.")


def require_size(raw: bytes, size: int, what: str) -> None:
    """Raise WireError unless `raw` has exactly `size` bytes."""
    require(len(raw) == size, f"{size} bytes for {what}", str(len(raw)))


MAX_COMPLETE_GRAPH = 50
CORRUPT_FRACTION = Fraction(1, 5)  # of the clients pool what they know with the server
DROPPED_FRACTION = Fraction(1, 10)  # of the clients fail during one sum
MAX_LEAK_PROBABILITY = Fraction(1, 2**40)  # that corrupt clients can rebuild anyone's secret
MAX_ABORT_PROBABILITY = Fraction(1, 2**10)  # that some neighbourhood loses too many clients, and the step is retried


def threshold(quorum: Fraction, sites: int) -> int:
    """The smallest number of sites that is more than the quorum of `sites`."""
    return int(quorum * sites) + 1


@lru_cache(maxsize=256)
def degree(clients: int, quorum: Fraction) -> int:
    """The smallest number of neighbours per client in a federation of this size.

    With a fifth of the clients corrupt, no neighbourhood holds a threshold of them but with probability 2^-40; with a
    tenth dropping out at random, none falls below the threshold but with probability 2^-10.
    """
    if clients <= MAX_COMPLETE_GRAPH:
        return max(clients - 1, 0)
    for k in range(2, clients - 1, 2):
        needed = threshold(quorum, k + 1)
        if _in_any(clients, CORRUPT_FRACTION, k, needed) > MAX_LEAK_PROBABILITY:
            continue
        if _in_any(clients, DROPPED_FRACTION, k, k - needed + 1) <= MAX_ABORT_PROBABILITY:
            return k
    return clients - 1


def _in_any(clients: int, marked: Fraction, k: int, least: int) -> Fraction:
    """A bound on the probability that any client has at least `least` of the marked ones among k neighbours."""
    return clients * _hypergeometric_tail(clients - 1, int(marked * clients), k, least)


def _hypergeometric_tail(population: int, marked: int, sample: int, least: int) -> Fraction:
    """The exact probability that a sample without replacement holds at least `least` marked members."""
    ways = sum(comb(marked, i) * comb(population - marked, sample - i) for i in range(least, min(marked, sample) + 1))
    return Fraction(ways, comb(population, sample))


@final
class NeighbourGraph:
    """Who masks with whom in a roster of `size` clients with `k` neighbours each; the roster's hash gives the order."""

    def __init__(self, size: int, k: int, roster: bytes) -> None:
        self.size = size
        self.k = min(k, size - 1)
        self._complete = self.k == size - 1
        if not self._complete:
            self._ring = _order(size, roster)
            self._position = np.argsort(self._ring)

    def neighbourhood(self, place: int) -> tuple[int, ...]:
        """The places of a client and its neighbours, in ascending order."""
        if self._complete:
            return tuple(range(self.size))
        offsets = np.arange(-(self.k // 2), self.k // 2 + 1)
        return tuple(sorted(self._ring[(self._position[place] + offsets) % self.size].tolist()))


def _order(size: int, roster: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Shuffle places by sorting them on a keystream that the roster's hash seeds."""
    return np.argsort(keystream(digest("ring", roster), size), kind="stable")


SIGNATURE_SIZE = 64
MAX_NAME_LENGTH = 200


@final
class SigningIdentity:
    """A site's name and the key that signs for it."""

    def __init__(self, name: str, private: bytes | None = None) -> None:
        check_name(name)
        if private is not None and len(private) != 32:
            raise InputError(f"Expected an Ed25519 private key of 32 bytes for {name!r}, found {len(private)}.")
        self.name = name
        self._key = Ed25519PrivateKey.generate() if private is None else Ed25519PrivateKey.from_private_bytes(private)

    @property
    def private(self) -> bytes:
        """The secret half, 32 bytes; it never leaves the site."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The half that goes into the directory."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Sign the hash of a statement."""
        return self._key.sign(statement)


@final
@dataclass(frozen=True)
class Directory:
    """The public identity keys of all sites that may take part, by name."""

    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for name, key in self.keys.items():
            check_name(name)
            if not isinstance(key, bytes) or len(key) != 32:
                raise InputError(f"Expected an Ed25519 public key of 32 bytes for {name!r}, found something else.")
        if len(set(self.keys.values())) != len(self.keys):
            raise InputError("Expected a key of its own for each site, found one that two sites share.")

    def verify(self, name: str, statement: bytes, signature: bytes) -> None:
        """Refuse a signature that is not the named site's on the statement."""
        if name not in self.keys:
            raise ProtocolError(
                f"Expected a site of the directory, found {name[:60]!r}; if it should take part, "
                "add its identity key to the directory of every site."
            )
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[name]).verify(signature, statement)
        except InvalidSignature as error:
            raise ProtocolError(
                f"Expected a message signed by site {name!r}, found a signature that is not its own; "
                "the message was forged or changed on the way."
            ) from error

    def to_json(self) -> str:
        return json.dumps({name: base64.b64encode(key).decode() for name, key in sorted(self.keys.items())}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Directory:
        """Read a directory from JSON text: an object of site names and base64 keys."""
        try:
            data: Any = wire.parse(text)
            return cls({name: base64.b64decode(key, validate=True) for name, key in data.items()})
        except (WireError, ValueError, TypeError, AttributeError) as error:
            raise InputError("Expected a JSON object of site names and base64 identity keys.") from error


def check_name(name: str) -> None:
    """Refuse a name that is empty, very long, or not printable."""
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InputError(f"Expected a printable name of 1 to {MAX_NAME_LENGTH} characters, found {name[:60]!r}.")


def require_name(name: str, what: str) -> None:
    """Raise WireError for a name that `check_name` refuses."""
    try:
        check_name(name)
    except InputError as error:
        raise WireError(f"Expected {what}. {error}") from error


MAX_SLOTS = 4096
MAX_VECTOR_WORDS = 1 << 27  # words: one gibibyte


@final
@dataclass(frozen=True)
class Slot:
    """One attempt at one planned step, and the length of its vectors; it has its own masking keys and seeds."""

    step: int
    attempt: int
    length: int


@final
@dataclass(frozen=True)
class SetupPlan(Message):
    """Stage 1: what one setup prepares: its slots, the quorum of each neighbourhood, the fewest survivors of a sum.

    `setup` counts the setups of a run. `degree` is the number of neighbours; None takes the rule of `degree` above.
    """

    kind: ClassVar[str] = "secagg.plan"

    run: str
    slots: tuple[Slot, ...]
    setup: int = 0
    quorum: Fraction = Fraction(2, 3)
    floor: int = 3
    degree: int | None = None

    def check(self) -> None:
        require_name(self.run, "a plan for a named run")
        require(0 < len(self.slots) <= MAX_SLOTS, f"1 to {MAX_SLOTS} slots in a plan", str(len(self.slots)))
        pairs = {(slot.step, slot.attempt) for slot in self.slots}
        require(len(pairs) == len(self.slots), "each attempt at a step once in a plan", "one repeated")
        fits = all(0 < slot.length <= MAX_VECTOR_WORDS for slot in self.slots)
        require(fits, f"vectors of 1 to {MAX_VECTOR_WORDS} words", "another length")
        exact = isinstance(self.quorum, Fraction) and Fraction(1, 2) <= self.quorum < 1
        require(exact, "a quorum as a Fraction from 1/2 to below 1", str(self.quorum))
        require(self.floor >= 2, "a floor of at least 2 survivors", str(self.floor))
        odd = self.degree is not None and (self.degree < 2 or self.degree % 2 == 1)
        require(not odd, "an even degree of at least 2", str(self.degree))

    @property
    def digest(self) -> bytes:
        """The hash that stands for the plan in signatures."""
        flat = [number for slot in self.slots for number in (slot.step, slot.attempt, slot.length)]
        quorum = (self.quorum.numerator, self.quorum.denominator)
        return digest("plan", self.run, self.setup, *quorum, self.floor, self.degree or 0, *flat)

    def neighbours(self, clients: int) -> int:
        """The number of neighbours of each client in a roster of `clients`."""
        return min(degree(clients, self.quorum) if self.degree is None else self.degree, clients - 1)

    def neighbourhood_threshold(self, clients: int) -> int:
        """How many of a neighbourhood, the client itself included, must stay for its secrets to be rebuilt."""
        return threshold(self.quorum, self.neighbours(clients) + 1)

    def roster_threshold(self, clients: int) -> int:
        """How many of the whole roster must be in a sum."""
        return max(self.floor, threshold(self.quorum, clients))


@final
@dataclass(frozen=True)
class MinimumTerms:
    """The weakest terms under which a client takes part.

    Parameters
    ----------
    floor
        The fewest survivors of a sum.
    quorum
        The smallest fraction of a neighbourhood that can unmask. Above 2/3 the server cannot split the survivors even
        if it lies.
    degree
        The fewest neighbours; None insists on the rule of `degree` above.
    renewed
        Each attempt at a step brings fresh noise and is paid for, so a step may be retried after this client
        confirmed an earlier attempt. Without fresh noise the second answer could be subtracted from the first.
    """

    floor: int = 3
    quorum: Fraction = Fraction(2, 3)
    degree: int | None = None
    renewed: bool = False

    def __post_init__(self) -> None:
        if self.floor < 2 or not Fraction(1, 2) <= self.quorum < 1:
            raise InputError(
                f"Expected a floor of at least 2 and a quorum from 1/2 to below 1, "
                f"found {self.floor} and {self.quorum}."
            )

    def accept(self, plan: SetupPlan) -> None:
        """Decline a plan whose terms are weaker than these."""
        if plan.floor < self.floor:
            raise PolicyError(
                f"Expected sums over at least {self.floor} sites, found a plan that allows {plan.floor}; "
                "raise the plan's floor or change this site's policy."
            )
        if plan.quorum < self.quorum:
            raise PolicyError(
                f"Expected a quorum of at least {self.quorum}, found {plan.quorum}; "
                "raise the plan's quorum or change this site's policy."
            )

    def accept_roster(self, plan: SetupPlan, clients: int) -> None:
        """Decline a roster that is too small or a graph that is too thin for it."""
        if clients < self.floor:
            raise PolicyError(f"Expected at least {self.floor} sites in the roster, found {clients}; wait for more.")
        needed = degree(clients, plan.quorum) if self.degree is None else min(self.degree, clients - 1)
        if plan.neighbours(clients) < needed:
            raise PolicyError(
                f"Expected at least {needed} neighbours among {clients} sites, found {plan.neighbours(clients)}; "
                "leave the plan's degree empty to take the rule."
            )
