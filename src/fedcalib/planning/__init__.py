"""Planning a study before it is run: how many clients, which epsilon, how fine a table.

A `Study` predicts the error of a metric by simulating many tables of scores, and finds the clients or the epsilon that
a target error needs. `suited_tree` is the tree of scores for a privacy model. Each metric that a study can be planned
for is a `Figure`, which is computed for many simulated tables at once.
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

_LOCAL_TREE: Final = ScoreTree(arity=2, height=8)


def suited_tree(privacy: Privacy) -> ScoreTree:
    """The tree of scores to query under a privacy model.

    Under local privacy each record reports about one level, and a report about few cells is nearly exact: two children
    per cell and about epsilon^(2/3) M^(1/3) leaves have the least error, which is 2^8 for a million records at epsilon
    5. Otherwise the tree has four children per cell and 4^5 leaves.

    Parameters
    ----------
    privacy
        The privacy model.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.planning.suited_tree(fc.LocalDP(5.0)).leaves
    256
    """
    return _LOCAL_TREE if isinstance(privacy, LocalDP) else TREE


class Figure(ABC):
    """A metric of a binary classifier, computed from tables of scores."""

    @abstractmethod
    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        """Values of the metric, shape (runs,), from simulated counts, (runs, 2, cells), with the noise of `table`."""

    def truth(self, model: ScoreModel) -> float:
        """The value for the whole population, without noise."""
        return _truth(self, model)


@final
@dataclass(frozen=True)
class Area(Figure):
    """The area under the ROC curve."""

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        known = (counts.sum(axis=2) > np.maximum(DETECTION_Z * table.total_deviations[:2], 0.0)).all(axis=1)
        found = np.full(len(counts), np.nan)
        found[known] = one_step_area(counts[known], nonnegative_leaves(counts[known]))
        return found


@final
@dataclass(frozen=True)
class ThresholdRate(Figure):
    """A ratio at a threshold; `part` and `whole` are weights of (negatives below, above; positives below, above)."""

    part: tuple[float, float, float, float]
    whole: tuple[float, float, float, float]
    threshold: float = 0.5

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        left, right = table.edges[:-1], table.edges[1:]
        above = np.clip((right - self.threshold) / (right - left), 0.0, 1.0)
        weights = [_by_side(weights, above) for weights in (self.part, self.whole)]
        nonnegative = nonnegative_leaves(counts)
        smooth = table.smoothed(counts) if table.noise_dominates else nonnegative
        part, whole = (smooth.reshape(len(counts), -1) @ weight.reshape(-1) for weight in weights)
        floor = DETECTION_Z * float(np.sqrt(max(float(table.variance(weights[1][None])[0]), 0.0)))
        known = nonnegative.reshape(len(counts), -1) @ weights[1].reshape(-1) > max(floor, 0.0)
        return np.where(known, np.clip(part / np.where(known, whole, 1.0), 0.0, 1.0), np.nan)


@final
@dataclass(frozen=True)
class CalibrationError(Figure):
    """The expected calibration error in bins of equal width."""

    bins: int = 15

    def values(self, table: ScoreTable, counts: Floats) -> Floats:
        weights = gap_weights_of(table, self.bins)
        gaps = counts.reshape(len(counts), -1) @ weights.reshape(len(weights), -1).T
        noise = table.variance(weights)
        records = counts.sum(axis=(1, 2))
        known = records > max(DETECTION_Z * float(table.total_deviations[2]), 0.0)
        total = debiased_absolute(gaps, noise).sum(axis=1)
        return np.where(known, np.minimum(total / np.where(known, records, 1.0), 1.0), np.nan)


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
    """The metric of a name."""
    known = [metric.name for metric in shown_in("planning")]
    if name not in known:
        raise InputError(f"Expected a metric among {', '.join(known)}, found {name!r}.")
    return FIGURES[name]


def _by_side(weights: tuple[float, float, float, float], above: Floats) -> Floats:
    low, high, positive_low, positive_high = weights
    return np.stack([low * (1 - above) + high * above, positive_low * (1 - above) + positive_high * above])


_RUNS: Final = 200
_ROUGH_RUNS: Final = 40  # to choose a tree
_CLIENT_RANGE: Final = (50, 10**8)
_EPSILON_RANGE: Final = (0.01, 50.0)
_TREES: Final = tuple(ScoreTree(arity, height) for arity, height in ((16, 1), (32, 1), (4, 3), (2, 8), (4, 4), (4, 5)))
_HALVINGS: Final = 9
_EQUAL_ERROR_RATIO: Final = 1.05  # trees whose errors differ by less are taken as equally good

Model = Callable[[float], Privacy]
MODELS: Final[dict[str, Model]] = {"secagg": lambda epsilon: SecAgg(), "distributed": DistributedDP, "local": LocalDP}


@final
@dataclass(frozen=True)
class Forecast:
    """The predicted error of a study.

    Parameters
    ----------
    clients
        Number of clients, with one record each.
    epsilon
        Epsilon; None under secure aggregation, which has none.
    tree
        The tree of scores.
    error
        Root mean square error over simulated runs, sampling included.
    refused
        Fraction of runs in which noise leaves no value at all.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.planning.Study("auc").forecast(20_000, epsilon=1.0).enough
    True
    """

    clients: int
    epsilon: float | None
    tree: ScoreTree
    error: float
    refused: float

    @property
    def enough(self) -> bool:
        """Whether there is a value in at least 95% of runs."""
        return self.refused <= 0.05


@final
@dataclass(frozen=True)
class Study:
    """A study to be planned: a metric, a privacy model, and the scores that are expected.

    Parameters
    ----------
    metric
        Name of the metric: "auc", "accuracy", "precision", "recall" or "ece".
    privacy
        Name of the privacy model: "secagg", "distributed" or "local".
    scores
        Model of the expected scores.
    tree
        The tree of scores; by default the finest among the best of a few.

    Raises
    ------
    InputError
        If the metric or the privacy model is unknown.

    Examples
    --------
    >>> import fedcalib as fc
    >>> study = fc.planning.Study("auc", "distributed", fc.planning.ScoreModel(positive_rate=0.1, auc=0.8))
    >>> study.forecast(20_000, epsilon=1.0).error < 0.02
    True
    >>> study.forecast(2_000, epsilon=1.0).error > study.forecast(20_000, epsilon=1.0).error
    True
    """

    metric: str
    privacy: str = "distributed"
    scores: ScoreModel = ScoreModel()  # noqa: RUF009 - a frozen value
    tree: ScoreTree | None = None

    def __post_init__(self) -> None:
        figure(self.metric)
        if self.privacy not in MODELS:
            raise InputError(f"Expected a privacy model among {', '.join(MODELS)}, found {self.privacy!r}.")

    def forecast(self, clients: int, epsilon: float | None = None) -> Forecast:
        """The predicted error of a study with this number of clients and this epsilon.

        Raises
        ------
        InputError
            If there is no client, or an epsilon is needed and missing.
        """
        if clients < 1:
            raise InputError(f"Expected at least one client, found {clients}.")
        checked = self._epsilon(epsilon)
        return _forecast(self, self._tried(clients, checked).tree, clients, checked, _RUNS)

    def clients_for(self, target: float, epsilon: float | None = None) -> Forecast:
        """Forecast of the smallest study that reaches a target error, or of the largest one tried if none does."""
        few, many = (float(np.log(end)) for end in _CLIENT_RANGE)
        checked = self._epsilon(epsilon)
        return _least(target, few, many, lambda size, study: study._tried(round(float(np.exp(size))), checked), self)

    def epsilon_for(self, target: float, clients: int) -> Forecast:
        """Forecast at the least epsilon that reaches a target error, or at the largest one tried if none does."""
        if self.privacy == "secagg":
            raise InputError("Secure aggregation has no epsilon to solve for; state the clients or leave them out.")
        low, high = (float(np.log(end)) for end in _EPSILON_RANGE)
        return _least(target, low, high, lambda size, study: study._tried(clients, float(np.exp(size))), self)

    def _tried(self, clients: int, epsilon: float | None) -> Forecast:
        """Forecast with the study's tree, or a rough one with the best of a few trees."""
        if self.tree is not None:
            return _forecast(self, self.tree, clients, epsilon, _RUNS)
        rough = [_forecast(self, tree, clients, epsilon, _ROUGH_RUNS) for tree in _TREES]
        answered = [one for one in rough if one.enough] or rough
        least = min(one.error if one.error == one.error else np.inf for one in answered)
        # of trees with about equal errors the finest: its error depends least on the shape of the scores
        return next((one for one in reversed(answered) if one.error <= _EQUAL_ERROR_RATIO * least), answered[0])

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
    errors = values[~np.isnan(values)] - wanted.truth(study.scores)
    error = float(np.sqrt(np.mean(errors**2))) if errors.size else float("nan")
    return Forecast(clients, epsilon, tree, error, float(np.isnan(values).mean()))


def _least(target: float, low: float, high: float, try_: Callable[[float, Study], Forecast], study: Study) -> Forecast:
    """Forecast at the least size that reaches the target: bisection of its logarithm, roughly, then with one tree."""
    if not target > 0:
        raise InputError(f"Expected a target error above 0, found {target}.")
    low, high = _bisected(target, low, high, lambda size: try_(size, study))
    fixed = replace(study, tree=try_(high, study).tree)
    margin = max(high - low, 0.5)
    low, high = _bisected(target, low - margin, high + margin, lambda size: try_(size, fixed))
    return try_(high, fixed)


def _bisected(target: float, low: float, high: float, try_: Callable[[float], Forecast]) -> tuple[float, float]:
    def reached(size: float) -> bool:
        found = try_(size)
        return found.enough and found.error <= target

    return bisected(reached, low, high, _HALVINGS)
