"""The report of a command: a page, and the pictures beside it.

Metrics are those that the server computed; tables and pictures of an exact table show it with merged cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np

from fedcalib.artifacts.performance import BinaryPerformance, Performance, PerformanceCurve
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.estimation.decisions import Decisions
from fedcalib.estimation.estimates import Ratios
from fedcalib.estimation.score_rates import Bins, Estimates
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import BINS
from fedcalib.metrics.table import (
    ACCURACY,
    AUC,
    BRIER,
    CALIBRATION_IN_THE_LARGE,
    ECE,
    METRICS,
    NET_BENEFIT,
    NLL,
    NPV,
    OBSERVED_EXPECTED,
    PPV,
    PREVALENCE,
    SENSITIVITY,
    SLOPE,
    SPECIFICITY,
    Metric,
)
from fedcalib.report import curve_plots
from fedcalib.report.canvas import Figures, Picture
from fedcalib.report.explorer import DECISIONS, Explorer
from fedcalib.report.page import Page, render
from fedcalib.report.row_plots import forest
from fedcalib.report.values import Diagram, MetricRow, PlotLine, SiteRow
from fedcalib.types import Floats
from fedcalib.workflows import documents
from fedcalib.workflows.documents import Measurement

_FEW: Final = 60  # cells
_THRESHOLDS: Final = tuple(round(place / 100, 2) for place in range(1, 100))
# what a page shows first
MAIN: Final = (
    AUC, ECE, CALIBRATION_IN_THE_LARGE, SLOPE, OBSERVED_EXPECTED, BRIER, NLL,
    SENSITIVITY, SPECIFICITY, PPV, NPV, NET_BENEFIT,
)  # fmt: skip
_FOREST: Final[Mapping[Metric, float | None]] = {CALIBRATION_IN_THE_LARGE: 0.0, SLOPE: 1.0, AUC: None}


def files(page: Page, pictures: Mapping[str, Picture]) -> dict[str, bytes]:
    """Render the page, and write its main pictures beside it."""
    return {
        "report.html": render(page).encode(),
        **{f"{name}.svg": one.standalone().encode() for name, one in pictures.items()},
    }


def metric_rows(
    before: Measurement | None,
    after: Measurement | None = None,
    change: Mapping[str, Measured] | None = None,
) -> tuple[MetricRow, ...]:
    """List every metric that was measured: in one column, or before and after with the paired change."""
    sides = [documents.metrics(report) or {} for report in (before, after)]
    reasons = [documents.unmeasurable(report) for report in (before, after)]
    names = dict.fromkeys(name for side in sides for name in side)
    known = {metric.name: metric for metric in METRICS}
    first = [metric.name for metric in MAIN if metric.name in names]
    return tuple(
        MetricRow(
            known[name].title,
            before=read_measured(sides[0].get(name)),
            after=read_measured(sides[1].get(name)),
            better=known[name].direction,
            note=known[name].definition,
            change=(change or {}).get(name),
            reasons=(reasons[0].get(name, ""), reasons[1].get(name, "")),
        )
        for name in dict.fromkeys([*first, *names])
    )


def read_measured(value: Mapping[str, float | None] | None) -> Measured | None:
    """A figure from plain data, with NaN for what is missing."""
    return None if value is None else Measured(**{name: np.nan if n is None else n for name, n in value.items()})


def diagram(label: str, found: Measurement | None, min_count: int | None = MIN_RECORDS) -> Diagram | None:
    """Draw a reliability table as it may be published; bins that drown in noise show nothing."""
    if not isinstance(found, Performance):
        return None
    shown = found.published(min_count or 1)
    try:
        bins = _unions(shown) if isinstance(shown, BinaryPerformance) else shown.reliability(BINS)
    except InputError:  # nothing of the table may be shown
        return None
    if not np.nansum(bins.records) > 0:
        return None
    below_noise = bins.below_noise > 0
    return Diagram(
        label=label,
        edges=bins.edges,
        confidence=np.where(below_noise, np.nan, bins.score),
        observed=np.where(below_noise, np.nan, bins.rate.value),
        low=np.where(below_noise, np.nan, bins.rate.low),
        high=np.where(below_noise, np.nan, bins.rate.high),
        count=bins.records,
        ece_text="" if found.ece is None else f"ECE {found.ece.value:.4f}",
        noisy=not shown.exact,
        of="" if isinstance(shown, BinaryPerformance) else " of the most likely class",
    )


def _unions(shown: BinaryPerformance) -> Bins:
    """Bins of about equal width that are unions of a table's cells.

    Bins with edges of their own would be a second table of the same records, and the difference of two tables shows
    the few records between an edge of the one and an edge of the other.
    """
    bins, place = shown.reliability(BINS), bin_index_unchecked(shown.sheet.score, BINS)
    used, first = np.unique(place, return_index=True)
    edges = np.append(shown.table.edges[:-1][first], 1.0)
    rate = Estimates(*(getattr(bins.rate, name)[used] for name in ("value", "low", "high")))
    return Bins(edges, bins.records[used], bins.score[used], rate, bins.below_noise[used])


def _binary(lines: Mapping[str, Measurement], min_count: int | None) -> dict[str, BinaryPerformance]:
    """The tables of two classes as they may be published; empty where one of them may not, or has more classes."""
    shown = {name: one.published(min_count or 1) for name, one in lines.items()}
    found = {name: one for name, one in shown.items() if isinstance(one, BinaryPerformance) and one.records > 0}
    return found if len(found) == len(shown) else {}


def figures(lines: Mapping[str, Measurement], min_count: int | None = None) -> Figures:
    """The pictures of evaluations by name: reliability, scores, ROC, precision-recall and decision curves."""
    bins = [one for name, found in lines.items() if (one := diagram(name, found, min_count)) is not None]
    drawn: dict[str, Picture] = {}
    binary = _binary(lines, min_count)
    if binary:
        drawn["reliability"] = curve_plots.smooth_reliability([_smooth(name, one) for name, one in binary.items()])
    if bins:
        named = curve_plots.reliability(bins[0], bins[1] if len(bins) > 1 else None)
        drawn |= {"bins" if binary else "reliability": named, "scores": curve_plots.scores(bins[:2])}
    return Figures({**drawn, **_ranking(binary, lines)})


def _smooth(name: str, one: BinaryPerformance) -> PlotLine:
    return _line(name, one.smooth_reliability(), "" if one.ece is None else f"ECE {one.ece.value:.4f}")


def _ranking(binary: Mapping[str, BinaryPerformance], lines: Mapping[str, Measurement]) -> dict[str, Picture]:
    if not binary:
        return {}
    first = next(iter(binary.values())).measures()
    prevalence = first[PREVALENCE.name].value if PREVALENCE.name in first else None
    pairs = binary.items()
    return {
        "decision": curve_plots.decision(_decisions(binary)),
        "roc": curve_plots.roc([_line(name, one.roc(), _area(lines[name])) for name, one in pairs]),
        "pr": curve_plots.pr([_line(name, one.pr()) for name, one in pairs], prevalence),
    }


def _area(found: Measurement) -> str:
    return "" if found.auc is None else f"AUC {found.auc.value:.4f}"


def _decisions(binary: Mapping[str, BinaryPerformance]) -> list[PlotLine]:
    traced = {name: one.decision_curve(_edges(one)) for name, one in binary.items()}
    lines = [
        PlotLine(name, one.threshold, one.net_benefit.value, one.net_benefit.low, one.net_benefit.high)
        for name, one in traced.items()
    ]
    every = next(iter(binary.values())).decision_curve()
    return [*lines, PlotLine("call everybody positive", every.threshold, every.treat_all.value)]


def _edges(found: BinaryPerformance) -> Floats | None:
    """Where the few cells of an exact table begin, so that no threshold lies inside one; None for a usual grid."""
    starts = found.table.edges[:-1][found.table.counts.sum(axis=0) > 0]
    inside = starts[(starts > 0.005) & (starts < 0.995)]
    return inside if found.exact and 2 <= len(inside) < _FEW else None


def _line(label: str, traced: PerformanceCurve, text: str = "") -> PlotLine:
    known = ~(np.isnan(traced.x.value) | np.isnan(traced.y.value))
    y = traced.y
    return PlotLine(label, traced.x.value[known], y.value[known], y.low[known], y.high[known], text)


def explorer(lines: Mapping[str, Measurement], min_count: int | None = None) -> Explorer | None:
    """Decisions at many thresholds, from the tables as they may be published; None with more than two classes."""
    binary = {name: one for name, one in _binary(lines, min_count).items() if one.sheet.known[2]}
    if not binary or len(binary) < len(lines):
        return None
    first = next(iter(binary.values()))
    start, few = first.threshold, _edges(first)
    at = tuple(sorted({*(_THRESHOLDS if few is None else few.tolist()), start}))
    return Explorer(at, {name: _explored(one, at) for name, one in binary.items()}, start)


def _explored(found: BinaryPerformance, thresholds: tuple[float, ...]) -> dict[str, dict[str, list[float | None]]]:
    at = Decisions(found.sheet, np.array(thresholds))
    columns: dict[str, list[Measured]] = {}
    for metric in DECISIONS:
        rates: Ratios | None = None if metric is NET_BENEFIT else getattr(at, metric.name)()
        columns[metric.name] = [
            at.net_benefit(place).normal(high=1.0) if rates is None else rates.rate(place)
            for place in range(len(thresholds))
        ]
        if found.threshold in thresholds:  # the figure of the whole table, as everywhere else
            columns[metric.name][thresholds.index(found.threshold)] = found.at(found.threshold)[metric.name]
    return {name: _column(values) for name, values in columns.items()}


def _column(values: Sequence[Measured]) -> dict[str, list[float | None]]:
    ends = {end: [float(getattr(one, end)) for one in values] for end in ("value", "low", "high")}
    known = [isfinite(value) for value in ends["value"]]
    return {
        end: [one if ok and isfinite(one) else None for one, ok in zip(column, known, strict=True)]
        for end, column in ends.items()
    }


def forests(
    kind: str, parts: Mapping[str, Measurement | None], overall: Measurement, remarks: Mapping[str, str] | None = None
) -> tuple[Picture, ...]:
    """Forest plots by site or group: calibration in the large, slope and AUC, or accuracy with several classes."""
    whole = overall.measures() if isinstance(overall, Performance) else {}
    wanted = _FOREST if AUC.name in whole else {ACCURACY: None}
    drawn = []
    for metric, target in wanted.items():
        rows = {name: _stated(found, metric.name) for name, found in parts.items()}
        if any(row is not None for row in rows.values()):
            title, remark = f"{metric.title} by {kind}", (remarks or {}).get(metric.name, "")
            drawn.append(
                forest(rows, metric.title, title=title, guide=target, overall=whole.get(metric.name), remark=remark)
            )
    return tuple(drawn)


def _stated(found: Measurement | None, name: str) -> Measured | None:
    return found.measures().get(name) if isinstance(found, Performance) else None


def headline(found: Measurement) -> str:
    """The main figures in a sentence."""
    known = documents.metrics(found) or {}
    said = [
        f"{metric.title} {value['value']:.4f} ({value['low']:.4f} to {value['high']:.4f})"
        for metric in (AUC, ACCURACY, ECE)
        if (value := known.get(metric.name)) is not None and None not in value.values()
    ]
    return f"{', '.join(said)}." if said else "Too little can be told from these records: see the warnings."


def site_errors(rows: Sequence[Mapping[str, Any]] | None) -> tuple[SiteRow, ...]:
    """Each site's calibration error."""
    shown = [(row["site"], row["metrics"][ECE.name]) for row in rows or () if row["metrics"] is not None]
    return tuple(SiteRow(site, after=Measured(**value)) for site, value in shown if value is not None)
