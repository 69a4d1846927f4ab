"""The evaluation of a classifier with several classes: exact where sums are, honest where they are not."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.estimation.class_sums import ClassEstimate
from fedcalib.metrics.table import METRICS

sklearn_metrics = pytest.importorskip("sklearn.metrics")

CLASSES = 4
TEMPERED = fc.artifacts.Temperature(2.0)


def records(n: int = 1500, classes: int = CLASSES, seed: int = 3) -> fc.Records:
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, n, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    logits = rng.normal(size=(n, classes)) * 2
    logits[np.arange(n), labels] += 2.0
    return fc.Records.of_logits(1.7 * logits, labels)


def measured(data: fc.Records, privacy: fc.privacy.Privacy, seed: int = 0, **options: object) -> ClassPerformance:
    federation = fc.Federation.of([data.take(slice(k, None, 5)) for k in range(5)])
    method = fc.methods.ClassMetrics(**options)  # type: ignore[arg-type]
    return fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact


def paired(data: fc.Records, privacy: fc.privacy.Privacy, seed: int = 0) -> PairedPerformance:
    federation = fc.Federation.of([data.take(slice(k, None, 5)) for k in range(5)])
    method = fc.methods.PairedClassMetrics(TEMPERED)
    return fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact


def test_exact_metrics_equal_those_of_scikit_learn() -> None:
    data = records()
    probs, labels, predicted = data.probs, data.labels, data.probs.argmax(axis=1)
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(labels, predicted),
        "macro_f1": sklearn_metrics.f1_score(labels, predicted, average="macro"),
        "weighted_f1": sklearn_metrics.f1_score(labels, predicted, average="weighted"),
        "nll": sklearn_metrics.log_loss(labels, probs),
        "macro_auc": sklearn_metrics.roc_auc_score(labels, probs, multi_class="ovr"),
        "brier": float(np.square(probs - np.eye(CLASSES)[labels]).sum(axis=1).mean()),
    }
    exact = {metric.name: metric.exact for metric in METRICS}
    for name, value in expected.items():
        assert exact[name](probs, labels) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(bits=40)], ids=["open", "secagg"])
def test_an_exact_evaluation_equals_the_metrics_of_pooled_records(privacy: fc.privacy.Privacy) -> None:
    data = records()
    found = measured(data, privacy)
    exact = {metric.name: metric.exact(data.probs, data.labels) for metric in METRICS if metric.classes != "two"}
    assert not found.unmeasurable()
    for name, one in found.measures().items():
        assert one.value == pytest.approx(exact[name], abs=1e-4 if name == "macro_auc" else 1e-9)
        assert one.low < one.high


def test_rows_by_class_equal_those_of_scikit_learn() -> None:
    data = records()
    labels, predicted = data.labels, data.probs.argmax(axis=1)
    found = measured(data, fc.Open())
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(labels, predicted)
    for row in found.classes:
        assert row.records == support[row.label]
        assert row.precision.value == pytest.approx(precision[row.label])
        assert row.recall.value == pytest.approx(recall[row.label])
        assert row.f1.value == pytest.approx(f1[row.label])
        area = sklearn_metrics.roc_auc_score(labels == row.label, data.probs[:, row.label])
        assert row.auc is not None and row.auc.value == pytest.approx(area, abs=1e-4)


def test_log_loss_has_no_silent_cut() -> None:
    data = records()
    logits = data.logits.copy()
    logits[0] = 0.0
    logits[0, data.labels[0]] = -30.0
    data = fc.Records.of_logits(logits, data.labels)
    assert measured(data, fc.Open()).measure("nll").value == pytest.approx(
        sklearn_metrics.log_loss(data.labels, data.probs), abs=1e-9
    )
    noisy = measured(data, fc.DistributedDP(5.0))
    assert "cut_nll" in noisy.unmeasurable()["nll"] and noisy.cut == pytest.approx(np.log(CLASSES) + 5)
    cut = noisy.measure("cut_nll")
    assert cut.low <= fc.metrics.cut_nll(data.probs, data.labels) <= cut.high


def test_noisy_figures_are_near_the_exact_ones_and_cover_them() -> None:
    data = records(6000)
    exact = {metric.name: metric.exact(data.probs, data.labels) for metric in METRICS if metric.classes != "two"}
    found = [measured(data, fc.DistributedDP(1.0), seed) for seed in range(20)]
    for name in ("accuracy", "ece", "cwece", "brier", "cut_nll", "macro_f1", "weighted_f1"):
        ones = [one.measure(name) for one in found]
        assert sum(one.low <= exact[name] <= one.high for one in ones) >= 18
        assert np.mean([one.value for one in ones]) == pytest.approx(exact[name], rel=0.1)


def test_the_class_auc_is_paid_for_under_noise() -> None:
    data = records(6000)
    assert "macro_auc" not in measured(data, fc.DistributedDP(1.0)).estimates()
    found = measured(data, fc.DistributedDP(4.0), class_auc=True).measure("macro_auc")
    assert found.low <= fc.metrics.macro_auc(data.probs, data.labels) <= found.high


def test_a_drowned_figure_says_what_it_needs() -> None:
    found = measured(records(300), fc.DistributedDP(0.05))
    reasons = found.unmeasurable()
    assert "macro_f1" in reasons and "epsilon" in reasons["macro_f1"] and "records" in reasons["macro_f1"]
    assert np.isnan(found.measure("macro_f1").value)
    with pytest.raises(fc.errors.InputError, match="Expected a metric"):
        found.measure("beauty")


def test_nothing_is_impossible_under_heavy_noise() -> None:
    for seed in range(10):
        found = measured(records(400), fc.DistributedDP(0.2), seed)
        for name, one in found.measures().items():
            most = {"brier": 2.0, "cut_nll": found.cut or 0.0}.get(name, 1.0)
            assert 0 <= one.low <= one.value <= one.high <= most and one.low < one.high
        bins = found.reliability()
        filled = bins.records > 0
        assert (bins.records >= 0).all()
        assert ((bins.score >= bins.edges[:-1]) & (bins.score <= bins.edges[1:]))[filled].all()


def test_records_that_are_all_alike_leave_an_interval() -> None:
    probs = np.tile([1.0, 0.0, 0.0], (50, 1))
    found = measured(fc.Records.of_probs(probs, np.zeros(50, dtype=int)), fc.Open())
    for one in found.measures().values():
        assert one.low < one.high
    assert ClassEstimate(0.0, 0.0, 0.0, 0.0, 0.0).measured(0.0, 1.0, 30.0).high == pytest.approx(0.1)


def test_no_records_give_no_figures() -> None:
    found = measured(fc.Records.empty(3), fc.Open())
    assert not found.measures() and found.warnings and set(found.to_json().values()) == {None}


def test_exact_changes_are_paired() -> None:
    data = records()
    after = TEMPERED.over(data)
    found = paired(data, fc.Open())
    for name, one in found.change.items():
        metric = next(metric for metric in METRICS if metric.name == name)
        change = metric.exact(after.probs, after.labels) - metric.exact(data.probs, data.labels)
        assert one.value == pytest.approx(change, abs=1e-9)
        assert one.low <= one.value <= one.high
    losses = [fc.metrics.nll_losses(held.probs, held.labels) for held in (after, data)]
    half = 1.96 * np.std(losses[0] - losses[1]) / np.sqrt(len(data))
    nll = found.change["nll"]
    assert (nll.high - nll.low) / 2 == pytest.approx(half, rel=0.01)
    before, later = found.before.measure("nll"), found.after.measure("nll")
    assert nll.high - nll.low < 0.8 * (before.high - before.low + later.high - later.low) / 2


def test_noisy_sides_agree_with_the_change() -> None:
    found = paired(records(), fc.DistributedDP(1.0))
    for name in ("accuracy", "brier", "cut_nll"):
        difference = found.after.measure(name).value - found.before.measure(name).value
        assert found.change[name].value == pytest.approx(difference, abs=1e-9)


def test_two_classes_are_sent_elsewhere() -> None:
    with pytest.raises(fc.errors.InputError, match="use FederatedMetrics"):
        measured(records(classes=2), fc.Open())


def test_published_tables_hold_no_small_cell(tmp_path: Path) -> None:
    data = records(300)
    found = measured(data, fc.Open())
    shown = found.published(11)
    right, count = shown.table.correct, shown.table.count
    for cells in (right, count - right):
        assert ((cells == 0) | (cells >= 11)).all()
    for row in shown.classes:
        assert np.isnan(row.records) or row.records >= 11
    loaded = fc.load(found.save(tmp_path / "found.json"))
    assert loaded.to_json() == shown.to_json()
    assert json.dumps([row.to_json() for row in loaded.classes])


@pytest.mark.parametrize("classes", [3, 40])
def test_many_classes_have_no_products_and_still_cover(classes: int) -> None:
    data = records(3000, classes)
    found = measured(data, fc.Open())
    low, high = found.measure("cwece").low, found.measure("cwece").high
    assert 0 <= low < high and found.measure("cwece").value == pytest.approx(
        fc.metrics.classwise_ece(data.probs, data.labels), abs=1e-9
    )


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0)], ids=repr)
def test_memory_grows_with_classes_not_with_their_square(privacy: fc.privacy.Privacy) -> None:
    """A thousand classes have 15,000 cells: a matrix of all their pairs would take 1.8 GB."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(60, 1000)), rng.integers(1000, size=60)
    federation = fc.Federation.grouped(fc.Records.of_logits(logits, labels), np.arange(60) % 3)
    method = fc.methods.PairedClassMetrics(fc.artifacts.Temperature(1.5), fc.methods.ClassMetrics(class_auc=False))
    tracemalloc.start()
    found = fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(0)).artifact
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "cwece" in found.before.figures
    assert peak < 60e6


