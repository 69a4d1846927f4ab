"""Moments of features per class: counts, sums and second moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.networks import Representation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientTerms, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats

_CHUNK = 4096  # records at a time: 16 MiB of 512 features, and their integer sums are exact in a float
_MAX_SCALE = 2.0**40  # beyond, such sums would not be
_CLIP_SLACK = 1 - 2.0**-40  # keeps a clipped feature vector within the bound whatever its rounding


@final
@dataclass(frozen=True)
class ClassMoments(RecordQuery):
    """Counts, sums and second moments of features per class, enough for every class's mean and covariance.

    A public `shift` is subtracted from the features, which are clipped to the L2 norm `radius` and divided by it, so
    |g| <= 1. A record adds 1 to its class's count, g to the sums (L2 <= 1, so L1 <= sqrt(d)) and the products g_i g_j
    of the upper triangle, those off the diagonal times sqrt(2): their L2 norm is |g|^2 <= 1, their L1 norm at most 1 +
    (d - 1) / sqrt(2), by a vector of equal entries. All are attained. With `diagonal` only squares are sent: both norms
    are |g|^2 <= 1.
    """

    classes: int
    features: int
    radius: float
    representation: Representation = Representation()
    shift: tuple[float, ...] | None = None
    diagonal: bool = False

    def __post_init__(self) -> None:
        if self.classes < 2 or self.features < 1 or not 1e-100 < self.radius < float("inf"):  # else squares underflow
            raise InputError(f"Expected at least 2 classes, 1 feature and a radius above 0, found {self!r:.200}.")
        if self.shift is not None and len(self.shift) != self.features:
            raise InputError(f"Expected a shift of {self.features} numbers, found {len(self.shift)}.")

    @property
    def products(self) -> int:
        """Number of products per class."""
        return self.features if self.diagonal else self.features * (self.features + 1) // 2

    @property
    def blocks(self) -> Mapping[str, Block]:
        d = self.features
        squares = Bound(1.0, 1.0, 1.0) if self.diagonal else Bound(1 + (d - 1) / sqrt(2), 1.0, 1.0)
        return {
            "count": Block((self.classes,), integral=True, one_hot=True, weight=0.2),
            "sum": Block((self.classes, d), Bound(sqrt(d), 1.0, 1.0), weight=0.3),
            "second": Block((self.classes, self.products), squares, weight=0.5),
        }

    def rows(self, records: Records) -> Rows:
        records.check_classes(self.classes)
        g = self._unit(records)
        places = [1, self.features, self.products]
        starts = np.cumsum([0, *(self.classes * size for size in places)])[:3]
        labels, pairs = records.labels[:, None], zip(starts, places, strict=True)
        cells = [start + labels * size + np.arange(size) for start, size in pairs]
        return Rows(np.hstack(cells), np.hstack([np.ones((len(g), 1)), g, self._products(g)]))

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Sum class by class, some records at a time: by a matrix product, or with a scale product by product."""
        if scale is not None and scale.max() > _MAX_SCALE:
            return super().pooled(records, scale)
        records.check_classes(self.classes)
        total = np.zeros(self.size, dtype=np.float64 if scale is None else np.int64)
        parts = self.split(total)
        scales = None if scale is None else self.split(scale)
        for chunk in records.chunks(_CHUNK):
            g = self._unit(chunk)
            for label in np.unique(chunk.labels):
                own = g[chunk.labels == label]
                at = {} if scales is None else {name: part[label] for name, part in scales.items()}
                parts["count"][label] += len(own) if scale is None else len(own) * int(at["count"])
                parts["sum"][label] += _summed(own, at.get("sum"))
                parts["second"][label] += self._seconds(own, at.get("second"))
        return total

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        for records in federation.clients():
            sums = self.pooled(records)
            found = np.flatnonzero(sums)
            yield ClientTerms(1, np.zeros(len(found), dtype=np.int64), found, sums[found])

    def _unit(self, records: Records) -> Floats:
        """Shifted, clipped features, shape (n, features); a record whose norm is not finite has zeros."""
        with np.errstate(over="ignore", invalid="ignore"):
            g = self.representation.of(records)
        if g.shape[1] != self.features:
            raise InputError(f"Expected {self.features} features per record, found {g.shape[1]}.")
        with np.errstate(over="ignore", invalid="ignore"):
            if self.shift is not None:
                g = g - np.array(self.shift)
            length = np.linalg.norm(g, axis=1, keepdims=True)
            cut: Floats = g / np.where(length > self.radius, length / _CLIP_SLACK, self.radius)
        cut[~np.isfinite(length[:, 0])] = 0.0
        return cut

    def _products(self, g: Floats) -> Floats:
        """Pairwise products of features, shape (n, products)."""
        if self.diagonal:
            return g * g
        first, second = np.triu_indices(self.features)
        return g[:, first] * np.where(first == second, 1.0, sqrt(2)) * g[:, second]

    def _seconds(self, g: Floats, scale: Floats | None) -> Array:
        """Summed products of records of one class, shape (products,)."""
        if self.diagonal:
            return _summed(g * g, scale)
        if scale is None:
            return packed(g.T @ g)
        whole, at = np.empty(self.products, dtype=np.int64), 0
        columns, early = np.ascontiguousarray(g.T), _power_of_two(scale)
        for i in range(self.features):
            # one row of the triangle: each record's product is truncated on its own, in the order of `rows`
            led = columns[i] * scale[at] if early else columns[i]
            row = led * sqrt(2) * columns[i:]
            row[0] = led * columns[i]
            if not early:
                row *= scale[at : at + len(row), None]
            whole[at : at + len(row)] = np.trunc(row, out=row).sum(axis=1)
            at += len(row)
        return whole


def _power_of_two(scale: Floats) -> bool:
    """Whether one power of two scales all cells: it never rounds, so the order of factors does not matter."""
    return bool(np.frexp(scale[0])[0] == 0.5 and (scale == scale[0]).all())


def _summed(values: Floats, scale: Floats | None) -> Array:
    if scale is None:
        return np.asarray(values.sum(axis=0))
    return np.asarray(np.trunc(values * scale).sum(axis=0), dtype=np.int64)


def packed(matrix: Floats) -> Floats:
    """A symmetric matrix, shape (..., d, d), as its upper triangle, times sqrt(2) off the diagonal to keep the norm."""
    first, second = np.triu_indices(matrix.shape[-1])
    return matrix[..., first, second] * np.where(first == second, 1.0, sqrt(2))


def unpacked(triangle: Floats, features: int) -> Floats:
    """The inverse of `packed`, shape (..., d, d)."""
    first, second = np.triu_indices(features)
    values = triangle / np.where(first == second, 1.0, sqrt(2))
    matrix = np.zeros((*triangle.shape[:-1], features, features))
    matrix[..., first, second] = values
    matrix[..., second, first] = values
    return matrix
