from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.queries.temperature import TemperatureCurve, TemperatureSlope, _doubled, max_variance
from fedcalib.records import softmax


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "inverses", [(0.25, 0.5, 1.0, 2.0, 4.0), (0.3, 0.6, 0.7, 1.4, 5.0), (3.0,), (2.0, 1.0), (1.0, 2.0, 2.0, 1.0)]
)
def test_slopes_are_mean_minus_own_logit_whatever_the_grid(
    inverses: tuple[float, ...], kind: type[np.floating]
) -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(5000, 7)) * rng.choice([0.1, 3.0, 200.0], size=(5000, 1))).astype(kind)
    labels = rng.integers(7, size=5000)
    found = TemperatureCurve(inverses, 1e4).rows(fc.Records.of_logits(logits, labels)).values
    wide = logits.astype(np.float64)
    own = wide[np.arange(5000), labels]
    expected = [np.einsum("ij,ij->i", softmax(inverse * wide), wide) - own for inverse in inverses]
    assert found is not None
    np.testing.assert_allclose(found, np.stack(expected, axis=1) / 1e4, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("points", "order"),
    [(5, [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)]), (8, [(0, 0), (7, 4), *((column, 0) for column in range(1, 7))])],
)
def test_a_grid_made_by_exponentials_is_seen_to_double(points: int, order: list[tuple[int, int]]) -> None:
    grid = tuple(np.exp(np.linspace(np.log(0.25), np.log(4.0), points)).tolist())
    assert _doubled(grid) == tuple(order)
    records = fc.Records.of_logits(np.random.default_rng(1).normal(size=(500, 4)) * 300, np.zeros(500, dtype=int))
    apart = [TemperatureCurve((inverse,), 1e4).rows(records).values for inverse in grid]
    together = TemperatureCurve(grid, 1e4).rows(records).values
    np.testing.assert_allclose(together, np.concatenate(apart, axis=1), rtol=0, atol=1e-12)


def test_doubling_stops_before_it_blows_rounding_up() -> None:
    grid = tuple(2.0**k for k in range(-5, 6))
    assert [column for column, doublings in _doubled(grid) if doublings == 0] == [0, 5, 10]


@pytest.mark.parametrize("inverse", [0.3, 1.0, 2.5])
def test_the_bend_is_how_the_slope_grows(inverse: float) -> None:
    rng = np.random.default_rng(2)
    records = fc.Records.of_logits(3 * rng.normal(size=(500, 5)), rng.integers(5, size=500))
    slope, bend = TemperatureSlope(inverse, 1e3, 5).pooled(records)
    near = [inverse * np.exp(step) for step in (-1e-5, 1e-5)]
    low, high = TemperatureCurve(tuple(near), 1e3).pooled(records)
    assert slope == pytest.approx((low + high) / 2, rel=1e-6)
    assert bend == pytest.approx((high - low) / 2e-5 * 1e3 * inverse, rel=1e-6)


def test_a_slope_that_is_cut_does_not_bend() -> None:
    records = fc.Records.of_logits(np.array([[0.0, 2.0], [0.0, 0.5]]), np.array([0, 0]))
    rows = TemperatureSlope(1.0, 1.0, 2).rows(records).dense(2)
    assert rows[0].tolist() == [1.0, 0.0]
    assert 0 < rows[1, 0] < 1 and rows[1, 1] > 0


@settings(deadline=None)
@given(
    st.integers(2, 12).flatmap(lambda c: st.lists(st.floats(0, 40), min_size=c, max_size=c)),
    st.floats(0.05, 20.0),
)
def test_no_record_bends_more_than_the_most(logits: list[float], inverse: float) -> None:
    probs = softmax(inverse * np.array([logits]))
    rows = TemperatureSlope(inverse, 1e6, len(logits)).rows(fc.Records.of_logits([logits], [0])).dense(2)
    spread = probs[0] @ (inverse * np.array(logits)) ** 2 - (probs[0] @ (inverse * np.array(logits))) ** 2
    assert rows[0, 1] == pytest.approx(max(spread, 0), rel=1e-6, abs=1e-6)
    assert spread <= max_variance(len(logits)) + 1e-6


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_one_class_against_equal_others_bends_the_most(classes: int) -> None:
    gaps = np.linspace(0, 15, 3001)[:, None] * np.eye(classes)[0]
    rows = TemperatureSlope(1.0, 1e6, classes).rows(fc.Records.of_logits(gaps, np.zeros(3001, dtype=int))).dense(2)
    assert rows[:, 1].max() == pytest.approx(max_variance(classes), rel=1e-5)


def test_other_classes_than_promised_are_refused() -> None:
    with pytest.raises(fc.errors.InputError, match="Expected 3 classes"):
        TemperatureSlope(1.0, 1.0, 3).rows(fc.Records.of_logits(np.zeros((1, 2)), np.zeros(1, dtype=int)))
    with pytest.raises(fc.errors.InputError, match="above 0"):
        TemperatureSlope(0.0, 1.0, 3)
