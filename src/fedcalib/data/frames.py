"""Frames as tables: whatever Arrow can convert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fedcalib.data.tables import BATCH, Table
from fedcalib.errors import InputError


@final
@dataclass(frozen=True)
class FrameTable(Table):
    """A pandas, Arrow or Polars frame."""

    frame: Any  # an Arrow table

    @classmethod
    def of(cls, frame: Any) -> FrameTable:
        """Wrap anything that Arrow can convert to a table."""
        import pyarrow as pa

        try:
            return cls(pa.table(frame))
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(f"Expected a pandas or Arrow frame, found {type(frame).__name__}: {error}") from error

    @property
    def file(self) -> str:
        return "the frame"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.frame.column_names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for batch in self.frame.select(list(columns)).to_batches(BATCH):
            yield {name: batch.column(name) for name in columns}
