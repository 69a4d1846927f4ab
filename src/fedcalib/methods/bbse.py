"""BBSE: correct for a shift of the classes in a target that has no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.confusion import Confusion
from fedcalib.artifacts.label_shift import LabelShift
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.confidence import ConfusionCounts, Predictions
from fedcalib.records import Schema
from fedcalib.types import Floats

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
