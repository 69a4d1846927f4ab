"""Evidence about Gaussian releases to secret Poisson samples: how little noise would explain what was told apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, final

import numpy as np

from fedcalib.audit.evidence import Evidence
from fedcalib.types import Floats, Ints

_GRID = 1e-3  # of privacy losses; dp-accounting rounds them up, so that power is never understated
_LOSSES = np.linspace(0.0, 8.0, 400)
_MULTIPLIERS = 0.4 * 1.02 ** np.arange(240)  # from next to no privacy to more than anybody claims


@final
@dataclass(frozen=True)
class SampledShift(Evidence):
    """Read both error rates as those of so many Gaussian releases, each to a secret Poisson sample at `rate`.

    For each multiplier, privacy loss distributions say how much more likely than by chance an event can be with the
    unit there. The largest multiplier that allows what was seen gives epsilon. It rests on the noise being Gaussian and
    the samples Poisson, as `Gaussian` does for releases to everybody, and is far tighter than any single event.
    """

    delta: float
    rate: float
    steps: int

    @property
    def name(self) -> str:
        """Say what is looked at."""
        return "sampled Gaussian shift"

    def strength(self, low: Floats, high: Floats) -> Floats:
        """Give the inverse of the least multiplier that cannot explain the event; 0 where all can."""
        first, last = np.zeros(np.shape(low), dtype=np.int64), np.full(np.shape(low), len(_MULTIPLIERS))
        while (first < last).any():
            middle = (first + last) // 2
            explained = low <= self._most_likely(np.minimum(middle, len(_MULTIPLIERS) - 1), high)
            first, last = np.where(explained, middle + 1, first), np.where(explained, last, middle)
            first = np.minimum(first, last)
        return np.append(1 / _MULTIPLIERS, 0.0)[first]

    def _most_likely(self, which: Ints, high: Floats) -> Floats:
        """Bound the probability of events with the unit there by their probability without it, both ways round."""
        bound = np.ones(np.shape(high))
        for index in np.unique(which):
            rows = which == index
            excess, grown = _excess(self.rate, self.steps, int(index)), np.exp(_LOSSES)
            forward = (np.multiply.outer(high[rows], grown) + excess).min(axis=-1)
            backward = 1 - (np.subtract.outer(1 - high[rows], excess) / grown).max(axis=-1)
            bound[rows] = np.minimum(forward, backward)
        return bound

    def epsilon(self, strength: float) -> float:
        """Say what so much noise costs."""
        if not 0 < strength < inf:
            return 0.0
        return float(_composed(1 / strength, self.rate, self.steps).get_epsilon_for_delta(self.delta))


@cache
def _excess(rate: float, steps: int, index: int) -> Floats:
    """Give the delta at each loss."""
    return np.asarray(_composed(float(_MULTIPLIERS[index]), rate, steps).get_delta_for_epsilon(_LOSSES))


def _composed(multiplier: float, rate: float, steps: int) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=_GRID
    )
    return once.self_compose(steps)
