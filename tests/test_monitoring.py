"""Watching: shifts are alarmed, no shift is not, and serving what was learnt lowers the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedcalib as fc
from fedcalib import metrics
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Identity, Mixture
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.numeric import bisected
from fedcalib.workflows.drift import Signal, Timeline, in_process, mixed, pooled, signals, together


def week(shift: float, n: int = 4000, seed: int = 0) -> fc.Federation:
    """A model that was right once; the odds of a positive have since moved by `shift`."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.0, n)
    labels = (rng.random(n) < 1 / (1 + np.exp(-odds - shift))).astype(int)
    return fc.Federation.iid(fc.Records.of_scores(1 / (1 + np.exp(-odds)), labels), 5, seed=0)


def watched(
    shifts: list[float], monitor: fc.Monitor, privacy: fc.privacy.Privacy | None = None, seed: int = 0
) -> Timeline:
    windows = {f"week {k}": week(shift, seed=seed + k) for k, shift in enumerate(shifts)}
    ask = in_process(windows, privacy or fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(seed))
    return monitor.watch(list(windows), ask)


def test_a_shift_is_alarmed_once_and_becomes_the_reference() -> None:
    found = watched([0, 0, 0, -1.0, -1.0, -1.0], fc.Monitor(1e-6))
    assert found.alarms == ("week 3",)
    (alarm,) = (alarm for alarm in found.windows[3].alarms if alarm.signal == "gap")
    assert abs(alarm.now - alarm.before) > 0.05
    assert alarm.deviations > 4.9


def test_what_was_learnt_serves_the_next_window() -> None:
    found = watched([-1.0] * 5, fc.Monitor(recalibration=fc.PlattScaling()))
    never = [window.review.metrics.ece.value for window in found.windows]
    served = [window.review.served.ece.value for window in found.windows]
    assert isinstance(found.windows[0].served, Identity)
    assert max(served[1:]) < 0.6 * min(never[1:])
    test = week(-1.0, seed=99).records
    assert metrics.binary_ece(found.next(test.score), test.labels) < 0.05


def test_the_estimate_without_labels_is_that_of_what_was_served() -> None:
    found = watched([-1.0] * 6, fc.Monitor(recalibration=fc.PlattScaling()))
    last = found.windows[-1].review
    assert last.estimate.value == pytest.approx(last.served.accuracy.value, abs=0.03)


def test_more_classes_watch_accuracy() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=3000)
    logits = 3 * (rng.normal(size=(3000, 3)) + np.eye(3)[labels])
    windows = {str(k): fc.Federation.iid(fc.Records.of_logits(logits, labels), 5, seed=k) for k in range(3)}
    found = fc.Monitor(recalibration=fc.AccT()).watch(list(windows), in_process(windows, fc.Open()))
    assert set(found.windows[0].signals) == {"gap", "confidence", "accuracy"}
    assert found.windows[2].review.served.ece.value < 0.5 * found.windows[2].review.metrics.ece.value
    assert found.alarms == ()


def test_a_window_that_drowns_says_and_teaches_nothing() -> None:
    windows = {"tiny": week(0, n=5), "large": week(0)}
    ask = in_process(windows, fc.DistributedDP(epsilon=0.1), randomness=fc.Simulated(0))
    found = fc.Monitor(recalibration=fc.PlattScaling()).watch(["tiny", "large"], ask)
    assert found.windows[0].signals == {}
    assert isinstance(found.windows[1].served, Identity)
    assert found.windows[1].alarms == ()


@pytest.mark.parametrize("privacy", [fc.Open(), fc.DistributedDP(epsilon=1.0)], ids=repr)
def test_signals_are_as_unsure_as_they_say(privacy: fc.privacy.Privacy) -> None:
    """Over independent windows of one law, a signal's spread is at most what it claims, and not far below."""
    runs = 30
    draws = []
    for seed in range(runs):
        runtime = fc.InProcess(week(-0.5, 1500, seed))
        report = fc.run(fc.FederatedMetrics(), runtime, privacy, randomness=fc.Simulated(seed)).artifact
        draws.append(signals(report))
    for name in ("gap", "confidence", "auc"):
        values = np.array([draw[name].value for draw in draws])
        claimed = np.mean([draw[name].variance for draw in draws])
        ratio = values.var(ddof=1) / claimed
        assert ratio < stats.chi2.ppf(1 - 1e-7, runs - 1) / (runs - 1)
        assert ratio > 0.3


def test_false_alarms_stay_at_the_stated_rate() -> None:
    """Windows of one law at a loud rate: the count of alarms is what the rate allows."""
    rate, rounds, windows = 0.2, 12, 6
    raised = 0
    for seed in range(rounds):
        found = watched([-0.5] * windows, fc.Monitor(rate, min_effect=0.0), seed=1000 * seed)
        raised += len(found.alarms)
    assert raised <= stats.binom.ppf(1 - 1e-7, rounds * (windows - 1), rate)
    assert raised >= 2  # a test that never fires would pass everything


def test_a_change_that_is_certain_and_small_raises_no_alarm() -> None:
    windows = {f"week {k}": week(shift, 60_000, seed=k) for k, shift in enumerate([0.0, 0.0, -0.15])}

    def alarms(monitor: fc.Monitor) -> tuple[str, ...]:
        return monitor.watch(list(windows), in_process(windows, fc.Open())).alarms

    assert alarms(fc.Monitor(min_effect=0.0)) == ("week 2",)  # the gap changes by 0.027
    assert alarms(fc.Monitor()) == ()
    assert alarms(fc.Monitor(min_effect=0.02)) == ("week 2",)


