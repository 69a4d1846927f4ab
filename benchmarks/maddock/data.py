"""Real logits, dealt to clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.maddock.small_models import cifar_records, fashion_records, mnist_records, perceptron, sgd_records
from fedcalib.families import Family
from fedcalib.families.affine import TemperatureFamily
from fedcalib.methods.fed_scaling import FedScaling
from fedcalib.randomness import Randomness
from fedcalib.registry import register
from fedcalib.types import Floats, Ints

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
HALF = 5000  # records for calibration; the other half is for measuring


TRAINED = {  # by scripts of these benchmarks; nothing where they have not run
    "mnist": mnist_records,
    "mnist-sgd": sgd_records,
    "fashion-mnist": fashion_records,
    "cifar10-fedavg": cifar_records,
}


@dataclass(frozen=True)
class Deal:
    """How records reach clients: so many clients, records each on average, and Dirichlet skew of the labels."""

    clients: int = 100
    records: int = 50
    beta: float = 0.1


@cache
def networks(dataset: str) -> dict[str, fc.Records]:
    """Load every network's logits of a data set's test records."""
    if dataset in TRAINED:
        return TRAINED[dataset]()
    files = {"cifar10": "cifar10_logits/cifar10_logits.npz", "cifar100": "cifar100_probs/cifar100_logp.npz"}
    archive = np.load(SHARED / files[dataset])
    labels = archive["y"].astype(np.int64)
    names = [name for name in archive.files if name != "y"]
    return {name.rsplit("_", 1)[0]: fc.Records.of_logits(archive[name].astype(np.float64), labels) for name in names}


def halves(records: fc.Records, run: int) -> tuple[fc.Records, fc.Records]:
    """Split at random: calibration, then test."""
    order = np.random.default_rng([run, 1]).permutation(len(records))
    return records.take(order[:HALF]), records.take(order[HALF : 2 * HALF])


def dealt(calibration: fc.Records, deal: Deal, run: int) -> fc.Federation:
    """Deal the calibration half out; where clients hold more than there is, draw records with replacement."""
    wanted = deal.clients * deal.records
    if wanted != len(calibration):
        rows = np.random.default_rng([run, 2]).integers(len(calibration), size=wanted)
        calibration = calibration.take(rows)
    return with_local_temperatures(fc.Federation.dirichlet(calibration, deal.clients, deal.beta, seed=run))


def with_local_temperatures(federation: fc.Federation) -> fc.Federation:
    """Write each client's own best temperature beside its records: nine settings of FedTemp ask for the same ones."""
    family = TemperatureFamily()
    best = family.fit_each(np.ones(1), federation, ridge=1.0, steps=50, randomness=fc.Simulated(0))[:, 0]
    return replace(federation, records=replace(federation.records, extra={"best": best[federation.owner]}))


@register
@dataclass(frozen=True)
class KnownTemperature(Family):
    """FedTemp's family, with the clients' answers looked up instead of searched for again; a test holds it to that.

    The ridge of a client's fit goes toward T = 1 in every round, as FedTemp's did when the stored rows were measured;
    now it goes toward the start of the round, which is the same in the first round only.
    """

    def start(self, classes: int) -> Floats:
        return np.ones(1)

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        return TemperatureFamily().loss(parameters, logits, labels)

    def artifact(self, parameters: Floats, classes: int) -> fc.Calibrator:
        return TemperatureFamily().artifact(parameters, classes)

    def fit_each(
        self, parameters: Floats, federation: fc.Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        known = np.append(federation.records.extra["best"], 1.0)[federation.offsets[:-1]]
        return np.where(federation.sizes > 0, known, parameters[0])[:, None]


@register
@dataclass(frozen=True)
class QuickFedTemp(FedScaling):
    """FedTemp with known local temperatures."""

    def family(self) -> Family:
        return KnownTemperature()


@cache
def writers(run: int) -> tuple[fc.Federation, fc.Federation]:
    """MNIST by writer: a small network of the training writers, calibrated and measured on the test writers."""
    archive = np.load(SHARED / "mnist_writers" / "mnist.npz")
    rng = np.random.default_rng([run, 3])
    rows = rng.choice(len(archive["x_train"]), 6000, replace=False)
    probs = perceptron(archive["x_train"][rows], archive["y_train"][rows], archive["x_test"], run)
    records = fc.Records.of_probs(probs, archive["y_test"].astype(np.int64))
    return fc.Federation.by_site(records, archive["writer_test"]).split(0.5, seed=run)
