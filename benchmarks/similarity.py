"""How alike clients' models are, layer by layer: centred kernel alignment of what the layers put out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.types import Array, Floats


def linear_cka(first: Floats, second: Floats) -> float:
    """Align two layers' outputs on the same inputs, (n, width) each, from 0 to 1: equal up to rotation and scale."""
    if len(first) != len(second) or len(first) < 2:
        raise InputError(f"Expected the same inputs, at least two, found {len(first)} and {len(second)}.")
    x, y = (np.asarray(z, dtype=np.float64) - np.mean(z, axis=0, dtype=np.float64) for z in (first, second))
    if max(x.shape[1], y.shape[1]) > len(x):  # work with kernels, which are smaller then
        k, m = x @ x.T, y @ y.T
        together, size = float(np.sum(k * m)), float(np.linalg.norm(k) * np.linalg.norm(m))
    else:
        together = float(np.linalg.norm(x.T @ y) ** 2)
        size = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return together / size if size > 0 else 0.0


def layer_similarity(models: Sequence[Trained], inputs: Array) -> dict[str, Floats]:
    """Compare every pair of models in every layer with weights, (models, models) a layer."""
    from fedcalib.training.torch_session import TorchSession

    outputs = []
    for model in models:
        session = model.network.session(model.weights)
        if not isinstance(session, TorchSession):
            raise InputError("Expected networks of several layers, found one that has no layers to compare.")
        outputs.append(_layers(session, inputs))
    return {
        layer: np.array([[linear_cka(a[layer], b[layer]) for b in outputs] for a in outputs]) for layer in outputs[0]
    }


def _layers(session: Any, inputs: Array) -> dict[str, Floats]:
    """Flattened outputs of each convolution and linear layer of a torch session, by name."""
    from torch import nn

    caught: dict[str, list[Any]] = {}
    hooks = []
    for name, part in session.module.named_modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            keep = caught.setdefault(name, []).append
            hooks.append(part.register_forward_hook(lambda _, __, out, keep=keep: keep(out.flatten(1).numpy())))
    try:
        session.logits(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: np.concatenate(parts) for name, parts in caught.items()}


def plot_similarity(layers: Mapping[str, Floats], path: Path | str) -> Path:
    """Draw each layer's mean similarity between different models."""
    from matplotlib.figure import Figure

    means = [float(each[~np.eye(len(each), dtype=bool)].mean()) for each in layers.values()]
    figure = Figure(figsize=(0.9 * len(means) + 2, 3.5))
    axes = figure.subplots()
    axes.bar(range(len(means)), means, color="#2a6f97")
    axes.set(ylim=(0, 1), ylabel="mean CKA between clients", xlabel="layer, from input to head")
    axes.set_xticks(range(len(means)), list(layers))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return Path(path)
