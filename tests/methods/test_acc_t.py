"""Recalibration after a domain shift: the optimum without noise, an end with a flag, and a price as stated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import fedcalib as fc
from fedcalib.methods.domain_shift import FALSE_MOVES, NOISY_PLACES, heard, moves
from fedcalib.queries.shift import ConfidenceGaps, gaps_of
from fedcalib.records import softmax
from fedcalib.search import RootSearch


def shifted(records: int = 600, classes: int = 5, sharpness: float = 2.2, seed: int = 0) -> fc.Records:
    """Over-confident logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=records)
    logits = rng.normal(size=(records, classes))
    logits[np.arange(records), labels] += 1.0
    return fc.Records.of_logits(sharpness * logits, labels)


def found(method: fc.Method, records: fc.Records, privacy: fc.privacy.Privacy | None = None, sources: int = 6) -> float:
    federation = fc.Federation.iid(records, sources, seed=0)
    return fc.run(method, fc.InProcess(federation), privacy or fc.Open()).artifact.temperature


def gap(records: fc.Records, temperature: float) -> float:
    probs = softmax(np.asarray(records.logits) / temperature)
    return float((probs.argmax(axis=1) == records.labels).mean() - probs.max(axis=1).mean())


def loss(records: fc.Records, temperature: float) -> float:
    probs = softmax(np.asarray(records.logits) / temperature)
    return float(-np.log(probs[np.arange(len(records)), records.labels]).mean())


DENSE = fc.search.Interpolation(tuple(np.geomspace(0.55, 15, 100)))


@pytest.mark.parametrize(
    "search", [fc.search.Bisection(25), fc.search.OnMagnitude(fc.search.GoldenSection(35)), DENSE], ids=["b", "g", "i"]
)
@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(bits=40)], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_acc_t_is_where_confidence_equals_accuracy(search: RootSearch, privacy: fc.privacy.Privacy, seed: int) -> None:
    records = shifted(seed=seed)
    central = brentq(lambda t: gap(records, t), 0.5, 16.0, xtol=1e-12)
    assert found(fc.AccT(search), records, privacy) == pytest.approx(central, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_nll_t_is_the_central_minimum(seed: int) -> None:
    records = shifted(seed=seed)
    central = minimize_scalar(lambda t: loss(records, t), bounds=(0.5, 6), method="bounded", options={"xatol": 1e-10}).x
    method = fc.methods.NLLT(fc.search.GoldenSection(35), high=6.0, margin=90.0)  # no loss is cut
    assert found(method, records) == pytest.approx(central, abs=1e-4)


def top(logits: np.ndarray, temperature: object) -> np.ndarray:
    return 1 / np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature).sum(axis=1)


def error(logits: np.ndarray, right: np.ndarray, temperature: float, bins: int = 15) -> float:
    confidence = top(logits, temperature)
    cells = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(cells, right - confidence, bins)).sum() / len(right))


def jumps(logits: np.ndarray, low: float, high: float, bins: int = 15) -> np.ndarray:
    """Every temperature at which some record changes its bin: between two of them the error has no jump."""
    places = [np.array([low, high])]
    for edge in np.arange(1, bins) / bins:
        moving = logits[(top(logits, low) > edge) & (top(logits, high) < edge)]
        left, right = np.full(len(moving), low), np.full(len(moving), high)
        for _ in range(50):
            middle = (left + right) / 2
            above = top(moving, middle[:, None]) > edge
            left, right = np.where(above, middle, left), np.where(above, right, middle)
        places.append((left + right) / 2)
    return np.unique(np.concatenate(places))


def central_ece_t(logits: np.ndarray, right: np.ndarray, low: float, high: float) -> float:
    """The lowest of all valleys, proven: pieces whose lower bound is above the best value so far are left out.

    Within a piece no record changes its bin and every confidence falls, so the error moves by no more than the summed
    confidence does, and is nowhere below the mean of its ends minus half of that.
    """
    edges = jumps(logits, low, high)
    inset = 1e-6 * np.diff(edges)
    left, right_end = edges[:-1] + inset, edges[1:] - inset
    at_left, at_right = (np.array([error(logits, right, t) for t in ends]) for ends in (left, right_end))
    fall = -np.diff([top(logits, t).sum() for t in edges]) / len(right)
    floor = (at_left + at_right - fall) / 2
    best, place = np.inf, low
    for piece in np.argsort(floor):
        if floor[piece] >= best:
            break
        bounds = (left[piece], right_end[piece])
        inner = minimize_scalar(
            lambda t: error(logits, right, t), bounds=bounds, method="bounded", options={"xatol": 1e-9}
        )
        for value, candidate in ((at_left[piece], bounds[0]), (at_right[piece], bounds[1]), (inner.fun, inner.x)):
            best, place = (value, candidate) if value < best else (best, place)
    return place


