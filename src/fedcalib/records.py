"""Scored, labelled records of one client, column by column, and what is public about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, final

import numpy as np

from fedcalib.errors import InputError, MissingColumn
from fedcalib.types import Array, Floats, Ints

MAX_LOGIT: Final = 1e30  # beyond any model's logits; exp(-1e30 / T) is 0 for all temperatures below 1e6, the highest
CHUNK = 1 << 15  # records handled at once: large enough to vectorise, small enough to stay in cache


def as_array(values: Any) -> Array:
    """Values as an array; a tensor of torch is detached and copied to the host, and bfloat16 is widened."""
    if hasattr(values, "detach"):  # a tensor, known without importing torch
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asarray(values)


def softmax(logits: Floats) -> Floats:
    """Probabilities of logits; each row is shifted by its largest logit, so that nothing overflows."""
    shifted = logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials: Floats = np.exp(shifted, out=shifted)
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    return exponentials


def clip_logits(logits: Floats) -> Floats:
    """Shift records that have a logit beyond `MAX_LOGIT` so that their largest is 0, and clip them at -`MAX_LOGIT`.

    Differences of finite logits can be infinite, and zero times infinity is not a number. After the shift differences
    stay finite and probabilities are unchanged. Logits that are not numbers (from features that are not) count as 0.
    All other records are returned as they are.
    """
    if logits.min(initial=0.0) >= -MAX_LOGIT and logits.max(initial=0.0) <= MAX_LOGIT:  # false with NaN
        return logits
    outlying = ~(np.abs(logits) <= MAX_LOGIT).all(axis=1)
    moved, far = logits.copy(), np.nan_to_num(logits[outlying])
    with np.errstate(over="ignore"):
        moved[outlying] = np.maximum(far - far.max(axis=1, keepdims=True), -MAX_LOGIT)
    return moved


def one_score(logits: Floats) -> Floats:
    """Logits of two classes as log-probabilities, so that one score is one record; those of more classes as they are.

    What is added to both logits changes no probability. So that the same probabilities always get the same calibrated
    ones, however they were given, calibrators that look at single logits look at these.
    """
    if logits.shape[1] != 2:
        return logits
    with np.errstate(over="ignore"):
        odds = np.clip(logits[:, 1] - logits[:, 0], -2 * MAX_LOGIT, 2 * MAX_LOGIT)
    return -np.logaddexp(0.0, np.stack([odds, -odds], axis=1))


def log_probs(probs: Floats) -> Floats:
    """Logarithms of probabilities, with zero read as 1e-12."""
    floored: Floats = np.maximum(probs, np.asarray(1e-12, dtype=probs.dtype))
    return np.log(floored, out=floored)


@final
@dataclass(frozen=True)
class Schema:
    """What is public before the first query: the number of classes and of clients.

    Parameters
    ----------
    classes
        Number of classes that the classifier scores.
    clients
        Number of clients in the federation.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.method.Plan.of(fc.FedBin(), fc.Schema(classes=3, clients=10)).queries
    (LabelHistogram(classes=3, bins=15, clip=None, axis=EvenProbability()),)
    """

    classes: int
    clients: int


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The scored, labelled records of one client, column by column.

    Build them with `of_scores`, `of_probs` or `of_logits`, which check what they are given.

    Parameters
    ----------
    given
        Logits or probabilities exactly as they came, shape (n, classes), so that ties between scores survive. The other
        form is computed on first use.
    labels
        True classes, numbered from 0, shape (n,).
    are_logits
        Whether `given` holds logits.
    unit
        The patient or user that each record belongs to, shape (n,), or None if every record is a unit of its own.
    extra
        Further columns, shape (n, ...): features, another model's scores, a domain.

    Raises
    ------
    InputError
        If columns differ in length, labels are out of range, scores are not probabilities, or scores or further columns
        hold NaN or infinity.

    Examples
    --------
    >>> import fedcalib as fc
    >>> records = fc.Records.of_scores([0.9, 0.2, 0.7], labels=[1, 0, 0])
    >>> len(records), records.classes
    (3, 2)
    >>> records.probs.round(1).tolist()
    [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]
    """

    given: Floats  # (n, classes)
    labels: Ints  # (n,)
    are_logits: bool
    unit: Ints | None = None  # (n,): which patient or user a record belongs to
    extra: Mapping[str, Array] = field(default_factory=dict)  # further columns, (n, ...): features, a rival's scores

    def __repr__(self) -> str:
        """How many records there are and of what kind, and no record."""
        kind = "logits" if self.are_logits else "probabilities"
        more = f", further columns: {', '.join(self.extra)}" if self.extra else ""
        return f"Records({len(self.labels):,} records, {kind} of {self.given.shape[-1]} classes{more})"

    @classmethod
    def of_logits(cls, logits: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Records whose scores are logits, shape (n, classes), or log-odds of class 1, shape (n,).

        A record with a logit beyond 1e30 is shifted so that its largest logit is 0, and clamped at -1e30. That changes
        no probability at any temperature that is fitted; all other records are kept as they are, bit by bit.

        Examples
        --------
        >>> import fedcalib as fc
        >>> fc.Records.of_logits([[2.0, 0.0], [0.0, 0.0]], labels=[0, 1]).score.round(2).tolist()
        [0.12, 0.5]
        """
        values = as_array(logits)
        if values.ndim == 1:
            values = np.stack([np.zeros_like(values), values], axis=1)
        given = cls(_matrix(values, "logits"), _labels(labels), True, _units(unit), _columns(extra)).checked()
        return replace(given, given=clip_logits(given.given))

    @classmethod
    def of_probs(cls, probs: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Records whose scores are probabilities, shape (n, classes), each row summing to one."""
        return cls(_matrix(probs, "probabilities"), _labels(labels), False, _units(unit), _columns(extra)).checked()

    @classmethod
    def of_scores(cls, scores: Any, labels: Any, *, unit: Any = None, **extra: Any) -> Records:
        """Records of a binary classifier whose score is the probability of class 1, shape (n,)."""
        column = as_array(scores)
        if column.ndim != 1:
            raise InputError(
                f"Expected one score per record, found an array of shape {column.shape}; pass probabilities instead."
            )
        column = column.astype(np.float32 if column.dtype == np.float32 else np.float64, copy=False)
        return cls.of_probs(np.stack([1 - column, column], axis=1), labels, unit=unit, **extra)

    @classmethod
    def empty(cls, classes: int) -> Records:
        """The records of a client that holds none."""
        return cls(np.zeros((0, classes)), np.zeros(0, dtype=np.int64), True)

    def checked(self) -> Records:
        """These records, or an `InputError` that states what is wrong with them."""
        n, classes = self.given.shape
        if len(self.labels) != n:
            raise InputError(f"Expected one label per record, found {n} records and {len(self.labels)} labels.")
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
            _check_finite(name, column)
        return self

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """Number of classes that a record is scored for."""
        return int(self.given.shape[1])

    def check_classes(self, classes: int) -> None:
        """Raise an error unless records are scored for so many classes, which is public."""
        if self.classes != classes:
            raise InputError(f"Expected {classes} classes, found {self.classes}.")

    @cached_property
    def probs(self) -> Floats:
        """Probabilities, shape (n, classes)."""
        return softmax(self.logits) if self.are_logits else self.given

    @cached_property
    def logits(self) -> Floats:
        """Logits, shape (n, classes): those given, or log-probabilities; they and their differences are finite.

        Those that a client was given were clamped at the door; here it matters for logits that a network computes.
        """
        return clip_logits(self.given) if self.are_logits else log_probs(self.given)

    @property
    def score(self) -> Floats:
        """Probability of class 1 of a binary classifier, shape (n,)."""
        if self.classes != 2:
            raise InputError(f"Expected a binary classifier, found {self.classes} classes; use a multiclass method.")
        return self.probs[:, 1]

    def column(self, name: str, what: str) -> Array:
        """A further column, shape (n, ...); `what` says what it holds, for the error where there is none."""
        if name not in self.extra:
            raise MissingColumn(f"Expected a column '{name}' {what}, found {sorted(self.extra) or 'none'}.")
        return self.extra[name]

    def take(self, rows: Any) -> Records:
        """The records at a slice, a mask or indices."""
        return Records(
            self.given[rows],
            self.labels[rows],
            self.are_logits,
            None if self.unit is None else self.unit[rows],
            {name: column[rows] for name, column in self.extra.items()},
        )

    def chunks(self, size: int = CHUNK) -> Iterator[Records]:
        """Slices of at most `size` records, in order."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @staticmethod
    def concatenate(parts: Sequence[Records]) -> Records:
        """Several clients' records, end to end."""
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
    matrix = as_array(values)
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise InputError(f"Expected {name} of shape (records, classes), found {matrix.shape}.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    return matrix


def _labels(values: Any) -> Ints:
    labels = as_array(values)
    if labels.ndim != 1:
        raise InputError(f"Expected one label per record, found an array of shape {labels.shape}.")
    try:
        whole = labels.astype(np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(
            "Expected class numbers as labels, found words; number the classes from 0, or read a frame with fc.read, "
            "which takes positive= and classes=."
        ) from error
    if len(labels) and not (whole == labels).all():
        raise InputError("Expected whole numbers as labels, found fractions; number the classes from 0.")
    return whole


def _units(values: Any) -> Ints | None:
    """Units as numbers that do not depend on which other units there are: their own, or hashes of their names."""
    column = None if values is None else np.asarray(values)
    if column is None or column.dtype.kind in "iu":
        return column if column is None else column.astype(np.int64)
    names, place = np.unique(column, return_inverse=True)
    hashes = b"".join(blake2b(str(name).encode(), digest_size=8).digest() for name in names.tolist())
    return np.frombuffer(hashes, dtype=np.int64)[place.reshape(-1)]


def _columns(extra: Mapping[str, Any]) -> dict[str, Array]:
    return {name: as_array(column) for name, column in extra.items()}


def _check_finite(name: str, column: Array) -> None:
    if column.dtype.kind not in "fc" or np.isfinite(column).all():
        return
    row = int(np.argmax(~np.isfinite(column.reshape(len(column), -1)).all(axis=1)))
    raise InputError(
        f"Expected finite numbers in the column '{name}', found NaN or infinity first in row {row}; "
        "drop those records or fill in a number."
    )


def _check_probs(probs: Floats) -> None:
    if probs.min() < 0 or probs.max() > 1:
        raise InputError(
            f"Expected probabilities between 0 and 1, found {probs.min():.6g} to {probs.max():.6g}; "
            "pass logits to Records.of_logits, or name their columns with logits=."
        )
    off = np.abs(probs.sum(axis=1) - 1)
    if off.max() > 1e-3:
        row = int(off.argmax())
        raise InputError(
            f"Expected probabilities that sum to one, found {probs[row].sum():.6g} in row {row}; "
            "pass logits to Records.of_logits, or name their columns with logits=."
        )
