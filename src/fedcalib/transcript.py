"""The record of a run: checkpoint, audit log and privacy record in one file of JSON lines.

The first line is a header that names the run and what it does. Each query has a line "asked", written and synced before
anything is sent, and a line "answered" after. Reading the file back *is* resuming: answered queries are recalled and
never sent again, so nothing is spent twice and no noise is averaged away. A query that was sent and not answered counts
as spent, and sending it again is a new attempt. Where a ledger has to claim each query before it is sent, the line says
so ("claim"): as long as the ledger does not hold that claim, the query was not sent.

A run locks its transcript before it reads it: two runs on one file would both find a query unanswered, and both release
an answer for one debit. The lock is the kernel's (flock), so it ends with the process, however the process ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from fedcalib import files, wire
from fedcalib.accounting.spending import Asked
from fedcalib.errors import TranscriptError, WireError
from fedcalib.query import Answer, Query
from fedcalib.types import Floats

_MAX_INLINE = 1 << 16  # numbers; longer vectors (a network's update) live in a file beside


@final
@dataclass
class Transcript:
    """The lines of one run, in memory or in a private file.

    Parameters
    ----------
    path
        The file, or None for a transcript in memory.
    lines
        The lines so far, as JSON data.

    Examples
    --------
    >>> import fedcalib as fc
    >>> runtime = fc.InProcess(fc.Federation.simulated())
    >>> result = fc.run(fc.FedBin(), runtime, fc.SecAgg(), transcript="run.jsonl")
    >>> [line["state"] for line in fc.Transcript.read("run.jsonl").lines]
    ['begun', 'asked', 'answered']
    """

    path: Path | None = None
    lines: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _lock: BinaryIO | None = field(default=None, repr=False, compare=False)
    _secret: bytes | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path | str | None) -> Transcript:
        """Open a transcript for a run, and keep other runs out of it until `close`; None keeps it in memory."""
        if path is None:
            return cls()
        place = Path(path)
        lock = _locked(place)  # before reading: what another run still writes must not be taken for the whole
        try:
            return cls(place, _mended(place), lock)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def read(cls, path: Path | str) -> Transcript:
        """Read a transcript without locking or changing its file; no run can continue from it."""
        place = Path(path)
        return cls(place, _read(place)[0] if place.exists() else [])

    def close(self) -> None:
        """Let other runs open the file; the lines stay in memory."""
        if self._lock is not None:
            files.unlock(self._lock)
            self._lock = None

    def __enter__(self) -> Transcript:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the header of a new run, or check that the recorded one is the same; return the header on record."""
        if not self.lines:
            self._write({"state": "begun", **header})
            return self.lines[0]
        old = self.lines[0]
        changed = sorted(key for key in header if key != "run" and old.get(key) != header[key])
        if changed:
            raise TranscriptError(
                f"Expected the same run as in {self.path}, found another {' and '.join(changed)}. "
                "Use another transcript for a changed run; what this one spent stays spent."
            )
        return old

    def secret(self, new: Callable[[], bytes]) -> bytes:
        """The secret that clients are sampled from: a new one, or that of the run which continues.

        It has a private file of its own beside the transcript, NAME.secret, so that a transcript can be shown to
        others. A run that sent something goes on with its own secret only: another one would sample other clients.
        """
        if self._secret is None:
            self._secret = new() if self.path is None else self._kept(_secret_file(self.path), new)
        return self._secret

    def _kept(self, place: Path, new: Callable[[], bytes]) -> bytes:
        if place.exists():
            return _read_secret(place)
        if any(line["state"] == "asked" for line in self.lines):
            raise TranscriptError(
                f"Expected the secret of this run in {place}, found no such file. Clients were sampled from it, and "
                "without it the run cannot continue. Put the file back, or start a new run with another transcript; "
                "what this one spent stays spent."
            )
        made = new()
        try:
            files.write(place, made.hex().encode(), private=True)
        except OSError as error:
            raise _unwritable(place, error) from error
        return made

    def recall(self, step: int, query: Query) -> Answer | None:
        """The recorded answer to a step, or None."""
        lines = [line for line in self.lines if line.get("step") == step]
        mark = wire.fingerprint(query) if lines else ""
        for line in lines:
            if line["query"] != mark:
                raise TranscriptError(
                    f"Expected step {step} to send what {self.path or 'the transcript'} recorded, found another query: "
                    "another version may have written it. Go on with that version, or name another state or transcript "
                    "to begin anew, which spends anew."
                )
            if line["state"] == "answered":
                return self._answer(line, query)
        return None

    def asked(self, steps: int) -> list[Asked]:
        """How often each of so many steps was asked; numbers of attempts that other copies used are counted too."""
        last = {line["step"]: line for line in self.lines if line["state"] == "asked"}
        waits = {step for step, line in last.items() if line.get("claim")} - set(self.answered)
        return [Asked(last[step]["attempt"] + 1, step in waits) if step in last else Asked() for step in range(steps)]

    @property
    def answered(self) -> tuple[int, ...]:
        """The steps whose answers are here."""
        return tuple(sorted({line["step"] for line in self.lines if line["state"] == "answered"}))

    def note_sent(self, step: int, query: Query, mechanism: Any, attempt: int, *, claim: bool = False) -> None:
        """Write, durably, that a step is about to be sent, after a ledger has claimed it where `claim` says so."""
        line = {"state": "asked", "step": step, "query": wire.fingerprint(query), "mechanism": mechanism}
        line |= {"attempt": attempt, **({"claim": True} if claim else {})}
        if line not in self.lines:  # the same attempt again: it was not claimed, so it was not sent
            self._write(line)

    def note_answer(self, step: int, query: Query, value: Floats, variance: Floats, clients: int | None) -> Answer:
        """Write, durably, the answer to a step, and return it."""
        line = {"state": "answered", "step": step, "query": wire.fingerprint(query), "clients": clients}
        self._write(
            {**line, "value": self._store(step, "value", value), "variance": self._store(step, "variance", variance)}
        )
        return Answer.of(query, value, variance, clients)

    def _answer(self, line: Mapping[str, Any], query: Query) -> Answer:
        return Answer.of(query, self._fetch(line["value"]), self._fetch(line["variance"]), line["clients"])

    def _store(self, step: int, name: str, values: Floats) -> Any:
        if self.path is None or values.size <= _MAX_INLINE:
            return wire.encode(values)
        beside = self.path.with_suffix(f".{step}.{name}.npy")
        raw = BytesIO()
        np.save(raw, values, allow_pickle=False)
        files.write(beside, raw.getvalue(), private=True)
        return {"file": beside.name, "sha256": sha256(raw.getvalue()).hexdigest()}

    def _fetch(self, stored: Mapping[str, Any]) -> Floats:
        if "file" not in stored:
            values: Floats = wire.decode(stored)
            return values
        beside = (self.path or Path()).with_name(str(stored["file"]))
        if not beside.exists() or sha256(beside.read_bytes()).hexdigest() != stored["sha256"]:
            raise TranscriptError(f"Expected {beside} as the transcript recorded it, found it missing or changed.")
        loaded: Floats = np.load(beside, allow_pickle=False)
        return loaded

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            try:
                self._append(self.path, json.dumps(line, sort_keys=True, allow_nan=False) + "\n")
            except OSError as error:
                raise _unwritable(self.path, error) from error
        self.lines.append(line)

    def _append(self, path: Path, text: str) -> None:
        if self._lock is None:
            raise TranscriptError(f"The transcript {path} is not open for a run. Open it with Transcript.open first.")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            if not os.path.samestat(os.fstat(file.fileno()), os.fstat(self._lock.fileno())):
                raise TranscriptError(  # nobody holds the lock of the new file, so another run may be using it
                    f"The transcript {path} was replaced while a run was using it. Nothing was sent. "
                    "Put the old file back and run again."
                )
            file.write(text)
            files.sync(file)


