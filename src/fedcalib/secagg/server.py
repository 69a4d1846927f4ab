"""The server of secure aggregation: the setup, and the rounds that it prepares."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, final

from fedcalib.errors import InputError, TooFewClients, WireError
from fedcalib.secagg.client_steps import check_advert
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.messages import BOX_SIZE, Advert, MaskRequest, RosterView, SealedShares
from fedcalib.secagg.roster import Roster
from fedcalib.secagg.round import Round, RoundState
from fedcalib.secagg.setup import Directory, SetupPlan, Written


@final
@dataclass(frozen=True)
class ServerState(Written):
    """A server as it is saved; the field names are the saved format."""

    kind: ClassVar[str] = "secagg.server_state"

    plan: SetupPlan
    adverts: tuple[Advert, ...]
    enrolled: bool
    sealed: tuple[SealedShares, ...]
    shared: bool
    rounds: tuple[RoundState, ...]


@final
class Server:
    """The server's side of one setup.

    Send `plan` to every site, pass each reply to the `accept` method of its stage, and close the stage when no more
    replies are awaited; closing returns the messages of the next stage, by site. A reply that raises is as good as
    none: count its site as dropped. Closing raises TooFewClients below the threshold and may be called again later.
    """

    def __init__(self, plan: SetupPlan, directory: Directory) -> None:
        self.plan = plan
        self._directory = directory
        self._adverts: dict[str, Advert] = {}
        self._roster: Roster | None = None
        self._sealed: dict[int, SealedShares] = {}
        self._shared = False
        self._rounds: dict[int, Round] = {}

    def accept_keys(self, advert: Advert) -> None:
        """Stage 1: keep a site's signed keys."""
        if self._roster is not None:
            raise ProtocolError(f"Expected keys before the roster was fixed, found those of {advert.name!r} after.")
        if advert.name in self._adverts:
            raise ProtocolError(f"Expected one set of keys from site {advert.name!r}, found a second.")
        check_advert(self.plan, advert, self._directory)
        self._adverts[advert.name] = advert

    def close_keys(self) -> dict[str, RosterView]:
        """Stage 2: fix the roster, and show each site its neighbours' keys."""
        if len(self._adverts) < self.plan.floor:
            missing = ", ".join(repr(name) for name in sorted(self._directory.keys) if name not in self._adverts)
            raise TooFewClients(
                f"Expected keys from at least {self.plan.floor} sites, found {len(self._adverts)}; missing: {missing}. "
                "Wait for more sites, then close the stage of keys again."
            )
        if self._roster is None:
            self._roster = Roster(self.plan, self._adverts.values())
        return {name: self._roster.view(place) for place, name in self._roster.names.items()}

    def accept_shares(self, sealed: SealedShares) -> None:
        """Stage 2: keep the shares that a site sealed for its neighbours."""
        roster = self._enrolled()
        if sealed.roster != roster.hash or self._shared:
            raise ProtocolError(f"Expected shares for the roster that is open, found some from place {sealed.place}.")
        if sealed.place in self._sealed:
            raise ProtocolError(f"Expected one set of shares from site {roster.names[sealed.place]!r}, found a second.")
        roster.verify(sealed.place, sealed.statement, sealed.signature, self._directory)
        size, others = BOX_SIZE * len(self.plan.slots), len(roster.neighbourhoods[sealed.place]) - 1
        if len(sealed.boxes) != others or any(len(box) != size for box in sealed.boxes):
            raise ProtocolError(
                f"Expected a box of {size} bytes for each neighbour of site {roster.names[sealed.place]!r}, "
                "found another number or size."
            )
        self._sealed[sealed.place] = sealed

    def close_shares(self) -> tuple[str, ...]:
        """Stage 2: fix who may take part in the sums; returns their names."""
        roster = self._enrolled()
        roster.require(self._sealed.keys(), self._sealed.keys(), "shares")
        self._shared = True
        return tuple(roster.names[place] for place in sorted(self._sealed))

    def begin(self, step: int, attempt: int = 0, absent: Collection[str] = ()) -> dict[str, MaskRequest]:
        """Stage 3: open a round and request its members' vectors; `absent` leaves out sites known to be gone."""
        roster, slot = self._enrolled(), self._slot(step, attempt)
        if not self._shared:
            raise ProtocolError("Expected the stage of shares to be closed before a sum; close it first.")
        if slot not in self._rounds:
            members = frozenset(place for place in self._sealed if roster.names[place] not in absent)
            roster.require(members, members, "masked vectors")
            self._rounds[slot] = Round(roster, self._directory, slot, members)
        return self._rounds[slot].requests(self._sealed)

    def round(self, step: int, attempt: int = 0) -> Round:
        slot = self._slot(step, attempt)
        if slot not in self._rounds:
            raise ProtocolError(f"Expected a round for step {step} that has begun, found none; begin it first.")
        return self._rounds[slot]

    def _enrolled(self) -> Roster:
        if self._roster is None:
            raise ProtocolError("Expected the stage of keys to be closed first; close it.")
        return self._roster

    def _slot(self, step: int, attempt: int) -> int:
        for at, slot in enumerate(self.plan.slots):
            if (slot.step, slot.attempt) == (step, attempt):
                return at
        raise InputError(f"Expected a planned step and attempt, found step {step}, attempt {attempt}; plan it first.")

    def to_json(self) -> str:
        """Write the server's state as JSON text; it holds no secret that the server did not receive."""
        rounds = tuple(self._rounds[slot].state() for slot in sorted(self._rounds))
        state = ServerState(
            plan=self.plan,
            adverts=tuple(self._adverts[name] for name in sorted(self._adverts)),
            enrolled=self._roster is not None,
            sealed=tuple(self._sealed[place] for place in sorted(self._sealed)),
            shared=self._shared,
            rounds=rounds,
        )
        return state.to_json()

    @classmethod
    def from_json(cls, text: str | bytes, directory: Directory) -> Server:
        """Continue from a saved state."""
        state = ServerState.from_json(text)
        server = cls(state.plan, directory)
        server._adverts = {advert.name: advert for advert in state.adverts}
        server._sealed = {sealed.place: sealed for sealed in state.sealed}
        server._shared = state.shared
        if state.enrolled:
            if not state.plan.floor <= len(server._adverts) == len(state.adverts):
                raise WireError(
                    f"Expected the keys of at least {state.plan.floor} different sites in a roster that was closed, "
                    f"found {len(server._adverts)} names in {len(state.adverts)}; the saved state is damaged."
                )
            server._roster = Roster(state.plan, state.adverts)
        for saved in state.rounds:
            if saved.slot >= len(state.plan.slots):
                raise WireError(f"Expected saved rounds of the plan's slots, found slot {saved.slot}.")
            server._rounds[saved.slot] = Round.restore(server._enrolled(), directory, saved)
        return server
