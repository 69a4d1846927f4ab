"""The low bits of a released number must not tell what it was before the noise (Mironov 2012).

Floating-point noise y = f + Laplace has numbers close to 0 with finer low bits if f = 0 than if f = 1: a sum with 1 has
lost everything below 2^-53. So a small y with finer bits than that proves that f was 0, whatever epsilon says.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.privacy.small_queries import Values, answered, served, with_values

import fedcalib as fc
from fedcalib.privacy.open import Open

CELLS = 4000


def proofs_of_zero(released):
    """Count released numbers near 0 with low bits that no number around 1 could leave behind."""
    near = released[np.abs(released) < 0.25]
    return int(np.count_nonzero(near * 2.0**53 != np.rint(near * 2.0**53)))


def test_the_distinguisher_breaks_floating_point_noise():
    rng = np.random.default_rng(0)
    assert proofs_of_zero(0.0 + rng.laplace(0, 1, CELLS)) > CELLS / 20
    assert proofs_of_zero(1.0 + rng.laplace(0, 1, CELLS)) == 0


MODELS = [
    fc.DistributedDP(float(CELLS)),  # one per cell
    fc.DistributedDP(60.0, 1e-5),
    fc.UserGaussian(60.0, 1e-5),
    fc.SourceLaplace(float(CELLS)),
]


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__}-{getattr(model, 'delta', 0)}")
def test_it_learns_nothing_from_ours(model, value):
    query = Values(CELLS, clip=CELLS**0.5)
    federation = with_values([value, 0.0, 0.0], clients=3)
    mechanism = served(model, query, clients=3)
    released, variance = answered(mechanism, query, federation, fc.Secure())
    steps = released * mechanism.scales["values"]
    assert (steps == np.rint(steps)).all()
    assert proofs_of_zero(released) == 0
    assert 0.1 < variance[0] ** 0.5 < 100  # the noise is of the size at which the distinguisher works


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_local_reports_are_counts(value):
    query = Values(8)
    mechanism = served(fc.LocalDP(2.0), query)
    share = mechanism.encode(query, with_values([value] * 100).records, fc.Secure())
    assert share.dtype == np.int64 and share.min() >= 0


def test_without_noise_the_grid_is_not_there():
    query = Values(3)
    released, _ = answered(served(Open(), query), query, with_values([0.1], clients=1), fc.Secure())
    assert (released == 0.1).all()
