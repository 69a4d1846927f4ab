"""Summed gradients of a scaling's log loss, with as much curvature as a message should carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.families.family import Family
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records, softmax
from fedcalib.types import Floats, Ints

_AT_ONCE = 512  # records: their derivatives are classes x parameters each
WORST: Final = 30.0  # a record's log loss counts for no more
FULL: Final = 64  # parameters up to which all their curvature is sent


@final
@dataclass(frozen=True)
class ScalingGradient(RecordQuery):
    """The log loss at a family's parameters, its gradient, and the Gauss-Newton curvature.

    A record's gradient is cut to the L2 norm `reach` and divided by it; its curvature likewise by the square of it. So
    both blocks have L2 = 1, attained by any record that is cut, Linf = 1 and L1 = sqrt(size). Up to 64 parameters the
    curvature is the upper triangle of a matrix; beyond, the three numbers of each class's factor and shift. The loss is
    cut at `WORST` and divided by it: every norm is 1, attained by a record that is certain and wrong.
    """

    family: Family
    parameters: tuple[float, ...]
    reach: float

    def __post_init__(self) -> None:
        if not self.reach > 0 or not np.isfinite(self.parameters).all() or len(self.parameters) % 2:
            raise InputError("Expected a reach above 0 and finite parameters, two a class, found others.")

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """List the pairs of parameters whose curvature is sent."""
        size = len(self.parameters)
        if size <= FULL:
            rows, columns = np.triu_indices(size)
            return rows, columns
        first, second = np.arange(size // 2), np.arange(size // 2, size)
        return np.concatenate([first, first, second]), np.concatenate([first, second, second])

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a parameter, one a pair."""
        size, pairs = len(self.parameters), len(self.pairs[0])
        return {
            "gradient": Block((size,), Bound(sqrt(size), 1.0, 1.0)),
            "curvature": Block((pairs,), Bound(sqrt(pairs), 1.0, 1.0), weight=0.25),
            "loss": Block((1,), weight=0.05),
        }

    def rows(self, records: Records) -> Rows:
        """Touch every cell, some records at a time."""
        parts = [self._rows(part) for part in records.chunks(_AT_ONCE)]
        return Rows(None, np.concatenate(parts) if parts else np.zeros((0, self.size)))

    def _rows(self, records: Records) -> Floats:
        logits = np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)
        parameters = np.array(self.parameters)
        if len(parameters) <= FULL:
            gradient, curvature = self._all_pairs(parameters, logits, records.labels)
        else:
            gradient, blocks = self.family.by_class(parameters, logits, records.labels)
            curvature = blocks.reshape(len(blocks), -1)
        own = self.family.artifact(parameters, records.classes).from_logits(logits)[
            np.arange(len(logits)), records.labels
        ]
        loss = np.minimum(-np.log(np.maximum(own, 1e-300)) / WORST, 1.0)
        return np.concatenate([_cut(gradient, self.reach), _cut(curvature, self.reach**2), loss[:, None]], axis=1)

    def _all_pairs(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Give each record's gradient, and the covariance of the slopes under its probabilities, pair by pair."""
        mapped, slopes = self.family.jacobian(parameters, logits)
        probs = softmax(mapped)
        mean = np.einsum("ij,ijk->ik", probs, slopes)
        centred = (slopes - mean[:, None, :]) * np.sqrt(probs)[:, :, None]
        first, second = self.pairs
        curvature: Floats = np.matmul(centred.transpose(0, 2, 1), centred)[:, first, second]
        return mean - slopes[np.arange(len(labels)), labels], curvature


def _cut(rows: Floats, reach: float) -> Floats:
    """Shorten rows to the reach, in units of it."""
    finite = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    norms = np.linalg.norm(finite, axis=1, keepdims=True)
    shortened: Floats = finite / np.maximum(norms, reach) * (1 - 1e-12)
    return shortened
