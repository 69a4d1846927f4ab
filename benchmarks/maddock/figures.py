"""The paper's figures on one network: what changes with rounds, skew, budget, bins, clip and the parameter exchanged.

Run with `python -m benchmarks.maddock.figures`; writes figures.csv and figures.png beside itself.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.maddock.contenders import DELTA, SAMPLED
from benchmarks.maddock.data import Deal, QuickFedTemp, dealt, halves, networks
from benchmarks.maddock.measure import row

HERE = Path(__file__).parent
NETWORK, RUNS = "resnet20", 2
COLUMNS = ("figure", "x", "method", "run", "cwece", "nll", "accuracy", "base_accuracy")


@dataclass(frozen=True)
class Point:
    """One setting of one method on one figure."""

    figure: str
    x: float
    method: str
    what: fc.Method[fc.Calibrator]
    privacy: fc.Privacy
    deal: Deal = Deal()  # noqa: RUF009 - a frozen value
    participation: fc.Participation | None = None


def points() -> Iterator[Point]:
    weighted = fc.FedBBQ(coarsest=1, weighting=fc.Weighted())
    user = fc.UserGaussian
    for rounds in (1, 4, 12, 30):
        yield Point("rounds", rounds, "FedTemp", QuickFedTemp(rounds=rounds), fc.Open(), participation=SAMPLED)
        binned = fc.FedBBQ(coarsest=1, rounds=rounds)
        yield Point("rounds", rounds, "FedBBQ, repeated", binned, fc.Open(), participation=SAMPLED)
        yield Point("rounds", rounds, "Auto (one pass)", fc.Auto(), fc.Open())
    for beta in (0.05, 0.1, 0.5, 1.0, 10.0):
        deal = Deal(beta=beta)
        for name, method in (
            ("FedBBQ", fc.FedBBQ(coarsest=1)),
            ("FedTemp", QuickFedTemp(rounds=4)),
            ("Auto", fc.Auto()),
        ):
            yield Point("beta", beta, name, method, fc.Open(), deal)
    for epsilon in (0.25, 0.5, 1.0, 3.0, 10.0):
        for clients in (100, 1000):
            deal = Deal(clients, 50)
            more = f", {clients} clients"
            auto = fc.Auto(epsilon=epsilon)
            yield Point("epsilon", epsilon, "Auto" + more, auto, user(epsilon, DELTA), deal)
            yield Point("epsilon", epsilon, "FedTemp" + more, QuickFedTemp(), user(epsilon, DELTA), deal, SAMPLED)
            yield Point("epsilon", epsilon, "FedBBQ weighted" + more, weighted, user(epsilon, DELTA, clip=5.0), deal)
    for finest in range(3, 9):
        method = fc.FedBBQ(finest=finest, coarsest=1)
        yield Point("M", finest, "FedBBQ", method, fc.Open())
        private = replace(method, weighting=fc.Weighted())
        yield Point("M", finest, "FedBBQ weighted, epsilon 3", private, user(3.0, DELTA, clip=5.0))
    for clip in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0):
        yield Point(
            "clip", clip, "FedTemp, epsilon 1", QuickFedTemp(clip=clip), user(1.0, DELTA), participation=SAMPLED
        )
        yield Point("clip", clip, "FedTemp, no noise", QuickFedTemp(clip=clip), fc.Open(), participation=SAMPLED)


def measured(point: Point, run: int) -> dict[str, object]:
    calibration, test = halves(networks("cifar10")[NETWORK], run)
    place = fc.InProcess(dealt(calibration, point.deal, run), fewest_clients=1)
    source = fc.Simulated(crc32(f"{point.figure} {point.x} {run}".encode()))
    result = fc.run(point.what, place, point.privacy, participation=point.participation, randomness=source)
    return {"figure": point.figure, "x": point.x, "method": point.method, "run": run, **row(result.artifact, test)}


def naive() -> Iterator[dict[str, object]]:
    """Why T is averaged and never 1/T: the average of what skewed clients find alone."""
    for run in range(RUNS):
        calibration, test = halves(networks("cifar10")[NETWORK], run)
        clients = dealt(calibration, Deal(), run)
        own = clients.records.extra["best"][clients.offsets[:-1][clients.sizes > 0]]
        averages = {
            "mean of T": own.mean(),
            "mean of 1/T": 1 / (1 / own).mean(),
            "mean of ln T": np.exp(np.log(own).mean()),
        }
        for name, value in averages.items():
            found = _temperature(float(value))
            yield {"figure": "naive", "x": float(value), "method": name, "run": run, **row(found, test)}


def _temperature(value: float) -> fc.Calibrator:
    from fedcalib.artifacts.scaling import Temperature

    return Temperature(value)


def draw(rows: list[dict[str, object]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = ["rounds", "beta", "epsilon", "M", "clip"]
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.4), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for line in rows:
            if line["figure"] == name:
                lines[str(line["method"])][float(str(line["x"]))].append(float(str(line["cwece"])))
        for method, found in lines.items():
            axis.plot(list(found), [np.mean(values) for values in found.values()], marker="o", ms=3, label=method)
        axis.set(xlabel=name, ylabel="cwECE, %", xscale="linear" if name == "M" else "log", yscale="log")
        axis.legend(fontsize=6)
    figure.savefig(HERE / "figures.png", dpi=110)


def main() -> int:
    rows = [*naive(), *(measured(point, run) for point in points() for run in range(RUNS))]
    with (HERE / "figures.csv").open("w", newline="") as file:
        sheet = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        sheet.writeheader()
        for line in rows:
            sheet.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in line.items()})
    draw(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
