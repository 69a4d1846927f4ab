"""Calibrators that add to logits or log-odds.

`LogitOffsets` moves the log-odds of each class by itself and normalises; `LogitShifts` moves the logits, so that the
softmax takes from all other classes what one class gains. Both look the amount up by cell of the class's log-odds.
`LabelShift` adapts a calibrator to how common each class is at one client.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, Identity, check_classes, normalised
from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.metrics.binning import odds_cells
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.records import Records, log_probs, softmax
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class LogitOffsets(Calibrator):
    """Add an offset to each class's log-odds, by cell of the log-odds, and normalise.

    Parameters
    ----------
    table
        `table[j][m]` is added to the log-odds of class j in cell m; one row per class.
    reach
        The cells have equal width on [-reach, reach]; log-odds beyond belong to the outer cells.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.artifacts.LogitOffsets(((0.0, -1.0), (0.0, -1.0)), 8.0)([[0.1, 0.9]]).round(3)
    array([[0.115, 0.885]])
    """

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        _check_cells("offset", self.table, self.reach)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        table = np.array(self.table)
        check_classes(len(table), probs)
        odds = log_odds(probs)
        moved = odds + table[np.arange(len(table)), odds_cells(odds, table.shape[1], self.reach)]
        return normalised(sigmoid(moved), probs)


@final
@dataclass(frozen=True)
class LogitShifts(Calibrator):
    """Add a shift to each class's logit, by cell of its log-odds.

    Parameters
    ----------
    table
        `table[j][m]` is added to the logit of class j in cell m of its log-odds; one row per class.
    reach
        The cells have equal width on [-reach, reach]; log-odds beyond belong to the outer cells.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.artifacts.LogitShifts(((0.0, 0.0), (0.0, -1.0)), 8.0)([[0.1, 0.9]]).round(3)
    array([[0.232, 0.768]])
    """

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        _check_cells("shift", self.table, self.reach)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        table = np.array(self.table)
        check_classes(len(table), probs)
        cells = odds_cells(log_odds(probs), table.shape[1], self.reach)
        return softmax(log_probs(np.asarray(probs, dtype=np.float64)) + table[np.arange(len(table)), cells])


def _check_cells(name: str, table: tuple[tuple[float, ...], ...], reach: float) -> None:
    widths = {len(row) for row in table}
    if len(widths) != 1 or 0 in widths or not all(map(isfinite, sum(table, ()))) or not reach > 0:
        raise InputError(
            f"Expected one finite {name} per class and cell, equally many cells per class, and a reach above 0."
        )


@final
@dataclass(frozen=True)
class LabelShares(Artifact):
    """The proportion of each class among all clients' records.

    Parameters
    ----------
    shares
        One proportion per class, each above 0, with sum 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> fc.artifacts.LabelShares.of_counts(np.array([300.0, 100.0])).shares
    (0.749..., 0.250...)
    """

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self.shares)

    @classmethod
    def of_counts(cls, counts: Floats) -> LabelShares:
        """Proportions from counts, which may be noisy; a thousandth is divided among all classes, so none is zero."""
        records = np.maximum(np.nan_to_num(np.asarray(counts, dtype=np.float64)), 0.0)
        records = records + max(float(records.sum()), 1.0) * 1e-3 / len(records)
        return cls(tuple((records / records.sum()).tolist()))


@final
@dataclass(frozen=True)
class LabelShift(Calibrator):
    """Calibrate with a common calibrator, then multiply each class by how much more common it is at this client.

    A client makes it from its own labels for its own use; nothing is sent, so it costs no privacy. It contains the
    client's proportions of classes, so treat it as the client's data.

    Parameters
    ----------
    inner
        The common calibrator.
    own, overall
        Proportions of the classes at this client and among all clients.

    Examples
    --------
    >>> import fedcalib as fc
    >>> overall = fc.artifacts.LabelShares((0.5, 0.5))
    >>> records = fc.Records.of_scores([0.5] * 10, [1] * 8 + [0] * 2)
    >>> fc.artifacts.LabelShift.local(records, overall)([0.5]).round(2)
    array([0.65])
    """

    inner: Calibrator
    own: tuple[float, ...]
    overall: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self.own)
        _check(self.overall)
        if len(self.own) != len(self.overall):
            raise InputError(
                f"Expected as many own as overall proportions, found {len(self.own)} and {len(self.overall)}."
            )

    @classmethod
    def local(
        cls, records: Records, overall: LabelShares, calibrator: Calibrator | None = None, strength: float = 10.0
    ) -> LabelShift:
        """A client's calibrator for its own use.

        Parameters
        ----------
        records
            The client's labelled records.
        overall
            Proportions of the classes among all clients.
        calibrator
            The common calibrator; without one, only the proportions are adapted.
        strength
            How many records of the overall proportions to add to the client's, above 0. They keep classes that the
            client has not seen possible.
        """
        if not strength > 0:
            raise InputError(f"Expected a strength above 0, found {strength}.")
        counts = np.bincount(records.labels, minlength=len(overall.shares))
        if len(counts) != len(overall.shares):
            raise InputError(f"Expected {len(overall.shares)} classes, found labels up to {len(counts) - 1}.")
        own = (counts + strength * np.array(overall.shares)) / (len(records) + strength)
        return cls(calibrator or Identity(), tuple(own.tolist()), overall.shares)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(len(self.own), probs)
        calibrated = self.inner.calibrate(probs, logits)
        return normalised(calibrated * (np.array(self.own) / np.array(self.overall)), calibrated)


def _check(shares: tuple[float, ...]) -> None:
    if len(shares) < 2 or not all(isfinite(share) and share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise InputError("Expected at least two proportions above 0 with sum 1, found others.")
