"""Natural shifts: a model meets other people, other hospitals, later months. Real runs of the package, no simulator.

Run with `python -m benchmarks.domain_shift.natural`; writes natural.csv beside itself, target by target, and goes on
where it stopped; `--target heart` limits it to one, `--splits` says how many. Sources are writers, patients or
airports; half of the target's sources, drawn anew in each split, recalibrate and the rest measures. Of flights, each
split draws a share of its own: the first later month recalibrates, the others measure. Means over splits, epsilon 1.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import fedcalib as fc
from benchmarks.domain_shift.contenders import middles
from benchmarks.domain_shift.data import SHARED
from benchmarks.domain_shift.pool import BINS
from benchmarks.domain_shift.run import HERE
from fedcalib import metrics
from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.steps import TopLabelSteps
from fedcalib.queries.shift import RightWrong
from fedcalib.types import Array, Ints

SPLITS = 500
EPSILON = 1.0
RESULTS = HERE / "natural.csv"
COLUMNS = ("target", "method", "splits", "sources", "records", "ece", "ece_sd", "nll", "brier")
PUBLISHED = fc.search.OnMagnitude(fc.search.GoldenSection(5))


@final
@dataclass(frozen=True, eq=False)
class Target:
    """Shifted records with their sources; where time parts them, which come first, and what share a split draws."""

    records: fc.Records
    source: Ints
    first: Array | None = None
    share: float = 1.0

    def split(self, seed: int) -> tuple[fc.Federation, fc.Records]:
        """Part sources, or months, into those that recalibrate and those that measure."""
        rng = np.random.default_rng(seed)
        if self.first is None:
            names = np.unique(self.source)
            fits = np.isin(self.source, rng.permutation(names)[: len(names) // 2])
            measures = ~fits
        else:
            drawn = rng.random(len(self.records)) < self.share
            fits, measures = drawn & self.first, drawn & ~self.first
        return fc.Federation.by_site(self.records.take(fits), self.source[fits]), self.records.take(measures)


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
    score, label, day = (table[name].to_numpy() for name in ("score", "label", "day"))
    origin = table["origin"].combine_chunks().indices.to_numpy()
    return Target(fc.Records.of_scores(score, label), origin, day < 120, 0.03)


def open_run(method: fc.Method[Any]) -> Callable[[fc.Federation, int], Calibrator]:
    """Recalibrate without any privacy."""
    return lambda federation, seed: fc.run(method, fc.InProcess(federation), fc.Open()).artifact


def private_run(method: fc.Method[Any], privacy: fc.privacy.Privacy) -> Callable[[fc.Federation, int], Calibrator]:
    """Recalibrate under a model."""
    return lambda federation, seed: (
        fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
    )


def one_source(federation: fc.Federation, seed: int) -> Calibrator:
    """Recalibrate on the raw records of one source that has any: not private, and usable only by that source."""
    held = np.flatnonzero(federation.sizes > 0)
    alone = federation.client(int(np.random.default_rng(seed).choice(held)))
    return fc.run(fc.methods.NLLT(), fc.InProcess(fc.Federation.of([alone])), fc.Open()).artifact


def published_binning(federation: fc.Federation, seed: int) -> Calibrator:
    """Count (right, all) by bin as published, with sensitivity 2; here beside the package, which counts better."""
    rng, sources = np.random.default_rng(seed), len(federation)
    right, wrong = RightWrong(BINS).pooled(federation.records).reshape(2, BINS)
    drawn = rng.negative_binomial(sources, 1 - np.exp(-EPSILON / 2), (2, 2, BINS))
    noise = drawn[0] - drawn[1]
    right, every = right + noise[0], right + wrong + noise[1]
    classes = federation.schema.classes
    share = np.where(every > 0, right / np.where(every > 0, every, 1.0), middles(classes))
    return TopLabelSteps(classes, tuple(np.clip(share, 1 / classes, 1.0).tolist()))


METHODS: dict[str, Callable[[fc.Federation, int], Calibrator]] = {
    "No recalibration": lambda federation, seed: Identity(),
    "One source": one_source,
    "Pooled, not private": open_run(fc.AccT(fc.search.Bisection(14))),
    "Histogram binning": published_binning,
    "ECE-T": private_run(fc.methods.ECET(), fc.SourceLaplace(EPSILON)),
    "NLL-T": private_run(fc.methods.NLLT(), fc.SourceLaplace(EPSILON)),
    "Acc-T": private_run(fc.AccT(PUBLISHED, 0.5, 3.0), fc.SourceLaplace(EPSILON)),
    "Ours: AccT, SourceLaplace": private_run(fc.AccT(), fc.SourceLaplace(EPSILON)),
    "Ours: AccT on [0.5, 3], SourceLaplace": private_run(fc.AccT(high=3.0), fc.SourceLaplace(EPSILON)),
    "Ours: SourceBinning, SourceLaplace": private_run(fc.methods.SourceBinning(), fc.SourceLaplace(EPSILON)),
    "Ours: AccT, DistributedDP": private_run(fc.AccT(), fc.DistributedDP(EPSILON)),
    "Ours: SourceBinning, DistributedDP": private_run(fc.methods.SourceBinning(), fc.DistributedDP(EPSILON)),
}
TARGETS: dict[str, Callable[[], Target]] = {
    "mnist_writers: employees to students": writers,
    "heart disease: Cleveland to the others": hospitals,
    "flights: three months to later ones": flights,
}


def main() -> None:
    """Measure every method on every target that is not measured yet."""
    held = list(csv.DictReader(RESULTS.read_text().splitlines())) if RESULTS.exists() else []
    done = {row["target"] for row in held}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="", help="what a target's name begins with")
    parser.add_argument("--splits", type=int, default=SPLITS)
    told = parser.parse_args()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not held:
            writer.writerow(COLUMNS)
        for name in [name for name in TARGETS if name.startswith(told.target) and name not in done]:
            writer.writerows([name, *row] for row in rows(TARGETS[name](), told.splits))
            file.flush()


def rows(target: Target, splits: int) -> Iterator[list[object]]:
    """Measure every method on the same splits."""
    found: dict[str, list[tuple[float, float, float]]] = {method: [] for method in METHODS}
    for seed in range(splits):
        federation, rest = target.split(seed)
        for method, recalibrated in METHODS.items():
            found[method].append(_measures(recalibrated(federation, seed), rest))
        print(f"\r{seed + 1}/{splits}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for method, measured in found.items():
        table = np.array(measured)  # (splits, 3)
        means, spread = table.mean(axis=0), table[:, 0].std(ddof=1)
        numbers = (f"{value:.5f}" for value in (means[0], spread, *means[1:]))
        yield [method, splits, len(federation), len(federation.records), *numbers]


def _measures(calibrator: Calibrator, test: fc.Records) -> tuple[float, float, float]:
    probs = calibrator.of(test)
    return metrics.ece(probs, test.labels), metrics.nll(probs, test.labels), metrics.brier(probs, test.labels)


if __name__ == "__main__":
    main()
