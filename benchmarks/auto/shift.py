"""AccT after shifts: mild ones of a recalibrated network, and strong ones, with 50 sources of 10 records.

The network is recalibrated by the temperature that fits the images as they were, so that mild shifts leave it nearly
calibrated. "Without the rule" is AccT as it was before it was held to the rule against harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from typing import Any, final

import numpy as np

import fedcalib as fc
from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift.data import SEVERITIES, clean, corrupted, corruptions
from benchmarks.domain_shift.pool import Pool, Trials
from fedcalib.estimation.roots import cubic_roots
from fedcalib.search import Interpolation
from fedcalib.types import Floats

TRIALS = 500
MILD = 0.02  # ECE before


@final
@dataclass(frozen=True)
class Unruled(c.Tempering):
    """The whole way to the root of a cubic through five temperatures."""

    search: Interpolation = Interpolation()
    low: float = 0.5
    high: float = 16.0

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Read the crossing off the cubic."""
        places = self.search.within(self.low, self.high)
        gaps, _ = c.noisy_gaps(trials, places, epsilon)
        return np.exp(np.clip(cubic_roots(np.log(np.array(places)), gaps), log(self.low), log(self.high)))


def rows() -> Iterator[dict[str, Any]]:
    """Mean ECE of every corruption and severity, before and after."""
    logits, labels = clean()
    place = fc.InProcess(fc.Federation.iid(fc.Records.of_logits(logits.astype(float), labels), 10, seed=0))
    temperature = fc.run(fc.OneShotTemperature(refinements=2), place, fc.SecAgg()).artifact.temperature
    for severity in SEVERITIES:
        for name in corruptions():
            shifted, labels = corrupted(name, severity)
            pool = Pool(shifted / temperature, labels)
            found = {}
            for key, method in {"before": c.Nothing(), "AccT": c.AccTCurve(), "without": Unruled()}.items():
                trials = Trials(pool, 50, 10, TRIALS, np.random.default_rng(severity))
                found[key] = float(method.measures(trials, 1.0)[0].mean())
            yield {"corruption": name, "severity": severity, "trials": TRIALS, **found}
