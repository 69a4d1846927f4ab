"""Audit what a run releases about a whole client: the largest client there can be, against its absence.

Run with `python -m benchmarks.maddock.audit [draws]`; writes audit.csv beside itself. Each method here releases once,
so its one release, under the noise that its plan gives it, is all that anybody ever sees of a client.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.audit.result import Audit

EPSILON, DELTA = 1.0, 1e-5
CLASSES = 3


def clients(extra: fc.Records) -> fc.Federation:
    """Three quiet clients, and one more."""
    rng = np.random.default_rng(0)
    quiet = [fc.Records.of_logits(rng.normal(size=(4, CLASSES)), rng.integers(CLASSES, size=4)) for _ in range(3)]
    return fc.Federation.of([*quiet, extra])


def loudest() -> fc.Records:
    """A client of many records, all alike, all certain and wrong: every clip binds."""
    logits = np.tile(20.0 * np.eye(CLASSES)[0], (100, 1))
    return fc.Records.of_logits(logits, np.full(100, CLASSES - 1))


METHODS: dict[str, tuple[fc.Method[fc.Calibrator], fc.UserGaussian]] = {
    "FedBBQ": (fc.FedBBQ(finest=3), fc.UserGaussian(EPSILON, DELTA, clip=5.0)),
    "FedTemp": (fc.FedTemp(rounds=1), fc.UserGaussian(EPSILON, DELTA)),
    "ResidualBinning": (fc.ResidualBinning(), fc.UserGaussian(EPSILON, DELTA)),
    "OneShotTemperature": (fc.OneShotTemperature(), fc.UserGaussian(EPSILON, DELTA)),
}


def audited(name: str, draws: int, seed: int = 1) -> Audit:
    """Bound a method's epsilon from below by what its release tells apart."""
    method, privacy = METHODS[name]
    present, absent = clients(loudest()), clients(fc.Records.empty(CLASSES))
    plan, everyone = fc.Plan.of(method, present.schema), fc.Everyone()
    cohort = everyone.cohort(len(present))
    (query,) = plan.queries
    mechanism = privacy.mechanism(query, plan, cohort, everyone)
    return audit_mechanism(
        mechanism,
        query,
        present,
        absent,
        cohort=cohort,
        claimed=EPSILON,
        delta=DELTA,
        draws=draws,
        randomness=fc.Simulated(seed),
    )


def main() -> int:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with Path(__file__).with_name("audit.csv").open("w", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["method", "draws", "confidence", "epsilon_at_least", "epsilon_claimed", "delta"])
        for name in METHODS:
            audit = audited(name, draws)
            sheet.writerow([name, draws, audit.confidence, f"{audit.lower_epsilon:.4f}", EPSILON, DELTA])
    return 0


if __name__ == "__main__":
    sys.exit(main())
