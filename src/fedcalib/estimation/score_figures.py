"""All figures of a binary classifier by name, with their intervals, from one table of scores.

Where sums are exact, `ScoreTotals` replaces what cells can only approximate. A figure whose interval is wider than half
of what is possible is not measured; the reason says how many records or how much epsilon it would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, sqrt
from typing import Final, final

import numpy as np

from fedcalib.estimation import logistic, score_functionals
from fedcalib.estimation.calibration_figures import Gaps, SmoothCurve, debiased_error, gap_error, smooth_error
from fedcalib.estimation.decisions import Decisions
from fedcalib.estimation.estimates import Estimate, Ratios, Z
from fedcalib.estimation.logistic import ScoreTest
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import NEGATIVE, POSITIVE
from fedcalib.metrics import table
from fedcalib.metrics.intervals import Measured
from fedcalib.types import Floats

_SPANS: Final = {
    table.YOUDEN.name: 2.0,
    table.SLOPE.name: 2.0,
    table.INTERCEPT.name: 4.0,
    table.CALIBRATION_IN_THE_LARGE.name: 4.0,
    table.OBSERVED_EXPECTED.name: 4.0,
    table.NLL.name: 2.0,
    table.SCALED_BRIER.name: 2.0,
}  # of figures that are not between 0 and 1: from worthless to perfect, about
_BEYOND: Final = frozenset(
    {
        table.NLL.name,
        table.SLOPE.name,
        table.INTERCEPT.name,
        table.CALIBRATION_IN_THE_LARGE.name,
        table.OBSERVED_EXPECTED.name,
        table.E50.name,
        table.E90.name,
    }
)  # figures that need every single log-odds
_OUTSIDE: Final = (
    "not measurable with this table: many scores lie beyond odds of 1 to {odds}, where it has one cell; state a larger "
    "public number of records for a wider one"
)
_MOST_DOUBT: Final = 3.0  # that counts in how many records are needed
_REGRESSION: Final = 4.0  # times as many records as counts need, about
_NO_RECORD: Final = 0.5  # sums over fewer than half a record are sums over none
UNKNOWN: Final = Measured(float("nan"), 0.0, 1.0)


@final
@dataclass(frozen=True, eq=False)
class ScoreTotals:
    """Exact sums over records: see `queries.scores.ScoreSums`."""

    means: Floats  # (3,): log loss, squared error, score
    squares: Floats  # (4,): their squares, and score x label
    decisions: Floats  # (3,): right, true positives and false positives at the threshold
    bins: Floats  # (2, bins)
    confidence: Floats  # (bins,)

    @property
    def records(self) -> float:
        return float(self.bins.sum())

    @property
    def positives(self) -> float:
        return float(self.bins[POSITIVE].sum())

    def mean(self, index: int) -> Estimate:
        """The mean of one of the three, with its sampling variance."""
        value = float(self.means[index]) / self.records
        variance = max(float(self.squares[index]) / self.records - value**2, 0.0) / max(self.records - 1, 1.0)
        return Estimate(value, variance, 0.0)


@final
@dataclass(frozen=True, eq=False)
class BinaryFigures:
    """Every figure of a sheet at one threshold; exact where there are exact sums."""

    sheet: ScoreSheet
    threshold: float
    bins: int
    totals: ScoreTotals | None = None
    epsilon: float | None = None

    @cached_property
    def all(self) -> dict[str, Measured]:
        """The figures by name; NaN where the counts do not determine one."""
        negative, positive, records = self.sheet.known.tolist()
        known = records and (self.totals is None or self.totals.records > _NO_RECORD)
        both = known and negative and positive
        found = {name: make(self) if both else UNKNOWN for name, make in _OF_BOTH.items()}
        found |= {name: make(self) if known else UNKNOWN for name, make in _OF_RECORDS.items()}
        return found | self.decisions(self.threshold)

    def decisions(self, threshold: float) -> dict[str, Measured]:
        """What calling records with at least this score positive leads to."""
        if not self.sheet.known[2] or (self.totals is not None and not self.totals.records > _NO_RECORD):
            return dict.fromkeys(DECISIONS, UNKNOWN)
        if self.totals is not None and threshold == self.threshold:
            return _exact_decisions(self.totals, threshold)
        at = Decisions(self.sheet, np.array([threshold]))
        rates = {name: getattr(at, name)().rate() for name in _RATES}
        youden = at.youden(0).normal(-1.0, 1.0) if self.sheet.known.all() else UNKNOWN
        benefit = at.net_benefit(0).normal(high=1.0)
        return _ordered(rates, youden, benefit)

    @cached_property
    def gaps(self) -> Gaps:
        return Gaps(self.sheet, self.bins)

    @cached_property
    def curve(self) -> SmoothCurve | None:
        return SmoothCurve.of(self.sheet)

    @cached_property
    def _line(self) -> logistic.LogisticFit | None:
        return logistic.calibration_line(self.sheet)

    def auc(self) -> Measured:
        figure = score_functionals.area(self.sheet)
        found = self.sheet.estimate(figure)
        extra = score_functionals.second_order_area(self.sheet, figure.value)
        return self._of_few(Estimate(found.value, found.sampling, found.noise + extra, found.reading)).share()

    def average_precision(self) -> Measured:
        """The lower end is that of the value without what each positive adds to its own precision."""
        found = self._of_few(self.sheet.estimate(score_functionals.average_precision(self.sheet)))
        less = replace(found, value=found.value - score_functionals.precision_excess(self.sheet))
        own, lower = (each.share() if self.sheet.table.exact else each.skewed_share() for each in (found, less))
        return Measured(own.value, min(own.low, lower.low), own.high)

    def _of_few(self, found: Estimate) -> Estimate:
        """An estimate whose sampling variance the rarer label decides: Student's quantile instead of a normal one.

        A variance around an estimated mean is too small by one degree of freedom.
        """
        degrees = max(float(self.sheet.counts.sum(axis=1).min()) - 1, 1.0)
        student = (1 + (Z**2 + 1) / (4 * degrees)) ** 2 * (degrees + 1) / degrees
        return replace(found, sampling=found.sampling * student)

    def accuracy(self) -> Measured:
        if self.totals is not None:
            return _rate(float(self.totals.decisions[0]), self.totals.records)
        return Decisions(self.sheet, np.array([0.5])).accuracy().rate()

    def nll(self) -> Measured:
        found = (
            self.sheet.estimate(score_functionals.log_loss(self.sheet)) if self.totals is None else self.totals.mean(0)
        )
        return found.positive()

    def brier(self) -> Measured:
        found = self.sheet.estimate(score_functionals.brier(self.sheet)) if self.totals is None else self.totals.mean(1)
        return found.positive(1.0)

    def scaled_brier(self) -> Measured:
        found = self.sheet.estimate(score_functionals.scaled_brier(self.sheet))
        if self.totals is not None:
            rate = self.totals.positives / self.totals.records
            value = 1 - self.totals.mean(1).value / (rate * (1 - rate))
            found = replace(found, value=value)
        return self._of_few(found).skewed(high=1.0)

    def prevalence(self) -> Measured:
        if self.totals is not None:
            return _rate(self.totals.positives, self.totals.records)
        weights = score_functionals.labels(self.sheet.table.cells)[None]
        return self.sheet.ratios(weights, np.ones_like(weights)).rate()

    def observed_expected(self) -> Measured:
        if not self.sheet.stands_out(score_functionals.scores(self.sheet)):
            return UNKNOWN
        if self.totals is None:
            return score_functionals.observed_expected_interval(self.sheet)
        found = self.sheet.estimate(score_functionals.observed_expected(self.sheet))
        return Estimate(self.totals.positives / float(self.totals.means[2]), found.sampling, 0.0).positive()

    def slope(self) -> Measured:
        return UNKNOWN if self._line is None else ScoreTest(self.sheet, self._line, 1).interval()

    def intercept(self) -> Measured:
        return UNKNOWN if self._line is None else ScoreTest(self.sheet, self._line, 0).interval()

    def calibration_in_the_large(self) -> Measured:
        fit = logistic.in_the_large(self.sheet)
        return UNKNOWN if fit is None else ScoreTest(self.sheet, fit, 0).interval()

    def ece(self) -> Measured:
        if self.totals is None:
            return self.gaps.error()
        gap = self.totals.confidence - self.totals.bins[POSITIVE]
        return gap_error(gap, gap, np.zeros((self.bins, self.bins)), self.gaps.sampling, self.totals.records)

    def debiased_ece(self) -> Measured:
        if self.totals is None:
            noise = np.diag(self.gaps.noise)
            count = self.gaps.counts.sum(axis=0)
            return debiased_error(self.gaps.gap, noise, self.gaps.sampling, count, self.sheet.records)
        negative, positive = self.totals.bins
        count = negative + positive
        gap = self.totals.confidence - positive
        spread = np.divide(positive * negative, count - 1, out=np.zeros_like(count), where=count > 1)
        single = count > 1
        noise = np.zeros(int(single.sum()))
        return debiased_error(gap[single], noise, spread[single], count[single], self.totals.records)

    def smooth_ece(self) -> Measured:
        return smooth_error(self.sheet)

    def ici(self) -> Measured:
        return UNKNOWN if self.curve is None else self.curve.ici()

    def e50(self) -> Measured:
        return UNKNOWN if self.curve is None else self.curve.quantile(0.5)

    def e90(self) -> Measured:
        return UNKNOWN if self.curve is None else self.curve.quantile(0.9)

    def reason(self, name: str) -> str:
        """Why a figure is not stated; empty where it is."""
        found, half = self.all[name], _SPANS.get(name, 1.0) / 2
        half *= max(found.value, 1.0) if name == table.OBSERVED_EXPECTED.name else 1.0  # a ratio
        width = found.high - found.low
        known = isfinite(found.value) and isfinite(width)
        if known and name in _BEYOND and (self.totals is None or name != table.NLL.name) and self.sheet.open_ends.any():
            return _OUTSIDE.format(odds=f"{np.exp(float(np.abs(self.sheet.odds).max())):,.0f}")
        doubt = self._doubt(name) if known else 1.0
        if known and width * doubt <= half:
            return ""
        if self.sheet.table.exact:
            return "" if known else _undefined(self.sheet)
        if known:
            return self._needs(max(min(doubt, _MOST_DOUBT) * width / half, 1.2))
        return self._needs(self._short() * (_REGRESSION if name in _OF_LINE | _OF_CURVE else 1.0))

    def _doubt(self, name: str) -> float:
        """By how much the interval may be too narrow because noise makes what it rests on look large."""
        fit = self._line if name in _OF_LINE else self.curve and self.curve.fit if name in _OF_CURVE else None
        label = self.sheet.doubt[:2].max() if name in _OF_LABELS else 1.0
        return max(float(self.sheet.doubt[2]), float(label), 1.0 if fit is None else fit.doubt)

    def _short(self) -> float:
        """How many times more records would lift all totals above their noise."""
        totals = np.append(self.sheet.table.totals, self.sheet.records)
        noise = self.sheet.table.total_deviations
        return float(np.clip((4 * noise / np.maximum(totals, noise / 2)).max(), 1.5, 1e6))

    def _needs(self, factor: float) -> str:
        floor = max(self.sheet.records, float(self.sheet.table.total_deviations[2]))
        records = f"about {_rounded(floor * factor)} records"
        other = "" if self.epsilon is None else f" or epsilon {_rounded(self.epsilon * factor)}"
        return f"not measurable at this epsilon: needs {records}{other}"


def _rounded(number: float) -> str:
    return f"{float(f'{number:.2g}'):,g}" if number < 1e6 else f"{number:.1e}"


def _undefined(sheet: ScoreSheet) -> str:
    if sheet.records <= 0.5:
        return "undefined: there are no records"
    if not sheet.known[:2].all():
        return f"undefined: there are no {'positives' if sheet.known[NEGATIVE] else 'negatives'}"
    return "undefined: the records do not determine it"


def _rate(part: float, whole: float) -> Measured:
    one = np.ones(1)
    return Ratios(one * part / max(whole, 1e-300), one * whole, 0 * one, 0 * one).rate() if whole > 0 else UNKNOWN


_OF_LINE: Final = frozenset({table.SLOPE.name, table.INTERCEPT.name})
_OF_CURVE: Final = frozenset({table.ICI.name, table.E50.name, table.E90.name})
_OF_LABELS: Final = frozenset(
    {
        *(table.AUC.name, table.AVERAGE_PRECISION.name, table.SCALED_BRIER.name, table.F1.name),
        *(table.SENSITIVITY.name, table.SPECIFICITY.name, table.BALANCED_ACCURACY.name, table.YOUDEN.name),
    }
)


def _difference(one: Measured, other: Measured, weight: float) -> Measured:
    """A rate less a weight times another rate of the same records, from the two intervals."""
    value = one.value - weight * other.value
    both = one.value * other.value / max((1 - one.value) * (1 - other.value), 1e-300)
    against = min(both, 1.0) ** 0.5  # a record in one is not in the other
    below = _together(one.value - one.low, weight * (other.high - other.value), against)
    above = _together(one.high - one.value, weight * (other.value - other.low), against)
    return Measured(value, value - below, min(value + above, 1.0))


def _together(one: float, other: float, correlation: float) -> float:
    return sqrt(one**2 + other**2 + 2 * correlation * one * other)


def _f1(hit: float, false: float, missed: float) -> Measured:
    """F1 with the interval of a proportion of as many records as have the same sampling variance."""
    whole = 2 * hit + false + missed
    if whole <= 0:
        return UNKNOWN
    value, one = 2 * hit / whole, np.ones(1)
    variance = (hit * (2 - 2 * value) ** 2 + (false + missed) * value**2) / whole**2
    records = value * (1 - value) / variance if 0 < value < 1 else whole / 2
    return Ratios(one * value, one * records, 0 * one, 0 * one).rate()


_RATES: Final = (
    table.SENSITIVITY.name,
    table.SPECIFICITY.name,
    table.PPV.name,
    table.NPV.name,
    table.F1.name,
    table.ALERT_RATE.name,
    table.ACCURACY.name,
)
DECISIONS: Final = (
    *(
        table.SENSITIVITY.name,
        table.SPECIFICITY.name,
        table.PPV.name,
        table.NPV.name,
        table.F1.name,
        table.BALANCED_ACCURACY.name,
        table.YOUDEN.name,
        table.NET_BENEFIT.name,
        table.ALERT_RATE.name,
    ),
)


def _ordered(rates: Mapping[str, Measured], youden: Measured, benefit: Measured) -> dict[str, Measured]:
    halved = Measured((youden.value + 1) / 2, (youden.low + 1) / 2, (youden.high + 1) / 2)
    balanced = UNKNOWN if youden is UNKNOWN else halved
    found = {
        **rates,
        table.BALANCED_ACCURACY.name: balanced,
        table.YOUDEN.name: youden,
        table.NET_BENEFIT.name: benefit,
    }
    return {name: found[name] for name in (*DECISIONS, table.ACCURACY.name) if name in found}


def _exact_decisions(totals: ScoreTotals, threshold: float) -> dict[str, Measured]:
    """The same from exact counts at the threshold."""
    n, P = totals.records, totals.positives
    N, hit, false = n - P, float(totals.decisions[1]), float(totals.decisions[2])
    rates = {
        table.SENSITIVITY.name: _rate(hit, P),
        table.SPECIFICITY.name: _rate(N - false, N),
        table.PPV.name: _rate(hit, hit + false),
        table.NPV.name: _rate(N - false, n - hit - false),
        table.F1.name: _f1(hit, false, P - hit),
        table.ALERT_RATE.name: _rate(hit + false, n),
    }
    parts = [(hit, P), (N - false, N)]
    smooth = [(part + 2) / (whole + 4) for part, whole in parts]
    both = P > 0 and N > 0
    variance = sum(rate * (1 - rate) / max(whole, 1.0) for rate, (_, whole) in zip(smooth, parts, strict=True))
    youden = Estimate(hit / P + (N - false) / N - 1, variance, 0.0).normal(-1.0, 1.0) if both else UNKNOWN
    odds = threshold / (1 - threshold) if threshold < 1 else 0.0
    return _ordered(rates, youden, _difference(_rate(hit, n), _rate(false, n), odds))


_Make = Callable[[BinaryFigures], Measured]
_OF_BOTH: Final[Mapping[str, _Make]] = {
    table.AUC.name: BinaryFigures.auc,
    table.AVERAGE_PRECISION.name: BinaryFigures.average_precision,
    table.CALIBRATION_IN_THE_LARGE.name: BinaryFigures.calibration_in_the_large,
    table.SLOPE.name: BinaryFigures.slope,
    table.INTERCEPT.name: BinaryFigures.intercept,
    table.OBSERVED_EXPECTED.name: BinaryFigures.observed_expected,
    table.ICI.name: BinaryFigures.ici,
    table.E50.name: BinaryFigures.e50,
    table.E90.name: BinaryFigures.e90,
    table.SCALED_BRIER.name: BinaryFigures.scaled_brier,
}
_OF_RECORDS: Final[Mapping[str, _Make]] = {
    table.ACCURACY.name: BinaryFigures.accuracy,
    table.ECE.name: BinaryFigures.ece,
    table.DEBIASED_ECE.name: BinaryFigures.debiased_ece,
    table.SMOOTH_ECE.name: BinaryFigures.smooth_ece,
    table.NLL.name: BinaryFigures.nll,
    table.BRIER.name: BinaryFigures.brier,
    table.PREVALENCE.name: BinaryFigures.prevalence,
}
