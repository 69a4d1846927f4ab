"""What every family of scalings offers: where it starts, how it learns from one client's records, what it becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.randomness import Randomness
from fedcalib.records import Federation, Records, softmax
from fedcalib.types import Floats, Ints


class Family(ABC):
    """Maps on logits, one for each parameter vector; the start is the identity.

    A family is a frozen dataclass that travels in queries; its parameters travel beside it.
    """

    @abstractmethod
    def start(self, classes: int) -> Floats:
        """Give the parameters of the map that changes nothing, (size,)."""

    @abstractmethod
    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        """Sum the log loss over records, with its gradient in the parameters."""

    @abstractmethod
    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        """Make a calibrator of parameters, valid whatever noise they carry."""

    def jacobian(self, parameters: Floats, logits: Floats) -> tuple[Floats, Floats]:
        """Give the mapped logits, (n, classes), and their derivatives in the parameters, (n, classes, size)."""
        raise InputError(
            f"Expected a family that sums of gradients can train, found {type(self).__name__}; train it by local fits."
        )

    def by_class(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Give each record's gradient, (n, size), and the curvature of each class's two parameters, (n, 3, classes).

        The three are the first parameter with itself, with the second, and the second with itself.
        """
        mapped, slopes = self.jacobian(parameters, logits)
        probs = softmax(mapped)
        mean = np.einsum("ij,ijk->ik", probs, slopes)
        gradient = mean - slopes[np.arange(len(labels)), labels]
        first, second = np.split(np.arange(len(parameters)), 2)
        pairs = ((first, first), (first, second), (second, second))
        moments = [np.einsum("ij,ijk,ijk->ik", probs, slopes[:, :, a], slopes[:, :, b]) for a, b in pairs]
        products = [mean[:, a] * mean[:, b] for a, b in pairs]
        return gradient, np.stack(moments, axis=1) - np.stack(products, axis=1)

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