def test_the_confusion_table_is_that_of_scikit_learn() -> None:
    data = records()
    expected = sklearn_metrics.confusion_matrix(data.labels, data.probs.argmax(axis=1))
    assert np.array_equal(measured(data, fc.SecAgg()).confusion, expected)
    assert measured(data, fc.DistributedDP(1.0), confusion=False).confusion is None


def test_a_noisy_confusion_table_spreads_as_it_says() -> None:
    data = records(6000)
    truth = sklearn_metrics.confusion_matrix(data.labels, data.probs.argmax(axis=1))
    found = [measured(data, fc.DistributedDP(1.0), seed=seed) for seed in range(20)]
    errors = np.array([one.confusion - truth for one in found])
    assert all((one.confusion >= 0).all() for one in found)
    assert np.mean(errors**2) == pytest.approx(found[0].confusion_noise, rel=0.3)


def test_reliability_by_class_is_that_of_pooled_records() -> None:
    data = records()
    found, pooled = measured(data, fc.Open()), fc.metrics.Reliability.classwise(data.probs, data.labels)
    for row in found.classes:
        assert np.array_equal(row.table.count[0], pooled.count[row.label])
        assert np.array_equal(row.table.correct[0], pooled.correct[row.label])
        assert np.allclose(row.table.confidence[0], pooled.confidence[row.label], atol=1e-9)
        drawn = found.class_reliability(row.label)
        assert np.allclose(drawn.rate.value, pooled.accuracy[row.label], equal_nan=True)


