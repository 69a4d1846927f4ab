"""Planning a study before anybody is asked: how many clients, how much noise, how fine a table.

Which tree of scores suits a privacy model.

The figures that a study can be planned for, computed for many simulated tables at once.

A study to be planned: predict its error, or find the clients or the epsilon that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import debiased_absolute
from fedcalib.estimation.score_rates import gap_weights_of, one_step_area
from fedcalib.estimation.score_table import DETECTION_Z, ScoreTable
from fedcalib.estimation.trees import nonnegative_leaves
from fedcalib.metrics.binning import bin_edges
from fedcalib.metrics.table import ACCURACY, AUC, ECE, PRECISION, RECALL, shown_in
from fedcalib.numeric import bisected
from fedcalib.planning.simulation import ScoreModel as ScoreModel
from fedcalib.planning.simulation import simulated_tables
from fedcalib.privacy import Privacy
from fedcalib.privacy.distributed import DistributedDP
from fedcalib.privacy.local import LocalDP
from fedcalib.privacy.secagg import SecAgg
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.types import Floats

_LOCAL: Final = ScoreTree(arity=2, height=8)


def suited_tree(privacy: Privacy) -> ScoreTree:
    """Give the tree to ask for under a model.

    Local reports are dealt out to levels, and a report about few cells is nearly exact: two children a cell and about
    epsilon^(2/3) M^(1/3) leaves do best, which is 2^8 for a million records at epsilon 5. Otherwise four children a
    cell and 4^5 leaves.
    """
    return _LOCAL if isinstance(privacy, LocalDP) else TREE


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
        known = (counts.sum(axis=2) > np.maximum(DETECTION_Z * table.total_deviations[:2], 0.0)).all(axis=1)
        found = np.full(len(counts), np.nan)
        found[known] = one_step_area(counts[known], nonnegative_leaves(counts[known]))
        return found


@final
@dataclass(frozen=True)
class ThresholdRate(Figure):
    """A ratio at a threshold: `part` and `whole` weigh (negatives below, above; positives below, above)."""

    part: tuple[float, float, float, float]
    whole: tuple[float, float, float, float]
    threshold: float = 0.5

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Divide."""
        left, right = table.edges[:-1], table.edges[1:]
        above = np.clip((right - self.threshold) / (right - left), 0.0, 1.0)
        weights = [_by_side(weights, above) for weights in (self.part, self.whole)]
        held = nonnegative_leaves(counts)
        likely = table.smoothed(counts) if table.noise_dominates else held
        part, whole = (likely.reshape(len(counts), -1) @ weight.reshape(-1) for weight in weights)
        floor = DETECTION_Z * float(np.sqrt(max(float(table.variance(weights[1][None])[0]), 0.0)))
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
        known = records > max(DETECTION_Z * float(table.total_deviations[2]), 0.0)
        cleared = debiased_absolute(gaps, noise).sum(axis=1)
        return np.where(known, np.minimum(cleared / np.where(known, records, 1.0), 1.0), np.nan)


@lru_cache(maxsize=256)
def _truth(wanted: Figure, model: ScoreModel) -> float:
    fine = model.fine
    table = ScoreTable(bin_edges(fine.shape[1]), fine, fine.shape[1], (np.zeros((2, 1)),))
    return float(wanted.values(table, fine[None])[0])


FIGURES: Final[Mapping[str, Figure]] = {
    AUC.name: Area(),
    ACCURACY.name: ThresholdRate((1, 0, 0, 1), (1, 1, 1, 1)),
    PRECISION.name: ThresholdRate((0, 0, 0, 1), (0, 1, 0, 1)),
    RECALL.name: ThresholdRate((0, 0, 0, 1), (0, 0, 1, 1)),
    ECE.name: CalibrationError(),
}


def figure(name: str) -> Figure:
    """Find a figure by its name."""
    known = [metric.name for metric in shown_in("planning")]
    if name not in known:
        raise InputError(f"Expected a metric among {', '.join(known)}, found {name!r}.")
    return FIGURES[name]


def _by_side(weights: tuple[float, float, float, float], above: Floats) -> Floats:
    low, high, positive_low, positive_high = weights
    return np.stack([low * (1 - above) + high * above, positive_low * (1 - above) + positive_high * above])


_RUNS: Final = 200
_ROUGH: Final = 40
_CLIENTS: Final = (50, 10**8)
_EPSILONS: Final = (0.01, 50.0)
_TREES: Final = tuple(ScoreTree(arity, height) for arity, height in ((16, 1), (32, 1), (4, 3), (2, 8), (4, 4), (4, 5)))
_STEPS: Final = 9
_ALIKE: Final = 1.05

