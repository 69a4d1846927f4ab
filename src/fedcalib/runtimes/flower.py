"""Flower as the carrier of texts: the same code on its simulation engine and between real machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from fedcalib.federation import Federation
from fedcalib.loop import Outline, Runtime, Step, Total
from fedcalib.records import Schema
from fedcalib.runtimes.remote import Remote
from fedcalib.runtimes.station import Event
from fedcalib.runtimes.transport import Transport
from fedcalib.secagg import Directory
from fedcalib.site.opening import open_site, policy_of, records_of
from fedcalib.site.policy import Policy
from fedcalib.site.requests import ACTIONS, Refused, write

_RECORD: Final = "fedcalib"
_PULSE: Final = 0.2  # seconds between two looks for replies


@final
@dataclass(frozen=True, eq=False)
class FlowerTransport(Transport):
    """The nodes of a Flower grid. Replies are matched by the message that they answer, and errors count as silence."""

    grid: Any

    def addresses(self) -> tuple[str, ...]:
        """List the nodes that are connected now."""
        return tuple(str(node) for node in sorted(self.grid.get_node_ids()))

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Send one message a node and look for replies until all are there or time is up."""
        deadline = time.monotonic() + timeout
        waiting = self._send(action, texts, timeout)
        replies: dict[str, str] = {}
        while waiting and time.monotonic() < deadline:
            for message in self.grid.pull_messages(list(waiting)):
                address = waiting.pop(message.metadata.reply_to_message_id, None)
                text = None if message.has_error() else _text(message)
                if address is not None and text is not None:
                    replies[address] = text
            if waiting:
                time.sleep(_PULSE)
        return replies

    def _send(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        from flwr.app import Message

        messages = {
            address: Message(_record(text), int(address), f"query.{action}", ttl=timeout + 60)
            for address, text in texts.items()
        }
        sent = set(self.grid.push_messages(list(messages.values())))
        ids = {message.metadata.message_id: address for address, message in messages.items()}
        return {number: address for number, address in ids.items() if number in sent}


@final
@dataclass(eq=False)
class Flower(Runtime):
    """The sites of a Flower federation, asked from inside a ServerApp: `Flower(grid, directory)`.

    `directory` holds the sites' identity keys; `state` is a private folder in which a sum survives the server's death.
    """

    grid: Any
    directory: Directory
    state: Path | None = None
    sites: int | None = None
    timeout: float = 120.0
    patience: int = 1
    watch: Callable[[Event], None] | None = None
    _remote: Remote = field(init=False)

    def __post_init__(self) -> None:
        transport = FlowerTransport(self.grid)
        self._remote = Remote(
            transport, self.directory, self.state, self.sites, self.timeout, self.patience, self.watch
        )

    @property
    def schema(self) -> Schema:
        """Say what the sites told about themselves."""
        return self._remote.schema

    def prepare(self, outline: Outline) -> None:
        """Remember what a run will ask."""
        self._remote.prepare(outline)

    def total(self, step: Step) -> Total:
        """Sum the shares of the sites that take part."""
        return self._remote.total(step)


def client_app(
    load: Callable[[Mapping[str, Any]], Federation] = records_of,
    policy: Callable[[Mapping[str, Any]], Policy] = policy_of,
    places: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Any:
    """Make the app of a site: its records, its policy and its places come from its own node configuration.

    `places` says where `identity`, `directory` and `state` are, for nodes whose configuration does not say so itself.
    """
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def handler(action: str) -> Callable[[Any, Any], Any]:
        def handle(message: Any, context: Any) -> Any:
            return Message(_record(_reply(action, message, context)), reply_to=message)

        return handle

    def _reply(action: str, message: Any, context: Any) -> str:
        try:
            text = _text(message)
            node = context.node_config
            site = open_site(places(node), lambda: load(node), policy(node))
            return site.handle(action, "" if text is None else text)
        except Exception:  # the text of an error may quote records, and Flower would send it to the server
            return write(Refused("failed"))

    for action in ACTIONS:
        app.query(action)(handler(action))
    return app


def _record(text: str) -> Any:
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({_RECORD: ConfigRecord({"text": text.encode()})})


def _text(message: Any) -> str | None:
    """Take the text out of a message; None if it has none."""
    try:
        raw = message.content[_RECORD]["text"]
        return raw.decode() if isinstance(raw, bytes) else None
    except (KeyError, TypeError, ValueError):
        return None
