"""A site: messages in, messages out, and the last word on each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from fedcalib import __version__
from fedcalib.errors import FedcalibError, InputError, PolicyError, RefusedError, WireError
from fedcalib.federation import Federation
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.randomness import Secure
from fedcalib.remote.journal import Notebook, Visit
from fedcalib.remote.policy import Policy, event_of, fitting
from fedcalib.remote.protocol import Agreed, Begin, Introduction, Question, Refusal, Refused, Relay, Share, read, write
from fedcalib.secagg import Client, Directory, MinimumTerms, SetupPlan, SigningIdentity
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.messages import MaskRequest, RosterView, Survivors, UnmaskRequest
from fedcalib.types import Array


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site with its records, its policy and its notebook.

    `load` reads the records when they are first needed; a site holds one client, a node of a simulation may hold many.
    """

    identity: SigningIdentity
    directory: Directory
    load: Callable[[], Federation]
    policy: Policy
    notebook: Notebook

    @cached_property
    def federation(self) -> Federation:
        """The site's records."""
        return self.load()

    def handle(self, action: str, text: str) -> str:
        """Answer a message. Whatever goes wrong, the server learns one word of a fixed list."""
        heard: dict[str, Any] = {"action": action}
        try:
            with self.notebook.alone():
                try:
                    reply = self._reply(action, text, heard)
                    self.notebook.note({**heard, "outcome": "answered"})
                except Exception as error:
                    word = _word(error)
                    self.notebook.note({**heard, "outcome": "refused", "word": word, "reason": _told(error)})
                    return write(Refused(word))
                return write(reply)
        except OSError:  # the log itself cannot be written, so nothing may leave
            return write(Refused("disk"))

    def _reply(self, action: str, text: str, heard: dict[str, Any]) -> object:
        steps: dict[str, Callable[[], object]] = {
            "hello": self._introduce,
            "begin": lambda: self._begin(read(text, Begin, self.policy.allow_types), heard),
            "shares": lambda: self._relay(read(text, Relay), heard, _shares),
            "ask": lambda: self._answer(read(text, Question, self.policy.allow_types), heard),
            "confirm": lambda: self._relay(read(text, Relay), heard, _confirm),
            "unmask": lambda: self._relay(read(text, Relay), heard, _unmask),
        }
        if action not in steps:
            raise Refusal("malformed", f"Expected one of {', '.join(steps)}, found another action.")
        return steps[action]()

    def _introduce(self) -> Introduction:
        return Introduction(self.identity.name, len(self.federation), self.federation.schema.classes, __version__)

    def _begin(self, begin: Begin, heard: dict[str, Any]) -> Agreed:
        outline = begin.outline
        heard.update(run=outline.run, queries=[type(query).__name__ for query in outline.queries])
        heard.update(mechanisms=sorted({type(mechanism).__name__ for mechanism in outline.mechanisms}))
        spending = self.policy.accept(outline)
        heard.update(epsilon=None if spending is None else spending.epsilon)
        self._check_records(outline)
        visit = self._visit(outline)
        if not begin.terms:
            self.notebook.save(outline.run, visit.to_json())
            return Agreed("")
        terms = SetupPlan.from_json(begin.terms)
        self._check_terms(terms, outline)
        client = self._client(visit)
        advert = client.keys(terms)
        self.notebook.save(outline.run, replace(visit, masks=client.to_json()).to_json())
        return Agreed(advert.to_json())

    def _visit(self, outline: Outline) -> Visit:
        """Recall a run that was agreed before, or start one."""
        saved = self.notebook.recall(outline.run)
        if saved is None:
            return Visit(outline)
        visit = Visit.from_json(saved)
        if write(Begin(visit.outline, "")) != write(Begin(outline, "")):
            raise Refusal("protocol", "Expected the run as it was agreed before, found its outline changed.")
        return visit

    def _check_records(self, outline: Outline) -> None:
        exact = any(
            event_of(query, mechanism, outline.cohort) is None
            for query, mechanism in zip(outline.queries, outline.mechanisms, strict=True)
        )
        if exact and len(self.federation.records) < self.policy.fewest_records:
            raise Refusal("declined", f"Expected at least {self.policy.fewest_records} records for an exact sum.")

    def _check_terms(self, terms: SetupPlan, outline: Outline) -> None:
        """The masks must promise what the noise was sized for; but in simulations, a site is one client."""
        if terms.run != outline.run:
            raise Refusal("protocol", "Expected masks for the run that is proposed, found another run's.")
        if not self.policy.simulation and terms.floor < outline.cohort.floor:
            raise Refusal("cohort", f"Expected sums over {outline.cohort.floor} sites, found terms for {terms.floor}.")

    def _client(self, visit: Visit) -> Client:
        renewed = all(mechanism.renewed for mechanism in visit.outline.mechanisms)
        least = MinimumTerms(floor=self.policy.fewest_clients, quorum=self.policy.quorum, renewed=renewed)
        if visit.masks:
            return Client.from_json(visit.masks, self.identity, self.directory, least)
        return Client(self.identity, self.directory, least)

    def _known(self, run: str) -> Visit:
        saved = self.notebook.recall(run)
        if saved is None:
            raise Refusal("protocol", "Expected a run that this site agreed to, found another.")
        return Visit.from_json(saved)

    def _relay(self, relay: Relay, heard: dict[str, Any], stage: Callable[[Client, str], str]) -> Relay:
        heard["run"] = relay.run
        visit = self._known(relay.run)
        client = self._client(visit)
        text = stage(client, relay.text)
        self.notebook.save(relay.run, replace(visit, masks=client.to_json()).to_json())
        return Relay(relay.run, text)

    def _answer(self, question: Question, heard: dict[str, Any]) -> object:
        heard.update(run=question.run, step=question.step, attempt=question.attempt)
        heard["queries"] = [type(question.query).__name__]
        visit = self._known(question.run)
        self.policy.accept_query(question.query)
        mark = visit.check(question.step, question.query)
        mechanism = visit.outline.mechanisms[question.step]
        if (mechanism.modulus is not None) != bool(question.request):
            raise Refusal("protocol", "Expected masks for exactly those mechanisms that need them, found otherwise.")
        if mechanism.modulus is None:
            return self._plain(visit, question, mark)
        return self._masked(visit, question, mark)

    def _plain(self, visit: Visit, question: Question, mark: str) -> Share:
        """Without masks the same step gets the same reply, however often it is asked; so it costs once."""
        before = visit.step(question.step)
        if before is not None:
            return read(before.reply, Share)
        self._debit(visit, question)
        share = Share(question.run, question.step, self._share(visit, question))
        self.notebook.save(question.run, visit.after(question.step, 0, mark, write(share)).to_json())
        return share

    def _masked(self, visit: Visit, question: Question, mark: str) -> Relay:
        client, request = self._client(visit), MaskRequest.from_json(question.request)
        earlier = client.recall(request)
        if earlier is not None:
            return Relay(question.run, earlier.to_json())
        self._check_slot(visit, question, request)
        self._debit(visit, question)
        words = self._share(visit, question).astype(np.uint64, copy=False)
        try:
            masked = client.mask(request, words)
        except PolicyError as error:  # an exact sum that was confirmed before
            raise Refusal("again", str(error)) from error
        after = visit.after(question.step, question.attempt, mark, "")
        self.notebook.save(question.run, replace(after, masks=client.to_json()).to_json())
        return Relay(question.run, masked.to_json())

    def _check_slot(self, visit: Visit, question: Question, request: MaskRequest) -> None:
        """The mask has to be the one of this very step and attempt."""
        slot = _slots(visit)[request.slot : request.slot + 1]
        if [(one.step, one.attempt) for one in slot] != [(question.step, question.attempt)]:
            raise Refusal("protocol", f"Expected a mask for attempt {question.attempt} at step {question.step}.")

    def _debit(self, visit: Visit, question: Question) -> None:
        """Pay for the whole run before its first answer, and for each repetition before it is given."""
        spending = self.policy.accept(visit.outline)
        if spending is None:
            return
        self.notebook.debit(question.run, spending, 0, self.policy.epsilon_a_year)
        if visit.step(question.step) is not None:
            number, more = visit.cost(spending).repeat(visit.asks(), question.step)
            self.notebook.debit(question.run, more, number, self.policy.epsilon_a_year)

    def _share(self, visit: Visit, question: Question) -> Array:
        """Work the share out, with noise that the server has no hand in."""
        federation = self._taking_part(question.members)
        return _gathered(visit.outline.mechanisms[question.step], question.query, federation)

    def _taking_part(self, members: tuple[int, ...]) -> Federation:
        if not members:
            return self.federation
        if not all(isinstance(one, int) and 0 <= one < len(self.federation) for one in members):
            raise Refusal("malformed", "Expected members among this site's clients, found others.")
        return self.federation.subset(np.array(members))


