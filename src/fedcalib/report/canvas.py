"""What all plots have in common: style, sizes, colours that colour-blind readers can distinguish, and axes of rows."""

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
WIDE: Final = 9.0  # inches; 1440 pixels, sharp in a README and on a high-resolution screen

INK: Final = "#1f2933"
SOFT: Final = "#5b6673"
FAINT: Final = "#dfe3e8"
BEFORE: Final = "#d55e00"  # vermilion
AFTER: Final = "#0072b2"  # blue
ALARM: Final = "#a3195b"  # alarms have a shape of their own as well
SERIES: Final = (BEFORE, AFTER, "#009e73", ALARM, "#b8860b", "#56a0d3", SOFT)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")

# fmt: off
_STYLE: Final = {
    "font.family": ["DejaVu Sans"],  # part of matplotlib, so that every machine draws the same
    "text.parse_math": False,  # a dollar sign in the name of a site is no formula
    "font.size": 9.5, "text.color": INK,
    "axes.edgecolor": "#9aa5b1", "axes.labelcolor": INK, "axes.labelsize": 9.5, "axes.linewidth": 0.8,
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlecolor": INK,
    "axes.titlepad": 8.0, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.unicode_minus": True, "grid.color": FAINT, "grid.linewidth": 0.7,
    "xtick.color": "#9aa5b1", "xtick.labelcolor": SOFT, "xtick.labelsize": 8.5,
    "ytick.color": "#9aa5b1", "ytick.labelcolor": SOFT, "ytick.labelsize": 8.5,
    "legend.frameon": False, "legend.fontsize": 8.8,
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
}
# fmt: on


@final
@dataclass(frozen=True)
class Picture:
    """A finished plot as a PNG.

    Parameters
    ----------
    title
        Its title.
    png
        The file, as bytes.
    alt
        What it shows in words, for readers who cannot see it.
    caption
        A line for below the picture.
    """

    title: str
    png: bytes
    alt: str
    caption: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the PNG's header."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")


@final
@dataclass(frozen=True)
class Words:
    """The text of a picture: its title, one line on how to read it, and what it shows in words."""

    title: str
    reading: str
    alt: str


def draw(words: Words, size: tuple[float, float], paint: Callable[[Any], None]) -> Picture:
    """Draw a picture of `size` inches: the title above, how to read it below, and what `paint` draws in between."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is drawn as a box
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        _frame(figure, words, size)
        paint(figure)
        return Picture(words.title, _png(figure), f"{words.title}. {words.alt} {words.reading}")


def colours(series: int) -> tuple[str, ...]:
    """One colour per series; a single one is blue, and of two the first has the colour of "before"."""
    return (AFTER,) if series == 1 else tuple(SERIES[index % len(SERIES)] for index in range(series))


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


MAX_ROWS: Final = 40  # of a picture that can still be read


def row_axes(axes: Any, names: Sequence[str]) -> Any:
    """Axes with one row per name, the first on top."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    return axes


def height(rows: int, each: float) -> float:
    """Height of a picture with so many rows, in inches."""
    return 1.75 + each * max(min(rows, MAX_ROWS), 2)


def whiskers(values: Iterable[Measured | None]) -> str:
    """A sentence about whiskers if any value has an interval."""
    return " Whiskers: intervals." if any(interval(value) for value in values) else ""


def rows_left_out(rows: Sequence[object]) -> str:
    """A sentence about rows that are not drawn, if any."""
    return f" Only the first {MAX_ROWS} are drawn." if len(rows) > MAX_ROWS else ""
