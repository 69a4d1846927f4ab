"""The cases, and the files that they are stored in."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.snapshots import commands, runs
from tests.snapshots.comparing import arithmetic

STORED: Final = Path(__file__).parent / "stored"
MACHINE: Final = STORED / "machine.json"
CASES: Final[dict[str, runs.Run | commands.Commands]] = {**runs.cases(), **commands.cases()}


@cache
def found(name: str) -> dict[str, Any]:
    """Run a case once, and give its document as a file would."""
    figures, words = CASES[name].record()
    document: dict[str, Any] = json.loads(json.dumps({"figures": figures, "words": words}, allow_nan=False))
    return document


def stored(name: str) -> dict[str, Any]:
    """Read a case's file."""
    document: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text())
    return document


def store(name: str, document: dict[str, Any]) -> None:
    """Write a case's file."""
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    (STORED / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def machine() -> str:
    """How the machine computed that wrote the files."""
    return str(json.loads(MACHINE.read_text())["arithmetic"])


def store_machine() -> None:
    """Note how this machine computes."""
    MACHINE.write_text(json.dumps({"arithmetic": arithmetic()}, indent=1) + "\n", encoding="utf-8")
