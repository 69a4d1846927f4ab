"""FL-SWAG on real digits, dealt to uneven clients with favourite classes: what the benchmark finds, in small."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines import alone

import fedcalib as fc
from fedcalib import metrics
from fedcalib.data import partition
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.posterior import Curvature, PosteriorRecipe, Trajectory

NETWORK = SoftmaxRegression(64, 10)
HALF, WHOLE = LocalTraining(20, 16, SGD(0.3)), LocalTraining(40, 16, SGD(0.3))


def digits() -> tuple[fc.Federation, fc.Records]:
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    records = fc.Records.of_logits(np.zeros((len(labels), 10)), labels, inputs=inputs / 16)
    order = np.random.default_rng(0).permutation(len(labels))
    return partition.favourite_class(records.take(order[:1300]), 10, 0), records.take(order[1300:])


def accuracy(recipe: PosteriorRecipe, seed: int) -> float:
    federation, test = digits()
    method = FLSWAG(NETWORK, recipe, most=1e7)
    found = fc.run(method, fc.InProcess(federation), fc.SecAgg(bits=40), randomness=fc.Simulated(seed)).artifact
    return metrics.accuracy(found.over(test).probs, test.labels)


@pytest.mark.parametrize("seed", range(2))
def test_spread_misleads_where_shrinking_and_curvature_do_not(seed: int) -> None:
    federation, test = digits()
    models = alone(NETWORK, federation, WHOLE, weights=NETWORK.start(0), seed=seed)
    single = [metrics.accuracy(model.over(test).probs, test.labels) for model in models]
    plain, shrunken = (accuracy(Trajectory(HALF, 20, shrink=s, weighted=s > 0), seed) for s in (0.0, 0.9))
    curved = accuracy(Curvature(WHOLE), seed)
    assert min(shrunken, curved) > max(0.9, float(np.mean(single)) + 0.03)
    assert plain < shrunken - 0.2
