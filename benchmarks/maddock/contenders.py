"""Who competes, with which settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import fedcalib as fc
from benchmarks.maddock.data import Deal, QuickFedTemp

DELTA = 1e-5


@dataclass(frozen=True)
class Contender:
    """A method, how clients take part in it, and how it is made private."""

    name: str
    setting: str
    method: fc.Method[fc.Calibrator]
    participation: fc.cohort.Participation | None = None
    privacy: fc.privacy.Privacy | None = None  # None: exact sums


ROUNDS, RATE = 12, 0.1
SAMPLED = fc.Poisson(RATE)
DEALT = fc.Disjoint(10)  # a tenth of the clients a round, each once


def published() -> Iterator[Contender]:
    """The paper's methods without privacy, at its settings: twelve rounds of a tenth of the clients."""
    yield Contender("FedBin", "15 bins", fc.FedBin())
    yield Contender("FedBin", "128 bins", fc.FedBin(bins=128))
    yield Contender("FedBin, as printed", "128 bins", fc.FedBin(bins=128, smoothing=0.0, rounds=ROUNDS), SAMPLED)
    yield Contender("FedBBQ", "M = 7", fc.FedBBQ(coarsest=1))
    yield Contender(
        "FedBBQ weighted", "M = 7", fc.FedBBQ(coarsest=1, rounds=10, weighting=fc.methods.Weighted()), DEALT
    )
    yield Contender("FedTemp", "T = 12", QuickFedTemp(), SAMPLED)
    yield Contender("FedTemp, all clients", "T = 4", QuickFedTemp(rounds=4))


def published_of_many_parameters(classes: int) -> Iterator[Contender]:
    """Those of the paper's methods whose local fits take longest; a matrix of a hundred classes is left out."""
    yield Contender("FedVector", "T = 12", fc.FedVector(), SAMPLED)
    yield Contender("FedOPVector", "T = 12", fc.FedOPVector(), SAMPLED)
    yield Contender("FedCal", "T = 12", fc.FedCal(), SAMPLED)
    if classes <= 10:
        yield Contender("FedMatrix", "T = 12", fc.FedMatrix(), SAMPLED)


TEMPERED = fc.methods.Pipeline((fc.OneShotTemperature(reach=30.0, refinements=2), fc.methods.ClassShifts()), guard=True)


def ours() -> Iterator[Contender]:
    """Ours without privacy."""
    yield Contender("OneShotTemperature", "", fc.OneShotTemperature(reach=30.0, refinements=2))
    yield Contender("RidgeVector", "", fc.methods.RidgeVector())
    yield Contender("RidgeOPVector", "", fc.methods.RidgeOPVector())
    yield Contender("ClassShifts after a temperature", "", TEMPERED)
    yield Contender(
        "BBQ on log-odds, by odds", "", fc.FedBBQ(axis=fc.methods.EvenLogOdds(), normaliser=fc.methods.ByOdds())
    )
    yield Contender("Auto", "", fc.Auto())
    yield Contender("Auto, no guard", "", fc.Auto(guard=False))


def private_published(epsilon: float) -> Iterator[Contender]:
    """The paper's methods for whole clients, each at several settings, to be tuned on the test half."""
    model = fc.UserGaussian(epsilon, DELTA)
    for rounds, who in ((12, SAMPLED), (4, None), (1, None)):
        for clip in (0.2, 0.5, 1.0):
            label = f"T = {rounds}{', a tenth' if who else ''}, clip {clip}"
            yield Contender("FedTemp", label, QuickFedTemp(rounds=rounds, clip=clip), who, model)
    for clip in (3.0, 10.0):
        binned = fc.UserGaussian(epsilon, DELTA, clip=clip)
        yield Contender(
            "FedBin weighted",
            f"16 bins, clip {clip:g}",
            fc.FedBin(bins=16, weighting=fc.methods.Weighted()),
            None,
            binned,
        )
        bbq = fc.FedBBQ(coarsest=1, weighting=fc.methods.Weighted())
        yield Contender("FedBBQ weighted", f"M = 7, clip {clip:g}", bbq, None, binned)
        yield Contender("FedBBQ", f"M = 7, clip {clip:g}", fc.FedBBQ(coarsest=1), None, binned)


def private_published_of_many_parameters(epsilon: float, classes: int) -> Iterator[Contender]:
    """The slow ones again; a network of a hundred classes is left out."""
    model = fc.UserGaussian(epsilon, DELTA)
    yield Contender("FedVector", "T = 12, a tenth, clip 0.5", fc.FedVector(), SAMPLED, model)
    yield Contender("FedOPVector", "T = 12, a tenth, clip 0.5", fc.FedOPVector(), SAMPLED, model)
    if classes <= 10:
        yield Contender("FedCal", "T = 12, a tenth, clip 0.5", fc.FedCal(), SAMPLED, model)


def private_ours(epsilon: float, deal: Deal) -> Iterator[Contender]:
    """Ours for whole clients; the clients' typical size is a public guess, here the mean."""
    model = fc.UserGaussian(epsilon, DELTA)
    size = float(deal.records)
    once = fc.OneShotTemperature(lowest=0.7, typical_records=size)
    yield Contender("OneShotTemperature", "", once, None, model)
    yield Contender("BoundedTemperature", "", fc.BoundedTemperature(), None, model)
    yield Contender("Auto", "", fc.Auto(typical_records=size), None, model)
    yield Contender("Auto, private clip", "", fc.Auto(typical_records=None), None, model)
