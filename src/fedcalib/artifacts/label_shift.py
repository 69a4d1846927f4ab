"""Label shift: what a client's own mix of classes adds to a calibrator that was made for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, Identity, normalised
from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.records import Records
from fedcalib.types import Floats


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
