"""Flower as the transport: the same code on its simulation engine and between real machines.

`Flower` is the runtime of a server, `client_app` the app of a site. `simulate` runs both on Flower's simulation engine:
virtual nodes on one machine, each with several logical clients. It shows that a method works with real messages between
real processes; where only the result matters, the in-process runtime computes the same one much faster.

`server_app` is the app of a deployed server: it runs one job and can be killed at any time.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar, final

import numpy as np

from fedcalib import __version__, wire
from fedcalib.accounting.ledger import Ledger
from fedcalib.artifacts.evaluation import Fitted
from fedcalib.deploy.commands import NO_TELEMETRY
from fedcalib.deploy.fleet import pull_quickly, record_of, text_of
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import JobFolder, reported, write_result
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.files import append, write_all
from fedcalib.loop import Agreement, Outline, Progress, Result, Runtime, Step, Total, conduct
from fedcalib.records import Records, Schema
from fedcalib.registry import names
from fedcalib.remote.inquiry import inquire
from fedcalib.remote.policy import Policy
from fedcalib.remote.protocol import ACTIONS
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import open_site, policy_of, read_directory, records_of, refused_setup, write_identity
from fedcalib.remote.sites import Notice, Transport
from fedcalib.secagg import Directory, SigningIdentity

_POLL_SECONDS: Final = 0.2  # seconds between two looks for replies


@final
@dataclass(frozen=True, eq=False)
class FlowerTransport(Transport):
    """The nodes of a Flower grid. Replies are matched by the message that they answer; errors count as no reply.

    `names` holds the names of sites by the numbers of their nodes, for messages to people. A text that is sent again is
    answered by a reply to any of its messages, so that a slow site is not asked in vain.
    """

    grid: Any
    names: Mapping[str, str] = field(default_factory=dict)
    _sent: dict[tuple[str, str, str], set[str]] = field(default_factory=dict, init=False)

    def name(self, address: str) -> str:
        return self.names.get(address, f"node {address}")

    def addresses(self) -> tuple[str, ...]:
        return tuple(str(node) for node in sorted(self.grid.get_node_ids()))

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Send one message per node and collect replies until all are there or time is up."""
        deadline = time.monotonic() + timeout
        waiting = self._send(action, texts, timeout)
        replies: dict[str, str] = {}
        while waiting and time.monotonic() < deadline:
            for message in self._pulled(list(waiting), deadline):
                address = waiting.pop(message.metadata.reply_to_message_id, None)
                text = None if message.has_error() else text_of(message)
                if address is not None and text is not None:
                    replies[address] = text
                    self._sent.pop((action, address, texts[address]), None)
            waiting = {number: address for number, address in waiting.items() if address not in replies}
            if waiting:
                time.sleep(_POLL_SECONDS)
        return replies

    def _pulled(self, ids: list[str], deadline: float) -> list[Any]:
        """Replies that are there; none once time is up.

        Where a site dies while it delivers a reply, Flower waits for the rest of it, for up to two hours. So the wait
        is left to a thread of its own; replies that it holds are sent again when the question is.
        """
        found: SimpleQueue[list[Any] | Exception] = SimpleQueue()

        def pull() -> None:
            try:
                found.put(list(self.grid.pull_messages(ids)))
            except Exception as error:
                found.put(error)

        threading.Thread(target=pull, daemon=True).start()
        try:
            pulled = found.get(timeout=max(deadline - time.monotonic(), _POLL_SECONDS))
        except Empty:
            return []
        if isinstance(pulled, Exception):
            raise pulled
        return pulled

    def _send(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        from flwr.app import Message

        messages = {
            address: Message(record_of(text), int(address), f"query.{action}", ttl=timeout + 60)
            for address, text in texts.items()
        }
        sent = set(self.grid.push_messages(list(messages.values())))
        waiting: dict[str, str] = {}
        for address, message in messages.items():
            ids = self._sent.setdefault((action, address, texts[address]), set())
            ids |= {message.metadata.message_id} & sent
            waiting |= dict.fromkeys(ids, address)
        return waiting


@final
@dataclass(eq=False)
class Flower(Runtime):
    """The runtime of a Flower federation, for use inside a ServerApp.

    Parameters
    ----------
    grid
        The grid that Flower passes to the main function of a ServerApp.
    directory
        The sites' identity keys.
    state
        A private folder, so that a sum can go on after the server was killed.
    sites
        How many sites must be connected before anything starts.
    timeout
        How many seconds to wait for replies.
    patience
        How often sites that did not reply are sent the same message again.
    watch
        Called with a notice after each stage: sites asked, sites that answered, and why others are missing.
    names
        The names of sites by the numbers of their nodes, for messages about sites that did not introduce themselves.
    expected
        The number of sites and classes, where it is agreed beforehand: nothing is spent if a site cannot take part.

    Examples
    --------
    Inside the main function of a ServerApp, with the grid that Flower passes to it:

    >>> import fedcalib as fc
    >>> def main(grid, directory):
    ...     return fc.run(fc.FedBin(), fc.Flower(grid, directory, sites=5), fc.DistributedDP(epsilon=1.0))
    """

    grid: Any
    directory: Directory
    state: Path | None = None
    sites: int | None = None
    timeout: float = 120.0
    patience: int = 1
    watch: Callable[[Notice], None] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    expected: Schema | None = None
    _remote: Remote = field(init=False)

    def __post_init__(self) -> None:
        told = (self.directory, self.state, self.sites, self.timeout, self.patience, self.watch, self.expected)
        self._remote = Remote(FlowerTransport(self.grid, self.names), *told)

    @property
    def schema(self) -> Schema:
        return self._remote.schema

    def prepare(self, outline: Outline) -> None:
        self._remote.prepare(outline)

    def total(self, step: Step) -> Total:
        return self._remote.total(step)


def client_app(
    load: Callable[[Mapping[str, Any]], Federation] = records_of,
    policy: Callable[[Mapping[str, Any]], Policy] = policy_of,
    places: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Any:
    """The Flower ClientApp of a site.

    Parameters
    ----------
    load
        Reads the site's records, given its node configuration.
    policy
        Reads the site's policy, given its node configuration.
    places
        The paths `identity`, `directory` and `state`, for nodes whose configuration does not hold them.
    """
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def handler(action: str) -> Callable[[Any, Any], Any]:
        def handle(message: Any, context: Any) -> Any:
            return Message(record_of(_reply(action, message, context)), reply_to=message)

        return handle

    def _reply(action: str, message: Any, context: Any) -> str:
        node = context.node_config
        try:
            site = open_site(places(node), lambda: load(node), policy(node))
        except Exception as error:  # its text may quote records, and Flower would send it to the server
            return refused_setup(places(node), action, error)
        return site.handle(action, text_of(message) or "")

    for action in ACTIONS:
        app.query(action)(handler(action))
    return app


T = TypeVar("T")

_SIMULATION_POLICY: Final = Policy(  # on one machine there is nobody to protect, and whoever simulates keeps the budget
    privacy_models=names("privacy"),
    epsilon_a_query=1e6,
    epsilon_a_run=1e6,
    epsilon_a_year=1e9,
    fewest_records=0,
    exact_runs_per_year=1 << 30,
    most_records=1 << 40,
    most_cells=1 << 27,
    most_work=1 << 90,
    simulation=True,
)


def simulate(
    federation: Federation,
    nodes: int,
    task: Callable[[Flower], T],
    *,
    cpus: int = 1,
    watch: Callable[[Notice], None] | None = None,
) -> T:
    """Run a task on Flower's simulation engine, with clients dealt to virtual nodes.

    Parameters
    ----------
    federation
        The clients with their records.
    nodes
        The number of virtual nodes, at least 3.
    task
        Called with the runtime; its result is returned.
    cpus
        How many processors the simulation may use.
    watch
        As for `Flower`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.deploy.flower import simulate
    >>> federation = fc.Federation.simulated(clients=20)
    >>> simulate(federation, 5, lambda runtime: fc.run(fc.FedBin(), runtime, fc.SecAgg()))  # doctest: +SKIP
    """
    if not 3 <= nodes <= len(federation):
        raise InputError(f"Expected 3 to {len(federation)} nodes for {len(federation)} clients, found {nodes}.")
    os.environ.update(NO_TELEMETRY)
    outcomes: list[T] = []
    with TemporaryDirectory(prefix="fedcalib-") as name:
        folder = Path(name)
        directory = _write_nodes(folder, federation, nodes)
        _run(folder, nodes, cpus, lambda grid: outcomes.append(task(Flower(grid, directory, sites=nodes, watch=watch))))
    return outcomes[0]


def _run(folder: Path, nodes: int, cpus: int, main: Callable[[Any], None]) -> None:
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server = ServerApp()
    server.main()(lambda grid, context: main(grid))
    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {"init_args": {"num_cpus": cpus, "include_dashboard": False}, "client_resources": {"num_cpus": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_simulation(server, _app(str(folder)), num_supernodes=nodes, backend_config=backend)


def _app(folder: str) -> Any:
    """The app of a virtual node, which finds its files by its number."""

    def config(node: Mapping[str, Any]) -> dict[str, Any]:
        place = f"{folder}/{node['partition-id']}"
        identity, directory = f"{place}/identity.json", f"{folder}/directory.json"
        return {"identity": identity, "directory": directory, "state": f"{place}/state"}

    def load(node: Mapping[str, Any]) -> Federation:
        return _records(Path(folder) / str(node["partition-id"]))

    return client_app(load, lambda _: _SIMULATION_POLICY, config)


def _write_nodes(folder: Path, federation: Federation, nodes: int) -> Directory:
    """Write each node's records and keys; returns the public keys."""
    identities = [SigningIdentity(f"node-{node:05d}") for node in range(nodes)]
    node_of = np.arange(len(federation)) * nodes // len(federation)
    for node, identity in enumerate(identities):
        place = folder / str(node)
        write_identity(place / "identity.json", identity)
        mine = federation.subset(node_of == node)
        np.savez(place / "records.npz", allow_pickle=False, **_columns(mine))
    directory = Directory({identity.name: identity.public for identity in identities})
    (folder / "directory.json").write_text(directory.to_json(), encoding="utf-8")
    return directory


def _columns(federation: Federation) -> dict[str, Any]:
    records = federation.records
    columns = {"given": records.given, "labels": records.labels, "offsets": federation.offsets}
    flags = {"are_logits": np.array(records.are_logits)}
    unit = {} if records.unit is None else {"unit": records.unit}
    return {**columns, **flags, **unit, **{f"extra_{name}": column for name, column in records.extra.items()}}


def _records(place: Path) -> Federation:
    with np.load(place / "records.npz", allow_pickle=False) as saved:
        extra = {name.removeprefix("extra_"): saved[name] for name in saved if name.startswith("extra_")}
        unit = saved.get("unit")
        records = Records(saved["given"], saved["labels"], bool(saved["are_logits"]), unit, extra)
        return Federation(records, saved["offsets"])


def server_app() -> Any:
    """The server's Flower app; the run configuration names the job and the server's own files."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: Any, context: Any) -> None:
        config = context.run_config
        job = Job.unpack(str(config["job"]))
        folder = JobFolder(Path(str(config["state"])) / job.key)
        out = folder.place(context.run_id)
        with reported(out):
            pull_quickly()
            watch = progress_log(out / "progress.jsonl")
            watch(Notice("begun", 0, 0, {}))
            directory = read_directory(Path(str(config["directory"])))
            names = wire.parse(str(config["names"])) if config["names"] else {}
            if config.get("inquire"):
                found = inquire(FlowerTransport(grid, names), directory, job.outline(), job.schema, job.timeout)
                write_result(out, {"job": asdict(job), "sites": {site: one.to_json() for site, one in found.items()}})
                return
            runtime = Flower(grid, directory, folder.path, job.sites, job.timeout, 1, watch, names, job.schema)
            serve(job, runtime, folder.path, out)

    app.main()(main)
    return app


def serve(job: Job, runtime: Runtime, folder: Path, out: Path) -> Result[Any]:
    """Run a job, or continue it where it stopped, and write its result."""
    note, ledger = progress_log(out / "progress.jsonl"), Ledger(folder.parent / "ledger.db")

    def watch(progress: Progress) -> None:
        outcome = "recalled" if progress.recalled else "sent"
        left = ledger.account("default").epsilon_left if Path(ledger.path).exists() else None
        stage = f"step {progress.step + 1} of {progress.steps} {outcome}"
        note(Notice(stage, 0, 0, {}, None if left is None else float(left)))

    agreed = Agreement.of(job.build_method(), job.build_privacy(), job.participation(), runtime.schema)
    result = conduct(agreed, runtime, transcript=folder / "transcript.jsonl", ledger=ledger, watch=watch)
    saved = _measured(job, agreed, result, out) if job.measure else _artifact(result, out)
    write_result(out, {"job": asdict(job), "privacy": asdict(result.privacy), **saved})
    return result


def _artifact(result: Result[Any], out: Path) -> dict[str, str]:
    return {"artifact": result.artifact.save(out / "artifact.json", result.privacy).name}


def _measured(job: Job, agreed: Agreement[Fitted], result: Result[Fitted], out: Path) -> dict[str, str]:
    """Save a calibrator that was measured, and its report."""
    from fedcalib.workflows.calibration import CalibrationResult
    from fedcalib.workflows.session import Phase

    done = CalibrationResult.at_sites(Phase("calibration", agreed), result, replayed=False)
    done.calibrator.save(out / "artifact.json", done.privacy)
    settings = {name: value for name, value in asdict(job).items() if value}
    write_all(out, replace(done, provenance={"fedcalib": __version__, **settings}).pages())
    return {"artifact": "artifact.json", "report": "report.html"}


def progress_log(path: Path) -> Callable[[Notice], None]:
    """A function that appends notices to a file as JSON lines, for people and programs that watch."""

    def note(notice: Notice) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **notice.to_json()}
        append(path, json.dumps(line) + "\n")

    return note
