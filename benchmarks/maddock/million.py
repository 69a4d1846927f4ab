"""A million clients of ten records and ten classes, hidden one by one: memory, and time by number of clients.

Run with `python -m benchmarks.maddock.million`; writes million.csv beside itself. Each case runs in a process of its
own, so that its peak memory is its own; times are of the processor, because the machine may be shared.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import fedcalib as fc

SIZES = (100_000, 300_000, 1_000_000)
METHODS: dict[str, tuple[fc.Method[fc.Calibrator], fc.UserGaussian]] = {
    "ResidualBinning": (fc.methods.ResidualBinning(typical_records=10.0), fc.UserGaussian(1.0, 1e-5)),
    "FedBBQ": (fc.FedBBQ(), fc.UserGaussian(1.0, 1e-5, clip=5.0)),
    "Auto": (fc.Auto(typical_records=10.0), fc.UserGaussian(1.0, 1e-5)),
}


def clients(number: int) -> fc.Federation:
    """Over-confident logits, ten records per client."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=10 * number)
    logits = rng.standard_normal((10 * number, 10), dtype=np.float32)
    logits[np.arange(10 * number), labels] += 2
    logits *= 2
    return fc.Federation(fc.Records.of_logits(logits, labels), np.arange(0, 10 * number + 1, 10))


def measure(name: str, number: int) -> str:
    method, privacy = METHODS[name]
    data = clients(number)
    start = time.process_time()
    fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(0))
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"{seconds:.2f},{peak:.2f}"


def main() -> int:
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], int(sys.argv[2])))
        return 0
    with Path(__file__).with_name("million.csv").open("w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["method", "clients", "records", "processor seconds", "peak GiB, data included"])
        for name in METHODS:
            for number in SIZES:
                command = [sys.executable, "-m", "benchmarks.maddock.million", name, str(number)]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
                sheet.writerow([name, number, 10 * number, *said.split(",")])
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
