"""FederatedMetrics: every metric that is a sum of binned statistics, over all clients, from one message.

ScoreCurves: evaluate a binary classifier from one private count of its scores.

PerClientECE: how badly calibrated the usual client is, though no client is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.evaluation import ClientErrors, Curves, MetricsReport
from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import noisy_auc, noisy_gap_error, noisy_mean, noisy_proportion
from fedcalib.flows.score_table import recounted, score_table, two_classes
from fedcalib.method import Flow, Method
from fedcalib.metrics.calibration_line import fit_counts
from fedcalib.metrics.intervals import Interval, Measured, normal_quantile
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.smooth_ece import smooth_ece_of_residuals
from fedcalib.queries.reliability import (
    ClasswiseResiduals,
    Hits,
    Losses,
    OwnErrors,
    ScoreGaps,
    ScoreHistogram,
    TopLabelTable,
)
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.query import Answer, Join, Query
from fedcalib.records import Schema
from fedcalib.types import Floats

_NO_RECORD = 0.5
_FINER = 16  # leaves of the score histogram a bin


@final
@dataclass(frozen=True)
class FederatedMetrics(Method[MetricsReport]):
    """Measure a classifier across clients: accuracy, calibration errors, losses and, with two classes, ranking.

    With two classes, ECE is that of the score of class 1, and classwise ECE the same: the other class mirrors it. With
    more, ECE is that of the top label. The log loss is cut at ln(classes) + `margin`, a public bound, so that one
    record cannot add more.
    """

    bins: int = 15
    margin: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 12 or not 0 < self.margin < 100:
            raise InputError(f"Expected 1 to 4096 bins and a margin above 0, found {self.bins} and {self.margin}.")

    def protocol(self, schema: Schema) -> Flow[MetricsReport]:
        """Ask everything at once and read it off."""
        worst = log(schema.classes) + self.margin
        own: tuple[Query, ...] = (
            (ScoreHistogram(_FINER * self.bins), ScoreGaps(self.bins))
            if schema.classes == 2
            else (TopLabelTable(self.bins), ClasswiseResiduals(schema.classes, self.bins))
        )
        join = Join((Hits(), Losses(worst), *own))
        answer = yield join
        hits, losses, first, second = (answer.part(join, index) for index in range(4))
        table = _binary_table(first, second) if schema.classes == 2 else _top_table(first)
        general = _General.of(hits, losses, worst)
        if general is None:
            return MetricsReport.nothing(table.reliability, table.count_noise, table.gap_noise)
        return _binary(general, table, first) if schema.classes == 2 else _multiclass(general, table, second)


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """A reliability table with the noise on its counts and gaps."""

    reliability: Reliability
    gap: Floats  # (bins,)
    count_noise: float
    gap_noise: float

    def ece(self, records: float) -> Measured:
        """Estimate the calibration error."""
        counts = self.reliability.correct[0], self.reliability.count[0]
        return _measured(*noisy_gap_error(self.gap, self.gap_noise, _binomial_spread(*counts), records))


@final
@dataclass(frozen=True)
class _General:
    """What both kinds of classifier have: the number of records, accuracy and losses."""

    records: float
    accuracy: Measured
    nll: Measured
    brier: Measured

    @classmethod
    def of(cls, hits: Answer, losses: Answer, worst: float) -> _General | None:
        """Read accuracy and losses, unless there is nothing to read."""
        right, wrong = hits["hits"].tolist()
        noise = float(hits.variance("hits")[0])
        records = right + wrong
        if records <= max(3 * (2 * noise) ** 0.5, _NO_RECORD):
            return None
        nll, nll2, brier, brier2 = losses["losses"].tolist()
        spread = float(losses.variance("losses")[0])
        return cls(
            records,
            _measured(*noisy_proportion(right, wrong, noise)),
            _measured(*_scaled(noisy_mean(nll, nll2, records, spread, 2 * noise), worst), worst),
            _measured(*_scaled(noisy_mean(brier, brier2, records, spread, 2 * noise), 2.0), 2.0),
        )


def _top_table(top: Answer) -> _Table:
    counts, gap = top["counts"], top["gap"]
    table = Reliability(counts.sum(axis=0)[None], (counts[0] + gap)[None], counts[0][None])
    return _Table(table, gap, _level(top, "counts"), _level(top, "gap"))


def _binary_table(scores: Answer, gaps: Answer) -> _Table:
    gap = gaps["gap"]
    negative, positive = scores["scores"].reshape(2, len(gap), _FINER).sum(axis=2)
    table = Reliability((negative + positive)[None], (positive + gap)[None], positive[None])
    return _Table(table, gap, _FINER * _level(scores, "scores"), _level(gaps, "gap"))


def _multiclass(general: _General, table: _Table, classes: Answer) -> MetricsReport:
    residual = classes["residual"]
    spread = np.maximum(classes["spread"], 0.0)
    cells = general.records * len(residual)
    return MetricsReport(
        accuracy=general.accuracy,
        ece=table.ece(general.records),
        cwece=_measured(*noisy_gap_error(residual, classes.variance("residual"), spread, cells)),
        nll=general.nll,
        brier=general.brier,
        debiased_squared_ece=_finite(table.reliability.debiased_squared(table.gap_noise)),
        reliability=table.reliability,
        count_variance=table.count_noise,
        gap_variance=table.gap_noise,
    )


def _binary(general: _General, table: _Table, scores: Answer) -> MetricsReport:
    negative, positive = scores["scores"]
    noise = _level(scores, "scores")
    ece = table.ece(general.records)
    floor = max(3 * (noise * len(positive)) ** 0.5, _NO_RECORD)
    drowned = positive.sum() <= floor or negative.sum() <= floor
    middle = (np.arange(len(positive)) + 0.5) / len(positive)
    held = positive + negative
    odds = np.log(middle / (1 - middle))
    intercept, slope = fit_counts(np.stack([np.ones_like(odds), odds], axis=1), positive, negative)
    expected = float((held * middle).sum())
    return MetricsReport(
        accuracy=general.accuracy,
        ece=ece,
        cwece=ece,
        nll=general.nll,
        brier=general.brier,
        auc=None if drowned else _measured(*noisy_auc(positive, negative, noise)),
        debiased_squared_ece=_finite(table.reliability.debiased_squared(table.gap_noise)),
        slope=None if drowned else _finite(float(slope)),
        intercept=None if drowned else _finite(float(intercept)),
        observed_expected=None if drowned or expected <= 0 else float(positive.sum()) / expected,
        smooth_ece=None if drowned else smooth_ece_of_residuals(held * middle - positive, float(held.sum())),
        reliability=table.reliability,
        count_variance=table.count_noise,
        gap_variance=table.gap_noise,
        warnings=("AUC is left out: a class has too few records, or drowns in noise.",) if drowned else (),
    )


def _binomial_spread(correct: Floats, count: Floats) -> Floats:
    """Estimate the sampling variance of each bin's gap; two pseudo-records a side keep small bins honest."""
    held = np.maximum(count, 0.0)
    share = np.clip((correct + 2) / np.maximum(held + 4, 1.0), 0.0, 1.0)
    spread: Floats = np.where(held > 0, held * share * (1 - share), 0.0)
    return spread


