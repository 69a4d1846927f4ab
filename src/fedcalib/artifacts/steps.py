"""How values that each class was given on its own are brought to a sum of one.

One class against the rest, over and over, gives values that sum to more or less than one. Dividing by the sum is what
is published; it takes the same share from every class, so one with 0.99 loses far more than was in doubt. Moving all
log-odds by the same step leaves what is nearly certain nearly so, and each class nearer to what was counted for it.

Step functions: one value a class and bin, as binning calibrators leave them.

Blends: a calibrator mixed with the base model, class by class, where little is known.

Step functions of a binary classifier's score, between edges of any spacing.

Step functions of the top label's confidence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, normalised
from fedcalib.artifacts.scaling import binary
from fedcalib.errors import InputError
from fedcalib.metrics.binning import EVEN, Axis, bin_index_unchecked
from fedcalib.types import Floats

INSIDE: Final = 1e-12  # 0 and 1 are read as a hair inside
NEWTON_STEPS: Final = 8  # six bring random and extreme rows within rounding of one


class Normaliser(ABC):
    """Brings rows of values between 0 and 1 to a sum of one; a row without any keeps the base model's."""

    @abstractmethod
    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Normalise rows, (n, classes)."""


@final
@dataclass(frozen=True)
class ByScale(Normaliser):
    """Divide by the sum."""

    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Divide."""
        return normalised(values, fallback)


@final
@dataclass(frozen=True)
class ByOdds(Normaliser):
    """Multiply all odds of a row by one factor, which is to move all log-odds by one step.

    The factor makes what the smaller values sum to equal to what the largest leaves. The logarithm of their ratio grows
    between one and two times as fast as the factor's, since no other is larger than the largest; so Newton's steps need
    no bracket.
    """

    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Find each row's factor, and divide by what rounding leaves of the sum."""
        inside = np.clip(values, INSIDE, 1 - INSIDE)
        odds = inside / (1 - inside)
        moved = _factor(odds) * odds
        empty = ~(values.sum(axis=1, keepdims=True) > 0)
        return normalised(np.where(empty, 0.0, moved / (1 + moved)), fallback)


def _factor(odds: Floats) -> Floats:
    """Find what each row's odds are to be multiplied by, (n, 1)."""
    place = odds.argmax(axis=1)[:, None]
    largest, others = np.take_along_axis(odds, place, axis=1), odds.copy()
    np.put_along_axis(others, place, 0.0, axis=1)
    factor = np.ones_like(largest)
    for _ in range(NEWTON_STEPS):
        top, rest = factor * largest, factor * others
        rest /= 1 + rest
        mass = rest.sum(axis=1, keepdims=True)
        growth = (rest * (1 - rest)).sum(axis=1, keepdims=True) / mass + top / (1 + top)
        factor = factor * np.exp(-np.log(mass * (1 + top)) / growth)
    return factor


SCALED: Final = ByScale()


@final
@dataclass(frozen=True)
class Steps(Calibrator):
    """A step function a class: probabilities in bin m of class j become `table[j][m]`, then rows are normalised.

    Two classes share one step function, that of class 1. `axis` says where the bins lie, `normaliser` how rows come to
    sum to one.
    """

    classes: int
    table: tuple[tuple[float, ...], ...]
    axis: Axis = EVEN
    normaliser: Normaliser = SCALED

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        values = np.array(self.table, dtype=np.float64) if len(widths) == 1 else np.full((1, 1), np.nan)
        if len(self.table) != asked_classes(self.classes) or not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected one row of values between 0 and 1 a class, all of one length, found others.")

    @classmethod
    def of_table(cls, classes: int, table: Floats, axis: Axis = EVEN, normaliser: Normaliser = SCALED) -> Steps:
        """Take the values as an array, (classes asked, bins)."""
        clipped = np.clip(np.nan_to_num(table, nan=0.0), 0.0, 1.0)
        return cls(classes, tuple(tuple(row) for row in clipped.tolist()), axis, normaliser)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look each probability up in its class's steps, and normalise."""
        return self.normaliser.shared(self.raw(probs), probs)

    def without_mass(self, probs: Floats) -> int:
        """Count the records for which every class's step is zero: they keep the base model's probabilities."""
        return int((self.raw(probs).sum(axis=1) == 0).sum())

    def raw(self, probs: Floats) -> Floats:
        """Look each probability up, without normalising."""
        table = np.array(self.table)
        if probs.shape[1] != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {probs.shape[1]}.")
        if self.classes == 2:
            one = table[0][self.axis.checked_cells(probs[:, 1], table.shape[1])]
            return np.stack([1 - one, one], axis=1)
        cells = self.axis.checked_cells(probs, table.shape[1])
        looked: Floats = table[np.arange(self.classes), cells]
        return looked


