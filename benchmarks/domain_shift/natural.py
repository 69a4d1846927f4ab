"""Natural shifts: a model meets other people, other hospitals, later months. Real runs of the package, no simulator.

Run with `python -m benchmarks.domain_shift.natural`; writes natural.csv beside itself. Sources are writers, patients
or airports; half of the target's sources (of flights: the first later month) recalibrate, the rest measures. Means over
several splits, epsilon 1.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import fedcalib as fc
from benchmarks.domain_shift.data import SHARED
from benchmarks.domain_shift.run import HERE
from fedcalib import metrics
from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.types import Array, Ints

SPLITS = 10
NARROW = fc.OnMagnitude(fc.GoldenSection(5))


@final
@dataclass(frozen=True, eq=False)
class Target:
    """Shifted records with their sources, and which of them recalibrate when that is given by time."""

    records: fc.Records
    source: Ints
    first: Array | None = None

    def splits(self) -> Iterator[tuple[fc.Federation, fc.Records]]:
        """Part sources, or months, into those that recalibrate and those that measure."""
        for seed in range(SPLITS):
            names = np.unique(self.source)
            chosen = np.random.default_rng(seed).permutation(names)[: len(names) // 2]
            fits = np.isin(self.source, chosen) if self.first is None else self.first
            held = self.records.take(fits)
            yield fc.Federation.by_site(held, self.source[fits]), self.records.take(~fits)


def writers() -> Target:
    """Digits of 120 students, read by a network that was trained on those of employees."""
    from sklearn.neural_network import MLPClassifier

    with np.load(SHARED / "mnist_writers" / "mnist.npz") as arrays:
        images = np.concatenate([arrays["x_train"], arrays["x_test"]]).reshape(-1, 784)
        labels = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(int)
        series = np.concatenate([arrays["hsf_train"], arrays["hsf_test"]])
        writer = np.concatenate([arrays["writer_train"], arrays["writer_test"]])
    train = np.random.default_rng(0).permutation(np.flatnonzero(series == 0))[:3000]
    model = MLPClassifier((64,), max_iter=30, random_state=0).fit(images[train] / 255, labels[train])
    some = np.random.default_rng(1).permutation(np.unique(writer[series == 4]))[:120]
    students = np.flatnonzero((series == 4) & np.isin(writer, some))
    probs = model.predict_proba(images[students] / 255)
    return Target(fc.Records.of_probs(probs, labels[students]), writer[students])


def hospitals() -> Target:
    """Patients of three hospitals, judged by a model that was trained at a fourth; each patient is a source."""
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pd.read_csv(SHARED / "heart_disease_4sites" / "heart_disease.csv")
    features = [name for name in table.columns if name not in ("num", "label", "site")]
    trained = (table.site.str.lower() == "cleveland").to_numpy()
    filled = table[features].fillna(table[features][trained].median())
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(filled[trained], table.label[trained])
    probs = model.predict_proba(filled[~trained])
    return Target(fc.Records.of_probs(probs, table.label[~trained].to_numpy()), np.arange(len(probs)))


def flights() -> Target:
    """Later flights, scored by a model of the first three months; airports recalibrate with the fourth."""
    from pyarrow import parquet

    table = parquet.read_table(SHARED / "flights_scored" / "flights_scored.parquet")
    keep = np.random.default_rng(0).random(len(table)) < 0.03
    score, label, day = (table[name].to_numpy()[keep] for name in ("score", "label", "day"))
    origin = table["origin"].combine_chunks().indices.to_numpy()[keep]
    return Target(fc.Records.of_scores(score, label), origin, day < 120)


def open_run(method: fc.Method[Any]) -> Callable[[fc.Federation, int], Calibrator]:
    """Recalibrate without any privacy."""
    return lambda federation, seed: fc.run(method, fc.InProcess(federation), fc.Open()).artifact


def private_run(method: fc.Method[Any], privacy: fc.Privacy) -> Callable[[fc.Federation, int], Calibrator]:
    """Recalibrate under a model."""
    return lambda federation, seed: (
        fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
    )


def one_source(federation: fc.Federation, seed: int) -> Calibrator:
    """Recalibrate on the raw records of one source that has any: not private, and usable only by that source."""
    held = np.flatnonzero(federation.sizes > 0)
    alone = federation.client(int(np.random.default_rng(seed).choice(held)))
    return fc.run(fc.NLLT(), fc.InProcess(fc.Federation.of([alone])), fc.Open()).artifact


METHODS: dict[str, Callable[[fc.Federation, int], Calibrator]] = {
    "No recalibration": lambda federation, seed: Identity(),
    "One source": one_source,
    "Pooled, not private": open_run(fc.AccT(fc.Bisection(20))),
    "Acc-T (golden, [0.5, 3]), SourceLaplace": private_run(fc.AccT(NARROW, 0.5, 3.0), fc.SourceLaplace(1.0)),
    "NLL-T (golden, [0.5, 3]), SourceLaplace": private_run(fc.NLLT(), fc.SourceLaplace(1.0)),
    "ECE-T (golden, [0.5, 3]), SourceLaplace": private_run(fc.ECET(), fc.SourceLaplace(1.0)),
    "Ours: AccT, SourceLaplace": private_run(fc.AccT(), fc.SourceLaplace(1.0)),
    "Ours: SourceBinning, SourceLaplace": private_run(fc.SourceBinning(), fc.SourceLaplace(1.0)),
    "Ours: AccT, DistributedDP": private_run(fc.AccT(), fc.DistributedDP(epsilon=1.0)),
    "Ours: SourceBinning, DistributedDP": private_run(fc.SourceBinning(), fc.DistributedDP(epsilon=1.0)),
}
TARGETS: dict[str, Callable[[], Target]] = {
    "mnist_writers: employees to students": writers,
    "heart disease: Cleveland to the others": hospitals,
    "flights: three months to later ones": flights,
}


def main() -> None:
    """Measure every method on every target, but for those that are measured already."""
    path = HERE / "natural.csv"
    held = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    done = {(row["target"], row["method"]) for row in held}
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not held:
            writer.writerow(["target", "method", "sources", "records", "ece", "ece_sd", "nll", "brier"])
        for name, make in TARGETS.items():
            missing = [method for method in METHODS if (name, method) not in done]
            splits = list(make().splits()) if missing else []
            for method in missing:
                rows = np.array([_measures(METHODS[method](*pair), test) for pair, test in _numbered(splits)])
                first = splits[0][0]
                mean = [f"{value:.5f}" for value in rows.mean(axis=0)]
                spread = f"{rows[:, 0].std(ddof=1):.5f}"
                writer.writerow([name, method, len(first), len(first.records), mean[0], spread, *mean[1:]])
                file.flush()
                print(f"{name:42} {method:42} ECE {mean[0]} NLL {mean[1]} Brier {mean[2]}", flush=True)


def _numbered(
    splits: list[tuple[fc.Federation, fc.Records]],
) -> Iterator[tuple[tuple[fc.Federation, int], fc.Records]]:
    for seed, (federation, test) in enumerate(splits):
        yield (federation, seed), test


def _measures(calibrator: Calibrator, test: fc.Records) -> tuple[float, float, float]:
    probs = calibrator.of(test)
    return metrics.ece(probs, test.labels), metrics.nll(probs, test.labels), metrics.brier(probs, test.labels)


if __name__ == "__main__":
    main()
