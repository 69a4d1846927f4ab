"""Recalibration after a domain shift: the optimum without noise, an end with a flag, and a price as stated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import fedcalib as fc
from fedcalib.flows.search import RootSearch
from fedcalib.queries.shift import ConfidenceGaps, gaps_of
from fedcalib.records import softmax


def shifted(records: int = 600, classes: int = 5, sharpness: float = 2.2, seed: int = 0) -> fc.Records:
    """Over-confident logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=records)
    logits = rng.normal(size=(records, classes))
    logits[np.arange(records), labels] += 1.0
    return fc.Records.of_logits(sharpness * logits, labels)


def found(method: fc.Method, records: fc.Records, privacy: fc.Privacy | None = None, sources: int = 6) -> float:
    federation = fc.Federation.iid(records, sources, seed=0)
    return fc.run(method, fc.InProcess(federation), privacy or fc.Open()).artifact.temperature


def gap(records: fc.Records, temperature: float) -> float:
    probs = softmax(np.asarray(records.logits) / temperature)
    return float((probs.argmax(axis=1) == records.labels).mean() - probs.max(axis=1).mean())


def loss(records: fc.Records, temperature: float) -> float:
    probs = softmax(np.asarray(records.logits) / temperature)
    return float(-np.log(probs[np.arange(len(records)), records.labels]).mean())


def ece(records: fc.Records, temperature: float) -> float:
    return fc_ece(softmax(np.asarray(records.logits) / temperature), records.labels)


def fc_ece(probs: np.ndarray, labels: np.ndarray) -> float:
    from fedcalib import metrics

    return float(metrics.ece(probs, labels))


DENSE = fc.Interpolation(tuple(np.geomspace(0.5, 16, 1500)))


