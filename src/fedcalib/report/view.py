"""What the template prints, computed from a page so that the template holds no logic of its own."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from fedcalib.report import plots
from fedcalib.report.canvas import Picture
from fedcalib.report.table_rows import bin_rows, metric_rows, site_rows
from fedcalib.report.values import Count, Diagram
from fedcalib.report.wording import MISSING, count

if TYPE_CHECKING:
    from fedcalib.report.page import Page

_ON_SCREEN: Final = 0.65  # pixels of the page for one of a picture, which is drawn for dense screens


@final
@dataclass(frozen=True)
class Embedded:
    """A picture as the page holds it."""

    title: str
    source: str
    width: int
    alt: str
    caption: str


def of(page: Page) -> dict[str, Any]:
    """Compute everything that the template names."""
    metrics = metric_rows(page.metrics)
    sites = [row.guarded for row in page.sites]
    return {
        "page": page,
        "facts": _facts(page),
        "metrics": metrics,
        "headlines": [row for row in metrics if MISSING not in (row.before.value, row.after.value)][:3],
        "compares": any(row.after is not None and row.before is not None for row in page.metrics),
        "sites": site_rows(sites),
        "sites_compare": any(row.after is not None and row.before is not None for row in sites),
        "sites_count": any(row.records is not None for row in sites),
        "reliability": _reliability(page),
        "tables": [_table(diagram) for diagram in (page.before, page.after) if diagram is not None],
        "site_picture": embed(plots.bars_by_site(sites, page.site_metric)) if sites else None,
        "figures": [embed(picture) for picture in page.figures],
        "provenance": [(name, _said(value)) for name, value in page.provenance.items()],
    }


def embed(picture: Picture) -> Embedded:
    """Turn a picture into a data address, so that the page needs no other file."""
    source = "data:image/png;base64," + base64.b64encode(picture.png).decode("ascii")
    return Embedded(picture.title, source, round(picture.size[0] * _ON_SCREEN), picture.alt, picture.caption)


def _facts(page: Page) -> list[tuple[str, str]]:
    named: Sequence[tuple[str, Count]] = (("Records", page.records), ("Clients", page.clients))
    return [(name, count(value)) for name, value in named if page.private or value is not None]


def _reliability(page: Page) -> Embedded | None:
    match page.before, page.after:
        case None, None:
            return None
        case Diagram() as first, second:
            return embed(plots.reliability(first, second))
        case None, Diagram() as only:
            return embed(plots.reliability(only))
    return None


def _table(diagram: Diagram) -> dict[str, Any]:
    return {"label": diagram.label, "noisy": diagram.noisy, "ece": diagram.ece_text, "rows": list(bin_rows(diagram))}


def _said(value: object) -> str:
    """Say a setting; a missing one says so, whatever it was missing as."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else str(value)
