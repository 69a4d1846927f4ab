"""One whole sum of ours in one process: every client and the server, every message through JSON text.

With `text=False` messages are handed over as objects, which is what the peer's functions are measured on.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedcalib.secagg import Client, Directory, Server, SetupPlan, SigningIdentity, Slot
from fedcalib.secagg.round import SurvivorSum
from fedcalib.secagg.setup import Message


@dataclass
class Meter:
    """CPU seconds and bytes of one side, by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def timed(self, stage: str, action: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = action()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - start
        return result

    def send(self, stage: str, message: Message) -> str:
        text = self.timed(stage, message.to_json)
        self.sent[stage] = self.sent.get(stage, 0) + len(text)
        return text


class Federation:
    """All sites and the server; `lost` sites fall silent after sharing their secrets."""

    def __init__(self, count: int, length: int, lost: int, text: bool = True) -> None:
        self.text = text
        identities = {f"site-{number:05d}": SigningIdentity(f"site-{number:05d}") for number in range(count)}
        self.directory = Directory({name: identity.public for name, identity in identities.items()})
        self.plan = SetupPlan("benchmark", (Slot(0, 0, length),))
        self.clients = {name: Client(identity, self.directory) for name, identity in identities.items()}
        self.server = Server(self.plan, self.directory)
        self.lost = set(sorted(identities)[:: max(count // max(lost, 1), 1)][:lost])
        rng = np.random.default_rng(count + length)
        self.base = rng.integers(0, 2**64, length, dtype=np.uint64)
        self.client, self.central = Meter(), Meter()

    def vector(self, number: int) -> np.ndarray:
        return self.base + np.uint64(number)

    def run(self) -> SurvivorSum:
        self.stage("keys", "keys", dict.fromkeys(self.clients, self.plan), self.server.accept_keys)
        views = self.central.timed("keys", self.server.close_keys)
        self.stage("shares", "shares", views, self.server.accept_shares)
        self.central.timed("shares", self.server.close_shares)
        asked = self.central.timed("masked vectors", lambda: self.server.begin(0))
        current = self.server.round(0)
        self.stage("masked vectors", "mask", asked, current.accept_masked)
        survivors = self.central.timed("masked vectors", current.close_masked)
        self.stage("confirmations", "confirm", survivors, current.accept_confirmation)
        requests = self.central.timed("confirmations", current.close_confirmations)
        self.stage("unmasking", "unmask", requests, current.accept_unmasking)
        return self.central.timed("unmasking", current.total)

    def stage(self, stage: str, method: str, messages: dict[str, Any], accept: Callable[[Any], None]) -> None:
        for number, (name, message) in enumerate(sorted(messages.items())):
            if method == "mask" and name in self.lost:
                continue
            more = (self.vector(number),) if method == "mask" else ()
            request = self._carry(stage, message, self.central, self.client)
            handler = getattr(self.clients[name], method)
            reply = self.client.timed(stage, partial(handler, request, *more))
            self.central.timed(stage, partial(accept, self._carry(stage, reply, self.client, self.central)))
        gc.collect()

    def _carry(self, stage: str, message: Message, sender: Meter, receiver: Meter) -> Message:
        if not self.text:
            return message
        text = sender.send(stage, message)
        received: Message = receiver.timed(stage, partial(type(message).from_json, text))
        return received

    def asked(self, stage: str) -> int:
        """Count the clients that answered in a stage."""
        return len(self.clients) - (len(self.lost) if stage not in ("keys", "shares") else 0)

    def expected(self) -> np.ndarray:
        numbers = [number for number, name in enumerate(sorted(self.clients)) if name not in self.lost]
        return self.base * np.uint64(len(numbers)) + np.uint64(sum(numbers))
