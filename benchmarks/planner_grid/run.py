"""Is the planner right? Its forecasts against real evaluations, over scores, records, privacy models and metrics.

Run with `python -m benchmarks.planner_grid.run`, or with some numbers of records and names of privacy models; writes
results.csv beside itself, where the rest stays. `ratio` is the forecast over the measured root mean square error;
where the planner says that there is not enough data, `refused` shows how often evaluations did not state the metric
either.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fedcalib as fc
from fedcalib.planning import MODELS, Study, truth

HERE = Path(__file__).parent
RUNS = 100
RECORDS = (1_000, 10_000)
EPSILONS = {"secagg": (1.0,), "distributed": (0.3, 1.0, 5.0), "local": (1.0, 5.0)}
NAMES = ("auc", "accuracy", "sensitivity", "ece", "nll", "brier", "slope")
KINDS = {
    "ordinary": fc.planning.ScoreModel(0.3, 0.75, 1.5),
    "skewed": fc.planning.ScoreModel(0.06, 0.8, 2.5),  # most scores are below 0.001
    "rare": fc.planning.ScoreModel(0.03, 0.8, 1.2),
}
Row = dict[str, Any]


def figures(scores: fc.planning.ScoreModel, records: int, privacy: fc.privacy.Privacy, seed: int) -> list[float]:
    """Draw records, one per client, and evaluate them; NaN where a metric is not stated."""
    drawn = fc.Records.of_scores(*scores.draw(records, np.random.default_rng(77_000 + seed)))
    runtime = fc.InProcess(fc.Federation(drawn, np.arange(records + 1)))
    found = fc.run(fc.FederatedMetrics(records=records), runtime, privacy, randomness=fc.Simulated(seed)).artifact
    return [found.measure(name).value for name in NAMES]


def checked(kind: str, records: int, model: str) -> list[Row]:
    """Put forecasts beside evaluations for one kind of scores and one privacy model."""
    scores, rows = KINDS[kind], []
    for epsilon in EPSILONS[model]:
        values = np.array([figures(scores, records, MODELS[model](epsilon), run) for run in range(RUNS)])
        for name, column in zip(NAMES, values.T, strict=True):
            forecast = Study(name, model, scores).forecast(records, epsilon)
            off = column[~np.isnan(column)] - truth(name, scores)
            error = float(np.sqrt(np.mean(off**2))) if off.size else float("nan")
            rows.append(
                {
                    "scores": kind, "records": records, "model": model,
                    "epsilon": "" if model == "secagg" else epsilon, "metric": name,
                    "forecast": f"{forecast.error:.4g}", "measured": f"{error:.4g}",
                    "ratio": f"{forecast.error / error:.3f}" if error > 0 else "", "enough": forecast.enough,
                    "forecast_refused": f"{forecast.refused:.3f}", "refused": f"{np.isnan(column).mean():.3f}",
                }
            )  # fmt: skip
    return rows


def main(words: list[str]) -> None:
    """Check studies of these sizes under these privacy models; what results.csv says about others stays."""
    for kind in [word for word in words if word in KINDS] or list(KINDS):
        for records in [int(word) for word in words if word.isdigit()] or list(RECORDS):
            for model in [word for word in words if word in MODELS] or list(MODELS):
                rows = checked(kind, records, model)
                told = [float(row["ratio"]) for row in rows if row["enough"] and row["ratio"]]
                span = f"ratios {min(told, default=0):.2f} to {max(told, default=0):.2f}"
                print(f"{kind} {records} {model}: {len(told)} forecasts, {span}", flush=True)
                _merge((kind, str(records), model), rows)


def _merge(key: tuple[str, str, str], rows: list[Row]) -> None:
    place, kept = HERE / "results.csv", []
    if place.exists():
        with place.open() as file:
            kept = [row for row in csv.DictReader(file) if (row["scores"], row["records"], row["model"]) != key]
    order = list(KINDS), list(MODELS)
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            sorted(
                [*kept, *rows],
                key=lambda row: (
                    order[0].index(row["scores"]), int(row["records"]), order[1].index(row["model"])
                ),
            )
        )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