REAL = [
    ("clean", 3.0),
    ("brightness_5", 4.0),
    ("gaussian_noise_1", 6.0),
    ("jpeg_compression_3", 4.0),
    ("contrast_5", 16.0),
]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "high"), REAL)
@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(bits=40)], ids=repr)
def test_ece_t_is_the_central_minimum_on_real_data(
    name: str, high: float, privacy: fc.privacy.Privacy, shared: Path
) -> None:
    with np.load(shared / "cifar10_corrupted_logits" / "resnet20_cifar10_corrupted.npz") as arrays:
        logits, labels = arrays[name][:300].astype(np.float64), arrays["y"][:300].astype(int)
    central = central_ece_t(logits, (logits.argmax(axis=1) == labels).astype(float), 0.5, high)
    method = fc.methods.ECET(fc.search.GridSearch(), 0.5, high)
    assert found(method, fc.Records.of_logits(logits, labels), privacy) == pytest.approx(central, abs=1e-4)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "high"), REAL)
def test_acc_t_and_nll_t_are_the_central_optimum_on_real_data(name: str, high: float, shared: Path) -> None:
    with np.load(shared / "cifar10_corrupted_logits" / "resnet20_cifar10_corrupted.npz") as arrays:
        records = fc.Records.of_logits(arrays[name].astype(np.float64), arrays["y"].astype(int))
    root = brentq(lambda t: gap(records, t), 0.5, 16.0, xtol=1e-12)
    lowest = minimize_scalar(lambda t: loss(records, t), bounds=(0.5, 16), method="bounded", options={"xatol": 1e-10}).x
    assert found(fc.AccT(fc.search.Bisection(22)), records) == pytest.approx(root, abs=1e-4)
    assert found(fc.methods.NLLT(fc.search.GoldenSection(30), 0.5, 16.0, margin=90.0), records) == pytest.approx(
        lowest, abs=1e-4
    )


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


SEARCHES = [
    fc.search.Interpolation(),
    fc.search.Interpolation(()),
    fc.search.Bisection(),
    fc.search.Bisection(6),
    fc.search.OnMagnitude(),
]
EDGES = [
    pytest.param(lambda: certain(right=True), 0.5, id="all correct"),
    pytest.param(lambda: certain(right=False), 16.0, id="all wrong"),
    pytest.param(lambda: shifted(sharpness=60.0), 16.0, id="root above the bracket"),
    pytest.param(lambda: shifted(sharpness=0.2), 0.5, id="root below the bracket"),
    pytest.param(lambda: fc.Records.of_logits(np.eye(4)[[0] * 50], [1] * 45 + [0] * 5), 16.0, id="below 1/classes"),
]
MODELS = pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg()], ids=repr)


@MODELS
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
@pytest.mark.parametrize(("records", "end"), EDGES)
def test_no_root_gives_the_end_of_the_bracket_with_a_flag(
    search: RootSearch, records: Callable[[], fc.Records], end: float, privacy: fc.privacy.Privacy
) -> None:
    federation = fc.Federation.iid(records(), 5, seed=0)
    artifact = fc.run(fc.AccT(search), fc.InProcess(federation), privacy).artifact
    assert artifact.temperature == end
    assert "end of its bracket" in artifact.warning


def test_few_calibrated_classifiers_are_changed_and_few_shifted_ones_are_left() -> None:
    """The rule against harm where every source adds noise; half of the shift's error is gone in the mean."""
    probs = softmax(np.random.default_rng(0).normal(0, 3.0, (500, 10)))
    moved, gaps = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        labels = (probs.cumsum(axis=1) < rng.random((500, 1))).sum(axis=1).clip(0, 9)
        curve = ConfidenceGaps(NOISY_PLACES).rows(fc.Records.of_probs(probs, labels)).values.sum(axis=0)
        sharp = fc.Records.of_logits(2 * np.log(probs), labels)
        noise = rng.laplace(0, 1, (2, 50, 3)).sum(axis=1)
        shifted_curve = ConfidenceGaps(NOISY_PLACES).rows(sharp).values.sum(axis=0)
        both = moves(heard(np.stack([curve, shifted_curve]) + noise, 100.0, 10, 0.5, 16.0))
        moved.append(both[0] != 0)
        gaps.append(abs(gap(sharp, float(np.exp(both[1])))))
    assert np.mean(moved) <= 2 * FALSE_MOVES  # 3% and four standard errors
    assert np.mean(gaps) < abs(gap(sharp, 1.0)) / 2


@pytest.mark.parametrize("records", [edge.values[0] for edge in EDGES[2:] if edge.values[1] > 1])
def test_no_root_is_found_through_noise_too(records: Callable[[], fc.Records]) -> None:
    """Noise at each source, small beside the gap (which at the lower end it would not be): far up, with a flag."""
    federation = fc.Federation.iid(records(), 5, seed=0)
    artifact = fc.run(fc.AccT(), fc.InProcess(federation), fc.SourceLaplace(20.0), randomness=fc.Simulated(0)).artifact
    assert 4 < artifact.temperature <= 16
    assert "end of the bracket" in artifact.warning


