"""Audits at full size: a million releases a mechanism, a hundred thousand with exact noise, and 20,000 whole runs.

Run with `python -m benchmarks.audit.run PART`, where PART is `mechanisms`, `secure`, `record_runs` or
`client_runs`; each writes a CSV file of its name beside this one. A bound holds with the confidence 1 - 1e-6.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.audit import Audit, worst_cases
from fedcalib.types import Array

HERE = Path(__file__).parent
MILLION = 1_000_000
SLOWER = 100_000  # draws of exact noise, which takes longer
RUNS = 20_000
SURE = 1 - 1e-6
COLUMNS = ("audited", "noise", "randomness", "claimed", "delta", "at_least", "share", "stands", "draws", "cpu_seconds")
Row = tuple[object, ...]


def models(epsilon: float) -> list[fc.privacy.Privacy]:
    """Every model that claims an epsilon."""
    return [
        fc.DistributedDP(epsilon),
        fc.DistributedDP(epsilon, 1e-5),
        fc.LocalDP(epsilon),
        fc.SourceLaplace(epsilon),
        fc.UserGaussian(epsilon, 1e-5),
    ]


def mechanisms() -> Iterator[Row]:
    """A million seeded releases of every model, and of its twin with half the noise."""
    for epsilon in (0.5, 1.0, 3.0):
        for model in models(epsilon):
            for twin in (False, True):
                yield from timed(
                    "half" if twin else "all",
                    "seeded",
                    lambda model=model, twin=twin: fc.audit.audit_model(
                        model, draws=MILLION, confidence=SURE, randomness=fc.Simulated(1), twin=twin
                    ),
                )


def secure() -> Iterator[Row]:
    """Fewer draws of the noise of real releases; shares of noise are drawn client by client where a model has them."""
    single = [case for case in worst_cases() if case.name == "real"]
    for model in models(1.0):
        for twin in (False, True):
            yield from timed(
                "half" if twin else "all",
                "secure",
                lambda model=model, twin=twin: fc.audit.audit_model(
                    model, cases=single, draws=SLOWER, confidence=SURE, randomness=fc.Secure(), twin=twin
                ),
            )
    for model in models(1.0)[:2]:
        yield from timed(
            "all",
            "secure, share by share",
            lambda model=model: fc.audit.audit_model(
                model, cases=single, draws=SLOWER, confidence=SURE, randomness=fc.Secure(), faithful=True
            ),
        )


def crowd(unit: fc.Records) -> fc.Federation:
    """Four clients of ten records, and the unit at a fifth."""
    rng = np.random.default_rng(0)
    others = fc.Federation.iid(fc.Records.of_logits(rng.normal(size=(40, 3)), rng.integers(3, size=40)), 4, seed=0)
    return fc.Federation.of([*others.clients(), unit])


def wrong(records: int) -> fc.Records:
    """Records that are as sure as can be, and wrong."""
    logits: Array = np.tile([0.0, 50.0, 0.0], (records, 1))
    return fc.Records.of_logits(logits, np.zeros(records, dtype=np.int64))


def record_runs() -> Iterator[Row]:
    """Whole runs with the worst record and without it."""
    yield from runs(fc.DistributedDP(1.0), wrong(1))


def client_runs() -> Iterator[Row]:
    """Whole runs with the worst client, of fifty such records, and without it."""
    yield from runs(fc.UserGaussian(1.0, 1e-5, clip=4.0), wrong(50))


def runs(model: fc.privacy.Privacy, unit: fc.Records) -> Iterator[Row]:
    """Audit two methods, from the first question to the last."""
    sides = crowd(unit), crowd(fc.Records.empty(3))
    for method in (fc.FedBin(), fc.OneShotTemperature()):
        yield from timed(
            "all",
            "seeded",
            lambda method=method: [
                fc.audit.audit_run(method, *sides, model, runs=RUNS, confidence=SURE, randomness=fc.Simulated(2))
            ],
        )


def timed(noise: str, randomness: str, audit: Callable[[], list[Audit]]) -> Iterator[Row]:
    """Audit, and write down what came out and how long it took."""
    begun = time.process_time()
    audits = audit()
    seconds = round((time.process_time() - begun) / len(audits), 1)
    for one in audits:
        bound, share = round(one.lower_epsilon, 4), round(one.power, 3)
        subject = one.subject.removesuffix(", half the noise")
        yield subject, noise, randomness, one.claimed, one.delta, bound, share, one.passes, one.draws, seconds


def write(name: str, rows: Iterable[Row]) -> None:
    """Write rows as they come, so that a long run can be watched."""
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(row)
            file.flush()
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    parts = {"mechanisms": mechanisms, "secure": secure, "record_runs": record_runs, "client_runs": client_runs}
    for part in sys.argv[1:] or parts:
        write(part, parts[part]())
