"""The record of a run: checkpoint, audit log and privacy record in one file of JSON lines.

The first line is a header that names the run and what it does. Each query has a line "asked", written and synced
before anything is sent, and a line "answered" after. Reading the file back *is* resuming: answered queries are
recalled, never asked again, so nothing is spent twice and no noise is averaged away. A query that was asked and not
answered counts as spent, and asking it again is a new attempt.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib import wire
from fedcalib.answer import Answer
from fedcalib.errors import TranscriptError, WireError
from fedcalib.query import Query
from fedcalib.types import Floats

_LONGEST_INLINE = 1 << 16  # numbers; longer vectors (a network's update) live in a file beside


@final
@dataclass
class Transcript:
    """The lines of one run, in memory or in a private file."""

    path: Path | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path | str | None) -> Transcript:
        """Read a transcript, or start one; None keeps it in memory."""
        if path is None:
            return cls()
        place = Path(path)
        if not place.exists():
            return cls(place)
        return cls(place, _read(place))

    def begin(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the header of a new run, or check that an old one says the same; give back the old or new header."""
        if not self.lines:
            self._write({"state": "begun", **header})
            return self.lines[0]
        old = self.lines[0]
        changed = sorted(key for key in header if key != "run" and old.get(key) != header[key])
        if changed:
            raise TranscriptError(
                f"Expected the same run as in {self.path}, found another {' and '.join(changed)}. "
                "Use another state directory for a changed run; what this one spent stays spent."
            )
        return old

    def recall(self, step: int, query: Query) -> Answer | None:
        """Give the recorded answer to a step, if there is one."""
        lines = [line for line in self.lines if line.get("step") == step]
        mark = wire.fingerprint(query) if lines else ""
        for line in lines:
            if line["query"] != mark:
                raise TranscriptError(
                    f"Expected step {step} to ask what {self.path or 'the transcript'} recorded, found another query."
                )
            if line["state"] == "answered":
                return self._answer(line, query)
        return None

    def attempts(self, step: int) -> int:
        """Count how often a step was asked."""
        return sum(line["state"] == "asked" and line["step"] == step for line in self.lines)

    def asks(self, steps: int) -> list[int]:
        """Count, for each of so many steps, how often it was asked."""
        counts = Counter(line["step"] for line in self.lines if line["state"] == "asked")
        return [counts[step] for step in range(steps)]

    def asked(self, step: int, query: Query, detail: Mapping[str, Any]) -> None:
        """Note, durably, that a step is about to be asked."""
        self._write({"state": "asked", "step": step, "query": wire.fingerprint(query), **detail})

    def answered(self, step: int, query: Query, value: Floats, variance: Floats, clients: int | None) -> Answer:
        """Note, durably, what came back."""
        line = {"state": "answered", "step": step, "query": wire.fingerprint(query), "clients": clients}
        self._write(
            {**line, "value": self._store(step, "value", value), "variance": self._store(step, "variance", variance)}
        )
        return Answer.of(query, value, variance, clients)

    def _answer(self, line: Mapping[str, Any], query: Query) -> Answer:
        return Answer.of(query, self._fetch(line["value"]), self._fetch(line["variance"]), line["clients"])

    def _store(self, step: int, name: str, values: Floats) -> Any:
        if self.path is None or values.size <= _LONGEST_INLINE:
            return wire.encode(values)
        beside = self.path.with_suffix(f".{step}.{name}.npy")
        with beside.open("wb") as file:
            np.save(file, values, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o600)
        return {"file": beside.name, "sha256": sha256(beside.read_bytes()).hexdigest()}

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
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps(line, sort_keys=True, allow_nan=False) + "\n"
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise TranscriptError(
                    f"Expected to write {self.path}, found: {error.strerror}. Nothing was asked."
                ) from error
        self.lines.append(line)


def _read(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines; a half-written last line is what a crash leaves, and says nothing."""
    lines = []
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, text in enumerate(texts[:-1], 1):
        try:
            line = wire.parse(text)
        except WireError as error:
            raise TranscriptError(f"Expected JSON in line {number} of {path}, found it damaged.") from error
        if not isinstance(line, dict) or "state" not in line:
            raise TranscriptError(f"Expected a transcript in {path}, found line {number} to be something else.")
        lines.append(line)
    if texts[-1]:  # cut the torn line off, so that the next one starts afresh
        with path.open("r+b") as file:
            file.truncate(len("\n".join(texts[:-1]).encode()) + (1 if lines else 0))
    return lines
