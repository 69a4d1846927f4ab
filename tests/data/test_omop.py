"""The recipe for OMOP tables, run in both databases on a small hospital whose records were counted by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.databases import postgres

from fedcalib.data import Columns
from fedcalib.data.databases import tables_at
from fedcalib.data.reading import read_tables
from fedcalib.data.streaming import RecordStream

SQL = Path(__file__).resolve().parents[2] / "examples" / "omop" / "records.sql"

TABLES = (
    "CREATE TABLE person (person_id int, gender_concept_id int, year_of_birth int)",
    "CREATE TABLE visit_occurrence (visit_occurrence_id int, person_id int, visit_concept_id int,"
    " visit_start_date date)",
    "CREATE TABLE observation_period (observation_period_id int, person_id int,"
    " observation_period_start_date date, observation_period_end_date date)",
    "CREATE TABLE death (person_id int, death_date date)",
    "CREATE TABLE prediction (visit_occurrence_id int, model text, risk double precision)",
    "INSERT INTO person VALUES (1, 8507, 1950), (2, 8532, 1960), (3, 8507, 1970), (4, 8532, 2015), (5, 8507, 1980)",
    "INSERT INTO observation_period SELECT person_id, person_id, DATE '2020-01-01', DATE '2026-09-30' FROM person",
    "INSERT INTO death VALUES (2, DATE '2026-03-20'), (5, DATE '2026-09-20')",
    """INSERT INTO visit_occurrence VALUES
       (10, 1, 9201, DATE '2026-02-01'), -- survives
       (11, 1, 9201, DATE '2026-05-01'), -- the same person again
       (20, 2, 262, DATE '2026-03-01'),  -- dies on day 19
       (21, 2, 9201, DATE '2026-01-10'), -- dies on day 69, so not within 30
       (30, 3, 9202, DATE '2026-02-01'), -- an outpatient
       (31, 3, 9201, DATE '2025-02-01'), -- before this year
       (32, 3, 9201, DATE '2026-09-15'), -- not observed for 30 days
       (40, 4, 9201, DATE '2026-02-01'), -- a child
       (50, 5, 9201, DATE '2026-09-10'), -- dies on day 10, which is known
       (60, 1, 9201, DATE '2026-03-01')  -- no risk of this model""",
    "INSERT INTO prediction SELECT visit_occurrence_id, 'mortality-2026', visit_occurrence_id / 100.0"
    " FROM visit_occurrence WHERE visit_occurrence_id <> 60",
    "INSERT INTO prediction VALUES (60, 'another', 0.5), (10, 'another', 0.5)",
)
EXPECTED = [(0.10, 0), (0.11, 0), (0.20, 1), (0.21, 0), (0.50, 1)]


@contextmanager
def in_duckdb(folder: Path) -> Iterator[str]:
    duckdb = pytest.importorskip("duckdb", reason="needs the extra databases")
    with duckdb.connect(str(folder / "omop.duckdb")) as connection:
        for statement in TABLES:
            connection.execute(statement)
    yield str(folder / "omop.duckdb")


@contextmanager
def in_postgresql(folder: Path) -> Iterator[str]:
    with postgres() as cluster:
        cluster.run(*TABLES)
        cluster.run("CREATE ROLE reader LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        yield cluster.uri("reader")


@pytest.mark.parametrize("database", [in_duckdb, in_postgresql], ids=["duckdb", "postgresql"])
def test_the_recipe_finds_the_records(tmp_path: Path, database: Callable[[Path], object]) -> None:
    with database(tmp_path) as place:  # type: ignore[attr-defined]
        tables = tables_at(place, str(SQL))
        reading = read_tables(tables, Columns(one_site=True), private=True)
        people = RecordStream(tables, Columns(unit="person_id", one_site=True), b"a secret").found
    records = reading.federation.records
    found = sorted(zip(records.score.round(6).tolist(), records.labels.tolist(), strict=True))
    assert found == EXPECTED
    assert people.records == 3  # people, of whom two have two visits


def test_the_page_shows_the_recipe_that_is_tested() -> None:
    page = SQL.parents[2] / "docs" / "how-to" / "read-a-database.md"
    assert SQL.read_text() in page.read_text()
