"""Statistics of binned evaluation: reliability tables, losses, and clients' own calibration errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.numeric import finite
from fedcalib.queries.class_tables import residuals
from fedcalib.query import Block, Bound, ClientQuery, RecordQuery, Rows
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Records, log_probs
from fedcalib.types import Array, Floats

MOST_LOSS: Final = 30.0  # log loss that a single record can count for


@final
@dataclass(frozen=True)
class TopLabelTable(RecordQuery):
    """By bin of the top probability: counts of right and wrong records, and summed confidence minus correctness.

    A record adds one to one of the 2 x bins cells of `counts` (every norm 1), and confidence minus correctness, a
    number in (-1, 1), to one cell of `gap` (every norm 1, approached by a confident, wrong record).
    """

    bins: int

    def __post_init__(self) -> None:
        _check_bins(self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"counts": Block((2, self.bins), integral=True, one_hot=True), "gap": Block((self.bins,), weight=0.5)}

    def rows(self, records: Records) -> Rows:
        best = records.probs.argmax(axis=1)
        confidence = records.probs[np.arange(len(best)), best]
        right = best == records.labels
        cell = bin_index_unchecked(confidence, self.bins)
        cells = np.stack([np.where(right, cell, cell + self.bins), cell + 2 * self.bins], axis=1)
        return Rows(cells, np.stack([np.ones(len(best)), confidence - right], axis=1), self.bins * np.array([0, 2, 3]))


@final
@dataclass(frozen=True)
class Hits(RecordQuery):
    """Numbers of records that are classified rightly and wrongly: one cell of one, so every norm is 1."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"hits": Block((2,), integral=True, one_hot=True, weight=0.25)}

    def rows(self, records: Records) -> Rows:
        return Rows((records.probs.argmax(axis=1) != records.labels).astype(np.int64)[:, None], None)


@final
@dataclass(frozen=True)
class PairedHits(RecordQuery):
    """Numbers of records that are classified rightly or not, before and after a calibrator: one cell of one.

    A record adds one to the cell (right before, right after) of a 2 x 2 table, so every norm is 1.
    """

    calibrator: Calibrator

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"hits": Block((2, 2), integral=True, one_hot=True, weight=0.25)}

    def rows(self, records: Records) -> Rows:
        before, after = (
            (probs.argmax(axis=1) == records.labels).astype(np.int64)
            for probs in (np.asarray(records.probs), self.calibrator.of(records))
        )
        return Rows((2 * before + after)[:, None], None)


@final
@dataclass(frozen=True)
class PairedGains(RecordQuery):
    """What a calibrator changes: right answers before and after it, and how much log loss it saves, in units of 30.

    To `hits` a record adds what it adds to `PairedHits`. To `gain` it adds its log loss before less that after, both at
    most 30, divided by 30: a number in [-1, 1], so every norm is 1.
    """

    calibrator: Calibrator

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {**PairedHits(self.calibrator).blocks, "gain": Block((1,), weight=0.25)}

    def rows(self, records: Records) -> Rows:
        before, after = np.asarray(records.probs), self.calibrator.of(records)
        which = np.arange(len(records)), records.labels
        losses = [np.minimum(-np.log(np.maximum(probs[which], 1e-300)), MOST_LOSS) for probs in (before, after)]
        right = [(probs.argmax(axis=1) == records.labels).astype(np.int64) for probs in (before, after)]
        cells = np.stack([2 * right[0] + right[1], np.full(len(records), 4)], axis=1)
        return Rows(cells, np.stack([np.ones(len(records)), (losses[0] - losses[1]) / MOST_LOSS], axis=1))

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        """The same integers as those of the rows, whose entries never share a cell, without a look at their norms."""
        total = np.zeros(self.size, dtype=np.int64)
        for chunk in federation.records.chunks():
            rows = self.rows(chunk)
            cut = np.trunc(finite(np.asarray(rows.values) * scale[[0, -1]]))
            total += np.bincount(np.asarray(rows.cells).reshape(-1), cut.reshape(-1), self.size).astype(np.int64)
        return total


@final
@dataclass(frozen=True)
class ScoreGaps(RecordQuery):
    """Of a binary classifier, by bin of the score: score minus label, a number in [-1, 1], so every norm is 1."""

    bins: int

    def __post_init__(self) -> None:
        _check_bins(self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"gap": Block((self.bins,), weight=0.5)}

    def rows(self, records: Records) -> Rows:
        cells = bin_index_unchecked(records.score, self.bins)[:, None]
        return Rows(cells, (records.score - records.labels)[:, None])


