"""Networks of the `torch` extra. Each names a module, which is built where it is used.

`OwnNetwork` names a module of your own, and `UnitHead` gives any of them a normalised classifier as its last layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, final

from fedcalib.errors import InputError, WireError
from fedcalib.training.network import Network, Session, WeightLayout
from fedcalib.types import Floats
from fedcalib.wire import ADDED


@dataclass(frozen=True)
class TorchNetwork(Network):
    """A network whose module torch builds; its vector holds the parameters and then floating-point buffers."""

    @abstractmethod
    def build(self) -> Any:
        """The torch module, with new weights."""

    def start(self, seed: int) -> Floats:
        from fedcalib.training.torch_session import initial_weights

        return initial_weights(self.build, seed)

    def session(self, weights: Floats) -> Session:
        from fedcalib.training.torch_session import TorchSession

        return TorchSession(self.build(), weights, _shape(self).name)

    @property
    def outputs(self) -> int:
        return _shape(self).outputs

    @property
    def trainable(self) -> int:
        return _shape(self).trainable

    @property
    def head(self) -> tuple[slice, slice]:
        return _shape(self).matrix, _shape(self).shift

    @property
    def ends_in_head(self) -> bool:
        return _shape(self).last

    @property
    def head_name(self) -> str:
        """The name of the last linear layer, where it cannot be found by tracing; empty where it can."""
        return ""


@lru_cache(maxsize=32)
def _shape(network: TorchNetwork) -> WeightLayout:
    from fedcalib.training.torch_session import layout

    return layout(network.build(), network.head_name)


@final
@dataclass(frozen=True)
class ConvNet(TorchNetwork):
    """Two convolutions, each followed by pooling, and one linear layer: the simple CNN of the literature.

    Parameters
    ----------
    side
        Height and width of the images, in pixels.
    channels
        Channels per pixel.
    classes
        Number of classes.
    width
        Filters of the first convolution; the second has twice as many.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.ConvNet(side=32, channels=3)
    ConvNet(side=32, channels=3, classes=10, width=16)
    """

    side: int = 28
    channels: int = 1
    classes: int = 10
    width: int = 16

    def build(self) -> Any:
        from fedcalib.training.torch_session import conv_net

        return conv_net(self.side, self.channels, self.classes, self.width)


@final
@dataclass(frozen=True)
class LeNet5(TorchNetwork):
    """LeNet-5 with rectified units and max pooling; its last layer has 84 features as inputs.

    Parameters
    ----------
    side
        Height and width of the images, in pixels.
    channels
        Channels per pixel.
    classes
        Number of classes.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.LeNet5(classes=62)
    LeNet5(side=28, channels=1, classes=62)
    """

    side: int = 28
    channels: int = 1
    classes: int = 10

    def build(self) -> Any:
        from fedcalib.training.torch_session import lenet5

        return lenet5(self.side, self.channels, self.classes)


@final
@dataclass(frozen=True)
class ResNet18(TorchNetwork):
    """ResNet-18 for small images, with group instead of batch normalisation, which label skew would bias.

    Parameters
    ----------
    channels
        Channels per pixel.
    classes
        Number of classes.
    width
        Filters of the first convolution.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.ResNet18(width=16)
    ResNet18(channels=3, classes=10, width=16)
    """

    channels: int = 3
    classes: int = 10
    width: int = 64

    def build(self) -> Any:
        from fedcalib.training.torch_session import ResNet

        return ResNet(self.channels, self.classes, self.width)


@final
@dataclass(frozen=True)
class CharLSTM(TorchNetwork):
    """An LSTM that reads numbered characters and predicts the next one.

    Parameters
    ----------
    characters
        How many different characters there are.
    embedding
        Numbers per character.
    hidden
        Size of the hidden state.
    layers
        Layers of the LSTM.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.CharLSTM(characters=60)
    CharLSTM(characters=60, embedding=8, hidden=128, layers=2)
    """

    characters: int = 80
    embedding: int = 8
    hidden: int = 128
    layers: int = 2

    def build(self) -> Any:
        from fedcalib.training.torch_session import NextCharacter

        return NextCharacter(self.characters, self.embedding, self.hidden, self.layers)


@final
@dataclass(frozen=True)
class OwnNetwork(TorchNetwork):
    """A torch module of your own, by the name under which each site has registered it.

    Call `fedcalib.registry.register(MyModule)` at the server and at every site first.

    Parameters
    ----------
    name
        Name of the module's class.
    options
        Arguments of the module.
    top
        The name of the last linear layer in the module, such as "classifier.2". It is found by tracing a forward pass;
        name it where that fails, for instance because the pass depends on values.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.OwnNetwork("MyModule", {"hidden": 32})
    OwnNetwork(name='MyModule', options={'hidden': 32}, top='')
    """

    name: str
    options: Mapping[str, float | int | str] = field(default_factory=dict, hash=False)
    top: str = field(default="", metadata=ADDED)

    @property
    def head_name(self) -> str:
        return self.top

    def build(self) -> Any:
        import torch

        from fedcalib.registry import lookup

        try:
            found = lookup(self.name)
        except WireError as error:
            raise WireError(
                f"Expected the module {self.name!r:.80} to be registered here, found none of that name; call "
                "fedcalib.registry.register on its class first, at the server and at every site."
            ) from error
        if not issubclass(found, torch.nn.Module):
            raise InputError(f"Expected {self.name} to be a torch module, found another registered type.")
        try:
            return found(**self.options)
        except TypeError as error:
            raise InputError(f"Expected arguments that {self.name} takes, found others: {error}.") from error


@final
@dataclass(frozen=True)
class UnitHead(TorchNetwork):
    """A network whose last linear layer divides each class's weights by their length and has no shift.

    Label skew lengthens the weights of the classes that a client has; here length has no effect, in training either.

    Parameters
    ----------
    network
        The network whose last layer is replaced.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.UnitHead(fc.training.LeNet5()).unit
    True
    """

    network: TorchNetwork

    def build(self) -> Any:
        from fedcalib.training.torch_session import UnitLinear, named_linear

        module, name = self.network.build(), _shape(self.network).name
        layer = named_linear(module, name)
        if not name:
            return UnitLinear(layer)
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, UnitLinear(layer))
        return module

    @property
    def unit(self) -> bool:
        return True
