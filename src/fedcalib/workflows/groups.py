"""Evaluation by group of records: by public lists of values, by calendar windows between public days, or both crossed.

The groups of one column hold different records, so one table with the group as a further index has room for all of
them: a record is in one cell of it. Each grouping column takes one share of the budget, whatever number of groups it
has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.performance import BinaryPerformance
from fedcalib.artifacts.performance_parts import GroupedPerformance
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import METRICS
from fedcalib.report.values import PageTable
from fedcalib.types import Array
from fedcalib.workflows import documents
from fedcalib.workflows.drift import CalendarWindows, Day, Every, NumberedWindows, TimeWindows

_MOST: Final = 1000
_WIDE: Final = 3  # so many groups fit beside each other in a terminal
_CAPTION: Final = "Under each value stands its interval. Groups hold different records."


@final
@dataclass(frozen=True)
class Grouping:
    """The groups of one column: a public list of values."""

    column: str
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        distinct = len(set(self.groups)) == len(self.groups)
        if not self.column or not 1 <= len(self.groups) <= _MOST or not distinct or "" in self.groups:
            raise InputError(
                f"Expected a column with 1 to {_MOST} different groups, found '{self.column}' with "
                f"{', '.join(map(repr, self.groups[:5])) or 'none'}; list them with --groups."
            )


@final
@dataclass(frozen=True)
class Groupings:
    """Which groups are measured: those of columns, and those of calendar windows; with both, each pair of them.

    Parameters
    ----------
    columns
        The columns with their groups.
    windows
        The windows of time; None for none.

    Examples
    --------
    >>> from fedcalib.workflows.groups import Groupings
    >>> found = Groupings.of({"sex": ["F", "M"]}, "month", "2024-01-01", "2024-02-29").groupings
    >>> found[0].column, found[0].groups
    ('sex by month', ('F 2024-01', 'F 2024-02', 'M 2024-01', 'M 2024-02'))
    """

    columns: tuple[Grouping, ...] = ()
    windows: TimeWindows | None = None

    @classmethod
    def of(
        cls,
        groups: Mapping[str, Sequence[Any]] | None,
        by: Every | str | None = None,
        start: Day | str | None = None,
        until: Day | str | None = None,
    ) -> Groupings:
        """Groups by their columns, and windows by the first and the last day that count."""
        if groups is not None and (not isinstance(groups, Mapping) or any(isinstance(v, str) for v in groups.values())):
            raise InputError(f"Expected groups by column, such as {{'sex': ['F', 'M']}}, found {repr(groups)[:80]}.")
        columns = tuple(Grouping(name, tuple(map(str, values))) for name, values in (groups or {}).items())
        return cls(columns, None if by is None else _windows(Every(by), start, until))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that have to be read."""
        return tuple(one.column for one in self.columns)

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """The groups that are measured, grouping by grouping."""
        if self.windows is None:
            return self.columns
        names, by = self._window_names, str(self.windows.by)
        crossed = [
            Grouping(f"{one.column} by {by}", tuple(f"{group} {name}" for group in one.groups for name in names))
            for one in self.columns
        ]
        return tuple(crossed) or (Grouping(by, names),)

    @property
    def _window_names(self) -> tuple[str, ...]:
        windows = self.windows
        return () if windows is None else tuple(windows.name(index) for index in range(len(windows)))

    def over(self, federation: Federation) -> Federation:
        """The same records, with a column for each grouping by windows."""
        if self.windows is None:
            return federation
        names = np.array([*self._window_names, ""])
        window = names[self.windows.place(_days(federation, self.windows))]
        extra = dict(federation.records.extra)
        for one, grouping in zip(self.columns, self.groupings, strict=False):
            known = np.asarray(_column(federation, one.column)).astype(str)
            both = np.char.add(np.char.add(known, " "), window)
            extra[grouping.column] = np.where((window == "") | (known == ""), "", both)
        if not self.columns:
            extra[self.groupings[0].column] = window
        return replace(federation, records=replace(federation.records, extra=extra))


def _windows(by: Every, start: Day | str | None, until: Day | str | None) -> TimeWindows:
    from fedcalib.workflows.drift import as_day

    if start is None or until is None:
        raise InputError(
            "Expected --from and --until (start and until in Python) with groups by time, found at most one of them; "
            "state the first and the last day that count."
        )
    first, last = as_day(start, "--from"), as_day(until, "--until")
    dated = isinstance(first, date)
    if dated != isinstance(last, date):
        raise InputError(f"Expected two dates or two numbers of days, found {first} and {last}.")
    if first > last:  # type: ignore[operator]
        raise InputError(f"Expected --from before --until, found {first} and {last}; swap them.")
    made = CalendarWindows(by, first, last) if dated else NumberedWindows(by, first, last)  # type: ignore[arg-type]
    if len(made) > _MOST:
        raise InputError(f"Expected at most {_MOST} windows, found {len(made)}; choose longer ones.")
    return made


def _days(federation: Federation, windows: TimeWindows) -> Array:
    days = _column(federation, "time")
    if (days.dtype.kind == "M") != isinstance(windows, CalendarWindows):
        kind = "dates" if days.dtype.kind == "M" else "numbered days"
        raise InputError(f"Expected --from and --until as the column of days has them, found {kind} there.")
    return days


