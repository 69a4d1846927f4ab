"""Files are whole or absent, private from the start, synced, and locked against others."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedcalib import files
from fedcalib.errors import InputError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been synced so far, by name, or "folder"."""
    found: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        found.append("folder" if is_folder else Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_file_is_written_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "note.txt"
    files.write(path, b"one")
    files.write(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["note.txt"]


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(tmp_path: Path, synced: list[str]) -> None:
    with files.replacing(tmp_path / "note.txt") as beside:
        beside.write_text("one")
        assert synced == []
    assert synced == [".part", "folder"]


@pytest.mark.parametrize("private", [True, False])
def test_a_crash_before_the_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    path = tmp_path / "note.txt"
    files.write(path, b"old", private=private)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        files.write(path, b"new", private=private)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["note.txt"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    files.write(path, b"old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as beside:
        beside.write_bytes(b"half of the n")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["note.txt"]


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "secret"
    path.parent.mkdir(mode=0o700)
    old = os.umask(0)
    try:
        with files.replacing(path, private=True) as beside:
            assert mode(beside) == 0o600
            beside.write_bytes(b"secret")
        files.append(tmp_path / "log" / "lines", "one\n", private=True)
        files.write(tmp_path / "state" / "key", b"secret", private=True)
        files.open_private(tmp_path / "state" / "lock").close()
        files.write(tmp_path / "public", b"all may read")
    finally:
        os.umask(old)
    for place in (path, tmp_path / "log" / "lines", tmp_path / "state" / "lock"):
        assert (mode(place), mode(place.parent)) == (0o600, 0o700)
    assert mode(tmp_path / "public") == 0o666


def test_a_private_file_takes_the_place_of_a_public_one(tmp_path: Path) -> None:
    files.write(tmp_path / "note", b"one")
    (tmp_path / "note").chmod(0o644)
    files.write(tmp_path / "note", b"two", private=True)
    assert mode(tmp_path / "note") == 0o600


def test_of_several_files_none_appears_before_all_are_on_disk(tmp_path: Path, synced: list[str]) -> None:
    files.write_all(tmp_path / "out", {"a.json": b"1", "b.json": b"2"})
    assert synced == [".part", ".part", "folder"]
    assert [(tmp_path / "out" / name).read_bytes() for name in names(tmp_path / "out")] == [b"1", b"2"]


def test_of_several_files_none_appears_where_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b"old")
    real = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if content == b"2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        files.write_all(tmp_path, {"a.json": b"1", "b.json": b"2"})
    assert names(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"old"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder, found: Is a directory. Nothing was written"):
        files.save_text(tmp_path / "folder", "text")
    assert names(tmp_path) == ["folder"]


def test_lines_are_appended_and_synced(tmp_path: Path, synced: list[str]) -> None:
    files.append(tmp_path / "log.jsonl", "one\n")
    files.append(tmp_path / "log.jsonl", "two\n")
    assert (tmp_path / "log.jsonl").read_text() == "one\ntwo\n"
    assert synced == [".jsonl", ".jsonl"]


def test_a_folder_that_cannot_be_synced_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(number: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fsync)
    error = errno.EINVAL  # what a file system answers that syncs files only
    files.write(tmp_path / "note", b"one")
    error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        files.write(tmp_path / "note", b"two")
    assert (tmp_path / "note").read_bytes() == b"one"


TRY = """
import sys
from pathlib import Path
from fedcalib import files
from fedcalib.errors import InputError
try:
    with files.locked(Path(sys.argv[1]), "taken"):
        print("mine")
except InputError as error:
    print(error)
"""


def attempt(path: Path) -> str:
    """What another process finds that asks for the lock."""
    done = subprocess.run([sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_lock_keeps_other_processes_out_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with files.locked(path):
        assert attempt(path) == "taken"
        with pytest.raises(InputError, match="taken"), files.locked(path, "taken"):
            raise AssertionError("a second handle of this process must not get the lock either")
    assert attempt(path) == "mine"
    with pytest.raises(ZeroDivisionError), files.locked(path, "taken"):
        raise ZeroDivisionError
    assert attempt(path) == "mine"
