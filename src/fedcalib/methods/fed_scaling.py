"""FedTemp, FedVector, FedMatrix, FedOPVector and FedCal: scalings trained by federated averaging of local fits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from math import inf
from typing import Self, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families import Family
from fedcalib.families.affine import MatrixFamily, TemperatureFamily, VectorFamily
from fedcalib.families.order_preserving import OrderPreservingNetworkFamily, OrderPreservingVectorFamily
from fedcalib.method import Budget, Flow, Method
from fedcalib.queries.scaling import LocalFit
from fedcalib.records import Schema
from fedcalib.wire import ADDED

_MAX_PARAMETER = 1e9


@dataclass(frozen=True)
class FedScaling(Method[Calibrator]):
    """Train a scaling by rounds of local fits: clients send clipped changes, the server averages them.

    Parameters
    ----------
    rounds
        Number of rounds.
    clip
        The most that one client may move the parameters in a round, in L2; infinite for no limit, without privacy.
    rate
        The server's step along the mean change.
    ridge
        Penalty of a client's fit toward the parameters at the start of the round: so many halves of their squared
        distance from it (of ln T, for a temperature).
    steps
        The most iterations of a local fit.
    """

    rounds: int = 12
    clip: float = 0.5
    rate: float = 1.0
    ridge: float = 1.0
    steps: int = 50

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.clip > 0 or not self.rate > 0 or not self.ridge >= 0 or self.steps < 1:
            raise InputError(f"Expected rounds, clip, rate and steps above 0 and a ridge of at least 0, found {self}.")

    @classmethod
    def as_published(cls, *, clip: float = inf, rounds: int = 12) -> Self:
        """The method as in "Private Federated Multiclass Post-hoc Calibration", algorithm 2: no ridge, server rate 1.

        Run it with `Poisson(0.1)` and, for differential privacy, with `UserGaussian(epsilon, 1e-5)`.

        Parameters
        ----------
        clip
            None (infinite) without privacy; 0.5 with it, as in appendix A.3.2.
        rounds
            Number of rounds.
        """
        return cls(rounds=rounds, clip=clip, rate=1.0, ridge=0.0, steps=50)

    @abstractmethod
    def family(self) -> Family:
        """The scaling that is trained."""

    def with_budget(self, budget: Budget) -> Self:
        """This method; a private run needs a limit on what one client may change."""
        if self.clip == inf:
            raise InputError("Expected a finite clip under differential privacy, found infinity; 0.5 is usual.")
        return self

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Average the clients' clipped changes to the family's parameters, `rounds` times, starting from the identity.

        The sum is divided by the number of clients that answered, or under differential privacy by the expected number:
        the number that did would leak, and could be zero.
        """
        family = self.family()
        parameters = family.start(schema.classes)
        for _ in range(self.rounds):
            query = LocalFit(family, tuple(parameters.tolist()), self.clip, self.ridge, self.steps)
            answer = yield query
            if answer.clients:
                parameters = parameters + self.rate * query.unit_of_change * answer["change"] / answer.clients
                parameters = np.clip(parameters, -_MAX_PARAMETER, _MAX_PARAMETER)
        return family.artifact(parameters, schema.classes)


@final
@dataclass(frozen=True)
class FedTemp(FedScaling):
    """Temperature scaling by federated averaging; clients exchange T, or its logarithm.

    Parameters
    ----------
    rounds, clip, rate, ridge, steps
        Rounds; the most that one client may move the parameters in a round; the server's step; the penalty of a
        client's fit toward the start of the round; the most iterations of a local fit.
    logarithm
        Exchange ln T.
    inverse
        Exchange 1/T, the factor of the logits. Clients whose answers are all right then dominate the average: it is
        here to compare with.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
    >>> round(fc.run(fc.FedTemp(), fc.InProcess(federation), fc.SecAgg()).artifact.temperature, 1)
    2.0
    """

    logarithm: bool = False
    inverse: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.family()  # refuses both at once

    def family(self) -> Family:
        return TemperatureFamily(logarithm=self.logarithm, inverse=self.inverse)


@final
@dataclass(frozen=True)
class FedVector(FedScaling):
    """Vector scaling by federated averaging: a factor and a shift per class; it may change which class is on top.

    Parameters
    ----------
    rounds, clip, rate, ridge, steps
        As for `FedTemp`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> calibrator = fc.run(fc.FedVector(rounds=2), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> type(calibrator).__name__
    'VectorScaling'
    """

    def family(self) -> Family:
        return VectorFamily()


@final
@dataclass(frozen=True)
class FedMatrix(FedScaling):
    """Matrix scaling by federated averaging: needs many records, and may change which class is on top.

    Parameters
    ----------
    rounds, clip, rate, ridge, steps
        As for `FedTemp`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> calibrator = fc.run(fc.FedMatrix(rounds=2), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> type(calibrator).__name__
    'MatrixScaling'
    """

    def family(self) -> Family:
        return MatrixFamily()


@final
@dataclass(frozen=True)
class FedOPVector(FedScaling):
    """Order-preserving vector scaling by federated averaging: two numbers per class stretch gaps between sorted logits.

    Parameters
    ----------
    rounds, clip, rate, ridge, steps
        As for `FedTemp`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.FedOPVector(rounds=2), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> bool((calibrator(records.probs).argmax(axis=1) == records.probs.argmax(axis=1)).all())  # the top class stays
    True
    """

    def family(self) -> Family:
        return OrderPreservingVectorFamily()


@final
@dataclass(frozen=True)
class FedCal(FedScaling):
    """Order-preserving network by federated averaging: it stretches gaps between sorted logits, so the ranking stays.

    Parameters
    ----------
    rounds, clip, rate, ridge, steps
        As for `FedTemp`.
    hidden
        Number of hidden units per layer.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.FedCal(rounds=1, hidden=4)
    >>> type(fc.run(method, fc.InProcess(fc.Federation.simulated(records=200)), fc.SecAgg()).artifact).__name__
    'OrderPreservingNetwork'
    """

    hidden: int = 64

    def family(self) -> Family:
        return OrderPreservingNetworkFamily(self.hidden)
