"""Bins lie where their axis says, and calibrating on log-odds loses less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import metrics
from fedcalib.metrics.binning import Axis
from fedcalib.queries.class_tables import LabelHistogram
from tests.contract.subjects import federation

AXES = [fc.methods.EvenProbability(), fc.methods.EvenLogOdds(), fc.methods.EvenLogOdds(3.0)]
EACH = pytest.mark.parametrize("axis", AXES, ids=repr)


@EACH
@given(probability=st.floats(0, 1), bins=st.integers(1, 200))
def test_every_probability_has_a_bin_and_higher_ones_no_lower_bin(axis: Axis, probability: float, bins: int) -> None:
    pair = np.array([probability, min(1.0, probability + 1e-3)])
    low, high = axis.cells(pair, bins)
    assert 0 <= low <= high < bins
    assert axis.checked_cells(pair, bins).tolist() == [low, high]


@EACH
@pytest.mark.parametrize("bins", [1, 2, 15, 64])
def test_a_bin_holds_its_own_middle(axis: Axis, bins: int) -> None:
    assert axis.cells(axis.middles(bins), bins).tolist() == list(range(bins))


@EACH
def test_counting_is_counting_cells(axis: Axis) -> None:
    probs = np.random.default_rng(0).dirichlet(np.full(5, 0.2), 7000)
    counts = axis.counted(probs, 16)
    cells = axis.cells(probs, 16)
    assert counts.tolist() == [np.bincount(cells[:, label], minlength=16).tolist() for label in range(5)]


@EACH
def test_what_is_no_probability_is_refused(axis: Axis) -> None:
    with pytest.raises(fc.errors.InputError, match="between 0 and 1"):
        axis.checked_cells(np.array([0.5, np.nan]), 4)


def test_a_reach_has_to_be_above_zero() -> None:
    with pytest.raises(fc.errors.InputError, match="reach above 0"):
        fc.methods.EvenLogOdds(0.0)


@pytest.mark.parametrize("classes", [2, 3])
def test_histograms_on_log_odds_count_by_cell(classes: int) -> None:
    records = federation(classes, records=2000).records
    counts = LabelHistogram(classes, 8, axis=fc.methods.EvenLogOdds(4.0)).pooled(records).reshape(-1, 2, 8)
    label = classes - 1
    odds = np.log(records.probs[:, label]) - np.log1p(-records.probs[:, label])
    own = np.histogram(np.clip(odds, -3.999, 3.999)[records.labels == label], bins=8, range=(-4, 4))[0]
    assert counts[-1, 0].tolist() == own.tolist()
    assert counts[-1].sum() == len(records)


def test_bayesian_binning_loses_less_on_log_odds() -> None:
    rng = np.random.default_rng(0)
    true = 2 * rng.normal(size=(40_000, 10))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    records = fc.Records.of_logits(1.8 * true, labels)
    fitted, fresh = records.take(slice(0, 20_000)), records.take(slice(20_000, None))
    runtime = fc.InProcess(fc.Federation.of([fitted]))
    losses = [
        metrics.nll(fc.run(fc.FedBBQ(axis=axis), runtime, fc.Open()).artifact.of(fresh), fresh.labels)
        for axis in (fc.methods.EvenProbability(), fc.methods.EvenLogOdds())
    ]
    assert losses[1] < losses[0] - 0.02


def test_steps_on_log_odds_survive_the_file(tmp_path: Path) -> None:
    data = federation(3, records=500)
    made = fc.run(fc.FedBBQ(finest=4, axis=fc.methods.EvenLogOdds()), fc.InProcess(data), fc.Open()).artifact
    again = fc.load(made.save(tmp_path / "calibrator.json"))
    np.testing.assert_array_equal(again.of(data.records), made.of(data.records))
