"""A site as its node configuration describes it: where its records, keys, policy and journal are."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedcalib import files, wire
from fedcalib.errors import InputError, WireError
from fedcalib.federation import Federation
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.policy import Policy
from fedcalib.remote.site import Site
from fedcalib.secagg import Directory, SigningIdentity

_COLUMNS = ("score", "logits", "probs", "label", "unit")


def open_site(places: Mapping[str, Any], load: Callable[[], Federation], policy: Policy) -> Site:
    """The site whose files are at the paths `identity`, `directory` and `state` of a configuration."""
    identity = read_identity(Path(_given(places, "identity")))
    directory = read_directory(Path(_given(places, "directory")))
    return Site(identity, directory, load, policy, DiskJournal(Path(_given(places, "state"))))


def records_of(config: Mapping[str, Any]) -> Federation:
    """The records of a site, from the file `data-path`; all of them belong to one client, the site."""
    from fedcalib.data import Columns, read_checked

    columns = Columns(**{name: str(config[name]) for name in _COLUMNS if name in config})
    reading = read_checked([Path(_given(config, "data-path"))], columns, seed=0)
    return Federation.of([reading.federation.records])


def policy_of(config: Mapping[str, Any]) -> Policy:
    """The policy of a site, from the file `policy`; without one, the cautious default."""
    return Policy.read(str(config["policy"])) if "policy" in config else Policy()


def write_identity(path: Path, identity: SigningIdentity) -> None:
    """Write an identity to a file that only its owner can read."""
    text = json.dumps({"name": identity.name, "private": base64.b64encode(identity.private).decode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, f"{text}\n".encode(), private=True)


def read_identity(path: Path) -> SigningIdentity:
    try:
        data = wire.parse(_read(path))
        return SigningIdentity(str(data["name"]), base64.b64decode(data["private"], validate=True))
    except (WireError, KeyError, TypeError, binascii.Error) as error:
        raise InputError(
            f"Expected a site's identity in {path}, found something else; see `fedcalib certs`."
        ) from error


def read_directory(path: Path) -> Directory:
    """The identity keys of all sites."""
    return Directory.from_json(_read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Expected to read {path}, found: {getattr(error, 'strerror', None) or error}.") from error


def _given(config: Mapping[str, Any], name: str) -> str:
    if not isinstance(config.get(name), str):
        raise InputError(f"Expected '{name}' in the node's configuration, found none; see `fedcalib site start`.")
    return str(config[name])
