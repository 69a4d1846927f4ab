"""Fits of many clients side by side are the fits of each client alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import fedcalib as fc
from fedcalib.families import Family, bounded_logits
from fedcalib.families.affine import MatrixFamily, VectorFamily
from fedcalib.families.local_fits import minimise_batched
from fedcalib.families.order_preserving import OrderPreservingVectorFamily
from tests.contract.subjects import federation

FAMILIES = [VectorFamily(), MatrixFamily(), OrderPreservingVectorFamily()]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_each_client_finds_what_a_general_minimiser_finds(family: Family) -> None:
    data = federation(4, clients=12, records=200)
    start = family.start(4)
    fitted = family.fit_each(start, data, ridge=1.0, steps=50, randomness=fc.Simulated(0))
    for found, records in zip(fitted, data.clients(), strict=True):
        if not len(records):
            np.testing.assert_array_equal(found, start)
            continue
        logits = bounded_logits(records)

        def drawn(moved: np.ndarray, logits: np.ndarray = logits, labels: np.ndarray = records.labels) -> float:
            return family.loss(moved, logits, labels)[0] + 0.5 * float((moved - start) @ (moved - start))

        best = minimize(drawn, start, method="L-BFGS-B", options={"maxiter": 200}).fun
        assert drawn(found) <= best + 1e-4 * abs(best) + 1e-4
        alone = family.fit(start, logits, records.labels, ridge=1.0, steps=50, rng=np.random.default_rng(0))
        np.testing.assert_allclose(found, alone, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_losses_of_records_add_up_to_the_loss(family: Family) -> None:
    records = federation(4, records=50).records
    rng = np.random.default_rng(0)
    parameters = family.start(4) + rng.normal(0, 0.1, family.start(4).shape)
    value, slope = family.record_losses(np.tile(parameters, (50, 1)), records.logits, records.labels)
    total, gradient = family.loss(parameters, records.logits, records.labels)
    assert value.sum() == pytest.approx(total)
    np.testing.assert_allclose(slope.sum(axis=0), gradient, atol=1e-9)


def test_a_client_that_cannot_improve_stays() -> None:
    def hostile(tried: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at_start = np.abs(tried).sum(axis=1) == 0
        return np.where(at_start, 0.0, np.nan), np.ones_like(tried)

    np.testing.assert_array_equal(minimise_batched(hostile, np.zeros((3, 2)), 5), np.zeros((3, 2)))
