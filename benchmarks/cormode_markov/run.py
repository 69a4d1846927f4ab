"""Figures 2 to 5 and Table 1 of "Federated Calibration and Evaluation of Binary Classifiers", on real scores.

Run with `python -m benchmarks.cormode_markov.run`; it reads the real data beside the repository, and writes CSV files
and pictures beside itself. Name experiments, or data sets, to run only those: what the files say about other data sets
stays. `--quick` takes two repetitions and two data sets; `--out=DIRECTORY` writes the files there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cormode_markov import plots
from benchmarks.cormode_markov.baselines import averaged_auc
from benchmarks.cormode_markov.data import SETS
from benchmarks.cormode_markov.experiments import (
    MODELS,
    Row,
    auc_errors,
    calibration_errors,
    equal_epsilon,
    local_limit,
    rate_errors,
)
from fedcalib.metrics import roc_auc

HERE = Path(__file__).parent
HEIGHTS = (4, 6, 8, 10, 12, 14)
BUCKETS = (5, 10, 20, 40, 100, 200, 400)
BINS = (5, 10, 15, 25, 50, 100)


def sizes(most: int) -> list[int]:
    return [size for size in (1_000, 10_000, 100_000, 1_000_000) if size < most] + [most]


def sample(held: tuple[np.ndarray, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(size).permutation(len(held[0]))[:size]
    return held[0][rows], held[1][rows]


def figure_2(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in MODELS:
        for height in HEIGHTS:
            yield from rate_errors(*held, height, model, runs)


def figure_3(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in MODELS:
        for size in sizes(len(held[0])):
            yield from rate_errors(*sample(held, size), 10, model, runs)


def figure_4(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in MODELS:
        for buckets in BUCKETS:
            yield from auc_errors(*held, buckets, model, runs)


def figure_5(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in MODELS:
        yield from calibration_errors(*held, BINS, model, min(runs, 5))


def auc_by_clients(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in MODELS:
        for size in sizes(len(held[0])):
            yield from auc_errors(*sample(held, size), 100, model, runs)


def skewed_clients(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    """The averaged AUC of 200 clients that see their own range of scores, partly mixed, beside that of all records."""
    scores, labels = sample(held, 60_000)
    exact = roc_auc(scores, labels)
    bands = np.empty(len(scores), dtype=int)
    bands[np.argsort(scores)] = np.arange(len(scores)) * 200 // len(scores)  # each client has a population of its own
    for mixing in (0.0, 0.25, 0.5, 0.75, 1.0):
        for run in range(runs):
            rng = np.random.default_rng(run)
            owner, moved = bands.copy(), rng.random(len(scores)) < mixing
            owner[moved] = rng.permutation(owner[moved])
            yield {"mixing": mixing, "run": run, "averaged": averaged_auc(scores, labels, owner), "pooled": exact}


def same_budget(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    for model in list(MODELS)[1:]:
        yield from equal_epsilon(*held, model, runs)


def limits(held: tuple[np.ndarray, np.ndarray], runs: int) -> Iterator[Row]:
    yield from local_limit(*held, 4 * runs)


EXPERIMENTS = {
    "figure_2_rates_by_height": figure_2,
    "figure_3_rates_by_clients": figure_3,
    "figure_4_auc_by_buckets": figure_4,
    "figure_5_ece_by_bins": figure_5,
    "auc_by_clients": auc_by_clients,
    "averaged_auc": skewed_clients,
    "equal_epsilon": same_budget,
    "local_limit": limits,
}


def main(words: list[str]) -> None:
    quick = "--quick" in words
    folder = next((Path(word.removeprefix("--out=")) for word in words if word.startswith("--out=")), HERE)
    wanted = [word for word in words if word in EXPERIMENTS] or list(EXPERIMENTS)
    names = [word for word in words if word in SETS] or list(SETS)[: 2 if quick else None]
    held = {name: SETS[name]() for name in names}
    for experiment in wanted:
        start, rows = time.perf_counter(), []
        for name in names:
            rows += [{"set": name, **row} for row in EXPERIMENTS[experiment](held[name], 2 if quick else 10)]
        _write(folder / f"{experiment}.csv", pd.DataFrame(rows), names)
        print(f"{experiment}: {len(rows)} rows, {time.perf_counter() - start:.0f} s", flush=True)
    plots.draw_all(folder)


def _write(path: Path, fresh: pd.DataFrame, names: list[str]) -> None:
    """Replace what the file says about these data sets, and keep the order of the sets."""
    kept = pd.read_csv(path) if path.exists() else fresh[:0]
    whole = pd.concat([kept[~kept["set"].isin(names)], fresh])
    order = whole["set"].map(list(SETS).index)
    whole.iloc[order.argsort(kind="stable")].to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__":
    main(sys.argv[1:])
