"""What a site writes down about every request, answer and refusal: lines that each hold the hash of the one before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from fedcalib import wire
from fedcalib.errors import LedgerError, WireError

START: Final = "0" * 64


@final
@dataclass(frozen=True)
class AuditLog:
    """A file of JSON lines, private to the site. An edited, removed or inserted line breaks the chain."""

    path: Path

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a line, durably, before the answer that it speaks of leaves."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = _whole(self.path)
        before = wire.parse(lines[-1])["hash"] if lines else START
        line = {"line": len(lines) + 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
        text = json.dumps({**line, "hash": _link(before, line)}, sort_keys=True) + "\n"
        with os.fdopen(
            os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Read every line, oldest first, without checking them."""
        return [_parsed(text, number, self.path) for number, text in enumerate(_whole(self.path), 1)]

    def verify(self, head: str | None = None) -> str:
        """Check the chain and give the hash of its last line; `head` is such a hash noted earlier, and still there."""
        before, seen = START, {START}
        for number, line in enumerate(self.lines(), 1):
            said = line.pop("hash", None)
            if line.get("line") != number or said != _link(before, line):
                raise LedgerError(
                    f"Expected line {number} of {self.path} as it was written, found it changed, moved or new."
                )
            before = said
            seen.add(before)
        if head is not None and head not in seen:
            raise LedgerError(
                f"Expected {self.path} to go on from where {head[:12]} was noted, found it rewritten or cut short."
            )
        return before


def _link(before: str, line: Mapping[str, Any]) -> str:
    return sha256(f"{before}\n{json.dumps(line, sort_keys=True)}".encode()).hexdigest()


def _whole(path: Path) -> list[str]:
    """Read the whole lines; a torn last one is what a crash leaves, and is cut off."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    kept = raw[: raw.rfind(b"\n") + 1]
    if len(kept) != len(raw):
        with path.open("r+b") as file:
            file.truncate(len(kept))
    return kept.decode("utf-8", errors="replace").split("\n")[:-1]


def _parsed(text: str, number: int, path: Path) -> dict[str, Any]:
    try:
        line = wire.parse(text)
    except WireError as error:
        raise LedgerError(f"Expected JSON in line {number} of {path}, found it damaged.") from error
    if not isinstance(line, dict):
        raise LedgerError(f"Expected an entry in line {number} of {path}, found something else.")
    return line
