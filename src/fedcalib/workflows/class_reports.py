"""The part of a report on several classes: figures and tables by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.metrics.intervals import Measured
from fedcalib.report.page import Section
from fedcalib.report.row_plots import forest
from fedcalib.report.values import PageTable
from fedcalib.workflows import documents
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.reports import read_measured


def class_section(found: Measurement, min_count: int | None) -> tuple[Section, ...]:
    """The classes of an evaluation with more than two: precision and recall with their table."""
    rows = class_rows(found, min_count)
    names = [name for name in documents.class_figures(rows) if name in ("precision", "recall")]
    pictures = tuple(
        forest(
            {f"class {row['label']}": _named(row.get(name)) for row in rows},
            name,
            title=f"{name.capitalize()} by class",
        )
        for name in names
    )
    return (Section("By class", pictures, class_table(rows)),) if rows else ()


def class_rows(found: Measurement, min_count: int | None) -> list[dict[str, Any]]:
    """The table by class as plain data, as it may be published; empty with two classes."""
    shown = found.published(min_count or 1)
    return [row.to_json() for row in shown.classes] if isinstance(shown, ClassPerformance) else []


def confusion(found: Measurement) -> list[list[float | None]] | None:
    """Records by actual class (rows) and predicted class, as they may be published; None for a cell that may not be."""
    counts = found.confusion if isinstance(found, ClassPerformance) else None
    return None if counts is None else [[None if np.isnan(one) else one for one in row] for row in counts.tolist()]


def class_table(rows: Sequence[Mapping[str, Any]]) -> tuple[PageTable, ...]:
    """The table by class for a page."""
    names = documents.class_figures(rows)
    told = tuple((f"class {row['label']}", tuple(_named(row.get(name)) for name in names)) for row in rows)
    caption = "Each class against the others; under each value stands its interval."
    return (PageTable("All figures by class", ("class", *names), told, caption),) if rows else ()


def _named(value: Mapping[str, float | None] | None) -> Measured | None:
    found = read_measured(value)
    return None if found is None or np.isnan(found.value) else found
