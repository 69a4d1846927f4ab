"""What all plots have in common: SVG markup, scales, legends, and colours that colour-blind readers tell apart.

A plot is drawn 460 units wide, so that its text stays legible on a telephone and two plots fit beside each other on a
screen and on paper. Colours are classes of one style sheet, which has a dark variant; nothing else is needed to show
it.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final, final

from fedcalib.errors import InputError
from fedcalib.files import save_text
from fedcalib.metrics.intervals import Measured
from fedcalib.report.tables import interval, short

WIDTH: Final = 460.0
LEFT: Final = 60.0  # room for numbers beside the vertical axis
NAMES: Final = 138.0  # room for names of rows instead
RIGHT: Final = 16.0
BELOW: Final = 46.0  # room for numbers and the name of the horizontal axis
LINE: Final = 19.0  # height of a line of the legend
MAX_ROWS: Final = 40  # of a picture that can still be read; its table has all
SERIES: Final = 7  # colours of the style sheet
_LETTER: Final = 6.7  # width of a letter, about
# what HTML and SVG cannot hold: control characters, halves of surrogate pairs and what is no character
_PLANES: Final = "".join(chr((plane << 16) + 0xFFFE) + chr((plane << 16) + 0xFFFF) for plane in range(17))
_ILLEGAL: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANES}]")


def clean(text: str) -> str:
    """A text without characters that a page cannot hold: each becomes the replacement character."""
    return _ILLEGAL.sub("\ufffd", text)


def words(text: str) -> str:
    """A text from outside as markup: whatever it holds, it stays text."""
    return html.escape(clean(text), quote=True)


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element around markup; attributes are escaped, `kind` is the class, and None leaves an attribute out."""
    given = {("class" if key == "kind" else key.replace("_", "-")): value for key, value in attributes.items()}
    said = "".join(f' {key}="{_plain(value)}"' for key, value in given.items() if value is not None)
    return f"<{name}{said}>{''.join(inside)}</{name}>"


def _plain(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else words(str(value))


@final
@dataclass(frozen=True)
class PictureTable:
    """The numbers of a picture as text: names of the columns, and rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True)
class Picture:
    """A finished plot: an SVG drawing, what it shows in words, and its numbers as a table.

    In a notebook it shows itself.

    Parameters
    ----------
    title
        Its title.
    svg
        The drawing, one element without a style of its own: see `standalone`.
    alt
        What it shows in words, for readers who cannot see it.
    reading
        One line on how to read it.
    table
        Its numbers.

    Examples
    --------
    >>> from fedcalib.report.curve_plots import roc
    >>> from fedcalib.report.values import PlotLine
    >>> picture = roc([PlotLine("model", [0.0, 0.2, 1.0], [0.0, 0.8, 1.0])])
    >>> picture.title, picture.table.columns
    ('ROC curve', ('series', 'false positive rate', 'true positive rate', '95% interval'))
    >>> picture.save("roc.svg").name
    'roc.svg'
    """

    title: str
    svg: str
    alt: str
    reading: str = ""
    table: PictureTable = field(default_factory=lambda: PictureTable((), ()))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing."""
        width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)[0]
        return round(float(width)), round(float(height))

    def standalone(self) -> str:
        """The drawing as a file of its own, with its style and a visible title."""
        width, height = self.size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -30 {width} {height + 30}" width="{width}" height="{height + 30}"'  # noqa: E501
        title = f'<rect class="bg" y="-30" width="{width}" height="30"></rect>' + tag(
            "text", words(short(self.title, 58)), x=12, y=-10, kind="title"
        )
        body = re.sub(r'^<svg viewBox="[^"]*"', head, self.svg).replace(
            ">", f"><style>{chart_style()}</style>{title}", 1
        )
        return body + "\n"

    def save(self, path: Path | str) -> Path:
        """Write the drawing as an SVG file.

        Raises
        ------
        InputError
            If the name ends otherwise; a report in a browser writes a PNG of each of its figures.
        """
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise InputError(
                f"Expected a file name that ends in .svg for a picture, found '{path.name}'; write SVG, or take a PNG "
                "from the report in a browser."
            )
        return save_text(path, self.standalone())

    def _repr_svg_(self) -> str:
        return self.standalone()


