"""A site: it answers messages from its records, and has the last word on each of them.

`open_site` opens a site as its node configuration describes it: where its records, keys, policy and journal are.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib import __version__, files, wire
from fedcalib.errors import FedcalibError, InputError, PolicyError, RefusedError, WireError
from fedcalib.federation import Federation
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.randomness import Secure
from fedcalib.remote.journal import DiskJournal, Journal, RunState
from fedcalib.remote.policy import Policy, event_of, fitting
from fedcalib.remote.protocol import Agreed, Begin, Introduction, Question, Refusal, Refused, Relay, Share, read, write
from fedcalib.secagg import Client, Directory, MinimumTerms, SetupPlan, SigningIdentity
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.messages import MaskRequest, RosterView, Survivors, UnmaskRequest
from fedcalib.types import Array


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site with its records, its policy and its journal.

    `load` reads the records when they are first needed. A site is one client; a node of a simulation may hold several.
    """

    identity: SigningIdentity
    directory: Directory
    load: Callable[[], Federation]
    policy: Policy
    journal: Journal

    @cached_property
    def federation(self) -> Federation:
        """The site's records."""
        return self.load()

    def handle(self, action: str, text: str) -> str:
        """Answer a message. Whatever goes wrong, the server learns one word of a fixed list."""
        entry: dict[str, Any] = {"action": action}
        try:
            with self.journal.locked():
                try:
                    reply = self._reply(action, text, entry)
                    self.journal.note({**entry, "outcome": "answered"})
                except Exception as error:
                    word = _word(error)
                    self.journal.note({**entry, "outcome": "refused", "word": word, "reason": _log_text(error)})
                    return write(Refused(word))
                return write(reply)
        except OSError:  # the log itself cannot be written, so nothing may leave
            return write(Refused("disk"))

    def _reply(self, action: str, text: str, entry: dict[str, Any]) -> object:
        steps: dict[str, Callable[[], object]] = {
            "hello": self._introduce,
            "begin": lambda: self._begin(read(text, Begin, self.policy.allow_types), entry),
            "shares": lambda: self._relay(read(text, Relay), entry, _shares),
            "ask": lambda: self._answer(read(text, Question, self.policy.allow_types), entry),
            "confirm": lambda: self._relay(read(text, Relay), entry, _confirm),
            "unmask": lambda: self._relay(read(text, Relay), entry, _unmask),
        }
        if action not in steps:
            raise Refusal("malformed", f"Expected one of {', '.join(steps)}, found another action.")
        return steps[action]()

    def _introduce(self) -> Introduction:
        return Introduction(self.identity.name, len(self.federation), self.federation.schema.classes, __version__)

    def _begin(self, begin: Begin, entry: dict[str, Any]) -> Agreed:
        outline = begin.outline
        entry.update(run=outline.run, queries=[type(query).__name__ for query in outline.queries])
        entry.update(mechanisms=sorted({type(mechanism).__name__ for mechanism in outline.mechanisms}))
        spending = self.policy.accept(outline)
        entry.update(epsilon=None if spending is None else spending.epsilon)
        self._check_records(outline)
        state = self._run_state(outline)
        if not begin.terms:
            self.journal.save(outline.run, state.to_json())
            return Agreed("")
        terms = SetupPlan.from_json(begin.terms)
        self._check_terms(terms, outline)
        client = self._client(state)
        advert = client.keys(terms)
        self.journal.save(outline.run, replace(state, masks=client.to_json()).to_json())
        return Agreed(advert.to_json())

    def _run_state(self, outline: Outline) -> RunState:
        """The saved state of a run that was agreed before, or a new one."""
        saved = self.journal.recall(outline.run)
        if saved is None:
            return RunState(outline)
        state = RunState.from_json(saved)
        if write(Begin(state.outline, "")) != write(Begin(outline, "")):
            raise Refusal("protocol", "Expected the run as it was agreed before, found its outline changed.")
        return state

    def _check_records(self, outline: Outline) -> None:
        exact = any(
            event_of(query, mechanism, outline.cohort) is None
            for query, mechanism in zip(outline.queries, outline.mechanisms, strict=True)
        )
        if exact and len(self.federation.records) < self.policy.fewest_records:
            raise Refusal("declined", f"Expected at least {self.policy.fewest_records} records for an exact sum.")

    def _check_terms(self, terms: SetupPlan, outline: Outline) -> None:
        """Refuse masks for fewer sites than the noise was sized for; outside simulations a site is one client."""
        if terms.run != outline.run:
            raise Refusal("protocol", "Expected masks for the run that is proposed, found those of another run.")
        if not self.policy.simulation and terms.floor < outline.cohort.floor:
            raise Refusal("cohort", f"Expected sums over {outline.cohort.floor} sites, found a plan for {terms.floor}.")

    def _client(self, state: RunState) -> Client:
        renewed = all(mechanism.renewed for mechanism in state.outline.mechanisms)
        least = MinimumTerms(floor=self.policy.fewest_clients, quorum=self.policy.quorum, renewed=renewed)
        if state.masks:
            return Client.from_json(state.masks, self.identity, self.directory, least)
        return Client(self.identity, self.directory, least)

    def _known(self, run: str) -> RunState:
        saved = self.journal.recall(run)
        if saved is None:
            raise Refusal("protocol", "Expected a run that this site agreed to, found another.")
        return RunState.from_json(saved)

    def _relay(self, relay: Relay, entry: dict[str, Any], stage: Callable[[Client, str], str]) -> Relay:
        entry["run"] = relay.run
        state = self._known(relay.run)
        client = self._client(state)
        text = stage(client, relay.text)
        self.journal.save(relay.run, replace(state, masks=client.to_json()).to_json())
        return Relay(relay.run, text)

    def _answer(self, question: Question, entry: dict[str, Any]) -> object:
        entry.update(run=question.run, step=question.step, attempt=question.attempt)
        entry["queries"] = [type(question.query).__name__]
        state = self._known(question.run)
        self.policy.accept_query(question.query)
        fingerprint = state.check(question.step, question.query)
        mechanism = state.outline.mechanisms[question.step]
        if (mechanism.modulus is not None) != bool(question.request):
            raise Refusal("protocol", "Expected masks for exactly those mechanisms that need them, found otherwise.")
        if mechanism.modulus is None:
            return self._plain(state, question, fingerprint)
        return self._masked(state, question, fingerprint)

    def _plain(self, state: RunState, question: Question, fingerprint: str) -> Share:
        """Without masks a step that is sent again gets the saved reply, so it costs once."""
        before = state.step(question.step)
        if before is not None:
            return read(before.reply, Share)
        self._debit(state, question)
        share = Share(question.run, question.step, self._share(state, question))
        self.journal.save(question.run, state.after(question.step, 0, fingerprint, write(share)).to_json())
        return share

    def _masked(self, state: RunState, question: Question, fingerprint: str) -> Relay:
        client, request = self._client(state), MaskRequest.from_json(question.request)
        earlier = client.recall(request)
        if earlier is not None:
            return Relay(question.run, earlier.to_json())
        self._check_slot(state, question, request)
        self._debit(state, question)
        words = self._share(state, question).astype(np.uint64, copy=False)
        try:
            masked = client.mask(request, words)
        except PolicyError as error:  # an exact sum that was confirmed before
            raise Refusal("again", str(error)) from error
        after = state.after(question.step, question.attempt, fingerprint, "")
        self.journal.save(question.run, replace(after, masks=client.to_json()).to_json())
        return Relay(question.run, masked.to_json())

    def _check_slot(self, state: RunState, question: Question, request: MaskRequest) -> None:
        """Refuse a mask of another step or attempt."""
        slot = _slots(state)[request.slot : request.slot + 1]
        if [(one.step, one.attempt) for one in slot] != [(question.step, question.attempt)]:
            raise Refusal("protocol", f"Expected a mask for attempt {question.attempt} at step {question.step}.")

    def _debit(self, state: RunState, question: Question) -> None:
        """Debit the whole run before its first answer, and each repeat before it is answered."""
        spending = self.policy.accept(state.outline)
        if spending is None:
            return
        self.journal.debit(question.run, spending, 0, self.policy.epsilon_a_year)
        if state.step(question.step) is not None:
            number, more = state.cost(spending).repeat(state.attempt_counts(), question.step)
            self.journal.debit(question.run, more, number, self.policy.epsilon_a_year)

    def _share(self, state: RunState, question: Question) -> Array:
        """This site's share, with noise that the server cannot influence."""
        federation = self._members(question.members)
        return _gathered(state.outline.mechanisms[question.step], question.query, federation)

    def _members(self, members: tuple[int, ...]) -> Federation:
        if not members:
            return self.federation
        if not all(isinstance(one, int) and 0 <= one < len(self.federation) for one in members):
            raise Refusal("malformed", "Expected members among this site's clients, found others.")
        return self.federation.subset(np.array(members))


