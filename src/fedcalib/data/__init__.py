"""Scored, labelled records from CSV, Parquet, NPZ and Excel files or from frames, checked on the way in.

`read` and `from_frame` return a `Federation`. Rows are counted from 1 in every message, without the header of a CSV
file. `fedcalib.data.partition` deals one data set out to simulated clients.
"""

from __future__ import annotations

from fedcalib.data.columns import ColumnLayout, Columns
from fedcalib.data.databases import open_query
from fedcalib.data.paths import expand, open_table
from fedcalib.data.reading import Reading, ReadingNote, RejectedRecords, from_frame, read, read_checked
from fedcalib.data.tables import Table

__all__ = ["ColumnLayout", "Columns", "Reading", "ReadingNote", "RejectedRecords", "Table"]
__all__ += ["expand", "from_frame", "open_query", "open_table", "read", "read_checked"]
