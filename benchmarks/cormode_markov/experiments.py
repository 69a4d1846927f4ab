"""The experiments: rates against height and clients, AUC against buckets, calibration against bins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.cormode_markov.baselines import RawTree, flipped_labels_auc, threshold_laplace_auc
from benchmarks.releases import release
from fedcalib.estimation.score_rates import accuracy, area, precision, recall
from fedcalib.estimation.score_table import Buckets
from fedcalib.metrics import roc_auc
from fedcalib.metrics.binning import bin_index
from fedcalib.metrics.ranking import auc_bucket_bound, auc_of_counts, confusion
from fedcalib.metrics.reliability import binary_ece

THRESHOLDS = np.arange(1, 11) / 11
MODELS: dict[str, fc.privacy.Privacy] = {
    "no noise": fc.SecAgg(),
    "DistDP eps=1": fc.DistributedDP(1.0),
    "LocalDP eps=5": fc.LocalDP(5.0),
}
RATES = ("precision", "recall", "accuracy")
Row = dict[str, Any]


def leaves_of(scores: np.ndarray, labels: np.ndarray, height: int) -> np.ndarray:
    cells = bin_index(scores, 2**height) + labels * 2**height
    return np.bincount(cells, minlength=2 ** (height + 1)).reshape(2, -1)


def raw_tree(leaves: np.ndarray, model: str, seed: int) -> RawTree:
    if model == "no noise":
        return RawTree.exact(leaves)
    return RawTree.distributed(leaves, 1.0, seed) if model.startswith("Dist") else RawTree.local(leaves, 5.0, seed)


def rate_errors(scores: np.ndarray, labels: np.ndarray, height: int, model: str, runs: int) -> Iterator[Row]:
    """Absolute errors of precision, recall and accuracy at ten thresholds, ours and as published."""
    exact = confusion(scores, labels, THRESHOLDS)
    truth = np.stack([exact.precision, exact.recall, exact.accuracy])
    leaves = leaves_of(scores, labels, height)
    for run in range(1 if model == "no noise" else runs):
        found = release(leaves, fc.methods.ScoreTree(2, height), MODELS[model], run)
        ours = np.stack([rate(found, THRESHOLDS).value for rate in (precision, recall, accuracy)])
        raw = raw_tree(leaves, model, run)
        published = np.array([raw.rates(t) for t in THRESHOLDS]).T
        for name, values in (("ours", ours), ("published tree", published)):
            for rate, errors in zip(RATES, np.abs(values - truth), strict=True):
                yield {
                    "clients": len(scores), "height": height, "model": model, "run": run, "estimator": name,
                    "rate": rate, "mean": np.nanmean(errors), "median": np.nanmedian(errors),
                    "worst": np.nanmax(errors), "unanswered": int(np.isnan(errors).sum()),
                }  # fmt: skip


def auc_errors(scores: np.ndarray, labels: np.ndarray, buckets: int, model: str, runs: int) -> Iterator[Row]:
    """Errors of the AUC from equi-depth buckets, ours, as published, and uniform ones."""
    exact = roc_auc(scores, labels)
    height = 16 if model == "no noise" else 10
    leaves = leaves_of(scores, labels, height)
    for run in range(1 if model == "no noise" else runs):
        table = release(leaves, fc.methods.ScoreTree(4, height // 2), MODELS[model], run)
        even = Buckets.even(table, buckets)
        raw = raw_tree(leaves, model, run)
        values = {
            "ours": auc_of_counts(even.positive, even.negative),
            "ours, all leaves": float(area(table).value[0]),
            "published tree": raw.auc(buckets),
            "uniform buckets": raw.auc(buckets, uniform=True),
            **_of_others(leaves, buckets, model, run),
        }
        errors = {name: abs(value - exact) for name, value in values.items()}
        errors["worst case of Lemma 3"] = auc_bucket_bound(np.maximum(even.positive, 0), np.maximum(even.negative, 0))
        for name, error in errors.items():
            yield {
                "clients": len(scores), "buckets": buckets, "model": model, "run": run, "estimator": name,
                "error": error,
            }  # fmt: skip


def _of_others(leaves: np.ndarray, buckets: int, model: str, run: int) -> dict[str, float]:
    """The baselines of reference 26 in the source, at the epsilon of the model."""
    if model.startswith("Dist"):
        return {"Laplace at thresholds": threshold_laplace_auc(leaves, buckets, 1.0, run, everybody=False)}
    if model.startswith("Local"):
        return {
            "Laplace at thresholds": threshold_laplace_auc(leaves, buckets, 5.0, run, everybody=True),
            "flipped labels, scores public": flipped_labels_auc(leaves, 5.0, run),
        }
    return {}


def calibration_errors(
    scores: np.ndarray, labels: np.ndarray, bins: tuple[int, ...], model: str, runs: int
) -> Iterator[Row]:
    """Calibration error on one half of what the other half fitted, with as many buckets as bins, as published."""
    half = np.random.default_rng(1).random(len(scores)) < 0.5
    kept, held = (scores[half], labels[half]), (scores[~half], labels[~half])
    tree = fc.planning.suited_tree(MODELS[model])
    leaves, base = leaves_of(*kept, int(np.log2(tree.leaves))), roc_auc(*held)
    for run in range(1 if model == "no noise" else runs):
        table = release(leaves, tree, MODELS[model], run)
        for name, method, wanted in _calibrators(bins):
            mapped = held[0] if method is None else method.fit(table)(held[0])
            change = roc_auc(mapped, held[1]) - base
            for count in wanted:
                yield {
                    "clients": len(kept[0]), "bins": count, "model": model, "run": run, "calibrator": name,
                    "ece": binary_ece(mapped, held[1], count), "auc_change": change,
                }  # fmt: skip


def _calibrators(bins: tuple[int, ...]) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Name every calibrator with the numbers of bins that it is measured in."""
    yield "none", None, bins
    yield "quantile binning, default", fc.QuantileBinning(), bins
    yield "isotonic", fc.IsotonicBuckets(), bins
    yield "Platt", fc.PlattScaling(), bins
    yield "beta", fc.methods.BetaScaling(), bins
    for count in bins:
        yield "quantile binning", fc.QuantileBinning(buckets=count), (count,)
        yield "BBQ", fc.BinaryBBQ(levels=max(int(np.log2(count)), 1)), (count,)


