"""The figures that a study can be planned for, computed for many simulated tables at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from fedcalib.binning import bin_edges
from fedcalib.errors import InputError
from fedcalib.metrics.absolute_sum import unfolded
from fedcalib.metrics.score_table import CERTAIN, ScoreTable
from fedcalib.metrics.table_bins import gap_weights_of
from fedcalib.metrics.table_rates import one_step_area
from fedcalib.planning.score_model import ScoreModel
from fedcalib.trees import rising
from fedcalib.types import Floats


class Figure(ABC):
    """A figure of a binary classifier."""

    @abstractmethod
    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Read the figure off simulated counts, (runs, 2, cells); `table` knows their noise."""

    def truth(self, model: ScoreModel) -> float:
        """Say what the figure is when everybody is asked and nothing is hidden."""
        return _truth(self, model)


@final
@dataclass(frozen=True)
class Area(Figure):
    """The area under the ROC curve."""

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Count pairs."""
        known = (counts.sum(axis=2) > np.maximum(CERTAIN * table.doubts[:2], 0.0)).all(axis=1)
        found = np.full(len(counts), np.nan)
        found[known] = one_step_area(counts[known], rising(counts[known]))
        return found


@final
@dataclass(frozen=True)
class Rate(Figure):
    """A ratio at a threshold: `part` and `whole` weigh (negatives below, above; positives below, above)."""

    part: tuple[float, float, float, float]
    whole: tuple[float, float, float, float]
    threshold: float = 0.5

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Divide."""
        left, right = table.edges[:-1], table.edges[1:]
        above = np.clip((right - self.threshold) / (right - left), 0.0, 1.0)
        weights = [_by_side(weights, above) for weights in (self.part, self.whole)]
        held = rising(counts)
        likely = table.smoothed(counts) if table.shaken else held
        part, whole = (likely.reshape(len(counts), -1) @ weight.reshape(-1) for weight in weights)
        floor = CERTAIN * float(np.sqrt(max(float(table.variance(weights[1][None])[0]), 0.0)))
        known = held.reshape(len(counts), -1) @ weights[1].reshape(-1) > max(floor, 0.0)
        return np.where(known, np.clip(part / np.where(known, whole, 1.0), 0.0, 1.0), np.nan)


@final
@dataclass(frozen=True)
class CalibrationError(Figure):
    """The expected calibration error in bins of equal width."""

    bins: int = 15

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Add up absolute gaps, cleared of noise."""
        weights = gap_weights_of(table, self.bins)
        gaps = counts.reshape(len(counts), -1) @ weights.reshape(len(weights), -1).T
        noise = table.variance(weights)
        records = counts.sum(axis=(1, 2))
        known = records > max(CERTAIN * float(table.doubts[2]), 0.0)
        cleared = unfolded(gaps, noise).sum(axis=1)
        return np.where(known, np.minimum(cleared / np.where(known, records, 1.0), 1.0), np.nan)


@lru_cache(maxsize=256)
def _truth(wanted: Figure, model: ScoreModel) -> float:
    fine = model.fine
    table = ScoreTable(bin_edges(fine.shape[1]), fine, fine.shape[1], (np.zeros((2, 1)),))
    return float(wanted.values(table, fine[None])[0])


_FIGURES: Final[Mapping[str, Figure]] = {
    "auc": Area(),
    "accuracy": Rate((1, 0, 0, 1), (1, 1, 1, 1)),
    "precision": Rate((0, 0, 0, 1), (0, 1, 0, 1)),
    "recall": Rate((0, 0, 0, 1), (0, 0, 1, 1)),
    "ece": CalibrationError(),
}


def figure(name: str) -> Figure:
    """Find a figure by its name."""
    if name not in _FIGURES:
        raise InputError(f"Expected a metric among {', '.join(_FIGURES)}, found {name!r}.")
    return _FIGURES[name]


def _by_side(weights: tuple[float, float, float, float], above: Floats) -> Floats:
    low, high, positive_low, positive_high = weights
    return np.stack([low * (1 - above) + high * above, positive_low * (1 - above) + positive_high * above])
