from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedcalib as fc
from fedcalib import metrics
from fedcalib.numeric import log_odds
from fedcalib.types import Floats

ROWS = st.integers(2, 12).flatmap(lambda c: arrays.arrays(np.float64, (3, c), elements=st.floats(0.0, 1.0)))


@pytest.mark.parametrize("normaliser", [fc.methods.ByScale(), fc.methods.ByOdds()])
@settings(deadline=None)
@given(ROWS)
def test_rows_come_to_one_in_the_order_they_were_in(
    normaliser: fc.methods.ByScale | fc.methods.ByOdds, values: Floats
) -> None:
    even = np.full_like(values, 1 / values.shape[1])
    found = normaliser.normalise(values, even)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    order = np.argsort(values, axis=1)
    assert (np.diff(np.take_along_axis(found, order, axis=1), axis=1) >= -1e-12).all()
    np.testing.assert_array_equal(found[values.sum(axis=1) == 0], even[values.sum(axis=1) == 0])


@settings(deadline=None)
@given(st.integers(2, 12).flatmap(lambda c: arrays.arrays(np.float64, (1, c), elements=st.floats(1e-6, 1 - 1e-6))))
def test_all_log_odds_move_by_one_step(values: Floats) -> None:
    found = fc.methods.ByOdds().normalise(values, values)
    inside = (found > 1e-9) & (found < 1 - 1e-6)  # beyond, rounding shows
    steps = (log_odds(found) - log_odds(values))[inside]
    assert steps.size == 0 or np.ptp(steps) < 1e-6


def test_what_sums_to_one_stays_and_what_is_nearly_certain_nearly_does() -> None:
    known = np.array([[0.7, 0.3], [0.0, 1.0]])
    np.testing.assert_allclose(fc.methods.ByOdds().normalise(known, known), known, rtol=0, atol=1e-11)
    sure = np.array([[0.999, 0.03, 0.03]])
    divided, moved = (one.normalise(sure, sure)[0, 0] for one in (fc.methods.ByScale(), fc.methods.ByOdds()))
    assert divided < 0.95 and moved > 0.99


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_bayesian_binning_is_better_calibrated_when_log_odds_are_moved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = 2 * rng.normal(size=(80_000, 10))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    records = fc.Records.of_logits(1.8 * true, labels)
    fitted, fresh = records.take(slice(0, 40_000)), records.take(slice(40_000, None))
    runtime = fc.InProcess(fc.Federation.of([fitted]))
    divided, moved = (
        fc.run(fc.FedBBQ(axis=fc.methods.EvenLogOdds(), normaliser=normaliser), runtime, fc.Open()).artifact.of(fresh)
        for normaliser in (fc.methods.ByScale(), fc.methods.ByOdds())
    )
    assert metrics.classwise_ece(moved, fresh.labels) < 0.95 * metrics.classwise_ece(divided, fresh.labels)
    assert metrics.nll(moved, fresh.labels) < metrics.nll(divided, fresh.labels) + 5e-4  # on a par
