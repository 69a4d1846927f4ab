"""Mutated messages: a site answers every one with a reply or a known word, and a server ends with an error of ours.

`make fuzz` runs a million; here it is ten thousand (FEDCALIB_FUZZ says how many).
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import FedcalibError
from fedcalib.remote.protocol import ACTIONS, REASONS, Refused, read_reply
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import Site
from fedcalib.remote.sites import Transport
from tests.contract.subjects import federation
from tests.remote.places import LocalTransport, places

COUNT = int(os.environ.get("FEDCALIB_FUZZ", "10000"))
DATA = federation(2, clients=3, records=60)
ODD: list[Any] = [
    *(None, True, -1, 0, 1 << 63, 1 << 200, 1e308, "", "x" * 300, "\x00", [], {}, [[[]]]),
    *({"type": "Join", "fields": {}}, {"float": "nan"}, {"fraction": "1/0"}, {"fraction": "9" * 40}),
    {"array": "int64", "shape": [1 << 30, 1 << 30], "data": ""},
    {"array": "float64", "shape": [1], "data": "AAAAAAAA+H8="},
    {"type": "os.system", "fields": {"command": "true"}},
    {"type": "LabelHistogram", "fields": {"classes": 2, "bins": 1 << 40}},
    {"type": "Everyone", "fields": {"dropout": 0.5}},
    {"type": "Cohort", "fields": {"expected": -1.0, "rate": 0.0, "floor": -5}},
    {"type": "FixedPoint", "fields": {"scales": {"map": {}}}},
    {"type": "DistributedDP", "fields": {"epsilon": 1e-300}},
    {"type": "UserGaussian", "fields": {"epsilon": 1.0, "delta": 0.5, "clip": 1e-300}},
]


def nodes(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from nodes(item, (*path, key))


def mutated(text: str, chance: random.Random) -> str:
    """Change a text as a whole, a letter of it, or one value inside."""
    kind = chance.randrange(4)
    if kind == 0 or not text:
        return text[: chance.randrange(len(text) + 1)] + chance.choice(["", "}", "\x00", "[" * 40, "null"])
    if kind == 1:
        at = chance.randrange(len(text))
        return text[:at] + chr(chance.randrange(32, 127)) + text[at + 1 :]
    data = wire.parse(text)
    path = chance.choice(list(nodes(data)))
    if not path:
        return json.dumps(chance.choice(ODD))
    place = data
    for key in path[:-1]:
        place = place[key]
    if isinstance(place[path[-1]], str) and kind == 3:
        place[path[-1]] = _inner(place[path[-1]], chance)
    else:
        place[path[-1]] = chance.choice(ODD)
    return json.dumps(data)


def _inner(text: str, chance: random.Random) -> str:
    """A string may hold a message of its own."""
    try:
        wire.parse(text)
    except FedcalibError:
        return text[: chance.randrange(len(text) + 1)] + chance.choice(["", "A", "="])
    return mutated(text, chance)


class Recorder(Transport):
    """Keeps every request and reply of an honest run, and may change replies."""

    def __init__(self, inner: LocalTransport, chance: random.Random | None = None) -> None:
        self.inner, self.chance = inner, chance
        self.requests: list[tuple[str, str]] = []
        self.replies: list[str] = []

    def addresses(self) -> tuple[str, ...]:
        return self.inner.addresses()

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        self.requests += [(action, text) for text in texts.values()]
        replies = self.inner.exchange(action, texts, timeout)
        self.replies += list(replies.values())
        if self.chance is None:
            return replies
        victim = self.chance.choice(list(replies)) if replies else None
        return {site: mutated(text, self.chance) if site == victim else text for site, text in replies.items()}


def test_sites_survive_mutated_requests() -> None:
    chance = random.Random(20)
    everybody = places(DATA)
    recorder = Recorder(everybody.transport())
    for privacy in (fc.SecAgg(), fc.Open()):
        fc.run(fc.FedBin(bins=4), Remote(recorder, everybody.directory), privacy)
    site = everybody.sites["site-00"]
    seen: dict[str, int] = {}
    for _ in range(COUNT):
        action, text = chance.choice(recorder.requests)
        action = chance.choice(ACTIONS) if chance.random() < 0.05 else action
        reply = site.handle(action, mutated(text, chance))
        message = wire.parse(reply)
        word = message["fields"]["reason"] if message["type"] == "Refused" else "answered"
        seen[word] = seen.get(word, 0) + 1
    assert set(seen) <= {*REASONS, "answered"}
    assert "failed" not in seen, seen  # only errors that somebody thought of
    assert seen["malformed"] > COUNT / 10


def test_every_reply_that_a_server_reads_ends_in_an_error_of_ours() -> None:
    chance = random.Random(21)
    everybody = places(DATA)
    recorder = Recorder(everybody.transport())
    fc.run(fc.FedBin(bins=4), Remote(recorder, everybody.directory), fc.SecAgg())
    kinds = [type(read_reply(text, object)) for text in recorder.replies]
    assert Refused not in kinds
    for _ in range(COUNT):
        try:
            read_reply(mutated(chance.choice(recorder.replies), chance), object)
        except FedcalibError:
            continue


def test_a_server_survives_mutated_replies() -> None:
    chance = random.Random(22)
    outcomes = {"answered": 0, "refused": 0}
    expected = fc.run(fc.FedBin(bins=4), fc.InProcess(DATA), fc.SecAgg()).transcript.lines[-1]["value"]
    for _ in range(max(COUNT // 200, 20)):
        everybody = places(DATA)
        runtime = Remote(Recorder(everybody.transport(), chance), everybody.directory, patience=0, timeout=0.1)
        try:
            result = fc.run(fc.FedBin(bins=4), runtime, fc.SecAgg())
            assert result.transcript.lines[-1]["value"] == expected
            outcomes["answered"] += 1
        except FedcalibError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 0


def test_a_site_knows_only_text(tmp_path: Any) -> None:
    site: Site = places(DATA).sites["site-00"]
    assert json.loads(replace(site).handle("no such action", "{}"))["fields"]["reason"] == "malformed"
