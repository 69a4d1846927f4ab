"""Numbers and counts as words: aligned, never `nan`, never a private count.

Rows of the report's tables, ready to print: strings, a verdict, and where the marks of the small plot stand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.report.values import Count, Diagram, MetricRow, Number, Public, SiteRow, known, numbers, parts

MISSING = "–"
PRIVATE = "not shown (private)"
TOO_FEW = "too few to show"


def number(value: Number, decimals: int = 4) -> str:
    """Write a number with that many decimals; a value too small for them shows as a bound, not as zero."""
    exact = known(value)
    if math.isnan(exact):
        return MISSING
    smallest = 10.0**-decimals
    if 0 < abs(exact) < smallest / 2:
        return f"{'<' if exact > 0 else '>'} {signed_minus(math.copysign(smallest, exact), decimals)}"
    return signed_minus(exact, decimals)


def signed_minus(value: float, decimals: int) -> str:
    """Write a number with thousands set apart, and a true minus sign in front of it."""
    text = f"{abs(value):,.{decimals}f}" if abs(value) < 1e12 else f"{abs(value):.3g}"
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def interval(measured: Measured | None, decimals: int = 4) -> str:
    """Write an interval as 'low to high'; empty where there is none."""
    _, low, high = parts(measured)
    return "" if math.isnan(low) or math.isnan(high) else f"{number(low, decimals)} to {number(high, decimals)}"


def with_interval(measured: Measured | None, decimals: int = 4) -> str:
    """Write a value and, in brackets, its interval."""
    value, around = number(parts(measured)[0], decimals), interval(measured, decimals)
    return f"{value} ({around})" if around else value


def count(value: Count) -> str:
    """Write a count as far as it may be shown."""
    match value:
        case None:
            return PRIVATE
        case Public(known_before):
            return f"{known_before:,} (public)"
        case Measured():
            text = with_interval(value, 0)
            return text if text == MISSING else f"about {text}"
    return f"{value:,}"


def decimals_for(column: Iterable[Measured | None]) -> int:
    """Choose one number of decimals for a whole column, so that its points align: two to four."""
    halves = [half for _, low, high in map(parts, column) if 0 < (half := (high - low) / 2) < math.inf]
    if not halves:
        return 4
    return min(4, max(2, 1 - math.floor(math.log10(min(halves)))))


def compact(value: float) -> str:
    """Write a count in as few letters as a tick allows: 950, 12k, 3.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:  # what rounds up to the next letter takes it
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def short(text: str, longest: int = 28) -> str:
    """Shorten a name to fit a label."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


@final
@dataclass(frozen=True)
class PageCell:
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
class PageRow:
    """A metric or a site, before and after."""

    name: str
    note: str
    before: PageCell
    after: PageCell
    change: PageCell
    verdict: str
    tone: str  # good, bad or even
    marks: tuple[Mark, ...]
    records: str = ""
    withheld: str = ""  # said instead of all numbers

    @property
    def only(self) -> PageCell:
        """Give the one value of a table that compares nothing."""
        return self.after if self.before.value == MISSING else self.before


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a change is for the better, and whether its interval says so too."""

    words: str
    tone: str


def metric_rows(rows: Sequence[MetricRow]) -> tuple[PageRow, ...]:
    """Prepare the rows of the metrics table."""
    decimals = decimals_for(value for row in rows for value in (row.before, row.after))
    return tuple(_row(row, decimals) for row in rows)


def site_rows(rows: Sequence[SiteRow]) -> tuple[PageRow, ...]:
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


def verdict_on(before: Measured | None, after: Measured | None, change: Measured | None, better: Direction) -> Verdict:
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


def _row(row: MetricRow, decimals: int) -> PageRow:
    judged = verdict_on(row.before, row.after, row.change, row.better)
    difference = _difference(row.before, row.after, row.change)[0]
    return PageRow(
        row.name,
        row.note,
        _cell(row.before, decimals),
        _cell(row.after, decimals),
        PageCell(_signed(difference, decimals), interval(row.change, decimals)),
        judged.words,
        judged.tone,
        _marks(row.before, row.after),
    )


def _site_row(row: SiteRow, decimals: int) -> PageRow:
    if row.too_few:
        empty = PageCell(MISSING, "")
        return PageRow(row.site, "", empty, empty, empty, "", "even", (), PRIVATE, TOO_FEW)
    return replace(_row(MetricRow(row.site, row.before, row.after), decimals), records=count(row.records))


def _cell(measured: Measured | None, decimals: int) -> PageCell:
    return PageCell(number(parts(measured)[0], decimals), interval(measured, decimals))


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
