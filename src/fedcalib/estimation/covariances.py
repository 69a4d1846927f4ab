"""Covariances of many sums, held by what is known of them: as a matrix, or as a diagonal and one shared part.

Sums by class and bin are thousands where there are many classes, and a matrix of all their pairs would be too large.
What is computed from a covariance is little: variances, the variance of a weighted sum, and blocks of neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.types import Floats, Ints


class Covariance(ABC):
    """The covariance of k sums."""

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """The diagonal, shape (k,)."""

    @abstractmethod
    def of_sum(self, weights: Floats) -> float:
        """The variance of a weighted sum."""

    @abstractmethod
    def blocks(self, places: Ints) -> Floats:
        """The covariances among the sums in each row of places, (n, a), shape (n, a, a)."""

    @abstractmethod
    def turned(self, signs: Floats) -> Covariance:
        """The covariance of the sums times 1 or -1 each."""

    @abstractmethod
    def plus(self, variances: Floats) -> Covariance:
        """With the variances of further, independent parts, shape (k,)."""

    @property
    @abstractmethod
    def matrix(self) -> Floats:
        """All of it, shape (k, k): for few sums."""

    def between(self, weights: Floats) -> float:
        """What pairs of different sums add to the variance of a weighted sum."""
        return self.of_sum(weights) - float(weights**2 @ self.variances)


@final
@dataclass(frozen=True, eq=False)
class FullCovariance(Covariance):
    """A covariance as a matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.estimation.covariances import FullCovariance
    >>> FullCovariance(np.array([[2.0, 1.0], [1.0, 2.0]])).of_sum(np.array([1.0, -1.0]))
    2.0
    """

    values: Floats  # (k, k)

    @property
    def variances(self) -> Floats:
        return np.diag(self.values)

    def of_sum(self, weights: Floats) -> float:
        return float(weights @ self.values @ weights)

    def blocks(self, places: Ints) -> Floats:
        return np.asarray(self.values[places[:, :, None], places[:, None, :]])

    def turned(self, signs: Floats) -> FullCovariance:
        return FullCovariance(self.values * signs * signs[:, None])

    def plus(self, variances: Floats) -> FullCovariance:
        return FullCovariance(self.values + np.diag(variances))

    @property
    def matrix(self) -> Floats:
        return self.values


@final
@dataclass(frozen=True, eq=False)
class SharedCovariance(Covariance):
    """A diagonal, less one part that all sums share: diag(own) - shared shared^T.

    Sums over n records with the totals s have it: their covariance is that of one record n times, less s s^T / n.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.estimation.covariances import SharedCovariance
    >>> SharedCovariance(np.array([2.0, 2.0]), np.array([1.0, 0.0])).variances
    array([1., 2.])
    """

    own: Floats  # (k,)
    shared: Floats  # (k,)

    @classmethod
    def independent(cls, variances: Floats) -> SharedCovariance:
        """Sums that share nothing."""
        return cls(variances, np.zeros_like(variances))

    @property
    def variances(self) -> Floats:
        return np.asarray(self.own - self.shared**2)

    def of_sum(self, weights: Floats) -> float:
        return float(weights**2 @ self.own - (weights @ self.shared) ** 2)

    def blocks(self, places: Ints) -> Floats:
        shared = self.shared[places]
        same = places[:, :, None] == places[:, None, :]
        return np.asarray(same * self.own[places][:, :, None] - shared[:, :, None] * shared[:, None, :])

    def turned(self, signs: Floats) -> SharedCovariance:
        return replace(self, shared=self.shared * signs)

    def plus(self, variances: Floats) -> SharedCovariance:
        return replace(self, own=self.own + variances)

    @property
    def matrix(self) -> Floats:
        return np.asarray(np.diag(self.own) - np.outer(self.shared, self.shared))
