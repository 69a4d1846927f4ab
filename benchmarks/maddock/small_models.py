"""Small models whose logits nobody published: a network of one layer on Fashion-MNIST, and CNNs trained elsewhere."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib import datasets
from fedcalib.types import Floats, Ints

OUT = Path(__file__).parent / "out"
CNNS = Path(__file__).parents[1] / "base_models" / "out"


def perceptron(images: Floats, labels: Ints, scored: Floats, seed: int) -> Floats:
    """Train a small network until it is too sure of itself, and give its probabilities of other images."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    flat = images.reshape(len(images), -1) / 255.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 25 epochs are meant
        model = MLPClassifier((64,), max_iter=25, alpha=0.0, random_state=seed).fit(flat, labels)
    probs: Floats = model.predict_proba(scored.reshape(len(scored), -1) / 255.0)
    return probs / probs.sum(axis=1, keepdims=True)


def fashion(directory: Path) -> Path:
    """Keep the scores of Fashion-MNIST's 10,000 test images, by a network trained on 6,000 others."""
    path = OUT / "fashion-mnist.npz"
    if not path.exists():
        OUT.mkdir(exist_ok=True)
        data = datasets.fashion_mnist(directory)
        rows = np.random.default_rng(3).choice(np.flatnonzero(~data.test), 6000, replace=False)
        probs = perceptron(data.inputs[rows], data.labels[rows], data.inputs[data.test], seed=0)
        np.savez_compressed(path, probs=probs.astype(np.float32), labels=data.labels[data.test])
    return path


def fashion_records() -> dict[str, fc.Records]:
    """Read what was kept."""
    with np.load(OUT / "fashion-mnist.npz") as file:
        probs = file["probs"].astype(np.float64)
        return {"mlp": fc.Records.of_probs(probs / probs.sum(axis=1, keepdims=True), file["labels"])}


def mnist_records() -> dict[str, fc.Records]:
    """Read the CNNs that benchmarks/base_models trained by federated averaging: none of these records trained them."""
    return {f"cnn {path.stem.split('-')[1]}": _cnn(path) for path in sorted(CNNS.glob("mnist-*-0.npz"))}


def cifar_records() -> dict[str, fc.Records]:
    """Read the CNNs that benchmarks/base_models trained on CIFAR-10 by federated averaging."""
    return {f"cnn {path.stem.split('-')[2]}": _cnn(path) for path in sorted(CNNS.glob("cifar-1-*-0.npz"))}


def sgd_records() -> dict[str, fc.Records]:
    """Read those that were trained by local SGD, which leaves them far from calibrated."""
    paths = sorted(CNNS.glob("sgd-*-0.npz"))
    return {f"cnn {beta}, rate {rate}": _cnn(path) for path in paths for _, rate, beta, _ in [path.stem.split("-")]}


def _cnn(path: Path) -> fc.Records:
    with np.load(path) as file:
        logits = np.concatenate([file["test_logits"], file["calibration_logits"]]).astype(np.float64)
        return fc.Records.of_logits(logits, np.concatenate([file["test_labels"], file["calibration_labels"]]))
