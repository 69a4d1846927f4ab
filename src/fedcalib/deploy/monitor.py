"""Watching a node or a server: logs in JSON, a health check, and metrics for Prometheus.

Nothing here depends on records: a site's metrics count messages and outcomes, and hold what is left of its budget.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, final

from fedcalib.deploy.certificates import days_left
from fedcalib.deploy.commands import Link
from fedcalib.deploy.runs import all_runs
from fedcalib.errors import InputError, needs

_STALE: Final = 60.0  # seconds without contact after which a node is not healthy


@final
class JsonLines(logging.Formatter):
    """Each event as one line of JSON, with time, level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def write_logs(as_json: bool) -> None:
    """Write a line per event to stderr: for people, or in JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("fedcalib").setLevel(logging.INFO)


class Vitals(ABC):
    """Something whose health is served."""

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether it does its work."""


@final
@dataclass(eq=False)
class NodeVitals(Vitals):
    """What a node notes about itself while it runs."""

    connected: bool = False
    contact: float = 0.0  # when the server last answered, in seconds of the clock that never goes back
    messages: Counter[tuple[str, str]] = field(default_factory=Counter)  # by action and outcome
    seconds: float = 0.0

    def reached(self) -> None:
        """Note that the server has just answered."""
        self.connected, self.contact = True, time.monotonic()

    def answered(self, action: str, refused: bool, seconds: float) -> None:
        """Note that a message was answered or refused."""
        self.messages[action, "refused" if refused else "answered"] += 1
        self.seconds += seconds

    @property
    def healthy(self) -> bool:
        """Whether the node is connected and has reached the server within the last minute."""
        return self.connected and time.monotonic() - self.contact < _STALE


@final
@dataclass(frozen=True)
class ServerVitals(Vitals):
    """A server, seen from outside: whether it accepts connections, its runs, and the end of its certificates."""

    link: Link
    state: Path
    keys: Path | None

    @property
    def healthy(self) -> bool:
        """Whether the server accepts connections."""
        try:
            socket.create_connection((self.link.host, self.link.port), 2).close()
            return True
        except OSError:
            return False

    def collect(self) -> Iterator[Any]:
        """The metrics of a server, in the form of prometheus-client."""
        from prometheus_client.core import GaugeMetricFamily

        runs = GaugeMetricFamily("fedcalib_runs", "Runs of all jobs, by how they are.", labels=["state"])
        for word, count in sorted(Counter(run.state for run in all_runs(self.state)).items()):
            runs.add_metric([word], count)
        yield runs
        yield from plain_gauges({"fedcalib_server_up": ("Whether it accepts connections.", self.healthy)})
        ends = GaugeMetricFamily("fedcalib_certificate_days_left", "Days until it ends.", labels=["file"])
        for name in ("ca.crt", "server.pem"):
            if self.keys is not None and (self.keys / name).exists():
                ends.add_metric([name], days_left(self.keys / name))
        yield ends


Gauges = Mapping[str, tuple[str, float]]  # name: what it is, and its value


def node_metrics(vitals: NodeVitals, more: Callable[[], Gauges]) -> Callable[[], Iterator[Any]]:
    """The metrics of a node, in the form of prometheus-client."""

    def collect() -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        counted = CounterMetricFamily("fedcalib_messages", "Messages of the server.", labels=["action", "outcome"])
        for labels, count in sorted(vitals.messages.items()):
            counted.add_metric(labels, count)
        yield counted
        yield CounterMetricFamily("fedcalib_message_seconds", "Seconds spent on messages.", value=vitals.seconds)
        healthy = {"fedcalib_node_connected": ("Whether the server was reached in the last minute.", vitals.healthy)}
        yield from plain_gauges({**healthy, **more()})

    return collect


def plain_gauges(values: Gauges) -> Iterator[Any]:
    """Numbers by name, in the form of prometheus-client."""
    from prometheus_client.core import GaugeMetricFamily

    for name, (what, value) in values.items():
        yield GaugeMetricFamily(name, what, value=value)


@final
class _Collector:
    """What a registry of prometheus-client asks for metrics."""

    def __init__(self, collect: Callable[[], Iterator[Any]]) -> None:
        self.collect = collect


@contextmanager
def served(address: str, subject: Vitals, collect: Callable[[], Iterator[Any]]) -> Iterator[int]:
    """Serve /health and /metrics over HTTP while the context lasts; returns the port.

    /health is 200 or 503. Needs the extra `metrics`. There is no TLS and no password: bind it to loopback, or to a
    network that only the monitoring reaches.
    """
    with needs("serve metrics"):
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collector(collect))

    @final
    class Handler(BaseHTTPRequestHandler):
        """Two pages, and silence about requests."""

        def do_GET(self) -> None:
            if self.path == "/health":
                fine = subject.healthy
                self._send(200 if fine else 503, "application/json", json.dumps({"healthy": fine}).encode())
            elif self.path == "/metrics":
                self._send(200, "text/plain; version=0.0.4; charset=utf-8", generate_latest(registry))
            else:
                self._send(404, "text/plain", b"/health or /metrics\n")

        def _send(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep requests out of the log."""

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"Expected an address such as 127.0.0.1:9100 for health and metrics, found {address!r}.")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except OSError as error:
        raise InputError(
            f"Expected a free address for health and metrics, found {address}: {error.strerror}."
        ) from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
