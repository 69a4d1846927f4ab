"""What a comparison of methods found: as data, as tables, as a picture and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, final

import numpy as np

from fedcalib.metrics.intervals import UNKNOWN, Measured
from fedcalib.metrics.table import ACCURACY, CWECE, ECE, Direction, Metric, shown_in
from fedcalib.report.canvas import Figures, Picture
from fedcalib.report.page import Page, Section, render
from fedcalib.report.row_plots import comparison
from fedcalib.report.values import Contender, PageTable, Said
from fedcalib.workflows import documents
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.evidence import made
from fedcalib.workflows.facts import UNKNOWN as UNNAMED
from fedcalib.workflows.facts import About, Trail, call, stated
from fedcalib.workflows.result import WorkflowResult

NAMES: Final = ("result.json", "report.html", "comparison.svg")
_LARGEST_LOSS: Final = -1.0  # points of accuracy; a method that loses more is marked


def _change(metric: Metric) -> str:
    return f"{metric.name}_change"


def _columns() -> dict[str, tuple[str, Direction]]:
    """What is compared, by key: the title, and which direction is better."""
    values = {metric.name: (metric.title, metric.direction) for metric in shown_in("comparison")}
    changes = {_change(metric): (f"{metric.title} change, points", metric.direction) for metric in shown_in("change")}
    return values | changes


def exact_values(after: Sequence[Mapping[str, float]], before: Sequence[Mapping[str, float]]) -> dict[str, Measured]:
    """Means of exact metrics over repeats, plus or minus their standard deviation where there are several."""
    columns = {metric.name: [one[metric.name] for one in after] for metric in shown_in("comparison")}
    for metric in shown_in("change"):
        pairs = zip(after, before, strict=True)
        columns[_change(metric)] = [100 * (new[metric.name] - old[metric.name]) for new, old in pairs]
    return {name: _spread(np.array(values)) for name, values in columns.items()}


def _spread(values: np.ndarray[Any, Any]) -> Measured:
    mean = float(values.mean())
    if len(values) == 1:
        return Measured(mean)
    deviation = float(values.std(ddof=1))
    return Measured(mean, mean - deviation, mean + deviation)


def private_values(
    after: Measurement, before: Measurement, change: Mapping[str, Measured] | None = None
) -> dict[str, Measured]:
    """Metrics that were measured privately, and the paired change where there is one; what noise drowned is NaN."""
    values = {metric.name: getattr(after, metric.name) or Measured(UNKNOWN) for metric in shown_in("comparison")}
    for metric in shown_in("change"):
        new, old = (getattr(report, metric.name) or Measured(UNKNOWN) for report in (after, before))
        paired = (change or {}).get(metric.name) or Measured(new.value - old.value)
        values[_change(metric)] = Measured(*(100 * end for end in (paired.value, paired.low, paired.high)))
    return values


@final
@dataclass(frozen=True)
class MethodRow:
    """One method: its metrics by name, with an interval where there is one, and what it costs."""

    method: str
    values: Mapping[str, Measured]
    bytes_per_client: int | None = None
    client_seconds: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None

    @property
    def error(self) -> float:
        """The classwise calibration error; infinite where noise drowned it."""
        error = self.values[CWECE.name].value
        return math.inf if math.isnan(error) else error

    @property
    def loses_accuracy(self) -> bool:
        """Whether accuracy fell by more than a point."""
        return self.values[_change(ACCURACY)].value < _LARGEST_LOSS

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        document = {name: value for name, value in asdict(self).items() if name != "values"}
        return {**document, **{name: value.to_json() for name, value in self.values.items()}}


@final
@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult(WorkflowResult):
    """The base model, the methods from best to worst by classwise calibration error, and those that were refused."""

    command: ClassVar[str] = "compare"
    base: MethodRow
    rows: tuple[MethodRow, ...]
    refused: Mapping[str, str]  # reasons, by the names of the methods
    statement: str  # what the comparison spent
    simulation: bool
    split: str  # what was held out: "record" or "client"
    holdout: float  # share of them
    repeats: int = 1
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # repeated in the result
    privacy: Mapping[str, Any] = field(default_factory=dict)  # the privacy model, and what was or would be spent
    call: str = field(default_factory=lambda: call("compare(...) in Python"))  # the command or call that made it
    evidence: Trail = field(default_factory=Trail)  # of a comparison that spent a budget

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which methods lose accuracy."""
        losing = [row.method for row in self.rows if row.loses_accuracy]
        return (f"More than a point of accuracy is lost by {', '.join(losing)}.",) if losing else ()

    @property
    def _about(self) -> dict[str, Any]:
        names = ("simulation", "repeats", "seed", "split", "holdout")
        return {**self.settings, **{name: getattr(self, name) for name in names}}

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib compare --format json` prints it."""
        return {
            "command": self.command,
            **self._about,
            "privacy": {**self.privacy, "simulation": self.simulation, "statement": self.statement},
            "warnings": list(self.warnings),
            "base": {name: value for name, value in self.base.to_json().items() if value is not None},
            "methods": [row.to_json() for row in self.rows],
            "refused": [{"method": name, "reason": reason} for name, reason in self.refused.items()],
        }

    def to_frame(self) -> Any:
        """A pandas frame with one row per method, the base model first."""
        return documents.frame([row.to_json() for row in (self.base, *self.rows)])

    @property
    def headline(self) -> str:
        """Which method has the lowest calibration error."""
        return self._headline()

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the comparison spent, the warnings, and which methods were refused."""
        refused = f"Refused: {', '.join(self.refused)}." if self.refused else ""
        return (self.statement, *self.warnings, *filter(None, [refused]))

    def tables(self) -> list[documents.TextTable]:
        """The result for people."""
        mark = "Simulation" if self.simulation else "Measured privately"
        title = f"{mark}, on records that were not fitted (held out by {self.split})"
        titles = [_columns()[name][0] for name in self._shown]
        columns = ("method", *titles, "bytes", "client ms", "epsilon")
        tables = [documents.TextTable(title, columns, tuple(map(self._cells, (self.base, *self.rows))))]
        if self.refused:
            tables.append(documents.TextTable("Refused", ("method", "reason"), tuple(self.refused.items())))
        return [*tables, documents.facts_table("", {"±": self._spread, "privacy": self.statement})]

    def plot(self, name: str | None = None) -> Any:
        """The methods as rows of dots, one figure per metric, or the one of a title such as "ECE"."""
        drawn = Figures({one.title: one for one in self.pictures()})
        return drawn if name is None else drawn[name]

    def pictures(self) -> tuple[Picture, ...]:
        """The methods as rows of dots, one picture per metric."""
        rows = [
            Contender(self._named(row), tuple(map(row.values.get, _columns())), reference=row is self.base)
            for row in (self.base, *self.rows)
        ]
        level = self._intervals.get("Intervals", "95% interval")
        drawn = comparison(rows, dict(_columns().values()), level)
        return tuple(one for one, name in zip(drawn, _columns(), strict=True) if name in self._shown)

    def contents(self, about: About = UNNAMED) -> Page:
        """The contents of the report."""
        return Page(
            title="Methods compared",
            asked=f"Which method calibrates {about.named} best on these records, and what does it cost?",
            summary=(self._headline(), f"Measured on records that were not fitted (held out by {self.split})."),
            gains=self._doubt,
            next_steps=self._next_steps,
            facts=stated(about, self.call) | self._intervals,
            privacy=(self.statement,),
            meaning=self.evidence.remainder,
            private=not self.simulation,  # no count is shown, whatever the privacy model
            simulation=self.simulation,
            sections=(Section("Metric by metric", self.pictures(), (), self._reading), *self._costs),
            warnings=(
                *self.warnings,
                *(f"{name} was refused: {reason}" for name, reason in self.refused.items()),
                *_LIMITS,
            ),
            provenance=made(self._about, self.evidence),
            data=documents.text(self.to_json()),
        )

    @property
    def _reading(self) -> tuple[str, ...]:
        if self.repeats > 1 and self.simulation:
            return (f"Lines are one standard deviation over {self.repeats} splits to either side, not 95% intervals.",)
        return ()

    @property
    def _intervals(self) -> dict[str, str]:
        if not self.simulation or self.repeats == 1:
            return {} if not self.simulation else {"Intervals": "none: one split"}
        return {"Intervals": f"one standard deviation over {self.repeats} splits"}

    @property
    def _spread(self) -> str | None:
        """What the figures after ± are, where there are any."""
        if not self.simulation:
            return f"half of a {documents.LEVEL} interval"
        return f"one standard deviation over {self.repeats} splits" if self.repeats > 1 else None

    @property
    def _doubt(self) -> tuple[str, ...]:
        """Whether the best method is clearly better than the classifier as it is, and than the next one."""
        known = [row for row in self.rows if math.isfinite(row.error)]
        if not known or any(math.isnan(end) for end in self._ends(known[0])):
            return ()
        others = {"the classifier as it is": self.base} | {row.method: row for row in known[1:2]}
        close = [name for name, row in others.items() if self._ends(row)[0] <= self._ends(known[0])[1]]
        if not close:
            return (f"The lines of the others lie apart from that of {known[0].method}.",)
        return (
            f"The line of {known[0].method} overlaps that of {' and that of '.join(close)}: the order may be chance.",
        )

    def _ends(self, row: MethodRow) -> tuple[float, float]:
        found = row.values[CWECE.name]
        return found.low, found.high

    @property
    def _costs(self) -> tuple[Section, ...]:
        """Every method with its metrics and its cost."""
        titles = [_columns()[name][0] for name in self._shown]
        heads = ("method", *titles, "bytes per client", "milliseconds per client", "epsilon")
        rows = tuple((self._named(row), tuple(map(Said, self._cells(row)[1:]))) for row in (self.base, *self.rows))
        table = PageTable("All methods with their cost", heads, rows, "Lower is better for errors and losses.")
        return (Section("What each method costs", (), (table,)),)

    @property
    def _next_steps(self) -> tuple[str, ...]:
        if not self.rows or math.isinf(self.rows[0].error):
            return ("Collect more records, or allow a larger epsilon: no method could be told from another.",)
        best = self.rows[0].method
        kept = "This was a simulation and released nothing. " if self.simulation else ""
        return (f"{kept}Run `fedcalib calibrate --method {best}` on the same files.",)

    def files(self, about: About = UNNAMED) -> dict[str, bytes]:
        """The result, the report and a picture."""
        page, first = self.contents(about), next(iter(self.pictures()))
        contents = (page.data, render(page), first.standalone())
        return {name: one.encode() for name, one in zip(NAMES, contents, strict=True)}

    def _headline(self) -> str:
        if not self.rows:
            return "No method could be run."
        best = self.rows[0]
        if math.isinf(best.error):
            return "No classwise calibration error could be told from the noise."
        kind = "classwise calibration error" if CWECE.name in self._shown else "calibration error (ECE)"
        return (
            f"The lowest {kind} is that of {best.method}: {best.error:.4f}, "
            f"from {self.base.values[CWECE.name].value:.4f}."
        )

    @property
    def _shown(self) -> list[str]:
        """What is compared, by key; with two classes, the classwise error is the error and is shown once."""
        rows = (self.base, *self.rows)
        same = all(row.values[CWECE.name].value == row.values[ECE.name].value for row in rows)
        return [name for name in _columns() if not (same and name == CWECE.name)]

    def _named(self, row: MethodRow) -> str:
        return "none: as it is" if row is self.base else row.method

    def _cells(self, row: MethodRow) -> tuple[str, ...]:
        compared = [metric for metric in shown_in("comparison") if metric.name in self._shown]
        return (
            row.method,
            *(_with_spread(row.values[metric.name]) for metric in compared),
            *(_points(row, metric) for metric in shown_in("change")),
            *_cost(row),
        )


_LIMITS: Final = (
    "The best of several methods looks better on these records than it is: measure the chosen one on other records.",
    "The records are taken as independent of each other. If many belong to one patient, the spread is too small.",
)


def _cost(row: MethodRow) -> tuple[str, ...]:
    return (
        "" if row.bytes_per_client is None else f"{row.bytes_per_client:,}",
        "" if row.client_seconds is None else f"{1000 * row.client_seconds:.2f}",
        "-" if row.epsilon is None else f"{row.epsilon:.4g}",
    )


def _points(row: MethodRow, metric: Metric) -> str:
    change = row.values[_change(metric)].value
    mark = " !" if metric is ACCURACY and row.loses_accuracy else ""
    return "-" if math.isnan(change) else f"{change:+.2f}{mark}"


def _with_spread(value: Measured) -> str:
    if math.isnan(value.value):
        return "-"
    half = (value.high - value.low) / 2
    return f"{value.value:.4f}" + ("" if math.isnan(half) else f" ±{half:.3f}")