def _level(answer: Answer, block: str) -> float:
    """Give the noise variance of a block whose cells all carry the same."""
    return float(answer.variance(block).max(initial=0.0))


def _measured(value: float, interval: Interval, largest: float = 1.0) -> Measured:
    """Keep a figure and its interval where the metric can be, however loud the noise."""
    low, middle, high = np.clip([interval.low, value, interval.high], 0.0, largest).tolist()
    return Measured(middle, low, high)


def _scaled(estimate: tuple[float, Interval], unit: float) -> tuple[float, Interval]:
    value, interval = estimate
    return value * unit, Interval(interval.low * unit, interval.high * unit, interval.level)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


@final
@dataclass(frozen=True)
class ScoreCurves(Method[Curves]):
    """Count labels by score in a tree, once, and answer every metric at every threshold from that.

    With `recount` above 0, the tree only finds `buckets` equi-depth buckets, and a second query counts those with
    that share of the budget.
    """

    tree: ScoreTree = TREE
    buckets: int = 100
    recount: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.recount < 1:
            raise InputError(f"Expected a share of the budget from 0 to below 1 for recounting, found {self.recount}.")
        if not 2 <= self.buckets <= 1 << 16:
            raise InputError(f"Expected 2 to 2^16 buckets, found {self.buckets}.")

    def protocol(self, schema: Schema) -> Flow[Curves]:
        """Ask once, or once for edges and once for counts."""
        two_classes(schema)
        if self.recount == 0:
            return Curves((yield from score_table(self.tree)))
        return Curves((yield from recounted(self.tree, self.buckets, self.recount)))


_NOTHING = ClientErrors(
    None, None, ("Nothing can be said: too few clients have records enough, or noise drowns them.",)
)


@final
@dataclass(frozen=True)
class PerClientECE(Method[ClientErrors]):
    """Average clients' own calibration errors of the top label: a model can be right on the whole and wrong for all.

    Clients with fewer than `fewest` records stay out. Small clients look worse than they are, since chance alone parts
    confidence from accuracy; compare the figure before and after a calibrator, or between models, on the same clients.
    """

    bins: int = 15
    fewest: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1 or self.fewest < 1:
            raise InputError(f"Expected a bin and a record at least, found {self.bins} and {self.fewest}.")

    def protocol(self, schema: Schema) -> Flow[ClientErrors]:
        """Ask once: clients, errors and squares."""
        answer = yield OwnErrors(self.bins, self.fewest)
        clients, errors, squares = answer["errors"].tolist()
        noise = float(answer.variance("errors").max(initial=0.0))
        if not clients > max(3 * sqrt(noise), 1.0) or not isfinite(clients + errors + squares):
            return _NOTHING
        mean = min(max(errors / clients, 0.0), 1.0)
        between = min(max(squares / clients - mean**2, 0.0), 0.25)
        doubt = between / (clients - 1) + noise * (1 + mean**2) / clients**2
        half = normal_quantile(0.95) * sqrt(doubt)
        return ClientErrors(Measured(mean, max(mean - half, 0.0), min(mean + half, 1.0)), sqrt(between))