def _secret_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.secret")


def _read_secret(path: Path) -> bytes:
    try:
        return bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError as error:
        raise TranscriptError(f"Expected the secret of a run in {path}, found it damaged. Put it back.") from error


def _unwritable(path: Path, error: OSError) -> TranscriptError:
    return TranscriptError(f"Expected to write {path}, found: {error.strerror}. Nothing was sent.")


def _locked(path: Path) -> BinaryIO:
    """Open a file, or create it, and lock it for as long as the returned handle stays open."""
    try:
        file = files.open_private(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        files.lock(file, wait=False)
    except OSError as error:
        file.close()
        raise _unlockable(path, error) from error
    return file


def _unlockable(path: Path, error: OSError) -> TranscriptError:
    if isinstance(error, BlockingIOError):
        return TranscriptError(
            f"The transcript {path} is in use by another run. Nothing was sent and nothing was spent. "
            "Wait until that run has ended and start this one again, or use another transcript."
        )
    return TranscriptError(
        f"The transcript {path} cannot be locked: {error.strerror}. Nothing was sent and nothing was spent. "
        "Keep the transcript on a local disk."
    )


def _read(path: Path) -> tuple[list[dict[str, Any]], str]:
    """All whole lines, and the torn last line that a crash leaves, which is ignored."""
    lines = []
    *texts, torn = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, text in enumerate(texts, 1):
        try:
            line = wire.parse(text)
        except WireError as error:
            raise TranscriptError(f"Expected JSON in line {number} of {path}, found it damaged.") from error
        if not isinstance(line, dict) or "state" not in line:
            raise TranscriptError(f"Expected a transcript in {path}, found line {number} to be something else.")
        lines.append(line)
    return lines, torn


def _mended(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a torn one is cut off, so that the next line starts afresh."""
    lines, torn = _read(path)
    if torn:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    return lines
