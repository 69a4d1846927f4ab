"""A report as one HTML file that opens offline, prints well and can be forwarded.

`Page` holds the contents, and `render` computes all that the template shows, so that the template has no logic. The
page has one script and one style sheet of its own, and its security policy allows nothing else.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

from fedcalib.errors import InputError
from fedcalib.files import save_text
from fedcalib.metrics.intervals import Measured
from fedcalib.report import curve_plots, glossary, row_plots
from fedcalib.report.canvas import Picture, chart_style, clean
from fedcalib.report.explorer import Explorer
from fedcalib.report.tables import MISSING, PageRow, count, figure_table, metric_rows
from fedcalib.report.values import Count, Diagram, MetricRow, PageTable, Public, SiteRow, parts

# the metrics that are shown at once; the others stand below them, on demand
_MAIN: Final = 12


@final
@dataclass(frozen=True)
class Section:
    """A part of a page under a heading of its own.

    Parameters
    ----------
    title
        The heading.
    pictures
        Figures, each with its table.
    tables
        Tables without a figure.
    text
        Sentences below the heading.
    """

    title: str
    pictures: tuple[Picture, ...] = ()
    tables: tuple[PageTable, ...] = ()
    text: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Page:
    """The contents of a report; only the title is required, and sections without content are left out.

    Parameters
    ----------
    title
        Title of the page.
    summary
        Sentences on what was found; the first one is the headline.
    asked
        What was asked, in a sentence.
    gains
        Sentences on who gains and who loses.
    next_steps
        Sentences on what to do next.
    facts
        Classifier, period, date, command and others, by name.
    privacy
        Sentences: what was spent, on which privacy unit, under which trust.
    meaning
        Sentences: what that means, and what is left of the budget.
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
    reliability
        Smooth reliability curves.
    before, after
        Reliability diagrams in bins, which the distribution of scores follows from as well.
    curves
        Decision curve, ROC and precision-recall.
    explorer
        Decisions at many thresholds.
    sites
        Rows of the table of sites.
    site_metric
        What the numbers of the sites are.
    sections
        Groups, sites, windows of time and others.
    tables
        Further tables, such as metrics by class.
    figures
        Further pictures.
    warnings
        Sentences on limitations.
    provenance
        Versions, settings, files and digests.
    data
        The result as JSON text, to be downloaded from the page.
    """

    title: str
    summary: tuple[str, ...] = ()
    asked: str = ""
    gains: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    privacy: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    private: bool = False
    simulation: bool = False
    records: Count = None
    clients: Count = None
    metrics: tuple[MetricRow, ...] = ()
    reliability: Picture | None = None
    before: Diagram | None = None
    after: Diagram | None = None
    curves: tuple[Picture, ...] = ()
    explorer: Explorer | None = None
    sites: tuple[SiteRow, ...] = ()
    site_metric: str = "calibration gap"
    sections: tuple[Section, ...] = ()
    tables: tuple[PageTable, ...] = ()
    figures: tuple[Picture, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)
    data: str = ""

    def __post_init__(self) -> None:
        if self.private:
            _refuse_exact_counts(self)


def template_values(page: Page) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    metrics = metric_rows(page.metrics)
    shown = [row.name for row in page.metrics]
    style, script = f"{chart_style()}\n{_asset('page.css')}", _asset("page.js")
    return {
        "page": page,
        "style": style,
        "script": script,
        "policy": _policy(style, script),
        "facts": _facts(page),
        "metrics": metrics[:_MAIN],
        "further": metrics[_MAIN:],
        "headlines": _headlines(metrics),
        "compares": any(row.after is not None and row.before is not None for row in page.metrics),
        "reliability": _reliability(page),
        "site_picture": _site_picture(page),
        "sections": [_section(section) for section in page.sections],
        "more": [figure_table(table) for table in page.tables],
        "terms": glossary.terms(shown),
        "glossary": glossary.entries(shown) if page.metrics else [],
        "provenance": [(name, _setting(value)) for name, value in page.provenance.items()],
        "toggles": _toggles(page),
        "data": _embedded(page.data),
    }


def _headlines(metrics: Sequence[PageRow]) -> list[PageRow]:
    return [row for row in metrics if MISSING not in (row.before.value, row.after.value)][:3]


def _reliability(page: Page) -> dict[str, Any] | None:
    """The smooth curves, the bins on demand, and the scores; without smooth curves, the bins at once."""
    given = [diagram for diagram in (page.before, page.after) if diagram is not None]
    bins = curve_plots.reliability(given[0], given[1] if len(given) > 1 else None) if given else None
    if bins is None and page.reliability is None:
        return None
    return {
        "curve": page.reliability or bins,
        "bins": bins if page.reliability is not None else None,
        "scores": curve_plots.scores(given) if given else None,
    }


def _site_picture(page: Page) -> Picture | None:
    sites = [row.guarded for row in page.sites]
    return row_plots.bars_by_site(sites, page.site_metric) if sites else None


def _section(section: Section) -> dict[str, Any]:
    tables = [figure_table(table) for table in section.tables]
    return {"title": section.title, "text": section.text, "pictures": section.pictures, "tables": tables}


def _toggles(page: Page) -> list[str]:
    """The series that a reader can hide, where there are two of them."""
    drawn = [page.reliability, *page.curves]
    names = [diagram.label for diagram in (page.before, page.after) if diagram is not None]
    both = len(set(names)) == 2 and (page.reliability is not None or any(drawn))
    return names if both else []


def _facts(page: Page) -> list[tuple[str, str]]:
    named: Sequence[tuple[str, Count]] = (("Records", page.records), ("Sites", page.clients))
    told = page.private and not page.simulation  # a simulation hides nothing, and says so above
    counted = [(name, count(value)) for name, value in named if told or value is not None]
    return [*page.facts.items(), *counted]


def _setting(value: object) -> str:
    """A setting as text; None and NaN are shown as missing."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else str(value)


@cache
def _asset(name: str) -> str:
    return files("fedcalib.report").joinpath(name).read_text(encoding="utf-8").strip()


def _policy(style: str, script: str) -> str:
    """A policy that allows this page's own style and script, pictures made by the page, and nothing else."""
    allowed = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{allowed[0]}'; script-src 'sha256-{allowed[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(data: str) -> str:
    """JSON that no reader of HTML takes for markup; it reads back as the same document."""
    for letter in "<>&\u2028\u2029":
        data = data.replace(letter, f"\\u{ord(letter):04x}")
    return data


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset(name))


def render(page: Page) -> str:
    """A page as HTML: style, script and drawings inside, and nothing loaded from elsewhere."""
    return clean(_template("template.html").render(template_values(page))) + "\n"


def document_html(title: str, note: str, tables: Sequence[Mapping[str, Any]]) -> str:
    """A page of tables with questions and answers, without a script."""
    style = _asset("page.css")
    values = {"title": title, "note": note, "tables": tables, "style": style, "policy": _policy(style, "")}
    return clean(_template("sheet.html").render(values)) + "\n"


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
