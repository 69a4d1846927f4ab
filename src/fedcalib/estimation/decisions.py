"""Decisions at thresholds of the score, from a table of counts: rates, net benefit and Youden's index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from fedcalib.estimation.estimates import Estimate, Ratios
from fedcalib.estimation.score_functionals import mean
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import NEGATIVE, POSITIVE
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class Decisions:
    """Everything that is known of decisions at thresholds, from weights of the counts; arrays are (k, 2, cells)."""

    sheet: ScoreSheet
    thresholds: Floats  # (k,)

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        return self.sheet.above(self.thresholds)

    def _only(self, label: int, weights: Floats) -> Floats:
        both = np.zeros((len(weights), 2, weights.shape[-1]))
        both[:, label] = weights
        return both

    def _both(self, weights: Floats) -> Floats:
        return np.stack([weights, weights], axis=1)

    def sensitivity(self) -> Ratios:
        above, unsure = self._above
        every = self._only(POSITIVE, np.ones_like(above[:1]))
        return self.sheet.ratios(self._only(POSITIVE, above), every, self._only(POSITIVE, unsure))

    def specificity(self) -> Ratios:
        above, unsure = self._above
        every = self._only(NEGATIVE, np.ones_like(above[:1]))
        return self.sheet.ratios(self._only(NEGATIVE, 1 - above), every, self._only(NEGATIVE, unsure))

    def ppv(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._only(POSITIVE, above), self._both(above), self._both(unsure))

    def npv(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._only(NEGATIVE, 1 - above), self._both(1 - above), self._both(unsure))

    def accuracy(self) -> Ratios:
        above, unsure = self._above
        right = np.stack([1 - above, above], axis=1)
        return self.sheet.ratios(right, np.ones_like(right[:1]), self._both(unsure))

    def alert_rate(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._both(above), self._both(np.ones_like(above[:1])), self._both(unsure))

    def f1(self) -> Ratios:
        above, unsure = self._above
        whole = np.stack([above, above + 1], axis=1)
        return self.sheet.ratios(self._only(POSITIVE, 2 * above), whole, self._both(2 * unsure))

    def net_benefit(self, index: int) -> Estimate:
        """True positives less weighted false positives, per record."""
        above, unsure = (part[index] for part in self._above)
        at = float(self.thresholds[index])
        odds = at / (1 - at) if at < 1 else 0.0
        found = self.sheet.estimate(mean(self.sheet, np.stack([-odds * above, above])))
        bound = float((self.sheet.counts * np.stack([odds * unsure, unsure])).sum()) / self.sheet.records
        return Estimate(found.value, found.sampling, found.noise, bound)

    def treat_all(self, index: int) -> Estimate:
        """The net benefit of calling everybody positive."""
        at = float(self.thresholds[index])
        odds = at / (1 - at) if at < 1 else 0.0
        weights = np.stack([np.full(self.sheet.table.cells, -odds), np.ones(self.sheet.table.cells)])
        return self.sheet.estimate(mean(self.sheet, weights))

    def youden(self, index: int) -> Estimate:
        """Sensitivity plus specificity less one."""
        parts = [self.sensitivity(), self.specificity()]
        values = [float(np.clip(part.value[index], 0.0, 1.0)) for part in parts]
        records = [float(part.records[index]) for part in parts]
        shrunken = [(v * n + 2) / (n + 4) for v, n in zip(values, records, strict=True)]
        sampling = sum(v * (1 - v) / n for v, n in zip(shrunken, records, strict=True))
        noise, bound = (float(sum(getattr(part, name)[index] for part in parts)) for name in ("noise", "reading"))
        return Estimate(float(parts[0].value[index] + parts[1].value[index]) - 1, sampling, noise, bound)
