"""Every plot of a report, and what each is drawn from. All return a `Picture`: PNG bytes with words for them."""

from __future__ import annotations

from fedcalib.report.canvas import Picture
from fedcalib.report.curve_plots import pr, reliability, roc, trade_off
from fedcalib.report.row_plots import bars_by_site, comparison, timeline, who_holds_what
from fedcalib.report.values import Contender, Curve, Diagram, SiteRow, Window

__all__ = [
    "Contender",
    "Curve",
    "Diagram",
    "Picture",
    "SiteRow",
    "Window",
    "bars_by_site",
    "comparison",
    "pr",
    "reliability",
    "roc",
    "timeline",
    "trade_off",
    "who_holds_what",
]
