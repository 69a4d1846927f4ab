"""Federated averaging of a family's parameters, as a sub-protocol.

FedTemp, FedVector, FedMatrix, FedOPVector and FedCal: scalings trained by federated averaging.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families import Family
from fedcalib.families.affine import MatrixFamily, TemperatureFamily, VectorFamily
from fedcalib.families.order_preserving import OrderPreservingNetworkFamily, OrderPreservingVectorFamily
from fedcalib.method import Flow, Method
from fedcalib.queries.scaling import LocalFit
from fedcalib.records import Schema

_FARTHEST = 1e9


def federated_fit(
    family: Family, schema: Schema, *, rounds: int, clip: float, rate: float, ridge: float, steps: int
) -> Flow[Calibrator]:
    """Average the clients' clipped changes, `rounds` times, from the identity on.

    The sum is divided by the clients that answered, or under differential privacy by those expected: the number who
    really did would leak, and could be zero.
    """
    parameters = family.start(schema.classes)
    for _ in range(rounds):
        answer = yield LocalFit(family, tuple(parameters.tolist()), clip, ridge, steps)
        if answer.clients:
            parameters = parameters + rate * clip * answer["change"] / answer.clients
            parameters = np.clip(parameters, -_FARTHEST, _FARTHEST)
    return family.artifact(parameters, schema.classes)


@dataclass(frozen=True)
class FedScaling(Method[Calibrator]):
    """Train a scaling by rounds of local fits: clients send clipped changes, the server averages them.

    `clip` is the most that one client may move the parameters in a round, `rate` the server's step, `ridge` what draws
    a client's fit toward where the round started, `steps` the most iterations of a local fit.
    """

    rounds: int = 12
    clip: float = 0.5
    rate: float = 1.0
    ridge: float = 1.0
    steps: int = 50

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.clip > 0 or not self.rate > 0 or not self.ridge >= 0 or self.steps < 1:
            raise InputError("Expected rounds, clip, rate and steps above 0 and no negative ridge, found others.")

    @abstractmethod
    def family(self) -> Family:
        """Say which scaling is trained."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Average for as many rounds as asked."""
        return federated_fit(
            self.family(),
            schema,
            rounds=self.rounds,
            clip=self.clip,
            rate=self.rate,
            ridge=self.ridge,
            steps=self.steps,
        )


@final
@dataclass(frozen=True)
class FedTemp(FedScaling):
    """One temperature for all classes; clients exchange T, or its logarithm, never 1/T."""

    logarithm: bool = False

    def family(self) -> Family:
        """Train a temperature."""
        return TemperatureFamily(logarithm=self.logarithm)


@final
@dataclass(frozen=True)
class FedVector(FedScaling):
    """A factor and a shift a class; may change which class is on top."""

    def family(self) -> Family:
        """Train a vector scaling."""
        return VectorFamily()


@final
@dataclass(frozen=True)
class FedMatrix(FedScaling):
    """A full matrix and a shift; needs many records, and may change which class is on top."""

    def family(self) -> Family:
        """Train a matrix scaling."""
        return MatrixFamily()


@final
@dataclass(frozen=True)
class FedOPVector(FedScaling):
    """Two numbers a class that stretch the gaps between sorted logits: the ranking stays."""

    def family(self) -> Family:
        """Train an order-preserving vector scaling."""
        return OrderPreservingVectorFamily()


@final
@dataclass(frozen=True)
class FedCal(FedScaling):
    """A small network that stretches the gaps between sorted logits: the ranking stays."""

    hidden: int = 64

    def family(self) -> Family:
        """Train an order-preserving network."""
        return OrderPreservingNetworkFamily(self.hidden)
