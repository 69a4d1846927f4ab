"""What every family of scalings offers: where it starts, how it learns from one client's records, what it becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families.derivatives import Derivatives
from fedcalib.randomness import Randomness
from fedcalib.records import Federation, Records
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

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """Improve parameters on each client's own records, (clients, size); a client without records keeps them."""
        fitted = np.tile(parameters, (len(federation), 1))
        for client, records in enumerate(federation.clients()):
            if len(records):
                rng = randomness.derive("term", client).generator()
                logits = bounded_logits(records)
                fitted[client] = self.fit(parameters, logits, records.labels, ridge=ridge, steps=steps, rng=rng)
        return fitted

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        """Improve parameters on one client's records, drawn by `ridge` toward where they started."""
        from scipy.optimize import minimize

        def objective(moved: Floats) -> tuple[float, Floats]:
            value, slope = self.loss(moved, logits, labels)
            off = moved - parameters
            return value + ridge / 2 * float(off @ off), slope + ridge * off

        found: Floats = minimize(objective, parameters, jac=True, method="L-BFGS-B", options={"maxiter": steps}).x
        return found


def bounded_logits(records: Records) -> Floats:
    """Give a client's logits, in double precision and within what exponentials can take."""
    return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)


def log_loss(logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """Sum the log loss of logits, with its gradient in them: probabilities minus labels, (n, classes)."""
    shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(shifted)
    mass = exponentials.sum(axis=1)
    rows = np.arange(len(labels))
    residual: Floats = exponentials / mass[:, None]
    residual[rows, labels] -= 1
    return float((np.log(mass) - shifted[rows, labels]).sum()), residual
