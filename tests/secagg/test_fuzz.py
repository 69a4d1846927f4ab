"""Whatever arrives, a handler answers or raises one of our errors, and an error changes nothing.

FEDCALIB_FUZZ sets how many mutated messages each handler gets (10,000 by default; 1,000,000 for a long run).
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random

import numpy as np
import pytest
from tests.secagg.conversation import Conversation, random_vectors

from fedcalib.errors import FedcalibError
from fedcalib.secagg import Client, Server, SetupPlan
from fedcalib.secagg.client_steps import ClientState
from fedcalib.secagg.messages import (
    Advert,
    Confirmation,
    MaskedVector,
    MaskRequest,
    RosterView,
    SealedShares,
    Survivors,
    Unmasking,
    UnmaskRequest,
)

COUNT = int(os.environ.get("FEDCALIB_FUZZ", "10000"))
JUNK = [None, True, -1, 0, 1, 2, 3, 4, 5, 2**53, 1e300, "", "A", "AAAA", "A" * 43 + "=", "\ud800", "1/0", [], [[]], {}]
KINDS = (SetupPlan, RosterView, MaskRequest, Survivors, UnmaskRequest)


def mutated(text, rng):
    """Change a message a little: in its tree, in its base64, or in its bytes."""
    choice = rng.random()
    if choice < 0.2:
        raw = bytearray(text.encode())
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw)
    if choice < 0.25:
        return text[: rng.randrange(len(text))]
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _mutate(data, rng)
    return json.dumps(data)


def _mutate(data, rng):
    holder, key = _pick(data, rng)
    value = holder[key]
    choice = rng.random()
    if isinstance(value, str) and choice < 0.5:
        holder[key] = _scrambled(value, rng)
    elif isinstance(value, int) and choice < 0.6:
        holder[key] = value + rng.choice((-1, 1, 2, 7))
    elif isinstance(value, list) and value and choice < 0.7:
        _reshape(value, rng)
    elif isinstance(holder, dict) and choice < 0.75:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(rng.choice(JUNK))


def _pick(data, rng):
    """Walk down to a random field; deeper ones are as likely as shallow ones."""
    paths, frontier = [], [data]
    while frontier:
        node = frontier.pop()
        for key in node if isinstance(node, dict) else range(len(node)):
            paths.append((node, key))
            if isinstance(node[key], dict | list):
                frontier.append(node[key])
    return rng.choice(paths) if paths else ({"": 0}, "")


def _reshape(items, rng):
    at = rng.randrange(len(items))
    rng.choice((lambda: items.pop(at), lambda: items.append(copy.deepcopy(items[at])), items.reverse))()


def _scrambled(text, rng):
    if not text:
        return "A"
    at = rng.randrange(len(text))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    changes = (text[:at] + rng.choice(letters) + text[at + 1 :], text[:at] + text[at + 4 :], text + text[-4:])
    return rng.choice(changes)


class Scene:
    """A run stopped before each stage, and an honest message for each handler there."""

    def __init__(self):
        self.run = Conversation.of(4, length=4, steps=2)
        self.vectors = random_vectors(self.run.sites, length=4)
        self.clients, self.servers = {}, {}
        self._play()

    def _play(self):
        run, server, site = self.run, self.run.server, self.run.sites["site-001"]
        self._note("keys", site, run.plan)
        for one in run.sites.values():
            advert = one.answer("keys", run.plan)
            self._serve("accept_keys", Advert, advert, one)
            server.accept_keys(advert)
        views = server.close_keys()
        self._note("shares", site, views["site-001"])
        for name, view in views.items():
            sealed = run.sites[name].answer("shares", view)
            self._serve("accept_shares", SealedShares, sealed, run.sites[name])
            server.accept_shares(sealed)
        server.close_shares()
        asked = server.begin(0)
        stages = (
            ("mask", "accept_masked", "close_masked", MaskedVector),
            ("confirm", "accept_confirmation", "close_confirmations", Confirmation),
            ("unmask", "accept_unmasking", "total", Unmasking),
        )
        for method, accept, close, kind in stages:
            self._note(method, site, asked["site-001"])
            for name, message in asked.items():
                more = (self.vectors[name],) if method == "mask" else ()
                reply = run.sites[name].answer(method, message, *more)
                self._serve(accept, kind, reply, run.sites[name])
                getattr(server.round(0), accept)(reply)
            asked = getattr(server.round(0), close)()

    def _note(self, method, site, message):
        self.clients[method] = (type(message), site, site.saved, message.to_json())

    def _serve(self, method, kind, message, site):
        if site.identity.name == "site-001":
            self.servers[method] = (kind, self.run.server.to_json(), message.to_json())


@pytest.fixture(scope="module")
def scene():
    return Scene()


@pytest.mark.parametrize("method", ["keys", "shares", "mask", "confirm", "unmask"])
def test_client_handlers_raise_only_our_errors(scene, method):
    kind, site, saved, text = scene.clients[method]
    assert kind in KINDS
    more = (scene.vectors["site-001"],) if method == "mask" else ()

    def fresh():
        client = Client(site.identity, site.directory, site.policy)
        return Client.from_json(saved, site.identity, site.directory, site.policy) if saved else client

    getattr(fresh(), method)(kind.from_json(text), *more)  # the honest message is taken
    client = fresh()
    before = client.to_json()
    rng, refused = random.Random(method), 0
    for _ in range(COUNT):
        try:
            getattr(client, method)(kind.from_json(mutated(text, rng)), *more)
        except FedcalibError:
            refused += 1
        else:
            client = fresh()
    assert client.to_json() == before
    # A plan may change in ways that make another valid plan; the other messages are bound to the run.
    assert refused > COUNT * (0.5 if method == "keys" else 0.9)


@pytest.mark.parametrize(
    "method", ["accept_keys", "accept_shares", "accept_masked", "accept_confirmation", "accept_unmasking"]
)
def test_server_handlers_raise_only_our_errors(scene, method):
    kind, saved, text = scene.servers[method]

    def fresh():
        server = Server.from_json(saved, scene.run.directory)
        return server, getattr(server if method in ("accept_keys", "accept_shares") else server.round(0), method)

    fresh()[1](kind.from_json(text))
    server, handler = fresh()
    rng, refused = random.Random(method), 0
    for _ in range(COUNT):
        try:
            handler(kind.from_json(mutated(text, rng)))
        except FedcalibError:
            refused += 1
        else:
            server, handler = fresh()
    assert server.to_json() == saved
    assert refused > COUNT * 0.9


def test_saved_states_raise_only_our_errors(scene):
    _, site, saved, _ = scene.clients["unmask"]
    assert ClientState.from_json(saved).to_json() == saved
    _, server, _ = scene.servers["accept_unmasking"]
    rng = random.Random(0)
    for _ in range(COUNT // 10):
        for read in (
            lambda text: Client.from_json(text, site.identity, site.directory, site.policy),
            lambda text: Server.from_json(text, scene.run.directory),
        ):
            with contextlib.suppress(FedcalibError):
                read(mutated(rng.choice((saved, server)), rng))


def test_the_sum_is_still_exact_after_all_that(scene):
    total = scene.run.server.round(0).total()
    expected = np.sum(list(scene.vectors.values()), axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(total.words, expected)
