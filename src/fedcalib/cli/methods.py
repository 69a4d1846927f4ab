"""`fedcalib methods`: what can be chosen."""

from __future__ import annotations

from types import NoneType
from typing import Any

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.registry import Registered, choices
from fedcalib.workflows.documents import TextTable


def methods(
    format_: options.Shape = options.Format.TEXT, config: options.Config = None, debug: options.Debug = False
) -> None:
    """List the methods and privacy models that --method and --privacy can name."""
    lists = {"methods": choices("method"), "privacy": choices("privacy")}
    document = {name: [_entry(entry) for entry in entries] for name, entries in lists.items()}
    tables = [
        TextTable(title, ("name", "what it does", "options"), tuple(_row(entry) for entry in lists[name]))
        for name, title in (("methods", "--method"), ("privacy", "--privacy"))
    ]
    Voice(format_ is options.Format.JSON).result(document, tables)


def _entry(entry: Registered) -> dict[str, Any]:
    plain = (bool, int, float, str, NoneType)
    known = {name: value if isinstance(value, plain) else type(value).__name__ for name, value in entry.options.items()}
    return {"name": entry.word, "class": entry.name, "summary": entry.summary, "options": known}


def _row(entry: Registered) -> tuple[str, ...]:
    known = (name if value is None else f"{name}={value}" for name, value in _entry(entry)["options"].items())
    return entry.word, entry.summary, ", ".join(known)
