"""The simulator of the study on domain shift follows the package: same temperatures without noise, same law with."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift import continual, readme, without_privacy
from benchmarks.domain_shift.pool import BINS, Pool, Trials
from benchmarks.domain_shift.run import METHODS, SETTINGS, rows
from scipy import stats

import fedcalib as fc
from fedcalib import metrics

SOURCES, SAMPLES, TRIALS = 12, 8, 6
LOUD = 1e6  # an epsilon that leaves no noise to speak of

GOLDEN = (5**0.5 - 1) / 2

PAIRS: list[tuple[c.Tempering, fc.Method]] = [
    (c.AccTCurve(), fc.AccT()),
    (c.AccTGolden(), fc.AccT(fc.search.OnMagnitude(fc.search.GoldenSection(5)), 0.5, 3.0)),
    (c.AccTGolden(high=16.0), fc.AccT(fc.search.OnMagnitude(fc.search.GoldenSection(5)), 0.5, 16.0)),
    (c.AccTBisection(), fc.AccT(fc.search.Bisection(4), 0.5, 16.0)),
    (c.NLLTGolden(worst=np.log(4) + 5), fc.methods.NLLT()),
    (c.ECETGolden(), fc.methods.ECET()),
]
EACH = pytest.mark.parametrize(("simulated", "real"), PAIRS, ids=lambda value: repr(value)[:50])


def pool(records: int = 2000, seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=records)
    logits = 3 * (rng.normal(size=(records, 4)) + 0.8 * np.eye(4)[labels])
    return Pool(logits.astype(np.float32), labels)


def with_ends(simulated: c.Tempering, temperatures: np.ndarray) -> np.ndarray:
    """Where a golden section never left an end of its bracket, the package says the end, the publication the middle."""
    if not isinstance(simulated, c.AccTGolden | c.NLLTGolden | c.ECETGolden):
        return temperatures
    half = GOLDEN**simulated.steps * (simulated.high - simulated.low) / 2
    at_low = np.isclose(temperatures, simulated.low + half, rtol=1e-9)
    at_high = np.isclose(temperatures, simulated.high - half, rtol=1e-9)
    return np.where(at_low, simulated.low, np.where(at_high, simulated.high, temperatures))


def trials(held: Pool, count: int = TRIALS, seed: int = 0) -> Trials:
    return Trials(held, SOURCES, SAMPLES, count, np.random.default_rng(seed))


def federation(drawn: Trials, trial: int) -> fc.Federation:
    rows = drawn.dealt[trial]
    records = fc.Records.of_logits(drawn.pool._shifted[rows].astype(float), drawn.pool.labels[rows])
    return fc.Federation.grouped(records, np.arange(len(rows)) // SAMPLES, SOURCES)


@EACH
def test_without_noise_both_find_the_same_temperature(simulated: c.Tempering, real: fc.Method) -> None:
    drawn = trials(pool())
    found = with_ends(simulated, simulated.temperatures(drawn, LOUD))
    for trial in range(TRIALS):
        runtime = fc.InProcess(federation(drawn, trial))
        expected = fc.run(real, runtime, fc.SourceLaplace(LOUD), randomness=fc.Simulated(trial)).artifact
        (expected,) = with_ends(simulated, np.array([expected.temperature]))
        assert found[trial] == pytest.approx(expected, rel=2e-4)


@EACH
def test_with_noise_both_follow_the_same_law(simulated: c.Tempering, real: fc.Method) -> None:
    held = pool()
    one = trials(held, 1)
    many = trials(held, 400)
    many.dealt = np.repeat(one.dealt, 400, axis=0)
    many.right = held.right[many.dealt]
    found = with_ends(simulated, simulated.temperatures(many, 2.0))
    runtime = fc.InProcess(federation(one, 0))
    expected = [
        fc.run(real, runtime, fc.SourceLaplace(2.0), randomness=fc.Simulated(seed)).artifact.temperature
        for seed in range(250)
    ]
    if isinstance(real, fc.AccT) and isinstance(
        real.search, fc.search.OnMagnitude
    ):  # an end only where no sign changed
        expected = with_ends(simulated, np.array(expected)).tolist()
    assert stats.ks_2samp(found, np.array(expected), method="asymp").pvalue > 1e-6


def test_binning_follows_the_package() -> None:
    drawn = trials(pool())
    error, brier = c.RightWrongBinning().measures(drawn, LOUD)
    for trial in range(TRIALS):
        runtime = fc.InProcess(federation(drawn, trial))
        steps = fc.run(
            fc.methods.SourceBinning(), runtime, fc.SourceLaplace(LOUD), randomness=fc.Simulated(trial)
        ).artifact
        assert (error[trial], brier[trial]) == pytest.approx(central(drawn, trial, top_steps(steps.steps)), abs=2e-6)


def test_what_is_left_measures_as_the_metrics_do() -> None:
    drawn = trials(pool())
    temperatures = np.array([0.7, 1.0, 1.5, 2.5, 4.0, 9.0])
    error, brier = drawn.measured(drawn.pool.rows(temperatures))
    for trial, temperature in enumerate(temperatures):
        expected = central(drawn, trial, top_tempered(temperature))
        assert (error[trial], brier[trial]) == pytest.approx(expected, abs=2e-6)


def top_steps(steps: tuple[float, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """What a step function makes of the top probability, and nothing else."""
    table = np.array(steps)
    return lambda logits: table[np.minimum((top_tempered(1.0)(logits) * BINS).astype(int), BINS - 1)]


def top_tempered(temperature: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda logits: (1 / np.exp(logits / np.float32(temperature)).sum(axis=1)).astype(np.float32)


def central(drawn: Trials, trial: int, top: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
    """Calibration error and Brier score of the top label, record by record."""
    left = np.setdiff1d(np.arange(len(drawn.pool)), drawn.dealt[trial])
    confidence, right = top(drawn.pool._shifted[left]), drawn.pool.right[left]
    return metrics.binary_ece(confidence, right.astype(int)), float(((confidence - right) ** 2).mean())


def test_noise_is_that_of_so_many_sources() -> None:
    drawn = trials(pool(), 4000)
    for noise, variance in (
        (drawn.noise(2.0, 5), SOURCES * 2 * 2.0**2),
        (drawn.whole_noise(2.0, 5), SOURCES * 2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2),
    ):
        assert abs(noise.mean()) < 6 * np.sqrt(variance / noise.size)
        assert noise.var() == pytest.approx(variance, rel=0.12)


def test_the_settings_are_those_published() -> None:
    panels = {panel: [s for s in SETTINGS if s.panel == panel] for panel in ("sources", "samples", "epsilon")}
    assert [s.sources for s in panels["sources"]] == list(range(10, 251, 10))
    assert [s.samples for s in panels["samples"]] == list(range(5, 51, 5))
    assert [s.epsilon for s in panels["epsilon"]] == pytest.approx(np.arange(0.2, 2.1, 0.2))
    assert len(SETTINGS) == 45


def test_every_method_is_measured_on_the_same_splits() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=10_000)
    logits = (3 * (rng.normal(size=(10_000, 10)) + np.eye(10)[labels])).astype(np.float32)
    setting = SETTINGS[24]  # the largest: 250 sources of 10
    found = list(rows(Pool(logits, labels), "made up", 5, setting, trials=20))
    assert [row[6] for row in found] == list(METHODS)


@pytest.mark.parametrize(("windows", "total"), [(12, 1.85), (30, 2.15), (100, 2.53)])
def test_factorised_noise_serves_totals_and_harms_windows(windows: int, total: float) -> None:
    square_root = continual.root(windows)
    np.testing.assert_allclose(square_root @ square_root, np.tri(windows), atol=1e-12)
    noise, weights = continual.factorised(windows), continual.wanted(windows)
    assert np.linalg.norm(weights["the total of all windows"] @ noise) == pytest.approx(total, abs=0.005)
    for name in list(weights)[:3]:
        assert np.linalg.norm(weights[name] @ noise) > 1.2 * np.linalg.norm(weights[name])


def test_halves_measure_as_trials_do() -> None:
    held = pool()
    drawn = without_privacy.halves(len(held), 3, 0)
    assert drawn.sum(axis=1).tolist() == [len(held) // 2] * 3
    found = without_privacy.errors(held, 3)
    whole = trials(held, 3)
    whole.samples, whole.sources = len(held) // 2, 1
    whole.dealt = np.stack([np.flatnonzero(row) for row in drawn])
    whole.right = held.right[whole.dealt]
    rungs = held.rows(without_privacy.RUNGS)
    looks = {
        "NLL-T": lambda rows: whole.losses(rows, np.inf),
        "Acc-T": lambda rows: np.abs(whole.gaps(rows)),
        "ECE-T": lambda rows: np.abs(whole.binned(rows)).sum(axis=1),
    }
    for name, look in looks.items():
        values = np.stack([look(np.full(3, rung)) for rung in rungs])
        np.testing.assert_allclose(found[name], whole.measured(rungs[values.argmin(axis=0)])[0], atol=1e-5)
    np.testing.assert_allclose(found["No recalibration"], c.Nothing().measures(whole, 1.0)[0], atol=1e-5)


def test_the_readme_says_what_the_results_say() -> None:
    text = "".join(page.read_text() for page in readme.PAGES)
    assert set(readme.PARTS) == set(re.findall(r"<!-- ([a-z0-9 ]+) -->", text)) - {"end"}
    assert readme.filled(text) == text
