"""The paper's figures: what changes with rounds, skew, budget, bins, clip and the parameter exchanged.

Run with `python -m benchmarks.maddock.figures [NETWORK ...]`; writes figures.csv and figures.png beside itself.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.maddock.contenders import DELTA, SAMPLED
from benchmarks.maddock.data import Deal, QuickFedTemp, dealt, halves, networks
from benchmarks.maddock.measure import row
from benchmarks.maddock.pictures import draw
from benchmarks.maddock.statistics import HERE, results
from fedcalib.artifacts.scaling import Temperature

NETWORKS, RUNS = ("resnet20", "wideresnet164", "lenet5"), 5
COLUMNS = ("figure", "x", "method", "network", "run", "cwece", "base", "nll", "accuracy", "base_accuracy")
HUNDRED = Deal()


@dataclass(frozen=True)
class Point:
    """One setting of one method on one figure."""

    figure: str
    x: float
    method: str
    what: fc.Method[fc.Calibrator]
    privacy: fc.privacy.Privacy
    deal: Deal = HUNDRED
    participation: fc.cohort.Participation | None = None


def by_rounds() -> Iterator[Point]:
    for rounds in (1, 4, 12, 30):
        yield Point("rounds", rounds, "FedTemp", QuickFedTemp(rounds=rounds), fc.Open(), participation=SAMPLED)
        binned = fc.FedBBQ(coarsest=1, rounds=rounds)
        yield Point("rounds", rounds, "FedBBQ, repeated", binned, fc.Open(), participation=SAMPLED)
        yield Point("rounds", rounds, "FedVector", fc.FedVector(rounds=rounds), fc.Open(), participation=SAMPLED)
        yield Point("rounds", rounds, "Auto (everybody, once)", fc.Auto(), fc.Open())


def by_skew() -> Iterator[Point]:
    for beta in (0.05, 0.1, 0.5, 1.0, 10.0):
        deal = Deal(beta=beta)
        yield Point("beta", beta, "FedBBQ", fc.FedBBQ(coarsest=1), fc.Open(), deal)
        yield Point("beta", beta, "FedTemp", QuickFedTemp(), fc.Open(), deal, SAMPLED)
        yield Point("beta", beta, "FedVector", fc.FedVector(), fc.Open(), deal, SAMPLED)
        yield Point("beta", beta, "Auto", fc.Auto(), fc.Open(), deal)


def by_budget() -> Iterator[Point]:
    weighted = fc.FedBBQ(coarsest=1, weighting=fc.methods.Weighted())
    for epsilon in (0.25, 0.5, 1.0, 3.0, 10.0):
        for clients in (100, 1000):
            deal, figure = Deal(clients, 50), f"epsilon, {clients} clients"
            model, binned = fc.UserGaussian(epsilon, DELTA), fc.UserGaussian(epsilon, DELTA, clip=5.0)
            yield Point(figure, epsilon, "FedBBQ", fc.FedBBQ(coarsest=1), binned, deal)
            yield Point(figure, epsilon, "FedBBQ weighted", weighted, binned, deal)
            yield Point(figure, epsilon, "FedTemp", QuickFedTemp(), model, deal, SAMPLED)
            yield Point(figure, epsilon, "Auto", fc.Auto(), model, deal)


def by_bins_and_clip() -> Iterator[Point]:
    for finest in range(3, 9):
        method = fc.FedBBQ(finest=finest, coarsest=1)
        yield Point("M", finest, "FedBBQ", method, fc.Open())
        private = replace(method, weighting=fc.methods.Weighted())
        yield Point("M", finest, "FedBBQ weighted, epsilon 3", private, fc.UserGaussian(3.0, DELTA, clip=5.0))
    for clip in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0):
        model = fc.UserGaussian(1.0, DELTA)
        yield Point("clip", clip, "FedTemp, epsilon 1", QuickFedTemp(clip=clip), model, participation=SAMPLED)
        yield Point("clip", clip, "FedTemp, no noise", QuickFedTemp(clip=clip), fc.Open(), participation=SAMPLED)


def points() -> Iterator[Point]:
    yield from by_rounds()
    yield from by_skew()
    yield from by_budget()
    yield from by_bins_and_clip()


@cache
def clients(network: str, deal: Deal, run: int) -> tuple[fc.Federation, fc.Records, float]:
    """Deal the cards once for all points that share them."""
    calibration, test = halves(networks("cifar10")[network], run)
    return dealt(calibration, deal, run), test, row(fc.artifacts.Identity(), test)["cwece"]


def measured(point: Point, network: str, run: int) -> dict[str, object]:
    fit, test, base = clients(network, point.deal, run)
    source = fc.Simulated(crc32(f"{point.figure} {point.x} {network} {run}".encode()))
    place = fc.InProcess(fit, fewest_clients=1)
    result = fc.run(point.what, place, point.privacy, participation=point.participation, randomness=source)
    about = {"figure": point.figure, "x": point.x, "method": point.method, "network": network, "run": run}
    return {**about, "base": base, **row(result.artifact, test)}


def naive(named: list[str]) -> Iterator[dict[str, object]]:
    """Why T is averaged and never 1/T: averages of what skewed clients find alone, and what they find together."""
    for network in named:
        for run in range(RUNS):
            fit, test, base = clients(network, HUNDRED, run)
            own = fit.records.extra["best"][fit.offsets[:-1][fit.sizes > 0]]
            method = fc.OneShotTemperature(reach=30.0, refinements=2)
            pooled = fc.run(method, fc.InProcess(fit), fc.Open()).artifact
            averages = {
                "mean of 1/T": 1 / (1 / own).mean(),
                "mean of ln T": np.exp(np.log(own).mean()),
                "mean of T": own.mean(),
                "together": pooled.temperature,
            }
            for name, value in averages.items():
                about = {"figure": "naive", "x": float(value), "method": name, "network": network, "run": run}
                yield {**about, "base": base, **row(Temperature(float(value)), test)}


def main() -> int:
    """Measure the networks that are named, all unless told, and keep what is known of the others."""
    named = [network for network in NETWORKS if network in sys.argv[1:] or len(sys.argv) == 1]
    path = HERE / "figures.csv"
    known: list[dict[str, object]] = []
    if path.exists():
        known += [{**row} for row in results(path) if row.get("network") in NETWORKS and row["network"] not in named]
    settings = sorted(points(), key=lambda point: (point.deal.clients, point.deal.beta))
    found = [measured(point, network, run) for network in named for run in range(RUNS) for point in settings]
    with path.open("w", newline="") as file:
        sheet = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        sheet.writeheader()
        for line in [*known, *naive(named), *found]:
            sheet.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in line.items()})
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
