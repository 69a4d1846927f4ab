"""What `fedcalib compare` does: run every method on the same records, and lay the results side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from fedcalib import registry
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import FedcalibError, InputError
from fedcalib.method import Method
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ACCURACY, CWECE, Direction, Metric, shown_in
from fedcalib.registry import Registered
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Page, render
from fedcalib.report.row_plots import comparison as picture
from fedcalib.report.values import Contender
from fedcalib.workflows.documents import TextTable

SIMULATION: Final = "Simulation: nothing here is private, and nothing was spent. Noise and splits follow from a seed."
_FALLEN: Final = -1.0  # points of accuracy; a method that costs more is marked

Values = Mapping[str, Measured]


def change_of(metric: Metric) -> str:
    """Name the column that shows a metric's change."""
    return f"{metric.name}_change"


def columns_of() -> dict[str, tuple[str, Direction]]:
    """List what is compared, by key: the title, and which direction is better."""
    values = {metric.name: (metric.title, metric.direction) for metric in shown_in("comparison")}
    changes = {change_of(metric): (f"{metric.title} change, points", metric.direction) for metric in shown_in("change")}
    return values | changes


@final
@dataclass(frozen=True)
class Row:
    """One line of the table: the metrics by name, with a range where there is one, and what the method takes."""

    method: str
    values: Values
    bytes_per_client: int | None = None
    client_seconds: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None

    @property
    def fallen(self) -> bool:
        """Say whether accuracy fell by more than a point."""
        return self.values[change_of(ACCURACY)].value < _FALLEN

    def to_json(self) -> dict[str, Any]:
        """Write it as data."""
        metrics = {name: found.to_json() for name, found in self.values.items()}
        return {
            "method": self.method,
            **metrics,
            "bytes_per_client": self.bytes_per_client,
            "client_seconds": self.client_seconds,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
        }


@final
@dataclass(frozen=True)
class Side:
    """Everything that was found: the base model, the methods from best to worst, and those that were refused."""

    base: Row
    rows: tuple[Row, ...]
    refused: Mapping[str, str]

    @classmethod
    def of(cls, base: Row, rows: Sequence[Row], refused: Mapping[str, str]) -> Side:
        """Put the lowest classwise error first, and last what drowned in noise."""
        return cls(base, tuple(sorted(rows, key=_place)), refused)

    def to_json(self) -> dict[str, Any]:
        """Write it as data."""
        return {
            "base": {name: value for name, value in self.base.to_json().items() if value is not None},
            "methods": [row.to_json() for row in self.rows],
            "refused": [{"method": name, "reason": reason} for name, reason in self.refused.items()],
        }

    def tables(self, title: str) -> list[TextTable]:
        """Lay it out for people."""
        columns = ("method", *(title for title, _ in columns_of().values()), "bytes", "client ms", "epsilon")
        tables = [TextTable(title, columns, tuple(_cells(row) for row in (self.base, *self.rows)))]
        if self.refused:
            tables.append(TextTable("Refused", ("method", "reason"), tuple(self.refused.items())))
        return tables

    def warnings(self) -> list[str]:
        """Say which methods cost accuracy."""
        fallen = [row.method for row in self.rows if row.fallen]
        return [f"More than a point of accuracy is lost by {', '.join(fallen)}."] if fallen else []

    def picture(self) -> Picture:
        """Draw it as rows of dots."""
        rows = [
            Contender(row.method, tuple(map(row.values.get, columns_of())), reference=row is self.base)
            for row in (self.base, *self.rows)
        ]
        return picture(rows, dict(columns_of().values()))

    def page(self, privacy: str, simulation: bool, warnings: Sequence[str], provenance: Mapping[str, object]) -> bytes:
        """Draw the report."""
        page = Page(
            title="Methods compared",
            summary=(self._headline(), "Measured on records that were not fitted."),
            privacy=(privacy,),
            private=True,  # no count is shown, whatever the model
            simulation=simulation,
            figures=(self.picture(),),
            warnings=(*warnings, *(f"{name} was refused: {reason}" for name, reason in self.refused.items())),
            provenance=provenance,
        )
        return render(page).encode()

    def _headline(self) -> str:
        if not self.rows:
            return "No method could be run."
        best = self.rows[0]
        before, after = (row.values[CWECE.name].value for row in (self.base, best))
        if math.isnan(after):
            return "No classwise calibration error could be told from the noise."
        return f"The lowest classwise calibration error is that of {best.method}: {after:.4f}, from {before:.4f}."


def _place(row: Row) -> float:
    error = row.values[CWECE.name].value
    return math.inf if math.isnan(error) else error


def _cells(row: Row) -> tuple[str, ...]:
    took = "" if row.client_seconds is None else f"{1000 * row.client_seconds:.2f}"
    sent = "" if row.bytes_per_client is None else f"{row.bytes_per_client:,}"
    metrics = [_said(row.values[metric.name]) for metric in shown_in("comparison")]
    changes = [_points(row, metric) for metric in shown_in("change")]
    return (row.method, *metrics, *changes, sent, took, _plain(row.epsilon))


def _points(row: Row, metric: Metric) -> str:
    change = row.values[change_of(metric)].value
    mark = " !" if metric is ACCURACY and row.fallen else ""
    return "-" if math.isnan(change) else f"{change:+.2f}{mark}"


def _said(value: Measured) -> str:
    if math.isnan(value.value):
        return "-"
    half = (value.high - value.low) / 2
    return f"{value.value:.4f}" + ("" if math.isnan(half) else f" ±{half:.3f}")


def _plain(epsilon: float | None) -> str:
    return "-" if epsilon is None else f"{epsilon:.4g}"


Builder = Callable[[Registered], Method[Calibrator]]


def builder(rounds: int | None, clip: float | None) -> Builder:
    """Say how a method is made: with its defaults, and what public facts say."""
    facts = {"rounds": rounds, "clip": clip}

    def build(entry: Registered) -> Method[Calibrator]:
        known = {name: value for name, value in facts.items() if value is not None and name in entry.options}
        made: Method[Calibrator] = entry.build(known)
        return made

    return build


def entries(words: str | None) -> tuple[Registered, ...]:
    """Find the methods that were named, or all of them."""
    there = registry.choices("method")
    if words is None:
        return there
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    known = {entry.word: entry for entry in there}
    if wrong := [word for word in wanted if word not in known]:
        raise InputError(f"Expected --methods with some of {', '.join(known)}, found '{wrong[0]}'.")
    if not wanted:
        raise InputError("Expected --methods with at least one method, found none.")
    return tuple(known[word] for word in dict.fromkeys(wanted))


def built(chosen: Sequence[Registered], build: Builder) -> tuple[dict[str, Method[Calibrator]], dict[str, str]]:
    """Make the methods; those that cannot be made are refused with the reason."""
    made: dict[str, Method[Calibrator]] = {}
    refused: dict[str, str] = {}
    for entry in chosen:
        try:
            made[entry.word] = build(entry)
        except FedcalibError as error:
            refused[entry.word] = str(error)
    return made, refused
