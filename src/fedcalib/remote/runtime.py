"""The runtime of a federation at a distance: sites that answer texts, over any transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from fedcalib import __version__
from fedcalib.errors import InputError, TooFewClients, WireError
from fedcalib.loop import Outline, Runtime, Step, Total
from fedcalib.privacy.ring import MAX_SUM
from fedcalib.query import Query
from fedcalib.records import Schema
from fedcalib.remote.protocol import PROTOCOL, Agreed, Begin, Greeting, Question, Share, write
from fedcalib.remote.secure_sum import SecureSums, first_plan
from fedcalib.remote.sites import Notice, SiteConnections, Transport
from fedcalib.secagg import Directory, SetupPlan
from fedcalib.types import Array

_MAX_RECORDS = 1 << 40


@final
@dataclass(eq=False)
class Remote(Runtime):
    """A runtime over sites behind a transport.

    Shares of mechanisms with a modulus are summed under masks; others are sent without masks.

    Parameters
    ----------
    transport
        How texts reach the sites.
    directory
        The sites' identity keys.
    state
        A private folder, so that a sum can go on after the server was killed.
    sites
        How many sites must be connected before anything starts.
    timeout
        How many seconds to wait for replies.
    patience
        How often sites that did not reply are sent the same message again.
    watch
        Called with a `Notice` after each stage.
    expected
        The number of clients and classes, where it is agreed beforehand. Sites are then asked together with the first
        message whether they can take part in the run, and nothing is spent where one of them cannot. Where each site is
        one client, they send the keys of their masks with the reply, which saves an exchange.
    """

    transport: Transport
    directory: Directory
    state: Path | None = None
    sites: int | None = None
    timeout: float = 60.0
    patience: int = 1
    watch: Callable[[Notice], None] | None = None
    expected: Schema | None = None
    _connections: SiteConnections | None = field(default=None, init=False)
    _sums: SecureSums | None = field(default=None, init=False)
    _outline: Outline | None = field(default=None, init=False)
    _first: SetupPlan | None = field(default=None, init=False)
    _agreed: bool = field(default=False, init=False)

    @property
    def connections(self) -> SiteConnections:
        """The connections to the sites, opened when first needed."""
        if self._connections is None:
            connections = SiteConnections(self.transport, self.timeout, self.patience, self.watch)
            connections.connect(self.sites, self.directory.keys, self._greeting())
            if not connections.sites:
                raise TooFewClients(f"Expected connected sites, found none. {connections.problems()}".strip())
            if self.expected is not None:
                connections.check(self.expected)
            self._connections = connections
        return self._connections

    def _greeting(self) -> Greeting:
        """The first message, with the run where it is known already, and the plan of its masks."""
        if self.expected is None or self._outline is None:
            return Greeting(PROTOCOL, __version__)
        if self.expected.clients == self.sites:  # so each of them is one client
            self._first = first_plan(self._outline, self.state)
        terms = "" if self._first is None else self._first.to_json()
        return Greeting(PROTOCOL, __version__, self.expected.classes, Begin(self._outline, terms))

    @property
    def schema(self) -> Schema:
        if self.expected is not None:
            return self.expected
        sites = self.connections.sites.values()
        return Schema(next(info.classes for info in sites), sum(info.clients for info in sites))

    def prepare(self, outline: Outline) -> None:
        """Keep the outline; sites receive it with the first query that is not recalled from a transcript."""
        self._outline, self._first = outline, None
        connections = self.connections  # the first time, sites are greeted here
        self._sums = SecureSums(outline, connections, self.directory, self.state, first=self._first)
        self._agreed = False

    def total(self, step: Step) -> Total:
        """The sum of the shares of the sites that take part, with or without masks."""
        if self._outline is None or self._sums is None or self._outline.run != step.run:
            raise InputError("Expected a run that sites were told of, found another; call prepare first.")
        questions = self._questions(step)
        return self._plain(step, questions) if step.mechanism.modulus is None else self._sums.total(step, questions)

    def _questions(self, step: Step) -> dict[str, Question]:
        """The message to each site that takes part, for those of its clients that do."""
        questions = {}
        for site, info in self.connections.sites.items():
            mask = None if step.members is None else step.members[info.first : info.first + info.clients]
            if mask is not None and not mask.any():
                continue
            members = () if mask is None or mask.all() else tuple(int(one) for one in np.flatnonzero(mask))
            questions[site] = Question(step.run, step.index, step.attempt, step.query, members, "")
        return questions

    def _plain(self, step: Step, questions: dict[str, Question]) -> Total:
        self._agree(step, questions)
        shares: dict[str, Array] = {}

        def accept(site: str, share: Share) -> None:
            check_share(step, share, self.connections.clients_of(site, questions[site]), len(questions))
            shares[site] = share.value

        texts = {site: write(question) for site, question in questions.items()}
        self.connections.send("ask", texts, Share, accept, f"step {step.index}: shares")
        clients = sum(self.connections.clients_of(site, questions[site]) for site in shares)
        self._require(step, clients, "shares")
        return Total(np.sum([shares[site] for site in sorted(shares)], axis=0), clients)

    def _agree(self, step: Step, questions: dict[str, Question]) -> None:
        """Send sites the outline of the run before its first query, so that they refuse it whole or not at all."""
        if self._agreed or self._outline is None:
            return
        begin, agreed = write(Begin(self._outline, "")), set[str]()
        everyone = dict.fromkeys(self.connections.sites, begin)
        self.connections.send("begin", everyone, Agreed, lambda site, _: agreed.add(site), "agreement")
        clients = sum(self.connections.clients_of(site, questions[site]) for site in agreed & set(questions))
        self._require(step, clients, "the agreement")
        self._agreed = True

    def _require(self, step: Step, clients: int, what: str) -> None:
        if clients < max(step.cohort.floor, 1):
            raise TooFewClients(
                f"Expected {what} of at least {step.cohort.floor} clients in step {step.index}, found {clients}; "
                f"nothing was read. {self.connections.problems()} Run this again then: it continues where it stopped."
            )


def check_share(step: Step, share: Share, clients: int, sites: int) -> None:
    """Refuse a share of another run, step, length or type, and one that no honest site could send.

    Whole numbers may be as large as their part of 2^62, so that no sum over sites can leave 64 bits.
    """
    if (share.run, share.step) != (step.run, step.index):
        raise WireError(f"Expected a share of step {step.index} of this run, found one of another run or step.")
    value, width = share.value, step.mechanism.width(step.query)
    if not isinstance(value, np.ndarray) or value.shape != (width,):
        raise WireError(f"Expected {width} numbers in a share, found another shape.")
    if value.dtype not in (np.dtype(np.int64), np.dtype(np.float64)):
        raise WireError(f"Expected a share of int64 or float64 numbers, found {value.dtype}.")
    if not np.isfinite(value).all():
        raise WireError("Expected finite numbers in a share, found NaN or infinity.")
    most = MAX_SUM // max(sites, 1)
    if value.dtype == np.dtype(np.int64) and not (-most <= value.min(initial=0) and value.max(initial=0) <= most):
        raise WireError(f"Expected whole numbers up to {most} in a share, so that no sum overflows, found larger ones.")
    if step.mechanism.event(step.query, step.cohort) is None and width == step.query.size:
        _check_bounds(step.query, value, clients)


def _check_bounds(query: Query, value: Array, clients: int) -> None:
    """Refuse an exact term beyond its bound: that of its clients, or that of more records than any site has."""
    for name, part in query.split(value).items():
        bound = query.blocks[name].bound
        most = bound.linf * (clients if bound.unit == "client" else _MAX_RECORDS) * (1 + 1e-9)
        if part.size and not np.abs(part).max() <= most:
            raise WireError(f"Expected entries up to {most:.6g} in the block '{name}', found larger ones.")
