"""A result in a cell of a notebook: its verdict, main metrics, figures and privacy statement."""

from __future__ import annotations

from fedcalib.report.canvas import notebook_html, words
from fedcalib.report.page import Page
from fedcalib.report.tables import PageCell, PageRow, metric_rows

_MAIN = 8  # metrics that a cell shows


def in_notebook(page: Page) -> str:
    """The main parts of a page as HTML for a notebook; whatever names it holds stay text."""
    parts = [f"<h3>{words(page.title)}</h3>"]
    if page.simulation:
        parts.append("<p><b>simulation: not private</b></p>")
    parts += [f"<p>{words(sentence)}</p>" for sentence in (*page.summary, *page.gains)]
    rows = metric_rows(page.metrics)[:_MAIN]
    if rows:
        parts.append(_table(rows))
    others = (one for section in page.sections for one in section.pictures)
    drawn = [one for one in (page.reliability, *page.curves, *others, *page.figures) if one is not None]
    parts.append(notebook_html(drawn[:4]))
    parts += [f"<p><small>{words(sentence)}</small></p>" for sentence in (*page.privacy, *page.meaning)]
    return "".join(parts)


def _table(rows: tuple[PageRow, ...]) -> str:
    compares = any("–" not in (row.before.value, row.after.value) for row in rows)
    names = ("metric", "before", "after", "change", "verdict") if compares else ("metric", "value")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{_cells(row, compares)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: PageRow, compares: bool) -> str:
    values = (row.before, row.after, row.change) if compares else (row.only,)
    told = [f"<td>{words(_text(value))}</td>" for value in values]
    verdict = f"<td>{words(row.verdict)}</td>" if compares else ""
    return f"<th>{words(row.name)}</th>{''.join(told)}{verdict}"


def _text(cell: PageCell) -> str:
    return f"{cell.value} ({cell.interval})" if cell.interval else cell.value
