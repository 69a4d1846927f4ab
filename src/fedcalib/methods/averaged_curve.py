"""AveragedCurve: a binary classifier's calibration curve, averaged by evidence over the usual shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator, Identity, chained
from fedcalib.artifacts.scaling import OddsCurve, Temperature
from fedcalib.errors import InputError
from fedcalib.estimation.odds_curves import LAPLACE_Z, NORMAL_Z, ClientSums, Counts, Likelihood, residual_ratio
from fedcalib.flows.tables import two_classes
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.temperature import BoundedTemperature
from fedcalib.metrics.binning import EvenLogOdds
from fedcalib.numeric import log_odds
from fedcalib.queries.score_residuals import EndLabels, ScoreResiduals
from fedcalib.queries.scores import ScoreCells
from fedcalib.query import Answer, Unit
from fedcalib.records import Schema

NOTHING_FOUND: Final = "nothing was changed: sampling and noise may explain all that the labels say against the scores"
_EXACT_CELLS: Final = 1 << 13
_EXACT_AXIS: Final = EvenLogOdds(27.6)  # scores are read between 1e-12 and 1 - 1e-12
# cells and reach of noisy tables of few records, by records x epsilon up to which they are best
_FEW: Final = ((150.0, 8, 6.0), (400.0, 16, 8.0), (float("inf"), 32, 12.0))
_FEW_RECORDS: Final = 1000.0  # with more, labels would tell a wide cell's mean score from its middle
# the same of more records; with the last, more epsilon loses nothing beside exact sums
_NOISY: Final = ((20_000.0, 64, 12.0), (40_000.0, 128, 12.0), (float("inf"), 512, 14.0))
# cells and reach of local reports, by records x epsilon^2 up to which they are best
_LOCAL: Final = ((30_000.0, 8, 4.0), (150_000.0, 16, 6.0), (float("inf"), 32, 8.0))
_MANY_CLIENTS: Final = 400.0  # clients x epsilon from which on eight cells are better than four
_TEMPERATURE_SHARE: Final = 0.3  # of the budget of whole clients, and twice that where clients are few or small
_ENDS_SHARE: Final = 3 / 7  # of the rest, for scores near 0 and 1
_ONE_STEP: Final = 150.0  # clients x epsilon from which on a second query for residuals has a part of the budget
_FEW_CLIENTS: Final = 50.0  # clients x epsilon, less where they have few records, from which on the share falls
_SCARCE: Final = 100.0  # clients x epsilon, less where they have few records, below which a temperature is all there is
_SCARCE_SHARE: Final = 0.6  # by which its share grows there, up to the most
_MOST_SHARE: Final = 0.95
_SOME_RECORDS: Final = 50.0  # of a client; more say no more about a temperature
_MAX_SUM: Final = 1e12  # beyond any sum of clients' scores; keeps products finite whatever the noise
_MIN_RELATIVE_VARIANCE: Final = 1e-6  # keeps the equations solvable
_LEAST_CLAIM: Final = 1e-4  # the least probability of either label that is read or claimed where there is noise
_LEAST_CHANGE: Final = 5e-3  # of log-odds; less is none
_CLEARLY_FAR: Final = float(log_odds(0.99))  # mean log-odds beyond 2 that tell of scores beyond 1e-4
_FARTHEST: Final = float(log_odds(1 - _LEAST_CLAIM))
BOUNDED: Final = OddsCurve((-_FARTHEST, _FARTHEST), (-_FARTHEST, _FARTHEST))  # moves no probability by more than 1e-4


@final
@dataclass(frozen=True)
class AveragedCurve(Method[Calibrator]):
    """Average five shapes of a binary classifier's calibration curve by how well each explains the labels.

    The shapes are no change, an intercept, a line (Platt), a beta curve and a smooth monotone curve. All are fitted to
    one count of labels by log-odds, with the noise as part of the likelihood, so that what noise or chance may explain
    moves nothing. Where whole clients are hidden, each sends bounded scores instead: a temperature first, then labels
    of scores near 0 and 1, then what is left in a few cells.

    Parameters
    ----------
    epsilon, unit, alone
        What the run may spend, on whom, and who adds noise; filled in by the run. None for exact sums.
    typical_records
        A public guess at a client's number of records.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import binary_ece
    >>> records = (federation := fc.Federation.simulated(classes=2, temperature=2.0)).records
    >>> calibrator = fc.run(fc.methods.AveragedCurve(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(binary_ece(scores, records.labels), 2) for scores in (records.score, calibrator(records.score))]
    [0.09, 0.02]
    """

    epsilon: float | None = None
    unit: Unit | None = None
    alone: Unit | None = None
    typical_records: float = 50.0

    def __post_init__(self) -> None:
        if (self.epsilon is not None and not self.epsilon > 0) or not self.typical_records > 0:
            raise InputError(
                "Expected epsilon above 0, or None for exact sums, and typical records above 0, "
                f"found {self.epsilon} and {self.typical_records}."
            )

    def with_budget(self, budget: Budget) -> AveragedCurve:
        """Take what was not set here from the run's budget."""
        epsilon, unit, alone = self.epsilon or budget.epsilon, self.unit or budget.unit, self.alone or budget.alone
        return replace(self, epsilon=epsilon, unit=unit, alone=alone)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        two_classes(schema)
        if self.epsilon is not None and self.unit == "client":
            return (yield from self._of_clients(schema))
        query = self.table(schema)
        clear = NORMAL_Z if self.alone == "record" else LAPLACE_Z
        counts = counts_of(query, (yield query), clear, limited=self.alone == "client")
        return _curve(counts) if self.epsilon is None else _bounded(_curve(counts), counts.far)

    def table(self, schema: Schema) -> ScoreCells:
        """The count of labels by log-odds that public numbers call for."""
        if self.epsilon is None:
            return ScoreCells(_EXACT_CELLS, _EXACT_AXIS)
        records = schema.clients * self.typical_records
        if self.alone == "record":
            return _cells(records * min(self.epsilon, 5.0) ** 2, _LOCAL)
        choices = _FEW if records <= _FEW_RECORDS else _NOISY
        return _cells(records * self.epsilon / sqrt(max(schema.clients if self.alone == "client" else 1, 1)), choices)

    def _of_clients(self, schema: Schema) -> Flow[Calibrator]:
        """A temperature for what is far off, then scores near 0 and 1, then what is left of the residuals."""
        share, typical = self._temperature_share(schema.clients), self.typical_records
        temperature = BoundedTemperature(weight=share, shrunken=True, typical_records=typical)
        found = _warmed((yield from temperature.after(BOUNDED, schema)))
        ends = EndLabels(chained(BOUNDED, found), weight=_ENDS_SHARE * (1 - share))
        counts = ends_of(ends, (yield ends))
        far = bool((np.abs(counts.odds) > _CLEARLY_FAR)[counts.records > 0].any())
        found = chained(found, _curve(counts))
        cells = 8 if schema.clients * (self.epsilon or 0.0) >= _MANY_CLIENTS else 4
        for weight in self._residual_shares(schema.clients):
            query = ScoreResiduals(
                cells,
                chained(BOUNDED, found),
                largest=max(1.0, 0.27 * sqrt(typical)),
                weight=weight * (1 - _ENDS_SHARE) * (1 - share),
            )
            found = chained(found, _curve(scores_of(query, (yield query), schema.clients)))
        return found if isinstance(found, Identity) and not far else chained(BOUNDED, found)

    def _residual_shares(self, clients: int) -> tuple[float, ...]:
        """How two queries for residuals share their budget: the second corrects the first where noise allows."""
        second = max(1 - _ONE_STEP / (clients * (self.epsilon or 0.0)), 0.0) / 2
        return (1 - second, second) if second > 0 else (1.0,)

    def _temperature_share(self, clients: int) -> float:
        """The fraction of the budget for the temperature, the most where signal is scarce."""
        signal, records = clients * (self.epsilon or 0.0), min(1.0, self.typical_records / _SOME_RECORDS)
        share = _TEMPERATURE_SHARE * (1 + min(1.0, _FEW_CLIENTS / (signal * sqrt(records))) ** 2)
        return min(share + _SCARCE_SHARE * max(1 - signal * records / _SCARCE, 0.0), _MOST_SHARE)


def _cells(signal: float, choices: tuple[tuple[float, int, float], ...]) -> ScoreCells:
    """The first choice up to whose signal it is."""
    return next(ScoreCells(cells, EvenLogOdds(reach)) for most, cells, reach in choices if signal <= most)


def counts_of(query: ScoreCells, answer: Answer, clear: float, limited: bool) -> Counts:
    """What counts by log-odds say about curves; limited by residuals where noise of every client adds up."""
    odds, noise = query.axis.odds(query.cells), answer.variance("cells").mean(axis=0)
    counts = Counts.of(odds, answer["cells"], noise, clear)
    return counts if limited else replace(counts, largest_ratio=inf)


def _warmed(found: Temperature) -> Calibrator:
    """A temperature without what it says, or an identity where it changes nothing."""
    return UNCHANGED if found.temperature == 1.0 else Temperature(found.temperature)


def ends_of(query: EndLabels, answer: Answer) -> Counts:
    """What labels of scores near 0 and 1 say about curves, beside how rare the scores claim the rarer one to be.

    A client counts as one record at most, so chance is overrated. Noise on claims is far below that on labels.
    """
    raw = np.clip(np.nan_to_num(answer["labels"]), -_MAX_SUM, _MAX_SUM)
    labels = np.maximum(raw, 0.0)
    claimed = np.clip(np.nan_to_num(answer["claims"]), 0.0, _MAX_SUM) / np.maximum(labels.sum(axis=0), 1e-9)
    rate = np.clip(claimed, _LEAST_CLAIM, query.largest_claim)
    odds = log_odds(rate) * [1.0, -1.0]
    noise = answer.variance("labels").mean(axis=0)
    ratio = residual_ratio(odds, raw, noise)
    return Counts(odds, labels[0], labels[1], noise, (float(odds[0]), float(odds[1])), NORMAL_Z, ratio)


def scores_of(query: ScoreResiduals, answer: Answer, clients: int) -> ClientSums:
    """What clients' scores say: a cell's slope is shrunk where noise explains it, and chance varies with its share."""
    score, slope = (np.clip(np.nan_to_num(answer[name]), -_MAX_SUM, _MAX_SUM) for name in ("score", "slope"))
    slope, noise = np.maximum(slope, 0.0), answer.variance("slope")
    squares = slope**2
    slope = slope * np.divide(squares, squares + noise, out=np.zeros_like(squares), where=squares + noise > 0)
    share = slope / max(float(slope.sum()), 1e-300)
    variance = answer.variance("score") + clients / query.reach**2 * share
    variance = np.maximum(variance, _MIN_RELATIVE_VARIANCE * (slope**2 + 1.0))
    odds = query.axis.odds(query.cells)
    return ClientSums(odds, score, slope, variance, (float(odds[0]), float(odds[-1])))


def _curve(said: Likelihood) -> Calibrator:
    """The averaged curve, or an identity where it changes nothing."""
    nodes, values = said.averaged()
    if np.abs(values - nodes).max() < _LEAST_CHANGE:
        return Identity(NOTHING_FOUND)
    return OddsCurve(tuple(nodes.tolist()), tuple(values.tolist()))


def _bounded(found: Calibrator, far: bool) -> Calibrator:
    """A curve whose claims noise allows to check, or an identity where neither it nor the bound changes anything."""
    return found if isinstance(found, Identity) and not far else chained(found, BOUNDED)
