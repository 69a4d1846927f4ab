"""A study to be planned: predict its error, or find the clients or the epsilon that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.planning.metrics import figure
from fedcalib.planning.score_model import ScoreModel
from fedcalib.planning.simulation import simulated_tables
from fedcalib.privacy.distributed import DistributedDP
from fedcalib.privacy.local import LocalDP
from fedcalib.privacy.model import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.queries.score_tree import ScoreTree

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
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = try_(middle)
        low, high = (low, middle) if found.enough and found.error <= target else (middle, high)
    return low, high
