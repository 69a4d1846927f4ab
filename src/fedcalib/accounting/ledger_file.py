"""The file of a ledger: SQLite rows that can only be appended, linked by their hashes.

It is one file (a rollback journal beside it exists only during a write), synced to disk before a write counts as done.
A connection lives for one transaction, so that it is never shared with a forked process.

Format 2 has the column `step`, for the lines of single queries. A file of format 1 is read as it is, and gets the
column with its next line; the lines that it has keep their hashes.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Final, final

from fedcalib.errors import LedgerError

_VERSION: Final = 2
_READABLE: Final = (1, 2)
_APPLICATION_ID: Final = 0x66636C67  # "fclg": marks a SQLite file as a ledger
FIRST_HASH: Final = sha256(b"fedcalib ledger 1").hexdigest()  # the hash before the first row

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS entries (
        number INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, account TEXT NOT NULL, unit TEXT NOT NULL,
        adjacency TEXT NOT NULL, phase TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER NOT NULL,
        epsilon_micro TEXT NOT NULL, delta_femto TEXT NOT NULL, statement TEXT NOT NULL, hash TEXT NOT NULL,
        step INTEGER)""",
    """CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS in_order BEFORE INSERT ON entries
        WHEN NEW.number IS NOT (SELECT COALESCE(MAX(number), 0) + 1 FROM entries)
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
)
TRIGGERS: Final = frozenset(("no_update", "no_delete", "in_order"))  # what every ledger must have


@final
@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger: a debit, a claim or a limit.

    Amounts are whole micro-units of epsilon and 1e-15ths of delta. `step` is None where a line is about a whole run.
    """

    number: int
    at: str
    kind: str
    account: str
    unit: str
    adjacency: str
    phase: str
    run: str
    attempt: int
    epsilon_micro: int
    delta_femto: int
    statement: str
    step: int | None = None

    def link(self, previous: str) -> str:
        """Hash this line together with the hash of the line before."""
        values = list(vars(self).values())
        return sha256(json.dumps([previous, *(values[:-1] if self.step is None else values)]).encode()).hexdigest()


_COLUMNS: Final = (*(field.name for field in fields(LedgerEntry)), "hash")
_INSERT: Final = f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM entries ORDER BY number"  # noqa: S608
_SELECT_FORMAT_1: Final = _SELECT.replace("step", "NULL AS step")


@final
@dataclass(frozen=True)
class LedgerPage:
    """The content of a ledger within one transaction: all lines, checked, and the hash of the last."""

    entries: tuple[LedgerEntry, ...]
    head: str


@contextmanager
def writing(path: Path, patience: float) -> Iterator[sqlite3.Connection]:
    """Open a ledger exclusively, and create it if need be; afterwards all writes are on disk, or none is."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(_connect(path, patience)) as connection, _transaction(connection, "IMMEDIATE"):
            _prepare(path, connection)
            yield connection


def read(path: Path, patience: float) -> tuple[LedgerPage, frozenset[str]]:
    """The content of a ledger that exists, and the triggers that protect it."""
    if not path.exists():
        raise LedgerError(f"Expected a ledger in {path}, found no such file; check the path.")
    with _explained(path), closing(_connect(path, patience)) as connection, _transaction(connection, "DEFERRED"):
        if _empty(connection):
            return LedgerPage((), FIRST_HASH), TRIGGERS  # whoever made the file was killed before its first line
        _check(path, connection)
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        return page(path, connection), frozenset(name for (name,) in triggers)


def page(path: Path, connection: sqlite3.Connection) -> LedgerPage:
    """Read all lines and check their hashes; the first that does not fit is an error."""
    entries: list[LedgerEntry] = []
    head = FIRST_HASH
    for row in connection.execute(_SELECT_FORMAT_1 if _version(connection) == 1 else _SELECT):
        entry = _entry(path, row[:-1])
        head = entry.link(head)
        if entry.number != len(entries) + 1 or head != row[-1]:
            raise LedgerError(
                f"Expected line {len(entries) + 1} of {path} as it was written, found it edited, or a line before it "
                "removed. Restore the file from a backup; until then nothing can be spent from it."
            )
        entries.append(entry)
    return LedgerPage(tuple(entries), head)


def append(connection: sqlite3.Connection, entry: LedgerEntry, head: str) -> None:
    """Write one more line after the one whose hash is given."""
    values = [str(value) if name in ("epsilon_micro", "delta_femto") else value for name, value in vars(entry).items()]
    connection.execute(_INSERT, (*values, entry.link(head)))


def _entry(path: Path, row: tuple[object, ...]) -> LedgerEntry:
    try:
        values = dict(zip(_COLUMNS, row, strict=False))
        values |= {name: int(str(values[name])) for name in ("epsilon_micro", "delta_femto")}
        return LedgerEntry(**values)  # type: ignore[arg-type]
    except ValueError as error:
        raise LedgerError(f"Expected whole amounts in {path}, found line {row[0]} edited.") from error


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", timeout=patience, isolation_level=None, uri=True)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")  # also the directory, so that no old journal is replayed
    except BaseException:
        connection.close()  # a file that is no database
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file; an existing ledger is only checked, and any other file is refused."""
    if _empty(connection):
        for statement in (*_SCHEMA, f"PRAGMA application_id = {_APPLICATION_ID}", f"PRAGMA user_version = {_VERSION}"):
            connection.execute(statement)
    _check(path, connection)
    if _version(connection) == 1:
        connection.execute("ALTER TABLE entries ADD COLUMN step INTEGER")
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _empty(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    return bool(tables == 0)


def _check(path: Path, connection: sqlite3.Connection) -> None:
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    if kind != _APPLICATION_ID or _version(connection) not in _READABLE:
        raise LedgerError(
            f"Expected a ledger of format {' or '.join(map(str, _READABLE))} in {path}, found another kind of file; "
            "nothing was written."
        )


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the file system and of SQLite into one that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        busy = "locked" in str(error)
        advice = "Another process holds it: try again" if busy else "Free some space, or make the file writable"
        raise LedgerError(
            f"Expected to read and write the ledger {path}, found: {error}. Nothing was debited and nothing may be "
            f"released. {advice}."
        ) from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"Expected a ledger in {path}, found: {error}. Nothing was debited; restore the file from a backup."
        ) from error
    except OSError as error:
        raise LedgerError(
            f"Expected to open the ledger {path}, found: {error.strerror}. Nothing was debited and nothing may be "
            "released."
        ) from error
