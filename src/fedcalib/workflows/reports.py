"""The report of a command: a page, and the pictures beside it.

Metrics are those that the server computed; tables and pictures of an exact table show it with merged cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.artifacts.performance import BinaryPerformance, Performance, PerformanceCurve
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.estimation.score_rates import Bins, Estimates
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import BINS
from fedcalib.metrics.table import ACCURACY, AUC, ECE, METRICS, PREVALENCE
from fedcalib.report import curve_plots
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Page, render
from fedcalib.report.values import Diagram, MetricRow, PageTable, PlotLine, SiteRow
from fedcalib.workflows import documents
from fedcalib.workflows.documents import Measurement

EVALUATION_FILES: Final = ("report.html", "performance.json", "reliability.png", "roc.png", "pr.png", "decision.png")


def files(page: Page) -> dict[str, bytes]:
    """Render the page, and draw the picture beside it where there is something to show."""
    drawn = {"report.html": render(page).encode()}
    if page.before is not None:
        drawn["reliability.png"] = curve_plots.reliability(page.before, page.after).png
    return drawn


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
    return tuple(
        MetricRow(
            known[name].title,
            before=_measured(sides[0].get(name)),
            after=_measured(sides[1].get(name)),
            better=known[name].direction,
            note=known[name].definition,
            change=(change or {}).get(name),
            reasons=(reasons[0].get(name, ""), reasons[1].get(name, "")),
        )
        for name in names
    )


def _measured(value: Mapping[str, float | None] | None) -> Measured | None:
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


def curves(lines: Mapping[str, Measurement], min_count: int | None = None) -> dict[str, Picture]:
    """ROC, precision-recall, decision and smooth reliability curves by name, of the tables as they may be published.

    Empty where there are more than two classes, or where nothing of a table may be shown.
    """
    shown = {name: one.published(min_count or 1) for name, one in lines.items()}
    binary = {name: one for name, one in shown.items() if isinstance(one, BinaryPerformance) and one.records > 0}
    if not binary or len(binary) < len(shown):
        return {}
    first = next(iter(binary.values())).measures()
    prevalence = first[PREVALENCE.name].value if PREVALENCE.name in first else None
    pairs = binary.items()
    return {
        "roc": curve_plots.roc([_line(name, one.roc(), _area(lines[name])) for name, one in pairs]),
        "pr": curve_plots.pr([_line(name, one.pr()) for name, one in pairs], prevalence),
        "decision": curve_plots.decision(_decisions(binary)),
        "smooth": curve_plots.smooth_reliability([_line(name, one.smooth_reliability()) for name, one in pairs]),
    }


def _area(found: Measurement) -> str:
    return "" if found.auc is None else f"AUC {found.auc.value:.4f}"


def _decisions(binary: Mapping[str, BinaryPerformance]) -> list[PlotLine]:
    traced = {name: one.decision_curve() for name, one in binary.items()}
    lines = [
        PlotLine(name, one.threshold, one.net_benefit.value, one.net_benefit.low, one.net_benefit.high)
        for name, one in traced.items()
    ]
    every = next(iter(traced.values()))
    return [*lines, PlotLine("everybody positive", every.threshold, every.treat_all.value)]


def _line(label: str, traced: PerformanceCurve, text: str = "") -> PlotLine:
    known = ~(np.isnan(traced.x.value) | np.isnan(traced.y.value))
    y = traced.y
    return PlotLine(label, traced.x.value[known], y.value[known], y.low[known], y.high[known], text)


def evaluation_page(
    found: Measurement, spent: Spending, facts: Mapping[str, Any], summary: Sequence[str], **more: Any
) -> Page:
    """The page of an evaluation; `facts` is its result as plain data."""
    return Page(
        title=f"Evaluation of a {'binary ' if isinstance(found, BinaryPerformance) else ''}classifier",
        summary=(_headline(found), *summary),
        privacy=(spent.statement,),
        private=spent.epsilon is not None,
        simulation=spent.simulation,
        records=facts["records"],
        clients=facts["sites"],
        before=diagram("score", found, facts.get("min_count")),
        sites=_sites(facts["per_site"]),
        site_metric=ECE.title,
        warnings=tuple(facts["warnings"]),
        **more,
    )


def class_rows(found: Measurement, min_count: int | None) -> list[dict[str, Any]]:
    """The table by class as plain data, as it may be published; empty with two classes."""
    shown = found.published(min_count or 1)
    return [row.to_json() for row in shown.classes] if isinstance(shown, ClassPerformance) else []


def class_table(rows: Sequence[Mapping[str, Any]]) -> tuple[PageTable, ...]:
    """The table by class for a page."""
    names = documents.class_figures(rows)
    told = tuple((f"class {row['label']}", tuple(_stated(row.get(name)) for name in names)) for row in rows)
    caption = "Each class against the others; under each value stands its interval."
    return (PageTable("By class", ("class", *names), told, caption),) if rows else ()


def _stated(value: Mapping[str, float | None] | None) -> Measured | None:
    found = _measured(value)
    return None if found is None or np.isnan(found.value) else found


def _headline(found: Measurement) -> str:
    known = documents.metrics(found) or {}
    said = [
        f"{metric.title} {value['value']:.4f} ({value['low']:.4f} to {value['high']:.4f})"
        for metric in (AUC, ACCURACY, ECE)
        if (value := known.get(metric.name)) is not None
    ]
    return f"{', '.join(said)}." if said else "Too little can be told from these records: see the warnings."


def _sites(rows: Sequence[Mapping[str, Any]] | None) -> tuple[SiteRow, ...]:
    shown = [(row["site"], row["metrics"][ECE.name]) for row in rows or () if row["metrics"] is not None]
    return tuple(SiteRow(site, after=Measured(**value)) for site, value in shown if value is not None)
