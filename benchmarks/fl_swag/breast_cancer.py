"""SWAG against Hamiltonian Monte Carlo on Breast Cancer Wisconsin: draws of weights, projected by PCA.

Run with `python -m benchmarks.fl_swag.breast_cancer [--draws 300]`; writes breast-cancer-2d.png, breast-cancer-3d.png
and breast_cancer.csv beside itself. The network has three hidden layers. HMC is the reference: it draws from the
posterior itself; its draws decide the axes that both are shown on.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from sklearn.datasets import load_breast_cancer

import fedcalib as fc
from benchmarks.fl_swag.measure import figures
from fedcalib import catalogue
from fedcalib.artifacts.ensemble import Ensemble
from fedcalib.artifacts.trained import Trained
from fedcalib.artifacts.weight_posterior import WeightPosterior
from fedcalib.training import SGD, Adam, LocalTraining, OwnNetwork
from fedcalib.training.network import Session
from fedcalib.training.posterior import Trajectory

HERE = Path(__file__).parent
PRIOR, SEED = 1.0, 0


@catalogue.register
class ThreeHidden(torch.nn.Sequential):
    """Three hidden layers of eight units."""

    def __init__(self) -> None:
        sizes = [30, 8, 8, 8]
        layers = [part for a, b in pairwise(sizes) for part in (torch.nn.Linear(a, b), torch.nn.Tanh())]
        super().__init__(*layers, torch.nn.Linear(8, 2))


def potential(session: Session, weights: np.ndarray, records: fc.Records) -> tuple[float, np.ndarray]:
    """Minus the log posterior, and its gradient."""
    session.weights[:] = weights
    inputs, labels = records.extra["inputs"], records.labels
    slope = len(labels) * session.gradient(inputs, labels).astype(np.float64) + PRIOR * weights
    logits = session.logits(inputs).astype(np.float64)
    loss = np.logaddexp(logits[:, 0], logits[:, 1]) - logits[np.arange(len(labels)), labels]
    return float(loss.sum() + PRIOR / 2 * weights @ weights), slope


def hmc(session: Session, start: np.ndarray, records: fc.Records, draws: int, *, step: float, leaps: int) -> np.ndarray:
    """Draw by Hamiltonian Monte Carlo, the first half thrown away."""
    rng, weights = np.random.default_rng(SEED), start.astype(np.float64)
    value, slope = potential(session, weights, records)
    kept, taken = [], 0
    for _ in track(range(2 * draws), description="HMC"):
        speed = rng.normal(size=len(weights))
        energy = value + speed @ speed / 2
        moved, now, bend = weights.copy(), value, slope
        for _ in range(leaps):
            speed = speed - step / 2 * bend
            moved = moved + step * speed
            now, bend = potential(session, moved, records)
            speed = speed - step / 2 * bend
        if np.log(rng.random()) < energy - now - speed @ speed / 2:
            weights, value, slope, taken = moved, now, bend, taken + 1
        kept.append(weights)
    print(f"HMC accepted {taken / (2 * draws):.0%}")
    return np.stack(kept[draws:])


def plot(chains: dict[str, np.ndarray]) -> None:
    """Project on the first principal axes of the HMC draws."""
    from matplotlib.figure import Figure

    centre = chains["HMC"].mean(axis=0)
    axes_ = np.linalg.svd(chains["HMC"] - centre, full_matrices=False)[2][:3]
    for dimensions in (2, 3):
        figure = Figure(figsize=(9, 4))
        for place, (name, chain) in enumerate(chains.items(), 1):
            axes = figure.add_subplot(1, 2, place, projection="3d" if dimensions == 3 else None)
            axes.scatter(*((chain - centre) @ axes_[:dimensions].T).T, s=6, alpha=0.6)
            axes.set_title(name)
        figure.savefig(HERE / f"breast-cancer-{dimensions}d.png", dpi=110)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=300)
    told = options.parse_args()
    torch.set_num_threads(1)
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    records = fc.Records.of_logits(np.zeros((len(labels), 2)), labels, inputs=inputs)
    order = np.random.default_rng(SEED).permutation(len(labels))
    train, test = records.take(order[:400]), records.take(order[400:])
    network = OwnNetwork("ThreeHidden")
    start = LocalTraining(30, 32, Adam(0.01), decay=PRIOR / 400).train(
        network, network.start(SEED), train.extra["inputs"], train.labels, np.random.default_rng(SEED)
    ).weights  # fmt: skip
    recipe = Trajectory(LocalTraining(5, 32, SGD(0.05)), collected=40, rank=20)
    found = recipe.find(
        network, start, train.extra["inputs"], train.labels, prior=PRIOR, most=1e8, rng=np.random.default_rng(SEED)
    )
    swag = WeightPosterior(
        network, start + found.offset, found.precision, found.factors, np.zeros(len(start)), samples=told.draws
    )
    chain = hmc(network.session(start), start, train, told.draws, step=0.02, leaps=25)
    chains = {"SWAG": swag.sample(told.draws, np.random.default_rng(SEED)), "HMC": chain}
    plot(chains)
    members = tuple(Trained(network, weights) for weights in chain)
    rows = {"SWAG": figures(swag.over(test)), "HMC": figures(Ensemble.of(members).over(test))}
    lines = [",".join(["method", *next(iter(rows.values())), "mean_weight_sd"])]
    for name, row in rows.items():
        lines.append(",".join([name, *map(str, row.values()), f"{chains[name].std(axis=0).mean():.4f}"]))
    (HERE / "breast_cancer.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