def test_reliability_by_class_under_noise_is_paid_for() -> None:
    data = records(20_000)
    assert measured(data, fc.DistributedDP(5.0)).class_reliability(0) is None
    drawn = measured(data, fc.DistributedDP(5.0), class_auc=True).class_reliability(0)
    pooled = fc.metrics.Reliability.classwise(data.probs, data.labels).accuracy[0]
    known = np.isfinite(drawn.rate.value)
    assert known.sum() >= 5
    assert np.mean((drawn.rate.low <= pooled) & (pooled <= drawn.rate.high)) >= 0.8
    assert np.abs(drawn.rate.value - pooled)[known].mean() < 0.1


def test_published_tables_by_class_hold_no_small_count() -> None:
    found = measured(records(400), fc.SecAgg())
    shown = found.published()
    hidden = np.isnan(shown.confusion)
    assert hidden.any() and np.array_equal(shown.confusion[~hidden], found.confusion[~hidden])
    for table, gone in ((found.confusion, hidden), (found.confusion.T, hidden.T)):
        sums, numbers = np.where(gone, table, 0).sum(axis=1), gone.sum(axis=1)
        assert ((numbers == 0) | (numbers > 1)).all() and ((sums == 0) | (sums >= 11)).all()
    for row in shown.classes:
        counts = [] if row.table is None else [row.table.correct, row.table.count - row.table.correct]
        assert all(((part == 0) | (part >= 11)).all() for part in counts)
    assert ((shown.confusion[~hidden] == 0) | (shown.confusion[~hidden] >= 11)).all()


def test_figures_of_groups_equal_those_of_their_pooled_records() -> None:
    data = records(3000)
    sex = np.random.default_rng(5).choice(["F", "M", "none"], 3000, p=[0.5, 0.4, 0.1])
    whole = fc.Records.of_logits(data.logits, data.labels, sex=sex)
    method = fc.methods.GroupedMetrics("sex", ("F", "M"))
    federation = fc.Federation.of([whole.take(slice(k, None, 5)) for k in range(5)])
    found = fc.run(method, fc.InProcess(federation), fc.SecAgg(bits=40)).artifact
    for name, one in found.groups.items():
        alone = measured(data.take(np.flatnonzero(sex == name)), fc.SecAgg(bits=40))
        assert one.records == alone.records
        assert np.array_equal(one.confusion, alone.confusion)
        for metric, figure in alone.measures().items():
            other = one.measures()[metric]
            assert (other.value, other.low, other.high) == pytest.approx(
                (figure.value, figure.low, figure.high), abs=1e-8
            )


def test_groups_of_classes_share_one_budget_and_cover() -> None:
    data = records(6000)
    sex = np.random.default_rng(5).choice(["F", "M"], 6000)
    whole = fc.Records.of_logits(data.logits, data.labels, sex=sex)
    federation = fc.Federation.of([whole.take(slice(k, None, 5)) for k in range(5)])
    hits = total = 0
    for seed in range(4):
        method = fc.methods.GroupedMetrics("sex", ("F", "M"))
        run = fc.run(method, fc.InProcess(federation), fc.DistributedDP(1.0), randomness=fc.Simulated(seed))
        assert run.privacy.epsilon == pytest.approx(1.0)
        for name, one in run.artifact.groups.items():
            own = data.take(np.flatnonzero(sex == name))
            exact = {metric.name: metric.exact(own.probs, own.labels) for metric in METRICS if metric.classes != "two"}
            for metric, figure in one.measures().items():
                hits, total = hits + (figure.low <= exact[metric] <= figure.high), total + 1
    assert total > 50 and hits >= 0.93 * total
