"""The temperature at which mean confidence equals accuracy, from noisy sums of confidence gaps.

Mean confidence falls with the temperature T from 1 to 1 / classes, for most networks much as 1 / (1 + (T / m)^s) does.
With that shape a few noisy sums determine more than a curve through them: how far confidence falls tells how many
records there are and how sharp the classifier is, and the middle of the curve how often it is right. Privacy noise and
the chance in which answers are right are both part of the likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import erfc, sqrt
from typing import Final, final

import numpy as np

from fedcalib.estimation.roots import PRIOR_LOG_TEMPERATURE
from fedcalib.types import Bools, Floats

PRIOR_DEVIATION: Final = 0.75  # of ln T after a shift, around `PRIOR_LOG_TEMPERATURE`
_MIDDLES: Final = np.geomspace(0.4, 40.0, 18)  # m: temperatures at which half of the confidence is gone
_STEEPNESS: Final = np.array([1.2, 1.5, 1.8, 2.2])  # s
_ROOTS: Final = 101  # candidates for ln T, besides 0
_FEWEST: Final = 1.0  # records
_MAX_SUM: Final = 1e12  # beyond any sum of gaps; keeps products finite whatever the noise


@final
@dataclass(frozen=True, eq=False)
class ConfidenceCurves:
    """Noisy curves of right answers minus summed confidence, one per row, each as `ConfidenceGaps` sends it.

    Roots are between `low` and `high`, in ln T, with 0 among them.
    """

    places: Floats  # (k,): logarithms of increasing temperatures
    cells: Floats  # (rows, k): the middle of each curve, then its half increments
    noise: float  # variance of each cell, above 0
    classes: int
    low: float
    high: float

    @property
    def p_values(self) -> Floats:
        """How often a calibrated classifier would contradict T = 1 as much, shape (rows,).

        From the likelihood ratio of the best temperature, whose double has a chi-square law with one degree of freedom.
        """
        best = self._log_likelihood.max(axis=1)
        at_one = best[:, int(np.flatnonzero(self._roots == 0.0)[0])]
        return np.array([erfc(sqrt(max(gain, 0.0))) for gain in (best.max(axis=1) - at_one).tolist()])

    @property
    def roots(self) -> Floats:
        """Posterior means of ln T, shape (rows,)."""
        largest = self._log_likelihood.max(axis=(1, 2), keepdims=True)
        prior = np.exp(-0.5 * ((self._roots - PRIOR_LOG_TEMPERATURE) / PRIOR_DEVIATION) ** 2)
        weights = np.exp(self._log_likelihood - largest).sum(axis=1) * prior
        means: Floats = weights @ self._roots / weights.sum(axis=1)
        return means

    @property
    def at_end(self) -> Bools:
        """Whether an end of the bracket is the most likely root, shape (rows,)."""
        best = self._log_likelihood.max(axis=1).argmax(axis=1)
        ends: Bools = (best == 0) | (best == len(self._roots) - 1)
        return ends

    @cached_property
    def _roots(self) -> Floats:
        return np.union1d(np.linspace(self.low, self.high, _ROOTS), [0.0])

    def _confidence(self, log_temperatures: Floats) -> Floats:
        """Mean confidence under each shape, shape (shapes, temperatures)."""
        middles, steepness = (part.reshape(-1, 1) for part in np.meshgrid(np.log(_MIDDLES), _STEEPNESS))
        odds = np.clip(steepness * (log_temperatures - middles), -300.0, 300.0)
        confidence: Floats = 1 / self.classes + (1 - 1 / self.classes) / (1 + np.exp(odds))
        return confidence

    @cached_property
    def _log_likelihood(self) -> Floats:
        """Up to a constant of each row, shape (rows, shapes, roots); the number of records is the most likely one."""
        cells = np.clip(np.nan_to_num(self.cells), -_MAX_SUM, _MAX_SUM)
        at_places, at_one = self._confidence(self.places), self._confidence(np.zeros(1))[:, 0]
        falls = -np.diff(at_places, axis=1) / 2  # (shapes, k - 1)
        squares, products = np.square(falls).sum(axis=1), cells[:, 1:] @ falls.T
        records = np.maximum(products / squares, _FEWEST)
        variance = (self.noise + records * at_one * (1 - at_one))[:, :, None]  # of the middle: noise and chance
        middle = self._confidence(self._roots) - (at_places[:, :1] + at_places[:, -1:]) / 2
        first = cells[:, 0, None, None]
        score = np.maximum(middle * first / variance + (products / self.noise)[:, :, None], 0.0)
        information = middle**2 / variance + (squares / self.noise)[:, None]
        likelihood: Floats = (score**2 / information - first**2 / variance - np.log(variance)) / 2
        return likelihood
