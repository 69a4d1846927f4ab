"""Auto of two classes and of ten beside central calibrators and other methods, under every privacy model.

`python -m benchmarks.auto.run` runs what is not in the CSV files yet, so a run that was stopped goes on, and then
writes README.md from them. `--runs 30` is the number of splits per row (no harm: 200 runs), `--part harm` runs one
part alone, and `--minutes 14` stops after the row during which that much time has passed.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.auto import central, monotone, shift
from benchmarks.auto.data import HUNDRED, NETWORKS, SETS, dealt, network, real, synthetic
from fedcalib import metrics
from fedcalib.types import Floats, Ints

HERE = Path(__file__).parent
FIT = 30_000  # records of a tabular set to fit, and as many to test
LEAST_CHANGE = 1.01e-4  # of a probability; under noise Auto reads claims beyond 1e-4 as 1e-4
Row = dict[str, Any]


def kept(name: str, key: tuple[str, ...], rows: Callable[[], Iterator[Row]], runs: int = 0) -> None:
    """Write rows to a file unless it has some with this key, of at least as many runs."""
    path = HERE / name
    old = list(csv.DictReader(path.open())) if path.exists() else []
    same = [row for row in old if tuple(row[part] for part in list(row)[: len(key)]) == key]
    if same and int(same[0].get("runs", runs)) >= runs:
        return
    every = [row for row in old if row not in same] + list(rows())
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(every[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)


def loss(score: Floats, label: Ints) -> float:
    return metrics.nll(np.stack([1 - score, score], axis=1), label)


def user(epsilon: float, clip: float | None = None) -> fc.privacy.Privacy:
    return fc.UserGaussian(epsilon, 1e-5, clip)


# name: privacy model, the same for methods that need a clip for whole clients, number of clients (0: natural sites)
MODELS: dict[str, tuple[fc.privacy.Privacy, fc.privacy.Privacy, int]] = {
    "exact": (fc.SecAgg(), fc.SecAgg(), 0),
    **{f"distributed {e}": (fc.DistributedDP(e), fc.DistributedDP(e), 0) for e in (0.3, 1.0, 3.0)},
    **{f"local {e}": (fc.LocalDP(e), fc.LocalDP(e), 0) for e in (5.0, 1.0)},
    **{f"user 1.0, {n} clients": (user(1.0), user(1.0, 10.0), n) for n in (100, 1000)},
}


def two_classes(name: str, model: str, runs: int) -> Iterator[Row]:
    """Log loss of every method of the package and, for exact sums, of central ones.

    The error is the standard error of the mean difference from Auto, split by split.
    """
    privacy, clipped, clients = MODELS[model]
    found: dict[str, list[float]] = {}
    for seed in range(runs):
        federation, test = real(name).halves(1000 + seed, FIT)
        federation = dealt(federation, clients, seed) if clients else federation
        size = len(federation.records) / len(federation)
        methods: dict[str, fc.Method[Any]] = {
            "Auto": fc.Auto(typical_records=size),
            "PlattScaling": fc.PlattScaling(),
            "BetaScaling": fc.methods.BetaScaling(),
            "IsotonicBuckets": fc.IsotonicBuckets(),
            "BinaryBBQ": fc.BinaryBBQ(),
        }
        if clients:
            methods["BoundedTemperature"] = fc.BoundedTemperature()
        found.setdefault("none", []).append(loss(test.score, test.labels))
        for method, one in methods.items():
            own = privacy if method in {"Auto", "BoundedTemperature"} else clipped
            result = fc.run(one, fc.InProcess(federation), own, randomness=fc.Simulated(seed)).artifact
            found.setdefault(method, []).append(loss(result(test.score), test.labels))
        if model == "exact":
            for peer, fit in central.BINARY.items():
                score = fit(federation.records.score, federation.records.labels)(test.score)
                found.setdefault(peer, []).append(loss(score, test.labels))
    for method, losses in found.items():
        beside = np.std(np.subtract(found["Auto"], losses)) / max(runs - 1, 1) ** 0.5
        yield {"set": name, "model": model, "method": method, "runs": runs, "nll": np.mean(losses), "error": beside}


def many_classes(name: str, split: int, peers: tuple[str, ...] = tuple(central.MULTICLASS)) -> Iterator[Row]:
    """Errors of one split with exact sums of a hundred skewed clients, and of central peers on the pooled records."""
    records = network(name)
    fit, test = np.array_split(np.random.default_rng(1000 + split).permutation(len(records)), 2)
    mine, held = records.take(fit), records.take(test)
    place = fc.InProcess(fc.Federation.dirichlet(mine, 100, 0.3, seed=split))
    applied = {"none": lambda x: x.probs}
    for method, one in {"Auto": fc.Auto(), "Auto, guard=False": fc.Auto(guard=False)}.items():
        applied[method] = fc.run(one, place, fc.SecAgg()).artifact.of
    applied |= {peer: central.MULTICLASS[peer](mine) for peer in peers}
    for method, apply in applied.items():
        probs = np.asarray(apply(held))
        nll, cwece, ece = (metric(probs, held.labels) for metric in (metrics.nll, metrics.classwise_ece, metrics.ece))
        yield {"network": name, "split": str(split), "method": method, "nll": nll, "cwece": cwece, "ece": ece}


HARMLESS = ("flights", "adult-trees", "heart-logistic", "census-trees", "nycflights-logistic", "synthetic",
            "resnet56", "lenet5", "wideresnet164", "vgg16")  # fmt: skip
HARM_MODELS: dict[str, Callable[[float], fc.privacy.Privacy]] = {
    "distributed": fc.DistributedDP,
    "local": fc.LocalDP,
    "laplace": fc.SourceLaplace,
    "user": user,
}
EXACT: dict[str, Callable[[float], fc.privacy.Privacy]] = {"exact": lambda _: fc.SecAgg()}


def calibrated(name: str, seed: int) -> fc.Records:
    """A classifier's records with labels that are drawn from its own probabilities."""
    if name in NETWORKS:
        probs = np.asarray(network(name).probs)
    else:
        scored = synthetic("calibrated", 10_000, 0) if name == "synthetic" else real(name)
        score = scored.score[:10_000]
        probs = np.stack([1 - score, score], axis=1)
    rng = np.random.default_rng(seed)
    labels = (probs.cumsum(axis=1) < rng.random((len(probs), 1))).sum(axis=1).clip(0, probs.shape[1] - 1)
    return fc.Records.of_probs(probs, labels)


