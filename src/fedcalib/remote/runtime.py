"""A federation at a distance: sites that answer texts, over any transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from fedcalib.errors import TooFewClients, WireError
from fedcalib.loop import Outline, Runtime, Step, Total
from fedcalib.query import Query
from fedcalib.records import Schema
from fedcalib.remote.protocol import Agreed, Begin, Question, Share, write
from fedcalib.remote.secure_sum import SecureSums
from fedcalib.remote.sites import Event, Station, Transport
from fedcalib.secagg import Directory
from fedcalib.types import Array

_MOST_RECORDS = 1 << 40


@final
@dataclass(eq=False)
class Remote(Runtime):
    """Sites behind a transport.

    Shares of mechanisms with a modulus are summed under masks, others in plain sight. `directory` holds the sites'
    identity keys; `state` is a private folder in which a sum survives the server's death; `sites` is how many have to
    be there before anything starts.
    """

    transport: Transport
    directory: Directory
    state: Path | None = None
    sites: int | None = None
    timeout: float = 60.0
    patience: int = 1
    watch: Callable[[Event], None] | None = None
    _station: Station | None = field(default=None, init=False)
    _sums: SecureSums | None = field(default=None, init=False)
    _outline: Outline | None = field(default=None, init=False)
    _agreed: bool = field(default=False, init=False)

    @property
    def station(self) -> Station:
        """The line to the sites, opened when first needed."""
        if self._station is None:
            station = Station(self.transport, self.timeout, self.patience, self.watch)
            station.gather_sites(self.sites, self.directory.keys)
            if not station.seats:
                raise TooFewClients(f"Expected sites to ask, found none. {station.troubles()}".strip())
            self._station = station
        return self._station

    @property
    def schema(self) -> Schema:
        """Say what the sites told about themselves."""
        seats = self.station.seats.values()
        return Schema(next(seat.classes for seat in seats), sum(seat.clients for seat in seats))

    def prepare(self, outline: Outline) -> None:
        """Remember the outline; sites hear of it with the first question that is not recalled from a transcript."""
        self._outline = outline
        self._sums = SecureSums(outline, self.station, self.directory, self.state)
        self._agreed = False

    def total(self, step: Step) -> Total:
        """Sum the shares of the sites that take part, in plain sight or under masks."""
        if self._outline is None or self._sums is None or self._outline.run != step.run:
            self.prepare(Outline(step.run, (step.query,), (step.mechanism,), step.cohort, step.participation))
        questions = self._questions(step)
        if step.mechanism.modulus is None:
            return self._plain(step, questions)
        if self._sums is None:
            raise TooFewClients("Expected a prepared run, found none.")
        return self._sums.total(step, questions)

    def _questions(self, step: Step) -> dict[str, Question]:
        """Write the question to each site that was drawn, for those of its clients that were."""
        drawn = step.participation.members(self.schema.clients, step.index, step.run)
        questions = {}
        for site, seat in self.station.seats.items():
            mask = None if drawn is None else drawn[seat.first : seat.first + seat.clients]
            if mask is not None and not mask.any():
                continue
            members = () if mask is None or mask.all() else tuple(int(one) for one in np.flatnonzero(mask))
            questions[site] = Question(step.run, step.index, step.attempt, step.query, members, "")
        return questions

    def _plain(self, step: Step, questions: dict[str, Question]) -> Total:
        self._agree(step, questions)
        shares: dict[str, Array] = {}

        def accept(site: str, share: Share) -> None:
            check_share(step, share, self.station.counted(site, questions[site]))
            shares[site] = share.value

        texts = {site: write(question) for site, question in questions.items()}
        self.station.ask("ask", texts, Share, accept, f"step {step.index}: shares")
        clients = sum(self.station.counted(site, questions[site]) for site in shares)
        self._require(step, clients, "shares")
        return Total(np.sum([shares[site] for site in sorted(shares)], axis=0), clients)

    def _agree(self, step: Step, questions: dict[str, Question]) -> None:
        """Show sites the whole run before its first question, so that they refuse it whole or not at all."""
        if self._agreed or self._outline is None:
            return
        begin, agreed = write(Begin(self._outline, "")), set[str]()
        everyone = dict.fromkeys(self.station.seats, begin)
        self.station.ask("begin", everyone, Agreed, lambda site, _: agreed.add(site), "agreement")
        clients = sum(self.station.counted(site, questions[site]) for site in agreed & set(questions))
        self._require(step, clients, "the agreement")
        self._agreed = True

    def _require(self, step: Step, clients: int, what: str) -> None:
        if clients < max(step.cohort.floor, 1):
            raise TooFewClients(
                f"Expected {what} of at least {step.cohort.floor} clients in step {step.index}, found {clients}; "
                f"nothing was read. {self.station.troubles()} Run this again then: it goes on where it stopped."
            )


def check_share(step: Step, share: Share, clients: int) -> None:
    """Refuse a share of another run, step, length or kind, and one that no honest site could send."""
    if (share.run, share.step) != (step.run, step.index):
        raise WireError(f"Expected a share of step {step.index} of this run, found one of another run or step.")
    value, width = share.value, step.mechanism.width(step.query)
    if not isinstance(value, np.ndarray) or value.shape != (width,):
        raise WireError(f"Expected {width} numbers in a share, found another shape.")
    if value.dtype not in (np.dtype(np.int64), np.dtype(np.float64)):
        raise WireError(f"Expected a share of int64 or float64 numbers, found {value.dtype}.")
    if not np.isfinite(value).all():
        raise WireError("Expected finite numbers in a share, found NaN or infinity.")
    if step.mechanism.event(step.query, step.cohort) is None and width == step.query.size:
        _check_bounds(step.query, value, clients)


def _check_bounds(query: Query, value: Array, clients: int) -> None:
    """An exact term stays within its bound: that of each client, or of more records than any site has."""
    for name, part in query.split(value).items():
        bound = query.blocks[name].bound
        most = bound.linf * (clients if bound.unit == "client" else _MOST_RECORDS) * (1 + 1e-9)
        if part.size and not np.abs(part).max() <= most:
            raise WireError(f"Expected entries up to {most:.6g} in the block '{name}', found larger ones.")
