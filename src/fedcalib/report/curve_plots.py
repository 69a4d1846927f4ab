"""Plots of curves with bands: reliability, ROC, precision and recall, decision curves, trade-offs, and score counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.report import canvas
from fedcalib.report.canvas import LEFT, LINE, RIGHT, WIDTH, Picture, PictureTable, Plot, Scale, Tip, Words
from fedcalib.report.tables import MISSING, PRIVATE, compact, interval, number, short
from fedcalib.report.values import Diagram, Number, PlotLine, known, measured_at, numbers
from fedcalib.types import Floats

_MIN_LOG_VALUE: Final = 1e-12  # with smaller values, a logarithmic axis would show nothing else
_LEVEL: Final = "95% interval"


def roc(curves: Sequence[PlotLine], title: str = "ROC curve") -> Picture:
    """ROC curves: true against false positive rate."""
    plot = Plot.square("false positive rate", "true positive rate", len(curves))
    guess = canvas.line(plot.x(0), plot.y(0), plot.x(1), plot.y(1), "guide")
    reading = "The closer to the upper left corner, the better; the dashed line is guessing."
    return _curves(Words(title, reading + _bands(curves), _in_words(curves)), plot, curves, guess)


def pr(curves: Sequence[PlotLine], prevalence: Number = None, title: str = "Precision and recall") -> Picture:
    """Precision-recall curves; a dashed line marks the prevalence, which is the precision of guessing."""
    plot = Plot.square("recall: positives found", "precision: findings that are positive", len(curves))
    at = known(prevalence)
    guess = "" if np.isnan(at) else canvas.line(plot.x(0), plot.y(at), plot.x(1), plot.y(at), "guide")
    reading = "The closer to the upper right corner, the better." + (guess and " The dashed line is guessing.")
    return _curves(Words(title, reading + _bands(curves), _in_words(curves)), plot, curves, guess)


def smooth_reliability(curves: Sequence[PlotLine], title: str = "Reliability") -> Picture:
    """Observed rates as smooth functions of the predicted probability."""
    plot = Plot.square("predicted probability", "how often it came true", len(curves))
    perfect = canvas.line(plot.x(0), plot.y(0), plot.x(1), plot.y(1), "guide")
    remarks = canvas.label(plot.x.end - 8, plot.y.start - 10, "predicted too high", "remark", "end")
    remarks += canvas.label(plot.x.start + 8, plot.top + 18, "predicted too low", "remark")
    reading = "On the dashed line, what is predicted is what happens." + _bands(curves)
    return _curves(Words(title, reading, _in_words(curves)), plot, curves, perfect + remarks)


def decision(curves: Sequence[PlotLine], title: str = "Decision curve") -> Picture:
    """Net benefit by threshold; a dashed line at zero is that of calling nobody positive."""
    tops = [float(np.nanmax(_columns(curve)[1], initial=0.0)) for curve in curves]
    top = max([*tops, 0.0]) or 0.01
    above = 12 + LINE * len(curves)
    side = (WIDTH - LEFT - RIGHT) * 0.82
    y = Scale(-0.3 * top, 1.15 * top, above + side, above)
    plot = Plot(
        Scale(0, 1, LEFT, WIDTH - RIGHT), y, "threshold", "net benefit per record", above, above + side + canvas.BELOW
    )
    nobody = canvas.line(plot.x(0), y(0), plot.x(1), y(0), "guide")
    reading = (
        "At the threshold that fits the harm of a false alarm, the highest line is best. At zero, there are no alerts."
    )
    words = Words(title, reading + _bands(curves), _in_words(curves))
    return _curves(
        words,
        plot,
        [_above(curve, y.low) for curve in curves],
        nobody,
        dashed=[len(curves) - 1] if len(curves) > 1 else [],
    )


def _above(curve: PlotLine, least: float) -> PlotLine:
    """The part of a curve that does not fall below the plot."""
    x, y, low, high = _columns(curve)
    return PlotLine(
        curve.label,
        x,
        np.where(y < least, np.nan, y),
        np.maximum(low, least),
        np.where(high < least, np.nan, high),
        curve.text,
    )


def _curves(words: Words, plot: Plot, curves: Sequence[PlotLine], guide: str, *, dashed: Sequence[int] = ()) -> Picture:
    """Draw curves with bands over a guide."""
    parts = [canvas.legend([_label(curve) for curve in curves], dashed=dashed), plot.axes(), guide]
    tips: list[Tip] = []
    for index, curve in enumerate(curves):
        kind = "line dash" if index in dashed else "line"
        parts.append(
            canvas.group(canvas.colour(index, len(curves), dashed), *_band(plot, curve, kind), series=curve.label)
        )
        tips += _tips(plot, curve)
    if not tips:
        parts.append(canvas.nothing(plot))
    return canvas.picture(words, plot.height, "".join(parts), tips, _table(plot, curves))


def _band(plot: Plot, curve: PlotLine, kind: str) -> list[str]:
    """The band of a curve and its line, in pieces where values are missing."""
    x, y, low, high = _columns(curve)
    drawn = []
    for start, end in _runs(np.isfinite(x) & np.isfinite(low) & np.isfinite(high)):
        there = [(plot.x(a), plot.y(b)) for a, b in zip(x[start:end], high[start:end], strict=True)]
        back = [(plot.x(a), plot.y(b)) for a, b in zip(x[start:end], low[start:end], strict=True)]
        drawn.append(canvas.path([*there, *reversed(back)], "band", closed=True))
    for start, end in _runs(np.isfinite(x) & np.isfinite(y)):
        points = [(plot.x(a), plot.y(b)) for a, b in zip(x[start:end], y[start:end], strict=True)]
        drawn.append(canvas.path(points, kind) if end - start > 1 else _dot(*points[0]))
    return drawn


def _dot(x: float, y: float, radius: float = 3.6) -> str:
    return canvas.tag("circle", cx=float(x), cy=float(y), r=radius, kind="dot")


def _runs(known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Ends of the stretches without a break."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _tips(plot: Plot, curve: PlotLine) -> list[Tip]:
    x, y, low, high = _columns(curve)
    names = [short(name.split(":")[0], 30) for name in (plot.x_name, plot.y_name)]
    return [
        plot.at(
            x[k], y[k], f"{short(curve.label, 40)}: {names[0]} {number(x[k], 3)}, {names[1]} {_said(y, low, high, k)}"
        )
        for k in np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist()
    ]


def _said(y: Floats, low: Floats, high: Floats, k: int) -> str:
    found = interval(measured_at(y, low, high, k), 3)
    return f"{number(y[k], 3)} ({found})" if found else number(y[k], 3)


def _table(plot: Plot, curves: Sequence[PlotLine]) -> PictureTable:
    rows = []
    for curve in curves:
        x, y, low, high = _columns(curve)
        for k in np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist():
            around = interval(measured_at(y, low, high, k), 4) or MISSING
            rows.append((short(curve.label, 60) or MISSING, _across(plot, x[k]), number(y[k], 4), around))
    return PictureTable(("series", plot.x_name, plot.y_name, _LEVEL), tuple(rows))


def _across(plot: Plot, value: float) -> str:
    return canvas.tick_text(value) if plot.x.logarithmic else number(value, 4)


def trade_off(curves: Sequence[PlotLine], x_name: str, y_name: str, title: str = "Trade-off") -> Picture:
    """An error against the number of clients, epsilon or another cost, both on logarithmic axes."""
    drawn = [one for curve in curves if len((one := _positive(curve)).x)]
    xs = np.concatenate([_columns(curve)[0] for curve in drawn]) if drawn else np.array([1.0, 10.0])
    ys = np.concatenate([_columns(curve)[1] for curve in drawn]) if drawn else np.array([1.0, 10.0])
    top = 12 + LINE * len(drawn)
    y = Scale(float(ys.min()) / 1.5, float(ys.max()) * 1.5, top + 300, top, logarithmic=True)
    x = Scale(float(xs.min()) / 1.15, float(xs.max()) * 1.15, LEFT, WIDTH - RIGHT, logarithmic=True)
    plot = Plot(x, y, x_name, y_name, top, top + 300 + canvas.BELOW)
    marks = "".join(
        canvas.group(canvas.colour(k, len(drawn)), *(_dot(x(a), y(b)) for a, b in zip(*_columns(one)[:2], strict=True)))
        for k, one in enumerate(drawn)
    )
    reading = "Lower is better. Both axes are logarithmic: a straight line is a power law." + _bands(curves)
    return _curves(Words(title, reading, _in_words(curves)), plot, drawn, marks)


def _positive(curve: PlotLine) -> PlotLine:
    """The points that a logarithmic axis can show; a band that reaches zero or below ends at a tenth of its line."""
    x, y, low, high = _columns(curve)
    shown = (x > _MIN_LOG_VALUE) & (y > _MIN_LOG_VALUE)
    x, y, low, high = (part[shown] for part in (x, y, low, high))
    return PlotLine(curve.label, x, y, np.maximum(low, y / 10), np.maximum(high, y / 10), curve.text)


def _label(curve: PlotLine) -> str:
    return ": ".join(part for part in (curve.label or MISSING, curve.text) if part)


def _columns(curve: PlotLine) -> tuple[Floats, Floats, Floats, Floats]:
    x, y, low, high = (numbers(part, len(curve.x)) for part in (curve.x, curve.y, curve.low, curve.high))
    return x, y, low, high


def _bands(curves: Sequence[PlotLine]) -> str:
    return " Bands: 95% intervals." if any(curve.low is not None and curve.high is not None for curve in curves) else ""


def _in_words(curves: Sequence[PlotLine]) -> str:
    return "; ".join(short(_label(curve), 80) for curve in curves) + "." if curves else "No values to show."


def reliability(before: Diagram, after: Diagram | None = None, title: str = "Reliability in bins") -> Picture:
    """Reliability in bins, of one diagram or of two in one plot: the observed rate against the mean prediction."""
    shown = [_DrawnBins.of(diagram) for diagram in (before, after) if diagram is not None]
    plot = Plot.square("mean predicted probability of the bin", "how often it came true", len(shown))
    labels = [": ".join(part for part in (bins.label, bins.ece_text) if part) for bins in shown]
    parts = [canvas.legend(labels), plot.axes(), canvas.line(plot.x(0), plot.y(0), plot.x(1), plot.y(1), "guide")]
    tips: list[Tip] = []
    for index, bins in enumerate(shown):
        parts.append(canvas.group(canvas.colour(index, len(shown)), *bins.marks(plot), series=bins.label))
        tips += bins.tips(plot)
    words = Words(title + before.of, _reading(shown), " ".join(bins.in_words() for bins in shown))
    drawn = "".join(parts) if tips else "".join([*parts, canvas.nothing(plot)])
    return canvas.picture(words, plot.height, drawn, tips, _bin_table(shown))


def _bin_table(shown: Sequence[_DrawnBins]) -> PictureTable:
    heads = ("series", "predicted between", "mean predicted", "observed", _LEVEL, _records(shown))
    return PictureTable(heads, tuple(row for bins in shown for row in bins.rows()))


def reliability_panels(diagrams: Sequence[Diagram], title: str = "Reliability by class") -> Picture:
    """Reliability in bins of several series, each in a small plot of its own."""
    shown = [_DrawnBins.of(diagram) for diagram in diagrams]
    columns = 2 if len(shown) <= _IN_PAIRS else 3
    parts, tips = [], []
    for index, bins in enumerate(shown):
        plot = _panel(index, columns)
        name = canvas.label(plot.x.start, plot.top - 6, short(bins.label, 40 // columns), "row")
        perfect = canvas.line(plot.x(0), plot.y(0), plot.x(1), plot.y(1), "guide")
        parts += [name, _panel_axes(plot), perfect, canvas.group("c1", *bins.marks(plot, 3.0))]
        tips += bins.tips(plot)
    axes = "Across: the predicted probability of the class. Upwards: the share of records that are of it. "
    words = Words(title, axes + _reading(shown), " ".join(bins.in_words() for bins in shown))
    height = _panel(max(len(shown) - 1, 0), columns).height
    return canvas.picture(words, height, "".join(parts), tips, _bin_table(shown))


_IN_PAIRS: Final = 4  # panels; more stand in rows of three


def _panel(index: int, columns: int) -> Plot:
    row, column = divmod(index, columns)
    wide = (WIDTH - RIGHT) / columns
    left, right, side = 36 + column * wide, (column + 1) * wide - 4, wide - 48
    top = 22 + row * (side + 52)
    return Plot(Scale(0, 1, left, right), Scale(0, 1, top + side, top), "predicted", "observed", top, top + side + 24)


def _panel_axes(plot: Plot) -> str:
    bottom = plot.y.start
    drawn = [canvas.line(plot.x(at), plot.top, plot.x(at), bottom, "grid") for at in (0, 0.5, 1)]
    drawn += [canvas.line(plot.x.start, plot.y(at), plot.x.end, plot.y(at), "grid") for at in (0, 0.5, 1)]
    drawn += [canvas.label(plot.x(at), bottom + 15, canvas.tick_text(at), "tick", "middle") for at in (0, 0.5, 1)]
    drawn += [canvas.label(plot.x.start - 6, plot.y(at) + 4, canvas.tick_text(at), "tick", "end") for at in (0, 0.5, 1)]
    return "".join(drawn)


def scores(diagrams: Sequence[Diagram], title: str = "Distribution of scores") -> Picture:
    """Records by bin of the predicted probability, as bars; a bar's area is the share of the records in it."""
    shown = [_DrawnBins.of(diagram) for diagram in diagrams]
    largest = max([float(bins.density.max(initial=0.0)) for bins in shown] or [0.0]) or 1.0
    top = 12 + LINE * len(shown)
    y = Scale(0, largest * 1.05, top + 190, top)
    x = Scale(0, 1, LEFT, WIDTH - RIGHT)
    plot = Plot(x, y, "predicted probability", "share per 0.1 of probability", top, top + 236)
    parts, tips = [canvas.legend([bins.label for bins in shown]), plot.axes()], []
    for index, bins in enumerate(shown):
        bars = [bins.bar(plot, k) for k in range(len(bins.share))]
        parts.append(canvas.group(canvas.colour(index, len(shown)), *bars, series=bins.label))
        tips += bins.score_tips(plot)
    noisy = " Counts carry privacy noise." if any(bins.noisy for bins in shown) else ""
    hidden = f" Counts are {PRIVATE}." if any(bins.count is None for bins in shown) else ""
    heads = ("series", "predicted between", _records(shown), "share")
    table = PictureTable(heads, tuple(row for bins in shown for row in bins.shares()))
    title += diagrams[0].of if diagrams else ""
    words = Words(title, f"How the predictions are spread.{noisy}{hidden}", " ".join(f"{b.label}." for b in shown))
    return canvas.picture(words, plot.height, "".join(parts), tips, table)


