"""A real federation on loopback: one SuperLink and some SuperNodes, with TLS and node authentication."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.data import Columns, read_checked
from fedcalib.deploy import certificates
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.control import Control
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import JobFolder
from fedcalib.remote.journal import AuditLog, DiskJournal

full = pytest.mark.skipif(os.environ.get("FEDCALIB_E2E") not in ("full", "all"), reason="slow; run `make e2e`")
every = pytest.mark.skipif(os.environ.get("FEDCALIB_E2E") != "all", reason="slow; run `make e2e-all`")
POLICY = 'privacy_models = ["DistributedDP", "LocalDP", "SourceLaplace", "SecAgg"]\n'  # the default, and exact sums
PATIENCE = 420.0  # seconds; a busy machine takes two minutes a job


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(what: str, ready: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until something is so, and fail in bounded time."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.3)


@dataclass(frozen=True)
class Submitted:
    """A submission under way."""

    process: subprocess.Popen[str]

    def end(self) -> tuple[int, str]:
        """The exit code, and what was told."""
        _, told = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, told


class Fleet:
    """Starts processes in sessions of their own, and ends all of them whatever happens."""

    def __init__(self, root: Path, sites: int, user: int | None = None) -> None:
        self.user = user  # whoever runs the tests, unless stated
        self.root, self.names = root, [f"site-{index}" for index in range(sites)]
        self.keys = root / "keys"
        self.link = deployment.Link("127.0.0.1", free_port(), self.keys / "ca.crt")
        self.policy = root / "policy.toml"
        self.policy.write_text(POLICY)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Fleet:
        certificates.make(self.keys, [*self.names, "stranger"], ["127.0.0.1", "localhost"])
        for index, name in enumerate(self.names):
            write_records(self.root / f"{name}.csv", index)
        write_records(self.root / "stranger.csv", 99)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)

    def start(self, name: str, command: deployment.Command) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command.words,
                env=command.whole_environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads here
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        for pid in [*descendants(process.pid), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(10)

    def start_server(self) -> None:
        self.start("server", deployment.superlink(self.link, self.keys, self.root / "server"))
        wait("the SuperLink", self._listening, 90)

    def start_site(self, name: str) -> None:
        """Start a site as its operator does."""
        words = ["site", "start", "--data", self.root / f"{name}.csv", "--keys", self.keys / name]
        words += ["--policy", self.policy, "--state", self.root / "sites" / name, "--server", self.link.address]
        self.start(name, fedcalib(*words))

    def connected(self, name: str) -> bool:
        return "Connected to" in self.log(name)

    def start_supernode(self, name: str) -> None:
        """Start a site on Flower's own SuperNode."""
        place = self.keys / name
        node = {
            "data-path": str(self.root / f"{name}.csv"),
            "identity": str(place / "identity.json"),
            "directory": str(place / "directory.json"),
            "state": str(self.root / "sites" / name),
            "policy": str(self.policy),
        }
        home = self.root / "homes" / name
        self.start(name, deployment.supernode(self.link, free_port(), node, place / "node", home))

    def admit(self, name: str) -> None:
        self.control.admit(name, self.keys / name / "node.pub")

    @property
    def control(self) -> Control:
        return Control(self.link)

    def cli(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end."""
        command = fedcalib(*words)
        return subprocess.run(
            command.words, env=command.whole_environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def actions(self, name: str) -> list[str]:
        """What a site's own log holds."""
        return [line["action"] for line in self.log_lines(name)]

    def log_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a site's own log."""
        return AuditLog(self.root / "sites" / name / "log.jsonl").lines()

    def restart_site(self, name: str) -> None:
        """Start a site again, with a new log."""
        (self.root / f"{name}.log").unlink()
        self.start_site(name)

    def submit(self, job: Job, app: Path | None = None) -> Path:
        """Start a run of a job without waiting for it; returns its folder."""
        folder = JobFolder.of(self.root / "server", job)
        places = {"directory": str(self.keys / "directory.json"), "state": str(self.root / "server" / "jobs")}
        number = self.control.start({"job": job.pack(), "names": json.dumps(self.control.names()), **places}, app)
        return folder.place(number)

    def hand_in(self, job: Job, out: str = "out") -> Submitted:
        """`fedcalib submit` as a process, which is not waited for."""
        path = self.root / f"{job.key}.toml"
        fields = {name: value for name, value in asdict(job).items() if value not in (None, "", {})}
        path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items()))
        words = ["submit", path, "--keys", self.keys, "--port", self.link.port, "--state", self.root / "server"]
        command = fedcalib(*words, "--out", self.root / out)
        kinds = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return Submitted(subprocess.Popen(command.words, env=command.whole_environment, text=True, **kinds))

    def spent(self, name: str) -> float:
        """What a site has paid so far."""
        journal = DiskJournal(self.root / "sites" / name)
        if not (journal.folder / "ledger.db").exists():
            return 0.0
        return sum(float(account.epsilon) for account in journal.ledger.accounts())

    def result(self, out: Path) -> dict[str, Any]:
        wait(f"the result in {out}", (out / "result.json").exists)
        document: dict[str, Any] = json.loads((out / "result.json").read_text())
        assert "error" not in document, document
        return document

    def stages(self, out: Path) -> list[str]:
        path = out / "progress.jsonl"
        return [json.loads(line)["stage"] for line in path.read_text().splitlines()] if path.exists() else []

    def pooled(self) -> fc.Federation:
        files = [self.root / f"{name}.csv" for name in self.names]
        return read_checked(files, Columns(), seed=0).federation

    def _listening(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.link.port), 1).close()
        except OSError:
            return False
        return True


def fedcalib(*words: object) -> deployment.Command:
    """A command of ours as a process."""
    return deployment.Command((sys.executable, "-m", "fedcalib", *map(str, words)), {})


def write_records(path: Path, seed: int, records: int = 200) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, records)
    scores = 1 / (1 + np.exp(-(3 * (labels - 0.5) + 2 * rng.normal(size=records))))
    rows = [f"{score:.6f},{label}" for score, label in zip(np.clip(scores, 0.001, 0.999), labels, strict=True)]
    path.write_text("score,label\n" + "\n".join(rows) + "\n")


def _die_with_parent() -> None:
    """Ask Linux to end this process when the test that started it is gone."""
    if hasattr(os, "uname") and os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """List the processes that a process started, and theirs."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in listed for found in [int(child), *descendants(int(child))]]
