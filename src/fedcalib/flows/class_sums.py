"""What the evaluation of a classifier with several classes sends, and how its answers are read.

`ExactMessage` carries whatever makes figures exact and intervals short; `NoisyMessage` as few numbers as noise allows.
Both read their answers as `ClassSums`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.estimation.class_sums import SHARED_RECORDS, ClassGaps, ClassSums, LossTotal, Outcomes, combined
from fedcalib.estimation.covariances import Covariance, FullCovariance, SharedCovariance
from fedcalib.estimation.trees import nonnegative_leaves
from fedcalib.metrics.binning import EvenLogOdds, bin_edges
from fedcalib.metrics.reliability import Reliability
from fedcalib.numeric import sigmoid
from fedcalib.queries.class_outcomes import (
    ClassOutcomes,
    ClassResiduals,
    ConfusionTable,
    CutLosses,
    ResidualProducts,
    ResidualSquares,
    TopLabelGaps,
    TopLabelOutcomes,
    WholeLosses,
)
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.query import Answer, Query
from fedcalib.types import Floats

_MAX_PRODUCTS: Final = 300  # (class, bin) cells up to which products of residuals are sent: 45,150 numbers
_MAX_CONFUSION: Final = 64  # classes up to which exact sums have the whole confusion table
_MAX_NOISY_CONFUSION: Final = 5  # beyond it, sums over a row carry more noise than two counts with half of the budget
_EXACT_SCORES: Final = 1 << 15  # cells of all classes together
_NOISY_SCORES: Final = 32  # cells per class
_SCORE_AXIS: Final = EvenLogOdds(28.0)  # probabilities from 1e-12 to 1 - 1e-12
_NOISY_SCORE_AXIS: Final = EvenLogOdds(8.0)
_TOP_SPLITS: Final = 5  # the bin next to 1 is halved so often, since most records of a good classifier are in it
# shares of the budget, by a calculation of the noise of each figure; other shares were not compared by measurement
_OUTCOMES, _RESIDUALS, _LOSSES, _CLASSES = 0.35, 0.3, 0.2, 0.15


class ClassMessage(ABC):
    """The queries of an evaluation, and how their answers are read."""

    classes: int
    bins: int
    cut: float | None  # where the log loss of a record is cut

    @property
    @abstractmethod
    def queries(self) -> tuple[Query, ...]: ...

    @abstractmethod
    def sums(self, parts: list[Answer]) -> ClassSums: ...

    @abstractmethod
    def table(self, parts: list[Answer]) -> tuple[Reliability, float]:
        """The reliability table of the top label, and the variance of the noise on its counts."""

    @abstractmethod
    def class_tables(self, parts: list[Answer]) -> tuple[tuple[Reliability, ...], float]:
        """The reliability table of each class, none where they were not counted, and the variance of their noise."""


@final
@dataclass(frozen=True)
class ExactMessage(ClassMessage):
    """Everything that makes figures exact and intervals short."""

    classes: int
    bins: int
    scores: bool
    confusion: bool | None = None
    cut: None = None

    @property
    def queries(self) -> tuple[Query, ...]:
        spread = ResidualProducts if self._small else ResidualSquares
        return (
            TopLabelGaps(self.bins),
            ClassResiduals(self.classes, self.bins),
            spread(self.classes, self.bins),
            WholeLosses(),
            ConfusionTable(self.classes) if self._whole else ClassOutcomes(self.classes),
            LabelHistogram(self.classes, self.bins),
            *((LabelHistogram(self.classes, self._cells, axis=_SCORE_AXIS),) if self.scores else ()),
        )

    @property
    def _whole(self) -> bool:
        """Whether the whole confusion table is sent."""
        return self.classes <= _MAX_CONFUSION if self.confusion is None else self.confusion

    @property
    def _small(self) -> bool:
        return self.classes * self.bins <= _MAX_PRODUCTS

    @property
    def _cells(self) -> int:
        return int(2 ** max(np.floor(np.log2(_EXACT_SCORES / 2 / self.classes)), 5))

    def sums(self, parts: list[Answer]) -> ClassSums:
        top, residuals, spread, losses, classes = parts[:5]
        right, wrong = top["outcomes"].sum(axis=1).tolist()
        records = right + wrong
        gap, residual = top["gap"], residuals["residual"].reshape(-1)
        share = max(records, 1.0) ** -0.5
        log_loss, brier = losses["log"].tolist(), losses["squared"].tolist()
        return ClassSums(
            records, 0.0, right, 0.0, wrong, 0.0,
            ClassGaps(gap, np.zeros_like(gap), SharedCovariance(top["squares"], gap * share), max(records, 1.0)),
            ClassGaps(residual, np.zeros_like(residual), self._spread(spread, residual * share),
                 max(records, 1.0) * self.classes),
            LossTotal(log_loss[0], log_loss[1], 0.0), LossTotal(brier[0], brier[1], 0.0), outcomes_of(classes),
            *((_histograms(parts[6]), np.zeros((self.classes, 1))) if self.scores else ()),
        )  # fmt: skip

    def _spread(self, spread: Answer, shared: Floats) -> Covariance:
        """Summed products of residuals less those of their means; where only squares are sent, twice these bound them.

        With squares no pair of cells is held: there are (classes x bins)^2 of them.
        """
        if not self._small:
            return SharedCovariance(SHARED_RECORDS * spread["squares"].reshape(-1), shared)
        matrix = np.zeros((self.classes * self.bins,) * 2)
        matrix[np.triu_indices(len(matrix))] = spread["products"]
        return FullCovariance(matrix + np.triu(matrix, 1).T - np.outer(shared, shared))

    def table(self, parts: list[Answer]) -> tuple[Reliability, float]:
        counts, gap = parts[0]["outcomes"], parts[0]["gap"]
        return Reliability(counts.sum(axis=0)[None], (counts[0] + gap)[None], counts[0][None]), 0.0

    def class_tables(self, parts: list[Answer]) -> tuple[tuple[Reliability, ...], float]:
        """Probabilities sum to the number of records of the class and the residuals in each bin."""
        pairs = zip(_histograms(parts[5]), parts[1]["residual"], strict=True)
        found = ((own, own + others, residual) for (own, others), residual in pairs)
        return tuple(Reliability(count[None], (own + gap)[None], own[None]) for own, count, gap in found), 0.0


@final
@dataclass(frozen=True)
class NoisyMessage(ClassMessage):
    """Four blocks, or one more per class where the AUC of each class is paid for."""

    classes: int
    bins: int
    scores: bool
    cut: float
    laplace: bool = True  # whether the noise may be Laplace
    confusion: bool | None = None

    @property
    def queries(self) -> tuple[Query, ...]:
        unit = float(self.classes) if self.scores else 1.0  # each class's histogram has a weight of one
        whole = self.classes <= _MAX_NOISY_CONFUSION if self.confusion is None else self.confusion
        counts = (ConfusionTable if whole else ClassOutcomes)(self.classes, unit * _CLASSES)
        return (
            TopLabelOutcomes(self._inner, unit * _OUTCOMES),
            ClassResiduals(self.classes, self.bins, unit * _RESIDUALS),
            CutLosses(self.cut, unit * _LOSSES),
            counts,
            *((LabelHistogram(self.classes, _NOISY_SCORES, axis=_NOISY_SCORE_AXIS),) if self.scores else ()),
        )

    @property
    def _inner(self) -> tuple[float, ...]:
        """Edges of the bins above 1/classes, below which no top probability is, and of the parts of the highest bin."""
        edges = bin_edges(self.bins)[1:-1]
        splits = 1 - 0.5 ** np.arange(1, _TOP_SPLITS + 1) / self.bins
        return tuple(np.concatenate([edges[edges > 1 / self.classes], splits[splits > 1 / self.classes]]).tolist())

    def _confidence(self) -> Floats:
        """Middle of each cell of the top probability, shape (cells,)."""
        edges = np.array([1 / self.classes, *self._inner, 1.0])
        middle: Floats = (edges[:-1] + edges[1:]) / 2
        return middle

    def sums(self, parts: list[Answer]) -> ClassSums:
        top, residuals, losses, classes = parts[:4]
        outcomes = outcomes_of(classes)
        right, wrong = _totals(top, classes)
        records, residual = max(right[0] + wrong[0], 1.0), residuals["residual"].reshape(-1)
        read = _TopLabel.of(
            top, self._confidence(), np.array([1 / self.classes, *self._inner]), self.bins, self.laplace
        )
        log_loss, brier = (losses["losses"] * [self.cut, 2.0]).tolist()
        noise = losses.variance("losses") * [self.cut**2, 4.0]
        squares = read.residual_squares(brier, self.classes, self.bins)
        return ClassSums(
            right[0] + wrong[0], right[1] + wrong[1], *right, *wrong, read.gaps(records),
            ClassGaps(residual, residuals.variance("residual").reshape(-1),
                 SharedCovariance.independent(SHARED_RECORDS * squares.reshape(-1)),
                 records * self.classes, laplace=self.laplace, most=read.most(2.0)),
            LossTotal(log_loss, read.squared_log_loss(log_loss, self.cut), float(noise[0])),
            LossTotal(brier, read.squared_brier(brier, self.classes), float(noise[1])), outcomes,
            *((_histograms(parts[4]), _noise_of(parts[4])) if self.scores else ()),
        )  # fmt: skip

    def table(self, parts: list[Answer]) -> tuple[Reliability, float]:
        counts = nonnegative_leaves(parts[0]["outcomes"])
        confidence = counts.sum(axis=0) * self._confidence()
        cuts = np.array([0.0, *self._inner, 1.0])
        table = Reliability(counts.sum(axis=0)[None], confidence[None], counts[0][None], cuts)
        return table, float(parts[0].variance("outcomes").max())

    def class_tables(self, parts: list[Answer]) -> tuple[tuple[Reliability, ...], float]:
        """Cells of the scores that the AUC of each class is read from."""
        if not self.scores:
            return (), 0.0
        cuts, middle = _NOISY_SCORE_AXIS.edges(_NOISY_SCORES), sigmoid(_NOISY_SCORE_AXIS.odds(_NOISY_SCORES))
        found = map(nonnegative_leaves, _histograms(parts[4]))
        tables = (
            Reliability(both.sum(axis=0)[None], (both.sum(axis=0) * middle)[None], both[0][None], cuts)
            for both in found
        )
        return tuple(tables), float(_noise_of(parts[4]).max())


@final
@dataclass(frozen=True, eq=False)
class _TopLabel:
    """Right and wrong records by cell of the top probability, and what follows from them about other sums."""

    counts: Floats  # (2, cells)
    noise: Floats  # (2, cells)
    nonnegative: Floats  # (2, cells)
    confidence: Floats  # (cells,)
    lowest: Floats  # (cells,): the least confidence in a cell
    member: Floats  # (bins, cells)
    laplace: bool

    @classmethod
    def of(cls, answer: Answer, confidence: Floats, lowest: Floats, bins: int, laplace: bool) -> _TopLabel:
        member = np.minimum((confidence * bins).astype(np.int64), bins - 1) == np.arange(bins)[:, None]
        counts = answer["outcomes"]
        noise, members = answer.variance("outcomes"), member.astype(np.float64)
        return cls(counts, noise, nonnegative_leaves(counts), confidence, lowest, members, laplace)

    def gaps(self, records: float) -> ClassGaps:
        weights = np.stack([self.confidence - 1, self.confidence])
        gap = self.member @ (weights * self.counts).sum(axis=0)
        noise = self.member @ (weights**2 * self.noise).sum(axis=0)
        squares = self.member @ (weights**2 * self.nonnegative).sum(axis=0)
        sampling = SharedCovariance.independent(np.maximum(squares - gap**2 / records, 0.0))
        return ClassGaps(gap, noise, sampling, records, laplace=self.laplace, most=self.most(1.0))

    def most(self, factor: float) -> float:
        """Upper bound of the sum of absolute gaps, 1 - confidence of right records and one of wrong ones, times factor.

        A record's residuals have twice the absolute sum of its gap at most. Two deviations of noise are added.
        """
        weights = np.stack([1 - self.lowest, np.ones_like(self.lowest)])
        bound = float((weights * self.counts).sum()) + 2 * float(np.sqrt((weights**2 * self.noise).sum()))
        return factor * max(bound, float((weights * self.nonnegative).sum()) / 2, 1.0)

    def residual_squares(self, brier: float, classes: int, bins: int) -> Floats:
        """Squared residuals by class and bin: of the top label by its cells, the rest near 0, evenly by class."""
        right, wrong = self.nonnegative
        top = self.member @ (right * (1 - self.confidence) ** 2 + wrong * self.confidence**2)
        rest = max(brier - float(top.sum()), 0.0) * _LOW_BINS[:bins] / max(float(_LOW_BINS[:bins].sum()), 1e-300)
        below = np.zeros(bins)
        below[: len(rest)] = rest
        return np.tile((top + below) / classes, (classes, 1))

    def squared_log_loss(self, total: float, cut: float) -> float:
        """Sum of squared log losses: right records have that of their cell, wrong ones an exponential excess."""
        right, wrong = self.nonnegative
        own = np.minimum(-np.log(self.confidence), cut)
        least = np.minimum(-np.log(np.minimum(self.confidence, 1 - self.confidence)), cut)
        missed, floor = max(float(wrong.sum()), 1.0), float(wrong @ least)
        mean = min(max((total - float(right @ own)) / missed, floor / missed), cut)
        excess = mean - floor / missed
        squares = float(wrong @ least**2) + 2 * excess * floor + 2 * excess**2 * missed
        return float(right @ own**2) + min(squares, cut * mean * missed)

    def squared_brier(self, total: float, classes: int) -> float:
        """Sum of squared Brier scores: those of right records lie between two multiples of (1 - confidence)^2."""
        right, wrong = self.nonnegative
        own = (1 - self.confidence) ** 2 * 1.5
        missed = max(float(wrong.sum()), 1.0)
        mean = min(max((total - float(right @ own)) / missed, 0.5), 2.0)
        return float(right @ own**2) + missed * (mean**2 + min(mean - 0.5, 2 - mean) * 0.25)


_LOW_BINS: Final = 0.5 ** np.arange(8)  # how squared residuals of classes other than the top one fall from bin to bin


def outcomes_of(answer: Answer) -> Outcomes:
    """Outcomes by class, from a confusion table or from two counts."""
    if "confusion" in answer.values:
        table, noise = answer["confusion"], answer.variance("confusion")
        right, off, off_noise = np.diag(table), table - np.diag(np.diag(table)), noise - np.diag(np.diag(noise))
        sums = (right, off.sum(axis=1), off.sum(axis=0), np.diag(noise), off_noise.sum(axis=1), off_noise.sum(axis=0))
        return Outcomes(*sums, table)
    (right, wrong), (right_noise, wrong_noise) = answer["predicted"], answer.variance("predicted")
    missed, missed_noise = answer["missed"][:-1], answer.variance("missed")[:-1]
    return Outcomes(right, wrong, missed, right_noise, wrong_noise, missed_noise)


def _totals(top: Answer, classes: Answer) -> tuple[tuple[float, float], tuple[float, float]]:
    """Right and wrong records with the variance of each, from all counts of them together."""
    counts, noise = top["outcomes"].sum(axis=1), top.variance("outcomes").sum(axis=1)
    right, wrong = [(counts[0], noise[0])], [(counts[1], noise[1])]
    found = outcomes_of(classes)
    right.append((found.right.sum(), found.right_noise.sum()))
    wrong.append((found.predicted.sum(), found.predicted_noise.sum()))
    if found.confusion is None:
        right.append((classes["missed"][-1], classes.variance("missed")[-1]))
        wrong.append((found.missed.sum(), found.missed_noise.sum()))
    return _combined(right), _combined(wrong)


def _combined(found: list[tuple[float, float]]) -> tuple[float, float]:
    return combined([float(value) for value, _ in found], [float(noise) for _, noise in found])


def _histograms(answer: Answer) -> Floats:
    return np.stack(list(answer.values.values()))


def _noise_of(answer: Answer) -> Floats:
    return np.stack([noise.reshape(-1) for noise in answer.variances.values()])