def _column(federation: Federation, name: str) -> Array:
    extra = federation.records.extra
    if name not in extra:
        raise InputError(f"Expected a column '{name}' of the records, found {', '.join(sorted(extra)) or 'none'}.")
    return extra[name]


@final
@dataclass(frozen=True, eq=False)
class GroupResult:
    """What was measured by the groups of one column, as it may be shown."""

    found: GroupedPerformance
    share: float | None  # of the budget; None without one

    @classmethod
    def of(cls, found: GroupedPerformance, share: float | None, records: float, min_count: int | None) -> GroupResult:
        """The groups that are large enough to be shown; `records` is the number of all records."""
        small = _small(found, records, min_count)
        told = {name: one for name, one in found.groups.items() if name not in small}
        return cls(replace(found, groups=told, withheld=tuple(name for name in found.groups if name in small)), share)

    @property
    def column(self) -> str:
        """The column of the groups."""
        return self.found.column

    @property
    def shown(self) -> dict[str, Any]:
        """Every group in its order; None for those that are withheld."""
        return {**dict(self.found.groups), **dict.fromkeys(self.found.withheld)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which groups have no records, where that is known exactly, and which are not shown."""
        empty = [name for name, one in self.found.groups.items() if _count(one) == 0]
        told = {
            f"No record is in these groups of '{self.column}': {', '.join(empty)}. See how the groups are written in "
            "the column.": empty,
            f"Groups of '{self.column}' are not shown: fewer than {MIN_RECORDS} records, or needed to hide such a "
            f"group: {', '.join(self.found.withheld)}.": self.found.withheld,
        }
        return tuple(text for text, names in told.items() if names)

    def to_json(self) -> dict[str, Any]:
        """The figures by group, the differences to the first group, and the groups that are withheld."""
        groups = {
            name: {
                "records": _count(one),
                "metrics": documents.metrics(one),
                "unmeasurable": documents.unmeasurable(one),
            }
            for name, one in self.found.groups.items()
        }
        differences = {
            pair: {name: documents.measured(value) for name, value in figures.items()}
            for pair, figures in self.found.differences().items()
        }
        return {
            "column": self.column,
            "share": self.share,
            "groups": groups,
            "differences": differences,
            "withheld": list(self.found.withheld),
        }

    def tables(self) -> list[documents.TextTable]:
        """The groups for people: all metrics side by side, or the main ones of many groups below each other."""
        document = self.to_json()
        groups, apart = document["groups"], document["differences"]
        if not groups:
            return []
        if len(groups) > _WIDE:
            rows = [
                {"site": name, "records": one["records"], "metrics": one["metrics"]} for name, one in groups.items()
            ]
            return [
                replace(table, title=self._title, columns=("group", *table.columns[1:]))
                for table in documents.site_tables(rows, most=_MOST, sort=False)
            ]
        values = {name: one["metrics"] for name, one in groups.items()}
        reasons = {name: one["unmeasurable"] for name, one in groups.items()}
        return [documents.metrics_table(self._title, {**values, **apart}, reasons)]

    @property
    def _title(self) -> str:
        return f"By {self._named}"

    @property
    def _named(self) -> str:
        share = "" if self.share is None else f", with {self.share:.3g} of the budget"
        return f"{self.column}{share}"

    def page_tables(self) -> tuple[PageTable, ...]:
        """The same for a report."""
        document = self.to_json()
        groups, apart = document["groups"], document["differences"]
        columns = {name: (one["metrics"], one["unmeasurable"]) for name, one in groups.items()}
        tables = (
            [PageTable(f"All figures by {self._named}", ("metric", *columns), _rows(columns), _CAPTION)]
            if columns
            else []
        )
        if apart:
            differences: dict[str, tuple[Any, dict[str, str]]] = {name: (values, {}) for name, values in apart.items()}
            title = f"Differences by {self.column}"
            tables.append(PageTable(title, ("metric", *differences), _rows(differences), _CAPTION))
        return tuple(tables)


def _rows(columns: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]]) -> tuple[Any, ...]:
    names = dict.fromkeys(name for values, _ in columns.values() for name in values)
    titles = {metric.name: metric.title for metric in METRICS}
    return tuple(
        (titles[name], tuple(_value(values.get(name), why.get(name)) for values, why in columns.values()))
        for name in names
    )


def _value(value: Mapping[str, float] | None, reason: str | None) -> Measured | str | None:
    return reason if value is None else Measured(**value)


def _count(found: Any) -> int | None:
    exact = isinstance(found, BinaryPerformance) and found.table.exact
    return round(found.records) if exact else None


def _small(found: GroupedPerformance, records: float, min_count: int | None) -> set[str]:
    """The groups that are withheld.

    Exact groups below the minimum are; and if these together with the records of no group are fewer, the next larger
    group as well, since the total less the groups that are shown would tell about them. Noisy ones are withheld where
    they are below the minimum as far as the noise tells.
    """
    sizes = {name: one.records for name, one in found.groups.items()}
    if min_count is None:
        return {name for name, size in sizes.items() if size < MIN_RECORDS or found.groups[name].accuracy is None}
    small = {name for name, size in sizes.items() if 0.5 < size < min_count - 0.5}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        hidden = records - sum(size for other, size in sizes.items() if other not in small)
        if not 0.5 < hidden < min_count - 0.5:
            break
        if sizes[name] > 0.5:
            small.add(name)
    return small
