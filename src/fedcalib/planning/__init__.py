"""Planning a study before it is run: how many records, which epsilon, which error.

A `Study` predicts the error of a metric by simulating many evaluations: their tables of scores, at the resolution that
`FederatedMetrics` would request, read by the estimators that it uses. It finds the records or the epsilon that a target
error needs. `suited_tree` is the tree of scores for methods that count one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.score_figures import DECISIONS, UNKNOWN, BinaryFigures
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.methods.evaluation import FederatedMetrics, Resolution
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import METRICS, PPV, PRECISION, RECALL, SENSITIVITY, shown_in
from fedcalib.numeric import bisected
from fedcalib.planning.simulation import ScoreModel as ScoreModel
from fedcalib.planning.simulation import SimulatedEvaluation
from fedcalib.privacy import Privacy
from fedcalib.privacy.distributed import DistributedDP
from fedcalib.privacy.local import LocalDP
from fedcalib.privacy.secagg import SecAgg
from fedcalib.queries.scores import TREE, ScoreTree

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


_SAME: Final = {PRECISION.name: PPV.name, RECALL.name: SENSITIVITY.name}
_OF_RECORDS: Final = frozenset(metric.name for metric in METRICS if metric.classes == "any")  # one class suffices
_DEFAULTS: Final = FederatedMetrics()
_POPULATION: Final = 1e9  # records that stand for everybody


def figure(sheet: ScoreSheet, name: str) -> Measured:
    """One metric as an evaluation reads it from its table; unknown where it would not be stated.

    Parameters
    ----------
    sheet
        The table.
    name
        The metric, one that `fedcalib plan` knows.
    """
    if not (sheet.known[2] if name in _OF_RECORDS else sheet.known.all()):
        return UNKNOWN
    wanted, figures = _SAME.get(name, name), BinaryFigures(sheet, _DEFAULTS.threshold, _DEFAULTS.bins)
    found = _read(figures, wanted)
    vars(figures)["all"] = {wanted: found}  # the reason needs no other figure, and all of them would take a while
    return UNKNOWN if figures.reason(wanted) and not sheet.table.exact else found


def _read(figures: BinaryFigures, name: str) -> Measured:
    if name in DECISIONS:
        return figures.decisions(figures.threshold)[name]
    found: Measured = getattr(figures, name)()
    return found


@lru_cache(maxsize=256)
def truth(name: str, scores: ScoreModel) -> float:
    """The value of a metric for the whole population of a model of scores.

    Parameters
    ----------
    name
        The metric.
    scores
        The model of scores.
    """
    _check(name)
    resolution = SimulatedEvaluation(scores, SecAgg(), 1).resolution
    expected = _POPULATION * scores.between(resolution.axis.edges(resolution.cells))
    return figure(resolution.sheet_of(expected, np.zeros_like(expected)), name).value


def _check(name: str) -> None:
    known = [metric.name for metric in shown_in("planning")]
    if name not in known:
        raise InputError(f"Expected a metric among {', '.join(known)}, found {name!r}.")


_RUNS: Final = 120
_ROUGH_RUNS: Final = 60  # while searching, and for studies around the answer
_RECORD_RANGE: Final = (50, 10**8)
_EPSILON_RANGE: Final = (0.01, 50.0)
_HALVINGS: Final = 11

Model = Callable[[float], Privacy]
MODELS: Final[dict[str, Model]] = {"secagg": lambda epsilon: SecAgg(), "distributed": DistributedDP, "local": LocalDP}


@final
@dataclass(frozen=True)
class Forecast:
    """The predicted error of a study.

    Parameters
    ----------
    records
        Number of records of all sites together.
    epsilon
        Epsilon; None under secure aggregation, which has none.
    resolution
        The table of scores that the evaluation would request.
    error
        Root mean square error over simulated runs, sampling included.
    refused
        Fraction of runs in which the metric is not stated, because noise drowns it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.planning.Study("auc").forecast(20_000, epsilon=1.0).enough
    True
    """

    records: int
    epsilon: float | None
    resolution: Resolution
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

    It is evaluated by `FederatedMetrics` that is told the number of records (`records`, `--records`).

    Parameters
    ----------
    metric
        Name of the metric, such as "auc", "ece", "slope" or "sensitivity".
    privacy
        Name of the privacy model: "secagg", "distributed" or "local".
    scores
        Model of the expected scores.

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

    def __post_init__(self) -> None:
        _check(self.metric)
        if self.privacy not in MODELS:
            raise InputError(f"Expected a privacy model among {', '.join(MODELS)}, found {self.privacy!r}.")

    def forecast(self, records: int, epsilon: float | None = None, *, rough: bool = False) -> Forecast:
        """The predicted error of a study with this number of records and this epsilon.

        Parameters
        ----------
        records
            Number of records of all sites together.
        epsilon
            The whole budget; None under secure aggregation.
        rough
            Simulate half of the runs.

        Raises
        ------
        InputError
            If there is no record, or an epsilon is needed and missing.
        """
        if records < 1:
            raise InputError(f"Expected at least one record, found {records}.")
        return _forecast(self, records, self._epsilon(epsilon), _ROUGH_RUNS if rough else _RUNS)

    def records_for(self, target: float, epsilon: float | None = None) -> Forecast:
        """Forecast of the smallest study that reaches a target error, or of the largest one tried if none does.

        With an infinite target it is the smallest study in which the metric is stated at all.
        """
        checked = self._epsilon(epsilon)
        return _least(target, _RECORD_RANGE, lambda size, runs: _forecast(self, round(size), checked, runs))

    def epsilon_for(self, target: float, records: int) -> Forecast:
        """Forecast at the least epsilon that reaches a target error, or at the largest one tried if none does."""
        if self.privacy == "secagg":
            raise InputError("Secure aggregation has no epsilon to solve for; state the records or leave them out.")
        return _least(target, _EPSILON_RANGE, lambda size, runs: _forecast(self, records, size, runs))

    def _epsilon(self, epsilon: float | None) -> float | None:
        if self.privacy == "secagg":
            return None
        if epsilon is None or not epsilon > 0:
            found = "none" if epsilon is None else epsilon
            raise InputError(
                f"Expected an epsilon (--epsilon) above 0 under '{self.privacy}', found {found}; state it, or the "
                "number of records (--records) to solve for epsilon, or plan for exact sums with privacy='secagg' "
                "(--privacy secagg)."
            )
        return epsilon


@lru_cache(maxsize=4096)
def _forecast(study: Study, records: int, epsilon: float | None, runs: int) -> Forecast:
    simulated = SimulatedEvaluation(study.scores, MODELS[study.privacy](1.0 if epsilon is None else epsilon), records)
    values = np.array([figure(sheet, study.metric).value for sheet in simulated.sheets(runs)])
    errors = values[~np.isnan(values)] - truth(study.metric, study.scores)
    error = float(np.sqrt(np.mean(errors**2))) if errors.size else float("nan")
    return Forecast(records, epsilon, simulated.resolution, error, float(np.isnan(values).mean()))


def _least(target: float, ends: tuple[float, float], try_: Callable[[float, int], Forecast]) -> Forecast:
    """Forecast at the least size that reaches the target, by bisection of its logarithm."""
    if not target > 0:
        raise InputError(f"Expected a target error above 0, found {target}.")

    def reached(size: float) -> bool:
        found = try_(float(np.exp(size)), _ROUGH_RUNS)
        return found.enough and found.error <= target

    low, high = (float(np.log(end)) for end in ends)
    return try_(float(np.exp(bisected(reached, low, high, _HALVINGS)[1])), _RUNS)
