"""The Flower commands behind a deployed federation: how fedcalib's commands build, print and run them."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from fedcalib.deploy.job import Job
from fedcalib.errors import InputError, UnavailableError

CONNECTION: Final = "fedcalib"
NO_TELEMETRY: Final = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_POLL: Final = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}  # seconds until a server begins with a run; usually one


@final
@dataclass(frozen=True)
class Link:
    """The address of the server, and the certificate of its authority; None only with --insecure."""

    host: str
    port: int
    authority: Path | None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@final
@dataclass(frozen=True)
class Command:
    """A command of Flower, with the environment variables that it needs."""

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        home = self.environment.get("FLWR_HOME")
        prefix = f"FLWR_HOME={shlex.quote(home)} " if home else ""
        return prefix + shlex.join((Path(self.words[0]).name, *self.words[1:]))

    @property
    def whole_environment(self) -> dict[str, str]:
        """This process's environment and the command's own; programs beside Python are found first."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **NO_TELEMETRY, **_POLL, "PATH": path, **self.environment}


def superlink(link: Link, keys: Path | None, state: Path) -> Command:
    """The command that starts the server, with TLS and node authentication unless there are no keys."""
    words = ["--host", link.host, "--port", str(link.port), "--disable-runtime-dependency-installation"]
    words += ["--database", str((state / "superlink.db").resolve())]
    return _command("flower-superlink", [*words, *(["--insecure"] if keys is None else _server_tls(keys))], state)


def _server_tls(keys: Path) -> list[str]:
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
    words = [word for flag, name in files.items() for word in (flag, str(_existing(keys / name)))]
    return [*words, "--enable-supernode-auth"]


def supernode(
    link: Link, port: int, node: Mapping[str, str], key: Path | None, home: Path, *, trusted: Path | None = None
) -> Command:
    """The command that starts a site's node, which connects to the server and needs no port open to the outside.

    With `trusted`, Flower's list of publishers, the node runs only apps that one of them has signed.
    """
    words = ["--superlink", link.address, "--port", str(port), "--node-config", _pairs(node)]
    words += [] if trusted is None else ["--trusted-entities", str(_existing(trusted))]
    if link.authority is None or key is None:
        return _command("flower-supernode", [*words, "--insecure"], home)
    trust = ["--root-certificates", str(_existing(link.authority)), "--auth-supernode-private-key", str(_existing(key))]
    return _command("flower-supernode", [*words, *trust], home)


def admit(link: Link, public: Path, home: Path) -> Command:
    """The command that registers a site's node by its public key."""
    connect(link, home)
    return _command("flwr", ["supernode", "register", str(_existing(public)), CONNECTION], home)


def submit(link: Link, job: Job, places: Mapping[str, str], home: Path) -> Command:
    """The command that submits a job to the server."""
    connect(link, home)
    words = ["run", str(bundled("flower-app")), CONNECTION, "--format", "json"]
    return _command("flwr", [*words, "--run-config", _pairs({"job": job.pack(), **places})], home)


def connect(link: Link, home: Path) -> None:
    """Write the configuration by which Flower's own command line finds the server."""
    make_private(home)
    trust = "insecure = true" if link.authority is None else f'root-certificates = "{link.authority.resolve()}"'
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{link.address}"\n{trust}\n'
    (home / "config.toml").write_text(text, encoding="utf-8")


def await_server(link: Link, seconds: float = 20.0) -> None:
    """Wait until the server accepts connections; it takes a few seconds to start."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((link.host, link.port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"Found no server at {link.address} for {seconds:g} s; start it first."
                ) from error
            time.sleep(0.3)


def bundled(place: str) -> Path:
    """A folder that comes with fedcalib: inside the package once installed, at `place` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / Path(place).name, package.parents[1] / place):
        if folder.is_dir():
            return folder
    raise InputError(f"Expected the folder {place} that comes with fedcalib, found none; install fedcalib again.")


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter, also where it was there before with other rights."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def _command(program: str, words: Sequence[str], home: Path) -> Command:
    make_private(home)
    place = Path(sys.executable).parent / program
    if not place.exists():
        raise InputError(f"Expected {program} beside Python, found none; install fedcalib[flower].")
    return Command((str(place), *words), {"FLWR_HOME": str(home.resolve())})


def _pairs(values: Mapping[str, str]) -> str:
    """Settings in the form that Flower reads; quotes and backslashes are refused."""
    for name, value in values.items():
        if any(sign in value for sign in "\"'\\\n"):
            raise InputError(f"Expected a value without quotes or backslashes for '{name}', found {value[:60]!r}.")
    return " ".join(f'{name}="{value}"' for name, value in values.items())


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"Expected the file {path}, found none; see `fedcalib certs`.")
    return path.resolve()


def require_flower() -> None:
    """Refuse to go on without Flower, which is an extra."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise InputError("Expected Flower, found it not installed; install fedcalib[flower].")


def check_keys(keys: Path | None, insecure: bool) -> Path | None:
    """The folder of keys; None only with --insecure."""
    if keys is None and not insecure:
        raise InputError("Expected --keys FOLDER (see `fedcalib certs`), found none; use --insecure to run without.")
    if keys is not None and insecure:
        raise InputError("Expected --keys or --insecure, found both.")
    return keys


def exec_command(command: Command, show: bool) -> None:
    """Print a command and, unless it is only shown, replace this process by it, so that signals reach it."""
    print(command, file=sys.stdout if show else sys.stderr, flush=True)
    if not show:
        os.execve(command.words[0], command.words, command.whole_environment)  # noqa: S606 - no shell is what we want
