"""How texts reach sites: the only part of a federation that differs between a test, a simulation and the world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final


class Transport(ABC):
    """Carries one text to each of some sites and brings back what they answer in time.

    An address is whatever the transport knows a site by. A site that is not in the answers was lost, late or broken.
    """

    @abstractmethod
    def addresses(self) -> tuple[str, ...]:
        """List who can be reached."""

    @abstractmethod
    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Send one text to each address and wait for the answers, so many seconds at most."""


@final
@dataclass(frozen=True)
class LocalTransport(Transport):
    """Sites in this process, which get nothing but text: for tests and examples."""

    sites: Mapping[str, Callable[[str, str], str]]

    def addresses(self) -> tuple[str, ...]:
        """List all sites."""
        return tuple(self.sites)

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Ask one site after the other."""
        return {address: self.sites[address](action, text) for address, text in texts.items()}