def _gathered(mechanism: Mechanism, query: Query, federation: Federation) -> Array:
    with fitting():
        return mechanism.gather(query, federation, Secure())


def _slots(visit: Visit) -> tuple[Any, ...]:
    from fedcalib.secagg.client_steps import ClientState

    session = ClientState.from_json(visit.masks).session if visit.masks else None
    return () if session is None else session.plan.slots


def _shares(client: Client, text: str) -> str:
    return client.shares(RosterView.from_json(text)).to_json()


def _confirm(client: Client, text: str) -> str:
    return client.confirm(Survivors.from_json(text)).to_json()


def _unmask(client: Client, text: str) -> str:
    return client.unmask(UnmaskRequest.from_json(text)).to_json()


def _word(error: Exception) -> str:
    """Find the one word for an error; an unknown one says nothing."""
    words: tuple[tuple[type[Exception], str], ...] = (
        (WireError, "malformed"),
        (ProtocolError, "protocol"),
        (PolicyError, "cohort"),
        (RefusedError, "declined"),
        (InputError, "declined"),
        (OSError, "disk"),
    )
    if isinstance(error, Refusal):
        return error.word
    return next((word for kind, word in words if isinstance(error, kind)), "failed")


def _told(error: Exception) -> str:
    """Say why in the site's own log; of errors that are not ours only the kind, as their text may quote records."""
    return str(error) if isinstance(error, FedcalibError | OSError) else type(error).__name__
