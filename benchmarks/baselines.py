"""What federated averaging is compared with: each client alone, and averages of their predictions or weights.

These hold every client's model at once, so they are for comparison and not for a federation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcalib.artifacts.networks import Ensemble, Trained
from fedcalib.federation import Federation
from fedcalib.training.network import LocalTraining, Network, inputs_of
from fedcalib.types import Floats


def alone(
    network: Network, federation: Federation, training: LocalTraining, *, weights: Floats, seed: int,
    column: str | None = "inputs", prior: float = 0.0,
) -> tuple[Trained, ...]:  # fmt: skip
    """Train one model a client, on its own records only; a prior's precision adds to the decay, as in FL-SWAG."""
    models = []
    for client, held in enumerate(federation.clients()):
        rng = np.random.default_rng((seed, client))
        drawn = replace(training, decay=training.decay + prior / max(len(held), 1))
        session = drawn.train(network, weights, inputs_of(held, column), held.labels, rng)
        models.append(Trained(network, session.weights, column))
    return tuple(models)


def averaged_weights(models: tuple[Trained, ...], sizes: tuple[float, ...] | None = None) -> Trained:
    """Average weights in one shot, all alike or by sizes: FedAvg and wFedAvg of the FL-SWAG slides."""
    mean = np.average([model.weights for model in models], axis=0, weights=sizes)
    return Trained(models[0].network, mean, models[0].column)


def averaged_predictions(models: tuple[Trained, ...], sizes: tuple[float, ...] | None = None) -> Ensemble:
    """Average predictions, all alike or by sizes: BayAvg and wBayAvg of the slides."""
    return Ensemble.of(models, sizes)
