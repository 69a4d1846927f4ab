"""Results as plain data for JSON, and as tables for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.evaluation import MetricsReport, headline
from fedcalib.cli.voice import Table
from fedcalib.federation import Federation
from fedcalib.privacy import Privacy
from fedcalib.workflows.session import Rehearsal


def counts(federation: Federation, privacy: Privacy) -> dict[str, int | None]:
    """Count sites and records, where that tells nobody anything that the model hides."""
    if privacy.private:
        return {"sites": None, "records": None}
    return {"sites": len(federation), "records": len(federation.records)}


def spending(spent: Spending) -> dict[str, Any]:
    """Write a privacy record as data."""
    return asdict(spent)


def metrics(report: MetricsReport | None) -> dict[str, Any] | None:
    """Write the headline metrics as data, with null for what is missing."""
    return None if report is None else {metric.name: measured(getattr(report, metric.name)) for metric in headline()}


def measured(measured: Any) -> dict[str, float | None] | None:
    """Write a figure with its interval as data, with null for what is missing or not finite."""
    if measured is None:
        return None
    values = {"value": measured.value, "low": measured.low, "high": measured.high}
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}


def missing(report: MetricsReport, classes: int) -> tuple[str, ...]:
    """Say why a metric is null."""
    undefined = (metric.name for metric in headline() if metric.classes == "two" and classes != 2)
    return (*report.warnings, *(f"{name} is left out: it is defined for two classes only." for name in undefined))


def metrics_table(title: str, columns: Mapping[str, dict[str, Any] | None]) -> Table:
    """Lay metrics out, one a row."""
    shown = {name: values for name, values in columns.items() if values is not None}
    rows = tuple((metric.name, *(_said(values[metric.name]) for values in shown.values())) for metric in headline())
    return Table(title, ("metric", *shown), rows if shown else ())


def own_table(own: Mapping[str, Any] | None) -> list[Table]:
    """Lay out clients' own errors, where they were measured."""
    if own is None:
        return []
    spread = "-" if own["spread"] is None else f"{own['spread']:.4f}"
    rows = (("mean of clients' own ece (top label)", _said(own["mean"])), ("standard deviation over clients", spread))
    return [Table("The usual client", ("", "value"), rows)]


def _said(measured: Mapping[str, float | None] | None) -> str:
    if measured is None or measured["value"] is None:
        return "-"
    low, high = ("?" if measured[end] is None else f"{measured[end]:.4f}" for end in ("low", "high"))
    return f"{measured['value']:.4f} ({low} to {high})"


def facts_table(title: str, facts: Mapping[str, Any]) -> Table:
    """Lay facts out, one a row; what is unknown is left out."""
    return Table(title, ("", ""), tuple((name, str(value)) for name, value in facts.items() if value is not None))


def rehearsal_tables(rehearsals: Sequence[Rehearsal]) -> list[Table]:
    """Lay out what would be asked: one row a block."""
    columns = ("query", "block", "shape", "l1", "l2", "linf", "unit", "share")
    tables = []
    for rehearsal in rehearsals:
        whole = rehearsal.plan.weight
        rows = tuple(
            (
                *(type(query).__name__, name, "x".join(map(str, block.shape))),
                *(f"{norm:.4g}" for norm in (block.bound.l1, block.bound.l2, block.bound.linf)),
                *(block.bound.unit, f"{block.weight / whole:.3f}"),
            )
            for query in rehearsal.plan.queries
            for name, block in query.blocks.items()
        )
        tables.append(Table(f"{rehearsal.name}: {rehearsal.bytes_a_client} bytes a client", columns, rows))
    return tables


def site_tables(rows: Sequence[Mapping[str, Any]] | None, most: int = 20) -> list[Table]:
    """Lay single sites out, the largest first; the rest stands in the JSON document."""
    if not rows:
        return []
    shown = sorted((row for row in rows if row["metrics"] is not None), key=lambda row: -(row["records"] or 0))
    title = "Single sites" if len(shown) <= most else f"{most} of {len(shown)} sites"
    names = [metric.name for metric in headline()]
    cells = tuple(
        (row["site"], str(row["records"] or "-"), *(_value(row["metrics"][name]) for name in names))
        for row in shown[:most]
    )
    return [Table(title, ("site", "records", *names), cells)]


def _value(measured: Mapping[str, float | None] | None) -> str:
    return "-" if measured is None or measured["value"] is None else f"{measured['value']:.4f}"
