"""Every plot of a report, and what each is drawn from. All return a `Picture`: PNG bytes with words for them."""

from __future__ import annotations

from fedcalib.report.canvas import Picture
from fedcalib.report.comparison_plot import comparison
from fedcalib.report.curve_plots import pr, roc, trade_off
from fedcalib.report.reliability_plot import reliability
from fedcalib.report.site_plots import bars_by_site, who_holds_what
from fedcalib.report.timeline_plot import timeline
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
