"""The server's connections to its sites: how texts reach them, who answered, and why the others did not.

A `Transport` is the only part of a federation that differs between a test, a simulation and a deployment.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar, final

from fedcalib import __version__
from fedcalib.errors import FedcalibError, InputError, TooFewClients
from fedcalib.records import Schema
from fedcalib.remote.protocol import PROTOCOL, REASONS, Greeting, Introduction, Question, Refused, read_reply, write


class Transport(ABC):
    """Carries one text to each of some sites and returns what they answer in time.

    An address is whatever the transport knows a site by. A site without an answer was lost, late or broken.
    """

    @abstractmethod
    def addresses(self) -> tuple[str, ...]:
        """The sites that can be reached now."""

    def name(self, address: str) -> str:
        """What people call an address, as far as it is known before a site has introduced itself."""
        return address

    @abstractmethod
    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Send one text to each address and wait for the answers, at most `timeout` seconds."""


T = TypeVar("T")

_POLL_SECONDS: Final = 0.2  # between two looks for sites


@final
@dataclass(frozen=True)
class Notice:
    """The outcome of a stage, for whoever watches a run: how many sites were asked, answered, and were lost."""

    stage: str
    asked: int
    answered: int
    lost: Mapping[str, str]
    epsilon_left: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The notice as plain data; the field names are the format of progress files."""
        return {**asdict(self), "lost": dict(self.lost)}


@final
@dataclass(frozen=True)
class ConnectedSite:
    """A connected site: its address, its name, and its clients, which are numbered from `first`.

    `keys` are those of its masks, where it was asked for them with the greeting.
    """

    address: str
    site: str
    first: int
    clients: int
    classes: int
    keys: str = ""


_CLOCK_SECONDS: Final = 300.0  # by which the clock of a site may differ from the server's


def _unfit(reply: Introduction, begun: float, ended: float) -> str | None:
    """Why a site cannot take part whatever the run is; None where it can."""
    if reply.protocol != PROTOCOL:
        return (
            f"speaks version {reply.protocol} of the protocol (fedcalib {reply.version[:20]}), and this server version "
            f"{PROTOCOL} (fedcalib {__version__}); install versions of fedcalib that fit together"
        )
    if not begun - _CLOCK_SECONDS <= reply.clock <= ended + _CLOCK_SECONDS:
        way = "behind" if reply.clock < begun else "ahead"
        return f"has a clock that is {abs(reply.clock - ended):.0f} s {way}; its operator has to set it"
    return None


@final
@dataclass(eq=False)
class SiteConnections:
    """The connected sites, and messages to them. A reply that cannot be used counts as none; `lost` says why."""

    transport: Transport
    timeout: float
    patience: int
    watch: Callable[[Notice], None] | None = None
    sites: dict[str, ConnectedSite] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def connect(self, wanted: int | None, known: Iterable[str], greeting: Greeting) -> None:
        """Wait for sites and record who they are; a site whose name is unknown or already taken is left out."""
        self._add_sites(self.greet(wanted, known, greeting))
        if wanted is not None and len(self.sites) < wanted:
            raise TooFewClients(
                f"Expected {wanted} sites, found {len(self.sites)}. {self.problems()} Nothing was spent; run this "
                "again when they are there."
            )

    def greet(
        self, wanted: int | None, known: Iterable[str], greeting: Greeting
    ) -> dict[str, tuple[str, Introduction]]:
        """The addresses and introductions of the sites that could take part; `lost` holds why others could not."""
        texts = dict.fromkeys(self._present(wanted), write(greeting))
        begun = time.time()
        found = self._exchange("hello", texts, Introduction, self.transport.name)
        chosen: dict[str, tuple[str, Introduction]] = {}
        for address, reply in found.items():
            if reply.site not in known or reply.site in chosen or reply.clients < 1:
                name = self.transport.name(address)
                self.lost[name] = f"introduced itself as '{reply.site[:60]}', which is unknown or taken"
            elif problem := _unfit(reply, begun, time.time()):
                self.lost[reply.site] = problem
            else:
                chosen[reply.site] = (address, reply)
        if wanted is not None and len(texts) < wanted:  # otherwise nobody that is absent is missed
            absent = {site for site in known if site not in chosen and site not in self.lost}
            self.lost |= dict.fromkeys(absent, "is not connected; start it, or see what its own output says")
        return chosen

    def _present(self, wanted: int | None) -> tuple[str, ...]:
        """The addresses of connected sites, once enough of them are there or the time is over."""
        deadline = time.monotonic() + self.timeout
        present = self.transport.addresses()
        while len(present) < (wanted or 1) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            present = self.transport.addresses()
        return present

    def _add_sites(self, chosen: Mapping[str, tuple[str, Introduction]]) -> None:
        first = 0
        for site in sorted(chosen):
            address, reply = chosen[site]
            self.sites[site] = ConnectedSite(address, site, first, reply.clients, reply.classes, reply.keys)
            first += reply.clients
            if reply.version != __version__ and self.watch is not None:
                told = f"site '{site}' runs fedcalib {reply.version[:20]}, and this server {__version__}"
                self.watch(Notice(told, 0, 0, {}))
            if reply.left_out and self.watch is not None:
                self.watch(Notice(f"site '{site}' left out {reply.left_out}% of its rows", 0, 0, {}))
        if len({info.classes for info in self.sites.values()}) > 1:
            counts = ", ".join(f"{info.site}: {info.classes}" for info in self.sites.values())
            raise TooFewClients(
                f"Expected the same classes at every site, found {counts}; check the records of the sites."
            )

    def check(self, expected: Schema) -> None:
        """Refuse sites that are not those of the job: more of them, or other classes."""
        classes = next(info.classes for info in self.sites.values())
        if (self.clients, classes) != (expected.clients, expected.classes):
            raise InputError(
                f"Expected {expected.clients} sites and {expected.classes} classes as the job says, found "
                f"{self.clients} and {classes} ({', '.join(self.sites)}); set sites and classes in the job. "
                "Nothing was spent."
            )

    def send(
        self, action: str, texts: Mapping[str, str], kind: type[T], accept: Callable[[str, T], None], stage: str
    ) -> None:
        """Send a text to each site and pass good replies to `accept`; `lost` then holds why others are missing."""
        self.lost = {site: "is not connected" for site in texts if site not in self.sites}
        names = {self.sites[site].address: site for site in texts if site in self.sites}
        by_address = {address: texts[site] for address, site in names.items()}
        good: set[str] = set()
        for address, reply in self._exchange(action, by_address, kind, names.__getitem__).items():
            try:
                accept(names[address], reply)
                good.add(names[address])
            except FedcalibError as error:
                self.lost[names[address]] = f"sent a reply that cannot be used: {error}"
        if self.watch is not None:
            self.watch(Notice(stage, len(texts), len(good), dict(self.lost)))

    def _exchange(
        self, action: str, texts: Mapping[str, str], kind: type[T], name: Callable[[str], str]
    ) -> dict[str, T]:
        """Send texts, and repeat them to silent sites: a site answers the same request in the same way."""
        found: dict[str, T] = {}
        left = dict(texts)
        each = self.timeout / (1 + self.patience)  # so that all tries together take no longer than was said
        for _ in range(1 + self.patience):
            replies = self.transport.exchange(action, left, each) if left else {}
            for address, text in replies.items():
                if address in left:
                    self._read_reply(name(address), address, text, kind, found)
                    del left[address]
        self.lost.update(
            {name(address): f"did not answer within {self.timeout:g} s; check that it is running" for address in left}
        )
        return found

    def _read_reply(self, name: str, address: str, text: str, kind: type[T], found: dict[str, T]) -> None:
        try:
            reply = read_reply(text, kind)
        except FedcalibError as error:
            self.lost[name] = f"sent something unreadable: {error}"
            return
        if isinstance(reply, Refused):
            self.lost[name] = REASONS.get(reply.reason, "refused without a known reason; ask its operator")
        else:
            found[address] = reply

    def clients_of(self, site: str, question: Question | None) -> int:
        """The number of clients of a site that a query is for; a site that is gone counts as one client."""
        if question is not None and question.members:
            return len(question.members)
        return self.sites[site].clients if site in self.sites else 1

    @property
    def clients(self) -> int:
        """The number of clients of all sites."""
        return sum(info.clients for info in self.sites.values())

    def problems(self) -> str:
        """Which sites are missing, why, and what to do."""
        return " ".join(f"Site '{site}' {why}." for site, why in sorted(self.lost.items()))
