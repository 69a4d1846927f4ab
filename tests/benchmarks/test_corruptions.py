"""The seven corruptions that are made here: pictures stay pictures, and each kind does what it says."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.domain_shift.corruptions import CORRUPTIONS, enlarged, glass, plasma, sampled, smeared
from scipy import ndimage

KINDS = ("elastic", "fog", "frost", "glass", "motion", "snow", "zoom")


def pictures(count: int = 3, side: int = 32) -> np.ndarray:
    rough = np.random.default_rng(0).random((count, side, side, 3))
    return ndimage.gaussian_filter(rough, (0, 2, 2, 0), mode="wrap")


def test_these_are_the_seven_that_the_stored_logits_lack() -> None:
    assert tuple(CORRUPTIONS) == KINDS


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_corrupted_picture_is_another_picture_and_repeatable(kind: str, severity: int) -> None:
    before = pictures()
    first, second = (CORRUPTIONS[kind](before.copy(), severity, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == before.shape
    assert 0 <= first.min() < first.max() <= 1
    assert all(np.abs(one - other).mean() > 1e-3 for one, other in zip(first, before, strict=True))


@pytest.mark.parametrize("kind", ["elastic", "glass", "motion", "zoom"])
def test_a_grey_picture_has_nothing_to_move(kind: str) -> None:
    grey = np.full((2, 32, 32, 3), 0.4)
    np.testing.assert_allclose(CORRUPTIONS[kind](grey.copy(), 5, np.random.default_rng(0)), 0.4, atol=1e-12)


def test_glass_only_exchanges_pixels_where_it_does_not_blur() -> None:
    before = pictures()
    after = glass(before.copy(), 1, np.random.default_rng(0))
    assert (after != before).any()
    np.testing.assert_allclose(np.sort(after.reshape(3, -1), axis=1), np.sort(before.reshape(3, -1), axis=1))


@pytest.mark.parametrize(("angle", "moved"), [(0.0, (0, -1)), (np.pi / 2, (-1, 0)), (-np.pi / 2, (1, 0))])
def test_a_streak_lies_along_its_angle(angle: float, moved: tuple[int, int]) -> None:
    dot = np.zeros((1, 15, 15, 1))
    dot[0, 7, 7] = 1.0
    streak = smeared(dot, 2, 1.0, np.array([angle]))[0, :, :, 0]
    weights = np.exp(-0.5 * np.arange(5) ** 2)
    for step, weight in enumerate(weights / weights.sum()):
        assert streak[7 + step * moved[0], 7 + step * moved[1]] == pytest.approx(weight, abs=1e-9)


def test_reading_at_the_pixels_and_enlarging_by_one_change_nothing() -> None:
    before = pictures()
    rows, columns = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    places = np.broadcast_to(np.stack([rows, columns], axis=2), (3, 32, 32, 2))
    np.testing.assert_allclose(sampled(before, places), before, atol=1e-12)
    np.testing.assert_allclose(enlarged(before, 1.0), before, atol=1e-12)


def test_fractal_noise_fills_its_range_and_is_smoother_the_faster_it_decays() -> None:
    rough, smooth = (plasma(40, 32, decay, np.random.default_rng(0)) for decay in (1.5, 3.0))
    for noise in (rough, smooth):
        np.testing.assert_array_equal(noise.min(axis=(1, 2)), 0.0)
        np.testing.assert_array_equal(noise.max(axis=(1, 2)), 1.0)
    assert np.abs(np.diff(smooth, axis=2)).mean() < 0.7 * np.abs(np.diff(rough, axis=2)).mean()
