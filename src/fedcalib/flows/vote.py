"""Where a crowd's noisy vote turns from no to yes, by the shape that such votes have.

Voters who each say something between -1 and 1, and change their minds around a place of their own, add up to a curve
that climbs from one plateau to another. Knowing that much, a few noisy sums tell more than a free curve through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.types import Floats

_TURNS: Final = 101  # places at which the vote may turn, over the whole range
_WIDTHS: Final = np.geomspace(0.1, 1.0, 10)  # in which it does
_ABOVE: Final = np.array([0.4, 0.6, 0.8, 1.0])  # plateaus, as shares of the voters: some have nothing to say
_BELOW: Final = np.array([0.8, 1.0])
_SPARE: Final = 4  # numbers that describe a shape
_SURPRISE: Final = 5.0  # standard deviations of what is left over: a shape that noise does not excuse is not believed


@final
@dataclass(frozen=True, eq=False)
class Vote:
    """Sums of so many voters' verdicts at a few rising places, with noise of one variance."""

    places: Floats
    sums: Floats
    noise: float
    voters: int

    @property
    def fits(self) -> bool:
        """Say whether noise explains what the best shape leaves over."""
        spare = max(len(self.places) - _SPARE, 1)
        return self.noise > 0 and -2 * self._best <= spare + _SURPRISE * sqrt(2 * spare)

    def stands_out(self, place: float, doubt: float) -> bool:
        """Say whether the vote turns elsewhere, beyond so many standard deviations."""
        there = self._likelihoods(np.array([place])).max()
        return bool(2 * (self._best - there) >= doubt**2)

    def turn(self, usual: float, spread: float) -> float:
        """Give the mean of where the vote turns, given where votes usually do."""
        weights = np.exp(self._everywhere - self._best).sum(axis=1)
        weights *= np.exp(-0.5 * ((self._turns - usual) / spread) ** 2)
        return float(weights @ self._turns / weights.sum())

    @cached_property
    def _turns(self) -> Floats:
        return np.linspace(self.places[0], self.places[-1], _TURNS)

    @cached_property
    def _everywhere(self) -> Floats:
        return self._likelihoods(self._turns)

    @property
    def _best(self) -> float:
        return float(self._everywhere.max())

    def _likelihoods(self, turns: Floats) -> Floats:
        """Give log-likelihoods, (turns, shapes), up to a constant."""
        far = (self.places - turns[:, None])[:, None, :] / _WIDTHS[:, None]  # (turns, widths, places)
        above, below = np.maximum(far, 0.0), np.minimum(far, 0.0)
        high = _ABOVE[:, None] * np.tanh(above[:, :, None] / _ABOVE[:, None])  # (turns, widths, plateaus, places)
        low = _BELOW[:, None] * np.tanh(below[:, :, None] / _BELOW[:, None])
        expected = self.voters * (high[:, :, :, None] + low[:, :, None, :])
        with np.errstate(over="ignore"):  # sums beyond all reason fit no shape, and are told so
            left = np.square(self.sums - expected).sum(axis=-1)
            likely: Floats = -0.5 * left.reshape(len(turns), -1) / max(self.noise, 1e-300)
        return likely