def _records(shown: Sequence[_DrawnBins]) -> str:
    return "records (noisy)" if any(bins.noisy for bins in shown) else "records"


@final
@dataclass(frozen=True, eq=False)
class _DrawnBins:
    """A diagram as arrays of floats; NaN where there is nothing to draw."""

    label: str
    ece_text: str
    noisy: bool
    edges: Floats
    confidence: Floats
    observed: Floats
    low: Floats
    high: Floats
    count: Floats | None

    @classmethod
    def of(cls, diagram: Diagram) -> _DrawnBins:
        size = len(diagram.edges) - 1
        confidence, observed, one, other = (
            np.clip(numbers(part, size), 0.0, 1.0)  # noise may take a rate beyond 0 or 1
            for part in (diagram.confidence, diagram.observed, diagram.low, diagram.high)
        )
        count = None if diagram.count is None else np.maximum(np.nan_to_num(numbers(diagram.count, size)), 0.0)
        edges = numbers(diagram.edges, size + 1)
        confidence = np.clip(confidence, edges[:-1], edges[1:])  # and a mean beyond its bin
        low, high = np.minimum(one, other), np.maximum(one, other)
        label = short(diagram.label, 40)
        return cls(label, short(diagram.ece_text, 48), diagram.noisy, edges, confidence, observed, low, high, count)

    @property
    def known(self) -> list[int]:
        return np.flatnonzero(np.isfinite(self.confidence) & np.isfinite(self.observed)).tolist()

    @property
    def share(self) -> Floats:
        """Share of the records in each bin; none where counts are not shown."""
        if self.count is None or not self.count.sum() > 0:
            return np.zeros(0)
        share: Floats = self.count / self.count.sum()
        return share

    def marks(self, plot: Plot, radius: float = 4.4) -> list[str]:
        x, y = self.confidence, self.observed
        drawn = [
            canvas.line(plot.x(x[k]), plot.y(self.low[k]), plot.x(x[k]), plot.y(self.high[k]), "whisker")
            for k in self.known
            if np.isfinite(self.low[k] + self.high[k])
        ]
        return [*drawn, *(_dot(plot.x(x[k]), plot.y(y[k]), radius) for k in self.known)]

    def tips(self, plot: Plot) -> list[Tip]:
        return [
            plot.at(
                self.confidence[k],
                self.observed[k],
                f"{self.label}, {self._bin(k)}: predicted {number(self.confidence[k], 3)}, observed "
                f"{_said(self.observed, self.low, self.high, k)}",
            )
            for k in self.known
        ]

    def score_tips(self, plot: Plot) -> list[Tip]:
        middles = (self.edges[:-1] + self.edges[1:]) / 2
        return [
            plot.at(
                middles[k],
                float(self.density[k]),
                f"{self.label}, {self._bin(k)}: {self._count(k)} records, {share:.1%}",
            )
            for k, share in enumerate(self.share)
        ]

    @property
    def density(self) -> Floats:
        """Share of the records per 0.1 of probability."""
        return self.share * 0.1 / np.maximum(np.diff(self.edges), 1e-3) if len(self.share) else self.share

    def bar(self, plot: Plot, k: int) -> str:
        left, right, top = plot.x(self.edges[k]), plot.x(self.edges[k + 1]), plot.y(float(self.density[k]))
        height = float(plot.y.start - top)
        return canvas.tag("rect", x=float(left), y=float(top), width=float(right - left), height=height, kind="bar")

    def _bin(self, k: int) -> str:
        return f"{self.edges[k]:.3f} to {self.edges[k + 1]:.3f}"

    def _count(self, k: int) -> str:
        if self.count is None:
            return PRIVATE
        return f"~{compact(self.count[k])}" if self.noisy else f"{self.count[k]:,.0f}"

    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                self.label,
                self._bin(k),
                number(self.confidence[k], 3),
                number(self.observed[k], 3),
                interval(measured_at(self.observed, self.low, self.high, k), 3) or MISSING,
                PRIVATE if self.count is None else number(self.count[k], 0),
            )
            for k in range(len(self.edges) - 1)
        ]

    def shares(self) -> list[tuple[str, ...]]:
        counted = self.share
        return [
            (
                self.label,
                self._bin(k),
                PRIVATE if self.count is None else number(self.count[k], 0),
                f"{counted[k]:.1%}" if len(counted) else MISSING,
            )
            for k in range(len(self.edges) - 1)
        ]

    def in_words(self) -> str:
        gap = np.abs(self.confidence - self.observed)
        name = f"{self.label}: {self.ece_text}" if self.ece_text else self.label
        if not np.isfinite(gap).any():
            return f"{name}; no bin to show."
        worst = int(np.nanargmax(gap))
        return (
            f"{name}; the largest gap is at a predicted probability of {self.confidence[worst]:.2f}, "
            f"where the share observed is {self.observed[worst]:.2f}."
        )


def _reading(shown: list[_DrawnBins]) -> str:
    sentences = ["On the dashed line, what is predicted is what happens."]
    if any(np.isfinite(bins.low).any() for bins in shown):
        sentences.append("Lines: 95% intervals.")
    if any(bins.noisy for bins in shown):
        sentences.append("Counts carry privacy noise.")
    return " ".join(sentences)
