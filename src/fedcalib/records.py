"""What one client holds: scored, labelled records, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array, Floats, Ints

FARTHEST: Final = 1e30  # beyond any model's logits; exp(-1e30 / T) is 0 for any temperature T that is fitted
CHUNK = 1 << 15  # records handled at once: large enough to vectorise, small enough to stay in cache


def softmax(logits: Floats) -> Floats:
    """Turn logits into probabilities, shifted by the largest so that nothing overflows."""
    shifted = logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials: Floats = np.exp(shifted, out=shifted)
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    return exponentials


def within_reach(logits: Floats) -> Floats:
    """Move records with a logit beyond `FARTHEST` so that their largest is 0, and cut them at -`FARTHEST`.

    Differences of finite logits can be infinite, and zero times infinity is no number; here they stay finite, and the
    probabilities the same. Logits that are no numbers, as from features that are none, count as 0. Other records stay
    as they are.
    """
    if logits.min(initial=0.0) >= -FARTHEST and logits.max(initial=0.0) <= FARTHEST:  # false with NaN
        return logits
    odd = ~(np.abs(logits) <= FARTHEST).all(axis=1)
    moved, far = logits.copy(), np.nan_to_num(logits[odd])
    with np.errstate(over="ignore"):
        moved[odd] = np.maximum(far - far.max(axis=1, keepdims=True), -FARTHEST)
    return moved


def log_probs(probs: Floats) -> Floats:
    """Take logarithms of probabilities, with zero read as 1e-12."""
    floored: Floats = np.maximum(probs, np.asarray(1e-12, dtype=probs.dtype))
    return np.log(floored, out=floored)


@final
@dataclass(frozen=True)
class Schema:
    """What everybody knows before the first question: how many classes and how many clients."""

    classes: int
    clients: int


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The labelled, scored records of one client, column by column.

    `given` holds logits or probabilities exactly as they came, so that ties between scores survive;
    the other form is computed when somebody asks for it.
    """

    given: Floats  # (n, classes)
    labels: Ints  # (n,)
    are_logits: bool
    unit: Ints | None = None  # (n,): which patient or user a record belongs to
    extra: Mapping[str, Array] = field(default_factory=dict)  # further columns, (n, ...): features, a rival's scores

    @classmethod
    def of_logits(cls, logits: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Take records whose scores are logits, (n, classes)."""
        return cls(_matrix(logits, "logits"), _labels(labels), True, _units(unit), _columns(extra)).checked()

    @classmethod
    def of_probs(cls, probs: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Take records whose scores are probabilities, (n, classes), each row summing to one."""
        return cls(_matrix(probs, "probabilities"), _labels(labels), False, _units(unit), _columns(extra)).checked()

    @classmethod
    def of_scores(cls, scores: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Take binary records whose score is the probability of class 1, (n,)."""
        column = np.asarray(scores)
        if column.ndim != 1:
            raise InputError(
                f"Expected one score a record, found an array of shape {column.shape}; pass probabilities instead."
            )
        column = column.astype(np.float32 if column.dtype == np.float32 else np.float64, copy=False)
        return cls.of_probs(np.stack([1 - column, column], axis=1), labels, unit=unit, **extra)

    @classmethod
    def empty(cls, classes: int) -> Records:
        """Make a client that holds nothing."""
        return cls(np.zeros((0, classes)), np.zeros(0, dtype=np.int64), True)

    def checked(self) -> Records:
        """Return these records, or say what is wrong with them."""
        n, classes = self.given.shape
        if len(self.labels) != n:
            raise InputError(f"Expected one label a record, found {n} records and {len(self.labels)} labels.")
        if n and (self.labels.min() < 0 or self.labels.max() >= classes):
            raise InputError(
                f"Expected labels from 0 to {classes - 1}, found {self.labels.min()} to {self.labels.max()}; "
                "number the classes from 0."
            )
        if not np.isfinite(self.given).all():
            raise InputError("Expected finite scores, found NaN or infinity; drop those records first.")
        if not self.are_logits and n:
            _check_probs(self.given)
        for name, column in [*self.extra.items(), *([("unit", self.unit)] if self.unit is not None else [])]:
            if len(column) != n:
                raise InputError(f"Expected {n} rows in the column '{name}', found {len(column)}.")
        return self

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """Say how many classes a record is scored for."""
        return int(self.given.shape[1])

    @cached_property
    def probs(self) -> Floats:
        """Give the probabilities, (n, classes)."""
        return softmax(self.logits) if self.are_logits else self.given

    @cached_property
    def logits(self) -> Floats:
        """Return the logits, (n, classes): those given, or log-probabilities; always finite, as are differences."""
        return within_reach(self.given) if self.are_logits else log_probs(self.given)

    @property
    def score(self) -> Floats:
        """Give the probability of class 1 of a binary classifier, (n,)."""
        if self.classes != 2:
            raise InputError(f"Expected a binary classifier, found {self.classes} classes; use a multiclass method.")
        return self.probs[:, 1]

    def take(self, rows: Any) -> Records:
        """Pick records by slice, mask or index."""
        return Records(
            self.given[rows],
            self.labels[rows],
            self.are_logits,
            None if self.unit is None else self.unit[rows],
            {name: column[rows] for name, column in self.extra.items()},
        )

    def chunks(self, size: int = CHUNK) -> Iterator[Records]:
        """Walk through the records a slice at a time."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @staticmethod
    def concatenate(parts: Sequence[Records]) -> Records:
        """Lay several clients' records end to end."""
        if len({(part.classes, part.are_logits) for part in parts}) != 1:
            raise InputError("Expected every client to hold the same classes, all as logits or all as probabilities.")
        units = [part.unit for part in parts if part.unit is not None]
        return Records(
            np.concatenate([part.given for part in parts]),
            np.concatenate([part.labels for part in parts]),
            parts[0].are_logits,
            np.concatenate(units) if len(units) == len(parts) else None,
            {name: np.concatenate([part.extra[name] for part in parts]) for name in parts[0].extra},
        )


def _matrix(values: Any, name: str) -> Floats:
    matrix = np.asarray(values)
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise InputError(f"Expected {name} of shape (records, classes), found {matrix.shape}.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    return matrix


def _labels(values: Any) -> Ints:
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise InputError(f"Expected one label a record, found an array of shape {labels.shape}.")
    whole = labels.astype(np.int64)
    if len(labels) and not (whole == labels).all():
        raise InputError("Expected whole numbers as labels, found fractions; number the classes from 0.")
    return whole


def _units(values: Any) -> Ints | None:
    return None if values is None else np.unique(np.asarray(values), return_inverse=True)[1].reshape(-1)


def _columns(extra: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(column) for name, column in extra.items()}


def _check_probs(probs: Floats) -> None:
    if probs.min() < 0 or probs.max() > 1:
        raise InputError(
            f"Expected probabilities between 0 and 1, found {probs.min():.6g} to {probs.max():.6g}; "
            "if these are logits, say so."
        )
    off = np.abs(probs.sum(axis=1) - 1)
    if off.max() > 1e-3:
        row = int(off.argmax())
        raise InputError(
            f"Expected probabilities that sum to one, found {probs[row].sum():.6g} in row {row}; "
            "if these are logits, say so."
        )
