"""Files that a command leaves: all of them, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedcalib.errors import InputError


def check_folder(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder that cannot be written, before anything is asked and spent."""
    try:
        blocked = next((folder / name for name in names if (folder / name).is_dir()), None)
        if blocked is not None:
            raise InputError(f"Expected to write the file {blocked}, found a directory; name another with --out.")
        nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            raise InputError(f"Expected a directory with --out, found the file {nearest}; name another.")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise InputError(f"Expected to write into {nearest}, found: Permission denied; name another with --out.")
    except OSError as error:
        raise InputError(f"Expected a directory with --out, found: {error.strerror or error}.") from error


def write_all(folder: Path, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Write files into a folder, all at once at the very end; say where each one is."""
    beside: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        for name, content in contents.items():
            (beside / name).write_bytes(content)
        for name in contents:
            (beside / name).replace(folder / name)
    except OSError as error:
        raise InputError(f"Expected to write into {folder}, found: {error.strerror or error}.") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
    return places(folder, contents)


def places(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Say where each file is, under its name without the suffix."""
    return {Path(name).stem: str(folder / name) for name in names}
