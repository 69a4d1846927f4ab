"""A real PostgreSQL for tests: from the system's package, on a Unix socket alone, as a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USER = "keeper"


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is; Debian does not put servers on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


@dataclass(frozen=True)
class Cluster:
    """A running server; its socket is in a folder."""

    folder: Path

    def uri(self, user: str = USER, database: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri(), autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def store(self, name: str, table: Any, mode: str = "create") -> None:
        """Write an Arrow table, or batches of one."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri()) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table, mode=mode)
            connection.commit()


def _unprivileged() -> dict[str, Any]:
    """Whose processes these are: PostgreSQL does not start as root."""
    if os.geteuid():
        return {}
    entry = next(one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody"))
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _call(words: Sequence[str], who: dict[str, Any]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", **who)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def postgres() -> Iterator[Cluster]:
    """A new server with nothing in it, gone at the end; skipped where the package is not installed."""
    pytest.importorskip("adbc_driver_postgresql", reason="needs the extra databases")
    tools = {name: program(name) for name in ("initdb", "pg_ctl")}
    if None in tools.values():
        pytest.skip("needs PostgreSQL: apt-get install postgresql, or make databases")
    who = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short, since the path of a socket may have 107 characters
    if who:
        os.chown(folder, who["user"], who["group"])
    data = folder / "data"
    own = ["-D", str(data)]
    try:
        _call([str(tools["initdb"]), *own, "--username", USER, "--auth=trust", "--encoding=UTF8", "--no-sync"], who)
        settings = f"-c listen_addresses= -k {folder} -c fsync=off -c autovacuum=off"
        _call([str(tools["pg_ctl"]), *own, "-o", settings, "-w", "-l", str(folder / "log"), "start"], who)
        try:
            yield Cluster(folder)
        finally:
            _call([str(tools["pg_ctl"]), *own, "-m", "immediate", "stop"], who)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