def equal_epsilon(scores: np.ndarray, labels: np.ndarray, model: str, runs: int) -> Iterator[Row]:
    """Four ways to spend the same epsilon on 1024 leaves."""
    exact = confusion(scores, labels, THRESHOLDS)
    leaves = leaves_of(scores, labels, 10)
    truth, auc = np.stack([exact.precision, exact.recall, exact.accuracy]), roc_auc(scores, labels)
    trees = {
        "flat leaves": fc.methods.ScoreTree(1024, 1),
        "consistent, arity 2": fc.methods.ScoreTree(2, 10),
        "consistent, arity 4": fc.methods.ScoreTree(4, 5),
        "suited": fc.planning.suited_tree(MODELS[model]),
    }
    for run in range(runs):
        raw = raw_tree(leaves, model, run)
        found = {"published tree": (np.array([raw.rates(t) for t in THRESHOLDS]).T, raw.auc(100))}
        for name, tree in trees.items():
            table = release(leaves.reshape(2, tree.leaves, -1).sum(axis=2), tree, MODELS[model], run)
            rates = np.stack([rate(table, THRESHOLDS).value for rate in (precision, recall, accuracy)])
            found[name] = rates, float(area(table).value[0])
        for name, (rates, value) in found.items():
            yield {
                "clients": len(scores), "model": model, "run": run, "estimator": name,
                "rates_mean": np.nanmean(np.abs(rates - truth)), "rates_median": np.nanmedian(np.abs(rates - truth)),
                "unanswered": int(np.isnan(rates).sum()), "auc": abs(value - auc),
            }  # fmt: skip


def local_limit(scores: np.ndarray, labels: np.ndarray, runs: int) -> Iterator[Row]:
    """Rates under local reports by tree, beside somebody who asks about the ten thresholds and nothing else."""
    exact, model = confusion(scores, labels, THRESHOLDS), "LocalDP eps=5"
    truth = np.stack([exact.precision, exact.recall, exact.accuracy])
    trees = {f"{a}^{h} leaves": fc.methods.ScoreTree(a, h) for a, h in ((2, 6), (2, 7), (2, 8), (8, 2), (4, 3), (4, 5))}
    between = np.searchsorted(THRESHOLDS, scores, side="right") + 11 * labels
    known = np.bincount(between, minlength=22).reshape(2, 11)
    leaves = {name: _leaves(scores, labels, tree) for name, tree in trees.items()}
    for run in range(runs):
        found = {
            "thresholds known beforehand": _between(
                release(known, fc.methods.ScoreTree(11, 1), MODELS[model], run).counts
            )
        }
        for name, tree in trees.items():
            table = release(leaves[name], tree, MODELS[model], run)
            found[name] = np.stack([rate(table, THRESHOLDS).value for rate in (precision, recall, accuracy)])
        for name, values in found.items():
            errors = np.abs(values - truth)
            yield {
                "clients": len(scores), "model": model, "run": run, "estimator": name, "mean": np.nanmean(errors),
                "median": np.nanmedian(errors), "up_to_5_11": np.nanmean(errors[:, :5]),
                "unanswered": int(np.isnan(errors).sum()),
            }  # fmt: skip


def _leaves(scores: np.ndarray, labels: np.ndarray, tree: fc.methods.ScoreTree) -> np.ndarray:
    cells = bin_index(scores, tree.leaves) + labels * tree.leaves
    return np.bincount(cells, minlength=2 * tree.leaves).reshape(2, -1)


def _between(counts: np.ndarray) -> np.ndarray:
    """Read the rates at the thresholds off noisy counts between them."""
    above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    negative, positive = counts.sum(axis=1)
    accurate = (above[1] + negative - above[0]) / (negative + positive)
    return np.stack([np.clip(above[1] / above.sum(axis=0), 0, 1), above[1] / positive, accurate])
