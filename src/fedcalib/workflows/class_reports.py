"""The part of a report on several classes: confusion, reliability, figures and tables by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.estimation.score_rates import Bins
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import BINS
from fedcalib.metrics.table import PRECISION, RECALL
from fedcalib.report.canvas import Picture
from fedcalib.report.curve_plots import reliability_panels
from fedcalib.report.grid_plots import confusion as confusion_plot
from fedcalib.report.page import Section
from fedcalib.report.row_plots import forest
from fedcalib.report.values import ConfusionGrid, Diagram, PageTable
from fedcalib.workflows import documents
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.reports import read_measured
from fedcalib.workflows.verdicts import by_class

_MOST: Final = 12  # classes whose reliability is drawn


def class_section(found: Measurement | None, names: Sequence[str] = (), title: str = "By class") -> tuple[Section, ...]:
    """The classes of an evaluation with more than two: confusion, reliability, precision, recall and their tables.

    Parameters
    ----------
    found
        The evaluation as it may be published.
    names
        Names of the classes; "class 0" and so on if left out.
    title
        Heading of the section.
    """
    rows = class_rows(found, names)
    if not rows:
        return ()
    shown = [name for name in documents.class_figures(rows) if name in (PRECISION.name, RECALL.name)]
    forests = tuple(
        forest({_name(row): _named(row.get(name)) for row in rows}, name, title=f"{name.capitalize()} by class")
        for name in shown
    )
    pictures = (*_confusion(found, names), *_reliability(found, names), *forests)
    return (Section(title, pictures, class_table(rows)),)


def class_rows(found: Measurement | None, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The table by class as plain data; empty with two classes."""
    if not isinstance(found, ClassPerformance):
        return []
    return [{**row.to_json(), **({"name": names[row.label]} if names else {})} for row in found.classes]


def best_and_worst(found: Measurement, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Which class is found best and which worst."""
    return by_class({_name(row): _named(row.get(RECALL.name)) for row in class_rows(found, names)})


def confusion(found: Measurement) -> list[list[float | None]] | None:
    """Records by actual class (rows) and predicted class, as they may be published; None for a cell that may not be."""
    counts = found.confusion if isinstance(found, ClassPerformance) else None
    return None if counts is None else [[None if np.isnan(one) else one for one in row] for row in counts.tolist()]


def class_table(rows: Sequence[Mapping[str, Any]]) -> tuple[PageTable, ...]:
    """The table by class for a page."""
    names = documents.class_figures(rows)
    told = tuple((_name(row), tuple(_named(row.get(name)) for name in names)) for row in rows)
    caption = "Each class against the others; under each value stands its interval."
    return (PageTable("All figures by class", ("class", *names), told, caption),) if rows else ()


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("name") or f"class {row['label']}")


def _named(value: Mapping[str, float | None] | None) -> Measured | None:
    found = read_measured(value)
    return None if found is None or np.isnan(found.value) else found


def _confusion(found: Measurement | None, names: Sequence[str]) -> tuple[Picture, ...]:
    if not isinstance(found, ClassPerformance) or found.confusion is None:
        return ()
    own = tuple(_label(label, names) for label in range(len(found.confusion)))
    return (confusion_plot(ConfusionGrid(own, found.confusion, found.confusion_noise > 0, found.min_count)),)


def _label(label: int, names: Sequence[str]) -> str:
    return names[label] if names else f"class {label}"


def _reliability(found: Measurement | None, names: Sequence[str]) -> tuple[Picture, ...]:
    """The probability of each class against how often records are of it; of many classes, those with large gaps."""
    if not isinstance(found, ClassPerformance):
        return ()
    known = {row.label: bins for row in found.classes if (bins := found.class_reliability(row.label, BINS)) is not None}
    drawn = [label for label, bins in known.items() if np.nansum(bins.records) > 0]
    worst = sorted(sorted(drawn, key=lambda label: -_gap(known[label]))[:_MOST])
    if not worst:
        return ()
    few = "" if len(drawn) == len(worst) else f", the {_MOST} with the largest gaps"
    diagrams = [_diagram(_label(label, names), known[label], noisy=found.class_noise > 0) for label in worst]
    return (reliability_panels(diagrams, f"Reliability by class{few}"),)


def _gap(bins: Bins) -> float:
    """The mean gap of prediction and outcome over the bins, weighted by records."""
    gaps = np.abs(bins.score - bins.rate.value) * bins.records * (bins.below_noise == 0)
    return float(np.nansum(gaps) / max(float(np.nansum(bins.records)), 1e-9))


def _diagram(label: str, bins: Bins, *, noisy: bool) -> Diagram:
    hidden = (bins.below_noise > 0) | ~(bins.records > 0)
    values = (bins.score, bins.rate.value, bins.rate.low, bins.rate.high)
    score, rate, low, high = (np.where(hidden, np.nan, value) for value in values)
    return Diagram(label, bins.edges, score, rate, low, high, bins.records, noisy=noisy)
