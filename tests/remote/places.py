"""A federation of sites in one process that exchange nothing but text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import fedcalib as fc
from fedcalib import registry
from fedcalib.accounting.spending import Spending
from fedcalib.remote.journal import DiskJournal, Journal, PinnedSites
from fedcalib.remote.policy import Policy
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import Site
from fedcalib.remote.sites import Transport
from fedcalib.secagg import Directory, SigningIdentity

T = TypeVar("T")
GENEROUS = Policy(
    privacy_models=registry.names("privacy"),
    epsilon_a_query=1e6,
    epsilon_a_run=1e6,
    epsilon_a_year=1e6,
    fewest_records=0,
    exact_runs_per_year=1000,
    most_work=1 << 60,
)
EXACT = Policy(privacy_models=(*Policy().privacy_models, "SecAgg"))  # the default, and sums under masks


def unchecked(kind: type[T], *values: object) -> T:
    """A value that its class would refuse to make, as a hostile server writes it; other fields have their defaults."""
    made = object.__new__(kind)
    for index, one in enumerate(fields(kind)):  # type: ignore[arg-type]
        object.__setattr__(made, one.name, values[index] if index < len(values) else one.default)
    return made


def names(count: int) -> list[str]:
    return [f"site-{index:02d}" for index in range(count)]


@dataclass(frozen=True)
class InMemory(Journal):
    """A notebook that is forgotten with its process: nobody is to be protected here."""

    runs: dict[str, str] = field(default_factory=dict)

    def locked(self) -> AbstractContextManager[None]:
        """Let everybody in."""
        return nullcontext()

    def recall(self, run: str) -> str | None:
        """Look the run up."""
        return self.runs.get(run)

    def save(self, run: str, text: str) -> None:
        """Keep the text."""
        self.runs[run] = text

    def check_ready(self, run: str, spending: Spending | None, most: float, most_exact: int) -> None:
        """Be ready."""

    def spent_in_a_year(self) -> Decimal:
        """Keep no budget."""
        return Decimal(0)

    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Keep no budget."""

    def count_exact(self, run: str, most: int) -> None:
        """Count nothing."""

    def pin_roster(self, data: str, roster: PinnedSites, fewest: int) -> None:
        """Pin nothing."""

    def note(self, entry: Mapping[str, Any]) -> None:
        """Keep no log."""


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


@dataclass
class Places:
    """Sites by name, and the directory that they share."""

    sites: dict[str, Site]
    directory: Directory

    def transport(self) -> LocalTransport:
        return LocalTransport({name: site.handle for name, site in self.sites.items()})

    def runtime(self, **options: object) -> Remote:
        return Remote(self.transport(), self.directory, **options)


def places(
    federation: fc.Federation, policy: Policy = GENEROUS, folder: Path | None = None, nodes: int | None = None
) -> Places:
    """One site per client, or clients dealt to `nodes` nodes."""
    count = len(federation) if nodes is None else nodes
    identities = {name: SigningIdentity(name) for name in names(count)}
    directory = Directory({name: identity.public for name, identity in identities.items()})
    sites = {}
    for index, (name, identity) in enumerate(identities.items()):
        mine = federation.subset([k for k in range(len(federation)) if k * count // len(federation) == index])
        journal = InMemory() if folder is None else DiskJournal(folder / name)
        sites[name] = Site(identity, directory, mine, policy, journal)
    return Places(sites, directory)


def remote(federation: fc.Federation) -> Remote:
    """Put a federation behind text messages: three nodes that hold its clients, generous and forgetful."""
    return places(federation, replace(GENEROUS, simulation=True), nodes=3).runtime()


@dataclass
class Meddler(Transport):
    """A transport that changes what some sites say: `meddle(site, action, reply)` gives the reply, or None for none."""

    inner: LocalTransport
    meddle: Callable[[str, str, str], str | None]
    received: list[tuple[str, str]] = field(default_factory=list)

    def addresses(self) -> tuple[str, ...]:
        return self.inner.addresses()

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        replies = {}
        for address, text in texts.items():
            self.received.append((address, action))
            answer = self.meddle(address, action, self.inner.sites[address](action, text))
            if answer is not None:
                replies[address] = answer
        return replies


def with_site(all_places: Places, name: str, **changes: object) -> Places:
    """Change one site."""
    return replace(all_places, sites={**all_places.sites, name: replace(all_places.sites[name], **changes)})
