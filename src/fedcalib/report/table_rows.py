"""Rows of the report's tables, ready to print: strings, a verdict, and where the marks of the small plot stand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from fedcalib.measured import Measured
from fedcalib.report.values import Better, Diagram, MetricRow, SiteRow, numbers, parts
from fedcalib.report.wording import MISSING, PRIVATE, TOO_FEW, count, decimals_for, interval, number


@final
@dataclass(frozen=True)
class Cell:
    """A value and its interval, as text."""

    value: str
    interval: str


@final
@dataclass(frozen=True)
class Mark:
    """Where a value and its interval stand on the small plot of a row, from 0 to 100; None is not drawn."""

    side: str
    at: float | None
    low: float | None
    high: float | None


@final
@dataclass(frozen=True)
class Row:
    """A metric or a site, before and after."""

    name: str
    note: str
    before: Cell
    after: Cell
    change: Cell
    verdict: str
    tone: str  # good, bad or even
    marks: tuple[Mark, ...]
    records: str = ""
    withheld: str = ""  # said instead of all numbers

    @property
    def only(self) -> Cell:
        """Give the one value of a table that compares nothing."""
        return self.after if self.before.value == MISSING else self.before


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a change is for the better, and whether its interval says so too."""

    words: str
    tone: str


def metric_rows(rows: Sequence[MetricRow]) -> tuple[Row, ...]:
    """Prepare the rows of the metrics table."""
    decimals = decimals_for(value for row in rows for value in (row.before, row.after))
    return tuple(_row(row, decimals) for row in rows)


def site_rows(rows: Sequence[SiteRow]) -> tuple[Row, ...]:
    """Prepare the rows of the table of sites; those with too few records carry no number at all."""
    decimals = decimals_for(value for row in rows for value in (row.before, row.after))
    return tuple(_site_row(row, decimals) for row in rows)


def bin_rows(diagram: Diagram) -> Iterator[tuple[str, ...]]:
    """Prepare the rows of a reliability table: bin, confidence, observed, interval and count."""
    bins = len(diagram.edges) - 1
    edges = numbers(diagram.edges, bins + 1)
    columns = [numbers(part, bins) for part in (diagram.confidence, diagram.observed, diagram.low, diagram.high)]
    counts = numbers(diagram.count, bins)
    for place, (confidence, observed, low, high) in enumerate(zip(*columns, strict=True)):
        yield (
            f"{edges[place]:.3f} to {edges[place + 1]:.3f}",
            number(confidence, 3),
            number(observed, 3),
            interval(Measured(observed, low, high), 3) or MISSING,
            PRIVATE if diagram.count is None else number(counts[place], 0),
        )


def verdict_on(before: Measured | None, after: Measured | None, change: Measured | None, better: Better) -> Verdict:
    """Judge a change; where intervals are known it must stand clear of them."""
    difference, low, high = _difference(before, after, change)
    if math.isnan(difference):
        return Verdict("", "even")
    if difference == 0:
        return Verdict("unchanged", "even")
    if low <= 0 <= high:
        return Verdict("no clear change", "even")
    good = (difference < 0) == (better == "lower")
    word = "better" if good else "worse"
    return Verdict(f"{word} (no interval)" if math.isnan(low) else word, "good" if good else "bad")


def _difference(before: Measured | None, after: Measured | None, change: Measured | None) -> tuple[float, float, float]:
    if change is not None:
        return parts(change)
    first, first_low, first_high = parts(before)
    second, second_low, second_high = parts(after)
    # disjoint intervals: stricter than a test of the difference, and all that two separate intervals allow
    return second - first, second_low - first_high, second_high - first_low


def _row(row: MetricRow, decimals: int) -> Row:
    judged = verdict_on(row.before, row.after, row.change, row.better)
    difference = _difference(row.before, row.after, row.change)[0]
    return Row(
        row.name,
        row.note,
        _cell(row.before, decimals),
        _cell(row.after, decimals),
        Cell(_signed(difference, decimals), interval(row.change, decimals)),
        judged.words,
        judged.tone,
        _marks(row.before, row.after),
    )


def _site_row(row: SiteRow, decimals: int) -> Row:
    if row.too_few:
        empty = Cell(MISSING, "")
        return Row(row.site, "", empty, empty, empty, "", "even", (), PRIVATE, TOO_FEW)
    return replace(_row(MetricRow(row.site, row.before, row.after), decimals), records=count(row.records))


def _cell(measured: Measured | None, decimals: int) -> Cell:
    return Cell(number(parts(measured)[0], decimals), interval(measured, decimals))


def _signed(difference: float, decimals: int) -> str:
    text = number(difference, decimals)
    return f"+{text}" if difference > 0 and text[0].isdigit() else text


def _marks(before: Measured | None, after: Measured | None) -> tuple[Mark, ...]:
    triples = {"before": parts(before), "after": parts(after)}
    seen = [value for triple in triples.values() for value in triple if not math.isnan(value)]
    if not seen or max(seen) <= min(seen):
        return ()
    least, span = min(seen), max(seen) - min(seen)

    def place(value: float) -> float | None:
        return None if math.isnan(value) else round(4 + 92 * (value - least) / span, 2)

    return tuple(Mark(side, *map(place, triple)) for side, triple in triples.items() if not math.isnan(triple[0]))