@final
@dataclass(frozen=True)
class ClasswiseResiduals(RecordQuery):
    """By class and bin of its probability: probability minus label, and probability times its complement.

    In `residual` a record adds p_y - 1 to one cell and p_j to one cell of each other class: L1 = 2 (1 - p_y) <= 2, L2
    <= sqrt(2) (1 - p_y) <= sqrt(2), Linf <= 1, whatever the number of classes; approached by a confident, wrong record.
    In `spread` it adds p_j (1 - p_j) per class: Linf <= 1/4, L1 = 1 - sum p_j^2 <= 1 - 1/classes by equal
    probabilities, and L2 is largest with three equal probabilities (two where there are only two).
    """

    classes: int
    bins: int

    def __post_init__(self) -> None:
        _check_bins(self.bins)
        if self.classes < 2:
            raise InputError(f"Expected at least 2 classes, found {self.classes}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Summed residuals, and the variance that calibrated labels would have."""
        shape = (self.classes, self.bins)
        l2 = sqrt(2) / 4 if self.classes == 2 else 2 * sqrt(3) / 9
        return {
            "residual": Block(shape, Bound(2.0, sqrt(2.0), 1.0)),
            "spread": Block(shape, Bound(1 - 1 / self.classes, l2, 0.25), weight=0.25),
        }

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        cells = bin_index_unchecked(probs, self.bins) + self.bins * np.arange(self.classes)
        entries = np.hstack([-residual, probs * (1 - probs)])
        lanes = self.bins * np.arange(2 * self.classes + 1)
        return Rows(np.hstack([cells, cells + self.classes * self.bins]), entries, lanes)


@final
@dataclass(frozen=True)
class Losses(RecordQuery):
    """Summed log loss and Brier score with their squares, each scaled into [0, 1].

    The log loss is clipped at `worst`, a public bound. A record adds four numbers in [0, 1]: L1 <= 4, L2 <= 2, Linf <=
    1, attained by a record that is certain and wrong.
    """

    worst: float

    def __post_init__(self) -> None:
        if not 0 < self.worst < 1e3:
            raise InputError(f"Expected a bound on the log loss above 0, found {self.worst}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"losses": Block((4,), Bound(4.0, 2.0, 1.0), weight=0.5)}

    def rows(self, records: Records) -> Rows:
        nll, brier = losses(records)
        nll = np.minimum(nll / self.worst, 1.0)
        brier = np.minimum(brier / 2, 1.0)
        return Rows(None, np.stack([nll, nll**2, brier, brier**2], axis=1))


@final
@dataclass(frozen=True)
class ScoreHistogram(RecordQuery):
    """Of a binary classifier: positives and negatives by bin of the score; one cell of one, so every norm is 1."""

    leaves: int

    def __post_init__(self) -> None:
        _check_bins(self.leaves)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by increasing score."""
        return {"scores": Block((2, self.leaves), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows((bin_index_unchecked(records.score, self.leaves) + self.leaves * records.labels)[:, None], None)


def losses(records: Records) -> tuple[Floats, Floats]:
    """Log loss and Brier score of each record, shape (n,) each."""
    probs = np.asarray(records.probs, dtype=np.float64)
    own = probs[np.arange(len(probs)), records.labels]
    brier = np.einsum("ij,ij->i", probs, probs) - 2 * own + 1
    return -log_probs(own), np.maximum(brier, 0.0)


def _check_bins(bins: int) -> None:
    if not 1 <= bins <= 1 << 20:
        raise InputError(f"Expected 1 to 2^20 bins, found {bins}.")


@final
@dataclass(frozen=True)
class OwnErrors(ClientQuery):
    """Whether a client has `fewest` records, its own calibration error of the top label, and that error's square.

    All three lie between 0 and 1, so L1 <= 3, L2 <= sqrt(3) and Linf <= 1, attained by a client that is always certain
    and always wrong. A client with fewer records adds zeros: the error of a handful is chance.
    """

    bins: int
    fewest: int

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 16 or self.fewest < 1:
            raise InputError(f"Expected 1 to 2^16 bins and at least one record, found {self.bins} and {self.fewest}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"errors": Block((3,), Bound(3.0, sqrt(3.0), 1.0, "client"), clip=sqrt(3.0))}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        found: Floats = self.terms(Federation.of([records]), Secure())[0]
        return found

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        counted = federation.sizes >= self.fewest
        error = np.minimum(self._gaps(federation) / np.maximum(federation.sizes, 1), 1.0)
        return np.where(counted[:, None], np.stack([np.ones_like(error), error, error**2], axis=1), 0.0)

    def _gaps(self, federation: Federation) -> Floats:
        """Summed distance between confidence and right answers over bins, shape (clients,)."""
        probs, labels = federation.records.probs, federation.records.labels
        best = probs.argmax(axis=1)  # ties go to the lowest class
        confidence = probs[np.arange(len(best)), best].astype(np.float64)
        cells = federation.owner * self.bins + bin_index_unchecked(confidence, self.bins)
        gaps = np.bincount(cells, confidence - (best == labels), minlength=len(federation) * self.bins)
        return np.asarray(np.abs(gaps).reshape(len(federation), self.bins).sum(axis=1))
