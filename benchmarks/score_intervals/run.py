"""Do the intervals hold the truth? A thousand simulated studies a model, nominal 95%.

Run with `python -m benchmarks.score_intervals.run`, perhaps with how many models to do in one go; it goes on where
results.csv beside it stops. `cover` is the share
of intervals that hold the true figure; `width` their mean width over the central 95% spread of the estimates. Two
models of scores: an over-confident one, and a calibrated one, for which ECE is zero and its intervals are hardest to
keep short. Counts are drawn from the law of the scores, and noise from the law of its sum over clients.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table
from benchmarks.releases import release
from fedcalib.artifacts.evaluation import Curves
from fedcalib.planning import truth

HERE = Path(__file__).parent
CLIENTS = 20_000
RUNS = 1000
FLAT = fc.methods.ScoreTree()
MODELS: dict[str, tuple[fc.privacy.Privacy, fc.methods.ScoreTree]] = {
    "SecAgg": (fc.SecAgg(), FLAT),
    "DistributedDP(1)": (fc.DistributedDP(1.0), FLAT),
    "LocalDP(5)": (fc.LocalDP(5.0), fc.planning.suited_tree(fc.LocalDP(5.0))),
    "LocalDP(1)": (fc.LocalDP(1.0), fc.planning.suited_tree(fc.LocalDP(1.0))),
}
SCORES = {
    "over-confident": fc.planning.ScoreModel(0.3, 0.75, 2.5),
    "calibrated": fc.planning.ScoreModel(0.3, 0.75, 1.0),
}
NAMES = ("auc", "accuracy", "ece")


def study(
    scores: fc.planning.ScoreModel, privacy: fc.privacy.Privacy, tree: fc.methods.ScoreTree, runs: int
) -> np.ndarray:
    """Give value, low and high by figure and run, (3, runs, 3)."""
    found = np.empty((len(NAMES), runs, 3))
    chances = scores.chances(tree.leaves).reshape(-1)
    for run in range(runs):
        leaves = np.random.default_rng(1_000_000 + run).multinomial(CLIENTS, chances).reshape(2, -1)
        curves = Curves(release(leaves, tree, privacy, run))
        for place, value in enumerate((curves.auc, curves.accuracy(0.5), curves.ece())):
            found[place, run] = value.value, value.low, value.high
    return found


def main(most: int) -> None:
    table = Table(HERE / "results.csv")
    cells = [(kind, model) for model in MODELS for kind in SCORES if not table.has(scores=kind, model=model)]
    for kind, model in cells[:most]:
        scores, (privacy, tree) = SCORES[kind], MODELS[model]
        for name, found in zip(NAMES, study(scores, privacy, tree, RUNS), strict=True):
            value, low, high = found.T
            exact = truth(name, scores)
            spread = np.subtract(*np.nanquantile(value, [0.975, 0.025]))
            row = {
                "scores": kind, "model": model, "arity": tree.arity, "height": tree.height, "clients": CLIENTS,
                "metric": name, "runs": RUNS, "truth": f"{exact:.5f}",
                "cover": f"{np.mean((low <= exact) & (exact <= high)):.3f}",
                "width": f"{np.mean(high - low) / spread:.2f}", "unanswered": int(np.isnan(value).sum()),
            }  # fmt: skip
            table.add(row)
            print(row, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else len(SCORES) * len(MODELS))