@pytest.mark.parametrize(
    "method",
    [
        fc.methods.NLLT(),
        fc.methods.NLLT(fc.search.GridSearch(64, 4, 1)),
        fc.methods.ECET(fc.search.GridSearch(64, 4, 1)),
    ],
)
@pytest.mark.parametrize(
    ("records", "end"),
    [
        pytest.param(lambda: certain(right=True), 0.5, id="all correct"),
        pytest.param(lambda: certain(right=False), 3.0, id="all wrong"),
        pytest.param(lambda: shifted(sharpness=60.0), 3.0, id="minimum above the bracket"),
        pytest.param(lambda: fc.Records.of_logits(4 * np.eye(4)[[0] * 50], [1] * 49 + [0]), 3.0, id="below 1/classes"),
    ],
)
def test_a_minimum_outside_gives_the_end_of_the_bracket_with_a_flag(
    method: fc.Method, records: Callable[[], fc.Records], end: float
) -> None:
    federation = fc.Federation.iid(records(), 5, seed=0)
    artifact = fc.run(method, fc.InProcess(federation), fc.Open()).artifact
    assert artifact.temperature == end
    assert "end of its bracket" in artifact.warning


@pytest.mark.parametrize(
    "search", [fc.search.Interpolation(), fc.search.Bisection(), fc.search.OnMagnitude()], ids=repr
)
def test_a_root_in_the_bracket_carries_no_flag(search: RootSearch) -> None:
    federation = fc.Federation.iid(shifted(), 5, seed=0)
    artifact = fc.run(fc.AccT(search), fc.InProcess(federation), fc.Open()).artifact
    assert 0.5 < artifact.temperature < 16
    assert artifact.warning == ""


def test_sources_without_any_record_give_an_end_with_a_flag() -> None:
    nobody = fc.Federation.of([fc.Records.empty(3)] * 4)
    for method in (
        fc.AccT(),
        fc.AccT(fc.search.Bisection()),
        fc.AccT(fc.search.OnMagnitude()),
        fc.methods.NLLT(),
        fc.methods.ECET(),
    ):
        artifact = fc.run(method, fc.InProcess(nobody), fc.Open()).artifact
        assert artifact.temperature in (method.low, method.high)
        assert "end of its bracket" in artifact.warning


def test_sources_of_no_and_one_record() -> None:
    records = shifted(30)
    empty = fc.Records.of_logits(np.zeros((0, 5)), np.zeros(0, dtype=int))
    parts = [empty, *(records.take(slice(i, i + 1)) for i in range(30)), empty]
    federation = fc.Federation.of(parts)
    alone = fc.Federation.of([records])
    for method in (fc.AccT(), fc.methods.NLLT(), fc.methods.ECET(), fc.methods.SourceBinning()):
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
        (fc.AccT(fc.search.Bisection(4)), 4),
        (fc.AccT(fc.search.OnMagnitude(fc.search.GoldenSection(5))), 6),
        (fc.methods.NLLT(fc.search.GoldenSection(5)), 6),
        (fc.methods.ECET(fc.search.GoldenSection(5)), 6),
        (fc.methods.SourceBinning(), 1),
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
    audit = fc.audit.audit_run(
        fc.AccT(), present, absent, fc.SourceLaplace(2.0), runs=500, randomness=fc.Simulated(0)
    )  # fmt: skip
    assert audit.claimed == 2.0
    assert audit.passes
    assert audit.lower_epsilon > 1.0


def test_a_mild_shift_is_left_alone_where_sources_are_few() -> None:
    """Fifty sources of ten records at epsilon 1: noise alone moved temperatures by a factor of two before."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(10, 0.05), 20_000)
    labels = (probs.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1).clip(0, 9)
    test = fc.Records.of_probs(probs, labels)
    errors = []
    for seed in range(30):
        rows = np.random.default_rng(seed).choice(20_000, 500, replace=False)
        place = fc.InProcess(fc.Federation.iid(test.take(rows), 50, seed=0))
        found = fc.run(fc.AccT(), place, fc.SourceLaplace(1.0), randomness=fc.Simulated(seed)).artifact
        errors.append(fc.metrics.ece(found.of(test), labels))
    base = fc.metrics.ece(probs, labels)
    assert base < 0.02
    assert np.mean(errors) <= 1.1 * base + 1e-3


def test_a_strong_shift_is_still_found() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(10, 0.05), 20_000)
    labels = (probs.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1).clip(0, 9)
    sharp = fc.Records.of_logits(3 * np.log(np.maximum(probs, 1e-12)), labels)
    place = fc.InProcess(fc.Federation.iid(sharp.take(np.arange(2000)), 50, seed=0))
    found = [
        fc.run(fc.AccT(), place, fc.SourceLaplace(1.0), randomness=fc.Simulated(seed)).artifact.temperature
        for seed in range(10)
    ]
    assert 1.5 < float(np.median(found)) < 6
