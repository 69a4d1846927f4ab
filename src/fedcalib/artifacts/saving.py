"""Artifacts as versioned JSON files.

`save` writes an artifact to a versioned JSON file, together with the privacy statement of the run that made it, and
`load` reads it back.
"""

from __future__ import annotations

import json
from abc import ABC
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from fedcalib import files, wire
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import MIN_RECORDS
from fedcalib.display import brief
from fedcalib.errors import InputError, WireError
from fedcalib.registry import lookup

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Artifact(ABC):  # noqa: B024 - abstract by meaning: what is saved is always a final kind of it
    """A result of a method, which can be saved as a JSON file.

    Examples
    --------
    >>> import fedcalib as fc
    >>> path = fc.artifacts.Temperature(1.5).save("calibrator.json")
    >>> fc.load(path)
    Temperature(temperature=1.5, warning='')
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let subclasses inherit `__repr__`: a dataclass writes one unless its class has it already."""
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return brief(self)

    def published(self, min_count: int = MIN_RECORDS) -> Self:
        """This artifact as it may be published: its tables of exact counts hold none from 1 to `min_count` - 1.

        Tables with privacy noise stay as they are: the noise protects.
        """
        return self

    @property
    def disclosure(self) -> str:
        """What this artifact reveals about few records, in words; empty where that is nothing."""
        return ""

    def save(self, path: Path | str, privacy: Any = None, *, min_count: int = MIN_RECORDS) -> Path:
        """Write this artifact to a JSON file, as it may be published.

        Parameters
        ----------
        path
            The file to write; missing folders are created.
        privacy
            The privacy statement of the run that made the artifact (`result.privacy`), to be kept beside it.
        min_count
            Neighbouring cells of exact tables are merged until no count is from 1 to `min_count` - 1; 1 merges nothing.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InputError
            If the file cannot be written; then nothing is.
        RefusedError
            If the artifact is a table of which nothing may be shown.
        """
        return files.save_text(Path(path), self.dumps(privacy, min_count=min_count))

    def dumps(self, privacy: Any = None, *, min_count: int = MIN_RECORDS) -> str:
        """The text of the JSON file that `save` writes."""
        document = {
            "format": "fedcalib artifact",
            "schema_version": SCHEMA_VERSION,
            "artifact": wire.encode(self.published(min_count)),
            "privacy": wire.encode(with_disclosure(privacy, self)),
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"


def with_disclosure(privacy: Any, artifact: Artifact) -> Any:
    """A privacy statement that also says what an artifact reveals; noise hides it where there is an epsilon."""
    told = artifact.disclosure
    if not isinstance(privacy, Spending) or privacy.epsilon is not None or not told or told in privacy.statement:
        return privacy
    return replace(privacy, statement=f"{privacy.statement} {told}")


def load(path: Path | str) -> Any:
    """Read an artifact from a JSON file.

    Parameters
    ----------
    path
        A file that `Artifact.save` or the command line wrote.

    Returns
    -------
    Artifact
        The artifact, of the class that was saved.

    Raises
    ------
    InputError
        If the file is missing, is not an artifact, or was written by a newer version.

    Examples
    --------
    >>> import fedcalib as fc
    >>> path = fc.artifacts.Identity("nothing to change").save("identity.json")
    >>> fc.load(path)
    Identity(reason='nothing to change')
    """
    return read_document(path)[0]


def read_document(path: Path | str) -> tuple[Any, Any]:
    """Read an artifact and the privacy statement it was saved with, which may be None."""
    file = Path(path)
    try:
        document = wire.parse(file.read_bytes())
    except OSError as error:
        raise InputError(f"Expected an artifact in {file}, found: {error.strerror or error}.") from error
    except WireError as error:
        raise InputError(f"Expected an artifact in {file}, found something that is not JSON.") from error
    if not isinstance(document, dict) or document.get("format") != "fedcalib artifact":
        raise InputError(f"Expected an artifact that fedcalib saved in {file}, found another JSON document.")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"Expected schema version {SCHEMA_VERSION} in {file}, found {document.get('schema_version')!r}; "
            "use the version of fedcalib that wrote it."
        )
    artifact = wire.decode(document.get("artifact"), partial(lookup, allowed=None))
    if not isinstance(artifact, Artifact):
        raise InputError(f"Expected an artifact in {file}, found {type(artifact).__name__}.")
    return artifact, wire.decode(document.get("privacy"))
