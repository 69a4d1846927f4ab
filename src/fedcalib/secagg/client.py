"""The client of secure aggregation: one method per stage, a message in, a message out."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from fedcalib.errors import InputError, WireError
from fedcalib.secagg import client_steps as steps
from fedcalib.secagg import messages
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.roster import binding_of, unpack
from fedcalib.secagg.setup import Directory, MinimumTerms, SetupPlan, SigningIdentity
from fedcalib.types import Words


@final
class Client:
    """A site's side of the protocol for one run.

    Every method is idempotent: the same request gets the same reply, another one for the same slot is refused. Write
    `to_json` to disk before a reply leaves, so that a restart cannot answer the same slot a second time; the text
    holds secrets.
    """

    def __init__(self, identity: SigningIdentity, directory: Directory, terms: MinimumTerms | None = None) -> None:
        if directory.keys.get(identity.name) != identity.public:
            raise InputError(
                f"Expected the directory to hold the identity key of site {identity.name!r}, found another or none; "
                "use the same directory at every site."
            )
        self._identity = identity
        self._directory = directory
        self._terms = terms or MinimumTerms()
        self._state = steps.ClientState(identity.name)

    def to_json(self) -> str:
        """Write the client's state as JSON text; it holds secrets."""
        return self._state.to_json()

    @classmethod
    def from_json(
        cls, text: str | bytes, identity: SigningIdentity, directory: Directory, terms: MinimumTerms | None = None
    ) -> Client:
        """Continue from a saved state."""
        client = cls(identity, directory, terms)
        client._state = steps.ClientState.from_json(text)
        if client._state.name != identity.name:
            raise WireError(f"Expected the state of site {identity.name!r}, found that of {client._state.name!r}.")
        return client

    def keys(self, plan: SetupPlan) -> messages.Advert:
        """Stage 1: draw fresh keys for a plan and sign their public halves."""
        session = self._state.session
        if session is not None and session.plan == plan:
            return session.advert
        if session is not None and (session.plan.run != plan.run or session.plan.setup >= plan.setup):
            raise ProtocolError(
                f"Expected a later setup of run {session.plan.run!r} than {session.plan.setup}, found setup "
                f"{plan.setup} of run {plan.run!r}; count setups up, and use one client per run."
            )
        self._terms.accept(plan)
        session = steps.start_setup(plan, self._identity)
        self._state = replace(self._state, session=session)
        return session.advert

    def shares(self, view: messages.RosterView) -> messages.SealedShares:
        """Stage 2: check the neighbours' keys and share this client's secrets among them."""
        session = self._session()
        roster = steps.hash_of(session.plan, view)
        if session.circle is not None and session.sealed is not None:
            _check_same(session.circle.roster, roster, "roster")
            return session.sealed
        self._terms.accept_roster(session.plan, view.size)
        steps.check_view(session.plan, view, roster, session.advert, self._directory)
        session, sealed = steps.share(session, view, roster, self._identity)
        self._state = replace(self._state, session=session)
        return sealed

    def recall(self, request: messages.MaskRequest) -> messages.MaskedVector | None:
        """The reply that was already sent to a request; None if its vector has yet to be computed."""
        session, circle = self._shared()
        _check_same(circle.roster, request.roster, "roster")
        progress = _progress(session, request.slot)
        if progress is None:
            return None
        _check_same(progress.binding, binding_of(session.plan, request.roster, request.slot, request.members), "roster")
        if progress.masked is None:
            raise ProtocolError("Expected no more requests for a vector whose survivors are confirmed, found one.")
        return progress.masked

    def mask(self, request: messages.MaskRequest, words: Words) -> messages.MaskedVector:
        """Stage 3: mask a vector for one slot; a later vector for the same request is ignored."""
        earlier = self.recall(request)
        if earlier is not None:
            return earlier
        session, circle = self._shared()
        slot = session.plan.slots[request.slot]
        secret = session.secrets[request.slot]
        steps.check_words(words, slot)
        steps.check_turn(self._state.history, slot, self._terms.renewed)
        present = unpack(request.members, circle.size)
        steps.check_present(session.plan, circle, self._identity.name, present, "masked vectors")
        if secret is None:
            raise ProtocolError(f"Expected unused masks for step {slot.step}, found them used; start a new setup.")
        shares = steps.open_boxes(circle, request, present)
        binding = binding_of(session.plan, request.roster, request.slot, request.members)
        vector = steps.mask(words, secret, circle, request.slot, present, binding=binding)
        masked = messages.MaskedVector(binding, request.slot, circle.place, vector, steps.UNSIGNED)
        masked = replace(masked, signature=self._identity.sign(masked.statement))
        self._advance(request.slot, steps.SlotProgress(binding, request.members, shares, masked), confirmed=False)
        return masked

    def confirm(self, message: messages.Survivors) -> messages.Confirmation:
        """Stage 4: sign the survivor set of a slot; any other set for the same slot is refused."""
        session, circle, progress = self._masked(message.slot, message.binding)
        if progress.confirmation is not None:
            _check_same(progress.survivors, message.survivors, "survivor set")
            return progress.confirmation
        steps.check_latest(self._state.history, session.plan.slots[message.slot])
        alive = unpack(message.survivors, circle.size)
        if not alive <= unpack(progress.members, circle.size):
            raise ProtocolError("Expected survivors among the members of the sum, found others.")
        steps.check_present(session.plan, circle, self._identity.name, alive, "unmasking")
        signature = self._identity.sign(messages.survivors_statement(message.binding, message.survivors))
        confirmation = messages.Confirmation(message.binding, message.slot, circle.place, signature)
        # The server has the masked vector now, so the copy for retries can go.
        progress = replace(progress, masked=None, survivors=message.survivors, confirmation=confirmation)
        self._advance(message.slot, progress, confirmed=True)
        return confirmation

    def unmask(self, request: messages.UnmaskRequest) -> messages.Unmasking:
        """Stage 4: reveal one share for each neighbour, once enough of them confirmed the same survivors."""
        session, circle, progress = self._masked(request.slot, request.binding)
        if progress.survivors is None:
            raise ProtocolError("Expected a confirmed survivor set before unmasking, found none; send it first.")
        if progress.unmasking is not None:
            return progress.unmasking
        steps.check_latest(self._state.history, session.plan.slots[request.slot])
        alive = unpack(progress.survivors, circle.size)
        steps.check_confirmations(session.plan, circle, request, progress.survivors, self._directory)
        seeds, keys = steps.reveal(circle, request.slot, progress, alive)
        unmasking = messages.Unmasking(request.binding, request.slot, circle.place, seeds, keys, steps.UNSIGNED)
        unmasking = replace(unmasking, signature=self._identity.sign(unmasking.statement))
        self._advance(request.slot, replace(progress, held=(), unmasking=unmasking), confirmed=True)
        return unmasking

    def _advance(self, at: int, progress: steps.SlotProgress, confirmed: bool) -> None:
        """Save the progress of a slot; its masks are used, so its secrets are deleted."""
        session = self._session()
        session = replace(
            session,
            progress=(*session.progress[:at], progress, *session.progress[at + 1 :]),
            secrets=(*session.secrets[:at], None, *session.secrets[at + 1 :]),
        )
        history = steps.record(self._state.history, session.plan.slots[at], confirmed)
        self._state = replace(self._state, session=session, history=history)

    def _session(self) -> steps.SetupState:
        if self._state.session is None:
            raise ProtocolError("Expected a plan first, found a later message; start with the stage of keys.")
        return self._state.session

    def _shared(self) -> tuple[steps.SetupState, steps.Neighbourhood]:
        session = self._session()
        if session.circle is None:
            raise ProtocolError("Expected a roster first, found a later message; go through the stage of shares.")
        return session, session.circle

    def _masked(self, slot: int, binding: bytes) -> tuple[steps.SetupState, steps.Neighbourhood, steps.SlotProgress]:
        session, circle = self._shared()
        progress = _progress(session, slot)
        if progress is None:
            raise ProtocolError("Expected a masked vector to have left first, found a request to unmask it.")
        _check_same(progress.binding, binding, "roster")
        return session, circle, progress


def _progress(session: steps.SetupState, slot: int) -> steps.SlotProgress | None:
    if slot >= len(session.plan.slots):
        raise ProtocolError(f"Expected one of the plan's {len(session.plan.slots)} slots, found slot {slot}.")
    return session.progress[slot]


def _check_same(before: bytes | None, now: bytes, what: str) -> None:
    if before != now:
        raise ProtocolError(
            f"Expected the {what} that this client already answered for, found another; it answers for one only. "
            "Abort the step and retry it as a new attempt, with fresh masks and fresh noise."
        )
