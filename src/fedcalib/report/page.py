"""A report as one HTML file that opens offline, prints well and can be forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import final

from fedcalib.artifacts.saving import write_whole
from fedcalib.errors import InputError
from fedcalib.measured import Measured
from fedcalib.report import view
from fedcalib.report.canvas import Picture
from fedcalib.report.values import Count, Diagram, MetricRow, Public, SiteRow, parts

__all__ = ["Diagram", "MetricRow", "Page", "Picture", "Public", "SiteRow", "render", "save"]


@final
@dataclass(frozen=True)
class Page:
    """Everything a report says; only the title is needed, and whatever is missing is left out.

    Under differential privacy (`private`) a page refuses exact counts: give None, a `Public` constant, or a `Measured`
    estimate with its interval; diagrams bring noisy counts or none. What stands in sentences, settings and figures
    is the caller's word. `simulation` puts up the banner that says that nothing here is private.
    """

    title: str
    summary: tuple[str, ...] = ()  # sentences; the first one is the headline
    privacy: tuple[str, ...] = ()  # sentences: what was spent, on which unit, under which trust
    private: bool = False
    simulation: bool = False
    records: Count = None
    clients: Count = None
    metrics: tuple[MetricRow, ...] = ()
    before: Diagram | None = None
    after: Diagram | None = None
    sites: tuple[SiteRow, ...] = ()
    site_metric: str = "calibration gap"  # what the sites' numbers are
    figures: tuple[Picture, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)  # versions, settings, files, commands

    def __post_init__(self) -> None:
        if self.private:
            _refuse_exact_counts(self)


def render(page: Page) -> str:
    """Write a page as HTML: styles and pictures inside, no script, nothing fetched from anywhere."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("fedcalib.report").joinpath("template.html").read_text(encoding="utf-8")
    text = environment.from_string(template).render(view.of(page))
    return text.encode("utf-8", "replace").decode("utf-8")  # a broken letter in a name must not stop a report


def save(page: Page, path: Path | str) -> Path:
    """Write a page to a file, whole or not at all."""
    return write_whole(Path(path), render(page))


def _refuse_exact_counts(page: Page) -> None:
    given = {"records": page.records, "clients": page.clients}
    given |= {f"records of {row.site}": row.records for row in page.sites}
    exact = [name for name, count in given.items() if not _may_be_shown(count)]
    exact += [f"counts of {diagram.label}" for diagram in (page.before, page.after) if diagram and _is_exact(diagram)]
    if exact:
        raise InputError(
            f"Expected no exact count on a page under differential privacy, found {', '.join(exact)}; "
            "give None, a public constant or a noisy estimate with its interval."
        )


def _may_be_shown(count: Count) -> bool:
    """Fail closed: an estimate without an interval could be an exact count in disguise."""
    if isinstance(count, Measured):
        _, low, high = parts(count)
        return low < high
    return count is None or isinstance(count, Public)


def _is_exact(diagram: Diagram) -> bool:
    return diagram.count is not None and not diagram.noisy
