"""The torch modules of the networks, and sessions with them. Imported only when a network is built.

In a `TorchSession`, the parameters and gradients of a module are views into numpy vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
import torch.fx
from torch import nn

from fedcalib.errors import InputError
from fedcalib.training.network import Session, WeightLayout, in_batches
from fedcalib.types import Array, Floats, Ints


@final
class _ChannelsLast(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Store each pixel's channels side by side: with 16 of them, this makes convolution and pooling faster."""

    def forward(self, x: Any) -> Any:
        return x.contiguous(memory_format=torch.channels_last)


def conv_net(side: int, channels: int, classes: int, width: int) -> Any:
    remaining = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        _ChannelsLast(),  # pooling before the rectifier: the same values with a quarter of the work
        nn.Conv2d(channels, width, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * width * remaining * remaining, classes),
    )  # fmt: skip


def lenet5(side: int, channels: int, classes: int) -> Any:
    remaining = (side // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * remaining * remaining, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, classes),
    )  # fmt: skip


def _normalised(width: int) -> Any:
    return nn.GroupNorm(min(32, width // 4), width)


@final
class _Residual(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Two convolutions, with a shortcut."""

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
        states, _ = self.lstm(self.embed(x))
        return self.head(states[:, -1])


@final
class UnitLinear(nn.Linear):  # type: ignore[misc]  # torch is not looked into
    """A linear layer without shift, whose rows are divided by their lengths."""

    def __init__(self, like: Any) -> None:
        super().__init__(like.in_features, like.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, nn.functional.normalize(self.weight, eps=1e-30))


def tensors(module: Any) -> list[tuple[str, Any]]:
    """The parts of the weight vector: parameters first, then floating-point buffers such as running averages."""
    buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
    return [*module.named_parameters(), *buffers]


def initial_weights(build: Callable[[], Any], seed: int) -> Floats:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
    return np.concatenate([tensor.detach().numpy().reshape(-1) for _, tensor in tensors(module)]).astype(np.float32)


def layout(module: Any, name: str = "") -> WeightLayout:
    """Where the parts of a module are; the name of its last linear layer is found by tracing, unless it is given."""
    (name, last) = (name, True) if name else last_linear(module)
    head = named_linear(module, name)
    ranges, at = {}, 0
    for _, parameter in module.named_parameters():
        ranges[id(parameter)] = (at, at + parameter.numel())
        at += parameter.numel()
    shift = (at, at) if head.bias is None else ranges[id(head.bias)]
    return WeightLayout(head.out_features, at, slice(*ranges[id(head.weight)]), slice(*shift), name, last)


def named_linear(module: Any, name: str) -> Any:
    found = dict(module.named_modules()).get(name)
    if not isinstance(found, nn.Linear):
        raise InputError(f"Expected a linear layer '{name}' in {type(module).__name__}, found none of that name.")
    return found


def last_linear(module: Any) -> tuple[str, bool]:
    """The name of the last linear layer that a forward pass runs, and whether its outputs are the module's.

    The pass is symbolic, so it needs no inputs. The order in which layers were declared says nothing.
    """
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError("Expected a module that ends in a linear layer, found none.")
    if isinstance(module, nn.Linear):
        return "", True
    try:
        graph = traced(module)
    except Exception as error:  # whatever a user's forward does with symbols
        raise InputError(
            f"Expected to find the last linear layer of {type(module).__name__} by tracing its forward pass, found "
            f"{type(error).__name__} ({str(error)[:80]}). Name it: OwnNetwork(..., top='NAME'), one of {linear[:9]}."
        ) from error
    return _last_of(graph, module)


def traced(module: Any) -> Any:
    """The operations of a forward pass, which runs on symbols."""
    return _Tracer().trace(module)


def _last_of(graph: Any, module: Any) -> tuple[str, bool]:
    nodes = list(graph.nodes)
    reaching = {nodes[-1]}
    for node in reversed(nodes):  # whatever the outputs depend on, last first
        if node not in reaching:
            continue
        if node.op == "call_module" and isinstance(module.get_submodule(node.target), nn.Linear):
            return str(node.target), nodes[-1].args[0] is node
        reaching.update(node.all_input_nodes)
    raise InputError(f"Expected a linear layer before the outputs of {type(module).__name__}, found none.")


@final
class _Tracer(torch.fx.Tracer):  # type: ignore[misc]  # torch is not looked into
    """Goes into every module but torch's own and linear layers."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Linear) or bool(super().is_leaf_module(m, module_qualified_name))


@final
class TorchSession(Session):
    """A module whose parameters are views into one numpy vector."""

    def __init__(self, module: Any, weights: Floats, head: str) -> None:
        self.weights, self._head = np.array(weights, dtype=np.float32), named_linear(module, head)
        self.module, self._gradient, at = module, np.zeros_like(self.weights), 0
        parts = tensors(module)
        if sum(tensor.numel() for _, tensor in parts) != len(self.weights):
            raise InputError(f"Expected as many weights as the network has, found {len(self.weights)}.")
        for _, tensor in parts:
            part = slice(at, at + tensor.numel())
            tensor.data = torch.from_numpy(self.weights[part]).view(tensor.shape)
            if isinstance(tensor, nn.Parameter):
                tensor.grad = torch.from_numpy(self._gradient[part]).view(tensor.shape)
            at += tensor.numel()

    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        self.module.train()
        self._gradient[:] = 0
        loss = nn.functional.cross_entropy(self.module(as_tensor(inputs)), torch.from_numpy(np.asarray(labels)))
        loss.backward()  # adds into the views
        return self._gradient

    def logits(self, inputs: Array) -> Floats:
        """Logits in evaluation mode: no dropout, and running averages in batch normalisation."""
        self.module.eval()
        with torch.no_grad():
            return in_batches(inputs, lambda batch: self.module(as_tensor(batch)).numpy())

    def features(self, inputs: Array) -> Floats:
        return self.scores(inputs)[1]

    def scores(self, inputs: Array) -> tuple[Floats, Floats]:
        caught: list[Any] = []
        hook = self._head.register_forward_pre_hook(lambda _, fed: caught.append(fed[0].numpy()))
        try:
            logits = self.logits(inputs)
        finally:
            hook.remove()
        return logits, np.concatenate(caught)

    def curvature(self, inputs: Array) -> Floats:
        """Sum over records and classes of p_j (g_j - sum_k p_k g_k)^2, where g_j is the gradient of logit j."""
        self.module.eval()
        total = np.zeros(len(self.weights))
        parameters = list(self.module.parameters())
        for at in range(len(inputs)):
            logits = self.module(as_tensor(inputs[at : at + 1]))[0]
            probs = torch.softmax(logits, 0).detach().numpy()
            rows = [self._row(logits, j, parameters) for j in range(len(probs))]
            mean = sum(p * row for p, row in zip(probs, rows, strict=True))
            for p, row in zip(probs, rows, strict=True):
                total[: len(row)] += p * (row - mean) ** 2
        return total

    def _row(self, logits: Any, j: int, parameters: list[Any]) -> Floats:
        gradients = torch.autograd.grad(logits[j], parameters, retain_graph=True)
        flat: Floats = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy().astype(np.float64)
        return flat


def as_tensor(inputs: Array) -> Any:
    """A column as a tensor: bytes are divided by 255, with channels first; whole numbers are tokens."""
    values = np.ascontiguousarray(inputs)
    if values.dtype == np.uint8:
        pixels = torch.from_numpy(values).float() / 255
        return pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64))
    return torch.from_numpy(values.astype(np.float32))
