"""Decisions at many thresholds, for a slider: rates, alerts and net benefit with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ALERT_RATE, NET_BENEFIT, NPV, PPV, SENSITIVITY, SPECIFICITY
from fedcalib.report.canvas import PictureTable
from fedcalib.report.tables import PageCell, interval, number

DECISIONS: Final = (SENSITIVITY, SPECIFICITY, PPV, NPV, ALERT_RATE, NET_BENEFIT)
_PER: Final = 1000  # alerts are stated per so many records
Column = Mapping[str, list[float | None]]  # value, low and high by threshold


@final
@dataclass(frozen=True, eq=False)
class Explorer:
    """Decisions by threshold, as the result holds them.

    Parameters
    ----------
    thresholds
        The thresholds, rising.
    series
        By name ("model", or "before" and "after"), then by metric: the columns "value", "low" and "high".
    start
        The threshold to show first.
    """

    thresholds: tuple[float, ...]
    series: Mapping[str, Mapping[str, Column]]
    start: float

    @property
    def index(self) -> int:
        """The place of the threshold to show first: the nearest one."""
        return min(range(len(self.thresholds)), key=lambda place: abs(self.thresholds[place] - self.start))

    def to_json(self) -> dict[str, Any]:
        """The table as plain data."""
        return {"threshold": list(self.thresholds), **{name: dict(columns) for name, columns in self.series.items()}}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The figures at the first threshold, by metric."""
        return [
            {"metric": metric.name, "title": title(metric.name), "cells": self._cells(metric.name, self.index)}
            for metric in DECISIONS
        ]

    def _cells(self, metric: str, place: int) -> dict[str, PageCell]:
        return {name: _cell(metric, columns[metric], place) for name, columns in self.series.items()}

    @property
    def table(self) -> PictureTable:
        """All thresholds, for readers without a script."""
        named = [(name, metric.name) for name in self.series for metric in DECISIONS]
        single = len(self.series) == 1
        heads = tuple(title(metric) if single else f"{title(metric)}, {name}" for name, metric in named)
        rows = tuple(
            (f"{at:.4g}", *(_text(_cell(metric, self.series[name][metric], place)) for name, metric in named))
            for place, at in enumerate(self.thresholds)
        )
        return PictureTable(("threshold", *heads), rows)


def title(metric: str) -> str:
    """The name of a figure; alerts are counted per 1,000 records."""
    if metric == ALERT_RATE.name:
        return f"Alerts per {_PER:,}"
    return next(one.title for one in DECISIONS if one.name == metric)


def _cell(metric: str, column: Column, place: int) -> PageCell:
    factor, decimals = (_PER, 1) if metric == ALERT_RATE.name else (1, 4)
    ends = [column[end][place] for end in ("value", "low", "high")]
    value, low, high = (float("nan") if one is None else factor * one for one in ends)
    return PageCell(number(value, decimals), interval(Measured(value, low, high), decimals))


def _text(cell: PageCell) -> str:
    return f"{cell.value} ({cell.interval})" if cell.interval else cell.value
