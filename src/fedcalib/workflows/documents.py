"""Results as plain data for JSON, and as tables for people."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from fedcalib import files
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.evaluation import MetricsReport, headline
from fedcalib.artifacts.performance import Performance
from fedcalib.errors import InputError, needs
from fedcalib.federation import Federation
from fedcalib.loop import Runtime
from fedcalib.method import Method
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import METRICS
from fedcalib.privacy import Privacy
from fedcalib.records import Schema
from fedcalib.registry import choices, kebab
from fedcalib.report.tables import verdict_on
from fedcalib.workflows.session import Phase


@final
@dataclass(frozen=True)
class TextTable:
    """A few rows of text under a heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True, eq=False)
class DryRun:
    """What a workflow would ask and what it would cost."""

    facts: Mapping[str, Any]
    phases: tuple[Phase[Any], ...]
    privacy: Spending
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "dry_run": True,
            **self.facts,
            "privacy": asdict(self.privacy),
            "phases": [phase.to_json() for phase in self.phases],
            "warnings": list(self.warnings),
        }


SCHEMA_VERSION: Final = 1
LEVEL: Final = "95%"  # of every interval that is stated
Folder: TypeAlias = Path | str


def text(document: Mapping[str, Any]) -> str:
    """A result as JSON text."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, allow_nan=False) + "\n"


Measurement: TypeAlias = Performance | MetricsReport


def by_metric(reports: Mapping[str, Measurement | None]) -> list[dict[str, Any]]:
    """One row per metric, with the figure of each report that there is, and why a figure is missing."""
    shown = {name: report for name, report in reports.items() if report is not None}
    values = {name: metrics(report) or {} for name, report in shown.items()}
    reasons = {metric: reason for report in shown.values() for metric, reason in unmeasurable(report).items()}
    return [
        {"metric": metric, **{name: found.get(metric) for name, found in values.items()}, "reason": reasons.get(metric)}
        for metric in dict.fromkeys(metric for found in values.values() for metric in found)
    ]


def word(method: Method[Any]) -> str:
    """The name of a method in results: FedBBQ is fed-bbq."""
    name = type(method).__name__
    return next((row.word for row in choices("method") if row.name == name), kebab(name))


def minimum(min_count: int | None) -> dict[str, int]:
    """The smallest count that tables show, where there is one."""
    return {} if min_count is None else {"min_count": min_count}


def counts(source: Federation | Runtime | Schema, privacy: Privacy) -> dict[str, int | None]:
    """Count sites and records, where that tells nobody anything that the privacy model hides."""
    if privacy.private:
        return {"sites": None, "records": None}
    if isinstance(source, Federation):
        return {"sites": len(source), "records": len(source.records)}
    return {"sites": (source.schema if isinstance(source, Runtime) else source).clients, "records": None}


def metrics(report: Measurement | None) -> dict[str, Any] | None:
    """Write every metric as data, with null for what cannot be stated."""
    if isinstance(report, Performance):
        stated = report.measures()
        return {name: measured(stated.get(name)) for name in report.to_json()}
    return None if report is None else {metric.name: measured(getattr(report, metric.name)) for metric in headline()}


def unmeasurable(report: Measurement | None) -> dict[str, str]:
    """Why metrics are null, by name."""
    return dict(report.unmeasurable()) if isinstance(report, Performance) else {}


def measured(measured: Any) -> dict[str, float | None] | None:
    """Write a figure with its interval as data, with null for what is missing or not finite."""
    if measured is None:
        return None
    values = {"value": measured.value, "low": measured.low, "high": measured.high}
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}


def changes(
    before: Measurement | None, after: Measurement | None, change: Mapping[str, Measured]
) -> dict[str, dict[str, float | None] | None]:
    """Write the paired change of every metric that both have, with null where it cannot be stated."""
    both = [metrics(report) or {} for report in (before, after)]
    known = {name for name in both[0] if all(side.get(name) is not None for side in both)}
    return {name: measured(change[name]) if name in change and name in known else None for name in both[0]}


def verdicts(before: Measurement | None, after: Measurement | None, change: Mapping[str, Measured]) -> dict[str, str]:
    """In words, whether each metric is better, worse or not clearly changed, by its paired change."""
    directions = {metric.name: metric.direction for metric in METRICS}
    stated = changes(before, after, change)
    return {
        name: verdict_on(None, None, change[name], directions[name]).words
        for name, value in stated.items()
        if value is not None
    }


def missing(*reports: Any) -> tuple[str, ...]:
    """What readers of the reports have to know, each sentence once."""
    return tuple(dict.fromkeys(text for report in reports for text in getattr(report, "warnings", ())))


def metrics_table(
    title: str, columns: Mapping[str, Mapping[str, Any] | None], reasons: Mapping[str, Mapping[str, str]] | None = None
) -> TextTable:
    """Metrics as a table, one per row; `reasons` has, by column, why a figure is missing: see `reasons_table`."""
    shown = {name: values for name, values in columns.items() if values is not None}
    why = {name: (reasons or {}).get(name, {}) for name in shown}
    names = dict.fromkeys(metric for values in shown.values() for metric in values)
    rows = tuple(
        (
            metric,
            *(said(values.get(metric), why[name].get(metric, "-").split(":")[0]) for name, values in shown.items()),
        )
        for metric in names
    )
    return TextTable(f"{title}, with {LEVEL} intervals", ("metric", *shown), rows)


def reasons_table(*reasons: Mapping[str, str]) -> list[TextTable]:
    """Why figures are missing, each reason once."""
    metrics: dict[str, dict[str, None]] = {}
    for name, reason in ((name, reason) for side in reasons for name, reason in side.items()):
        metrics.setdefault(reason, {})[name] = None
    rows = tuple((", ".join(names), reason) for reason, names in metrics.items())
    return [TextTable("Not stated", ("metric", "reason"), rows)] if rows else []


def class_figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the figures in a table by class."""
    return [name for name in (rows[0] if rows else ()) if isinstance(rows[0][name], Mapping)]


