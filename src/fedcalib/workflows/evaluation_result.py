"""What an evaluation found: as data, as tables, as pictures and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, final

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.evaluation import ClientErrors
from fedcalib.artifacts.performance import BinaryPerformance
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.files import save_text
from fedcalib.metrics.table import ACCURACY, AUC, ECE, OBSERVED_EXPECTED
from fedcalib.report.canvas import Picture
from fedcalib.report.row_plots import forest
from fedcalib.report.values import MetricRow
from fedcalib.workflows import documents, reports, site_spread
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.groups import GroupResult
from fedcalib.workflows.result import WorkflowResult
from fedcalib.workflows.site_spread import Spread

NAMES: Final = ("result.json", *reports.EVALUATION_FILES)


@final
@dataclass(frozen=True, eq=False)
class SiteMetrics:
    """The metrics of one site; None where it has too few records to be shown."""

    site: str
    records: int | None
    metrics: Measurement | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"site": self.site, "records": self.records, "metrics": documents.metrics(self.metrics)}


@final
@dataclass(frozen=True, eq=False, repr=False)
class EvaluationResult(WorkflowResult):
    """What was measured, of all sites and of each where they can be seen, and what it cost."""

    command: ClassVar[str] = "evaluate"
    metrics: Measurement
    per_client: ClientErrors | None  # the usual client's own error, where it was asked for
    sites: tuple[SiteMetrics, ...] | None  # None where the privacy model hides them
    privacy: Spending
    counts: Mapping[str, int | None]
    left_out: tuple[str, ...]  # what is said about records that were left out
    remarks: tuple[str, ...]  # what is said about metrics and sites that are not shown
    replayed: bool
    min_count: int | None = None  # the smallest count that tables and figures show, apart from 0; None under noise
    groups: tuple[GroupResult, ...] = ()  # one per grouping column
    rival: PairedPerformance | None = None  # the model and its rival on the same records, where one was named

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that a reader has to know."""
        return (*self.left_out, *self.remarks)

    @property
    def threshold(self) -> float | None:
        """The threshold of decisions; None with more than two classes."""
        return self.metrics.threshold if isinstance(self.metrics, BinaryPerformance) else None

    @property
    def between_sites(self) -> dict[str, Spread]:
        """How much sites differ in a metric beyond sampling and noise; empty where single sites are hidden."""
        return site_spread.spread(self.sites or ())

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib evaluate --format json` prints it."""
        rival = {} if self.rival is None else {"rival": self._rival(self.rival)}
        classes = reports.class_rows(self.metrics, self.min_count)
        return {
            "command": self.command,
            "method": "federated-metrics",
            **self.counts,
            "privacy": asdict(self.privacy),
            "metrics": documents.metrics(self.metrics),
            "unmeasurable": documents.unmeasurable(self.metrics),
            "threshold": self.threshold,
            **rival,
            **({"classes": classes} if classes else {}),
            "groups": [one.to_json() for one in self.groups],
            "between_sites": {name: one.to_json() for name, one in self.between_sites.items()},
            "per_site": None if self.sites is None else [site.to_json() for site in self.sites],
            "per_client": None if self.per_client is None else self.per_client.to_json(),
            "warnings": list(self.warnings),
            "replayed": self.replayed,
            **documents.minimum(self.min_count),
        }

    def _rival(self, pair: PairedPerformance) -> dict[str, Any]:
        """The rival's metrics, and what changes from the model to the rival."""
        return {
            "metrics": documents.metrics(pair.after),
            "unmeasurable": documents.unmeasurable(pair.after),
            "change": documents.changes(pair.before, pair.after, pair.change),
            "verdicts": documents.verdicts(pair.before, pair.after, pair.change),
        }

    def to_frame(self) -> Any:
        """A pandas frame of the metrics with their intervals; one row per metric, and per group where there are any."""
        rows = documents.by_metric({"measured": self.metrics})
        if self.rival is not None:
            rival = self._rival(self.rival)
            named = {"rival": rival["metrics"], "change": rival["change"], "verdict": rival["verdicts"]}
            rows = [{**row, **{name: part.get(row["metric"]) for name, part in named.items()}} for row in rows]
        if not self.groups:
            return documents.frame(rows)
        rows = [{"column": None, "group": None, **row} for row in rows]
        for one in self.groups:
            for name, found in one.found.groups.items():
                own = documents.by_metric({"measured": found})
                rows += [{"column": one.column, "group": name, **row} for row in own]
        return documents.frame(rows)

    @property
    def headline(self) -> str:
        """Ranking, accuracy and calibration, with their intervals."""
        found = documents.metrics(self.metrics) or {}
        titles = {metric.name: metric.title for metric in (AUC, ACCURACY, ECE)}
        return "; ".join(f"{title} {documents.said(found[name])}" for name, title in titles.items() if name in found)

    @property
    def sentences(self) -> tuple[str, ...]:
        """At which threshold decisions were measured, the privacy statement, and the warnings."""
        return (*self._summary, self.privacy.statement, *self.warnings)

    def tables(self) -> list[documents.TextTable]:
        """The result for people."""
        document = self.to_json()
        values, reasons = {"value": document["metrics"]}, {"value": document["unmeasurable"]}
        if self.rival is not None:
            rival = document["rival"]
            values |= {"rival": rival["metrics"], "change": rival["change"], "verdict": rival["verdicts"]}
            reasons["rival"] = rival["unmeasurable"]
        return [
            documents.metrics_table("All sites together", values, reasons),
            *documents.reasons_table(*reasons.values()),
            *documents.class_table(document.get("classes", ())),
            *(table for one in self.groups for table in one.tables()),
            *documents.own_table(document["per_client"]),
            *documents.site_tables(document["per_site"]),
            *site_spread.table(document["between_sites"]),
            documents.facts_table("Privacy", document["privacy"]),
        ]

    def report(self, path: documents.Folder) -> None:
        """Write the report, one self-contained HTML page."""
        save_text(Path(path), self.files()["report.html"].decode())

    def files(self) -> dict[str, bytes]:
        """The report page, the pictures beside it, and the evaluation itself, to be loaded later."""
        lines = {"model": self.metrics} if self.rival is None else {"model": self.metrics, "rival": self.rival.after}
        drawn = reports.curves(lines, self.min_count)
        page = reports.evaluation_page(
            self.metrics,
            self.privacy,
            self.to_json(),
            self._summary,
            metrics=self._rows,
            tables=(
                *reports.class_table(reports.class_rows(self.metrics, self.min_count)),
                *(table for one in self.groups for table in one.page_tables()),
            ),
            figures=(*drawn.values(), *self._forests),
            provenance={"method": "federated-metrics"},
        )
        contents = {**reports.files(page), **{f"{name}.png": one.png for name, one in drawn.items()}}
        contents["performance.json"] = self.metrics.dumps(self.privacy, min_count=self.min_count or 1).encode()
        return {name: contents[name] for name in NAMES if name in contents}

    @property
    def _forests(self) -> list[Picture]:
        """Forest plots of ranking and of calibration; with more than two classes, of accuracy."""
        spreads = self.between_sites
        drawn = (AUC, OBSERVED_EXPECTED) if AUC.name in spreads else (ACCURACY,)
        return [
            forest(
                site_spread.by_site(self.sites or (), metric.name),
                spreads[metric.name].mean,
                metric.title,
                f"I-squared: {100 * spreads[metric.name].i_squared:.0f}%.",
            )
            for metric in drawn
            if metric.name in spreads
        ]

    @property
    def _rows(self) -> tuple[MetricRow, ...]:
        if self.rival is None:
            return reports.metric_rows(self.metrics)
        return reports.metric_rows(self.metrics, self.rival.after, self.rival.change)

    @property
    def _summary(self) -> tuple[str, ...]:
        said = [] if self.rival is None else ["Before is the model, after is its rival, on the same records."]
        if self.threshold is not None:
            said.append(f"Decisions: a record is called positive if it scores at least {self.threshold:.4g}.")
        return tuple(said)

    def save(self, folder: documents.Folder) -> dict[str, str]:
        """Write the result, the report, the pictures and the evaluation into a folder; say where each file is."""
        contents = {"result.json": b"", **self.files()}
        document = {**self.to_json(), "files": documents.places(folder, contents)}
        return documents.write_all(folder, {**contents, "result.json": documents.text(document).encode()})
