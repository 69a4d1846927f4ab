"""SWAG against Hamiltonian Monte Carlo on Breast Cancer Wisconsin: draws of weights, projected by PCA.

Run with `python -m benchmarks.fl_swag.breast_cancer [--draws 500]`; writes breast-cancer-2d.png, breast-cancer-3d.png
and breast_cancer.csv beside itself. The network has three hidden layers. HMC is the reference: it draws from the
posterior itself, and its draws decide the axes that all are shown on. SWAG is shown as drawn, and with its standard
deviation multiplied by the scale that held-out records chose.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import fedcalib as fc
from benchmarks.fl_swag.hmc import Posterior, disagreement, hmc
from benchmarks.fl_swag.measure import figures
from benchmarks.progress import Table
from fedcalib import registry
from fedcalib.artifacts.gaussians import WeightPosterior
from fedcalib.artifacts.networks import Ensemble, Trained
from fedcalib.training import SGD, Adam, LocalTraining, OwnNetwork
from fedcalib.training.posterior import Trajectory
from fedcalib.types import Floats

HERE = Path(__file__).parent
PRIOR, SEED, CHAINS = 1.0, 0, 8
SIZES = (30, 8, 8, 8, 2)
SCALES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
COLOURS = {"HMC": "0.6", "SWAG": "tab:red", "SWAG, scale tuned": "tab:blue"}


@registry.register
class ThreeHidden(torch.nn.Sequential):
    """Three hidden layers of eight units."""

    def __init__(self) -> None:
        layers = [part for a, b in pairwise(SIZES[:-1]) for part in (torch.nn.Linear(a, b), torch.nn.Tanh())]
        super().__init__(*layers, torch.nn.Linear(*SIZES[-2:]))


NETWORK = OwnNetwork("ThreeHidden")


def dealt() -> tuple[fc.Records, fc.Records, fc.Records]:
    """Give 350 records to train on, 50 to tune the scale on and 169 to test on, standardised by the first."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    inputs = (inputs - inputs[:350].mean(axis=0)) / inputs[:350].std(axis=0)
    records = fc.Records.of_logits(np.zeros((len(labels), 2)), labels, inputs=inputs)
    return tuple(records.take(slice(a, b)) for a, b in ((0, 350), (350, 400), (400, len(labels))))


def swag(train: fc.Records, draws: int) -> WeightPosterior:
    """Train by Adam, then collect SGD's way for 40 epochs, with a low rank of 20."""
    rng, inputs = np.random.default_rng(SEED), train.extra["inputs"]
    near = LocalTraining(60, 32, Adam(0.01), decay=PRIOR / len(train))
    start = near.train(NETWORK, NETWORK.start(SEED), inputs, train.labels, rng).weights.astype(np.float64)
    recipe = Trajectory(LocalTraining(10, 32, SGD(0.05)), collected=40, rank=20, shrink=0.0, weighted=False)
    found = recipe.find(NETWORK, start, inputs, train.labels, prior=PRIOR, most=1e9, rng=rng)
    nowhere = np.zeros(len(start))
    return WeightPosterior(NETWORK, start + found.offset, found.precision, found.factors, nowhere, samples=draws)


def plot(clouds: dict[str, Floats]) -> None:
    """Project everything on the principal axes of the HMC draws."""
    from matplotlib.figure import Figure

    centre = clouds["HMC"].mean(axis=0)
    _, spread, axes = np.linalg.svd(clouds["HMC"] - centre, full_matrices=False)
    shares = 100 * spread**2 / (spread**2).sum()
    seen = {name: (cloud - centre) @ axes[:3].T for name, cloud in clouds.items()}
    panels = {
        "SWAG as drawn, magnified": ["SWAG"],
        "HMC: the posterior": ["HMC"],
        "all on the same axes": ["HMC", "SWAG, scale tuned", "SWAG"],
    }
    for dimensions in (2, 3):
        figure = Figure(figsize=(13, 5.4))
        for place, (title, names) in enumerate(panels.items(), 1):
            deep = {"projection": "3d", "computed_zorder": False} if dimensions == 3 else {}
            panel = figure.add_subplot(1, 3, place, **deep)
            for name in names:
                few = slice(None, None, max(len(seen[name]) // 1000, 1))
                depth = {"depthshade": False} if dimensions == 3 else {}
                panel.scatter(*seen[name][few, :dimensions].T, s=4, alpha=0.5, color=COLOURS[name], label=name, **depth)
            panel.set_title(title)
            label(panel, shares[:dimensions])
        figure.legend(*panel.get_legend_handles_labels(), loc="lower center", ncols=3, markerscale=3)
        figure.suptitle("Draws of 410 weights on the first principal axes of the HMC draws")
        figure.tight_layout(rect=(0, 0.08, 0.97, 0.98), w_pad=4)
        figure.savefig(HERE / f"breast-cancer-{dimensions}d.png", dpi=110)


def label(panel: Any, shares: Floats) -> None:
    """Name the axes, with their share of the HMC draws' variance."""
    panel.set_xlabel(f"axis 1 ({shares[0]:.1f}% of variance)")
    panel.set_ylabel(f"axis 2 ({shares[1]:.1f}%)")
    if len(shares) == 3:
        panel.set_zlabel(f"axis 3 ({shares[2]:.1f}%)")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=500, help="kept of each chain")
    draws = options.parse_args().draws
    torch.set_num_threads(1)
    train, held, test = dealt()
    found = swag(train, 200)
    tuned = found.tuned(held, SCALES)
    starts = np.stack([NETWORK.start(chain) for chain in range(CHAINS)])
    chains, energies, taken = hmc(Posterior(SIZES, train, PRIOR), starts, draws, step=0.02, leaps=40, seed=SEED)
    exact, rng = chains.reshape(-1, chains.shape[2]), np.random.default_rng(SEED)
    members = tuple(Trained(NETWORK, weights) for weights in exact[:: max(len(exact) // 200, 1)])
    scorers = {"SWAG": found, "SWAG, scale tuned": tuned, "HMC": Ensemble.of(members)}
    clouds = {"HMC": exact, "SWAG": found.sample(500, rng), "SWAG, scale tuned": tuned.sample(500, rng)}
    plot(clouds)
    (HERE / "breast_cancer.csv").unlink(missing_ok=True)
    table = Table(HERE / "breast_cancer.csv")
    told = {"chains": CHAINS, "accepted": round(taken, 2), "r_hat": round(disagreement(energies), 3)}
    scales = {"SWAG": found.scale, "SWAG, scale tuned": tuned.scale}
    for name, scorer in scorers.items():
        spread = float(clouds[name].std(axis=0).mean())
        row = {"method": name, "draws": len(clouds[name]), **figures(scorer.over(test)), "scale": scales.get(name, "")}
        own = told if name == "HMC" else dict.fromkeys(told, "")
        table.add({**row, "mean_weight_sd": f"{spread:.4f}", **own})


if __name__ == "__main__":
    main()
