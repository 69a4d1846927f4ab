"""The values that pages and plots are made of; they do not depend on tables, runs or files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.types import Floats

Number: TypeAlias = float | None  # None and NaN both mean: there is no value to show
Numbers: TypeAlias = Sequence[Number] | Floats
_MAX_SHOWN = 1e15


@final
@dataclass(frozen=True)
class Public:
    """A count that was public before the run, so that showing it reveals nothing about the data."""

    value: int


Count: TypeAlias = int | Public | Measured | None  # exact, public, estimated under noise, or private


@final
@dataclass(frozen=True)
class MetricRow:
    """One metric before and after; `change` is the paired difference (after minus before) where it was measured."""

    name: str
    before: Measured | None = None
    after: Measured | None = None
    better: Direction = "lower"
    note: str = ""  # what the metric means, in one line
    change: Measured | None = None
    reasons: tuple[str, str] = ("", "")  # why the values before and after are not stated

    def __post_init__(self) -> None:
        if self.better not in ("lower", "higher", "neither"):
            raise InputError(f"Expected better='lower', 'higher' or 'neither' for {self.name}, found {self.better!r}.")


@final
@dataclass(frozen=True)
class Said:
    """A cell of a table that is a text, not a figure."""

    text: str


@final
@dataclass(frozen=True)
class PageTable:
    """A table of figures with intervals under a heading; a text stands where there is no figure, as its reason."""

    title: str
    columns: tuple[str, ...]  # the first names the rows
    rows: tuple[tuple[str, tuple[Measured | Said | str | None, ...]], ...]
    caption: str = ""


@final
@dataclass(frozen=True)
class SiteRow:
    """One site's gap before and after; for a site with too few records only its name may be shown."""

    site: str
    before: Measured | None = None
    after: Measured | None = None
    records: Count = None
    too_few: bool = False

    @property
    def guarded(self) -> SiteRow:
        """The row as it may be shown: a site with too few records keeps its name only."""
        return SiteRow(self.site, too_few=True) if self.too_few else self


@final
@dataclass(frozen=True, eq=False)
class Diagram:
    """One reliability diagram: per bin the mean confidence, the observed rate, its interval and the count.

    Bins without records have None or NaN. Counts may be noisy (`noisy` is then true), or None if they are not shown.
    """

    label: str
    edges: Numbers  # (bins + 1,)
    confidence: Numbers  # (bins,)
    observed: Numbers  # (bins,)
    low: Numbers | None = None  # (bins,): the interval of `observed`, widened by the privacy noise if there is any
    high: Numbers | None = None
    count: Numbers | None = None
    ece_text: str = ""
    noisy: bool = False  # the counts carry privacy noise
    of: str = ""  # what is predicted, where that is not the one event of a binary classifier

    def __post_init__(self) -> None:
        bins = len(self.edges) - 1
        if bins < 1 or not (np.diff(numbers(self.edges, bins + 1)) > 0).all():
            raise InputError(f"Expected two or more edges in rising order for {self.label!r}, found {self.edges!r}.")
        for name in ("confidence", "observed", "low", "high", "count"):
            part = getattr(self, name)
            if part is not None and len(part) != bins:
                raise InputError(f"Expected {bins} values of {name} for {bins + 1} edges, found {len(part)}.")


@final
@dataclass(frozen=True, eq=False)
class ConfusionGrid:
    """Records by actual class (rows) and predicted class (columns); NaN where a cell is withheld."""

    names: tuple[str, ...]  # of the classes
    counts: Floats  # (classes, classes)
    noisy: bool = False  # the counts carry privacy noise
    min_count: int = 0  # the smallest count that is shown, apart from 0

    def __post_init__(self) -> None:
        size = len(self.names)
        if self.counts.shape != (size, size):
            raise InputError(f"Expected {size} x {size} counts for {size} classes, found {self.counts.shape}.")

    def share(self, row: int, column: int) -> float:
        """Share of a row's records in a cell; NaN where a cell of the row is withheld: it would tell the total."""
        total = float(self.counts[row].sum())
        return float(self.counts[row, column]) / total if total > 0 else math.nan

    def shown_share(self, row: int, column: int) -> float:
        """Share of a cell in the sum of the row's cells that are shown."""
        return float(np.nan_to_num(self.counts[row, column] / max(float(np.nansum(self.counts[row])), 1e-9)))


@final
@dataclass(frozen=True, eq=False)
class PlotLine:
    """A line with an optional band around it."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    text: str = ""  # shown beside the label, such as an area with its interval

    def __post_init__(self) -> None:
        for name in ("y", "low", "high"):
            part = getattr(self, name)
            if part is not None and len(part) != len(self.x):
                raise InputError(f"Expected {len(self.x)} values of {name} for {self.label!r}, found {len(part)}.")


@final
@dataclass(frozen=True)
class TimePoint:
    """A value in one window of time, and whether it raised an alarm."""

    label: str
    value: Measured | None = None
    alarm: bool = False
    day: str | int | None = None  # its first day: a date as text, or the number of a day


@final
@dataclass(frozen=True)
class Contender:
    """One method of a comparison with its value in each metric; the others are compared with the reference."""

    name: str
    values: tuple[Measured | None, ...]
    reference: bool = False


def numbers(values: Numbers | None, size: int) -> Floats:
    """Values as an array of `size` floats, with NaN wherever there is nothing to show."""
    if values is None:
        return np.full(size, np.nan)
    column = np.array([known(value) for value in values], dtype=np.float64)
    return column.reshape(size)


def known(value: Number) -> float:
    """The number, or NaN if it is missing, not finite or implausibly large."""
    return float(value) if value is not None and abs(value) < _MAX_SHOWN else math.nan


def parts(measured: Measured | None) -> tuple[float, float, float]:
    """Value, low and high, with NaN where missing; ends in the wrong order are swapped."""
    if measured is None:
        return math.nan, math.nan, math.nan
    low, high = known(measured.low), known(measured.high)
    return (known(measured.value), high, low) if low > high else (known(measured.value), low, high)


def measured_at(value: Floats, low: Floats, high: Floats, place: int) -> Measured:
    """One value of a column with its interval."""
    return Measured(float(value[place]), float(low[place]), float(high[place]))
