"""Simulated scores whose population figures are known: ordinary, skewed, tied and of a rare event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

import fedcalib as fc
from fedcalib.metrics.table import METRICS

SITES = 5
POPULATION = 1_000_000
TIES = 10


@dataclass(frozen=True)
class Scores:
    """Log-odds of the scores are normal; those of the labels are linear in them."""

    mean: float
    deviation: float
    intercept: float
    slope: float
    tied: bool = False

    def draw(self, records: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Scores and labels."""
        return self._of(rng.normal(self.mean, self.deviation, records), rng.random(records))

    def _of(self, odds: np.ndarray, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = chance < 1 / (1 + np.exp(-self.intercept - self.slope * odds))
        score = 1 / (1 + np.exp(-odds))
        return (np.clip(np.floor(score * TIES) + 0.5, 0.5, TIES - 0.5) / TIES if self.tied else score), labels

    def federation(self, records: int, seed: int, clients: int = SITES) -> fc.Federation:
        """Records of five sites, or of more clients."""
        score, labels = self.draw(records, np.random.default_rng(seed))
        return fc.Federation.grouped(fc.Records.of_scores(score, labels), np.arange(records) * clients // records)

    @cache  # noqa: B019 - a handful of populations per process
    def truth(self) -> dict[str, float]:
        """The figures of a population that is spread evenly over the distribution, so that chance hardly moves them."""
        number = np.arange(POPULATION)
        odds = self.mean + self.deviation * ndtri((number + 0.5) / POPULATION)
        score, labels = self._of(odds, (0.5 + number * (5**0.5 - 1) / 2) % 1.0)  # an even sequence: the golden ratio
        probs = np.stack([1 - score, score], axis=1)
        return {metric.name: metric.exact(probs, labels.astype(np.int64)) for metric in METRICS}


KINDS = {
    "ordinary": Scores(0.0, 1.5, 0.0, 0.7),
    "skewed": Scores(-7.5, 3.0, -1.0, 0.25),
    "tied": Scores(0.0, 1.5, 0.0, 0.7, tied=True),
    "rare": Scores(-4.2, 1.2, 0.2, 1.0),
}
MODELS: dict[str, fc.privacy.Privacy] = {
    "SecAgg": fc.SecAgg(),
    "DistributedDP(1)": fc.DistributedDP(1.0),
    "DistributedDP(0.3)": fc.DistributedDP(0.3),
    "LocalDP(5)": fc.LocalDP(5.0),
    "LocalDP(1)": fc.LocalDP(1.0),
    "UserGaussian(1)": fc.UserGaussian(1.0, 1e-5, clip=1.0),
}


def studies(kind: Scores, records: int, privacy: fc.privacy.Privacy, runs: int, first: int = 0) -> Iterator[dict]:
    """What each of many evaluations finds: (value, low, high) by name, or None where it is not stated."""
    listed = tuple(((np.arange(TIES) + 0.5) / TIES).tolist()) if kind.tied else ()
    method = fc.FederatedMetrics(records=records, scores=listed)
    clients = records if isinstance(privacy, fc.UserGaussian) else SITES  # where clients are protected, one record each
    for run in range(first, first + runs):
        federation = kind.federation(records, 1_000_000 + run, clients)
        found = fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(run)).artifact
        stated = found.measures()
        yield {name: (one.value, one.low, one.high) if name in stated else None for name, one in found.figures.items()}


def summary(found: list[dict], truth: dict[str, float]) -> list[dict[str, str]]:
    """By metric: coverage, spread (3.92 standard deviations), bias over deviation, median width over spread."""
    rows = []
    for name in found[0]:
        known = np.array([one[name] for one in found if one[name] is not None]).reshape(-1, 3)
        row = {"metric": name, "truth": f"{truth[name]:.5f}", "runs": str(len(found)), "stated": str(len(known))}
        if len(known) < 2:
            rows.append(row | dict.fromkeys(("cover", "spread", "bias", "width"), ""))
            continue
        value, low, high = known.T
        deviation = max(float(value.std()), 1e-12)
        rows.append(
            row
            | {
                "cover": f"{np.mean((low <= truth[name] + 1e-12) & (truth[name] <= high + 1e-12)):.3f}",
                "spread": f"{3.92 * deviation:.5f}",
                "bias": f"{(value.mean() - truth[name]) / deviation:.3f}",
                "width": f"{np.median(high - low) / (3.92 * deviation):.3f}",
            }
        )
    return rows
