"""The demo's plot: one drifted model, sixteen airlines, nothing pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.artifacts.scaling import Platt
from fedcalib.cohort import FEWEST_RECORDS
from fedcalib.demo.flights import MEASURED, RECALIBRATED, Scored
from fedcalib.federation import Federation
from fedcalib.loop import run
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.methods.platt import PlattScaling
from fedcalib.privacy import Privacy
from fedcalib.privacy.distributed import DistributedDP
from fedcalib.privacy.open import Open
from fedcalib.privacy.secagg import SecAgg
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Records
from fedcalib.runtimes import InProcess
from fedcalib.types import Floats, Ints

WAYS = ("as is", "together", "alone", "together + own shift")
_SHIFT_VARIANCE = 0.05  # how far one airline's log-odds may lie from the common calibrator's


@final
@dataclass(frozen=True, eq=False)
class Chapter:
    """One way of recalibrating: what it promised, what it made, and how November went before and after."""

    name: str
    privacy: Spending
    calibrator: Platt
    before: MetricsReport
    after: MetricsReport


@final
@dataclass(frozen=True)
class Airline:
    """One airline on November's flights: its mean gap (predicted minus actual, in points) and Brier score.

    Each airline computes these on its own screen; they are no release. With fewer than eleven flights it shows none.
    """

    carrier: str
    flights: int
    shown: bool
    gaps: tuple[float, ...]  # (WAYS,)
    errors: tuple[float, ...]  # (WAYS,): the half-width of a 95% interval of each gap
    briers: tuple[float, ...]  # (WAYS,)


@final
@dataclass(frozen=True, eq=False)
class Story:
    """Everything that the demo tells."""

    secagg: Chapter
    private: Chapter
    shifted: MetricsReport  # November under secure sums when every airline adds its own shift
    airlines: tuple[Airline, ...]


def tell(scores: Scored, epsilon: float = 1.0, randomness: Randomness | None = None) -> Story:
    """Recalibrate on September and October, measure on November: by secure sums, then with differential privacy.

    The flights of autumn and of November are different records, so the same epsilon covers both: a flight is either
    fitted, or measured before and after with half of it each.
    """
    source = randomness or Secure()
    fitted, measured = (_federation(scores.during(*months)) for months in (RECALIBRATED, MEASURED))
    exact = _chapter("secure aggregation", fitted, measured, (SecAgg(), SecAgg()), source.derive("secagg"))
    models = (DistributedDP(epsilon), DistributedDP(epsilon / 2))
    private = _chapter(f"epsilon = {epsilon:g}", fitted, measured, models, source.derive("private"))
    own = {fitted.name(k): _own(fitted.client(k), exact.calibrator) for k in range(len(fitted))}
    parts = {measured.name(k): measured.client(k) for k in range(len(measured))}
    moved = Federation.of({name: own[name].shifted.over(records) for name, records in parts.items()})
    shifted = run(FederatedMetrics(), InProcess(moved), SecAgg(), randomness=source.derive("shifted")).artifact
    rows = [_airline(name, records, own[name].ways(exact.calibrator)) for name, records in parts.items()]
    return Story(exact, private, shifted, tuple(sorted(rows, key=lambda row: -row.flights)))


def _federation(scores: Scored) -> Federation:
    return Federation.by_site(Records.of_scores(scores.score, scores.label), scores.carrier)


def _chapter(
    name: str, fitted: Federation, measured: Federation, models: tuple[Privacy, Privacy], source: Randomness
) -> Chapter:
    fit, measure = models
    result = run(PlattScaling(), InProcess(fitted), fit, randomness=source.derive("fit"))
    after = Federation(result.artifact.over(measured.records), measured.offsets, measured.names)
    metrics = [
        run(FederatedMetrics(), InProcess(data), measure, randomness=source.derive(k)).artifact
        for k, data in enumerate((measured, after))
    ]
    return Chapter(name, result.privacy, result.artifact, *metrics)


@final
@dataclass(frozen=True)
class _Own:
    """What one airline makes of its own autumn, at home: a calibrator of its own, or a shift of the shared one."""

    alone: Platt
    shifted: Platt

    def ways(self, shared: Platt) -> tuple[Calibrator, ...]:
        """List the calibrators in the order of WAYS."""
        return Identity(), shared, self.alone, self.shifted


def _own(records: Records, shared: Platt) -> _Own:
    """Fit the same method on one airline's own flights, and one number on top of the shared calibrator."""
    alone = run(PlattScaling(), InProcess(Federation.of([records])), Open()).artifact
    odds = np.log(np.maximum(shared.of(records), 1e-12))
    shift = _shift(odds[:, 1] - odds[:, 0], records.labels)
    return _Own(alone, Platt(shared.slope, shared.intercept + shift))


def _shift(odds: Floats, labels: Ints) -> float:
    """Find the most likely shift of log-odds, drawn toward zero so that few flights move it little."""
    shift = 0.0
    for _ in range(25):  # Newton steps on a concave likelihood of one number
        chance = 0.5 * (1 + np.tanh((odds + shift) / 2))
        slope = float((labels - chance).sum()) - shift / _SHIFT_VARIANCE
        shift += slope / (float((chance * (1 - chance)).sum()) + 1 / _SHIFT_VARIANCE)
    return shift


def _airline(carrier: str, records: Records, calibrators: tuple[Calibrator, ...]) -> Airline:
    if len(records) < FEWEST_RECORDS:
        nothing = (float("nan"),) * len(WAYS)
        return Airline(carrier, len(records), False, nothing, nothing, nothing)
    gaps = [calibrator.of(records)[:, 1] - records.labels for calibrator in calibrators]
    return Airline(
        carrier,
        len(records),
        True,
        tuple(100 * float(gap.mean()) for gap in gaps),
        tuple(196 * float(gap.std()) / len(gap) ** 0.5 for gap in gaps),
        tuple(float(np.square(gap).mean()) for gap in gaps),
    )
