"""Do the intervals hold the truth with several classes? A thousand evaluations of real logits per cell, nominal 95%.

Run with `python -m benchmarks.evaluation.classes`, perhaps with the number of runs per cell, the records (600,2000) and
a file name; it goes on where the file stops. The population of a network is its whole test set; each run samples
records from it with replacement and measures them before and after a fixed temperature. `cover` is the share of stated
intervals that hold the population's figure, `width` the median width over 3.92 standard deviations of the estimates,
and `unstated` the share of runs in which noise drowns the figure.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table
from fedcalib.metrics.table import METRICS
from fedcalib.records import softmax

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
RUNS = 1000
SITES = 5
SIZES = (600, 2_000, 20_000)
AFTER = fc.artifacts.Temperature(1.5)
MODELS: dict[str, fc.privacy.Privacy] = {
    "SecAgg": fc.SecAgg(),
    "DistributedDP(1)": fc.DistributedDP(1.0),
    "DistributedDP(0.3)": fc.DistributedDP(0.3),
    "LocalDP(5)": fc.LocalDP(5.0),
    "LocalDP(1)": fc.LocalDP(1.0),
    "UserGaussian(1)": fc.UserGaussian(1.0, 1e-5, clip=1.0),
}
NETWORKS = {
    "resnet20": ("cifar10_logits/cifar10_logits.npz", "resnet20_logits"),
    "lenet5": ("cifar10_logits/cifar10_logits.npz", "lenet5_logp"),
    "wideresnet": ("cifar10_logits/cifar10_logits.npz", "wideresnet164_logp"),
}
Figures = dict[str, tuple[float, float, float]]


def population(network: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a network's test set."""
    file, column = NETWORKS[network]
    with np.load(DATA / file) as stored:
        return stored[column].astype(np.float64), stored["y"].astype(np.int64)


def truth(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Every figure of the population, and its change by the temperature."""
    sides = [softmax(logits), softmax(logits / AFTER.temperature)]
    metrics = [metric for metric in METRICS if metric.classes != "two"]
    before, after = ({metric.name: metric.exact(probs, labels) for metric in metrics} for probs in sides)
    return before | {f"change of {name}": after[name] - before[name] for name in before}


def federation(logits: np.ndarray, labels: np.ndarray, records: int, model: str, seed: int) -> fc.Federation:
    """Records drawn with replacement: of five sites, or one per client where clients are protected."""
    drawn = np.random.default_rng(seed).integers(len(labels), size=records)
    clients = records if model.startswith("UserGaussian") else SITES
    held = fc.Records.of_logits(logits[drawn], labels[drawn])
    return fc.Federation.grouped(held, np.arange(records) * clients // records)


def studies(network: str, records: int, model: str, runs: int, *, paired: bool) -> Iterator[Figures]:
    """What single runs state: value, low and high by figure; NaN where nothing is stated."""
    data = population(network)
    method = fc.methods.PairedClassMetrics(AFTER) if paired else fc.methods.ClassMetrics()
    for run in range(runs):
        runtime = fc.InProcess(federation(*data, records, model, run))
        found = fc.run(method, runtime, MODELS[model], randomness=fc.Simulated(run)).artifact
        if paired:
            yield {f"change of {name}": (one.value, one.low, one.high) for name, one in found.change.items()}
        else:
            yield {name: (one.value, one.low, one.high) for name, one in found.estimates().items()}


def summary(found: list[Figures], truths: dict[str, float]) -> Iterator[dict[str, object]]:
    """One row per figure."""
    for name in found[0]:
        value, low, high = np.array([one.get(name, (np.nan, np.nan, np.nan)) for one in found], dtype=float).T
        stated = np.isfinite(value)
        row: dict[str, object] = {
            "metric": name,
            "truth": f"{truths[name]:.5f}",
            "unstated": f"{1 - stated.mean():.3f}",
        }
        if stated.sum() < 2:
            yield row | {"mean": "", "cover": "", "spread": "", "width": ""}
            continue
        value, low, high = value[stated], low[stated], high[stated]
        spread = 3.92 * value.std(ddof=1)
        yield row | {
            "mean": f"{value.mean():.5f}",
            "cover": f"{np.mean((low <= truths[name]) & (truths[name] <= high)):.3f}",
            "spread": f"{spread:.5f}",
            "width": f"{np.median(high - low) / max(spread, 1e-12):.2f}",
        }


def main(runs: int = RUNS, sizes: tuple[int, ...] = SIZES, name: str = "classes.csv") -> None:
    """Go through the cells that the file does not have yet."""
    table = Table(Path(__file__).with_name(name))
    cells = list(product((False, True), sizes, NETWORKS, MODELS))
    for number, (paired, records, network, model) in enumerate(cells):
        key = {"kind": "paired" if paired else "single", "model": model, "network": network, "records": records}
        if table.has(**key):
            continue
        found = list(studies(network, records, model, runs, paired=paired))
        for row in summary(found, truth(*population(network))):
            table.add(key | {"runs": runs} | row)
        print(f"{number + 1} of {len(cells)}: {', '.join(str(part) for part in key.values())}", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    given = (int(words[0]), tuple(int(size) for size in words[1].split(",")), *words[2:]) if len(words) > 1 else ()
    main(*given if given else [int(word) for word in words])
