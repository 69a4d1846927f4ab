from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.records import softmax


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("inverses", [(0.25, 0.5, 1.0, 2.0, 4.0), (0.3, 0.6, 0.7, 1.4, 5.0), (3.0,), (2.0, 1.0)])
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


def test_a_grid_made_by_exponentials_is_seen_to_double() -> None:
    grid = tuple(np.exp(np.linspace(np.log(0.25), np.log(4.0), 5)).tolist())
    records = fc.Records.of_logits(np.random.default_rng(1).normal(size=(500, 4)) * 300, np.zeros(500, dtype=int))
    apart = [TemperatureCurve((inverse,), 1e4).rows(records).values for inverse in grid]
    together = TemperatureCurve(grid, 1e4).rows(records).values
    np.testing.assert_allclose(together, np.concatenate(apart, axis=1), rtol=0, atol=1e-12)
