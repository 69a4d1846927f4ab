"""Files that are whole or absent, on disk before anything relies on them, and locked while they are in use.

A file is written beside its place, synced and renamed, and then its folder is synced. A crash at any moment leaves the
old file or the new one. A private file can be read by its owner only, from its first byte on.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from fedcalib.errors import InputError


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield an empty file beside `path`; it takes the place of `path` when the block ends without an error."""
    with _beside(path, private=private) as beside:
        yield beside
        _sync(beside)
        beside.replace(path)
    _sync(path.parent)


def write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file durably, at once or not at all, and make its folder where there is none."""
    _make_folder(path.parent, private)
    with replacing(path, private=private) as beside:
        beside.write_bytes(content)


def save_text(path: Path, text: str) -> Path:
    """Write a text for the user at once or not at all; explain why where it cannot be written."""
    with explained(path):
        write(path, text.encode())
    return path


def write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write several files for the user; none appears before all of them are on disk."""
    with explained(folder), ExitStack() as ends:
        _make_folder(folder, private=False)
        beside = {name: ends.enter_context(_beside(folder / name)) for name in contents}
        for name, part in beside.items():
            part.write_bytes(contents[name])
            _sync(part)
        for name, part in beside.items():
            part.replace(folder / name)
        _sync(folder)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the system into an `InputError` that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Expected to write {path}, found: {error.strerror or error}. Nothing was written.") from error


def append(path: Path, text: str, *, private: bool = False) -> None:
    """Add text to the end of a file, durably; make the file where there is none."""
    _make_folder(path.parent, private)
    mode = 0o600 if private else 0o666
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode), "a", encoding="utf-8") as file:
        file.write(text)
        sync(file)


def sync(file: IO[Any]) -> None:
    """Wait until what was written to an open file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def open_private(path: Path) -> BinaryIO:
    """Open a private file to lock and read it; make it, durably, where there is none."""
    _make_folder(path.parent, private=True)
    new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # writable: network file systems lock no other
        if new:
            _sync(path.parent)
    except OSError:
        if not path.is_file():
            raise
        descriptor = os.open(path, os.O_RDONLY)  # a file can be locked and read where nothing may be written
    return os.fdopen(descriptor, "rb")


def lock(file: BinaryIO, *, wait: bool) -> None:
    """Lock an open file against other processes; without `wait`, raise BlockingIOError where another one holds it.

    The lock is the kernel's (flock), so it ends with the process, however the process ends.
    """
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def unlock(file: BinaryIO) -> None:
    """Release a lock and close the file."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)  # closing alone leaves the lock with a process that was forked off
    file.close()


@contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Lock a private file for the duration of a block.

    Where another process holds it, wait; or raise an `InputError` that says `busy`, where that is given.
    """
    with open_private(path) as file:
        try:
            lock(file, wait=busy is None)
        except BlockingIOError as error:
            raise InputError(busy or "") from error
        try:
            yield
        finally:
            unlock(file)


def _make_folder(folder: Path, private: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)


@contextmanager
def _beside(path: Path, *, private: bool = False) -> Iterator[Path]:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a closed file, or a folder's list of files, is on disk."""
    if os.name != "posix" and path.is_dir():
        return  # other systems cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems sync no folders
            raise
    finally:
        os.close(descriptor)
