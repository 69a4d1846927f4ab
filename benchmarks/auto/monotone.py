"""The mean error of Auto as epsilon grows: it should never rise beyond noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.auto.data import NETWORKS, network, real
from fedcalib import metrics

SETS = ("flights", "adult-bayes", "resnet56")
EPSILONS = tuple(round(float(epsilon), 3) for epsilon in np.geomspace(0.1, 10.0, 10))
MODELS: dict[str, Callable[[float], fc.privacy.Privacy]] = {
    "distributed": fc.DistributedDP,
    "local": fc.LocalDP,
    "laplace": fc.SourceLaplace,
    "user": lambda epsilon: fc.UserGaussian(epsilon, 1e-5),
}


def rows(name: str, model: str, runs: int) -> Iterator[dict[str, Any]]:
    """Log loss (two classes) or classwise ECE (ten) over noise alone: 5,000 records at 100 clients, 5,000 to test."""
    place, held = _halves(name)
    for epsilon in EPSILONS:
        errors = [_error(place, held, MODELS[model](epsilon), seed) for seed in range(runs)]
        spread = np.std(errors, ddof=1) / len(errors) ** 0.5
        yield {
            "set": name, "model": model, "epsilon": epsilon, "runs": runs, "error": np.mean(errors), "spread": spread,
        }  # fmt: skip


def _halves(name: str) -> tuple[fc.InProcess, fc.Records]:
    if name in NETWORKS:
        records = network(name)
    else:
        scored = real(name)
        records = fc.Records.of_scores(scored.score[:10_000], scored.label[:10_000])
    fit, test = np.array_split(np.random.default_rng(0).permutation(len(records)), 2)
    return fc.InProcess(fc.Federation.iid(records.take(fit), 100, seed=0)), records.take(test)


def _error(place: fc.InProcess, held: fc.Records, privacy: fc.privacy.Privacy, seed: int) -> float:
    probs = fc.run(fc.Auto(), place, privacy, randomness=fc.Simulated(seed)).artifact.of(held)
    return metrics.nll(probs, held.labels) if held.classes == 2 else metrics.classwise_ece(probs, held.labels)
