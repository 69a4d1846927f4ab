"""Evaluation of a classifier over all clients.

`FederatedMetrics` estimates every metric that is a sum of binned statistics, from one message. `ScoreCurves` evaluates
a binary classifier at every threshold from one private count of its scores. `PerClientECE` averages clients' own
calibration errors without showing any single client's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite, log, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.evaluation import ClientErrors, Curves, MetricsReport
from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import noisy_auc, noisy_gap_error, noisy_mean, noisy_proportion
from fedcalib.flows.tables import raw_table, recounted, score_table, two_classes
from fedcalib.method import Flow, Method
from fedcalib.metrics.calibration_line import fit_counts
from fedcalib.metrics.intervals import Interval, Measured, normal_quantile
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.smooth_ece import smooth_ece_of_residuals
from fedcalib.queries import reliability
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.query import Answer, Join, Query
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_MIN_RECORDS = 0.5  # less is nobody, whatever rounding left
_LEAVES_PER_BIN = 16  # of the score histogram
_NO_AUC = "AUC is left out: a class has too few records, or its count is within its noise."


@final
@dataclass(frozen=True)
class FederatedMetrics(Method[MetricsReport]):
    """Measure a classifier across clients: accuracy, calibration errors, losses and, with two classes, ranking.

    With two classes, ECE is that of the score of class 1, and classwise ECE the same: the other class mirrors it. With
    more, ECE is that of the top label.

    Parameters
    ----------
    bins
        Number of bins of equal width.
    margin
        The log loss of a record is clipped at ln(classes) + `margin`, a public bound.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated()
    >>> report = fc.run(fc.FederatedMetrics(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(report.accuracy.value, 2), round(report.ece.value, 2)
    (0.74, 0.12)
    >>> round(fc.metrics.accuracy(federation.records.probs, federation.records.labels), 2)
    0.74
    """

    bins: int = 15
    margin: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 12 or not 0 < self.margin < 100:
            raise InputError(f"Expected 1 to 4096 bins and a margin above 0, found {self.bins} and {self.margin}.")

    def protocol(self, schema: Schema) -> Flow[MetricsReport]:
        max_loss = log(schema.classes) + self.margin
        own: tuple[Query, ...] = (
            (reliability.ScoreHistogram(_LEAVES_PER_BIN * self.bins), reliability.ScoreGaps(self.bins))
            if schema.classes == 2
            else (reliability.TopLabelTable(self.bins), reliability.ClasswiseResiduals(schema.classes, self.bins))
        )
        join = Join((reliability.Hits(), reliability.Losses(max_loss), *own))
        answer = yield join
        hits, losses, first, second = (answer.part(join, index) for index in range(4))
        table = _binary_table(first, second) if schema.classes == 2 else _top_table(first)
        general = _General.of(hits, losses, max_loss)
        if general is None:
            return MetricsReport.nothing(table.reliability, table.count_noise, table.gap_noise)
        return _binary(general, table, first) if schema.classes == 2 else _multiclass(general, table, second)


@final
@dataclass(frozen=True, eq=False)
class _ReliabilityTable:
    """A reliability table with the noise on its counts and gaps."""

    reliability: Reliability
    gap: Floats  # (bins,)
    count_noise: float
    gap_noise: float

    def ece(self, records: float) -> Measured:
        counts = self.reliability.correct[0], self.reliability.count[0]
        return _measured(*noisy_gap_error(self.gap, self.gap_noise, _binomial_variance(*counts), records))


@final
@dataclass(frozen=True)
class _General:
    """What both kinds of classifier have: the number of records, accuracy and losses."""

    records: float
    accuracy: Measured
    nll: Measured
    brier: Measured

    @classmethod
    def of(cls, hits: Answer, losses: Answer, max_loss: float) -> _General | None:
        """Accuracy and losses, or None where the number of records is within its noise."""
        right, wrong = hits["hits"].tolist()
        noise = float(hits.variance("hits")[0])
        records = right + wrong
        if records <= max(3 * (2 * noise) ** 0.5, _MIN_RECORDS):
            return None
        nll, nll2, brier, brier2 = losses["losses"].tolist()
        loss_noise = float(losses.variance("losses")[0])
        return cls(
            records,
            _measured(*noisy_proportion(right, wrong, noise)),
            _measured(*_scaled(noisy_mean(nll, nll2, records, loss_noise, 2 * noise), max_loss), max_loss),
            _measured(*_scaled(noisy_mean(brier, brier2, records, loss_noise, 2 * noise), 2.0), 2.0),
        )


def _top_table(top: Answer) -> _ReliabilityTable:
    counts, gap = top["counts"], top["gap"]
    table = Reliability(counts.sum(axis=0)[None], (counts[0] + gap)[None], counts[0][None])
    return _ReliabilityTable(table, gap, _level(top, "counts"), _level(top, "gap"))


def _binary_table(scores: Answer, gaps: Answer) -> _ReliabilityTable:
    gap = gaps["gap"]
    negative, positive = scores["scores"].reshape(2, len(gap), _LEAVES_PER_BIN).sum(axis=2)
    table = Reliability((negative + positive)[None], (positive + gap)[None], positive[None])
    return _ReliabilityTable(table, gap, _LEAVES_PER_BIN * _level(scores, "scores"), _level(gaps, "gap"))


def _report(general: _General, table: _ReliabilityTable) -> MetricsReport:
    """What both kinds of classifier have; class-wise ECE is taken to be the same as ECE."""
    ece = table.ece(general.records)
    return MetricsReport(
        accuracy=general.accuracy,
        ece=ece,
        cwece=ece,
        nll=general.nll,
        brier=general.brier,
        debiased_squared_ece=_finite(table.reliability.debiased_squared(table.gap_noise)),
        reliability=table.reliability,
        count_variance=table.count_noise,
        gap_variance=table.gap_noise,
    )


def _multiclass(general: _General, table: _ReliabilityTable, classes: Answer) -> MetricsReport:
    residual, noise = classes["residual"], classes.variance("residual")
    error = noisy_gap_error(residual, noise, np.maximum(classes["spread"], 0.0), general.records * len(residual))
    return replace(_report(general, table), cwece=_measured(*error))


def _binary(general: _General, table: _ReliabilityTable, scores: Answer) -> MetricsReport:
    negative, positive = scores["scores"]
    noise = _level(scores, "scores")
    report = _report(general, table)
    floor = max(3 * (noise * len(positive)) ** 0.5, _MIN_RECORDS)
    if positive.sum() <= floor or negative.sum() <= floor:
        return replace(report, warnings=(_NO_AUC,))
    middle = (np.arange(len(positive)) + 0.5) / len(positive)
    counts = positive + negative
    odds = np.log(middle / (1 - middle))
    intercept, slope = fit_counts(np.stack([np.ones_like(odds), odds], axis=1), positive, negative)
    expected = float((counts * middle).sum())
    return replace(
        report,
        auc=_measured(*noisy_auc(positive, negative, noise)),
        slope=_finite(float(slope)),
        intercept=_finite(float(intercept)),
        observed_expected=None if expected <= 0 else float(positive.sum()) / expected,
        smooth_ece=smooth_ece_of_residuals(counts * middle - positive, float(counts.sum())),
    )


def _binomial_variance(correct: Floats, count: Floats) -> Floats:
    """Sampling variance of each bin's gap; two pseudo-records of either kind keep that of small bins from vanishing."""
    records = np.maximum(count, 0.0)
    accuracy = np.clip((correct + 2) / np.maximum(records + 4, 1.0), 0.0, 1.0)
    return np.where(records > 0, records * accuracy * (1 - accuracy), 0.0)


def _level(answer: Answer, block: str) -> float:
    """The noise variance of a block whose cells all carry the same."""
    return float(answer.variance(block).max(initial=0.0))


def _measured(value: float, interval: Interval, largest: float = 1.0) -> Measured:
    """A figure and its interval, clipped to the metric's range."""
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
    """Evaluate a binary classifier at every threshold from one count of labels by score, in a tree.

    Parameters
    ----------
    tree
        The tree of scores to count.
    buckets
        Number of equi-depth buckets to recount.
    recount
        With a value above 0, the tree only finds the buckets, and a second query counts them with that fraction of the
        budget.
    raw
        Read a binary tree as published, with nothing made consistent; intervals then leave privacy noise out.
    batches
        With `raw`, deal clients to levels: one query per level. Run it with `Disjoint(height)`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> curves = fc.run(fc.ScoreCurves(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(curves.auc.value, 2), round(fc.metrics.roc_auc(federation.records.score, federation.records.labels), 2)
    (0.92, 0.92)
    """

    tree: ScoreTree = TREE
    buckets: int = 100
    recount: float = 0.0
    raw: bool = field(default=False, metadata=ADDED)
    batches: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 0 <= self.recount < 1:
            raise InputError(f"Expected a fraction from 0 to below 1 for recounting, found {self.recount}.")
        if not 2 <= self.buckets <= 1 << 20:
            raise InputError(f"Expected 2 to 2^20 buckets, found {self.buckets}.")
        if (self.raw and (self.tree.arity != 2 or self.recount)) or (self.batches and not self.raw):
            raise InputError("Expected a binary tree without recounting for raw, and raw for batches, found others.")

    @classmethod
    def as_published(cls, height: int = 10, buckets: int | None = None, *, batches: bool = False) -> ScoreCurves:
        """The tree of "Federated Calibration and Evaluation of Binary Classifiers", section 2.3: binary, read raw.

        Run it with `SecAgg()`, with `DistributedDP(1.0)`, whose budget the levels share, or with
        `LocalDP(5.0, unary=True)`, where each record reports one level by optimal unary encoding.

        Parameters
        ----------
        height
            Number of levels; the paper takes 10 with distributed noise and 8 with local reports.
        buckets
            Number of equi-depth buckets, for the AUC of section 4; None for the leaves, from which section 3 reads
            precision, recall and accuracy.
        batches
            Deal clients to levels instead, as the paper offers for distributed noise: run it with `Disjoint(height)`,
            and each level has all of epsilon.
        """
        return cls(ScoreTree(2, height), buckets or 2**height, raw=True, batches=batches)

    def protocol(self, schema: Schema) -> Flow[Curves]:
        two_classes(schema)
        if self.raw:
            clients = schema.clients if self.batches else None
            return Curves((yield from raw_table(self.tree, self.buckets, clients)))
        if self.recount == 0:
            return Curves((yield from score_table(self.tree)))
        return Curves((yield from recounted(self.tree, self.buckets, self.recount)))


_TOO_FEW = "No estimate: too few clients have enough records, or their number is within its noise."


@final
@dataclass(frozen=True)
class PerClientECE(Method[ClientErrors]):
    """Average the clients' own calibration errors of the top label.

    A classifier can be calibrated on the whole and wrong for every client. Small clients look worse than they are,
    since chance alone separates confidence from accuracy; compare the figure before and after a calibrator, or between
    models, on the same clients.

    Parameters
    ----------
    bins
        Number of bins of equal width.
    fewest
        Clients with fewer records are left out.

    Examples
    --------
    >>> import fedcalib as fc
    >>> errors = fc.run(fc.PerClientECE(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> round(errors.mean.value, 2)
    0.13
    """

    bins: int = 15
    fewest: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1 or self.fewest < 1:
            raise InputError(f"Expected at least 1 bin and 1 record per client, found {self.bins} and {self.fewest}.")

    def protocol(self, schema: Schema) -> Flow[ClientErrors]:
        answer = yield reliability.OwnErrors(self.bins, self.fewest)
        clients, errors, squares = answer["errors"].tolist()
        noise = float(answer.variance("errors").max(initial=0.0))
        if not clients > max(3 * sqrt(noise), 1.0) or not isfinite(clients + errors + squares):
            return ClientErrors(None, None, (_TOO_FEW,))
        mean = min(max(errors / clients, 0.0), 1.0)
        between = min(max(squares / clients - mean**2, 0.0), 0.25)
        variance = between / (clients - 1) + noise * (1 + mean**2) / clients**2
        half_width = normal_quantile(0.95) * sqrt(variance)
        return ClientErrors(Measured(mean, max(mean - half_width, 0.0), min(mean + half_width, 1.0)), sqrt(between))
