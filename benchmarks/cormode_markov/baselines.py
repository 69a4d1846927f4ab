"""What was published and what frameworks do, to compare with: the raw binary tree, flat leaves, averaged AUCs.

Noise is drawn from the law of the sum over all clients: discrete Laplace for distributed noise, two binomials a cell
for optimal unary encoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcalib.metrics.ranking import auc_of_counts, roc_auc
from fedcalib.randomness import Simulated


@dataclass(frozen=True, eq=False)
class RawTree:
    """The published tree: binary, every level noised with its share of the budget, nothing made consistent."""

    levels: list[np.ndarray]  # level l: (2, 2^l)
    clients: int

    @classmethod
    def distributed(cls, leaves: np.ndarray, epsilon: float, seed: int) -> RawTree:
        exact = _levels(leaves)
        noise = Simulated(seed)
        scale = len(exact) / epsilon
        return cls(
            [x + noise.derive(i).discrete_laplace(scale, x.shape) for i, x in enumerate(exact)], int(leaves.sum())
        )

    @classmethod
    def local(cls, leaves: np.ndarray, epsilon: float, seed: int) -> RawTree:
        """Clients are dealt to levels, and report by optimal unary encoding, positives and negatives side by side."""
        rng = np.random.default_rng(seed)
        height = int(np.log2(leaves.shape[1]))
        clients, q = int(leaves.sum()), 1 / (np.exp(epsilon) + 1)
        left = leaves.astype(np.int64)
        noisy = []
        for level in range(1, height + 1):
            own = rng.binomial(left, 1 / (height - level + 1))
            left = left - own
            cells = own.reshape(2, 2**level, -1).sum(axis=2)
            reports = int(own.sum())
            ones = rng.binomial(cells, 0.5) + rng.binomial(reports - cells, q)
            noisy.append((ones - reports * q) / (0.5 - q) * clients / max(reports, 1))
        return cls(noisy, clients)

    @classmethod
    def exact(cls, leaves: np.ndarray) -> RawTree:
        return cls(_levels(leaves), int(leaves.sum()))

    def prefix(self, leaf: int) -> np.ndarray:
        """Records below a leaf by label, (2,): greedy, one cell a level at most."""
        height, total = len(self.levels), np.zeros(2)
        if leaf >= 2**height:
            return self.levels[0].sum(axis=1)
        for level in range(1, height + 1):
            at = leaf >> (height - level)
            if at & 1:
                total += self.levels[level - 1][:, at - 1]
        return total

    def rates(self, threshold: float) -> tuple[float, float, float]:
        """Precision, recall and accuracy at a threshold; precision is one where nobody is above, as for the truth."""
        below = self.prefix(round(threshold * 2 ** len(self.levels)))
        N, P = self.levels[0].sum(axis=1)
        fp, tp = N - below[0], P - below[1]
        precise = tp / (tp + fp) if tp + fp > 0 else 1.0
        values = precise, tp / max(P, 1e-9), (tp + below[0]) / max(N + P, 1e-9)
        return tuple(float(np.clip(value, 0, 1)) for value in values)  # type: ignore[return-value]

    def quantile(self, share: float) -> float:
        """The published descent: fractions of the level, negative ones cut, left to right until the share is passed."""
        height, place, gone = len(self.levels), 0, 0.0
        for level in range(1, height + 1):
            counts = self.levels[level - 1].sum(axis=0)
            fractions = np.maximum(counts / max(counts.sum(), 1e-9), 0.0)
            place *= 2
            if gone + fractions[place] < share:
                gone += fractions[place]
                place += 1
        return place / 2**height

    def auc(self, buckets: int, uniform: bool = False) -> float:
        """From bucket counts that are differences of prefixes."""
        leaves = 2 ** len(self.levels)
        shares = np.arange(1, buckets) / buckets
        inner = shares if uniform else np.unique([self.quantile(share) for share in shares])
        edges = np.unique(np.concatenate([[0], np.round(inner * leaves).astype(int), [leaves]]))
        counts = np.diff(np.stack([self.prefix(int(edge)) for edge in edges], axis=1), axis=1)
        return auc_of_counts(counts[1], counts[0])


def averaged_auc(scores: np.ndarray, labels: np.ndarray, owner: np.ndarray) -> float:
    """Each client's own AUC, averaged by size, as federated frameworks do; clients of one class are left out."""
    areas, sizes = [], []
    for client in range(int(owner.max()) + 1):
        rows = owner == client
        if 0 < labels[rows].sum() < rows.sum():
            areas.append(roc_auc(scores[rows], labels[rows]))
            sizes.append(int(rows.sum()))
    return float(np.average(areas, weights=sizes))


def flipped_labels_auc(leaves: np.ndarray, epsilon: float, seed: int) -> float:
    """AUC by label flipping (reference 26 of the source): scores are public, labels go by randomised response.

    It protects labels only. The server knows every score, and inverts the flips cell by cell.
    """
    rng, keep = np.random.default_rng([seed, 26]), 1 / (1 + np.exp(-epsilon))
    negative, positive = leaves.astype(np.int64)
    ones = rng.binomial(positive, keep) + rng.binomial(negative, 1 - keep)
    found = (ones - (positive + negative) * (1 - keep)) / (2 * keep - 1)
    return auc_of_counts(found, positive + negative - found)


def threshold_laplace_auc(leaves: np.ndarray, thresholds: int, epsilon: float, seed: int, *, everybody: bool) -> float:
    """AUC by Laplace noise on the confusion counts at even thresholds (DPAUC, reference 26 of the source).

    A record is in two of the four counts of every threshold, so the scale is 2 * thresholds / epsilon. The noise is
    added once by whoever sums or, with `everybody`, by each of the clients, who hold one record each.
    """
    rng, scale = np.random.default_rng([seed, 27]), 2 * thresholds / epsilon
    places = np.round(np.arange(thresholds + 1) / thresholds * leaves.shape[1]).astype(int)
    below = np.concatenate([np.zeros((2, 1)), np.cumsum(leaves, axis=1)], axis=1)[:, places]
    above = below[:, -1:] - below
    draws = rng.normal(0, scale * np.sqrt(2 * leaves.sum()), (2, 2, thresholds + 1))
    if not everybody:
        draws = rng.laplace(0, scale, (2, 2, thresholds + 1))
    rates = (above + draws[0]) / np.maximum(above + draws[0] + below + draws[1], 1)
    false, true = np.clip(rates, 0, 1)
    order = np.argsort(false, kind="stable")
    area = np.trapezoid(np.concatenate([[0], true[order], [1]]), np.concatenate([[0], false[order], [1]]))
    return float(np.clip(area, 0, 1))


def _levels(leaves: np.ndarray) -> list[np.ndarray]:
    height = int(np.log2(leaves.shape[1]))
    return [leaves.reshape(2, 2**level, -1).sum(axis=2).astype(np.float64) for level in range(1, height + 1)]
