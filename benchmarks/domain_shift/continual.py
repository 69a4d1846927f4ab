"""What continual release would do to the noise of a watched model: `python -m benchmarks.domain_shift.continual`.

Writes continual.csv beside itself. Each record is in one of `windows` windows, and all releases together cost what one
Gaussian release of standard deviation 1 does. *Apart*: each window is released on its own. *Factorised*: every running
total is released, with noise correlated by the square root of the matrix of running totals, which is the best known
way to release totals. Both are then asked for what watching needs.
"""

from __future__ import annotations

import csv

import numpy as np

from benchmarks.domain_shift.run import HERE
from fedcalib.types import Floats

RESULTS = HERE / "continual.csv"
MEMORY = np.array([8.0, 4.0, 2.0, 1.0]) / 15  # what a served calibrator takes from the latest windows


def root(windows: int) -> Floats:
    """Give the lower-triangular square root of the matrix of running totals, (windows, windows)."""
    factors = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, windows))])
    lags = np.subtract.outer(np.arange(windows), np.arange(windows))
    return np.where(lags >= 0, factors[np.abs(lags)], 0.0)


def factorised(windows: int) -> Floats:
    """Give what independent noise of standard deviation 1 becomes in each window's own figure."""
    square_root = root(windows)
    width = np.linalg.norm(square_root[:, 0])  # a record of the first window is in every later release
    differences = np.eye(windows) - np.eye(windows, k=-1)
    noise: Floats = width * differences @ square_root
    return noise


def wanted(windows: int) -> dict[str, Floats]:
    """Name what watching asks of the windows' figures, as weights, (windows,) each, in the last window."""
    last = np.eye(windows)[-1]
    before = (1 - last) / (windows - 1)
    memory = np.zeros(windows)
    memory[-len(MEMORY) :] = MEMORY[::-1]
    return {
        "a window": last,
        "a window against the mean before it": last - before,
        "what the last four windows teach": memory,
        "the total of all windows": np.ones(windows),
    }


def main() -> None:
    """Compare the noise of both."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["windows", "figure", "apart", "factorised"])
        for windows in (12, 30, 100):
            noise = factorised(windows)
            for name, weights in wanted(windows).items():
                apart, together = np.linalg.norm(weights), np.linalg.norm(weights @ noise)
                writer.writerow([windows, name, f"{apart:.3f}", f"{together:.3f}"])


if __name__ == "__main__":
    main()
