"""A report as one HTML file that opens offline, prints well and can be forwarded.

`Page` holds the contents, and `render` computes all that the template shows, so that the template has no logic.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

from fedcalib.errors import InputError
from fedcalib.files import save_text
from fedcalib.metrics.intervals import Measured
from fedcalib.report import curve_plots, row_plots
from fedcalib.report.canvas import Picture
from fedcalib.report.tables import MISSING, bin_rows, count, figure_table, metric_rows, site_rows
from fedcalib.report.values import Count, Diagram, MetricRow, PageTable, Public, SiteRow, parts

_SCREEN_SCALE: Final = 0.65  # pictures are drawn for high-resolution screens, so they are shown smaller


@final
@dataclass(frozen=True)
class Embedded:
    """A picture with its data address."""

    title: str
    source: str
    width: int
    alt: str
    caption: str


def template_values(page: Page) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    metrics = metric_rows(page.metrics)
    sites = [row.guarded for row in page.sites]
    first, second = (page.before, page.after) if page.before else (page.after, None)
    return {
        "page": page,
        "facts": _facts(page),
        "metrics": metrics,
        "headlines": [row for row in metrics if MISSING not in (row.before.value, row.after.value)][:3],
        "compares": any(row.after is not None and row.before is not None for row in page.metrics),
        "sites": site_rows(sites),
        "sites_compare": any(row.after is not None and row.before is not None for row in sites),
        "sites_count": any(row.records is not None for row in sites),
        "reliability": embed(curve_plots.reliability(first, second)) if first else None,
        "tables": [_table(diagram) for diagram in (first, second) if diagram is not None],
        "site_picture": embed(row_plots.bars_by_site(sites, page.site_metric)) if sites else None,
        "more": [figure_table(table) for table in page.tables],
        "figures": [embed(picture) for picture in page.figures],
        "provenance": [(name, _setting(value)) for name, value in page.provenance.items()],
    }


def embed(picture: Picture) -> Embedded:
    """A picture as a data address, so that the page needs no other file."""
    source = "data:image/png;base64," + base64.b64encode(picture.png).decode("ascii")
    return Embedded(picture.title, source, round(picture.size[0] * _SCREEN_SCALE), picture.alt, picture.caption)


def _facts(page: Page) -> list[tuple[str, str]]:
    named: Sequence[tuple[str, Count]] = (("Records", page.records), ("Clients", page.clients))
    return [(name, count(value)) for name, value in named if page.private or value is not None]


def _table(diagram: Diagram) -> dict[str, Any]:
    return {"label": diagram.label, "noisy": diagram.noisy, "ece": diagram.ece_text, "rows": list(bin_rows(diagram))}


def _setting(value: object) -> str:
    """A setting as text; None and NaN are shown as missing."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else str(value)


@final
@dataclass(frozen=True)
class Page:
    """The contents of a report; only the title is required, and sections without content are left out.

    Parameters
    ----------
    title
        Title of the page.
    summary
        Sentences; the first one is the headline.
    privacy
        Sentences: what was spent, on which privacy unit, under which trust.
    private
        Whether the results are under differential privacy. Then exact counts are an error: use None, a `Public`
        constant, or a `Measured` estimate with its interval, and noisy counts or none in diagrams. Sentences, settings
        and figures are not checked.
    simulation
        Whether to show the banner "simulation: not private".
    records, clients
        Counts.
    metrics
        Rows of the metrics table.
    before, after
        Reliability diagrams.
    sites
        Rows of the table of sites.
    site_metric
        What the numbers of the sites are.
    tables
        Further tables, such as metrics by group.
    figures
        Further pictures.
    warnings
        Sentences.
    provenance
        Versions, settings, files and commands.
    """

    title: str
    summary: tuple[str, ...] = ()
    privacy: tuple[str, ...] = ()
    private: bool = False
    simulation: bool = False
    records: Count = None
    clients: Count = None
    metrics: tuple[MetricRow, ...] = ()
    before: Diagram | None = None
    after: Diagram | None = None
    sites: tuple[SiteRow, ...] = ()
    site_metric: str = "calibration gap"
    tables: tuple[PageTable, ...] = ()
    figures: tuple[Picture, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.private:
            _refuse_exact_counts(self)


def render(page: Page) -> str:
    """A page as HTML: styles and pictures inside, no script, and nothing loaded from elsewhere."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("fedcalib.report").joinpath("template.html").read_text(encoding="utf-8")
    text = environment.from_string(template).render(template_values(page))
    return text.encode("utf-8", "replace").decode("utf-8")  # an invalid character in a name must not stop a report


def save(page: Page, path: Path | str) -> Path:
    """Write a page to a file; if that fails, nothing is written."""
    return save_text(Path(path), render(page))


def _refuse_exact_counts(page: Page) -> None:
    given = {"records": page.records, "clients": page.clients}
    given |= {f"records of {row.site}": row.records for row in page.sites}
    exact = [name for name, count in given.items() if not _may_be_shown(count)]
    diagrams = [diagram for diagram in (page.before, page.after) if diagram is not None]
    exact += [f"counts of {each.label}" for each in diagrams if each.count is not None and not each.noisy]
    if exact:
        raise InputError(
            f"Expected no exact count on a page under differential privacy, found {', '.join(exact)}; "
            "use None, a public constant or a noisy estimate with its interval."
        )


def _may_be_shown(count: Count) -> bool:
    """Whether a count is not exact; an estimate without an interval could be an exact count, so it counts as one."""
    if isinstance(count, Measured):
        _, low, high = parts(count)
        return low < high
    return count is None or isinstance(count, Public)
