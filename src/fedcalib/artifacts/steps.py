"""Step functions, as binning calibrators produce them, and the ways to bring their values to a sum of one.

`Steps` has one step function per class, `EdgeSteps` one for a binary classifier's score with edges of any spacing,
`TopLabelSteps` one for the top label's confidence. `Blend` mixes steps with the model's own probabilities.

Step functions that are fitted to one class against the rest give values whose sum is not one. Dividing by the sum is
the published way (`ByScale`); it takes the same fraction from every class, so a value of 0.99 loses far more than its
uncertainty. Moving all log-odds by the same amount (`ByOdds`) leaves what is nearly certain nearly so, and keeps each
class nearer to the value that was fitted for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, check_classes, normalised
from fedcalib.artifacts.scaling import binary
from fedcalib.errors import InputError
from fedcalib.metrics.binning import EVEN, Axis, bin_index_unchecked
from fedcalib.types import Floats
from fedcalib.wire import ADDED

ODDS_MARGIN: Final = 1e-12  # 0 and 1 are moved inside by this much, so that odds are finite
NEWTON_STEPS: Final = 8  # six bring random and extreme rows to a sum of one but for rounding


class Normaliser(ABC):
    """A way to bring rows of values between 0 and 1 to a sum of one."""

    @abstractmethod
    def normalise(self, values: Floats, fallback: Floats) -> Floats:
        """Rows with sum one, (n, classes); a row of zeros is replaced by the row of `fallback`."""


@final
@dataclass(frozen=True)
class ByScale(Normaliser):
    """Divide each row by its sum.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> row = np.array([[0.9, 0.6, 0.0]])
    >>> fc.methods.ByScale().normalise(row, row).round(2)
    array([[0.6, 0.4, 0. ]])
    """

    def normalise(self, values: Floats, fallback: Floats) -> Floats:
        return normalised(values, fallback)


@final
@dataclass(frozen=True)
class ByOdds(Normaliser):
    """Multiply all odds of a row by one factor, which adds one number to all its log-odds.

    At the right factor the smaller values sum to one minus the largest. The logarithm of the ratio of these two grows
    between one and two times as fast as that of the factor, because no other value is larger than the largest; so
    Newton's method needs no bracket.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> row = np.array([[0.99, 0.1, 0.1]])
    >>> fc.methods.ByOdds().normalise(row, row).round(3)
    array([[0.954, 0.023, 0.023]])
    >>> fc.methods.ByScale().normalise(row, row).round(3)
    array([[0.832, 0.084, 0.084]])
    """

    def normalise(self, values: Floats, fallback: Floats) -> Floats:
        inside = np.clip(values, ODDS_MARGIN, 1 - ODDS_MARGIN)
        odds = inside / (1 - inside)
        moved = _factor(odds) * odds
        empty = ~(values.sum(axis=1, keepdims=True) > 0)
        return normalised(np.where(empty, 0.0, moved / (1 + moved)), fallback)


def _factor(odds: Floats) -> Floats:
    """The factor of each row's odds, shape (n, 1), by Newton's method in its logarithm."""
    top_class = odds.argmax(axis=1)[:, None]
    largest, others = np.take_along_axis(odds, top_class, axis=1), odds.copy()
    np.put_along_axis(others, top_class, 0.0, axis=1)
    factor = np.ones_like(largest)
    for _ in range(NEWTON_STEPS):
        top, rest = factor * largest, factor * others
        rest /= 1 + rest
        mass = rest.sum(axis=1, keepdims=True)
        slope = (rest * (1 - rest)).sum(axis=1, keepdims=True) / mass + top / (1 + top)
        factor = factor * np.exp(-np.log(mass * (1 + top)) / slope)
    return factor


SCALED: Final = ByScale()


@final
@dataclass(frozen=True)
class Steps(Calibrator):
    """One step function per class: probabilities of class j in bin m become `table[j][m]`, then rows are normalised.

    Parameters
    ----------
    classes
        Number of classes.
    table
        One row of values per class, all between 0 and 1; with two classes, the one row of class 1.
    axis
        Where the bins lie.
    normaliser
        How rows are brought to a sum of one.
    small_bins
        Number of bins that were fitted to 1 to 10 records of a label; None where noise hides it.

    Examples
    --------
    >>> from fedcalib.artifacts.steps import Steps
    >>> Steps(2, ((0.2, 0.7),))([0.1, 0.9])
    array([0.2, 0.7])
    """

    classes: int
    table: tuple[tuple[float, ...], ...]
    axis: Axis = EVEN
    normaliser: Normaliser = SCALED
    small_bins: int | None = field(default=None, compare=False, metadata=ADDED)

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        values = np.array(self.table, dtype=np.float64) if len(widths) == 1 else np.full((1, 1), np.nan)
        if len(self.table) != step_functions(self.classes) or not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected one row of values between 0 and 1 per class, all of one length, found others.")

    @classmethod
    def of_table(
        cls,
        classes: int,
        table: Floats,
        axis: Axis = EVEN,
        normaliser: Normaliser = SCALED,
        *,
        small_bins: int | None = None,
    ) -> Steps:
        """Steps from an array of shape (step functions, bins), with values clipped to [0, 1]."""
        clipped = np.clip(np.nan_to_num(table, nan=0.0), 0.0, 1.0)
        return cls(classes, tuple(tuple(row) for row in clipped.tolist()), axis, normaliser, small_bins)

    def fitted_bins(self) -> tuple[int, int]:
        return (0, 0) if self.small_bins is None else (sum(map(len, self.table)), self.small_bins)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        return self.normaliser.normalise(self.raw(probs), probs)

    def without_mass(self, probs: Floats) -> int:
        """Number of records for which every class's step is zero: they keep the model's probabilities."""
        return int((self.raw(probs).sum(axis=1) == 0).sum())

    def raw(self, probs: Floats) -> Floats:
        """Values of the step functions, shape (n, classes), before normalising."""
        table = np.array(self.table)
        check_classes(self.classes, probs)
        if self.classes == 2:
            one = table[0][self.axis.checked_cells(probs[:, 1], table.shape[1])]
            return np.stack([1 - one, one], axis=1)
        cells = self.axis.checked_cells(probs, table.shape[1])
        values: Floats = table[np.arange(self.classes), cells]
        return values


def step_functions(classes: int) -> int:
    """Number of step functions for so many classes: one per class, but only one for two classes."""
    return 1 if classes == 2 else classes


@final
@dataclass(frozen=True)
class Blend(Calibrator):
    """A weighted average of step functions and the model's own probabilities, with one weight per class.

    Parameters
    ----------
    steps
        The step functions; their normaliser also normalises the average.
    weights
        One weight of the step functions per class, between 0 and 1.
    changed_only
        Only average records whose top class the step functions would change; ties go to the lowest class.

    Examples
    --------
    >>> from fedcalib.artifacts.steps import Blend, Steps
    >>> Blend(Steps(2, ((0.2, 0.7),)), (0.5, 0.5))([0.1, 0.9])
    array([0.15, 0.8 ])
    """

    steps: Steps
    weights: tuple[float, ...]
    changed_only: bool = False

    def __post_init__(self) -> None:
        if len(self.weights) != self.steps.classes or not all(0 <= weight <= 1 for weight in self.weights):
            raise InputError("Expected one weight between 0 and 1 per class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        calibrated = self.steps.calibrate(probs, logits)
        weights = np.array(self.weights)
        mixed = self.steps.normaliser.normalise(weights * self.steps.raw(probs) + (1 - weights) * probs, probs)
        if not self.changed_only:
            return mixed
        changed = calibrated.argmax(axis=1) != probs.argmax(axis=1)
        rows: Floats = np.where(changed[:, None], mixed, calibrated)
        return rows


@final
@dataclass(frozen=True)
class EdgeSteps(Calibrator):
    """One step function of the score of class 1, with edges of any spacing.

    Parameters
    ----------
    edges
        Inner edges in increasing order. A bucket includes its lower edge.
    values
        One value between 0 and 1 per bucket, so one more than there are edges.
    small_bins
        As in `Steps`.

    Examples
    --------
    >>> from fedcalib.artifacts.steps import EdgeSteps
    >>> EdgeSteps((0.3,), (0.2, 0.7))([0.1, 0.3])
    array([0.2, 0.7])
    """

    edges: tuple[float, ...]
    values: tuple[float, ...]
    small_bins: int | None = field(default=None, compare=False, metadata=ADDED)

    def __post_init__(self) -> None:
        inner, values = np.array(self.edges, dtype=np.float64), np.array(self.values, dtype=np.float64)
        if len(values) != len(inner) + 1 or not (np.diff(inner) > 0).all():
            raise InputError("Expected rising edges and one value more than edges, found others.")
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected values between 0 and 1, found others.")

    @classmethod
    def of_arrays(cls, edges: Any, values: Any, small_bins: int | None = None) -> EdgeSteps:
        """Steps from arrays of inner edges and values, with values clipped to [0, 1]."""
        clipped = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0), 0.0, 1.0)
        return cls(tuple(np.asarray(edges, dtype=np.float64).tolist()), tuple(clipped.tolist()), small_bins)

    def fitted_bins(self) -> tuple[int, int]:
        return (0, 0) if self.small_bins is None else (len(self.values), self.small_bins)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        binary(probs)
        one = np.array(self.values)[np.searchsorted(np.array(self.edges), probs[:, 1], side="right")]
        return np.stack([1 - one, one], axis=1)


@final
@dataclass(frozen=True)
class TopLabelSteps(Calibrator):
    """One step function of the top class's probability; the other classes keep their proportions.

    The top class stays on top: where its new probability would put another class above it, both become equal.

    Parameters
    ----------
    classes
        Number of classes.
    steps
        One probability of the top class per bin; bins have equal width on [0, 1].
    small_bins
        As in `Steps`, of right or of wrong records.

    Examples
    --------
    >>> from fedcalib.artifacts.steps import TopLabelSteps
    >>> TopLabelSteps(3, (0.4, 0.8))([[0.9, 0.06, 0.04]]).round(2)
    array([[0.8 , 0.12, 0.08]])
    """

    classes: int
    steps: tuple[float, ...]
    small_bins: int | None = field(default=None, compare=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not self.steps or not all(0 <= step <= 1 for step in self.steps):
            raise InputError("Expected one probability between 0 and 1 per bin, found others.")

    def fitted_bins(self) -> tuple[int, int]:
        return (0, 0) if self.small_bins is None else (len(self.steps), self.small_bins)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(self.classes, probs)
        rows, best = np.arange(len(probs)), probs.argmax(axis=1)
        others = probs.copy()
        others[rows, best] = 0.0
        remaining = others.sum(axis=1)
        even = np.full_like(others, 1 / max(self.classes - 1, 1))
        even[rows, best] = 0.0
        divisor = np.where(remaining > 0, remaining, 1.0)[:, None]
        proportions = np.where(remaining[:, None] > 0, others / divisor, even)
        runner_up = proportions.max(axis=1, initial=0.0)
        stepped = np.array(self.steps)[bin_index_unchecked(probs[rows, best], len(self.steps))]
        confidence = np.maximum(stepped, runner_up / (1 + runner_up))
        calibrated: Floats = proportions * (1 - confidence)[:, None]
        calibrated[rows, best] = confidence
        return calibrated