def harm(name: str, model: str, epsilon: float, runs: int) -> Iterator[Row]:
    """How much worse a calibrated classifier becomes: the error after over the error before, on other records."""
    ratios, changed = [], 0
    for seed in range(runs):
        records = calibrated(name, seed)
        fit, test = np.array_split(np.random.default_rng(seed).permutation(len(records)), 2)
        held, privacy = records.take(test), (HARM_MODELS | EXACT)[model](epsilon)
        place = fc.InProcess(fc.Federation.iid(records.take(fit), 100, seed=seed))
        found = fc.run(fc.Auto(), place, privacy, randomness=fc.Simulated(seed)).artifact
        error = metrics.classwise_ece if held.classes > 2 else lambda p, y: metrics.binary_ece(p[:, 1], y)
        before, after = np.asarray(held.probs), np.asarray(found.of(held))
        ratios.append(error(after, held.labels) / error(before, held.labels))
        changed += bool(np.abs(after - before).max() > LEAST_CHANGE)
    worse = np.array(ratios)
    yield {
        "classifier": name, "model": model, "epsilon": str(epsilon), "runs": runs, "mean": worse.mean(),
        "above 2%": (worse > 1.02).mean(), "worst": worse.max(), "changed": changed / runs,
    }  # fmt: skip


def speed() -> Iterator[Row]:
    """Processor seconds of one thread, best of three, in one run."""
    for task, mine, peer, runs in central.speed_tasks():
        taken = {"Auto": min(_seconds(mine) for _ in range(runs)), "peer": min(_seconds(peer) for _ in range(runs))}
        yield {"task": task, **taken, "ratio": taken["Auto"] / taken["peer"]}


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def jobs(runs: int) -> Iterator[tuple[str, str, tuple[str, ...], Callable[[], Iterator[Row]], int]]:
    """What there is to run: its part, its file, its key, its rows and how many runs each is a mean of."""
    yield "speed", "speed.csv", (), speed, 0
    for name in (*NETWORKS, *HUNDRED):
        peers = tuple(central.MULTICLASS) if name in NETWORKS else central.FOR_HUNDRED
        for split in range(runs if name in NETWORKS else min(runs, 5)):
            run, part = partial(many_classes, name, split, peers), "ten" if name in NETWORKS else "hundred"
            yield part, f"{part}_classes.csv", (name, str(split)), run, 0
    for model in MODELS:
        for name in SETS:
            yield "two", "two_classes.csv", (name, model), partial(two_classes, name, model, runs), runs
    every = [(model, epsilon) for model in HARM_MODELS for epsilon in (0.3, 1.0, 3.0)] + [("exact", 0.0)]
    times = max(200 * runs // 30, 1)
    for name in HARMLESS:
        for model, epsilon in every:
            yield "harm", "harm.csv", (name, model, str(epsilon)), partial(harm, name, model, epsilon, times), times
    for name in monotone.SETS:
        for model in monotone.MODELS:
            times = max(100 * runs // 30, 2)
            yield "monotone", "monotone.csv", (name, model), partial(monotone.rows, name, model, times), times
    yield "shift", "shift.csv", (), shift.rows, 0


def main() -> None:
    from benchmarks.auto import tables

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--part", action="append")
    parser.add_argument("--minutes", type=float, default=1e9)
    told = parser.parse_args()
    started = time.monotonic()
    for part, file, key, rows, runs in jobs(told.runs):
        if told.part and part not in told.part:
            continue
        kept(file, key, rows, runs)
        if time.monotonic() - started > 60 * told.minutes:
            break
    else:
        print("All that was asked for is there.")
    tables.write()


if __name__ == "__main__":
    main()
