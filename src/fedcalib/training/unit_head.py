"""A head that counts by direction only: the normalised classifier, trained as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fedcalib.training.torch_networks import TorchNetwork


@final
@dataclass(frozen=True)
class UnitHead(TorchNetwork):
    """Another network whose last linear layer divides each class's weights by their length and has no shift.

    Label skew lengthens the weights of the classes that a client holds; here length has no effect, in training either.
    """

    network: TorchNetwork

    def build(self) -> Any:
        """Put the normalising layer in the place of the last linear one."""
        from fedcalib.training.modules import UnitLinear
        from fedcalib.training.torch_session import last_linear

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
