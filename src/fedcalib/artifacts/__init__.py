"""Artifacts: what a run leaves behind. Small, frozen, saved as JSON, and in need of numpy only.

Artifacts to versioned JSON files and back.
"""

from __future__ import annotations

import json
from abc import ABC
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from fedcalib import files, wire
from fedcalib.errors import InputError, WireError
from fedcalib.registry import lookup

SCHEMA_VERSION: Final = 1
S = TypeVar("S", bound="Artifact")


@dataclass(frozen=True)
class Artifact(ABC):  # noqa: B024 - abstract by meaning: what is saved is always a final kind of it
    """Anything that a method returns and a file can hold."""

    def save(self, path: Path | str, privacy: Any = None) -> Path:
        """Write this artifact to a JSON file, with the privacy statement that it was made under."""
        document = {
            "format": "fedcalib artifact",
            "schema_version": SCHEMA_VERSION,
            "artifact": wire.encode(self),
            "privacy": wire.encode(privacy),
        }
        return files.save_text(Path(path), json.dumps(document, indent=1, allow_nan=False) + "\n")


def load(path: Path | str) -> Any:
    """Read an artifact that was saved as JSON."""
    return read_document(path)[0]


def read_document(path: Path | str) -> tuple[Any, Any]:
    """Read an artifact and the privacy record it was saved with."""
    place = Path(path)
    try:
        document = wire.parse(place.read_bytes())
    except OSError as error:
        raise InputError(f"Expected an artifact in {place}, found: {error.strerror or error}.") from error
    except WireError as error:
        raise InputError(f"Expected an artifact in {place}, found something that is not JSON.") from error
    if not isinstance(document, dict) or document.get("format") != "fedcalib artifact":
        raise InputError(f"Expected an artifact that fedcalib saved in {place}, found another JSON document.")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"Expected schema version {SCHEMA_VERSION} in {place}, found {document.get('schema_version')!r}; "
            "use the version of fedcalib that wrote it."
        )
    artifact = wire.decode(document.get("artifact"), partial(lookup, allowed=None))
    if not isinstance(artifact, Artifact):
        raise InputError(f"Expected an artifact in {place}, found {type(artifact).__name__}.")
    return artifact, wire.decode(document.get("privacy"))
