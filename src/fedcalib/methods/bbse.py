"""ClassShares: how common each class is, for clients that correct for their own mix.

BBSE: correct for a shift of the classes in a target that has no labels.

CBPE: how accurate a calibrated classifier is, told without labels by how confident it is.
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
    """How many records each class has: one cell of one, so every norm is 1; `clip` is for whole clients."""

    classes: int
    clip: float | None = None

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a class."""
        return {"labels": Block((self.classes,), Bound(1.0, 1.0, 1.0), integral=True, one_hot=True, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        """Touch the label's cell."""
        return Rows(records.labels[:, None].astype(np.int64), None)


@final
@dataclass(frozen=True)
class ClassShares(Method[LabelShares]):
    """Count each class once, over all clients."""

    typical_records: float = 50.0

    def protocol(self, schema: Schema) -> Flow[LabelShares]:
        """Ask once."""
        answer = yield ClassCounts(schema.classes, max(1.0, self.typical_records / sqrt(2)))
        return LabelShares.of_counts(answer["labels"])


_RAREST = 1e-4  # share that no class falls below, so that a wrong estimate can be undone


@final
@dataclass(frozen=True)
class ConfusionOf(Method[Confusion]):
    """Count predicted by true classes once, over clients that have labels."""

    def protocol(self, schema: Schema) -> Flow[Confusion]:
        """Ask once."""
        answer = yield ConfusionCounts(schema.classes)
        noise = float(answer.variance("confusion").max(initial=0.0))
        return Confusion(tuple(map(tuple, answer["confusion"].tolist())), noise)


@final
@dataclass(frozen=True)
class BBSE(Method[LabelShift]):
    """Find how common each class is among clients without labels, from how often each class is predicted there.

    `confusion` comes from clients with labels (`ConfusionOf`). If only the mix of classes has shifted, predictions
    shift by confusion times class weights; solving for the weights, with a ridge towards no shift that grows with the
    noise, gives a calibrator that reweighs classes. Run it on the target; its labels, if there are any, are not used.
    """

    confusion: Confusion
    calibrator: Calibrator = UNCHANGED
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        if not self.ridge >= 0:
            raise InputError(f"Expected a ridge of at least 0, found {self.ridge}.")

    def protocol(self, schema: Schema) -> Flow[LabelShift]:
        """Ask once and solve."""
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
        """Give the classes' shares among the labelled and among the target."""
        joint = np.maximum(np.array(self.confusion.counts), 0.0)
        if joint.sum() < 1 or predicted.sum() < 1:
            even = np.full(len(joint), 1 / len(joint))
            return even, even
        ridge = self.ridge + self.confusion.noise * len(joint) / joint.sum() ** 2 + noise / predicted.sum() ** 2
        overall = _mix(joint.sum(axis=0))
        weights = class_weights(joint / joint.sum(), predicted / predicted.sum(), ridge)
        return overall, _mix(weights * overall)


def class_weights(joint: Floats, predicted: Floats, ridge: float) -> Floats:
    """Solve joint @ weights = predicted for weights near 1, none below 0; a wider ridge keeps them nearer."""
    classes = len(predicted)
    system = joint.T @ joint + ridge * np.eye(classes)
    shift = np.linalg.lstsq(system, joint.T @ (predicted - joint.sum(axis=1)), rcond=None)[0]
    weights: Floats = np.maximum(1 + shift, 0.0)
    return weights


def _mix(values: Floats) -> Floats:
    """Turn amounts into shares, none of them nothing."""
    total = float(values.sum())
    shares = values / total if total > 0 else np.full(len(values), 1 / len(values))
    floored = np.maximum(shares, _RAREST)
    mixed: Floats = floored / floored.sum()
    return mixed


@final
@dataclass(frozen=True)
class CBPE(Method[Measured]):
    """Estimate accuracy without labels: where confidence is calibrated, its mean is the expected accuracy.

    Labels that the records may carry are not looked at. The interval (95%) covers privacy noise and the chance in the
    records; that the confidence is calibrated on *these* records it takes on trust, which no data without labels
    can check.
    """

    def protocol(self, schema: Schema) -> Flow[Measured]:
        """Ask once and divide."""
        answer = yield Confidence()
        right, wrong = answer["confidence"].tolist()
        noise = float(answer.variance("confidence").max(initial=0.0))
        records = right + wrong
        if records <= max(3 * (2 * noise) ** 0.5, 0.5):
            return Measured(float("nan"), 0.0, 1.0)
        share = float(np.clip(right / records, 0.0, 1.0))
        spread = (noise * (share**2 + (1 - share) ** 2) + records * share * (1 - share)) / records**2
        half = normal_quantile(0.95) * spread**0.5
        return Measured(share, max(share - half, 0.0), min(share + half, 1.0))
