"""A whole protocol run in one process, every message and every state through JSON, sites dropping out on demand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from fedcalib.secagg import Client, Directory, MinimumTerms, Server, SetupPlan, SigningIdentity, Slot, SurvivorSum
from fedcalib.secagg.setup import Message

LENIENT = MinimumTerms(floor=2, quorum=Fraction(1, 2), degree=2)


def through_wire(message):
    """Send a message as text, as any transport would."""
    copy = type(message).from_json(message.to_json())
    assert copy == message
    return copy


def make_plan(steps=1, length=8, **terms):
    return SetupPlan(run="run", slots=tuple(Slot(step, 0, length) for step in range(steps)), **terms)


def names_of(count):
    return [f"site-{number:03d}" for number in range(count)]


def make_sites(count, policy=LENIENT):
    identities = {name: SigningIdentity(name) for name in names_of(count)}
    directory = Directory({name: identity.public for name, identity in identities.items()})
    return {name: Site(identity, directory, policy) for name, identity in identities.items()}, directory


@dataclass
class Site:
    """A site whose process ends after every message: only its identity and the saved text stay."""

    identity: SigningIdentity
    directory: Directory
    policy: MinimumTerms
    saved: str = ""

    def client(self) -> Client:
        if not self.saved:
            return Client(self.identity, self.directory, self.policy)
        return Client.from_json(self.saved, self.identity, self.directory, self.policy)

    def answer(self, method: str, message: Message, *more):
        client = self.client()
        reply = getattr(client, method)(through_wire(message), *more)
        self.saved = client.to_json()
        return through_wire(reply)


@dataclass
class Conversation:
    """A federation with a server that restarts after every stage."""

    plan: SetupPlan
    sites: Mapping[str, Site]
    directory: Directory
    server: Server = field(init=False)

    def __post_init__(self):
        self.server = Server(self.plan, self.directory)

    @classmethod
    def of(cls, count, policy=LENIENT, **terms):
        sites, directory = make_sites(count, policy)
        return cls(make_plan(**terms), sites, directory)

    def restart(self):
        self.server = Server.from_json(self.server.to_json(), self.directory)

    def setup(self, lost_keys: Collection[str] = (), lost_shares: Collection[str] = ()):
        for name, site in self.sites.items():
            if name not in lost_keys:
                self.server.accept_keys(site.answer("keys", self.plan))
        self.restart()
        for name, view in self.server.close_keys().items():
            if name not in lost_shares:
                self.server.accept_shares(self.sites[name].answer("shares", view))
        self.restart()
        return self.server.close_shares()

    def mask(self, vectors, step=0, attempt=0, lost: Collection[str] = ()):
        requests = self.server.begin(step, attempt)
        for name, request in requests.items():
            if name not in lost:
                reply = self.sites[name].answer("mask", request, vectors[name])
                self.server.round(step, attempt).accept_masked(reply)
        self.restart()
        return self.server.round(step, attempt).close_masked()

    def confirm(self, survivors, step=0, attempt=0, lost: Collection[str] = ()):
        for name, message in survivors.items():
            if name not in lost:
                self.server.round(step, attempt).accept_confirmation(self.sites[name].answer("confirm", message))
        self.restart()
        return self.server.round(step, attempt).close_confirmations()

    def unmask(self, requests, step=0, attempt=0, lost: Collection[str] = ()) -> SurvivorSum:
        for name, request in requests.items():
            if name not in lost:
                self.server.round(step, attempt).accept_unmasking(self.sites[name].answer("unmask", request))
        self.restart()
        return self.server.round(step, attempt).total()

    def sum(self, vectors, step=0, attempt=0, lost=((), (), ())) -> SurvivorSum:
        survivors = self.mask(vectors, step, attempt, lost[0])
        return self.unmask(self.confirm(survivors, step, attempt, lost[1]), step, attempt, lost[2])


def random_vectors(sites, length=8, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**62), 2**62, length).view(np.uint64) for name in sites}


def plain_sum(vectors, names):
    total = np.zeros(len(next(iter(vectors.values()))), np.uint64)
    for name in names:
        total += vectors[name]
    return total