def chart_style() -> str:
    """The style sheet of all drawings."""
    return files("fedcalib.report").joinpath("chart.css").read_text(encoding="utf-8").strip()


@final
@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale from values to places."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, inside the drawing whatever the value is."""
        low, high, at = (math.log(one) if self.logarithmic else one for one in (self.low, self.high, value))
        share = min(max((at - low) / ((high - low) or 1.0), -0.02), 1.02)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values to mark."""
        return _log_ticks(self.low, self.high) if self.logarithmic else even_ticks(self.low, self.high, most)


def even_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values in equal steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not span > 0:
        return [low]
    step = next(
        one for one in (base * 10.0**power for power in range(-9, 16) for base in (1, 2, 5)) if span / one <= most
    )
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    bases = (1, 2, 5) if high / low < 1e3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        base * 10.0**power for power in powers for base in bases if low * 0.999 <= base * 10.0**power <= high * 1.001
    ]


def around(values: Iterable[float], *, least: float = 1e-3) -> tuple[float, float]:
    """Ends of an axis around values, with some room; NaN counts as nothing."""
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    room = max((high - low) * 0.06, least * max(abs(low), abs(high), 1e-9), 1e-9)
    return low - room, high + room


def tick_text(value: float) -> str:
    """A number beside an axis."""
    return f"{value:,.6g}".replace("-", "\u2212")


@final
@dataclass(frozen=True)
class Tip:
    """A place of a drawing with the values to show there."""

    x: float
    y: float
    text: str


@final
@dataclass(frozen=True)
class Plot:
    """The area of a drawing inside its axes."""

    x: Scale
    y: Scale
    x_name: str
    y_name: str = ""
    top: float = 12.0
    height: float = 400.0

    @classmethod
    def square(cls, x_name: str, y_name: str, lines: int = 0) -> Plot:
        """A plot of rates against rates, below a legend of so many lines."""
        top = 12 + LINE * lines
        side = WIDTH - LEFT - RIGHT
        return cls(
            Scale(0, 1, LEFT, WIDTH - RIGHT),
            Scale(0, 1, top + side * 0.82, top),
            x_name,
            y_name,
            top,
            top + side * 0.82 + BELOW,
        )

    def axes(self, x_ticks: Sequence[tuple[float, str]] | None = None) -> str:
        """Grid, ticks and names; `x_ticks` has places and texts where they are not numbers."""
        bottom, right = self.y.start, self.x.end
        given = [(value, tick_text(value)) for value in self.x.ticks()] if x_ticks is None else x_ticks
        parts = [line(self.x(at), self.top, self.x(at), bottom, "grid") for at, _ in given]
        parts += [line(self.x.start, self.y(at), right, self.y(at), "grid") for at in self.y.ticks()]
        parts += [label(self.x(at), bottom + 17, text, "tick", "middle") for at, text in given]
        parts += [label(self.x.start - 7, self.y(at) + 4, tick_text(at), "tick", "end") for at in self.y.ticks()]
        middle = (self.top + bottom) / 2
        parts.append(label((self.x.start + right) / 2, self.height - 8, short(self.x_name, 60), "name", "middle"))
        parts.append(
            tag("text", words(short(self.y_name, 44)), kind="name", text_anchor="middle",
                transform=f"translate(12 {middle:.1f}) rotate(-90)")
        )  # fmt: skip
        return "".join(parts)

    def at(self, x: float, y: float, text: str) -> Tip:
        """What to show at a point."""
        return Tip(self.x(x), self.y(y), text)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), kind=kind)


def label(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    """A line of text."""
    return tag("text", words(text), x=float(x), y=float(y), kind=kind, text_anchor=anchor)


def path(points: Sequence[tuple[float, float]], kind: str, *, closed: bool = False) -> str:
    """A line through points, or an area within them; nothing without two of them."""
    if len(points) < 2:
        return ""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if closed else ""), kind=kind)


def colour(index: int, series: int, dashed: Sequence[int] = ()) -> str:
    """The class of a series: one alone is blue, of two the first has the colour of "before", dashed ones are grey."""
    if index in dashed:
        return f"c{SERIES - 1}"
    return "c1" if series - len(dashed) == 1 else f"c{index % SERIES}"


def group(kind: str, *inside: str, series: str = "") -> str:
    """What belongs to one series."""
    return tag("g", *inside, kind=kind, data_series=series or None)


def legend(labels: Sequence[str], *, dashed: Sequence[int] = ()) -> str:
    """Names of series above a plot, one per line."""
    parts = []
    for index, name in enumerate(labels):
        y = 12 + LINE * index
        dash = " dash" if index in dashed else ""
        parts.append(
            group(
                colour(index, len(labels), dashed),
                line(LEFT, y, LEFT + 22, y, f"line{dash}"),
                series=name.split(":")[0],
            )
        )
        parts.append(label(LEFT + 29, y + 4, short(name, 56), "legend"))
    return "".join(parts)


def picture(said: Words, height: float, inside: str, tips: Sequence[Tip], table: PictureTable) -> Picture:
    """Put a drawing together."""
    shown = json.dumps([[round(tip.x, 1), round(tip.y, 1), clean(tip.text)] for tip in tips], ensure_ascii=False)
    alt = f"{said.title}. {said.alt} {said.reading}".strip()
    background = f'<rect class="bg" width="{WIDTH:.0f}" height="{height:.0f}"></rect>'
    drawn = (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" class="fc" role="img" aria-label="{words(short(alt, 600))}" '
        f'data-tips="{words(shown)}">{background}{inside}</svg>'
    )
    return Picture(clean(said.title), drawn, clean(alt), clean(said.reading), table)


@final
@dataclass(frozen=True)
class Words:
    """The text of a picture: its title, one line on how to read it, and what it shows in words."""

    title: str
    reading: str
    alt: str


def nothing(plot: Plot) -> str:
    """A remark in an empty plot."""
    return label(
        (plot.x.start + plot.x.end) / 2, (plot.top + plot.y.start) / 2, "no values to show", "remark", "middle"
    )


def whiskers(values: Iterable[Measured | None]) -> str:
    """A sentence about whiskers if any value has an interval."""
    return " Lines: 95% intervals." if any(interval(value) for value in values) else ""


def rows_left_out(rows: Sequence[object]) -> str:
    """A sentence about rows that are not drawn, if any."""
    return f" Only the first {MAX_ROWS} are drawn; the table has all." if len(rows) > MAX_ROWS else ""


@final
@dataclass(frozen=True)
class Figures:
    """Pictures by name; in a notebook they show themselves side by side.

    Parameters
    ----------
    pictures
        The pictures.

    Examples
    --------
    >>> from fedcalib.report.canvas import Figures
    >>> from fedcalib.report.curve_plots import roc
    >>> found = Figures({"roc": roc([])})
    >>> list(found), found["roc"].title
    (['roc'], 'ROC curve')
    """

    pictures: Mapping[str, Picture]

    def __getitem__(self, name: str) -> Picture:
        """One picture by its name."""
        if name not in self.pictures:
            raise InputError(
                f"Expected the name of a picture ({', '.join(self.pictures) or 'there is none'}), found '{name}'."
            )
        return self.pictures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pictures)

    def __len__(self) -> int:
        return len(self.pictures)

    def save(self, folder: Path | str) -> dict[str, Path]:
        """Write each picture as an SVG file into a folder; return where each one is."""
        return {name: one.save(Path(folder) / f"{name}.svg") for name, one in self.pictures.items()}

    def _repr_html_(self) -> str:
        return notebook_html(tuple(self.pictures.values()))


def notebook_html(pictures: Iterable[Picture]) -> str:
    """Pictures side by side, for a cell of a notebook."""
    cards = "".join(
        f'<figure style="margin:0;flex:0 1 {WIDTH:.0f}px"><figcaption><b>{words(one.title)}</b> {words(one.reading)}'
        f"</figcaption>{one.svg}</figure>"
        for one in pictures
    )
    return f'<style>{chart_style()}</style><div style="display:flex;flex-wrap:wrap;gap:16px">{cards}</div>'
