"""What one client sends and computes, method by method: the paper's tables of bytes and client seconds.

Run with `python -m benchmarks.maddock.clients`; writes clients.csv beside itself. Times are of the processor, for one
client of 50 records answering alone, as it would on its own machine; the least of several repeats.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from typing import final

import fedcalib as fc
from benchmarks.maddock.data import HALF, halves, networks
from benchmarks.maddock.statistics import HERE
from fedcalib.loop import Runtime, Step, Total

NETWORK, CLIENTS, REPEATS = "resnet20", 100, 5


@final
class Stopwatch(Runtime):
    """All clients in this process, and a clock on the first one."""

    def __init__(self, federation: fc.Federation) -> None:
        self.place = fc.InProcess(federation)
        self.one = federation.subset([0])
        self.seconds = 0.0

    @property
    def schema(self) -> fc.Schema:
        return self.place.schema

    def total(self, step: Step) -> Total:
        began = time.process_time()
        step.mechanism.gather(step.query, self.one, step.randomness)
        self.seconds += time.process_time() - began
        return self.place.total(step)


def contenders() -> Iterator[tuple[str, fc.Method[fc.Calibrator], fc.privacy.Privacy]]:
    """The paper's methods at its settings, then ours."""
    yield "FedBin, 128 bins", fc.FedBin(bins=128), fc.Open()
    yield "FedBBQ", fc.FedBBQ(coarsest=1), fc.Open()
    yield "FedTemp, T = 12", fc.FedTemp(), fc.Open()
    yield "FedVector, T = 12", fc.FedVector(), fc.Open()
    yield "FedMatrix, T = 12", fc.FedMatrix(), fc.Open()
    yield "FedOPVector, T = 12", fc.FedOPVector(), fc.Open()
    yield "FedCal, T = 12", fc.FedCal(), fc.Open()
    yield "OneShotTemperature", fc.OneShotTemperature(), fc.Open()
    yield "BoundedTemperature", fc.BoundedTemperature(), fc.Open()
    yield "RidgeVector", fc.methods.RidgeVector(), fc.Open()
    yield "RidgeOPVector", fc.methods.RidgeOPVector(), fc.Open()
    yield "ResidualBinning", fc.methods.ResidualBinning(), fc.Open()
    yield "ClassShifts", fc.methods.ClassShifts(), fc.Open()
    yield "Auto, exact sums", fc.Auto(), fc.Open()
    private = fc.UserGaussian(1.0, 1e-5)
    yield "Auto, 1000 clients, epsilon 1", fc.Auto(epsilon=10.0), private  # composed as for ten times the clients
    yield "Auto, 100 clients, epsilon 1", fc.Auto(epsilon=1.0), private


def measured(name: str, method: fc.Method[fc.Calibrator], privacy: fc.privacy.Privacy) -> list[str]:
    records = halves(networks("cifar10")[NETWORK], 0)[0]
    federation = fc.Federation.iid(records, CLIENTS, seed=0)
    least = float("inf")
    for repeat in range(REPEATS):
        place = Stopwatch(federation)
        result = fc.run(method, place, privacy, randomness=fc.Simulated(repeat))
        least = min(least, place.seconds)
    asked = len(result.plan.queries)
    return [name, f"{result.bytes_per_client / 1024:.2f}", str(asked), f"{1000 * least:.2f}"]


def main() -> int:
    with (HERE / "clients.csv").open("w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(
            ["method", "KiB per client", "messages", f"milliseconds of a client of {HALF // CLIENTS} records"]
        )
        sheet.writerows(measured(*contender) for contender in contenders())
    return 0


if __name__ == "__main__":
    sys.exit(main())
