"""The sheet every plot is drawn on: one look, one size of type, colours that colour-blind readers can tell apart.

Axes with one named row a thing.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Final, final

from fedcalib.metrics.intervals import Measured
from fedcalib.report.tables import interval, short

DPI: Final = 160
WIDE: Final = 9.0  # inches; 1440 pixels, sharp in a README and on a dense screen

INK: Final = "#1f2933"
SOFT: Final = "#5b6673"
FAINT: Final = "#dfe3e8"
BEFORE: Final = "#d55e00"  # vermilion
AFTER: Final = "#0072b2"  # blue
ALARM: Final = "#a3195b"  # told apart by its shape as well
SERIES: Final = (BEFORE, AFTER, "#009e73", ALARM, "#b8860b", "#56a0d3", SOFT)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")

_LOOK: Final = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that every machine draws the same
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name of a site is a dollar sign
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.titlepad": 8.0,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": "#9aa5b1",
    "ytick.color": "#9aa5b1",
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.8,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
}


@final
@dataclass(frozen=True)
class Picture:
    """A finished plot: the PNG, its title, and what it shows in words for those who cannot see it."""

    title: str
    png: bytes
    alt: str
    caption: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """Give width and height in pixels, as the PNG itself states them."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")


@final
@dataclass(frozen=True)
class Words:
    """What a picture says: its title, one line on how to read it, and what it shows for those who cannot see it."""

    title: str
    reading: str
    alt: str


def draw(words: Words, size: tuple[float, float], paint: Callable[[Any], None]) -> Picture:
    """Draw a picture of that size in inches: the title above, how to read it below, in between what `paint` adds."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", _LOOK]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter the font lacks is drawn as a box
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        _frame(figure, words, size)
        paint(figure)
        return Picture(words.title, _png(figure), f"{words.title}. {words.alt} {words.reading}")


def colours(series: int) -> tuple[str, ...]:
    """Choose a colour a series; one alone is blue, and of two the first is the colour of before."""
    return (AFTER,) if series == 1 else tuple(SERIES[place % len(SERIES)] for place in range(series))


def _frame(figure: Any, words: Words, size: tuple[float, float]) -> None:
    width, height = size
    lines = wrap(words.reading, int(width * 15))
    top, bottom, left = 0.45 / height, (0.24 + 0.16 * len(lines)) / height, 0.16 / width
    figure.get_layout_engine().set(rect=(left / 2, bottom, 1 - left, 1 - top - bottom), w_pad=0.08, h_pad=0.05)
    title = short(words.title, int(width * 8.5))
    figure.text(left, 1 - 0.13 / height, title, fontsize=13, fontweight="bold", va="top")
    figure.text(left, 0.13 / height, "\n".join(lines), fontsize=8.6, color=SOFT, va="bottom", linespacing=1.4)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


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
