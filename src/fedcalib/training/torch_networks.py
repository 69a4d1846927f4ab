"""Networks of the `torch` extra, by name: the modules themselves are built where they are used.

A head that counts by direction only: the normalised classifier, trained as such.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, final

from fedcalib.errors import InputError
from fedcalib.training.network import Layout, Network, Session
from fedcalib.types import Floats


@dataclass(frozen=True)
class TorchNetwork(Network):
    """A network whose module torch builds; floating weights and running averages make up its vector."""

    @abstractmethod
    def build(self) -> Any:
        """Make the torch module, with fresh weights."""

    def start(self, seed: int) -> Floats:
        """Draw the module's own initial weights."""
        from fedcalib.training.torch_session import initial_weights

        return initial_weights(self.build, seed)

    def session(self, weights: Floats) -> Session:
        """Put the module to work."""
        from fedcalib.training.torch_session import TorchSession

        return TorchSession(self.build(), weights)

    @property
    def outputs(self) -> int:
        """Count what the module's last linear layer puts out."""
        return _shape(self).outputs

    @property
    def trainable(self) -> int:
        """Count the module's parameters."""
        return _shape(self).trainable

    @property
    def head(self) -> tuple[slice, slice]:
        """Find the module's last linear layer."""
        return _shape(self).matrix, _shape(self).shift


@lru_cache(maxsize=32)
def _shape(network: TorchNetwork) -> Layout:
    from fedcalib.training.torch_session import layout

    return layout(network.build())


@final
@dataclass(frozen=True)
class ConvNet(TorchNetwork):
    """Two convolutions, each followed by pooling, and one linear layer: the simple CNN of the literature."""

    side: int = 28
    channels: int = 1
    classes: int = 10
    width: int = 16

    def build(self) -> Any:
        """Make the module."""
        from fedcalib.training.torch_session import conv_net

        return conv_net(self.side, self.channels, self.classes, self.width)


@final
@dataclass(frozen=True)
class LeNet5(TorchNetwork):
    """LeNet-5 with rectified units and max pooling; its last layer is fed 84 features."""

    side: int = 28
    channels: int = 1
    classes: int = 10

    def build(self) -> Any:
        """Make the module."""
        from fedcalib.training.torch_session import lenet5

        return lenet5(self.side, self.channels, self.classes)


@final
@dataclass(frozen=True)
class ResNet18(TorchNetwork):
    """ResNet-18 for small images; groups are normalised instead of batches, which label skew would bias."""

    channels: int = 3
    classes: int = 10
    width: int = 64

    def build(self) -> Any:
        """Make the module."""
        from fedcalib.training.torch_session import ResNet

        return ResNet(self.channels, self.classes, self.width)


@final
@dataclass(frozen=True)
class CharLSTM(TorchNetwork):
    """An LSTM that reads characters, numbered, and scores which comes next."""

    characters: int = 80
    embedding: int = 8
    hidden: int = 128
    layers: int = 2

    def build(self) -> Any:
        """Make the module."""
        from fedcalib.training.torch_session import NextCharacter

        return NextCharacter(self.characters, self.embedding, self.hidden, self.layers)


@final
@dataclass(frozen=True)
class OwnNetwork(TorchNetwork):
    """A torch module of your own, by the name under which each site has registered it.

    Say `fedcalib.registry.register(MyModule)` at the server and at every site, then `OwnNetwork("MyModule")`.
    `options` are passed to the module.
    """

    name: str
    options: Mapping[str, float | int | str] = field(default_factory=dict, hash=False)

    def build(self) -> Any:
        """Look the module up in this process's registry."""
        import torch

        from fedcalib.registry import lookup

        found = lookup(self.name)
        if not issubclass(found, torch.nn.Module):
            raise InputError(f"Expected {self.name} to be a torch module, found another registered type.")
        return found(**self.options)


@final
@dataclass(frozen=True)
class UnitHead(TorchNetwork):
    """Another network whose last linear layer divides each class's weights by their length and has no shift.

    Label skew lengthens the weights of the classes that a client holds; here length has no effect, in training either.
    """

    network: TorchNetwork

    def build(self) -> Any:
        """Put the normalising layer in the place of the last linear one."""
        from fedcalib.training.torch_session import UnitLinear, last_linear

        module = self.network.build()
        name, layer = last_linear(module)
        if not name:
            return UnitLinear(layer)
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, UnitLinear(layer))
        return module

    @property
    def unit(self) -> bool:
        """Say that only directions count."""
        return True
