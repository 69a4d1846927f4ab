"""A secure sum on the server's disk, so that it survives the server's death."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from fedcalib import wire
from fedcalib.errors import TranscriptError


@final
@dataclass(frozen=True)
class SavedSum:
    """Which step a setup is at, and how far it came.

    `server` is empty while keys are exchanged; then vectors are asked for, until the survivors are `fixed`.
    """

    setup: int
    step: int
    attempt: int
    fixed: bool
    server: str


def save(folder: Path | None, run: str, saved: SavedSum) -> None:
    """Write beside and rename, so that a crash leaves the old sum or the new one; None keeps nothing."""
    if folder is None:
        return
    path = _path(folder, run)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(".part")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(saved), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise TranscriptError(
            f"Expected to write {path}, found: {error.strerror or error}. Nothing was sent."
        ) from error


def recall(folder: Path | None, run: str) -> SavedSum | None:
    """Read a run's sum back, if there is one."""
    if folder is None or not _path(folder, run).exists():
        return None
    data = wire.parse(_path(folder, run).read_text(encoding="utf-8"))
    try:
        return SavedSum(**data)
    except TypeError as error:
        raise TranscriptError(f"Expected a saved sum in {_path(folder, run)}, found it damaged.") from error


def _path(folder: Path, run: str) -> Path:
    return folder / f"sum-{sha256(run.encode()).hexdigest()[:32]}.json"