@pytest.mark.parametrize("search", [fc.Bisection(25), fc.OnMagnitude(fc.GoldenSection(35)), DENSE], ids=["b", "g", "i"])
@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(bits=40)], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_acc_t_is_where_confidence_equals_accuracy(search: RootSearch, privacy: fc.Privacy, seed: int) -> None:
    records = shifted(seed=seed)
    central = brentq(lambda t: gap(records, t), 0.5, 16.0, xtol=1e-12)
    assert found(fc.AccT(search), records, privacy) == pytest.approx(central, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_nll_t_is_the_central_minimum(seed: int) -> None:
    records = shifted(seed=seed)
    central = minimize_scalar(lambda t: loss(records, t), bounds=(0.5, 6), method="bounded", options={"xatol": 1e-10}).x
    method = fc.NLLT(fc.GoldenSection(35), high=6.0, margin=90.0)  # no loss is cut
    assert found(method, records) == pytest.approx(central, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_ece_t_is_the_central_minimum(seed: int) -> None:
    """The error has valleys and jumps, so both look at the valley of the best place on a coarse grid."""
    records = shifted(300, seed=seed)
    coarse = np.linspace(1.0, 4.0, 1001)
    best = coarse[np.argmin([ece(records, t) for t in coarse])]
    low, high = best - 0.0015, best + 0.0015
    fine = np.linspace(low, high, 601)
    central = fine[np.argmin([ece(records, t) for t in fine])]
    temperature = found(fc.ECET(fc.GoldenSection(30), low, high), records)
    assert ece(records, temperature) <= ece(records, central) + 1e-6
    assert temperature == pytest.approx(central, abs=1e-4)


def test_the_curve_is_put_together_again() -> None:
    records = shifted()
    places = (0.7, 1.0, 2.0, 5.0)
    curve = ConfidenceGaps(places).pooled(records)
    expected = [len(records) * gap(records, t) for t in places]
    np.testing.assert_allclose(gaps_of(curve), expected, rtol=1e-9)


def test_a_whole_curve_costs_what_one_look_does() -> None:
    """A record that is wrong and certain moves the message by one in L1, however many temperatures it has."""
    certain = fc.Records.of_logits([[1e4, 0.0, 0.0]], [1])
    for count in (1, 2, 4, 50):
        row = ConfidenceGaps(tuple(np.geomspace(0.5, 16, count))).rows(certain).dense(count)[0]
        assert np.abs(row).sum() == pytest.approx(1.0)


def certain(right: bool, records: int = 40) -> fc.Records:
    return fc.Records.of_logits(np.tile([[9.0, 0.0, 0.0]], (records, 1)), np.full(records, 0 if right else 1))


SEARCHES = [fc.Interpolation(), fc.Bisection(6), fc.OnMagnitude(fc.GoldenSection(8))]


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
@pytest.mark.parametrize(
    ("records", "end"),
    [
        pytest.param(lambda: certain(right=True), 0.5, id="all correct"),
        pytest.param(lambda: certain(right=False), 16.0, id="all wrong"),
        pytest.param(lambda: shifted(sharpness=60.0), 16.0, id="root beyond the bracket"),
        pytest.param(lambda: fc.Records.of_logits(np.eye(4)[[0] * 50], [1] * 45 + [0] * 5), 16.0, id="below 1/classes"),
    ],
)
def test_no_root_ends_at_an_end_with_a_flag(search: RootSearch, records: Callable[[], fc.Records], end: float) -> None:
    federation = fc.Federation.iid(records(), 5, seed=0)
    artifact = fc.run(fc.AccT(search), fc.InProcess(federation), fc.Open()).artifact
    # a line through fixed places goes on below them, and need not reach the end; the flag is raised all the same
    below_the_places = end < 1 and isinstance(search, fc.Interpolation)
    assert artifact.temperature < 1 if below_the_places else artifact.temperature == pytest.approx(end, abs=0.35)
    assert "end of its bracket" in artifact.warning


def test_sources_of_no_and_one_record() -> None:
    records = shifted(30)
    empty = fc.Records.of_logits(np.zeros((0, 5)), np.zeros(0, dtype=int))
    parts = [empty, *(records.take(slice(i, i + 1)) for i in range(30)), empty]
    federation = fc.Federation.of(parts)
    alone = fc.Federation.of([records])
    for method in (fc.AccT(), fc.NLLT(), fc.ECET(), fc.SourceBinning()):
        apart = fc.run(method, fc.InProcess(federation), fc.Open()).artifact
        pooled = fc.run(method, fc.InProcess(alone), fc.Open()).artifact
        np.testing.assert_allclose(apart.of(records), pooled.of(records), rtol=1e-9)
        fc.run(method, fc.InProcess(federation), fc.SourceLaplace(1.0), randomness=fc.Simulated(0))


class Recorder:
    """A ledger that only remembers."""

    def __init__(self) -> None:
        self.debits: list[float] = []

    def debit(self, run: str, account: str, spending: object, *, attempt: int = 0) -> None:
        self.debits.append(spending.epsilon)


@pytest.mark.parametrize(
    ("method", "looks"),
    [
        (fc.AccT(), 1),
        (fc.AccT(fc.Bisection(4)), 4),
        (fc.AccT(fc.OnMagnitude(fc.GoldenSection(5))), 6),
        (fc.NLLT(fc.GoldenSection(5)), 6),
        (fc.ECET(fc.GoldenSection(5)), 6),
        (fc.SourceBinning(), 1),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_noisy_answers_are_what_the_ledger_charges(method: fc.Method, looks: int) -> None:
    """Every look is a noisy answer of its own share of epsilon; together they are what was debited."""
    ledger, epsilon = Recorder(), 0.9
    federation = fc.Federation.iid(shifted(), 6, seed=0)
    result = fc.run(
        method, fc.InProcess(federation), fc.SourceLaplace(epsilon), ledger=ledger, randomness=fc.Simulated(0)
    )
    plan, everyone = result.plan, fc.Everyone()
    assert len(plan.queries) == looks
    events = [
        fc.SourceLaplace(epsilon).mechanism(query, plan, result.cohort, everyone).event(query, result.cohort).pure()
        for query in plan.queries
    ]
    assert events == pytest.approx([epsilon / looks] * looks)
    assert ledger.debits == pytest.approx([sum(events)])
    assert sum(line["state"] == "answered" for line in result.transcript.lines) == looks


def test_an_adversarial_record_learns_no_more_than_epsilon() -> None:
    """The worst record is wrong and certain; whole runs with it and without it cannot be told apart beyond epsilon."""
    rest = shifted(20, 3)
    worst = fc.Records.of_logits([[500.0, 0.0, 0.0]], [2])
    absent = fc.Federation.of([rest.take(slice(0, 20))])
    present = fc.Federation.of([fc.Records.concatenate([rest, worst])])
    audit = fc.audit_run(
        fc.AccT(), present, absent, fc.SourceLaplace(2.0), runs=500, randomness=fc.Simulated(0)
    )  # fmt: skip
    assert audit.claimed == 2.0
    assert audit.passes
    assert audit.lower_epsilon > 1.0
