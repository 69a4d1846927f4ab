"""A site: it answers messages from its records, and has the last word on each of them.

`open_site` opens a site as its node configuration describes it: where its records, keys, policy and journal are. It
reads and checks the records before the first message; a site that cannot read them does not start.

Under a privacy model with an epsilon, what a site replies never depends on its records except through the noisy answer
itself: refusals come before the records are looked at, and an answer that fails is replaced by that of an empty site.
"""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast, final

import numpy as np

from fedcalib import __version__, files, wire
from fedcalib.accounting.spending import Spending
from fedcalib.data import Columns, Reading, Table
from fedcalib.data.databases import is_database, tables_at
from fedcalib.data.reading import Rejected, read_tables
from fedcalib.data.streaming import RecordStream
from fedcalib.errors import FedcalibError, InputError, LedgerError, PolicyError, RefusedError, WireError
from fedcalib.federation import Federation
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.randomness import Secure
from fedcalib.remote.journal import DiskJournal, Journal, PinnedSites, RunState
from fedcalib.remote.policy import Policy, derived, event_of, fitting, server_reads
from fedcalib.remote.protocol import (
    PROTOCOL,
    Agreed,
    Begin,
    Greeting,
    Introduction,
    Question,
    Refusal,
    Refused,
    Relay,
    Share,
    read,
    write,
)
from fedcalib.remote.streaming import StreamedFederation
from fedcalib.secagg import Client, Directory, MinimumTerms, SetupPlan, SigningIdentity
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.messages import MaskRequest, RosterView, Survivors, UnmaskRequest
from fedcalib.secagg.roster import unpack
from fedcalib.types import Array


