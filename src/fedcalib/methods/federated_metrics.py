"""FederatedMetrics: every metric that is a sum of binned statistics, over all clients, from one message."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import final

import numpy as np

from fedcalib.answer import Answer
from fedcalib.artifacts.metrics_report import Measured, MetricsReport
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.metrics.intervals import Interval
from fedcalib.metrics.logistic import fit_counts
from fedcalib.metrics.noisy import noisy_auc, noisy_gap_error, noisy_mean, noisy_proportion
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.smooth import smooth_ece_of_residuals
from fedcalib.queries.reliability import ClasswiseResiduals, Losses, ScoreHistogram, TopLabelTable
from fedcalib.query import Join
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class FederatedMetrics(Method[MetricsReport]):
    """Measure a classifier across clients: accuracy, calibration errors, losses and, with two classes, ranking.

    The log loss is cut at ln(classes) + `margin`, a public bound, so that one record cannot add more.
    """

    bins: int = 15
    leaves: int = 240
    margin: float = 5.0

    def __post_init__(self) -> None:
        if self.bins < 1 or self.leaves < 2 or not self.margin > 0:
            raise InputError("Expected at least 1 bin, 2 leaves and a margin above 0, found others.")

    def protocol(self, schema: Schema) -> Flow[MetricsReport]:
        """Ask everything at once and read it off."""
        parts = (
            TopLabelTable(self.bins),
            ClasswiseResiduals(schema.classes, self.bins),
            Losses(log(schema.classes) + self.margin),
        )
        join = Join((*parts, ScoreHistogram(self.leaves)) if schema.classes == 2 else parts)
        answer = yield join
        sections = [answer.part(join, index) for index in range(len(join.parts))]
        return _read(schema, parts[2].worst, *sections)


def _read(  # noqa: PLR0917 - one answer a part of the question
    schema: Schema, worst: float, top: Answer, classes: Answer, losses: Answer, scores: Answer | None = None
) -> MetricsReport:
    counts, gap = top["counts"], top["gap"]
    count_noise, gap_noise = float(top.variance("counts").flat[0]), float(top.variance("gap").flat[0])
    table = Reliability(counts.sum(axis=0)[None], (counts[0] + gap)[None], counts[0][None])
    records, records_noise = float(counts.sum()), count_noise * counts.size
    if records <= 3 * records_noise**0.5 or records <= 0:
        return _nothing(table, count_noise, gap_noise)
    right, wrong = float(counts[0].sum()), float(counts[1].sum())
    nll, nll2, brier, brier2 = losses["losses"].tolist()
    loss_noise = float(losses.variance("losses")[0])
    sampling = _binomial_spread(counts)
    residual = classes["residual"]
    classwise = noisy_gap_error(
        residual,
        classes.variance("residual"),
        np.maximum(classes["spread"], 0.0),
        records * schema.classes,
    )
    auc, ranks, warnings = _binary(scores) if scores is not None else (None, (None,) * 4, [])
    return MetricsReport(
        accuracy=_measured(*noisy_proportion(right, wrong, count_noise * counts.shape[1])),
        ece=_measured(*noisy_gap_error(gap, gap_noise, sampling, records)),
        cwece=_measured(*classwise),
        nll=_measured(*_scaled(noisy_mean(nll, nll2, records, loss_noise, records_noise), worst)),
        brier=_measured(*_scaled(noisy_mean(brier, brier2, records, loss_noise, records_noise), 2.0)),
        auc=auc,
        debiased_squared_ece=table.debiased_squared(gap_noise),
        slope=ranks[0],
        intercept=ranks[1],
        observed_expected=ranks[2],
        smooth_ece=ranks[3],
        reliability=table,
        count_variance=count_noise,
        gap_variance=gap_noise,
        warnings=tuple(warnings),
    )


_Ranks = tuple[float | None, float | None, float | None, float | None]


def _binary(scores: Answer) -> tuple[Measured | None, _Ranks, list[str]]:
    """Read ranking, calibration line, observed over expected and smooth ECE off a histogram of scores."""
    negative, positive = scores["scores"]
    noise = float(scores.variance("scores").flat[0])
    floor = 3 * (noise * len(positive)) ** 0.5
    if positive.sum() <= floor or negative.sum() <= floor:
        return None, (None, None, None, None), ["AUC is left out: a class has too few records or drowns in noise."]
    middle = (np.arange(len(positive)) + 0.5) / len(positive)
    auc = _measured(*noisy_auc(positive, negative, noise))
    odds = np.log(middle / (1 - middle))
    intercept, slope = fit_counts(np.stack([np.ones_like(odds), odds], axis=1), positive, negative)
    held = positive + negative
    expected = float((held * middle).sum())
    ratio = float(positive.sum()) / expected if expected > 0 else None
    smooth = smooth_ece_of_residuals(held * middle - positive, float(held.sum()))
    return auc, (_finite(float(slope)), _finite(float(intercept)), ratio, smooth), []


def _binomial_spread(counts: Floats) -> Floats:
    """Estimate the sampling variance of each bin's gap; two pseudo-records a side keep small bins honest."""
    held = np.maximum(counts.sum(axis=0), 0.0)
    share = np.clip((counts[0] + 2) / np.maximum(held + 4, 1.0), 0.0, 1.0)
    spread: Floats = np.where(held > 0, held * share * (1 - share), 0.0)
    return spread


def _measured(value: float, interval: Interval) -> Measured:
    return Measured(value, interval.low, interval.high)


def _scaled(estimate: tuple[float, Interval], unit: float) -> tuple[float, Interval]:
    value, interval = estimate
    return value * unit, Interval(interval.low * unit, interval.high * unit, interval.level)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _nothing(table: Reliability, count_noise: float, gap_noise: float) -> MetricsReport:
    why = "Nothing can be said: the number of records drowns in noise, or there are none."
    names = ("accuracy", "ece", "cwece", "nll", "brier", "auc", "debiased_squared_ece", "slope", "intercept")
    missing: dict[str, None] = dict.fromkeys((*names, "observed_expected", "smooth_ece"))
    return MetricsReport(
        **missing, reliability=table, count_variance=count_noise, gap_variance=gap_noise, warnings=(why,)
    )
