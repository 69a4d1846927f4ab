"""Scale: a million clients, and a million records, against the plain numpy pass that no framework can beat.

Run with `python -m benchmarks.scale.run`; writes results.csv beside itself. Times are the best of several, in one
process and one thread; only the ratios mean anything.
"""

from __future__ import annotations

import csv
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.queries.reliability import ScoreHistogram
from fedcalib.records import softmax

HERE = Path(__file__).parent
MILLION = 1_000_000


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of several tries."""
    spans = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
    return min(spans)


def million_clients() -> dict[str, object]:
    """One record each, 2^10 cells, distributed noise."""
    rng = np.random.default_rng(0)
    scores, labels = rng.random(MILLION), rng.integers(2, size=MILLION)
    federation = fc.Federation.grouped(fc.Records.of_scores(scores, labels), np.arange(MILLION))
    query = ScoreHistogram(512)  # 2 x 512 = 2^10 cells
    plan = fc.method.Plan((query,))
    everyone = fc.Everyone()
    cohort = everyone.cohort(MILLION)
    mechanism = fc.DistributedDP(epsilon=1.0).mechanism(query, plan, cohort, everyone)

    def plain() -> object:
        cells = np.minimum((scores * 512).astype(np.int64), 511) + 512 * labels
        noise = rng.geometric(0.5, 1024) - rng.geometric(0.5, 1024)
        return np.bincount(cells, minlength=1024) + noise

    def ours() -> object:
        total = mechanism.gather(query, federation, fc.Simulated(0))
        return mechanism.decode(query, total, MILLION, fc.Simulated(0))

    def released() -> object:
        total = mechanism.gather(query, federation, fc.Secure())
        return mechanism.decode(query, total, MILLION, fc.Secure())

    released()  # the first call imports the exact samplers
    base, simulated, secure = best(plain), best(ours), best(released)
    return {
        "case": "1M clients x 1 record, 2^10 cells, DistributedDP",
        "plain numpy, s": round(base, 4),
        "ours, simulated noise, s": round(simulated, 4),
        "ours, exact secure noise, s": round(secure, 4),
        "ratio, simulated": round(simulated / base, 2),
        "ratio, secure": round(secure / base, 2),
        "peak GiB": round(peak(), 2),
    }


def million_records() -> dict[str, object]:
    """FedBin on 1M x 10 logits over 1,000 clients, against a pooled histogram pass."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(MILLION, 10)), rng.integers(10, size=MILLION)
    federation = fc.Federation.iid(fc.Records.of_logits(logits, labels), 1000, seed=0)
    pooled_logits, pooled_labels = federation.records.given, federation.records.labels

    def plain() -> object:
        probs = softmax(pooled_logits)
        cells = np.minimum((probs * 15).astype(np.int64), 14) + 30 * np.arange(10)
        cells[pooled_labels[:, None] != np.arange(10)] += 15
        return np.bincount(cells.reshape(-1), minlength=300)

    def ours() -> object:
        fresh = fc.Federation(fc.Records(pooled_logits, pooled_labels, True), federation.offsets)
        return fc.run(fc.FedBin(), fc.InProcess(fresh), fc.SecAgg(), randomness=fc.Simulated(0)).artifact

    base, mine = best(plain, 3), best(ours, 3)
    return {
        "case": "FedBin, 1M x 10 logits, 1,000 clients, SecAgg",
        "plain numpy, s": round(base, 4),
        "ours, simulated noise, s": round(mine, 4),
        "ratio, simulated": round(mine / base, 2),
        "peak GiB": round(peak(), 2),
    }


def peak() -> float:
    """The most memory that this process ever held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def main() -> None:
    """Measure both cases and write them down."""
    rows = [million_clients(), million_records()]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print("\n".join(f"{key:>30}: {value}" for key, value in row.items()), end="\n\n")


if __name__ == "__main__":
    main()