@final
@dataclass(frozen=True, eq=False)
class Site:
    """A site with its records, its policy and its journal: one client, except for nodes of a simulation.

    `left_out` is the largest fraction of a file's rows that could not be used.
    """

    identity: SigningIdentity
    directory: Directory
    federation: Federation | StreamedFederation
    policy: Policy
    journal: Journal
    left_out: float = 0.0

    def handle(self, action: str, text: str) -> str:
        """Answer a message. Whatever goes wrong, the server learns one word of a fixed list."""
        entry: dict[str, Any] = {"action": action}
        try:
            with self.journal.locked():
                try:
                    reply = self._reply(action, text, entry)
                    self.journal.note({**entry, "outcome": "answered"})
                except Exception as error:
                    word = self.policy.told_word(_word(error))
                    self.journal.note({**entry, "outcome": "refused", "word": word, "reason": logged_reason(error)})
                    return write(Refused(word))
                return write(reply)
        except OSError:  # the log itself cannot be written, so nothing may leave
            return write(Refused("disk"))

    def _reply(self, action: str, text: str, entry: dict[str, Any]) -> object:
        steps: dict[str, Callable[[], object]] = {
            "hello": lambda: self._introduce(text, entry),
            "begin": lambda: self._begin(read(text, Begin, self.policy.allow_types), entry),
            "shares": lambda: self._relay(read(text, Relay), entry, _shares),
            "ask": lambda: self._answer(read(text, Question, self.policy.allow_types), entry),
            "confirm": lambda: self._relay(read(text, Relay), entry, self._confirm),
            "unmask": lambda: self._relay(read(text, Relay), entry, _unmask),
        }
        if action not in steps:
            raise Refusal("malformed", f"Expected one of {', '.join(steps)}, found another action.")
        return steps[action]()

    def _introduce(self, text: str, entry: dict[str, Any]) -> Introduction:
        """Who this site is; where a run is proposed, only if it could take part in it, which costs nothing to ask."""
        classes, keys = self.federation.schema.classes, ""
        greeting = read(text, Greeting, self.policy.allow_types) if text else Greeting(PROTOCOL, "")
        if greeting.protocol != PROTOCOL:
            entry["server"] = f"protocol {greeting.protocol}, fedcalib {greeting.version}"
        elif greeting.begin is not None and greeting.classes == classes:
            keys = self._keys_or_consent(greeting.begin, entry)
        versions = (__version__, PROTOCOL, round(time.time()))
        told = (self.policy.told_left(self.journal.spent_in_a_year), self._told_left_out(greeting))
        return Introduction(self.identity.name, len(self.federation), classes, *versions, keys, *told)

    def _told_left_out(self, greeting: Greeting) -> int | None:
        """Whole percents of rows that were left out: before exact sums only, since it depends on records."""
        if not self.policy.tell_left_out or greeting.protocol != PROTOCOL or greeting.begin is None:
            return None
        return int(100 * self.left_out) if self.policy.accept(greeting.begin.outline) is None else None

    def _keys_or_consent(self, begin: Begin, entry: dict[str, Any]) -> str:
        """The keys for a run that this site could take part in; empty where none are asked for.

        Empty as well where the plan is not the next one of the run: a server that has lost its state learns that this
        site could take part, and goes on with `begin`.
        """
        state = self._consider(begin.outline, entry)
        if not begin.terms:
            return ""
        try:
            return self._keys(begin, state)
        except ProtocolError as error:
            entry["reason"] = logged_reason(error)
            return ""

    def _consider(self, outline: Outline, entry: dict[str, Any]) -> RunState:
        """The state of a run that this site can take part in: its policy, budget, disk and records allow it."""
        entry.update(run=outline.run, queries=[type(query).__name__ for query in outline.queries])
        entry.update(privacy=type(outline.privacy).__name__)
        with fitting():
            spending = self.policy.accept(outline)
            for query, mechanism in zip(outline.queries, outline.mechanisms, strict=True):
                self._rehearse(query, mechanism, outline)
        entry.update(epsilon=None if spending is None else spending.epsilon)
        self._check_records(spending)
        limits = (self.policy.epsilon_a_year, self.policy.exact_runs_per_year)
        self.journal.check_ready(outline.run, spending, *limits)
        return self._run_state(outline)

    def _begin(self, begin: Begin, entry: dict[str, Any]) -> Agreed:
        state = self._consider(begin.outline, entry)
        if begin.terms:
            return Agreed(self._keys(begin, state))
        self.journal.save(begin.outline.run, state.to_json())
        return Agreed("")

    def _keys(self, begin: Begin, state: RunState) -> str:
        """Fresh keys for a plan, or those that were drawn for it before; they are saved before they leave."""
        terms = SetupPlan.from_json(begin.terms)
        self._check_terms(terms, begin.outline)
        client = self._client(state)
        advert = client.keys(terms)
        self.journal.save(begin.outline.run, replace(state, masks=client.to_json()).to_json())
        return advert.to_json()

    def _rehearse(self, query: Query, mechanism: Mechanism, outline: Outline) -> None:
        """Refuse what takes too much work, and what not even an empty site could answer; no record is looked at."""
        classes = self.federation.schema.classes
        self.policy.accept_work(query, mechanism, classes, outline.cohort.floor)
        for part in (query, query.sufficient):
            if part.total(self._empty, Secure()).shape != (part.size,):
                raise Refusal("query", f"Expected {type(part).__name__} to fit these records, found another size.")
            with suppress(RefusedError):  # about whole clients
                part.rows(self._empty.records)  # a sum over nobody does not look for the columns it needs
        if isinstance(self.federation, StreamedFederation):
            self.federation.rehearse(mechanism, query, Secure())

    @cached_property
    def _empty(self) -> Federation:
        """This site without any of its records: the same columns and clients."""
        return self.federation.without_records()

    def _run_state(self, outline: Outline) -> RunState:
        """The saved state of a run that was agreed before, or a new one."""
        saved = self.journal.recall(outline.run)
        if saved is None:
            return RunState(outline, data=self.fingerprint)
        state = RunState.from_json(saved)
        if write(Begin(state.outline, "")) != write(Begin(outline, "")):
            raise Refusal("protocol", "Expected the run as it was agreed before, found its outline changed.")
        if not state.answered:
            return replace(state, data=self.fingerprint)
        self._check_data(state)
        return state

    def _check_data(self, state: RunState) -> None:
        """Refuse the rest of a run whose records were replaced; a run that was saved without their hash goes on."""
        if state.data and state.data != self.fingerprint:
            raise Refusal(
                "data",
                f"Expected the records with which run {state.outline.run} began ({state.data[:16]}), found others "
                f"({self.fingerprint[:16]}): the file was changed in the middle of the run.",
            )

    def _check_records(self, spending: Spending | None) -> None:
        """Refuse an exact sum of few records; with an epsilon their number may not decide anything."""
        if spending is None and len(self.federation.records) < self.policy.fewest_records:
            raise Refusal("declined", f"Expected at least {self.policy.fewest_records} records for an exact sum.")

    def _check_terms(self, terms: SetupPlan, outline: Outline) -> None:
        """Refuse masks for fewer sites than the noise was sized for; outside simulations a site is one client."""
        if terms.run != outline.run:
            raise Refusal("protocol", "Expected masks for the run that is proposed, found those of another run.")
        if not self.policy.simulation and terms.floor < outline.cohort.floor:
            raise Refusal("cohort", f"Expected sums over {outline.cohort.floor} sites, found a plan for {terms.floor}.")
        widths = {step: one.width(outline.queries[step]) for step, one in enumerate(outline.mechanisms)}
        if not all(widths.get(slot.step) == slot.length for slot in terms.slots):
            raise Refusal("protocol", "Expected masks as long as the answers of the run, found others.")

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

    def _relay(self, relay: Relay, entry: dict[str, Any], stage: Callable[[RunState, Client, str], str]) -> Relay:
        entry["run"] = relay.run
        state = self._known(relay.run)
        client = self._client(state)
        text = stage(state, client, relay.text)
        self.journal.save(relay.run, replace(state, masks=client.to_json()).to_json())
        return Relay(relay.run, text)

    def _confirm(self, state: RunState, client: Client, text: str) -> str:
        """Sign the survivors of a sum; where the server will read it exactly, only if no difference gives sites away.

        What counts is who is in the sum, not who was in the roster: a server can claim that a site dropped out.
        """
        message = Survivors.from_json(text)
        signed = client.confirm(message).to_json()
        outline = state.outline
        pairs = zip(outline.queries, outline.mechanisms, strict=True)
        exact = any(server_reads(one, event_of(query, one, outline.cohort)) for query, one in pairs)
        if exact and not self.policy.simulation:
            self.journal.pin_roster(self.fingerprint, _roster(client, message), self.policy.fewest_clients)
        return signed

    @property
    def fingerprint(self) -> str:
        """A hash of this site's records, by which rosters are pinned and a change in the middle of a run is noticed."""
        return self.federation.fingerprint if isinstance(self.federation, StreamedFederation) else self._hash

    @cached_property
    def _hash(self) -> str:
        records = cast(Federation, self.federation).records
        columns = (records.given, records.labels, *(records.extra[name] for name in sorted(records.extra)))
        digest = sha256()
        for column in columns:
            digest.update(f"{column.dtype.str} {column.shape}".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def _answer(self, question: Question, entry: dict[str, Any]) -> object:
        entry.update(run=question.run, step=question.step, attempt=question.attempt)
        entry["queries"] = [type(question.query).__name__]
        state = self._known(question.run)
        with fitting():
            self.policy.accept_query(question.query)
            fingerprint = state.check(question.step, question.query)
            mechanism = derived(state.outline)[question.step]
            self._rehearse(question.query, mechanism, state.outline)
        if (mechanism.modulus is not None) != bool(question.request):
            raise Refusal("protocol", "Expected masks for exactly those mechanisms that need them, found otherwise.")
        if mechanism.modulus is None:
            return self._plain(state, question, fingerprint, entry)
        return self._masked(state, question, fingerprint, entry)

    def _plain(self, state: RunState, question: Question, fingerprint: str, entry: dict[str, Any]) -> Share:
        """Without masks a step that is sent again gets the saved reply, so it costs once."""
        before = state.step(question.step)
        if before is not None:
            return read(before.reply, Share)
        self._check_data(state)
        members = self._members(question.members)
        self._debit(state, question)
        share = Share(question.run, question.step, self._share(state, question, members, entry))
        self._check_data(state)  # records that are read in batches may have changed since
        self.journal.save(question.run, state.after(question.step, 0, fingerprint, write(share)).to_json())
        return share

    def _masked(self, state: RunState, question: Question, fingerprint: str, entry: dict[str, Any]) -> Relay:
        client, request = self._client(state), MaskRequest.from_json(question.request)
        earlier = client.recall(request)
        if earlier is not None:
            return Relay(question.run, earlier.to_json())
        self._check_slot(state, question, request)
        self._check_data(state)
        members = self._members(question.members)
        self._debit(state, question)
        words = self._share(state, question, members, entry).astype(np.uint64, copy=False)
        self._check_data(state)
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
            self.journal.count_exact(question.run, self.policy.exact_runs_per_year)
            return
        self.journal.debit(question.run, spending, 0, self.policy.epsilon_a_year)
        if state.step(question.step) is not None:
            number, more = state.cost(spending).repeat(state.attempt_counts(), question.step)
            self.journal.debit(question.run, more, number, self.policy.epsilon_a_year)

    def _share(
        self, state: RunState, question: Question, members: Federation | StreamedFederation, entry: dict[str, Any]
    ) -> Array:
        """This site's share, with noise that the server cannot influence; where it fails, that of an empty site."""
        mechanism, query = state.outline.mechanisms[question.step], question.query
        try:
            return _gathered(mechanism, query, members)
        except Exception as error:
            if event_of(query, mechanism, state.outline.cohort) is None:
                raise
            entry.update(empty=True, reason=logged_reason(error))
            return _gathered(mechanism, query, members.without_records())

    def _members(self, members: tuple[int, ...]) -> Federation | StreamedFederation:
        if not members:
            return self.federation
        if not all(isinstance(one, int) and 0 <= one < len(self.federation) for one in members):
            raise Refusal("malformed", "Expected members among this site's clients, found others.")
        return self.federation.subset(np.array(members))


def _gathered(mechanism: Mechanism, query: Query, federation: Federation | StreamedFederation) -> Array:
    with fitting():
        if isinstance(federation, StreamedFederation):
            share = federation.gather(mechanism, query, Secure())
        else:
            share = mechanism.gather(query, federation, Secure())
        if share.shape != (mechanism.width(query),):
            raise Refusal("query", f"Expected {mechanism.width(query)} numbers in a share, found {share.shape}.")
        return share


def _slots(state: RunState) -> tuple[Any, ...]:
    from fedcalib.secagg.client_steps import ClientState

    session = ClientState.from_json(state.masks).session if state.masks else None
    return () if session is None else session.plan.slots


def _roster(client: Client, message: Survivors) -> PinnedSites:
    """The sites whose vectors are in a sum that the client has confirmed."""
    from fedcalib.secagg.client_steps import ClientState

    saved = ClientState.from_json(client.to_json())
    circle = None if saved.session is None else saved.session.circle
    if circle is None:
        raise ProtocolError("Expected a roster before the survivors of a sum, found none.")
    alive = unpack(message.survivors, circle.size)
    names = {circle.place: saved.name, **{one.place: one.name for one in circle.neighbours}}
    known = tuple(sorted(names[place] for place in alive if place in names))
    return PinnedSites(known if len(known) == len(alive) else (), len(alive))


def _shares(state: RunState, client: Client, text: str) -> str:
    return client.shares(RosterView.from_json(text)).to_json()


def _unmask(state: RunState, client: Client, text: str) -> str:
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
    if isinstance(error, LedgerError):  # it could not be written, or it is damaged
        return "disk" if isinstance(error.__cause__, OSError | sqlite3.OperationalError) else "setup"
    return next((word for kind, word in words if isinstance(error, kind)), "failed")


def logged_reason(error: Exception) -> str:
    """The reason for the site's own log; of foreign errors only the type, since their text may quote records."""
    return str(error) if isinstance(error, FedcalibError | OSError) else type(error).__name__


COLUMNS: Final = ("score", "logits", "probs", "label", "unit", "positive", "classes", "rival", "groups")


def open_site(places: Mapping[str, Any], load: Callable[[], Federation | StreamedFederation], policy: Policy) -> Site:
    """The site whose files are at the paths `identity`, `directory` and `state` of a configuration.

    Records are loaded and checked first: a site that cannot read them, or holds more than its policy says, does not
    open. The reason is in its own log.
    """
    identity = read_identity(Path(_given(places, "identity")))
    directory = read_directory(Path(_given(places, "directory")))
    journal = DiskJournal(Path(_given(places, "state")))
    try:
        federation = load()
        check_room(federation, policy)
    except Exception as error:
        with journal.locked():
            journal.note({"action": "open", "outcome": "refused", "reason": logged_reason(error)})
        raise
    return Site(identity, directory, federation, policy, journal)


def refused_setup(places: Mapping[str, Any], action: str, error: Exception) -> str:
    """The reply of a site that does not open: one word; the reason goes to the site's own log."""
    entry = {"action": action, "outcome": "refused", "word": "setup", "reason": logged_reason(error)}
    try:
        journal = DiskJournal(Path(_given(places, "state")))
        with journal.locked():
            journal.note(entry)
    except OSError:
        return write(Refused("disk"))
    except FedcalibError:  # there is no place for a log, or it is damaged
        pass
    return write(Refused("setup"))


def check_room(federation: Federation | StreamedFederation, policy: Policy) -> None:
    """Refuse more records than the policy allows for; it says so to the operator alone, when the site starts."""
    if len(federation.records) > policy.most_records:
        raise InputError(
            f"Expected at most {policy.most_records} records, found {len(federation.records)}; set most_records in "
            "the policy to a round number above, and perhaps most_work, since work is estimated for that many."
        )


def records_of(config: Mapping[str, Any]) -> Federation:
    """The records of a site, as `reading_of` reads them; all of them belong to one client, the site."""
    return Federation.of([reading_of(config).federation.records])


def reading_of(config: Mapping[str, Any]) -> Reading:
    """The records at `data-path`, and what was left out; one class, or no record at all, is accepted.

    Of the records of a unit one is kept, chosen by the secret in the folder `state`. A unit that has records at several
    sites counts at each of them: its epsilon is the sum over those sites.
    """
    reading = read_tables(_tables(config), _columns(config), seed=_secret(config), private=True)
    check_missing(reading.rejected, policy_of(config))
    return reading


def stream_of(config: Mapping[str, Any]) -> StreamedFederation:
    """The same records, read batch by batch; one pass has read and checked them."""
    stream = RecordStream(_tables(config), _columns(config), _secret(config))
    stream.read_once()
    check_missing(stream.found.rejected, policy_of(config))
    return StreamedFederation(stream)


def check_missing(rejected: Sequence[Rejected], policy: Policy) -> float:
    """The largest fraction of a file's rows that were left out; refuses more than the policy allows."""
    worst = max(rejected, key=lambda one: one.count / one.records, default=None)
    fraction = 0.0 if worst is None else worst.count / worst.records
    if fraction > policy.max_missing:
        raise InputError(
            f"Expected to leave out at most {policy.max_missing:.0%} of the rows, found that {worst} Repair the file, "
            "or raise max_missing in the policy."
        )
    return fraction


def is_streamed(config: Mapping[str, Any]) -> bool:
    """Whether records are read in batches: where `stream` says so, and otherwise where they are in a database."""
    stated = config.get("stream")
    return is_database(_given(config, "data-path")) if stated is None else stated == "yes"


def _tables(config: Mapping[str, Any]) -> tuple[tuple[Table, str], ...]:
    return tables_at(_given(config, "data-path"), config.get("query"))


def _columns(config: Mapping[str, Any]) -> Columns:
    stated: dict[str, Any] = {name: str(config[name]) for name in COLUMNS if name in config}
    if "groups" in stated:  # several columns
        stated["groups"] = tuple(name.strip() for name in stated["groups"].split(","))
    return Columns(**stated, one_site=True, max_missing=1.0)


def _secret(config: Mapping[str, Any]) -> bytes:
    return DiskJournal(Path(_given(config, "state"))).secret()


def policy_of(config: Mapping[str, Any]) -> Policy:
    """The policy of a site, from the file `policy`; without one, the cautious default."""
    return Policy.read(str(config["policy"])) if "policy" in config else Policy()


def write_identity(path: Path, identity: SigningIdentity) -> None:
    """Write an identity to a file that only its owner can read, also where another file was there before."""
    text = json.dumps({"name": identity.name, "private": base64.b64encode(identity.private).decode()})
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