def _gathered(mechanism: Mechanism, query: Query, federation: Federation) -> Array:
    with fitting():
        return mechanism.gather(query, federation, Secure())


def _slots(state: RunState) -> tuple[Any, ...]:
    from fedcalib.secagg.client_steps import ClientState

    session = ClientState.from_json(state.masks).session if state.masks else None
    return () if session is None else session.plan.slots


def _shares(client: Client, text: str) -> str:
    return client.shares(RosterView.from_json(text)).to_json()


def _confirm(client: Client, text: str) -> str:
    return client.confirm(Survivors.from_json(text)).to_json()


def _unmask(client: Client, text: str) -> str:
    return client.unmask(UnmaskRequest.from_json(text)).to_json()


def _word(error: Exception) -> str:
    """The word of `REASONS` for an error; an unexpected error reveals nothing but that it failed."""
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


def _log_text(error: Exception) -> str:
    """The reason for the site's own log; of foreign errors only the type, since their text may quote records."""
    return str(error) if isinstance(error, FedcalibError | OSError) else type(error).__name__


_COLUMNS = ("score", "logits", "probs", "label", "unit")


def open_site(places: Mapping[str, Any], load: Callable[[], Federation], policy: Policy) -> Site:
    """The site whose files are at the paths `identity`, `directory` and `state` of a configuration."""
    identity = read_identity(Path(_given(places, "identity")))
    directory = read_directory(Path(_given(places, "directory")))
    return Site(identity, directory, load, policy, DiskJournal(Path(_given(places, "state"))))


