"""What every family of scalings offers: where it starts, how it learns from one client's records, what it becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families.alone import MANY, MOST, fit_alone
from fedcalib.families.derivatives import Derivatives
from fedcalib.families.side_by_side import fit_side_by_side
from fedcalib.federation import Federation
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints


class Family(ABC):
    """Maps on logits, one for each parameter vector; the start is the identity.

    A family is a frozen dataclass that travels in queries; its parameters travel beside it.
    """

    @abstractmethod
    def start(self, classes: int) -> Floats:
        """Give the parameters of the map that changes nothing, (size,)."""

    def soft_start(self, classes: int) -> Floats:
        """Give parameters that make probabilities softer, from where Newton's steps do not overshoot, (size,)."""
        return self.start(classes)

    @abstractmethod
    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        """Sum the log loss over records, with its gradient in the parameters."""

    @abstractmethod
    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        """Make a calibrator of parameters, valid whatever noise they carry."""

    def derivatives(self, parameters: Floats, logits: Floats, labels: Ints) -> Derivatives:
        """Give each record's loss with two derivatives; only families of two parameters a class can."""
        raise InputError(
            f"Expected a family that sums of gradients can train, found {type(self).__name__}; train it by local fits."
        )

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Give each record's loss, (n,), and slope, (n, size), each record with parameters of its own, (n, size)."""
        raise InputError(f"Expected a family that clients can fit side by side, found {type(self).__name__}.")

    @property
    def convex(self) -> bool:
        """Say whether the loss has one lowest place and `curvature` gives how it bends."""
        return False

    def curvature(self, parameters: Floats, logits: Floats, labels: Ints) -> Floats:
        """Sum the curvature of the log loss over records, (size, size)."""
        raise InputError(f"Expected a family that says how its loss bends, found {type(self).__name__}.")

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """Improve parameters on each client's own records, (clients, size); a client without records keeps them."""
        large = federation.sizes > self._many(parameters)
        fitted = np.empty((len(federation), len(parameters)))
        rest = federation.subset(~large) if large.any() else federation
        held = bounded_logits(rest.records), rest.records.labels, rest.offsets
        fitted[~large] = fit_side_by_side(self.record_losses, parameters, held, ridge=ridge, steps=steps)
        for client in np.flatnonzero(large):
            records = federation.client(int(client))
            alone = bounded_logits(records), records.labels
            fitted[client] = fit_alone(self.loss, self.curvature, parameters, alone, ridge=ridge, steps=steps)
        return fitted

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        """Improve parameters on one client's records, drawn by `ridge` toward where they started."""
        if len(labels) > self._many(parameters):
            return fit_alone(self.loss, self.curvature, parameters, (logits, labels), ridge=ridge, steps=steps)
        held = logits, labels, np.array([0, len(labels)])
        found: Floats = fit_side_by_side(self.record_losses, parameters, held, ridge=ridge, steps=steps)[0]
        return found

    def _many(self, parameters: Floats) -> float:
        """Say beyond how many records a client is fitted alone, by its own curvature."""
        return MANY if self.convex and len(parameters) <= MOST else inf


def bounded_logits(records: Records) -> Floats:
    """Give a client's logits, in double precision and within what exponentials can take."""
    return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)


def log_loss(logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """Sum the log loss of logits, with its gradient in them: probabilities minus labels, (n, classes)."""
    value, residual = log_losses(logits, labels)
    return float(value.sum()), residual


def log_losses(logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Give each record's log loss of its logits, (n,), with the same gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(shifted)
    mass = exponentials.sum(axis=1)
    rows = np.arange(len(labels))
    residual: Floats = exponentials / mass[:, None]
    residual[rows, labels] -= 1
    value: Floats = np.log(mass) - shifted[rows, labels]
    return value, residual
