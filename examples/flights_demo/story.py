"""The flights demo's experiment: sixteen airlines recalibrate one drifted model without pooling their flights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

import fedcalib as fc
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.artifacts.scaling import Platt
from fedcalib.cohort import MIN_RECORDS
from fedcalib.privacy import Privacy
from fedcalib.randomness import Randomness
from fedcalib.types import Floats, Ints
from flights import MEASURED, RECALIBRATED, Scored

STRATEGIES = ("as is", "together", "alone", "together + own shift")
_SHIFT_VARIANCE = 0.05  # prior variance of an airline's own shift of the log-odds


@final
@dataclass(frozen=True, eq=False)
class Chapter:
    """One privacy model: what it states, the calibrator, and November's metrics before and after."""

    name: str
    privacy: Spending
    calibrator: Platt
    before: MetricsReport
    after: MetricsReport


@final
@dataclass(frozen=True)
class Airline:
    """Mean gap (predicted minus actual, in percentage points) and Brier score of one airline's November flights.

    Each airline computes these from its own flights, so nothing is released. With fewer than eleven flights it shows
    none.
    """

    carrier: str
    flights: int
    shown: bool
    gaps: tuple[float, ...]  # (STRATEGIES,)
    errors: tuple[float, ...]  # (STRATEGIES,): half the width of each gap's 95% interval
    briers: tuple[float, ...]  # (STRATEGIES,)


@final
@dataclass(frozen=True, eq=False)
class Story:
    """All results of the demo."""

    secagg: Chapter
    private: Chapter
    shifted: MetricsReport  # November under secure aggregation when every airline adds its own shift
    airlines: tuple[Airline, ...]


def tell(scores: Scored, epsilon: float = 1.0, randomness: Randomness | None = None) -> Story:
    """Recalibrate on September and October and measure November: with secure aggregation, then with epsilon.

    Flights of autumn and of November are different records, so the same epsilon covers both: a flight is either used
    to fit, or measured before and after with half of epsilon each.
    """
    source = randomness or fc.Secure()
    fitted, measured = (_federation(scores.during(*months)) for months in (RECALIBRATED, MEASURED))
    exact = _chapter("secure aggregation", fitted, measured, (fc.SecAgg(), fc.SecAgg()), source.derive("secagg"))
    models = (fc.DistributedDP(epsilon), fc.DistributedDP(epsilon / 2))
    private = _chapter(f"epsilon = {epsilon:g}", fitted, measured, models, source.derive("private"))
    own = {fitted.name(k): _own(fitted.client(k), exact.calibrator) for k in range(len(fitted))}
    parts = {measured.name(k): measured.client(k) for k in range(len(measured))}
    moved = fc.Federation.of({name: own[name].shifted.over(records) for name, records in parts.items()})
    shifted = fc.run(fc.FederatedMetrics(), fc.InProcess(moved), fc.SecAgg(), randomness=source.derive("shifted"))
    rows = [_airline(name, records, own[name].strategies(exact.calibrator)) for name, records in parts.items()]
    return Story(exact, private, shifted.artifact, tuple(sorted(rows, key=lambda row: -row.flights)))


def _federation(scores: Scored) -> fc.Federation:
    return fc.Federation.by_site(fc.Records.of_scores(scores.score, scores.label), scores.carrier)


def _chapter(
    name: str, fitted: fc.Federation, measured: fc.Federation, models: tuple[Privacy, Privacy], source: Randomness
) -> Chapter:
    fit, measure = models
    result = fc.run(fc.PlattScaling(), fc.InProcess(fitted), fit, randomness=source.derive("fit"))
    after = fc.Federation(result.artifact.over(measured.records), measured.offsets, measured.names)
    metrics = [
        fc.run(fc.FederatedMetrics(), fc.InProcess(data), measure, randomness=source.derive(k)).artifact
        for k, data in enumerate((measured, after))
    ]
    return Chapter(name, result.privacy, result.artifact, *metrics)


@final
@dataclass(frozen=True)
class _Own:
    """Two calibrators that one airline fits on its own autumn: one from scratch, and the shared one with a shift."""

    alone: Platt
    shifted: Platt

    def strategies(self, shared: Platt) -> tuple[fc.Calibrator, ...]:
        """The calibrators in the order of STRATEGIES."""
        return fc.artifacts.Identity(), shared, self.alone, self.shifted


def _own(records: fc.Records, shared: Platt) -> _Own:
    alone = fc.run(fc.PlattScaling(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    odds = np.log(np.maximum(shared.of(records), 1e-12))
    shift = _shift(odds[:, 1] - odds[:, 0], records.labels)
    return _Own(alone, Platt(shared.slope, shared.intercept + shift))


def _shift(odds: Floats, labels: Ints) -> float:
    """Posterior mode of a shift of the log-odds; the prior keeps it near zero when there are few flights."""
    shift = 0.0
    for _ in range(25):  # Newton's method on a concave function of one variable
        chance = 0.5 * (1 + np.tanh((odds + shift) / 2))
        gradient = float((labels - chance).sum()) - shift / _SHIFT_VARIANCE
        shift += gradient / (float((chance * (1 - chance)).sum()) + 1 / _SHIFT_VARIANCE)
    return shift


def _airline(carrier: str, records: fc.Records, calibrators: tuple[fc.Calibrator, ...]) -> Airline:
    if len(records) < MIN_RECORDS:
        nothing = (float("nan"),) * len(STRATEGIES)
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
