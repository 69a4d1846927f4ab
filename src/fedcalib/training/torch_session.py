"""The torch modules behind the networks; imported only when one is built.

A torch module at work on a vector of weights: parameters and gradients are views into numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from torch import nn

from fedcalib.errors import InputError
from fedcalib.training.network import Layout, Session, in_batches
from fedcalib.types import Array, Floats, Ints


@final
class _ChannelsLast(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Lay each pixel's channels side by side in memory: with 16 of them, convolution and pooling are faster so."""

    def forward(self, x: Any) -> Any:
        """Lay out anew; values and shape stay."""
        return x.contiguous(memory_format=torch.channels_last)


def conv_net(side: int, channels: int, classes: int, width: int) -> Any:
    """Two convolutions and one linear layer."""
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        _ChannelsLast(),  # the maximum first, then the rectifier: the same values, a quarter of the work
        nn.Conv2d(channels, width, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * width * left * left, classes),
    )  # fmt: skip


def lenet5(side: int, channels: int, classes: int) -> Any:
    """Two convolutions and three linear layers."""
    left = (side // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * left * left, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, classes),
    )  # fmt: skip


def _normalised(width: int) -> Any:
    return nn.GroupNorm(min(32, width // 4), width)


@final
class _Residual(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), _normalised(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), _normalised(outside),
        )  # fmt: skip
        plain = stride == 1 and inside == outside
        short = [] if plain else [nn.Conv2d(inside, outside, 1, stride, bias=False), _normalised(outside)]
        self.shortcut = nn.Sequential(*short)

    def forward(self, x: Any) -> Any:
        """Add the two."""
        return torch.relu(self.path(x) + self.shortcut(x))


@final
class ResNet(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Eighteen layers: one convolution, four stages of two residual blocks, one linear layer."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        stem = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), _normalised(width), nn.ReLU()]
        blocks, inside = [], width
        for stage in range(4):
            for block in range(2):
                outside = width << stage
                blocks.append(_Residual(inside, outside, 2 if stage and not block else 1))
                inside = outside
        self.body = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inside, classes)

    def forward(self, x: Any) -> Any:
        """Score images."""
        return self.head(self.body(x))


@final
class NextCharacter(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Embedding, LSTM, linear layer on the last state."""

    def __init__(self, characters: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, characters)

    def forward(self, x: Any) -> Any:
        """Score the next character."""
        states, _ = self.lstm(self.embed(x))
        return self.head(states[:, -1])


@final
class UnitLinear(nn.Linear):  # type: ignore[misc]  # torch is not looked into
    """A linear layer whose rows have length one and that shifts nothing."""

    def __init__(self, like: Any) -> None:
        super().__init__(like.in_features, like.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        """Multiply with the rows' directions."""
        return nn.functional.linear(x, nn.functional.normalize(self.weight, eps=1e-30))


def tensors(module: Any) -> list[tuple[str, Any]]:
    """List what makes up the vector: parameters first, then floating buffers such as running averages."""
    buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
    return [*module.named_parameters(), *buffers]


def initial_weights(build: Callable[[], Any], seed: int) -> Floats:
    """Draw a module's own initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
    return np.concatenate([tensor.detach().numpy().reshape(-1) for _, tensor in tensors(module)]).astype(np.float32)


def layout(module: Any) -> Layout:
    """Count the parameters, and say where the last linear layer's matrix and shift lie."""
    _, head = last_linear(module)
    places, at = {}, 0
    for _, parameter in module.named_parameters():
        places[id(parameter)] = (at, at + parameter.numel())
        at += parameter.numel()
    shift = (at, at) if head.bias is None else places[id(head.bias)]
    return Layout(head.out_features, at, slice(*places[id(head.weight)]), slice(*shift))


def last_linear(module: Any) -> tuple[str, Any]:
    """Find the last linear layer of a module."""
    found = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not found:
        raise InputError("Expected a module that ends in a linear layer, found none.")
    return found[-1]


@final
class TorchSession(Session):
    """A module whose parameters lie in one numpy vector."""

    def __init__(self, module: Any, weights: Floats) -> None:
        self.weights = np.array(weights, dtype=np.float32)
        self._module, self._slope, at = module, np.zeros_like(self.weights), 0
        held = tensors(module)
        if sum(tensor.numel() for _, tensor in held) != len(self.weights):
            raise InputError(f"Expected as many weights as the network has, found {len(self.weights)}.")
        for _, tensor in held:
            place = slice(at, at + tensor.numel())
            tensor.data = torch.from_numpy(self.weights[place]).view(tensor.shape)
            if isinstance(tensor, nn.Parameter):
                tensor.grad = torch.from_numpy(self._slope[place]).view(tensor.shape)
            at += tensor.numel()

    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        """Let torch differentiate."""
        self._module.train()
        self._slope[:] = 0
        loss = nn.functional.cross_entropy(self._module(as_tensor(inputs)), torch.from_numpy(np.asarray(labels)))
        loss.backward()  # adds into the views
        return self._slope

    def logits(self, inputs: Array) -> Floats:
        """Score in evaluation mode: no dropout, running averages in batch normalisation."""
        self._module.eval()
        with torch.no_grad():
            return in_batches(inputs, lambda batch: self._module(as_tensor(batch)).numpy())

    def features(self, inputs: Array) -> Floats:
        """Give what flows into the last linear layer."""
        return self.scores(inputs)[1]

    def scores(self, inputs: Array) -> tuple[Floats, Floats]:
        """Catch what flows into the last linear layer on the way."""
        caught: list[Any] = []
        hook = last_linear(self._module)[1].register_forward_pre_hook(lambda _, fed: caught.append(fed[0].numpy()))
        try:
            logits = self.logits(inputs)
        finally:
            hook.remove()
        return logits, np.concatenate(caught)

    def layers(self, inputs: Array) -> dict[str, Floats]:
        """Give what each layer with weights puts out, flattened, by name."""
        caught: dict[str, list[Any]] = {}
        hooks = []
        for name, part in self._module.named_modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                keep = caught.setdefault(name, []).append
                hooks.append(part.register_forward_hook(lambda _, __, out, keep=keep: keep(out.flatten(1).numpy())))
        try:
            self.logits(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return {name: np.concatenate(parts) for name, parts in caught.items()}

    def curvature(self, inputs: Array) -> Floats:
        """Differentiate each record's logits: sum over records and classes of p_j (g_j - sum_k p_k g_k)^2."""
        self._module.eval()
        total = np.zeros(len(self.weights))
        parameters = list(self._module.parameters())
        for at in range(len(inputs)):
            logits = self._module(as_tensor(inputs[at : at + 1]))[0]
            probs = torch.softmax(logits, 0).detach().numpy()
            rows = [self._row(logits, j, parameters) for j in range(len(probs))]
            mean = sum(p * row for p, row in zip(probs, rows, strict=True))
            for p, row in zip(probs, rows, strict=True):
                total[: len(row)] += p * (row - mean) ** 2
        return total

    def _row(self, logits: Any, j: int, parameters: list[Any]) -> Floats:
        slopes = torch.autograd.grad(logits[j], parameters, retain_graph=True)
        flat: Floats = torch.cat([slope.reshape(-1) for slope in slopes]).numpy().astype(np.float64)
        return flat


def as_tensor(inputs: Array) -> Any:
    """Turn a column into what modules read: bytes become shares of 255 with a channel first, whole numbers tokens."""
    values = np.ascontiguousarray(inputs)
    if values.dtype == np.uint8:
        pixels = torch.from_numpy(values).float() / 255
        return pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64))
    return torch.from_numpy(values.astype(np.float32))
