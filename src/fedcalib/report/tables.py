"""Rows of the report's tables as text, with a verdict and the positions of the marks in their small plots.

Numbers are aligned within a column, never shown as `nan`, and private counts are never shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.report.values import (
    Count,
    MetricRow,
    Number,
    PageTable,
    Public,
    Said,
    SiteRow,
    known,
    parts,
)

MISSING = "–"
_DECIMALS = 4
_INVISIBLE = 5e-5  # a difference that would be shown as zero
PRIVATE = "not shown (private)"
TOO_FEW = "too few to show"


def number(value: Number, decimals: int = 4) -> str:
    """A number with so many decimals; a value too small for them is shown as a bound, not as zero."""
    exact = known(value)
    if math.isnan(exact):
        return MISSING
    smallest = 10.0**-decimals
    if 0 < abs(exact) < smallest / 2:
        return f"{'<' if exact > 0 else '>'} {signed_minus(math.copysign(smallest, exact), decimals)}"
    return signed_minus(exact, decimals)


def signed_minus(value: float, decimals: int) -> str:
    """A number with thousands separators and a typographic minus sign."""
    text = f"{abs(value):,.{decimals}f}" if abs(value) < 1e12 else f"{abs(value):.3g}"
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def interval(measured: Measured | None, decimals: int = 4) -> str:
    """An interval as "low to high"; empty if there is none."""
    _, low, high = parts(measured)
    return "" if math.isnan(low) or math.isnan(high) else f"{number(low, decimals)} to {number(high, decimals)}"


def with_interval(measured: Measured | None, decimals: int = 4) -> str:
    """A value and, in brackets, its interval."""
    value, around = number(parts(measured)[0], decimals), interval(measured, decimals)
    return f"{value} ({around})" if around else value


def count(value: Count) -> str:
    """A count, as far as it may be shown."""
    match value:
        case None:
            return PRIVATE
        case Public(constant):
            return f"{constant:,} (public)"
        case Measured():
            text = with_interval(value, 0)
            return text if text == MISSING else f"about {text}"
    return f"{value:,}"


def decimals_for(column: Iterable[Measured | None]) -> int:
    """Number of decimals for a whole column, so that its decimal points align: two to four."""
    halves = [half for _, low, high in map(parts, column) if 0 < (half := (high - low) / 2) < math.inf]
    if not halves:
        return 4
    return min(4, max(2, 1 - math.floor(math.log10(min(halves)))))


def compact(value: float) -> str:
    """A count in few letters, for ticks: 950, 12k, 3.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:  # a value that rounds up to the next letter gets it
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def short(text: str, longest: int = 28) -> str:
    """A name, shortened to fit a label."""
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
    """Position of a value and its interval in the small plot of a row, from 0 to 100; None is not drawn."""

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
    withheld: str = ""  # shown instead of all numbers

    @property
    def only(self) -> PageCell:
        """The one value of a table without before and after."""
        return self.before if self.after.value == MISSING else self.after


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a change is an improvement, in words and as a tone: good, bad or even."""

    words: str
    tone: str


def metric_rows(rows: Sequence[MetricRow]) -> tuple[PageRow, ...]:
    """Rows of the table of metrics, with as many decimals as a terminal shows."""
    return tuple(_row(row, _DECIMALS) for row in rows)


def figure_table(table: PageTable) -> dict[str, object]:
    """A table of figures as text, for the template."""
    rows = [(name, [_figure(value) for value in values]) for name, values in table.rows]
    return {"title": table.title, "columns": table.columns, "rows": rows, "caption": table.caption}


def _figure(value: Measured | Said | str | None) -> PageCell:
    if isinstance(value, Said):
        return PageCell(value.text, "")
    return PageCell(MISSING, value) if isinstance(value, str) else _cell(value, _DECIMALS)


def site_rows(rows: Sequence[SiteRow]) -> tuple[PageRow, ...]:
    """Rows of the table of sites; those with too few records have no numbers at all."""
    decimals = decimals_for(value for row in rows for value in (row.before, row.after))
    return tuple(_site_row(row, decimals) for row in rows)


def verdict_on(before: Measured | None, after: Measured | None, change: Measured | None, better: Direction) -> Verdict:
    """Verdict on a change; where intervals are known, the interval of the difference must not contain zero."""
    difference, low, high = _difference(before, after, change)
    if math.isnan(difference):
        return Verdict("", "even")
    if abs(difference) < _INVISIBLE:
        return Verdict("unchanged", "even")
    if low <= 0 <= high:
        return Verdict("no clear change", "even")
    if better == "neither":
        return Verdict("changed (no interval)" if math.isnan(low) else "changed", "even")
    good = (difference < 0) == (better == "lower")
    word = "better" if good else "worse"
    return Verdict(f"{word} (no interval)" if math.isnan(low) else word, "good" if good else "bad")


def _difference(before: Measured | None, after: Measured | None, change: Measured | None) -> tuple[float, float, float]:
    if change is not None:
        return parts(change)
    first, first_low, first_high = parts(before)
    second, second_low, second_high = parts(after)
    # disjoint intervals: stricter than a test of the difference, which two separate intervals do not allow
    return second - first, second_low - first_high, second_high - first_low


def _row(row: MetricRow, decimals: int) -> PageRow:
    verdict = verdict_on(row.before, row.after, row.change, row.better)
    difference = _difference(row.before, row.after, row.change)[0]
    return PageRow(
        row.name,
        row.note,
        _cell(row.before, decimals, row.reasons[0]),
        _cell(row.after, decimals, row.reasons[1]),
        PageCell(_signed(difference, decimals), interval(row.change, decimals)),
        verdict.words,
        verdict.tone,
        _marks(row.before, row.after),
    )


def _site_row(row: SiteRow, decimals: int) -> PageRow:
    if row.too_few:
        empty = PageCell(MISSING, "")
        return PageRow(row.site, "", empty, empty, empty, "", "even", (), PRIVATE, TOO_FEW)
    return replace(_row(MetricRow(row.site, row.before, row.after), decimals), records=count(row.records))


def _cell(measured: Measured | None, decimals: int, reason: str = "") -> PageCell:
    return PageCell(number(parts(measured)[0], decimals), interval(measured, decimals) if measured else reason)


def _signed(difference: float, decimals: int) -> str:
    text = number(difference, decimals)
    return f"+{text}" if difference > 0 and text[0].isdigit() else text


def _marks(before: Measured | None, after: Measured | None) -> tuple[Mark, ...]:
    triples = {"before": parts(before), "after": parts(after)}
    shown = [value for triple in triples.values() for value in triple if not math.isnan(value)]
    if not shown or max(shown) <= min(shown):
        return ()
    least, span = min(shown), max(shown) - min(shown)

    def position(value: float) -> float | None:
        return None if math.isnan(value) else round(4 + 92 * (value - least) / span, 2)

    return tuple(Mark(side, *map(position, triple)) for side, triple in triples.items() if not math.isnan(triple[0]))
