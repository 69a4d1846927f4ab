"""What the server does with the replies of Flower, whatever happens to the sites that send them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedcalib.deploy.fleet import record_of, text_of
from fedcalib.deploy.flower import FlowerTransport


@dataclass
class Grid:
    """A grid whose nodes answer with what they were asked, once a message was pushed `late` times."""

    late: dict[int, int] = field(default_factory=dict)
    stuck: threading.Event | None = None
    pushed: list[Any] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return [1, 2]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.pushed)}"
            self.pushed.append(message)
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids: Iterable[str]) -> Iterator[Any]:
        wanted = set(ids)
        if self.stuck is not None and len(self.pushed) <= 2:
            self.stuck.wait()  # a reply that never comes whole
        for message in self.pushed:
            node = message.metadata.dst_node_id
            tries = sum(one.metadata.dst_node_id == node for one in self.pushed)
            if message.metadata.message_id in wanted and tries > self.late.get(node, 0):
                reply = SimpleNamespace(content=message.content, has_error=lambda: False)
                reply.metadata = SimpleNamespace(reply_to_message_id=message.metadata.message_id)
                yield reply


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages know the task that writes them."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def test_a_reply_to_an_earlier_message_counts_when_it_is_sent_again() -> None:
    grid = Grid(late={2: 1})
    transport = FlowerTransport(grid)
    texts = {"1": "a", "2": "b"}
    assert transport.exchange("ask", texts, 0.3) == {"1": "a"}
    first = grid.pushed[1].metadata.message_id
    pulled: list[str] = []
    grid_pull = grid.pull_messages
    grid.pull_messages = lambda ids: (pulled.extend(ids), grid_pull(ids))[1]  # type: ignore[method-assign]
    assert transport.exchange("ask", {"2": "b"}, 0.3) == {"2": "b"}
    assert first in pulled


def test_a_reply_that_never_comes_whole_blocks_nobody() -> None:
    stuck = threading.Event()
    transport = FlowerTransport(Grid(stuck=stuck))
    texts = {"1": "a", "2": "b"}
    assert transport.exchange("ask", texts, 0.3) == {}
    assert transport.exchange("ask", texts, 5.0) == texts
    stuck.set()


def test_nodes_have_names_for_people() -> None:
    transport = FlowerTransport(Grid(), {"1": "north"})
    assert transport.name("1") == "north"
    assert transport.name("2") == "node 2"


def test_a_text_survives_its_record() -> None:
    assert text_of(SimpleNamespace(content=record_of("ä"))) == "ä"
    assert text_of(SimpleNamespace(content={})) is None
