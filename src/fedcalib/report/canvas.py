"""The sheet every plot is drawn on: one look, one size of type, colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

DPI: Final = 160
WIDTH: Final = 9.0  # inches; 1440 pixels, sharp in a README and on a dense screen

INK: Final = "#1f2933"
SOFT: Final = "#5b6673"
FAINT: Final = "#dfe3e8"
BEFORE: Final = "#d55e00"  # vermilion
AFTER: Final = "#0072b2"  # blue
ALARM: Final = "#a3195b"  # told apart by its shape as well
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#a3195b", "#b8860b", "#56a0d3", "#5b6673")
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


def draw(title: str, reading: str, alt: str, height: float, paint: Callable[[Any], None]) -> Picture:
    """Draw a picture: the title above, one line below on how to read it, and in between what `paint` adds."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", _LOOK]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter the font lacks is drawn as a box
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasAgg(figure)
        _frame(figure, title, reading, height)
        paint(figure)
        return Picture(title, _png(figure), f"{title}. {alt} {reading}")


def _frame(figure: Any, title: str, reading: str, height: float) -> None:
    top, bottom = 0.5 / height, 0.38 / height
    figure.get_layout_engine().set(rect=(0.01, bottom, 0.98, 1 - top - bottom), w_pad=0.08, h_pad=0.05)
    figure.text(0.018, 1 - 0.13 / height, title, fontsize=13, fontweight="bold", va="top")
    figure.text(0.018, 0.13 / height, reading, fontsize=8.6, color=SOFT, va="bottom")


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
