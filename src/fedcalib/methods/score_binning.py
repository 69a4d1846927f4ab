"""Non-parametric calibration of binary classifiers, from a private table of scores.

`QuantileBinning` takes the fraction of positives in equi-depth buckets, `IsotonicBuckets` the nearest increasing step
function, `BinaryBBQ` a Bayesian average over dyadic merges of buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import EdgeSteps
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import Buckets, ScoreTable
from fedcalib.estimation.trees import isotonic
from fedcalib.flows import tables
from fedcalib.method import Flow
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class QuantileBinning(tables.ScoreCalibration):
    """Replace each score by the fraction of positives in its equi-depth bucket.

    Parameters
    ----------
    buckets
        Number of buckets; None for as many as records and noise allow.
    tree
        The tree of scores to count.
    recount
        With a value above 0 (which needs `buckets`), a second query counts the buckets with that fraction of the
        budget; otherwise their counts are differences of the tree.
    smoothing
        Number of pseudo-records that keep a bucket near its mean score.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import binary_ece
    >>> records = (federation := fc.Federation.simulated(classes=2)).records
    >>> calibrator = fc.run(fc.QuantileBinning(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(binary_ece(scores, records.labels), 2) for scores in (records.score, calibrator(records.score))]
    [0.09, 0.0]
    """

    buckets: int | None = None
    tree: ScoreTree = TREE
    recount: float = 0.0
    smoothing: float = 2.0

    def __post_init__(self) -> None:
        tables.check_buckets(self.buckets)
        if not 0 <= self.recount < 1 or (self.recount > 0 and self.buckets is None):
            raise InputError(
                "Expected the fraction `recount` from 0 to below 1, and `buckets` where it is above 0, "
                f"found {self.recount} and {self.buckets}."
            )
        if not self.smoothing >= 0:
            raise InputError(f"Expected smoothing of at least 0, found {self.smoothing}.")

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        tables.two_classes(schema)
        if self.recount == 0 or self.buckets is None:
            return self.fit((yield from tables.score_table(self.tree)))
        table = yield from tables.recounted(self.tree, self.buckets, self.recount)
        return self._read(Buckets.of(table, tuple(table.edges[1:-1].tolist())))

    def fit(self, table: ScoreTable) -> EdgeSteps:
        return self._read(Buckets.even(tables.steadied(table), tables.chosen_buckets(self.buckets, table)))

    def _read(self, buckets: Buckets) -> EdgeSteps:
        return EdgeSteps.of_arrays(buckets.edges[1:-1], positive_rates(buckets, self.smoothing), buckets.small)


def positive_rates(buckets: Buckets, smoothing: float) -> Floats:
    """Each bucket's fraction of positives, shrunk toward its mean score by pseudo-records and by noise."""
    positive = np.maximum(buckets.positive, 0.0)
    fraction = buckets.effective_fraction(np.clip(buckets.score, 0.02, 0.98))
    total = fraction * buckets.records + smoothing
    return np.divide(fraction * positive + smoothing * buckets.score, total, out=buckets.score.copy(), where=total > 0)


@final
@dataclass(frozen=True)
class IsotonicBuckets(tables.ScoreCalibration):
    """Replace each score by its bucket's fraction of positives, pooled with neighbours wherever it would decrease.

    Pooling averages noise away, so the default takes twice as many buckets as plain binning would. The order of scores
    stays, up to ties; of the calibrators in buckets it is the one to choose under local reports.

    Parameters
    ----------
    buckets
        Number of buckets; None for as many as records and noise allow.
    tree
        The tree of scores to count.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> calibrator = fc.run(fc.IsotonicBuckets(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> bool((np.diff(calibrator(np.linspace(0, 1, 100))) >= 0).all())
    True
    """

    buckets: int | None = None
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        tables.check_buckets(self.buckets)

    def fit(self, table: ScoreTable) -> EdgeSteps:
        count = tables.chosen_buckets(self.buckets, table) * (2 if self.buckets is None else 1)
        buckets = Buckets.even(tables.steadied(table), count)
        counts = buckets.positive + buckets.negative
        # rates stay signed until neighbours are pooled: clipping noise at zero first would lift every low bucket
        rate = np.divide(buckets.positive, counts, out=buckets.score.copy(), where=counts > 0)
        weight = np.maximum(counts, 0.0) * buckets.effective_fraction(np.clip(buckets.score, 0.02, 0.98))
        return EdgeSteps.of_arrays(buckets.edges[1:-1], isotonic(rate, weight + 1e-9), buckets.small)


_MIN_PRIOR_MEAN = 0.005  # and as far from 1


@final
@dataclass(frozen=True)
class BinaryBBQ(tables.ScoreCalibration):
    """Bayesian binning into quantiles: average 1, 2, 4, ..., 2^levels buckets by how well each explains the labels.

    Buckets are merged from the finest by summing, so all come from one table. A noisy bucket counts as fewer records,
    so that noise is not mistaken for detail.

    Parameters
    ----------
    levels
        Logarithm to base 2 of the largest number of buckets.
    tree
        The tree of scores to count.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import binary_ece
    >>> records = (federation := fc.Federation.simulated(classes=2)).records
    >>> calibrator = fc.run(fc.BinaryBBQ(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(binary_ece(scores, records.labels), 2) for scores in (records.score, calibrator(records.score))]
    [0.09, 0.02]
    """

    levels: int = 6
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 12:
            raise InputError(f"Expected 1 to 12 levels, found {self.levels}.")

    def fit(self, table: ScoreTable) -> EdgeSteps:
        finest = Buckets.even(table, 2**self.levels)
        inner = finest.edges[1:-1]
        scores, values = [], []
        for step in 2 ** np.arange(self.levels + 1):
            merged = Buckets.of(table, tuple(inner[step - 1 :: step].tolist()))
            score, value = _evidence(merged)
            scores.append(score)
            values.append(value[np.searchsorted(merged.edges[1:-1], finest.edges[:-1], side="right")])
        weights = np.exp(np.array(scores) - max(scores))
        return EdgeSteps.of_arrays(inner, (weights / weights.sum()) @ np.stack(values), finest.small)


def _evidence(buckets: Buckets) -> tuple[float, Floats]:
    """The log evidence of the labels, beta-binomial around the mean scores, and the posterior means."""
    from scipy.special import betaln

    prior = np.clip(buckets.score, _MIN_PRIOR_MEAN, 1 - _MIN_PRIOR_MEAN)
    fraction = buckets.effective_fraction(prior)
    up, down = fraction * np.maximum(buckets.positive, 0.0), fraction * np.maximum(buckets.negative, 0.0)
    a, b = 2 * prior, 2 * (1 - prior)
    score = float((betaln(up + a, down + b) - betaln(a, b)).sum())
    return score, (up + a) / (up + down + 2)
