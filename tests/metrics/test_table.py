"""Every list of metrics in the package comes from the table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import fedcalib
import fedcalib as fc
from fedcalib.artifacts.evaluation import MetricsReport, headline
from fedcalib.estimation import score_rates
from fedcalib.metrics import table
from fedcalib.metrics.table import METRICS, Metric, shown_in
from fedcalib.planning import Study
from fedcalib.workflows import documents, reports
from fedcalib.workflows.comparison import figures

SOURCE = Path(fedcalib.__file__).parent
NAMES = {metric.name for metric in METRICS} | {metric.title for metric in METRICS}
FREE = {  # the table, functions that are exported by name, and names of other things
    "metrics/table.py": NAMES,
    "metrics/__init__.py": NAMES,
    "methods/fl_swag.py": {"precision"},  # of a normal distribution
    "queries/training.py": {"precision"},
    "queries/temperature.py": {"slope"},  # a block of a query
    "methods/temperature.py": {"slope"},
    "queries/score_residuals.py": {"slope"},
    "methods/averaged_curve.py": {"slope"},
    "workflows/reports.py": {"precision", "recall"},  # of a class, as its row names them
    "report/page.py": {"ece"},  # a place in the template
}


def federation(classes: int) -> fc.Federation:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(600, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=row**0.5 / (row**0.5).sum()) for row in probs])
    return fc.Federation.of([fc.Records(probs[k::3], labels[k::3], are_logits=False) for k in range(3)])


def literals() -> Iterator[tuple[str, str]]:
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
                yield place, node.value


def test_metrics_are_named_in_the_table_only() -> None:
    found = {(place, name) for place, name in literals()}
    assert {(place, name) for place, name in found if name not in FREE.get(place, set())} == set()


def test_names_and_titles_are_used_once() -> None:
    assert len(NAMES) == 2 * len(METRICS)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_an_evaluation_reports_is_what_the_table_defines(classes: int) -> None:
    data = federation(classes)
    report = fc.run(fc.FederatedMetrics(), fc.InProcess(data), fc.Open()).artifact
    for metric in headline():
        if metric.classes == "two" and classes != 2:
            assert getattr(report, metric.name) is None
        else:
            exact = metric.exact(data.records.probs, data.records.labels)
            # AUC is read off 240 cells
            assert getattr(report, metric.name).value == pytest.approx(exact, abs=2e-3 if metric is table.AUC else 1e-9)
    assert {metric.name for metric in headline() if metric.classes == "any" and classes > 2} <= set(report.to_json())
    assert set(report.to_json()) <= {row.name for row in METRICS}


def test_what_curves_report_is_what_the_table_defines() -> None:
    data = federation(2)
    found = fc.run(fc.ScoreCurves(), fc.InProcess(data), fc.Open()).artifact.to_json()
    assert set(found) == {*score_rates.HEADLINE, "positive_rate"}
    for metric in shown_in("curves"):
        if metric.name in found:
            exact = metric.exact(data.records.probs, data.records.labels)
            assert found[metric.name]["value"] == pytest.approx(exact, abs=2e-3)


def test_every_report_has_its_estimators() -> None:
    own = {field.name for field in fields(MetricsReport)}
    assert {Study(metric.name).metric for metric in shown_in("planning")} >= {"auc", "nll", "slope", "sensitivity"}
    assert {metric.name for metric in shown_in("evaluation")} <= own
    assert {metric.name for metric in (*shown_in("comparison"), *shown_in("change"), *shown_in("timeline"))} <= own
    assert {metric.name for metric in shown_in("curves")} <= own | set(score_rates.HEADLINE)


def test_a_row_and_its_estimator_are_all_that_a_metric_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of negatives below 0.5, shown beside curves and in comparisons."""
    row = Metric(
        "spared",
        "Spared",
        "higher",
        "share of negatives that score below 0.5",
        frozenset({"curves", "comparison"}),
        lambda probs, labels: float((probs[labels == 0, 1] < 0.5).mean()),
        "two",
    )

    def estimator(table: score_rates.ScoreTable) -> score_rates.Estimates:
        found = score_rates.false_positive_rate(table, np.full(1, 0.5))
        return score_rates.Estimates(1 - found.value, 1 - found.high, 1 - found.low)

    monkeypatch.setattr(table, "METRICS", (*METRICS, row))
    monkeypatch.setitem(score_rates.HEADLINE, row.name, estimator)  # type: ignore[arg-type]
    data = federation(2)
    exact = row.exact(data.records.probs, data.records.labels)
    curves = fc.run(fc.ScoreCurves(), fc.InProcess(data), fc.Open()).artifact
    assert curves.to_json()[row.name]["value"] == pytest.approx(exact, abs=2e-3)
    assert figures(data.records)[row.name] == exact


@pytest.mark.parametrize("classes", [2, 3])
def test_an_evaluation_shows_the_metrics_of_the_table_by_their_titles(classes: int) -> None:
    report = fc.run(fc.FederatedMetrics(), fc.InProcess(federation(classes)), fc.Open()).artifact
    known = {metric.name: metric.title for metric in METRICS}
    names = list(documents.metrics(report) or {})
    assert names == sorted(names, key=list(known).index), "in the order of the table"
    shown = [row.name for row in reports.metric_rows(report)]
    main = [title for title in shown if title in {metric.title for metric in reports.MAIN}]
    others = [known[name] for name in names if known[name] not in main]
    assert shown == [*main, *others], "the main ones first, the others in the order of the table"


def test_every_metric_is_defined_in_the_docs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    defined = {name.strip(" `") for cell in first for name in cell.split(",")}
    assert defined == {metric.name for metric in METRICS}
