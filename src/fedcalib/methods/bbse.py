"""Shifts of the class mix, for clients that have no labels or a mix of their own.

`ClassShares` estimates how common each class is, so that clients can correct for their own mix. `BBSE` estimates the
mix of a target without labels from predictions, given the confusion counts of labelled clients (`ConfusionOf`). `CBPE`
estimates accuracy without labels from confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.evaluation import Confusion
from fedcalib.artifacts.logit_shifts import LabelShares, LabelShift
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.queries.shift import Confidence, ConfusionCounts, Predictions
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records, Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class ClassCounts(RecordQuery):
    """Number of records per class: a record adds one to one cell, so every norm is 1; `clip` is for whole clients."""

    classes: int
    clip: float | None = None

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"labels": Block((self.classes,), Bound(1.0, 1.0, 1.0), integral=True, one_hot=True, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        return Rows(records.labels[:, None].astype(np.int64), None)


@final
@dataclass(frozen=True)
class ClassShares(Method[LabelShares]):
    """Estimate how common each class is over all clients, from one count.

    Parameters
    ----------
    typical_records
        A public guess at a client's number of records, from which the clip for whole clients follows.

    Examples
    --------
    >>> import fedcalib as fc
    >>> runtime = fc.InProcess(fc.Federation.simulated(classes=2))
    >>> shares = fc.run(fc.methods.ClassShares(), runtime, fc.SecAgg()).artifact
    >>> [round(share, 1) for share in shares.shares]
    [0.5, 0.5]
    """

    typical_records: float = 50.0

    def protocol(self, schema: Schema) -> Flow[LabelShares]:
        answer = yield ClassCounts(schema.classes, max(1.0, self.typical_records / sqrt(2)))
        return LabelShares.of_counts(answer["labels"])


_MIN_PROPORTION = 1e-4  # of any class, so that a wrong estimate can be undone


@final
@dataclass(frozen=True)
class ConfusionOf(Method[Confusion]):
    """Count predicted by true classes once, over clients that have labels; `BBSE` needs it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> runtime = fc.InProcess(fc.Federation.simulated(classes=2))
    >>> confusion = fc.run(fc.methods.ConfusionOf(), runtime, fc.SecAgg()).artifact
    >>> [len(row) for row in confusion.counts]
    [2, 2]
    """

    def protocol(self, schema: Schema) -> Flow[Confusion]:
        answer = yield ConfusionCounts(schema.classes)
        noise = float(answer.variance("confusion").max(initial=0.0))
        return Confusion(tuple(map(tuple, answer["confusion"].tolist())), noise)


@final
@dataclass(frozen=True)
class BBSE(Method[LabelShift]):
    """Correct for a shift of the class mix among clients without labels (black box shift estimation).

    If only the mix of classes has shifted, predictions shift by the confusion matrix times class weights. Solving for
    the weights, with a ridge toward no shift that grows with the noise, yields a calibrator that reweighs classes. Run
    it on the target; labels there are not used.

    Parameters
    ----------
    confusion
        Confusion counts of clients with labels (`ConfusionOf`).
    calibrator
        A calibrator to apply before the classes are reweighed.
    ridge
        The least ridge toward no shift.

    Examples
    --------
    >>> import fedcalib as fc
    >>> source = fc.Federation.simulated(classes=2, records=5000)
    >>> confusion = fc.run(fc.methods.ConfusionOf(), fc.InProcess(source), fc.SecAgg()).artifact
    >>> target = source.where((source.records.labels == 1) | (source.owner < 3))  # fewer records of class 0
    >>> shift = fc.run(fc.BBSE(confusion), fc.InProcess(target), fc.SecAgg()).artifact
    >>> round(shift.own[1], 2), round(float(target.records.labels.mean()), 2)
    (0.77, 0.77)
    """

    confusion: Confusion
    calibrator: Calibrator = UNCHANGED
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        if not self.ridge >= 0:
            raise InputError(f"Expected a ridge of at least 0, found {self.ridge}.")

    def protocol(self, schema: Schema) -> Flow[LabelShift]:
        if schema.classes != len(self.confusion.counts):
            raise InputError(
                f"Expected as many classes as the confusion counts have, {len(self.confusion.counts)}, "
                f"found {schema.classes}; count confusions of the same classifier."
            )
        answer = yield Predictions(schema.classes)
        noise = float(answer.variance("predictions").max(initial=0.0))
        overall, own = self._shares(np.maximum(answer["predictions"], 0.0), noise)
        return LabelShift(self.calibrator, tuple(own.tolist()), tuple(overall.tolist()))

    def _shares(self, predicted: Floats, noise: float) -> tuple[Floats, Floats]:
        """Proportions of the classes among the labelled records and in the target."""
        joint = np.maximum(np.array(self.confusion.counts), 0.0)
        if joint.sum() < 1 or predicted.sum() < 1:
            even = np.full(len(joint), 1 / len(joint))
            return even, even
        ridge = self.ridge + self.confusion.noise * len(joint) / joint.sum() ** 2 + noise / predicted.sum() ** 2
        overall = _mix(joint.sum(axis=0))
        weights = class_weights(joint / joint.sum(), predicted / predicted.sum(), ridge)
        return overall, _mix(weights * overall)


def class_weights(joint: Floats, predicted: Floats, ridge: float) -> Floats:
    """Solve joint @ weights = predicted for weights of at least 0; a larger ridge keeps them nearer to 1."""
    classes = len(predicted)
    system = joint.T @ joint + ridge * np.eye(classes)
    shift = np.linalg.lstsq(system, joint.T @ (predicted - joint.sum(axis=1)), rcond=None)[0]
    weights: Floats = np.maximum(1 + shift, 0.0)
    return weights


def _mix(values: Floats) -> Floats:
    """Amounts as proportions, none below `_MIN_PROPORTION`."""
    total = float(values.sum())
    shares = values / total if total > 0 else np.full(len(values), 1 / len(values))
    floored = np.maximum(shares, _MIN_PROPORTION)
    mixed: Floats = floored / floored.sum()
    return mixed


@final
@dataclass(frozen=True)
class CBPE(Method[Measured]):
    """Estimate accuracy without labels: where confidence is calibrated, its mean is the expected accuracy.

    Labels are not used. The 95% interval covers privacy noise and sampling; it assumes that confidence is calibrated on
    *these* records, which no data without labels can check.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=1.0)  # calibrated
    >>> accuracy = fc.run(fc.methods.CBPE(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(accuracy.value, 2), round(fc.metrics.accuracy(federation.records.probs, federation.records.labels), 2)
    (0.75, 0.74)
    """

    def protocol(self, schema: Schema) -> Flow[Measured]:
        answer = yield Confidence()
        right, wrong = answer["confidence"].tolist()
        noise = float(answer.variance("confidence").max(initial=0.0))
        records = right + wrong
        if records <= max(3 * (2 * noise) ** 0.5, 0.5):
            return Measured(float("nan"), 0.0, 1.0)
        accuracy = float(np.clip(right / records, 0.0, 1.0))
        variance = (noise * (accuracy**2 + (1 - accuracy) ** 2) + records * accuracy * (1 - accuracy)) / records**2
        half_width = normal_quantile(0.95) * variance**0.5
        return Measured(accuracy, max(accuracy - half_width, 0.0), min(accuracy + half_width, 1.0))
