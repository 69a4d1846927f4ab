"""Is the planner right? Its forecasts against releases, over clients, epsilon, models and metrics.

Run with `python -m benchmarks.planner_grid.run`, or with some numbers of clients and names of models; writes
results.csv beside itself, where the rest stays.
`ratio` is the forecast over the measured root mean square error; where the planner says that there is not enough data,
`refused` shows how often the releases gave no figure either.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.releases import release
from fedcalib.artifacts.evaluation import Curves
from fedcalib.planning import MODELS, figure

HERE = Path(__file__).parent
RUNS = {1_000: 150, 10_000: 150, 100_000: 100, 1_000_000: 100}
EPSILONS = (0.1, 0.5, 1.0, 5.0)
NAMES = ("auc", "accuracy", "precision", "recall", "ece")
SCORES = fc.planning.ScoreModel()
TREE = fc.methods.ScoreTree(4, 4)
Row = dict[str, Any]


def figures(clients: int, privacy: fc.privacy.Privacy, seed: int) -> list[float]:
    """Draw clients, release their counts under the model's own noise, and read every figure off."""
    rng = np.random.default_rng(77_000 + seed)
    leaves = rng.multinomial(clients, SCORES.chances(TREE.leaves).reshape(-1)).reshape(2, TREE.leaves)
    curves = Curves(release(leaves, TREE, privacy, seed))
    rates = (curves.accuracy(0.5), curves.precision(0.5), curves.recall(0.5))
    return [found.value for found in (curves.auc, *rates, curves.ece())]


def cells(model: str) -> list[float]:
    return [1.0] if model == "secagg" else list(EPSILONS)


def checked(clients: int, model: str) -> list[Row]:
    """Put forecasts beside releases for one model."""
    runs, rows = RUNS[clients], []
    for epsilon in cells(model):
        values = np.array([figures(clients, MODELS[model](epsilon), run) for run in range(runs)])
        for name, column in zip(NAMES, values.T, strict=True):
            forecast = fc.planning.Study(name, model, SCORES, TREE).forecast(clients, epsilon)
            off = column[~np.isnan(column)] - figure(name).truth(SCORES)
            error = float(np.sqrt(np.mean(off**2))) if off.size else float("nan")
            rows.append(
                {
                    "clients": clients, "model": model, "epsilon": "" if model == "secagg" else epsilon,
                    "metric": name, "forecast": f"{forecast.error:.4g}", "measured": f"{error:.4g}",
                    "ratio": f"{forecast.error / error:.3f}" if error > 0 else "", "enough": forecast.enough,
                    "forecast_refused": f"{forecast.refused:.3f}", "refused": f"{np.isnan(column).mean():.3f}",
                }
            )  # fmt: skip
    return rows


def main(words: list[str]) -> None:
    """Check studies of these sizes under these models; what results.csv says about others stays."""
    for clients in [int(word) for word in words if word.isdigit()] or list(RUNS):
        for model in [word for word in words if word in MODELS] or list(MODELS):
            rows = checked(clients, model)
            told = [float(row["ratio"]) for row in rows if row["enough"] and row["ratio"]]
            span = f"ratios {min(told, default=0):.2f} to {max(told, default=0):.2f}"
            print(f"{clients} {model}: {len(told)} forecasts, {span}", flush=True)
            _merge(clients, model, rows)


def _merge(clients: int, model: str, rows: list[Row]) -> None:
    place = HERE / "results.csv"
    kept: list[Row] = []
    if place.exists():
        with place.open() as file:
            kept = [row for row in csv.DictReader(file) if (int(row["clients"]), row["model"]) != (clients, model)]
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        order = list(MODELS)
        writer.writerows(
            sorted([*kept, *rows], key=lambda row: (int(str(row["clients"])), order.index(str(row["model"]))))
        )


if __name__ == "__main__":
    main(sys.argv[1:])
