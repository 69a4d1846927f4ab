"""`fedcalib methods`: what can be chosen."""

from __future__ import annotations

from typing import Any

from fedcalib.cli import options
from fedcalib.cli.registry import METHODS, MODELS, Entry
from fedcalib.cli.voice import Table, Voice


def methods(
    format_: options.Shape = options.Format.TEXT, config: options.Config = None, debug: options.Debug = False
) -> None:
    """List the methods and privacy models that --method and --privacy can name."""
    lists = {"methods": _there(METHODS), "privacy": _there(MODELS)}
    document = {name: [_entry(entry) for entry in entries] for name, entries in lists.items()}
    tables = [
        Table(title, ("name", "what it does", "options"), tuple(_row(entry) for entry in lists[name]))
        for name, title in (("methods", "--method"), ("privacy", "--privacy"))
    ]
    Voice(format_ is options.Format.JSON).result(document, tables)


def _there(entries: tuple[Entry, ...]) -> list[Entry]:
    return [entry for entry in entries if entry.there]


def _entry(entry: Entry) -> dict[str, Any]:
    known = {name: value if _is_plain(value) else type(value).__name__ for name, value in entry.options.items()}
    return {"name": entry.word, "class": entry.name, "summary": entry.summary, "options": known}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _row(entry: Entry) -> tuple[str, ...]:
    known = (name if value is None else f"{name}={value}" for name, value in _entry(entry)["options"].items())
    return entry.word, entry.summary, ", ".join(known)
