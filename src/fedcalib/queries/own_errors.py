"""How badly calibrated clients are, each on its own records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.binning import bin_index_unchecked
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientQuery
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Records
from fedcalib.types import Floats


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
            raise InputError(f"Expected 1 to 2^16 bins and a record at least, found {self.bins} and {self.fewest}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Three numbers."""
        return {"errors": Block((3,), Bound(3.0, sqrt(3.0), 1.0, "client"), clip=sqrt(3.0))}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Measure one client."""
        found: Floats = self.terms(Federation.of([records]), Secure())[0]
        return found

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Measure all clients in one pass."""
        enough = federation.sizes >= self.fewest
        error = np.minimum(self._gaps(federation) / np.maximum(federation.sizes, 1), 1.0)
        return np.where(enough[:, None], np.stack([np.ones_like(error), error, error**2], axis=1), 0.0)

    def _gaps(self, federation: Federation) -> Floats:
        """Add up, over bins, how far confidence and right answers are apart, (clients,)."""
        probs, labels = federation.records.probs, federation.records.labels
        best = probs.argmax(axis=1)  # ties go to the lowest class
        confidence = probs[np.arange(len(best)), best].astype(np.float64)
        cells = federation.owner * self.bins + bin_index_unchecked(confidence, self.bins)
        gaps = np.bincount(cells, confidence - (best == labels), minlength=len(federation) * self.bins)
        return np.asarray(np.abs(gaps).reshape(len(federation), self.bins).sum(axis=1))
