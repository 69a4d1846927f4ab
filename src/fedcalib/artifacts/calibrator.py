"""Calibrators: maps from a classifier's probabilities to better ones, and the ways to combine them.

`Calibrator` is the base of all. `Chain` applies several in turn, `Mixture` averages several, and `KeepTop` applies one
without changing the model's top class, so that accuracy stays what it was.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self, final

import numpy as np

from fedcalib.artifacts.saving import Artifact
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.records import Records, as_array, log_probs, softmax
from fedcalib.types import Floats, Ints
from fedcalib.wire import ADDED


@dataclass(frozen=True)
class Calibrator(Artifact):
    """A map from probabilities to calibrated probabilities; rows always sum to one.

    Call it with probabilities, of shape (n, classes), or with the scores of class 1 of a binary classifier, of shape
    (n,); the result has the same shape. Use `from_logits` for logits. A subclass defines `calibrate`.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Temperature
    >>> soften = Temperature(2.0)
    >>> soften([0.1, 0.9]).round(2)
    array([0.25, 0.75])
    >>> soften([[0.1, 0.9]]).round(2)
    array([[0.25, 0.75]])

    Classes may have names, which are public and travel with the file:

    >>> soften.with_class_names(("no", "yes")).class_names
    ('no', 'yes')
    """

    class_names: tuple[str, ...] = field(default=(), kw_only=True, repr=False, metadata=ADDED)  # empty: none are known

    def with_class_names(self, names: Sequence[str]) -> Self:
        """The same calibrator, with names of its classes in order.

        Parameters
        ----------
        names
            One name per class, which are public; none leaves the calibrator as it is.
        """
        return replace(self, class_names=tuple(names)) if names else self

    @abstractmethod
    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Calibrated probabilities, shape (n, classes), from the same records' probabilities and logits.

        Parameters
        ----------
        probs, logits
            Probabilities and logits of the same records, each of shape (n, classes).
        """

    def __call__(self, probs: Any) -> Floats:
        """Calibrate probabilities.

        Parameters
        ----------
        probs
            Probabilities of shape (n, classes), or scores of class 1 of shape (n,).

        Raises
        ------
        InputError
            If values lie outside [0, 1], or the shape is another.
        """
        values = as_array(probs).astype(np.float64)
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            raise InputError("Expected probabilities between 0 and 1, found others; use from_logits for logits.")
        if values.ndim == 1:
            pair = np.stack([1 - values, values], axis=1)
            return self.calibrate(pair, log_probs(pair))[:, 1]
        if values.ndim != 2:
            raise InputError(f"Expected probabilities of shape (n,) or (n, classes), found {values.shape}.")
        return self.calibrate(values, log_probs(values))

    def predict_proba(self, probs: Any) -> Floats:
        """Calibrated probabilities of all classes, shape (n, classes), as classifiers of scikit-learn return them.

        Parameters
        ----------
        probs
            Probabilities of shape (n, classes), or scores of class 1 of shape (n,).

        Examples
        --------
        >>> import fedcalib as fc
        >>> fc.artifacts.Temperature(2.0).predict_proba([0.9]).round(2)
        array([[0.25, 0.75]])
        """
        found = self(probs)
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found

    def from_logits(self, logits: Any) -> Floats:
        """Calibrated probabilities of finite logits, both of shape (n, classes); or of class 1 of log-odds, (n,)."""
        values = as_array(logits).astype(np.float64)
        if values.ndim == 1:
            return self.from_logits(np.stack([np.zeros_like(values), values], axis=1))[:, 1]
        if values.ndim != 2 or not np.isfinite(values).all():
            raise InputError(f"Expected finite logits of shape (n, classes), found shape {values.shape}.")
        return self.calibrate(softmax(values), values)

    def of(self, records: Records) -> Floats:
        """Calibrated probabilities of records, shape (n, classes)."""
        return self.calibrate(np.asarray(records.probs, dtype=np.float64), np.asarray(records.logits, dtype=np.float64))

    def over(self, records: Records) -> Records:
        """The same records with calibrated probabilities."""
        return Records(self.of(records), records.labels, False, records.unit, records.extra)

    def fitted_bins(self) -> tuple[int, int]:
        """Number of bins that were fitted to exact counts, and of those with 1 to 10 records of a label."""
        values = [getattr(self, one.name) for one in fields(self)]
        inside = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
        found = [one.fitted_bins() for one in inside if isinstance(one, Calibrator)]
        return sum(bins for bins, _ in found), sum(small for _, small in found)

    @property
    def disclosure(self) -> str:
        bins, small = self.fitted_bins()
        if not bins:
            return ""
        kept = f"The calibrator keeps the bins that define its method: {small or 'none'} of {bins} were fitted to 1 to "
        reveals = (
            " The value of such a bin is a ratio of small counts, which can tell how many records it has of a label."
        )
        return f"{kept}{MIN_RECORDS - 1} records of a label.{reveals if small else ''}"


@final
@dataclass(frozen=True)
class Identity(Calibrator):
    """The calibrator that changes nothing.

    Parameters
    ----------
    reason
        Why nothing is changed.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.artifacts.Identity()([0.2, 0.9])
    array([0.2, 0.9])
    """

    reason: str = ""

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        return probs


