"""A site's own node: one long-lived process that speaks Flower's Fleet API and answers from records that stay loaded.

It uses Flower's own client, TLS and node authentication. It never fetches the app that a server ships, so no code of a
server runs at a site: a message is an action and a text, and `Site.handle` answers it.

Nothing that could spend twice is repeated here. A message is answered once; a reply that cannot be delivered is
dropped after a few tries, and the server sends its question again, which the site recalls.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

from fedcalib import files
from fedcalib.data.databases import files_at, is_database
from fedcalib.data.reading import Rejected
from fedcalib.deploy.commands import NO_TELEMETRY, Link
from fedcalib.deploy.fleet import FleetConnection, NodeKey, pull_quickly
from fedcalib.deploy.monitor import NodeVitals
from fedcalib.errors import UnavailableError
from fedcalib.federation import Federation
from fedcalib.remote.protocol import ACTIONS, is_refusal
from fedcalib.remote.site import (
    Site,
    check_missing,
    is_streamed,
    logged_reason,
    open_site,
    policy_of,
    reading_of,
    refused_setup,
    stream_of,
)
from fedcalib.remote.streaming import StreamedFederation

LOG: Final = logging.getLogger("fedcalib.node")
_POLLS: Final = (0.1, 1.0)  # seconds between two looks for messages: right after one, and once nothing comes
_SLOWER: Final = 1.1  # times the pause before
_PATIENT: Final = 10.0  # times what the last look took, at least, so that looks alone cannot keep a server busy
_BACK_OFF: Final = (1.0, 30.0)  # seconds between two tries to connect: the first pause, and the longest
_FILES: Final = ("identity", "directory", "policy")

Stamp = tuple[tuple[str, int, int, int], ...]


@final
@dataclass(eq=False)
class WatchedSite:
    """A site whose files are looked at before each message; what has changed is read again.

    Records are read again only where their files changed; those of a database server, which shows no change, at the
    beginning of each run and for each answer. A run that began with other records is then refused by the site itself. A
    file that cannot be read makes the site refuse everything, with the reason in its own log.
    """

    places: Mapping[str, str]
    _site: Site | None = field(default=None, init=False)
    _settings: Stamp = field(default=(), init=False)
    _records: Stamp = field(default=(), init=False)
    _rejected: tuple[Rejected, ...] = field(default=(), init=False)

    def open(self) -> Site:
        """The site as its files are now; raises where one of them cannot be read."""
        settings, records = _stamp(self._paths(*_FILES)), _stamp(self._data())
        if self._site is None or records != self._records:
            self._site = None  # so that old and new records are never in memory at once
            self._site = self._read()
        elif settings != self._settings:
            before, policy = self._site, policy_of(self.places)
            check_missing(self._rejected, policy)
            self._site = replace(open_site(self.places, lambda: before.federation, policy), left_out=before.left_out)
        self._settings, self._records = settings, records
        return self._site

    def handle(self, action: str, text: str) -> str:
        """Answer a message."""
        if action == "hello" and self._unwatched:
            self._site = None
        try:
            site = self.open()
        except Exception as error:
            LOG.error("Refused a message, as this site is set up: %s", logged_reason(error))
            return refused_setup(self.places, action, error)
        return site.handle(action, text)

    @property
    def _unwatched(self) -> bool:
        """Whether no file shows that records have changed."""
        place = self.places.get("data-path", "")
        return is_database(place) and not files_at(place)

    def _read(self) -> Site:
        rejected: list[Rejected] = []

        def load() -> Federation | StreamedFederation:
            if is_streamed(self.places):
                streamed = stream_of(self.places)
                rejected.extend(streamed.stream.found.rejected)
                return streamed
            reading = reading_of(self.places)
            rejected.extend(reading.rejected)
            return Federation.of([reading.federation.records])

        policy = policy_of(self.places)
        site = open_site(self.places, load, policy)
        site, self._rejected = replace(site, left_out=check_missing(rejected, policy)), tuple(rejected)
        kept, left_out = len(site.federation.records), sum(one.count for one in rejected)
        entry = {"records": kept, "left_out": left_out, "data": site.fingerprint[:16]}
        with site.journal.locked():
            site.journal.note({"action": "open", "outcome": "opened", **entry})
        LOG.info("Read %d records; %d rows were left out.", kept, left_out)
        return site

    def _paths(self, *names: str) -> list[Path]:
        return [Path(self.places[name]) for name in names if name in self.places]

    def _data(self) -> Sequence[Path]:
        return files_at(self.places["data-path"]) if "data-path" in self.places else []


def _stamp(paths: Sequence[Path]) -> Stamp:
    """What tells that a file was changed or replaced, without reading it."""
    found = [(path, path.stat()) for path in paths if path.exists()]
    return tuple((str(path), one.st_ino, one.st_size, one.st_mtime_ns) for path, one in found)


@final
@dataclass(eq=False)
class Node:
    """A node that stays connected until it is told to stop.

    Parameters
    ----------
    link
        The address of the server, and the certificate of its authority.
    key
        The file of the node's private key; None where there is no authentication.
    site
        Answers the messages.
    state
        The site's private folder.
    vitals
        What the node notes about itself.
    """

    link: Link
    key: Path | None
    site: WatchedSite
    state: Path
    vitals: NodeVitals = field(default_factory=NodeVitals)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Read the records, connect, and answer until SIGTERM or SIGINT; an answer that was begun is delivered."""
        os.environ.update(NO_TELEMETRY)
        busy = f"Expected {self.state} for this node alone, found another node that uses it; stop it first."
        with files.locked(self.state / "node.lock", busy), self._signals():
            with files.explained(self.state):
                self.site.open()  # what is wrong with it is told here, and never to the server
            key = NodeKey.read(self.key)
            pull_quickly()
            pauses = _back_off()
            while not self.stopping.is_set():
                try:
                    with FleetConnection.opened(self.link, key, self.state / "node-id") as connection:
                        LOG.info("Connected to %s.", self.link.address)
                        pauses = _back_off()
                        self.vitals.reached()
                        self._answer(connection)
                except UnavailableError as problem:
                    self.vitals.connected = False
                    pause = next(pauses)
                    LOG.warning("%s Trying again in %.0f s.", problem, pause)
                    self.stopping.wait(pause)
            LOG.info("Stopped.")

    def _answer(self, connection: FleetConnection) -> None:
        """Answer messages until the node is stopped or the connection has to be opened again."""
        pause = _POLLS[0]
        while not self.stopping.is_set():
            asked = time.monotonic()
            message = connection.pull()
            self.vitals.reached()
            if message is None:
                self.stopping.wait(considerate(pause, time.monotonic() - asked))
                pause = min(pause * _SLOWER, _POLLS[1])
                continue
            pause = _POLLS[0]
            LOG.info("Received '%s' of run %s.", message.action, message.run)
            begun = time.monotonic()
            reply = self.site.handle(message.action, message.text)
            known = message.action if message.action in ACTIONS else "other"
            self.vitals.answered(known, is_refusal(reply), time.monotonic() - begun)
            connection.reply(message, reply)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop gracefully at the first signal; at a second one, as any process does."""
        kinds = (signal.SIGTERM, signal.SIGINT)
        before = {kind: signal.getsignal(kind) for kind in kinds}

        def stop(*_: object) -> None:
            LOG.info("Stopping once the current message is answered.")
            self.stopping.set()
            _restore(before)

        for kind in kinds:
            signal.signal(kind, stop)
        try:
            yield
        finally:
            _restore(before)


def considerate(pause: float, took: float) -> float:
    """Seconds until the next look: longer where the last one took long, since many sites then share a busy server.

    >>> considerate(0.1, took=0.01), considerate(0.1, took=0.05), considerate(0.1, took=3.0)
    (0.1, 0.5, 1.0)
    """
    return min(max(pause, _PATIENT * took), _POLLS[1])


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for kind, handler in handlers.items():
        signal.signal(kind, handler)


def _back_off(jitter: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
    """Pauses that double up to the longest, each a little different, so that many sites do not come at once."""
    pause, longest = _BACK_OFF
    while True:
        yield pause * jitter(0.8, 1.2)
        pause = min(pause * 2, longest)
