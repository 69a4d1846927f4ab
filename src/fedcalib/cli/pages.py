"""The report of a command: a page, and the picture beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.metrics.intervals import normal_quantile
from fedcalib.privacy.model import Spending
from fedcalib.report.page import Diagram, MetricRow, Page, SiteRow, render
from fedcalib.report.plots import reliability

_NOTES: Final = {
    "accuracy": ("Accuracy", "higher", "share of records whose most likely class is right"),
    "ece": ("ECE", "lower", "mean gap between what is said and what happens: of the score, or of the top class"),
    "cwece": ("Classwise ECE", "lower", "the same for every class, averaged over classes"),
    "nll": ("Log loss", "lower", "cut at a public bound"),
    "brier": ("Brier score", "lower", "mean squared error of the probabilities"),
    "auc": ("AUC", "higher", "chance that a positive is scored above a negative"),
}
_CLEAR: Final = 3.0  # standard deviations of noise below which a bin shows nothing


@final
@dataclass(frozen=True)
class Story:
    """What a report is to tell."""

    title: str
    summary: tuple[str, ...]
    spent: Spending
    private: bool
    counts: Mapping[str, int | None]
    before: MetricsReport | None
    after: MetricsReport | None
    warnings: Sequence[str]
    provenance: Mapping[str, object]
    sites: tuple[SiteRow, ...] = ()


def files(story: Story) -> dict[str, bytes]:
    """Draw the page, and the picture where there is something to show."""
    before, after = diagram("before", story.before), diagram("after", story.after)
    page = Page(
        title=story.title,
        summary=story.summary,
        privacy=(story.spent.statement,),
        private=story.private,
        simulation=story.spent.simulation,
        records=story.counts["records"],
        clients=story.counts["sites"],
        metrics=metric_rows(story.before, story.after),
        before=before,
        after=after,
        warnings=tuple(story.warnings),
        provenance=story.provenance,
        sites=story.sites,
        site_metric="ECE",
    )
    drawn = {"report.html": render(page).encode()}
    return drawn if before is None else {**drawn, "reliability.png": reliability(before, after).png}


def metric_rows(before: MetricsReport | None, after: MetricsReport | None) -> tuple[MetricRow, ...]:
    """List every metric that was measured, before and after."""
    if before is None or after is None:
        return ()
    return tuple(
        MetricRow(title, getattr(before, name), getattr(after, name), better, note)  # type: ignore[arg-type]
        for name, (title, better, note) in _NOTES.items()
        if getattr(before, name) is not None or getattr(after, name) is not None
    )


def diagram(label: str, report: MetricsReport | None) -> Diagram | None:
    """Draw a reliability table; bins that drown in noise show nothing."""
    if report is None:
        return None
    table, noise = report.reliability, report.count_variance
    count = table.count[0]
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