def test_rare_events_need_a_smaller_change() -> None:
    """A fifth of the mean score; otherwise a rate that doubles from 3% would never be alarmed."""
    monitor, known = (
        fc.Monitor(),
        {"confidence": Signal(0.03, 1e-6), "gap": Signal(0.0, 1e-6), "auc": Signal(0.8, 1e-4)},
    )
    assert monitor.least_effects(known) == pytest.approx({"confidence": 0.006, "gap": 0.006, "auc": 0.05})
    several = {"confidence": Signal(0.97, 1e-6), "gap": Signal(0.0, 1e-6), "accuracy": Signal(0.9, 1e-4)}
    assert set(monitor.least_effects(several).values()) == {0.05}


@pytest.mark.parametrize("least", [0.0, 0.05])
def test_a_detectable_change_is_found_in_four_of_five_windows(least: float) -> None:
    """Odds of positives move until the mean gap has moved by what the monitor calls detectable."""
    rounds, monitor, found = 30, fc.Monitor(0.01, min_effect=least), 0
    first = watched([0.0, 0.0], monitor).windows[1].detectable["gap"]
    odds = np.random.default_rng(0).normal(-1.0, 1.0, 200_000)

    def moved(shift: float) -> float:
        return float(np.mean(1 / (1 + np.exp(-odds)) - 1 / (1 + np.exp(-odds - shift))))

    shift = -bisected(lambda size: moved(-size) >= first, 0.0, 1.5, 9)[1]
    for seed in range(rounds):
        last = watched([0.0, shift], monitor, seed=100 + 10 * seed).windows[1]
        found += "gap" in {alarm.signal for alarm in last.alarms}
    assert stats.binom.ppf(1e-4, rounds, 0.8) <= found <= stats.binom.ppf(1 - 1e-4, rounds, 0.8) + 2


def test_costs_of_windows() -> None:
    record = Spending("m", "record", 1.0, 0.0, "add/remove", False, "said.")
    client = Spending("m", "client", 1.0, 1e-6, "add/remove", False, "said.")
    assert together([record] * 5).epsilon == 1.0
    assert together([client] * 5).epsilon == 5.0
    assert together([client] * 5).delta == pytest.approx(5e-6)
    assert "5 windows" in together([client] * 5).statement


def test_calibrators_are_mixed_by_age() -> None:
    assert isinstance(mixed([]), Identity)
    assert mixed([Temperature(2.0)]) == Temperature(2.0)
    both = mixed([Temperature(1.0), Temperature(3.0)])
    assert both.weights == pytest.approx((1 / 3, 2 / 3))
    probs = np.array([[0.9, 0.1]])
    np.testing.assert_allclose(both(probs), (probs + 2 * Temperature(3.0)(probs)) / 3)
    with pytest.raises(InputError):
        Mixture((Temperature(1.0),), (0.5,))


def test_pooling_weighs_by_certainty() -> None:
    assert pooled([Signal(1.0, 1.0), Signal(4.0, 0.5)]) == Signal(pytest.approx(3.0), pytest.approx(1 / 3))


def test_nonsense_is_refused() -> None:
    for make in (lambda: fc.Monitor(0.0), lambda: fc.Monitor(memory=0), lambda: fc.Monitor(min_effect=-0.1)):
        with pytest.raises(InputError):
            make()
    with pytest.raises(InputError, match="at least one window"):
        fc.Monitor().watch([], in_process({}, fc.Open()))


def flights(shared: Path, share: float, shuffle: int | None = None) -> dict[str, fc.Federation]:
    """Weeks of scored flights by airport, or the same records dealt to weeks at random."""
    from pyarrow import parquet

    table = parquet.read_table(shared / "flights_scored" / "flights_scored.parquet")
    kept = np.random.default_rng(0).random(len(table)) < share
    day, score, label = (table[name].to_numpy()[kept] for name in ("day", "score", "label"))
    origin = table["origin"].combine_chunks().indices.to_numpy()[kept]
    if shuffle is not None:
        day = np.random.default_rng(shuffle).permutation(day)
    number = (day - 90) // 7
    return {
        f"week {k}": fc.Federation.by_site(fc.Records.of_scores(score[rows], label[rows]), origin[rows])
        for k in range(13)
        if len(rows := np.flatnonzero(number == k))
    }


@pytest.mark.shared
def test_swings_of_flights_are_alarmed_and_recalibrating_helps(shared: Path) -> None:
    windows = flights(shared, 0.25)
    ask = in_process(windows, fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(0))
    found = fc.Monitor(recalibration=fc.PlattScaling()).watch(list(windows), ask)
    swings = {"week 2", "week 7", "week 8", "week 10"}  # the rate of delays moves by more than 5 points
    assert swings <= set(found.alarms)
    assert len(found.alarms) <= 6
    assert len(fc.Monitor(min_effect=0.0).watch(list(windows), ask).alarms) >= 10  # nearly every change is certain
    never, served = [], []
    for window in found.windows[1:]:
        records = windows[window.label].records
        never.append(metrics.binary_ece(records.score, records.labels))
        served.append(metrics.binary_ece(window.served(records.score), records.labels))
    assert np.mean(never) == pytest.approx(0.048, abs=0.002)
    assert np.mean(served) < 0.85 * np.mean(never)
    assert found.spending.epsilon == 1.0


@pytest.mark.shared
def test_shuffled_flights_raise_no_more_alarms_than_stated(shared: Path) -> None:
    rate, rounds = 0.05, 4
    raised = 0
    for seed in range(rounds):
        windows = flights(shared, 0.02, shuffle=seed)
        ask = in_process(windows, fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(seed))
        raised += len(fc.Monitor(rate, min_effect=0.0).watch(list(windows), ask).alarms)
    assert raised <= stats.binom.ppf(1 - 1e-6, rounds * 12, rate)
