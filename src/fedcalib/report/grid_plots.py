"""The confusion table of several classes as a grid of shaded cells."""

from __future__ import annotations

from typing import Final

import numpy as np

from fedcalib.report import canvas
from fedcalib.report.canvas import NAMES, RIGHT, WIDTH, Picture, PictureTable, Tip, Words
from fedcalib.report.tables import compact, number, short
from fedcalib.report.values import ConfusionGrid
from fedcalib.types import Bools

WITHHELD: Final = "withheld"
_MOST_WRITTEN: Final = 8  # classes; cells of more are too small for a number
_MOST_NAMED: Final = 24  # classes; of more, some names stand beside the grid
_DARKEST: Final = 0.5  # opacity; numbers stay legible on it in both colour schemes
_HIGHEST: Final = 38.0  # of a row
_LETTERS: Final = 11  # of a name below the grid


def confusion(found: ConfusionGrid, title: str = "Confusion table") -> Picture:
    """Records by actual class (rows) and predicted class (columns); the darker a cell, the larger its share of the row.

    Parameters
    ----------
    found
        The counts; NaN where a cell is withheld.
    title
        Title of the picture.
    """
    size = len(found.names)
    width = (WIDTH - NAMES - RIGHT) / size
    height, top = min(width, _HIGHEST), 22.0
    bottom = top + height * size
    parts = [canvas.label((NAMES + WIDTH - RIGHT) / 2, 13, "predicted class", "name", "middle")]
    parts.append(canvas.label(10, 13, "actual class", "name"))
    tips: list[Tip] = []
    for row, column in np.argwhere(_drawn(found)).tolist():
        x, y = NAMES + column * width, top + row * height
        parts.append(_cell(found, row, column, (x, y, width, height)))
        tips.append(Tip(x + width / 2, y + height / 2, _tip(found, row, column)))
    parts += _names(found.names, width, height, top)
    parts += [
        canvas.tag("rect", x=NAMES + k * width, y=top + k * height, width=width, height=height, kind="diagonal")
        for k in range(size)
    ]
    heads = ("actual class", *(f"predicted {short(name, 40)}" for name in found.names))
    rows = tuple(
        (short(name, 60), *(_written(found, row, column) for column in range(size)))
        for row, name in enumerate(found.names)
    )
    said = Words(title, _reading(found), _in_words(found))
    return canvas.picture(said, bottom + _below(found.names, width), "".join(parts), tips, PictureTable(heads, rows))


def _drawn(found: ConfusionGrid) -> Bools:
    """Which cells are drawn: all of them, or of many classes those that hold something."""
    if len(found.names) <= _MOST_NAMED:
        return np.ones(found.counts.shape, dtype=bool)
    return np.asarray(np.isnan(found.counts) | (found.counts > 0.5))


def _cell(found: ConfusionGrid, row: int, column: int, place: tuple[float, float, float, float]) -> str:
    x, y, width, height = place
    count = found.counts[row, column]
    if np.isnan(count):
        drawn = canvas.tag("rect", x=x, y=y, width=width, height=height, kind="withheld")
    else:
        drawn = canvas.tag(
            "rect", x=x, y=y, width=width, height=height, kind="heat",
            fill_opacity=f"{_DARKEST * found.shown_share(row, column):.3f}",
        )  # fmt: skip
    if len(found.names) > _MOST_WRITTEN:
        return canvas.group("c1", drawn)
    text = "–" if np.isnan(count) else _fitting(round(float(count)), width)
    return canvas.group("c1", drawn) + canvas.label(x + width / 2, y + height / 2 + 4.5, text, "row", "middle")


def _fitting(count: int, width: float) -> str:
    text = f"{count:,}"
    return text if 8 * len(text) < width else compact(count)


def _names(names: tuple[str, ...], width: float, height: float, top: float) -> list[str]:
    """Names of the rows, and of the columns below them, upright where they are long."""
    step, bottom = max(1, -(-len(names) // _MOST_NAMED)), top + height * len(names)
    shown = list(enumerate(names))[::step]
    drawn = [
        canvas.label(NAMES - 8, top + (row + 0.5) * height + 4.5, short(name, 19), "row", "end") for row, name in shown
    ]
    if _fits(names, width):
        return drawn + [
            canvas.label(NAMES + (column + 0.5) * width, bottom + 17, short(name, _LETTERS), "tick", "middle")
            for column, name in shown
        ]
    return drawn + [
        canvas.tag(
            "text", canvas.words(short(name, _LETTERS)), kind="tick", text_anchor="end",
            transform=f"translate({NAMES + (column + 0.5) * width + 4:.1f} {bottom + 8:.1f}) rotate(-90)",
        )
        for column, name in shown
    ]  # fmt: skip


def _fits(names: tuple[str, ...], width: float) -> bool:
    return len(names) <= _MOST_NAMED and 7.5 * max(len(short(name, _LETTERS)) for name in names) < width


def _below(names: tuple[str, ...], width: float) -> float:
    return 28.0 if _fits(names, width) else 16.0 + 7.5 * max(len(short(name, _LETTERS)) for name in names)


def _written(found: ConfusionGrid, row: int, column: int) -> str:
    count = found.counts[row, column]
    return WITHHELD if np.isnan(count) else number(round(float(count)), 0)


def _tip(found: ConfusionGrid, row: int, column: int) -> str:
    said = f"actual {short(found.names[row], 40)}, predicted {short(found.names[column], 40)}: "
    count = found.counts[row, column]
    if np.isnan(count):
        return said + WITHHELD
    share = found.share(row, column)
    of = "" if np.isnan(share) else f", {share:.1%} of the row"
    return f"{said}{'~' if found.noisy else ''}{number(round(float(count)), 0)} records{of}"


def _reading(found: ConfusionGrid) -> str:
    told = ["The darker a cell, the larger its share of the row. Outlined: right predictions."]
    if np.isnan(found.counts).any():
        few = f"cells of 1 to {found.min_count - 1} records" if found.min_count > 1 else "cells of few records"
        told.append(f"Grey: withheld, because they are {few} or would tell what such a cell holds.")
    if found.noisy:
        told.append("Counts carry privacy noise.")
    return " ".join(told)


def _in_words(found: ConfusionGrid) -> str:
    right = [(name, found.share(k, k)) for k, name in enumerate(found.names)]
    return (
        "; ".join(
            f"{short(name)}: {'not stated' if np.isnan(share) else f'{share:.0%} right'}" for name, share in right
        )
        + "."
    )
