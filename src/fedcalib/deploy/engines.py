"""What all engines besides Flower share: a site's own file says where its records, keys, policy and state are.

A job of such an engine comes from the server, with its whole configuration. So nothing about a site is read from it:
the folder is named by an environment variable of the site's own process, or is where the engine keeps its settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fedcalib import wire
from fedcalib.deploy.node import WatchedSite
from fedcalib.errors import InputError, WireError
from fedcalib.remote.protocol import ACTIONS, Refused, write
from fedcalib.remote.site import COLUMNS

SITES: Final = "FEDCALIB_SITES"  # the environment variable: a folder with fedcalib.json, or with one folder per site
SETTINGS: Final = "fedcalib.json"
_NAMES: Final = ("data-path", "query", "stream", "identity", "directory", "policy", "state")


def write_settings(folder: Path, places: Mapping[str, str]) -> Path:
    """Write a site's own file into a folder: `data-path`, `identity`, `directory`, `state`, and what else it states."""
    unknown = sorted(set(places) - {*_NAMES, *COLUMNS})
    if unknown:
        raise InputError(f"Expected {', '.join((*_NAMES, *COLUMNS))}, found {', '.join(unknown)}.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    path.write_text(json.dumps(dict(places), indent=1) + "\n", encoding="utf-8")
    return path


def answer(name: str, action: str, text: str, usual: Path | None = None) -> str:
    """The reply of the site of this name to a message; records stay loaded as long as the process lives."""
    if action not in ACTIONS:
        return write(Refused("malformed"))
    try:
        site = _site(_settings(name, usual))
    except (InputError, OSError):  # the site's own process has to be set up; the server learns that, and no more
        return write(Refused("setup"))
    return site.handle(action, text)


def _settings(name: str, usual: Path | None) -> Path:
    """Where the site's own file is: in the folder that the environment names, or where the engine has its settings."""
    stated = os.environ.get(SITES)
    folders = [] if stated is None else [Path(stated), Path(stated) / Path(name).name]
    folders += [] if usual is None else [usual]
    found = next((folder / SETTINGS for folder in folders if (folder / SETTINGS).is_file()), None)
    if found is None:
        raise InputError(f"Expected {SETTINGS} for '{name}', found none; set {SITES} to its folder.")
    return found


@cache
def _site(path: Path) -> WatchedSite:
    try:
        places = wire.parse(path.read_text(encoding="utf-8"))
    except (WireError, UnicodeDecodeError) as error:
        raise InputError(f"Expected JSON in {path}, found something else.") from error
    return WatchedSite({str(key): str(value) for key, value in places.items()})
