"""An evidence bundle: a report with everything that belongs to it in one zip file, and its verification.

The bundle holds the report, the result, the calibrator or evaluation, the sheet, the privacy statement, digests of the
run's messages, an extract of the ledger, the versions, and a manifest with the SHA-256 of each of these files.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final, final
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from fedcalib import files
from fedcalib.errors import InputError
from fedcalib.report.page import Page
from fedcalib.report.sheet import Sheet, sheet
from fedcalib.workflows.facts import About, Trail, today, versions

MANIFEST: Final = "manifest.json"
_FORMAT: Final = "fedcalib evidence 1"
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # the same contents make the same bytes
_MOST_BYTES: Final = 200_000_000  # of one file; a report has less than two million
_MOST_FILES: Final = 100
_FEW: Final = 3  # digests of phases that a report lists one by one; a bundle lists all


def made(provenance: Mapping[str, object], evidence: Trail) -> dict[str, object]:
    """How a result was made: settings, versions, and keyed digests of inputs and messages."""
    digests = {f"digest of {name}": text for name, text in evidence.inputs.items()}
    if len(evidence.transcripts) > _FEW:
        together = sha256("".join(evidence.transcripts.values()).encode()).hexdigest()
        digests["digest of all messages"] = together
    else:
        digests |= {f"digest of the messages, {name}": text for name, text in evidence.transcripts.items()}
    note = {"digests": "HMAC-SHA-256 with the key in the state directory"} if digests else {}
    told = {name: value for name, value in provenance.items() if value not in (None, "")}
    return {**versions(), **told, **digests, **note}


def sheet_of(page: Page, about: About) -> Sheet:
    """The model card and the TRIPOD+AI items of a page."""
    return sheet(page, asdict(about), today())


def write_bundle(
    path: Path | str, contents: Mapping[str, bytes], items: Sheet, privacy: Sequence[str], evidence: Trail
) -> Path:
    """Write a bundle, at once or not at all.

    Parameters
    ----------
    path
        The zip file.
    contents
        The files of the report.
    items
        The sheet.
    privacy
        Sentences on what the run spent.
    evidence
        Digests and the ledger's account.
    """
    inside = {
        **contents,
        "sheet.html": items.to_html().encode(),
        "sheet.md": items.to_markdown().encode(),
        "privacy.txt": "".join(f"{sentence}\n" for sentence in privacy).encode(),
        "transcripts.json": _json(dict(evidence.transcripts)),
        "inputs.json": _json(dict(evidence.inputs)),
        "ledger.json": _json(dict(evidence.account)),
        "versions.json": _json(versions()),
    }
    manifest = {"format": _FORMAT, "date": today(), "sha256": {name: _digest(inside[name]) for name in sorted(inside)}}
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted({**inside, MANIFEST: _json(manifest)}.items()):
            archive.writestr(ZipInfo(name, _LONG_AGO), content, ZIP_DEFLATED)
    path = Path(path)
    files.write_all(path.parent, {path.name: buffer.getvalue()})
    return path


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@final
@dataclass(frozen=True)
class Verified:
    """What was checked in a bundle, and what is wrong with it.

    Parameters
    ----------
    date
        The date of the bundle.
    files
        SHA-256 by file, as the manifest states it.
    faults
        Sentences; empty where the bundle is whole.
    digest
        SHA-256 of the manifest: who has noted it can tell this bundle from any other.
    """

    date: str
    files: Mapping[str, str]
    faults: tuple[str, ...]
    digest: str

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"whole": not self.faults, **asdict(self), "faults": list(self.faults), "files": dict(self.files)}


def verify(path: Path | str) -> Verified:
    """Check a bundle: every file of the manifest is there, unchanged, and nothing else is.

    Parameters
    ----------
    path
        The zip file.

    Returns
    -------
    Verified
        What was checked, with a sentence for each fault.

    Raises
    ------
    InputError
        If the file is no evidence bundle.
    """
    try:
        with ZipFile(path) as archive:
            return _checked(archive, str(path))
    except (OSError, BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Expected an evidence bundle in {path}, found: {reason}.") from error


def _checked(archive: ZipFile, path: str) -> Verified:
    listed = archive.infolist()
    names = [one.filename for one in listed]
    if MANIFEST not in names or len(names) > _MOST_FILES or any(one.file_size > _MOST_BYTES for one in listed):
        raise InputError(f"Expected an evidence bundle in {path}, found another zip file; name one from --bundle.")
    content = archive.read(MANIFEST)
    manifest = _manifest(content, path)
    stated = manifest["sha256"]
    faults = [f"{name} is missing." for name in stated if name not in names]
    faults += [f"{name} is not in the manifest." for name in names if name not in stated and name != MANIFEST]
    faults += [f"{name} is there twice." for name in sorted({name for name in names if names.count(name) > 1})]
    for name in stated:
        if names.count(name) == 1 and _read(archive, name) != stated[name]:
            faults.append(f"{name} was changed: its SHA-256 is not that of the manifest.")
    return Verified(str(manifest["date"]), dict(stated), tuple(faults), _digest(content))


def _read(archive: ZipFile, name: str) -> str:
    """The digest of a file; empty where the archive itself finds it damaged."""
    try:
        return _digest(archive.read(name))
    except (BadZipFile, EOFError, OSError, zlib.error):
        return ""


def _manifest(content: bytes, path: str) -> dict[str, Any]:
    try:
        manifest = json.loads(content)
    except ValueError:
        manifest = None
    known = (
        isinstance(manifest, dict) and manifest.get("format") == _FORMAT and isinstance(manifest.get("sha256"), dict)
    )
    if not known or not all(isinstance(value, str) for value in manifest["sha256"].values()):
        raise InputError(f"Expected a manifest of '{_FORMAT}' in {path}, found another; make the bundle again.")
    return {"date": "", **manifest}