def records_of(config: Mapping[str, Any]) -> Federation:
    """The records of a site, from the file `data-path`; all of them belong to one client, the site."""
    from fedcalib.data import Columns, read_checked

    columns = Columns(**{name: str(config[name]) for name in _COLUMNS if name in config})
    reading = read_checked([Path(_given(config, "data-path"))], columns, seed=0)
    return Federation.of([reading.federation.records])


def policy_of(config: Mapping[str, Any]) -> Policy:
    """The policy of a site, from the file `policy`; without one, the cautious default."""
    return Policy.read(str(config["policy"])) if "policy" in config else Policy()


def write_identity(path: Path, identity: SigningIdentity) -> None:
    """Write an identity to a file that only its owner can read."""
    text = json.dumps({"name": identity.name, "private": base64.b64encode(identity.private).decode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, f"{text}\n".encode(), private=True)


def read_identity(path: Path) -> SigningIdentity:
    try:
        data = wire.parse(_read(path))
        return SigningIdentity(str(data["name"]), base64.b64decode(data["private"], validate=True))
    except (WireError, KeyError, TypeError, binascii.Error) as error:
        raise InputError(
            f"Expected a site's identity in {path}, found something else; see `fedcalib certs`."
        ) from error


def read_directory(path: Path) -> Directory:
    """The identity keys of all sites."""
    return Directory.from_json(_read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Expected to read {path}, found: {getattr(error, 'strerror', None) or error}.") from error


def _given(config: Mapping[str, Any], name: str) -> str:
    if not isinstance(config.get(name), str):
        raise InputError(f"Expected '{name}' in the node's configuration, found none; see `fedcalib site start`.")
    return str(config[name])
