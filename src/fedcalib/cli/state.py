"""The private directory where transcripts live, so that a command that was cut short can go on."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final, final

from fedcalib.errors import InputError, TranscriptError

USUAL: Final = "~/.local/state/fedcalib"


@final
@dataclass(frozen=True)
class State:
    """What one command, with its settings and files, keeps between runs; without a folder it keeps nothing."""

    folder: Path | None
    secret: int  # decides chance that must repeat itself when a run is resumed, such as who is held out

    @property
    def name(self) -> str:
        """Give the command's own name."""
        return "" if self.folder is None else self.folder.name

    def transcript(self, phase: str) -> Path | None:
        """Say where the transcript of a phase lives."""
        return None if self.folder is None else self.folder / f"{phase}.jsonl"


def key(command: str, settings: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Name a command by its settings and by what is in its files."""
    content = [[path.name, _digest(path)] for path in files]
    said = json.dumps([command, dict(settings), content], sort_keys=True, default=str)
    return sha256(said.encode()).hexdigest()[:32]


@contextmanager
def kept(root: Path | None, name: str, seed: int | None) -> Iterator[State]:
    """Open the state of a command, and keep others out while it runs."""
    folder = (root or Path(USUAL)).expanduser() / name
    try:
        _private(folder.parent)
        _private(folder)
        with _locked(folder / "lock"):
            yield State(folder, _secret(folder / "secret") if seed is None else seed)
    except OSError as error:
        raise InputError(
            f"Expected to write the state directory {folder}, found: {error.strerror or error}. Name one with --state."
        ) from error


def forgotten(seed: int | None) -> State:
    """Keep nothing, for commands that ask nothing."""
    return State(None, secrets.randbits(128) if seed is None else seed)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"Expected to read {path}, found: {error.strerror or error}.") from error


def _private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)  # the mode of mkdir is cut by the umask, and an old folder may be more open


def _secret(path: Path) -> int:
    """Draw a secret once, and read it ever after."""
    if not path.exists():
        beside = path.with_suffix(".part")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{secrets.randbits(128):032x}\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except ValueError as error:
        raise TranscriptError(f"Expected a number in {path}, found it damaged.") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                "Expected this command to run once at a time, found it running already; wait for it."
            ) from error
        yield
