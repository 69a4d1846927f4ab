"""Axes with one named row a thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from fedcalib.measured import Measured
from fedcalib.report.canvas import INK
from fedcalib.report.wording import interval, short

MOST: Final = 40  # rows a picture can hold and still be read


def row_axes(axes: Any, names: Sequence[str]) -> Any:
    """Set up one row a name, the first on top."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    return axes


def height(rows: int, each: float) -> float:
    """Say how tall a picture of so many rows is, in inches."""
    return 1.75 + each * max(min(rows, MOST), 2)


def whiskers(values: Iterable[Measured | None]) -> str:
    """Say what the whiskers are, where there are any."""
    return " Whiskers: intervals." if any(interval(value) for value in values) else ""


def cut(rows: Sequence[object]) -> str:
    """Say it where not every row is drawn."""
    return f" Only the first {MOST} are drawn." if len(rows) > MOST else ""
