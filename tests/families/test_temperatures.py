from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from scipy.optimize import brentq

import fedcalib as fc
from fedcalib.families.affine import TemperatureFamily
from fedcalib.randomness import Simulated
from fedcalib.records import softmax
from fedcalib.types import Floats, Ints

FAMILY = TemperatureFamily()


def slope(place: float, logits: Floats, labels: Ints, ridge: float, start: float) -> float:
    """The derivative of the loss in ln T, as written in a book."""
    probs = softmax(logits * exp(-place))
    pulls = (probs * logits).sum(axis=1) - logits[np.arange(len(labels)), labels]
    return float(-exp(-place) * pulls.sum() + ridge * (place - log(start)))


def reference(logits: Floats, labels: Ints, ridge: float, start: float) -> float:
    low, high, rest = log(FAMILY.lowest), log(FAMILY.highest), (logits, labels, ridge, start)
    if slope(low, *rest) >= 0:
        return FAMILY.lowest
    if slope(high, *rest) <= 0:
        return FAMILY.highest
    return exp(brentq(slope, low, high, args=rest, xtol=1e-14))


@pytest.mark.parametrize("ridge", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("start", [0.06, 1.0, 19.0])
def test_the_best_temperature_is_found_from_wherever_one_starts(ridge: float, start: float) -> None:
    rng = np.random.default_rng(0)
    for size in (0.3, 3.0, 30.0):
        logits = size * rng.normal(size=(40, 5))
        labels = np.where(rng.random(40) < 0.6, logits.argmax(axis=1), rng.integers(5, size=40))
        found = FAMILY.fit(np.array([start]), logits, labels, ridge=ridge, steps=1, rng=rng)[0]
        if ridge and start != 1.0 and 0.0501 < found < 19.99:  # far from 1, two temperatures can be best nearby
            steep = abs(slope(log(found) + 1e-4, logits, labels, ridge, start))
            assert abs(slope(log(found), logits, labels, ridge, start)) < 1e-6 * max(steep, 1.0)
        else:
            assert found == pytest.approx(reference(logits, labels, ridge, start), rel=1e-9)


def test_clients_side_by_side_find_what_each_finds_alone() -> None:
    rng = np.random.default_rng(1)
    clients = []
    for size in (1, 2, 30, 200, 0, 5):
        logits = 4 * rng.normal(size=(size, 3))
        right = logits.argmax(axis=1) if size else np.zeros(0, dtype=np.int64)
        clients.append(fc.Records.of_logits(logits, np.where(rng.random(size) < 0.7, right, 0).astype(np.int64)))
    federation = fc.Federation.of(clients)
    start = np.array([1.3])
    together = FAMILY.fit_each(start, federation, ridge=1.0, steps=1, randomness=Simulated(0))
    for client, records in enumerate(federation.clients()):
        alone = (
            FAMILY.fit(start, records.logits, records.labels, ridge=1.0, steps=1, rng=rng) if len(records) else start
        )
        np.testing.assert_allclose(together[client], alone, rtol=1e-10)


@pytest.mark.parametrize(("right", "edge"), [(True, FAMILY.lowest), (False, FAMILY.highest)])
def test_clients_that_are_always_right_or_wrong_end_at_the_edge(right: bool, edge: float) -> None:
    logits = np.random.default_rng(2).normal(size=(30, 4)) * 5
    labels = logits.argmax(axis=1) if right else logits.argmin(axis=1)
    found = FAMILY.fit(np.array([1.0]), logits, labels, ridge=0.0, steps=1, rng=np.random.default_rng(0))[0]
    assert found == pytest.approx(edge, rel=1e-6)
