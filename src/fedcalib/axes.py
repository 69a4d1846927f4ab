"""Where bins lie: equal steps of the probability, or of its log-odds.

Equal steps of the probability are what is published. Most classes of most records are improbable, though, and all fall
into the lowest of them; equal steps of the log-odds tell one in a hundred from one in a thousand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib import fast
from fedcalib.artifacts.logit_offsets import log_odds, odds_cells
from fedcalib.binning import bin_index, bin_index_unchecked, check_unit_interval
from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints

_AT_ONCE = 1 << 15  # probabilities: what is worked on stays in cache


class Axis(ABC):
    """Numbers the bin of a probability, and says what probability a bin stands for."""

    @abstractmethod
    def cells(self, probs: Floats, bins: int) -> Ints:
        """Number the bin of each probability that has already passed a door, in any shape."""

    @abstractmethod
    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Number the bin of each probability, and refuse what is none."""

    @abstractmethod
    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count the probabilities of each class, (n, classes), by bin, (classes, bins)."""

    @abstractmethod
    def middles(self, bins: int) -> Floats:
        """Give the probability in the middle of each bin, (bins,)."""


@final
@dataclass(frozen=True)
class EvenProbability(Axis):
    """Bins of equal width on [0, 1]; the last holds 1 too."""

    def cells(self, probs: Floats, bins: int) -> Ints:
        """Multiply and cut."""
        return bin_index_unchecked(probs, bins)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Check, multiply and cut."""
        return bin_index(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count in one pass, compiled where asked for."""
        return fast.counted(probs, bins)

    def middles(self, bins: int) -> Floats:
        """Halve each bin."""
        return (np.arange(bins) + 0.5) / bins


@final
@dataclass(frozen=True)
class EvenLogOdds(Axis):
    """Bins of equal width in log-odds on [-reach, reach]; what lies beyond falls into the outer ones."""

    reach: float = 12.0

    def __post_init__(self) -> None:
        if not 0 < self.reach < 1e3:
            raise InputError(f"Expected a reach above 0, found {self.reach}.")

    def cells(self, probs: Floats, bins: int) -> Ints:
        """Take logarithms, stretch and cut."""
        return odds_cells(log_odds(probs), bins, self.reach)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Check, take logarithms, stretch and cut."""
        check_unit_interval(probs, "probabilities")
        return self.cells(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count a few records at a time."""
        classes = probs.shape[1]
        starts = bins * np.arange(classes)
        total = np.zeros(classes * bins, dtype=np.int64)
        for start in range(0, len(probs), step := max(_AT_ONCE // classes, 16)):
            held = self.cells(probs[start : start + step], bins) + starts
            total += np.bincount(held.reshape(-1), minlength=len(total))
        return total.reshape(classes, bins)

    def middles(self, bins: int) -> Floats:
        """Halve each bin of the log-odds."""
        odds = ((np.arange(bins) + 0.5) / bins * 2 - 1) * self.reach
        return 0.5 * (1 + np.tanh(odds / 2))


EVEN: Final = EvenProbability()