UNCHANGED: Final = Identity()


def check_classes(expected: int, values: Floats) -> None:
    """Raise an error unless probabilities or logits have as many columns as there are classes."""
    if values.shape[1] != expected:
        raise InputError(f"Expected {expected} classes, found {values.shape[1]}.")


def normalised(values: Floats, fallback: Floats) -> Floats:
    """Rows divided by their sums; a row of zeros is replaced by the row of `fallback`, the model's probabilities."""
    mass = values.sum(axis=1, keepdims=True)
    empty = ~(mass > 0)
    rows: Floats = np.where(empty, fallback, values / np.where(empty, 1.0, mass))
    return rows


@final
@dataclass(frozen=True)
class Chain(Calibrator):
    """Calibrators applied in turn: each takes the probabilities of the one before, and their logarithms as logits.

    Parameters
    ----------
    stages
        The calibrators, in the order in which they are applied.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.scaling import Platt, Temperature
    >>> fc.artifacts.Chain((Temperature(2.0), Platt(1.0, 0.5)))([0.1, 0.9]).round(2)
    array([0.35, 0.83])
    """

    stages: tuple[Calibrator, ...]

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        for stage in self.stages:
            probs = stage.calibrate(probs, logits)
            logits = log_probs(probs)
        return probs


def chained(*stages: Calibrator) -> Calibrator:
    """Calibrators as one chain: nested chains are flattened, and identities are dropped unless nothing else is left."""
    flat: list[Calibrator] = []
    for stage in stages:
        flat.extend(stage.stages if isinstance(stage, Chain) else (stage,))
    active = tuple(stage for stage in flat if not isinstance(stage, Identity))
    if len(active) > 1:
        return Chain(active)
    return active[0] if active else flat[-1] if flat else Identity()


@final
@dataclass(frozen=True)
class Mixture(Calibrator):
    """The weighted average of several calibrators' probabilities.

    Parameters
    ----------
    parts
        The calibrators.
    weights
        One weight per calibrator, none negative, with sum 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.calibrator import Mixture
    >>> from fedcalib.artifacts.scaling import Temperature
    >>> Mixture((fc.artifacts.Identity(), Temperature(2.0)), (0.5, 0.5))([0.1, 0.9]).round(3)
    array([0.175, 0.825])
    """

    parts: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        fitting = len(self.parts) == len(self.weights) >= 1 and all(weight >= 0 for weight in self.weights)
        if not fitting or abs(sum(self.weights) - 1) > 1e-6:
            raise InputError("Expected one weight per calibrator, none negative, with sum 1; found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        mixed: Floats = np.zeros_like(probs, dtype=np.float64)
        for part, weight in zip(self.parts, self.weights, strict=True):
            mixed += weight * part.calibrate(probs, logits)
        return mixed


TOP_MARGIN = 1e-9  # by how much the top class stays ahead, relative: decides the order and changes nothing else


@final
@dataclass(frozen=True)
class KeepTop(Calibrator):
    """A calibrator that never changes the model's top class, so that accuracy stays what it was.

    Where the inner calibrator would change the top class, the result is the nearest probabilities, by least squares,
    for which it does not: the model's top class and all classes that overtook it get one common value. It depends on
    the record alone, so it costs no privacy.

    Parameters
    ----------
    inner
        The calibrator to apply.
    note
        What was found out about letting the top class go; empty if nothing.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.scaling import VectorScaling
    >>> shifted = VectorScaling((1.0, 1.0, 1.0), (0.0, 2.0, 0.0))
    >>> shifted([[0.5, 0.3, 0.2]]).round(2)
    array([[0.17, 0.76, 0.07]])
    >>> fc.artifacts.KeepTop(shifted)([[0.5, 0.3, 0.2]]).round(2)
    array([[0.47, 0.47, 0.07]])
    """

    inner: Calibrator
    note: str = field(default="", compare=False, metadata=ADDED)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        calibrated = self.inner.calibrate(probs, logits)
        top = probs.argmax(axis=1)
        changed = np.flatnonzero(calibrated.argmax(axis=1) != top)
        if not changed.size:
            return calibrated
        levelled: Floats = np.array(calibrated)
        levelled[changed] = _levelled(levelled[changed], top[changed])
        return levelled


def _levelled(probs: Floats, top: Ints) -> Floats:
    """Lower every class above a level to it and raise the top class to it, so that rows keep their sums."""
    rows = np.arange(len(probs))
    own = probs[rows, top]
    others = probs.copy()
    others[rows, top] = -np.inf
    falling = -np.sort(-others, axis=1)[:, :-1]  # (n, classes - 1)
    counts = np.arange(1, falling.shape[1] + 1)
    levels = (own[:, None] + np.cumsum(falling, axis=1)) / (counts + 1)
    level = levels.max(axis=1)  # the averages grow as long as the next class lies above them
    out = np.minimum(probs, level[:, None])
    out[rows, top] = level * (1 + TOP_MARGIN)
    rows_of_sum_one: Floats = out / out.sum(axis=1, keepdims=True)
    return rows_of_sum_one
