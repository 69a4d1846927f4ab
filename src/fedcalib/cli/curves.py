"""The report of a binary evaluation: ROC, precision-recall and reliability, read off one release."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.artifacts.score_curves import Curve as Traced
from fedcalib.artifacts.score_curves import Curves
from fedcalib.measured import Measured
from fedcalib.privacy.model import Spending
from fedcalib.report import curve_plots
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Diagram, MetricRow, Page, SiteRow, render
from fedcalib.report.plots import reliability
from fedcalib.report.values import Curve

NAMES: Final = ("report.html", "roc.png", "pr.png", "reliability.png", "curves.json")


def document(curves: Curves) -> dict[str, Any]:
    """Write the headline figures as data, and where the table drowns in noise."""
    return {"figures": curves.to_json(), "warnings": list(curves.warnings)}


def files(report: MetricsReport | None, curves: Curves, spent: Spending, facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw every picture and the page around them."""
    diagram = _diagram(curves)
    pictures = (_roc(curves), _pr(curves))
    page = Page(
        title="Evaluation of a binary classifier",
        summary=(_headline(curves),),
        privacy=(spent.statement,),
        private=spent.epsilon is not None,
        simulation=spent.simulation,
        records=facts["records"],
        clients=facts["sites"],
        metrics=_rows(report, curves),
        before=diagram,
        sites=_sites(facts["per_site"]),
        site_metric="ECE",
        figures=pictures,
        warnings=(*facts["warnings"], *curves.warnings),
        provenance={"method": "score-curves"},
    )
    drawn = [render(page).encode(), *(picture.png for picture in pictures), reliability(diagram).png]
    return dict(zip(NAMES, [*drawn, _saved(curves, spent)], strict=True))


def _rows(report: MetricsReport | None, curves: Curves) -> tuple[MetricRow, ...]:
    """List what was measured, in one column."""
    figures = {name: None if value is None else Measured(**value) for name, value in curves.to_json().items()}
    rows = [
        MetricRow("AUC", figures["auc"], better="higher", note="chance that a positive is scored above a negative"),
        MetricRow("ECE", figures["ece"], note="mean gap between score and share of positives, 15 bins"),
        MetricRow("Accuracy", figures["accuracy"], better="higher", note="at threshold 0.5"),
        MetricRow("Precision", figures["precision"], better="higher", note="at threshold 0.5"),
        MetricRow("Recall", figures["recall"], better="higher", note="at threshold 0.5"),
    ]
    losses = [("Log loss", "nll", "cut at a public bound"), ("Brier score", "brier", "mean squared error")]
    for title, name, note in losses:
        found = None if report is None else getattr(report, name)
        rows.append(MetricRow(title, found, note=note))
    return tuple(row for row in rows if row.before is not None)


def _headline(curves: Curves) -> str:
    if np.isnan(curves.auc.value):
        return "Too little can be told from these records: see the warnings."
    ece = curves.ece()
    return (
        f"AUC {curves.auc.value:.3f} ({curves.auc.low:.3f} to {curves.auc.high:.3f}), "
        f"ECE {ece.value:.4f} ({ece.low:.4f} to {ece.high:.4f})."
    )


def _roc(curves: Curves) -> Picture:
    known = "" if np.isnan(curves.auc.value) else f"AUC {curves.auc.value:.3f}"
    return curve_plots.roc([_line("model", curves.roc(), known)])


def _pr(curves: Curves) -> Picture:
    rate = curves.positive_rate.value
    return curve_plots.pr([_line("model", curves.pr(), "")], None if np.isnan(rate) else rate)


def _line(label: str, traced: Traced, text: str) -> Curve:
    known = ~(np.isnan(traced.x.value) | np.isnan(traced.y.value))
    y = traced.y
    return Curve(label, traced.x.value[known], y.value[known], y.low[known], y.high[known], text)


def _diagram(curves: Curves) -> Diagram:
    bins = curves.reliability()
    drowned = bins.drowned > 0
    return Diagram(
        label="score",
        edges=bins.edges,
        confidence=np.where(drowned, np.nan, bins.score),
        observed=bins.share.value,
        low=np.where(drowned, np.nan, bins.share.low),
        high=np.where(drowned, np.nan, bins.share.high),
        count=bins.records,
        ece_text="" if np.isnan(curves.ece().value) else f"ECE {curves.ece().value:.4f}",
        noisy=not curves.table.exact,
    )


def _sites(rows: Sequence[Mapping[str, Any]] | None) -> tuple[SiteRow, ...]:
    shown = [row for row in rows or () if row["metrics"] is not None and row["metrics"]["ece"] is not None]
    return tuple(SiteRow(row["site"], after=Measured(**row["metrics"]["ece"])) for row in shown)


def _saved(curves: Curves, spent: Spending) -> bytes:
    """Give the artifact's file as bytes, so that all files are written at once or none."""
    with tempfile.TemporaryDirectory() as folder:
        return curves.save(Path(folder) / "curves.json", spent).read_bytes()
