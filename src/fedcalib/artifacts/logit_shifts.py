"""Logit offsets: each class's log-odds moved by what its cell calls for.

Logit shifts: each class's logit moved by what its cell calls for, all classes giving way together.

Label shift: what a client's own mix of classes adds to a calibrator that was made for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.artifacts.calibrator import Calibrator, Identity, normalised
from fedcalib.errors import InputError
from fedcalib.metrics.binning import log_odds, odds_cells
from fedcalib.records import Records, log_probs, softmax
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class LogitOffsets(Calibrator):
    """Add `table[j][cell]` to the log-odds of class j, then normalise; cells are equal steps on [-reach, reach]."""

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        if len(widths) != 1 or 0 in widths or not all(map(isfinite, sum(self.table, ()))) or not self.reach > 0:
            raise InputError("Expected a finite offset a class and cell, as many cells a class, and a reach above 0.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Move and normalise."""
        table = np.array(self.table)
        if probs.shape[1] != len(table):
            raise InputError(f"Expected {len(table)} classes, found {probs.shape[1]}.")
        odds = log_odds(probs)
        moved = odds + table[np.arange(len(table)), odds_cells(odds, table.shape[1], self.reach)]
        return normalised(0.5 * (1 + np.tanh(moved / 2)), probs)


@final
@dataclass(frozen=True)
class LogitShifts(Calibrator):
    """Add `table[j][cell]` to the logit of class j; cells are equal steps of its log-odds on [-reach, reach]."""

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        if len(widths) != 1 or 0 in widths or not all(map(isfinite, sum(self.table, ()))) or not self.reach > 0:
            raise InputError("Expected a finite shift a class and cell, as many cells a class, and a reach above 0.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Move, and let the softmax share the rest."""
        table = np.array(self.table)
        if probs.shape[1] != len(table):
            raise InputError(f"Expected {len(table)} classes, found {probs.shape[1]}.")
        cells = odds_cells(log_odds(probs), table.shape[1], self.reach)
        return softmax(log_probs(np.asarray(probs, dtype=np.float64)) + table[np.arange(len(table)), cells])


@final
@dataclass(frozen=True)
class LabelShares(Artifact):
    """How common each class is among everybody's records, summing to one."""

    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self.shares)

    @classmethod
    def of_counts(cls, counts: Floats) -> LabelShares:
        """Turn counts, perhaps noisy, into shares; no class is taken to be impossible."""
        held = np.maximum(np.nan_to_num(np.asarray(counts, dtype=np.float64)), 0.0)
        held = held + max(float(held.sum()), 1.0) * 1e-3 / len(held)
        return cls(tuple((held / held.sum()).tolist()))


@final
@dataclass(frozen=True)
class LabelShift(Calibrator):
    """Calibrate as everybody does, then weigh each class by how much more common it is at this client.

    It is made by a client, of its own labels, for its own use; nothing leaves it, so it costs no privacy. It holds the
    client's mix of classes, so treat it as the client's data.
    """

    inner: Calibrator
    own: tuple[float, ...]
    overall: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self.own)
        _check(self.overall)
        if len(self.own) != len(self.overall):
            raise InputError(f"Expected as many own as overall shares, found {len(self.own)} and {len(self.overall)}.")

    @classmethod
    def local(
        cls, records: Records, overall: LabelShares, calibrator: Calibrator | None = None, strength: float = 10.0
    ) -> LabelShift:
        """Take a client's labels as seen, with `strength` records of the overall mix added for absent classes."""
        if not strength > 0:
            raise InputError(f"Expected a strength above 0, found {strength}.")
        counts = np.bincount(records.labels, minlength=len(overall.shares))
        if len(counts) != len(overall.shares):
            raise InputError(f"Expected {len(overall.shares)} classes, found labels up to {len(counts) - 1}.")
        own = (counts + strength * np.array(overall.shares)) / (len(records) + strength)
        return cls(calibrator or Identity(), tuple(own.tolist()), overall.shares)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Weigh and normalise."""
        if probs.shape[1] != len(self.own):
            raise InputError(f"Expected {len(self.own)} classes, found {probs.shape[1]}.")
        calibrated = self.inner.calibrate(probs, logits)
        return normalised(calibrated * (np.array(self.own) / np.array(self.overall)), calibrated)


def _check(shares: tuple[float, ...]) -> None:
    if len(shares) < 2 or not all(isfinite(share) and share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise InputError("Expected shares above 0 that sum to one, two at least, found others.")