Model = Callable[[float], Privacy]
MODELS: Final[dict[str, Model]] = {
    "secagg": lambda epsilon: SecAgg(),
    "distributed": DistributedDP,
    "local": LocalDP,
}


@final
@dataclass(frozen=True)
class Forecast:
    """What a study of so many clients at this epsilon would be off by, and with which tree.

    `error` is the root mean square of estimate minus truth over simulated runs, sampling included; `refused` is the
    share of runs whose figure would drown in noise.
    """

    clients: int
    epsilon: float | None
    tree: ScoreTree
    error: float
    refused: float

    @property
    def enough(self) -> bool:
        """Say whether the figure would be given at all, nearly always."""
        return self.refused <= 0.05


@final
@dataclass(frozen=True)
class Study:
    """A figure to measure, under a privacy model, on scores like these; `tree` None lets the planner choose one."""

    metric: str
    privacy: str = "distributed"
    scores: ScoreModel = ScoreModel()  # noqa: RUF009 - a frozen value
    tree: ScoreTree | None = None

    def __post_init__(self) -> None:
        figure(self.metric)
        if self.privacy not in MODELS:
            raise InputError(f"Expected a privacy model among {', '.join(MODELS)}, found {self.privacy!r}.")

    def forecast(self, clients: int, epsilon: float | None = None) -> Forecast:
        """Predict the error of a study of this size."""
        if clients < 1:
            raise InputError(f"Expected at least one client, found {clients}.")
        checked = self._epsilon(epsilon)
        return _forecast(self, self._tried(clients, checked).tree, clients, checked, _RUNS)

    def clients_for(self, target: float, epsilon: float | None = None) -> Forecast:
        """Find the fewest clients that reach a target error; the largest study tried where none does."""
        few, many = (float(np.log(end)) for end in _CLIENTS)
        checked = self._epsilon(epsilon)
        return _least(target, few, many, lambda size, study: study._tried(round(float(np.exp(size))), checked), self)

    def epsilon_for(self, target: float, clients: int) -> Forecast:
        """Find the least epsilon that reaches a target error; the largest tried where none does."""
        if self.privacy == "secagg":
            raise InputError("Secure aggregation has no epsilon to solve for; give the clients or leave them out.")
        low, high = (float(np.log(end)) for end in _EPSILONS)
        return _least(target, low, high, lambda size, study: study._tried(clients, float(np.exp(size))), self)

    def _tried(self, clients: int, epsilon: float | None) -> Forecast:
        """Forecast with the tree that was given, or roughly with each of a few."""
        if self.tree is not None:
            return _forecast(self, self.tree, clients, epsilon, _RUNS)
        rough = [_forecast(self, tree, clients, epsilon, _ROUGH) for tree in _TREES]
        answered = [one for one in rough if one.enough] or rough
        least = min(one.error if one.error == one.error else np.inf for one in answered)
        # of trees that do about equally well the finest: it leaves the least to the shape of the scores
        return next((one for one in reversed(answered) if one.error <= _ALIKE * least), answered[0])

    def _epsilon(self, epsilon: float | None) -> float | None:
        if self.privacy == "secagg":
            return None
        if epsilon is None or not epsilon > 0:
            raise InputError(f"Expected an epsilon above 0 for '{self.privacy}', found {epsilon}.")
        return epsilon


@lru_cache(maxsize=4096)
def _forecast(study: Study, tree: ScoreTree, clients: int, epsilon: float | None, runs: int) -> Forecast:
    privacy = MODELS[study.privacy](1.0 if epsilon is None else epsilon)
    wanted = figure(study.metric)
    values = wanted.values(*simulated_tables(study.scores, tree, privacy, clients, runs=runs))
    off = values[~np.isnan(values)] - wanted.truth(study.scores)
    error = float(np.sqrt(np.mean(off**2))) if off.size else float("nan")
    return Forecast(clients, epsilon, tree, error, float(np.isnan(values).mean()))


def _least(target: float, low: float, high: float, try_: Callable[[float, Study], Forecast], study: Study) -> Forecast:
    """Bisect on a logarithmic scale for the least size that reaches the target: first roughly, then with one tree."""
    if not target > 0:
        raise InputError(f"Expected a target error above 0, found {target}.")
    low, high = _bisected(target, low, high, lambda size: try_(size, study))
    closer = replace(study, tree=try_(high, study).tree)
    wide = max(high - low, 0.5)
    low, high = _bisected(target, low - wide, high + wide, lambda size: try_(size, closer))
    return try_(high, closer)


def _bisected(target: float, low: float, high: float, try_: Callable[[float], Forecast]) -> tuple[float, float]:
    def reached(size: float) -> bool:
        found = try_(size)
        return found.enough and found.error <= target

    return bisected(reached, low, high, _STEPS)
