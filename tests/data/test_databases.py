"""Records in databases: what comes out of them is what files hold, and nothing can be written into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.databases import Cluster, postgres

import fedcalib as fc
from fedcalib.data import Columns
from fedcalib.data.databases import PostgresTable, files_at, tables_at
from fedcalib.data.reading import read_tables
from fedcalib.data.streaming import RecordStream
from fedcalib.data.tables import BATCH
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records

COLUMNS = Columns(score="risk", label="died", one_site=True, max_missing=1.0)
BY_PERSON = Columns(score="risk", label="died", unit="person_id", one_site=True, max_missing=1.0)
SECRET = b"a secret"


def rows(count: int, seed: int = 0) -> pa.Table:
    """People with one to three records each; some scores are missing."""
    rng = np.random.default_rng(seed)
    risk = rng.random(count)
    return pa.table(
        {
            "person_id": rng.integers(0, count // 2 + 1, count),
            "risk": pa.array(risk, mask=rng.random(count) < 0.01),
            "died": (rng.random(count) < risk).astype(np.int64),
        }
    )


def streamed(stream: RecordStream) -> Records:
    return Records.concatenate(list(stream.batches()))


def content(records: Records) -> list[tuple[float, int]]:
    return sorted(zip(records.given[:, 1].tolist(), records.labels.tolist(), strict=True))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with postgres() as running:
        running.store("scores", rows(BATCH + 77))
        yield running


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    from pyarrow import parquet as pq

    pq.write_table(rows(BATCH + 77), tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def duck(path: Path, table: pa.Table, name: str = "scores") -> str:
    duckdb = pytest.importorskip("duckdb", reason="needs the extra databases")
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return str(path)


@pytest.mark.parametrize("columns", [COLUMNS, BY_PERSON], ids=["records", "people"])
def test_duckdb_holds_what_the_file_holds(tmp_path: Path, parquet: Path, columns: Columns) -> None:
    place = duck(tmp_path / "records.duckdb", rows(BATCH + 77))
    whole = read_tables(tables_at(str(parquet)), columns, seed=SECRET, private=True)
    for tables in (
        tables_at(place, "SELECT * FROM scores;"),
        tables_at("duckdb:", f"FROM '{parquet}'"),
    ):
        again = read_tables(tables, columns, seed=SECRET, private=True)
        assert content(again.federation.records) == content(whole.federation.records)
        assert [one.count for one in again.rejected] == [one.count for one in whole.rejected]
        stream = RecordStream(tables, columns, SECRET)
        assert content(streamed(stream)) == content(whole.federation.records)
        assert [one.count for one in stream.found.rejected] == [one.count for one in whole.rejected]


@pytest.mark.parametrize("columns", [COLUMNS, BY_PERSON], ids=["records", "people"])
def test_postgresql_holds_what_the_file_holds(cluster: Cluster, parquet: Path, columns: Columns) -> None:
    whole = read_tables(tables_at(str(parquet)), columns, seed=SECRET, private=True)
    tables = tables_at(cluster.uri(), "SELECT * FROM scores")
    again = read_tables(tables, columns, seed=SECRET, private=True)
    assert content(again.federation.records) == content(whole.federation.records)
    stream = RecordStream(tables, columns, SECRET)
    assert content(streamed(stream)) == content(whole.federation.records)
    assert [one.count for one in stream.found.rejected] == [one.count for one in whole.rejected]


def test_a_fingerprint_is_that_of_the_records_in_any_order_and_from_any_source(
    cluster: Cluster, tmp_path: Path, parquet: Path
) -> None:
    place = duck(tmp_path / "records.duckdb", rows(BATCH + 77))
    queries = [
        (str(parquet), None),
        (place, "SELECT * FROM scores ORDER BY risk"),
        (cluster.uri(), "SELECT * FROM scores ORDER BY risk DESC"),
    ]
    found = {RecordStream(tables_at(*one), COLUMNS, SECRET).found.fingerprint for one in queries}
    assert len(found) == 1
    without = RecordStream(tables_at(place, "SELECT * FROM scores WHERE risk < 0.9999"), COLUMNS, SECRET)
    other = RecordStream(tables_at(place, "SELECT * FROM scores"), COLUMNS, b"another")
    assert found.isdisjoint({without.found.fingerprint, other.found.fingerprint})


def test_nothing_can_be_written_into_postgresql(cluster: Cluster) -> None:
    cluster.run(
        "CREATE TABLE kept (n int)",
        "CREATE FUNCTION sneak() RETURNS int LANGUAGE sql AS 'INSERT INTO kept VALUES (1) RETURNING n'",
    )
    for query in (
        "SELECT sneak() AS died, 0.5 AS risk",
        "DELETE FROM scores",
        "SELECT 1 AS died, 0.5 AS risk; DELETE FROM scores",
        "WITH gone AS (DELETE FROM scores RETURNING 1) SELECT 1 AS died, 0.5 AS risk",
    ):
        with pytest.raises(InputError, match="Expected rows of the query for postgresql:///postgres, found"):
            RecordStream(tables_at(cluster.uri(), query), COLUMNS, SECRET).read_once()
    left = read_tables(tables_at(cluster.uri(), "SELECT 0.5 AS risk, n AS died FROM kept"), COLUMNS, private=True)
    assert len(left.federation.records) == 0
    assert RecordStream(tables_at(cluster.uri(), "SELECT * FROM scores"), COLUMNS, SECRET).found.records > 60_000


def test_nothing_can_be_written_into_duckdb(tmp_path: Path) -> None:
    place = duck(tmp_path / "records.duckdb", rows(100))
    before = Path(place).read_bytes()
    for query in ("DELETE FROM scores", "SELECT * FROM scores; DROP TABLE scores", "COPY scores TO 'x.csv'"):
        with pytest.raises(InputError, match="Expected one SELECT as the query"):
            RecordStream(tables_at(place, query), COLUMNS, SECRET)
    assert Path(place).read_bytes() == before


def test_numbers_of_any_type_of_postgresql_are_read(cluster: Cluster) -> None:
    query = (
        "SELECT * FROM (VALUES (0.25::numeric, true, 'a'::text), (0.5, false, 'b'), (NULL, true, 'c'))"
        " AS given (risk, died, person_id)"
    )
    found = read_tables(tables_at(cluster.uri(), query), BY_PERSON, seed=0, private=True)
    assert content(found.federation.records) == [(0.25, 1), (0.5, 0)]


def test_what_is_wrong_with_a_database_is_told(cluster: Cluster, tmp_path: Path) -> None:
    place = duck(tmp_path / "records.duckdb", rows(10))
    cases = {
        (place, "SELECT * FROM nowhere"): "Table with name nowhere does not exist",
        (place, None): "state one SELECT with --query",
        (cluster.uri(), "SELECT * FROM nowhere"): 'relation "nowhere" does not exist',
        (cluster.uri(database="none"), "SELECT 1"): 'database "none" does not exist',
        (cluster.uri(), str(tmp_path / "absent.sql")): "Expected to read",
        (str(tmp_path / "absent.duckdb"), "SELECT 1"): "Expected the file",
        (str(tmp_path / "*.csv"), "SELECT 1"): "Expected a database with --query",
    }
    for (where, query), message in cases.items():
        with pytest.raises(InputError, match=re.escape(message)):
            RecordStream(tables_at(where, query), COLUMNS, SECRET)
    assert PostgresTable("", uri="postgresql://me:secret@host:5432/db?sslmode=require").file == (
        "postgresql://host:5432/db"
    )


def test_a_query_may_be_in_a_file(tmp_path: Path) -> None:
    place = duck(tmp_path / "records.duckdb", rows(100))
    (tmp_path / "records.sql").write_text("-- people of this year\nSELECT * FROM scores;\n")
    assert RecordStream(tables_at(place, str(tmp_path / "records.sql")), COLUMNS, SECRET).found.records > 90


def test_folders_and_patterns_are_all_their_files(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv"):
        (tmp_path / name).write_text("died,risk\n1,0.9\n0,0.2\n")
    (tmp_path / "notes.md").write_text("nothing")
    for place in (str(tmp_path), str(tmp_path / "*.csv")):
        assert [path.name for path in files_at(place)] == ["north.csv", "south.csv"]
        assert RecordStream(tables_at(place), COLUMNS, SECRET).found.records == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="Expected files that end in"):
        files_at(str(tmp_path / "empty"))


def test_people_in_a_file_must_be_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("person_id,died,risk\nb,1,0.9\na,0,0.2\nb,0,0.3\n")
    with pytest.raises(InputError, match="Expected rows in the order of 'person_id'"):
        RecordStream(tables_at(str(tmp_path / "a.csv")), BY_PERSON, SECRET).read_once()
    (tmp_path / "a.csv").write_text("person_id,died,risk\na,0,0.2\nb,1,0.9\nb,0,0.3\n")
    stream = RecordStream(tables_at(str(tmp_path / "a.csv")), BY_PERSON, SECRET)
    whole = read_tables(tables_at(str(tmp_path / "a.csv")), BY_PERSON, seed=SECRET, private=True)
    assert content(streamed(stream)) == content(whole.federation.records)
    (tmp_path / "b.csv").write_text("person_id,died,risk\na,0,0.2\n")
    with pytest.raises(InputError, match="Expected one table with the unit 'person_id'"):
        RecordStream(tables_at(str(tmp_path)), BY_PERSON, SECRET)


def test_a_person_whose_records_span_batches_counts_once(tmp_path: Path) -> None:
    many = pa.table(
        {
            "person_id": np.repeat(["a", "b", "c"], [BATCH - 1, BATCH + 2, 3]),
            "risk": np.random.default_rng(0).random(2 * BATCH + 4),
            "died": np.arange(2 * BATCH + 4) % 2,
        }
    )
    from pyarrow import parquet as pq

    pq.write_table(many, tmp_path / "a.parquet")
    stream = RecordStream(tables_at(str(tmp_path / "a.parquet")), BY_PERSON, SECRET)
    whole = read_tables(tables_at(str(tmp_path / "a.parquet")), BY_PERSON, seed=SECRET, private=True)
    assert stream.found.records == 3
    assert content(streamed(stream)) == content(whole.federation.records)


def test_read_takes_a_query(tmp_path: Path) -> None:
    place = duck(tmp_path / "records.duckdb", rows(100))
    with pytest.warns(fc.data.RejectedRecords):
        found = fc.read(
            fc.data.open_query(place, "SELECT risk, died FROM scores"), label="died", score="risk", one_site=True
        )
    assert isinstance(found, Federation)
