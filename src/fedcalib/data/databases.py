"""Records in databases: the rows of one read-only query, in Arrow batches, from DuckDB or PostgreSQL.

The query is the site's own: it is stated where the site is configured, and nothing that a server sends becomes part of
it. Only the columns that are needed are fetched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

from fedcalib.data.paths import expand, files_in, open_table
from fedcalib.data.tables import BATCH, Table
from fedcalib.errors import InputError, needs

_DUCKDB: Final = (".duckdb", ".ddb")
_IN_MEMORY: Final = "duckdb:"
_POSTGRESQL: Final = ("postgresql://", "postgres://")
_DUCKDB_MEMORY: Final = "256MB"  # beyond it DuckDB sorts on disk


@dataclass(frozen=True)
class QueryTable(Table, ABC):
    """The rows of a query, which messages call by the database."""

    query: str
    order: str | None = None  # the column by which rows come

    def ordered(self, column: str) -> Table:
        return replace(self, order=column)

    @cached_property
    def names(self) -> tuple[str, ...]:
        with self._rows(f"SELECT * FROM ({self._inner}) AS records LIMIT 0") as reader:  # noqa: S608 - the site's own query
            return tuple(reader.schema.names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        wanted = ", ".join(map(_quoted, columns))
        order = "" if self.order is None else f" ORDER BY {self._sorting(_quoted(self.order))}"
        with self._rows(f"SELECT {wanted} FROM ({self._inner}) AS records{order}") as reader:  # noqa: S608
            for batch in reader:
                for start in range(0, len(batch), BATCH):
                    part = batch.slice(start, BATCH)
                    yield dict(zip(columns, map(_storage, part.columns), strict=True))

    @property
    def _inner(self) -> str:
        return self.query.strip().rstrip(";")

    @abstractmethod
    def _sorting(self, column: str) -> str:
        """What to sort by, so that equal values of a quoted column are neighbours in the order that Arrow has."""

    @abstractmethod
    def _rows(self, sql: str) -> Any:
        """A context in which a reader has the rows of a statement, in batches."""


@final
@dataclass(frozen=True)
class DuckTable(QueryTable):
    """A query in a DuckDB database, which is opened for reading only; or on files, without a database."""

    path: Path | None = None

    @property
    def file(self) -> str:
        return "the DuckDB query" if self.path is None else str(self.path)

    def _sorting(self, column: str) -> str:
        return f"CAST({column} AS VARCHAR)"

    @contextmanager
    def _rows(self, sql: str) -> Iterator[Any]:
        with needs(f"read {self.file}"):
            import duckdb
        with _explained(self.file, duckdb.Error), _connected(self.path) as connection:
            statements = connection.extract_statements(self.query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InputError(f"Expected one SELECT as the query for {self.file}, found something else.")
            yield connection.sql(sql).to_arrow_reader(BATCH)


@final
@dataclass(frozen=True)
class PostgresTable(QueryTable):
    """A query in a PostgreSQL database, in a transaction that cannot write."""

    uri: str = ""

    @property
    def file(self) -> str:
        """The address without the password."""
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _sorting(self, column: str) -> str:
        return f'({column})::text COLLATE "C"'

    @contextmanager
    def _rows(self, sql: str) -> Iterator[Any]:
        with needs(f"read {self.file}"):
            import adbc_driver_manager
            from adbc_driver_postgresql import dbapi
        with (
            _explained(self.file, adbc_driver_manager.Error),
            dbapi.connect(self.uri) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(sql)
            yield cursor.fetch_record_batch()


def open_query(database: str | Path, query: str) -> Table:
    """Open the rows of a query as a table, which `fc.read` takes as it takes a frame.

    Parameters
    ----------
    database
        A file of DuckDB (.duckdb), 'duckdb:' for a query on files alone, or the address of a PostgreSQL database such
        as 'postgresql://reader@/hospital'. Passwords belong into a password file of PostgreSQL. Needs the extra
        `databases`.
    query
        One SELECT. It is run for reading only, each time that records are read.

    Returns
    -------
    Table
        The names of its columns, and its rows in batches.

    Raises
    ------
    InputError
        If `database` is neither; once rows are read, if the query fails.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fedcalib as fc
    >>> _ = Path("scores.csv").write_text("died,risk\\n1,0.9\\n0,0.2\\n0,0.1\\n")
    >>> table = fc.data.open_query("duckdb:", "SELECT died, risk FROM 'scores.csv'")
    >>> fc.read(table, label="died", score="risk", one_site=True).sizes.tolist()  # doctest: +SKIP
    [3]
    """
    text = str(database)
    if text.startswith(_POSTGRESQL):
        return PostgresTable(query, uri=text)
    if text == _IN_MEMORY:
        return DuckTable(query)
    if text.endswith(_DUCKDB):
        if not Path(text).is_file():
            raise InputError(f"Expected the file {text}, found none.")
        return DuckTable(query, path=Path(text))
    raise InputError(
        f"Expected a file that ends in .duckdb, 'duckdb:' for a query on files, or postgresql://..., found {text}."
    )


def is_database(place: str) -> bool:
    """Whether records are in a database, and not in files of rows."""
    return place == _IN_MEMORY or place.startswith(_POSTGRESQL) or place.endswith(_DUCKDB)


def tables_at(place: str, query: str | None = None) -> tuple[tuple[Table, str], ...]:
    """The tables of a site's own place of records: files, folders, patterns, or a database with a query.

    Parameters
    ----------
    place
        A path, a folder, a pattern, or a database as for `open_query`.
    query
        One SELECT, or the path of a file that ends in .sql and holds one.
    """
    if is_database(place):
        return ((open_query(place, _statement(place, query)), "all"),)
    if query is not None:
        raise InputError(f"Expected a database with --query, found {place}; use --data duckdb: for a query on files.")
    return tuple((open_table(path), str(path)) for path in files_at(place))


def files_at(place: str) -> tuple[Path, ...]:
    """The files at a place of records; a file of DuckDB is one, other databases have none."""
    if is_database(place):
        return (Path(place),) if place.endswith(_DUCKDB) else ()
    return tuple(file for path in expand(place) for file in files_in(path))


def _statement(place: str, query: str | None) -> str:
    if query is None:
        raise InputError(f"Expected a query with the database {place}, found none; state one SELECT with --query.")
    if not query.endswith(".sql"):
        return query
    try:
        return Path(query).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Expected to read {query}, found: {getattr(error, 'strerror', None) or error}.") from error


@contextmanager
def _connected(path: Path | None) -> Iterator[Any]:
    """A connection that reads only; rows come in no order unless one is stated, which needs less memory."""
    import duckdb

    settings: dict[str, Any] = {"memory_limit": _DUCKDB_MEMORY, "preserve_insertion_order": False}
    if path is None:
        connection = duckdb.connect(config=settings)
    else:
        connection = duckdb.connect(str(path), read_only=True, config=settings)
    with connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def _storage(column: Any) -> Any:
    """A column without the type of its database: numbers of any precision come as text."""
    return getattr(column, "storage", column)


def _quoted(column: str) -> str:
    doubled = column.replace('"', '""')
    return f'"{doubled}"'


@contextmanager
def _explained(file: str, kind: type[Exception]) -> Iterator[None]:
    """Turn an error of a driver into one that names the database."""
    import pyarrow as pa

    try:
        yield
    except (kind, pa.ArrowException, OSError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise InputError(f"Expected rows of the query for {file}, found: {reason}") from error
