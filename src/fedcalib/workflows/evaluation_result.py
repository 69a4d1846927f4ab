"""What an evaluation found: as data, as tables, as pictures and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, final

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.artifacts.evaluation import ClientErrors
from fedcalib.artifacts.performance import BinaryPerformance
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ACCURACY, AUC, ECE
from fedcalib.report.canvas import Figures
from fedcalib.report.explorer import Explorer
from fedcalib.report.page import Page, Section
from fedcalib.report.values import MetricRow
from fedcalib.workflows import class_reports, documents, reports, site_spread, verdicts
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.evidence import made
from fedcalib.workflows.facts import UNKNOWN, About, Trail, meaning, stated
from fedcalib.workflows.groups import GroupResult
from fedcalib.workflows.result import WorkflowResult
from fedcalib.workflows.site_spread import Spread

NAMES: Final = (
    "report.html", "result.json", "performance.json",
    "reliability.svg", "roc.svg", "pr.svg", "decision.svg",
)  # fmt: skip


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
    evidence: Trail = field(default_factory=Trail)
    provenance: Mapping[str, object] = field(default_factory=dict)
    call: str = ""  # the command or call that made it
    class_names: tuple[str, ...] = ()  # of several classes, where the data names them

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
        classes = class_reports.class_rows(self._lines["model"], self.class_names)
        return {
            "command": self.command,
            "method": "federated-metrics",
            **self.counts,
            "privacy": asdict(self.privacy),
            "metrics": documents.metrics(self.metrics),
            "unmeasurable": documents.unmeasurable(self.metrics),
            "threshold": self.threshold,
            **rival,
            **({"classes": classes, "confusion": class_reports.confusion(self._lines["model"])} if classes else {}),
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

    def document(self) -> dict[str, Any]:
        """The result as `result.json` holds it: with decisions at many thresholds where there are two classes."""
        explored = self._explorer
        return {**self.to_json(), **({} if explored is None else {"thresholds": explored.to_json()})}

    @cached_property
    def _lines(self) -> dict[str, Measurement]:
        """What curves are drawn of, as it may be published."""
        lines = {"model": self.metrics} if self.rival is None else {"model": self.metrics, "rival": self.rival.after}
        return {name: one.published(self.min_count or 1) for name, one in lines.items()}

    @cached_property
    def _explorer(self) -> Explorer | None:
        return reports.explorer(self._lines)

    def plot(self, name: str | None = None) -> Any:
        """The figures, which show themselves in a notebook, or the one of a name such as "roc"; see `Figures`."""
        drawn = self._figures
        return drawn if name is None else drawn[name]

    @cached_property
    def _figures(self) -> Figures:
        return reports.figures(self._lines)

    def contents(self, about: About = UNKNOWN) -> Page:
        """The contents of the report."""
        drawn, lines = self._figures.pictures, self._lines
        return Page(
            title=f"Evaluation of {about.named}",
            asked=self._asked(about),
            summary=self._summary,
            gains=self._gains,
            next_steps=self._next_steps,
            facts=stated(about, self.call) | self._decided,
            privacy=(self.privacy.statement,),
            meaning=(*meaning(self.privacy), *self.evidence.remainder),
            private=self.privacy.epsilon is not None,
            simulation=self.privacy.simulation,
            records=self.counts["records"],
            clients=self.counts["sites"],
            metrics=self._rows,
            reliability=drawn.get("reliability") if "bins" in drawn else None,
            before=reports.diagram("model", lines["model"], None),
            after=None if self.rival is None else reports.diagram("rival", lines["rival"], None),
            curves=tuple(drawn[name] for name in ("decision", "roc", "pr") if name in drawn),
            explorer=self._explorer,
            sections=self._sections,
            warnings=(*self.warnings, *_LIMITS),
            provenance=made(self.provenance, self.evidence),
            data=documents.text(self.document()),
        )

    def files(self, about: About = UNKNOWN) -> dict[str, bytes]:
        """The report page, the pictures beside it, the result, and the evaluation itself, to be loaded later."""
        page = self.contents(about)
        contents = reports.files(page, self._figures.pictures)
        contents["performance.json"] = self._lines["model"].dumps(self.privacy, min_count=self.min_count or 1).encode()
        contents["result.json"] = page.data.encode()
        return {name: contents[name] for name in NAMES if name in contents}

    @property
    def _binary(self) -> bool:
        return isinstance(self.metrics, BinaryPerformance)

    @property
    def _known(self) -> Mapping[str, Measured]:
        return verdicts.known(self.metrics)

    def _asked(self, about: About) -> str:
        where = "" if self.counts["sites"] is None else f" across {self.counts['sites']} sites"
        groups = "".join(f", and by {one.column}" for one in self.groups)
        return f"How good are the predicted probabilities of {about.named}{where}{groups}?"

    @property
    def _next_steps(self) -> tuple[str, ...]:
        shown = self._lines["model"]
        if isinstance(shown, ClassPerformance):
            return verdicts.after_evaluation_of_classes(shown)
        return verdicts.after_evaluation(self._known) if self._binary else ()

    @property
    def _summary(self) -> tuple[str, ...]:
        shown = self._lines["model"]
        if isinstance(shown, ClassPerformance):
            return (*verdicts.several_classes(shown), reports.headline(self.metrics))
        if not self._binary:
            return (reports.headline(self.metrics),)
        said = [verdicts.calibration(self._known), *verdicts.ranking(self._known), reports.headline(self.metrics)]
        if self.rival is not None:
            said.append("In the table below, before is the model and after is its rival, on the same records.")
        return tuple(said)

    @property
    def _gains(self) -> tuple[str, ...]:
        sites = {one.site: verdicts.known(one.metrics) for one in self.sites or () if one.metrics is not None}
        said = [*(verdicts.between("site", sites) if len(sites) > 1 else ())]
        said += class_reports.best_and_worst(self._lines["model"], self.class_names)
        for one in self.groups:
            groups = {name: verdicts.known(found) for name, found in one.found.groups.items()}
            said += verdicts.between(one.column, groups)
        return tuple(said)

    @property
    def _decided(self) -> dict[str, str]:
        return {} if self.threshold is None else {"Threshold of decisions": f"{self.threshold:.4g}"}

    @property
    def _sections(self) -> tuple[Section, ...]:
        """Classes, groups and sites, each with its figures and tables."""
        groups = tuple(
            Section(f"By {one.column}", reports.forests(one.column, one.shown, self.metrics), one.page_tables())
            for one in self.groups
        )
        return (*class_reports.class_section(self._lines["model"], self.class_names), *groups, *self._by_site)

    @property
    def _by_site(self) -> tuple[Section, ...]:
        if not self.sites or len(self.sites) < 2:
            return ()
        spread = {name: f"I-squared: {100 * one.i_squared:.0f}%." for name, one in self.between_sites.items()}
        pictures = reports.forests("site", {one.site: one.metrics for one in self.sites}, self.metrics, spread)
        return (Section("By site", pictures),) if pictures else ()

    @property
    def _rows(self) -> tuple[MetricRow, ...]:
        if self.rival is None:
            return reports.metric_rows(self.metrics)
        return reports.metric_rows(self.metrics, self.rival.after, self.rival.change)


_LIMITS: Final = (
    "The records are taken as independent of each other. If many belong to one patient, intervals are too narrow.",
    "The figures hold for the records that were measured; another period or another place may differ.",
)