def class_table(rows: Sequence[Mapping[str, Any]]) -> list[TextTable]:
    """Lay the classes out, one per row."""
    names = class_figures(rows)
    cells = tuple(
        (
            str(row.get("name") or row["label"]),
            "-" if row["records"] is None else f"{row['records']:.0f}",
            *(said(row.get(n)) for n in names),
        )
        for row in rows
    )
    return [TextTable("Class by class", ("class", "records", *names), cells)] if rows else []


def own_table(own: Mapping[str, Any] | None) -> list[TextTable]:
    """Lay out clients' own errors, where they were measured."""
    if own is None:
        return []
    spread = "-" if own["spread"] is None else f"{own['spread']:.4f}"
    rows = (("mean of clients' own ece (top label)", said(own["mean"])), ("standard deviation over clients", spread))
    return [TextTable("The usual client", ("", "value"), rows)]


def said(measured: Mapping[str, float | None] | str | None, reason: str = "-") -> str:
    """A figure with its interval in words, a text as it is, or the reason why there is none."""
    if isinstance(measured, str):
        return measured
    if measured is None or measured["value"] is None:
        return reason
    low, high = ("?" if measured[end] is None else f"{measured[end]:z.4f}" for end in ("low", "high"))
    return f"{measured['value']:z.4f} ({low} to {high})"


def facts_table(title: str, facts: Mapping[str, Any]) -> TextTable:
    """Facts as a table, one per row; what is unknown is left out."""
    return TextTable(title, ("", ""), tuple((name, str(value)) for name, value in facts.items() if value is not None))


def files_table(written: Mapping[str, Any]) -> list[TextTable]:
    """Where a command wrote its files and its bundle, if it wrote any."""
    bundle = {"bundle": written["bundle"]} if "bundle" in written else {}
    places = {**written.get("files", {}), **bundle}
    return [facts_table("Files", places)] if places else []


def phase_tables(phases: Sequence[Phase[Any]]) -> list[TextTable]:
    """Lay out what would be asked: one row per block."""
    columns = ("query", "block", "shape", "l1", "l2", "linf", "unit", "share")
    tables = []
    for phase in phases:
        plan = phase.agreed.plan
        rows = tuple(
            (
                *(type(query).__name__, name, "x".join(map(str, block.shape))),
                *(f"{norm:.4g}" for norm in (block.bound.l1, block.bound.l2, block.bound.linf)),
                *(block.bound.unit, f"{block.weight / plan.weight:.3f}"),
            )
            for query in plan.queries
            for name, block in query.blocks.items()
        )
        tables.append(TextTable(f"{phase.name}: {phase.agreed.bytes_per_client} bytes per client", columns, rows))
    return tables


def site_tables(rows: Sequence[Mapping[str, Any]] | None, most: int = 20, *, sort: bool = True) -> list[TextTable]:
    """Lay single sites out, the largest first; the rest stands in the JSON document."""
    if not rows:
        return []
    known = [row for row in rows if row["metrics"] is not None]
    shown = sorted(known, key=lambda row: -(row["records"] or 0)) if sort else known
    title = "Single sites" if len(shown) <= most else f"{most} of {len(shown)} sites"
    names = [metric.name for metric in headline() if any(metric.name in row["metrics"] for row in shown)]
    cells = tuple(
        (row["site"], str(row["records"] or "-"), *(_value(row["metrics"][name]) for name in names))
        for row in shown[:most]
    )
    return [TextTable(title, ("site", "records", *names), cells)]


def _value(measured: Mapping[str, float | None] | None) -> str:
    return "-" if measured is None or measured["value"] is None else f"{measured['value']:.4f}"


def check_folder(folder: Folder, names: Iterable[str], flag: str = "--out") -> None:
    """Refuse a folder that cannot be written, before anything is asked and spent."""
    folder = Path(folder)
    try:
        blocked = next((folder / name for name in names if (folder / name).is_dir()), None)
        if blocked is not None:
            raise InputError(f"Expected to write the file {blocked}, found a directory; name another with {flag}.")
        nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            raise InputError(f"Expected a directory for {flag}, found the file {nearest}; name another.")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise InputError(f"Expected to write into {nearest}, found: Permission denied; name another with {flag}.")
    except OSError as error:
        raise InputError(f"Expected a directory for {flag}, found: {error.strerror or error}.") from error


def write_all(folder: Folder, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Write files into a folder, all of them or none; say where each one is."""
    files.write_all(Path(folder), contents)
    return places(folder, contents)


def write_file(path: Path | str, content: bytes) -> Path:
    """Write one file, at once or not at all."""
    path = Path(path)
    files.write_all(path.parent, {path.name: content})
    return path


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas frame of plain data: a figure with its interval becomes three columns."""
    import pyarrow as pa

    with needs("make a frame"):
        import pandas  # noqa: F401 - Arrow imports it without saying how to install it

    flat = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return pa.table({name: [row.get(name) for row in flat] for name in names}).to_pandas()


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        key = before if name == "value" else f"{before}_{name}" if before else name
        flat |= _flat(value, key) if isinstance(value, Mapping) else {key: value}
    return flat


def places(folder: Folder, names: Iterable[str]) -> dict[str, str]:
    """Where each file is, under its name without the suffix."""
    return {Path(name).stem: str(Path(folder) / name) for name in names}
