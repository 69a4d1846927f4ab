"""Records in batches: time, peak memory and sums of one answer over many rows, from Parquet, DuckDB and PostgreSQL.

Run with `python -m benchmarks.deployment.records`; writes records.csv beside itself. Needs the extra `databases`, and
Debian's package of PostgreSQL. ROWS and POSTGRESQL_ROWS make it smaller. Each row is a process of its own: it opens the
records (one pass that checks them and takes their fingerprint) and then answers the query of `fed-bbq` (one more).
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq
from tests.databases import postgres
from tests.memory import PRINT_PEAK

HERE = Path(__file__).parent
ROWS = int(os.environ.get("ROWS", "50000000"))
POSTGRESQL_ROWS = int(os.environ.get("POSTGRESQL_ROWS", "5000000"))
CHUNK = 1_000_000
COLUMNS = ("source", "rows", "seconds_open", "seconds_answer", "peak_mib", "sums", "fingerprint", "load")

ANSWER = f"""
import hashlib, json, os, sys, time
import fedcalib as fc
from fedcalib.data import Columns
from fedcalib.data.databases import tables_at
from fedcalib.data.reading import read_tables
from fedcalib.data.streaming import RecordStream
from fedcalib.loop import Agreement
from fedcalib.remote.streaming import StreamedFederation

place, query, streamed = sys.argv[1], sys.argv[2] or None, sys.argv[3] == "stream"
agreed = Agreement.of(fc.FedBBQ(), fc.SecAgg(), fc.Everyone(), fc.Schema(2, 5))
asked, mechanism = agreed.plan.queries[0], agreed.mechanisms[0]
columns = Columns(one_site=True)
begun = time.monotonic()
tables = tables_at(place, query)
if streamed:
    site = StreamedFederation(RecordStream(tables, columns, b"benchmark"))
    fingerprint, rows = site.fingerprint, len(site.records)
else:
    site = fc.Federation.of([read_tables(tables, columns, private=True).federation.records])
    fingerprint, rows = "-", len(site.records)
opened = time.monotonic()
share = site.gather(mechanism, asked, fc.Simulated(0)) if streamed else mechanism.gather(asked, site, fc.Simulated(0))
answered = time.monotonic()
print(json.dumps(dict(
    rows=rows, seconds_open=round(opened - begun, 1), seconds_answer=round(answered - opened, 1),
    sums=hashlib.sha256(share.tobytes()).hexdigest()[:16], fingerprint=fingerprint[:16],
    load=round(os.getloadavg()[0], 1),
)))
{PRINT_PEAK}
"""


def parts(rows: int) -> Iterator[pa.Table]:
    """Scored, labelled rows, a million at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        score = rng.random(min(CHUNK, rows - start))
        label = (rng.random(len(score)) < score**1.5).astype(np.int8)
        yield pa.table({"score": score, "label": label})


def write_parquet(path: Path, rows: int) -> None:
    """All rows in one file."""
    writer = None
    for part in parts(rows):
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def write_duckdb(path: Path, source: Path) -> None:
    """The rows of a Parquet file in a database."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE scores AS SELECT score, label FROM '{source}'")


def measured(source: str, place: str, query: str = "", how: str = "stream") -> dict[str, Any]:
    """One process that opens the records and answers once."""
    words = [sys.executable, "-c", ANSWER, place, query, how]
    first, peak = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    row = {"source": source, **json.loads(first), "peak_mib": int(peak) // 1024}
    print(row, flush=True)
    return row


def main() -> None:
    """Measure every source, and write the figures; the same rows must have the same sums."""
    select = "SELECT score, label FROM scores"
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_parquet(folder / "some.parquet", POSTGRESQL_ROWS)
        some = [
            measured("Parquet, all in memory", str(folder / "some.parquet"), how="whole"),
            measured("Parquet", str(folder / "some.parquet")),
        ]
        with postgres() as cluster:
            for number, part in enumerate(parts(POSTGRESQL_ROWS)):
                cluster.store("scores", part, "append" if number else "create")
            some.append(measured("PostgreSQL", cluster.uri(), select))
        write_parquet(folder / "all.parquet", ROWS)
        write_duckdb(folder / "all.duckdb", folder / "all.parquet")
        many = [
            measured("Parquet", str(folder / "all.parquet")),
            measured("DuckDB", str(folder / "all.duckdb"), select),
        ]
    for rows in (some, many):
        if len({row["sums"] for row in rows}) != 1:
            raise SystemExit("Expected the same sums of the same rows, found others.")
    with (HERE / "records.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([*some, *many])


if __name__ == "__main__":
    main()
