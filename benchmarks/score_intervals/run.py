"""Do the intervals hold the truth? A thousand simulated studies a model, nominal 95%.

Run with `python -m benchmarks.score_intervals.run`; writes results.csv beside itself. `cover` is the share of intervals
that hold the true figure; `width` their mean width over the central 95% spread of the estimates. Two models of
scores: an over-confident one, and a calibrated one, for which ECE is zero and its intervals are hardest to keep short.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.planning.metrics import figure

HERE = Path(__file__).parent
MODELS: dict[str, fc.Privacy] = {
    "SecAgg": fc.SecAgg(),
    "DistributedDP(1)": fc.DistributedDP(1.0),
    "LocalDP(5)": fc.LocalDP(5.0),
}
SCORES = {"over-confident": fc.ScoreModel(0.3, 0.75, 2.5), "calibrated": fc.ScoreModel(0.3, 0.75, 1.0)}


def study(scores: fc.ScoreModel, privacy: fc.Privacy, clients: int, runs: int) -> dict[str, list[tuple[float, ...]]]:
    found: dict[str, list[tuple[float, ...]]] = {"auc": [], "accuracy": [], "ece": []}
    for seed in range(runs):
        drawn, labels = scores.draw(clients, np.random.default_rng(seed))
        federation = fc.Federation(fc.Records.of_scores(drawn, labels), np.arange(clients + 1))
        curves = fc.run(fc.ScoreCurves(), fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
        for name, value in zip(found, (curves.auc, curves.accuracy(0.5), curves.ece()), strict=True):
            found[name].append((value.value, value.low, value.high))
    return found


def main(runs: int) -> None:
    rows = []
    for kind, scores in SCORES.items():
        for model, privacy in MODELS.items():
            for name, triples in study(scores, privacy, 20_000, runs).items():
                value, low, high = np.array(triples).T
                truth = figure(name).truth(scores)
                spread = np.subtract(*np.nanquantile(value, [0.975, 0.025]))
                rows.append(
                    {
                        "scores": kind, "model": model, "clients": 20_000, "metric": name, "runs": runs,
                        "truth": f"{truth:.5f}", "cover": f"{np.mean((low <= truth) & (truth <= high)):.3f}",
                        "width": f"{np.mean(high - low) / spread:.2f}", "unanswered": int(np.isnan(value).sum()),
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
