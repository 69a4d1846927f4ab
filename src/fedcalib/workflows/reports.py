"""The report of a command: a page, and the picture beside it.

The report of a binary evaluation: ROC, precision-recall and reliability, read off one release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.evaluation import Curve, Curves, MetricsReport, headline
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import RefusedError
from fedcalib.estimation.score_rates import reliability
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.reliability import BINS
from fedcalib.metrics.table import ECE, Metric, shown_in
from fedcalib.report import curve_plots
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Page, render
from fedcalib.report.values import Diagram, MetricRow, PlotLine, SiteRow
from fedcalib.types import Floats

_CLEAR: Final = 3.0  # standard deviations of noise below which a bin shows nothing


def files(page: Page) -> dict[str, bytes]:
    """Render the page, and draw the picture beside it where there is something to show."""
    drawn = {"report.html": render(page).encode()}
    if page.before is not None:
        drawn["reliability.png"] = curve_plots.reliability(page.before, page.after).png
    return drawn


def metric_rows(before: MetricsReport | None, after: MetricsReport | None) -> tuple[MetricRow, ...]:
    """List every metric that was measured, before and after."""
    if before is None or after is None:
        return ()
    pairs = [(metric, getattr(before, metric.name), getattr(after, metric.name)) for metric in headline()]
    return tuple(_row(*pair) for pair in pairs if pair[1:] != (None, None))


def _row(metric: Metric, before: Measured | None, after: Measured | None = None) -> MetricRow:
    return MetricRow(metric.title, before, after, metric.direction, metric.definition)


def diagram(label: str, report: MetricsReport | None, min_count: int | None = MIN_RECORDS) -> Diagram | None:
    """Draw a reliability table as it may be published; bins that drown in noise show nothing."""
    if report is None:
        return None
    table, noise = report.published(min_count or 1).reliability, report.count_variance
    count = table.count[0]
    if np.isnan(count).all():
        return None
    clear = count > max(_CLEAR * np.sqrt(2 * noise), 0.0)
    held = np.where(clear, count, np.nan)
    observed = np.clip(table.correct[0] / held, 0.0, 1.0)
    share = np.clip((table.correct[0] + 2) / (held + 4), 0.0, 1.0)
    spread = share * (1 - share) / held + noise * (share**2 + (1 - share) ** 2) / held**2
    half = normal_quantile(0.95) * np.sqrt(spread)
    return Diagram(
        label=label,
        edges=table.edges,
        confidence=np.clip(table.confidence[0] / held, 0.0, 1.0),
        observed=observed,
        low=np.clip(observed - half, 0.0, 1.0),
        high=np.clip(observed + half, 0.0, 1.0),
        count=np.maximum(count, 0.0),
        ece_text="" if report.ece is None else f"ECE {report.ece.value:.4f}",
        noisy=noise > 0,
    )


CURVE_FILES: Final = ("report.html", "roc.png", "pr.png", "reliability.png", "curves.json")


def curve_files(
    report: MetricsReport | None, curves: Curves, spent: Spending, facts: Mapping[str, Any]
) -> dict[str, bytes]:
    """Draw every picture and the page around them; where no table may be published, the page has metrics only.

    Metrics are those of the table that the server saw; pictures and the file of curves show it with merged cells.
    """
    min_count = facts.get("min_count") or 1
    try:
        shown = curves.published(min_count)
    except RefusedError as reason:
        return {"report.html": render(_page(report, curves, spent, facts, warnings=(str(reason),))).encode()}
    diagram, pictures = _diagram(curves, shown), (_roc(curves, shown), _pr(curves, shown))
    page = _page(report, curves, spent, facts, before=diagram, figures=pictures)
    drawn = [render(page).encode(), *(picture.png for picture in pictures), curve_plots.reliability(diagram).png]
    return dict(zip(CURVE_FILES, [*drawn, shown.dumps(spent, min_count=min_count).encode()], strict=True))


def _page(
    report: MetricsReport | None,
    curves: Curves,
    spent: Spending,
    facts: Mapping[str, Any],
    *,
    warnings: tuple[str, ...] = (),
    **drawn: Any,
) -> Page:
    return Page(
        title="Evaluation of a binary classifier",
        summary=(_headline(curves),),
        privacy=(spent.statement,),
        private=spent.epsilon is not None,
        simulation=spent.simulation,
        records=facts["records"],
        clients=facts["sites"],
        metrics=_rows(report, curves),
        sites=_sites(facts["per_site"]),
        site_metric=ECE.title,
        warnings=(*facts["warnings"], *curves.warnings, *warnings),
        provenance={"method": "score-curves"},
        **drawn,
    )


def _rows(report: MetricsReport | None, curves: Curves) -> tuple[MetricRow, ...]:
    """List what was measured, in one column."""
    known = {name: None if value is None else Measured(**value) for name, value in curves.to_json().items()}
    found = {
        metric: known[metric.name] if metric.name in known else getattr(report, metric.name, None)
        for metric in shown_in("curves")
    }
    return tuple(_row(metric, value) for metric, value in found.items() if value is not None)


def _headline(curves: Curves) -> str:
    if np.isnan(curves.auc.value):
        return "Too little can be told from these records: see the warnings."
    ece = curves.ece()
    return (
        f"AUC {curves.auc.value:.3f} ({curves.auc.low:.3f} to {curves.auc.high:.3f}), "
        f"ECE {ece.value:.4f} ({ece.low:.4f} to {ece.high:.4f})."
    )


def _roc(curves: Curves, shown: Curves) -> Picture:
    known = "" if np.isnan(curves.auc.value) else f"AUC {curves.auc.value:.3f}"
    return curve_plots.roc([_line("model", shown.roc(), known)])


def _pr(curves: Curves, shown: Curves) -> Picture:
    rate = curves.positive_rate.value
    return curve_plots.pr([_line("model", shown.pr(), "")], None if np.isnan(rate) else rate)


def _line(label: str, traced: Curve, text: str) -> PlotLine:
    known = ~(np.isnan(traced.x.value) | np.isnan(traced.y.value))
    y = traced.y
    return PlotLine(label, traced.x.value[known], y.value[known], y.low[known], y.high[known], text)


def _diagram(curves: Curves, shown: Curves) -> Diagram:
    bins = curves.reliability() if shown is curves else reliability(curves.table, _union_edges(shown.table))
    below_noise = bins.below_noise > 0
    return Diagram(
        label="score",
        edges=bins.edges,
        confidence=np.where(below_noise, np.nan, bins.score),
        observed=bins.rate.value,
        low=np.where(below_noise, np.nan, bins.rate.low),
        high=np.where(below_noise, np.nan, bins.rate.high),
        count=bins.records,
        ece_text="" if np.isnan(curves.ece().value) else f"ECE {curves.ece().value:.4f}",
        noisy=not curves.table.exact,
    )


def _union_edges(table: ScoreTable, bins: int = BINS) -> Floats:
    """Edges of bins of about equal width that are unions of a table's cells.

    Bins with edges of their own would be a second table of the same records, and the difference of two tables shows
    the few records between an edge of the one and an edge of the other.
    """
    bin_of = bin_index_unchecked(table.middle, bins)
    return np.append(table.edges[:-1][np.diff(bin_of, prepend=-1) > 0], 1.0)


def _sites(rows: Sequence[Mapping[str, Any]] | None) -> tuple[SiteRow, ...]:
    shown = [(row["site"], row["metrics"][ECE.name]) for row in rows or () if row["metrics"] is not None]
    return tuple(SiteRow(site, after=Measured(**value)) for site, value in shown if value is not None)
