"""Flags that stand in a file: `fedcalib.toml` here, or the one that --config names."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fedcalib.errors import InputError

USUAL: Final = "fedcalib.toml"


def stated(argv: Sequence[str], flag: str) -> str | None:
    """Find a flag's value before anything is parsed, in either of its two spellings."""
    for index, word in enumerate(argv):
        if word == flag and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def defaults(argv: Sequence[str], commands: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Read the flags of every command from the file: those at the top hold for all, a table's for its command.

    `commands` says, for each command, which parameter each of its flags sets.
    """
    named = stated(argv, "--config")
    path = Path(USUAL if named is None else named)
    if named is None and not path.is_file():
        return {}
    content = _parsed(path)
    tables = {name: table for name, table in content.items() if isinstance(table, dict)}
    common = {name: value for name, value in content.items() if name not in tables}
    _check(common, {flag for flags in commands.values() for flag in flags}, str(path))
    for name, table in tables.items():
        if name not in commands:
            raise InputError(f"Expected a command's name, found the table [{name}] in {path}; try {_list(commands)}.")
        _check(table, set(commands[name]), f"[{name}] of {path}")
    return {
        name: {flags[flag]: value for flag, value in {**common, **tables.get(name, {})}.items() if flag in flags}
        for name, flags in commands.items()
    }


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Expected to read {path}, found: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"Expected TOML in {path}, found: {error}.") from error


def _check(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for name, value in table.items():
        if name not in known or name == "config":
            raise InputError(f"Expected flags of fedcalib in {where}, found '{name}'; try {_list(known - {'config'})}.")
        if isinstance(value, dict):
            raise InputError(f"Expected a value for '{name}' in {where}, found a table.")


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
