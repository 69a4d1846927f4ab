"""The torch modules behind the networks; imported only when one is built."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn


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
