"""How texts reach sites: the only part of a federation that differs between a test, a simulation and the world.

The server's end of every conversation: who the sites are, who answered, and what became of the others.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar, final

from fedcalib import __version__
from fedcalib.errors import FedcalibError, TooFewClients
from fedcalib.remote.protocol import REASONS, Introduction, Question, Refused, read_reply


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


T = TypeVar("T")

_PULSE: Final = 0.2  # seconds between two looks for sites


@final
@dataclass(frozen=True)
class Event:
    """Something worth telling whoever watches a run."""

    stage: str
    asked: int
    answered: int
    lost: Mapping[str, str]
    epsilon_left: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {**asdict(self), "lost": dict(self.lost)}


@final
@dataclass(frozen=True)
class Seat:
    """A site as the server knows it: its address, and its clients numbered from `first`."""

    address: str
    site: str
    first: int
    clients: int
    classes: int


@final
@dataclass(eq=False)
class Station:
    """Asks sites stage by stage. A reply that cannot be used is as good as none, and its site is named."""

    transport: Transport
    timeout: float
    patience: int
    watch: Callable[[Event], None] | None = None
    seats: dict[str, Seat] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def gather_sites(self, wanted: int | None, known: Iterable[str]) -> None:
        """Learn who is there; a name that is unknown or taken is turned away."""
        found = self._exchange("hello", dict.fromkeys(self._present(wanted), ""), Introduction, str)
        chosen: dict[str, tuple[str, Introduction]] = {}
        for address, told in found.items():
            if told.site in known and told.site not in chosen and told.clients > 0:
                chosen[told.site] = (address, told)
            else:
                self.lost[address] = f"introduced itself as '{told.site[:60]}', which is unknown or taken"
        self._seat(chosen)
        if wanted is not None and len(self.seats) < wanted:
            raise TooFewClients(f"Expected {wanted} sites, found {len(self.seats)}. {self.troubles()}".strip())

    def _present(self, wanted: int | None) -> tuple[str, ...]:
        """Wait for sites to connect."""
        deadline = time.monotonic() + self.timeout
        present = self.transport.addresses()
        while len(present) < (wanted or 1) and time.monotonic() < deadline:
            time.sleep(_PULSE)
            present = self.transport.addresses()
        return present

    def _seat(self, chosen: Mapping[str, tuple[str, Introduction]]) -> None:
        first = 0
        for site in sorted(chosen):
            address, told = chosen[site]
            self.seats[site] = Seat(address, site, first, told.clients, told.classes)
            first += told.clients
            if told.version != __version__:
                self.lost[site] = f"runs fedcalib {told.version}, not {__version__}"
        if len({seat.classes for seat in self.seats.values()}) > 1:
            counts = ", ".join(f"{seat.site}: {seat.classes}" for seat in self.seats.values())
            raise TooFewClients(f"Expected the same classes at every site, found {counts}; let the sites agree first.")

    def ask(
        self, action: str, texts: Mapping[str, str], kind: type[T], accept: Callable[[str, T], None], stage: str
    ) -> None:
        """Ask sites by name and hand each good reply on; the others are remembered with the reason."""
        self.lost = {site: "is not connected" for site in texts if site not in self.seats}
        names = {self.seats[site].address: site for site in texts if site in self.seats}
        by_address = {address: texts[site] for address, site in names.items()}
        good: set[str] = set()
        for address, reply in self._exchange(action, by_address, kind, names.__getitem__).items():
            try:
                accept(names[address], reply)
                good.add(names[address])
            except FedcalibError as error:
                self.lost[names[address]] = f"sent a reply that cannot be used: {error}"
        if self.watch is not None:
            self.watch(Event(stage, len(texts), len(good), dict(self.lost)))

    def _exchange(
        self, action: str, texts: Mapping[str, str], kind: type[T], name: Callable[[str], str]
    ) -> dict[str, T]:
        """Send; sites answer the same request the same way, so whoever kept silent may be asked once more."""
        found: dict[str, T] = {}
        left = dict(texts)
        for _ in range(1 + self.patience):
            replies = self.transport.exchange(action, left, self.timeout) if left else {}
            for address, text in replies.items():
                if address in left:
                    self._sort(name(address), address, text, kind, found)
                    del left[address]
        self.lost.update(
            {name(address): f"did not answer within {self.timeout:g} s; is it running?" for address in left}
        )
        return found

    def _sort(self, name: str, address: str, text: str, kind: type[T], found: dict[str, T]) -> None:
        try:
            reply = read_reply(text, kind)
        except FedcalibError as error:
            self.lost[name] = f"sent something unreadable: {error}"
            return
        if isinstance(reply, Refused):
            self.lost[name] = REASONS.get(reply.reason, "refused without a known reason; ask the site")
        else:
            found[address] = reply

    def counted(self, site: str, question: Question | None) -> int:
        """Count the clients of a site that a question is for; a site that is gone was one client."""
        if question is not None and question.members:
            return len(question.members)
        return self.seats[site].clients if site in self.seats else 1

    @property
    def clients(self) -> int:
        """Count the clients of all sites."""
        return sum(seat.clients for seat in self.seats.values())

    def troubles(self) -> str:
        """Say which sites are missing, why, and so what to do."""
        return " ".join(f"Site '{site}' {why}." for site, why in sorted(self.lost.items()))