def asked_classes(classes: int) -> int:
    """Count the step functions that tell everything: with two classes, one does."""
    return 1 if classes == 2 else classes


@final
@dataclass(frozen=True)
class Blend(Calibrator):
    """Mix calibrated and base probabilities with weights a class, then normalise as the steps do.

    With `changed_only`, only records whose top class the calibrator would change are mixed; ties go to the lowest
    class on both sides.
    """

    steps: Steps
    weights: tuple[float, ...]
    changed_only: bool = False

    def __post_init__(self) -> None:
        if len(self.weights) != self.steps.classes or not all(0 <= weight <= 1 for weight in self.weights):
            raise InputError("Expected one weight between 0 and 1 a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Mix, and normalise."""
        calibrated = self.steps.calibrate(probs, logits)
        weights = np.array(self.weights)
        mixed = self.steps.normaliser.shared(weights * self.steps.raw(probs) + (1 - weights) * probs, probs)
        if not self.changed_only:
            return mixed
        changed = calibrated.argmax(axis=1) != probs.argmax(axis=1)
        kept: Floats = np.where(changed[:, None], mixed, calibrated)
        return kept


@final
@dataclass(frozen=True)
class EdgeSteps(Calibrator):
    """One value a bucket of the score of class 1; `edges` are the inner ones, and a bucket holds its lower edge."""

    edges: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        inner, values = np.array(self.edges, dtype=np.float64), np.array(self.values, dtype=np.float64)
        if len(values) != len(inner) + 1 or not (np.diff(inner) > 0).all():
            raise InputError("Expected rising edges and one value more than edges, found others.")
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected values between 0 and 1, found others.")

    @classmethod
    def of_arrays(cls, edges: Any, values: Any) -> EdgeSteps:
        """Take inner edges and values as arrays."""
        clipped = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0), 0.0, 1.0)
        return cls(tuple(np.asarray(edges, dtype=np.float64).tolist()), tuple(clipped.tolist()))

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look each score up."""
        binary(probs)
        one = np.array(self.values)[np.searchsorted(np.array(self.edges), probs[:, 1], side="right")]
        return np.stack([1 - one, one], axis=1)


@final
@dataclass(frozen=True)
class TopLabelSteps(Calibrator):
    """Give the top class the confidence of its bin, and share the rest among the others as before.

    The top class stays on top: where the bin's confidence would put another above it, both end up equal.
    """

    classes: int
    steps: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.steps or not all(0 <= step <= 1 for step in self.steps):
            raise InputError("Expected a confidence between 0 and 1 a bin, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look the top probability up, then rescale the others."""
        if probs.shape[1] != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {probs.shape[1]}.")
        rows, best = np.arange(len(probs)), probs.argmax(axis=1)
        others = probs.copy()
        others[rows, best] = 0.0
        left = others.sum(axis=1)
        even = np.full_like(others, 1 / max(self.classes - 1, 1))
        even[rows, best] = 0.0
        shares = np.where(left[:, None] > 0, others / np.where(left > 0, left, 1.0)[:, None], even)
        runner_up = shares.max(axis=1, initial=0.0)
        wanted = np.array(self.steps)[bin_index_unchecked(probs[rows, best], len(self.steps))]
        confidence = np.maximum(wanted, runner_up / (1 + runner_up))
        calibrated: Floats = shares * (1 - confidence)[:, None]
        calibrated[rows, best] = confidence
        return calibrated
