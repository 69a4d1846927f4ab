"""Sums under masks, stage by stage, over connected sites.

The server saves its progress after each stage, so that a server that was killed continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, final

from fedcalib import files, wire
from fedcalib.cohort import MIN_CLIENTS
from fedcalib.errors import FedcalibError, TooFewClients, TranscriptError
from fedcalib.loop import Outline, Step, Total
from fedcalib.remote.protocol import Agreed, Begin, Question, Relay, write
from fedcalib.remote.sites import SiteConnections
from fedcalib.secagg import Directory, Server, SetupPlan, Slot
from fedcalib.secagg.messages import Advert, Confirmation, MaskedVector, SealedShares, Unmasking
from fedcalib.secagg.round import Round
from fedcalib.secagg.setup import Message
from fedcalib.types import Words


@final
@dataclass(frozen=True)
class SavedSum:
    """The saved progress of a sum: its setup, step and attempt, and the state of the server.

    `server` is empty while keys are exchanged; then vectors are collected, until the survivors are `fixed`.
    """

    setup: int
    step: int
    attempt: int
    fixed: bool
    server: str


def save(folder: Path | None, run: str, saved: SavedSum) -> None:
    """Save a run's sum durably; without a folder nothing is saved."""
    if folder is None:
        return
    path = _path(folder, run)
    try:
        files.write(path, json.dumps(asdict(saved)).encode(), private=True)
    except OSError as error:
        raise TranscriptError(
            f"Expected to write {path}, found: {error.strerror or error}. Nothing was sent."
        ) from error


def recall(folder: Path | None, run: str) -> SavedSum | None:
    """The saved sum of a run, if there is one."""
    if folder is None or not _path(folder, run).exists():
        return None
    data = wire.parse(_path(folder, run).read_text(encoding="utf-8"))
    try:
        return SavedSum(**data)
    except TypeError as error:
        raise TranscriptError(f"Expected a saved sum in {_path(folder, run)}, found it damaged.") from error


def _path(folder: Path, run: str) -> Path:
    return folder / f"sum-{sha256(run.encode()).hexdigest()[:32]}.json"


def first_plan(outline: Outline, state: Path | None, fewest: int = MIN_CLIENTS) -> SetupPlan | None:
    """A plan for the masks of all steps, whose keys sites can send with their first reply; each site is one client.

    None where a sum is to be continued, which new keys would end, and where steps draw their sites or need no masks.
    The number of the setup is spent before it is sent, since sites accept it once.
    """
    saved, slots = recall(state, outline.run), _slots(outline)
    if (saved is not None and saved.server) or outline.participation.sampled or not slots:
        return None
    setup = 0 if saved is None else saved.setup + 1
    save(state, outline.run, SavedSum(setup, slots[0].step, 0, False, ""))
    return SetupPlan(outline.run, slots, setup, floor=max(fewest, outline.cohort.floor))


def _slots(outline: Outline, begin: int = 0) -> tuple[Slot, ...]:
    """The first attempts at all masked steps from `begin` on."""
    pairs = list(enumerate(zip(outline.queries, outline.mechanisms, strict=True)))[begin:]
    return tuple(Slot(step, 0, one.width(query)) for step, (query, one) in pairs if one.modulus is not None)


T = TypeVar("T")
M = TypeVar("M", bound=Message)


@final
@dataclass(eq=False)
class SecureSums:
    """The secure sums of one run.

    One setup prepares the masks of all steps that are left. A step that failed is retried under a new setup, with fresh
    masks; a step that was cut short because the server was killed is first continued where it stopped. The `first` plan
    is the one that sites were greeted with: their keys are there already.
    """

    outline: Outline
    connections: SiteConnections
    directory: Directory
    state: Path | None = None
    fewest: int = MIN_CLIENTS
    first: SetupPlan | None = None
    _server: Server | None = field(default=None, init=False)
    _setup: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self._setup = -1 if self.first is None else self.first.setup

    def total(self, step: Step, questions: Mapping[str, Question]) -> Total:
        """Continue a sum that was cut short, or begin one."""
        saved = recall(self.state, self.outline.run)
        if saved is not None:
            self._setup = max(self._setup, saved.setup)
            if saved.server and saved.step == step.index and saved.attempt < step.attempt:
                resumed = self._resumed(saved, step, questions)
                if resumed is not None:
                    return resumed
        server = self._ready(step, questions)
        self._save(server, step, fixed=False)
        return self._sum(server, step, questions, fixed=False)

    def _resumed(self, saved: SavedSum, step: Step, questions: Mapping[str, Question]) -> Total | None:
        """Finish a saved sum: sites answer the same request in the same way, so this releases nothing new."""
        try:
            server = Server.from_json(saved.server, self.directory)
            total = self._sum(server, replace(step, attempt=saved.attempt), questions, fixed=saved.fixed)
        except FedcalibError:
            return None
        self._server = server
        return total

    def _ready(self, step: Step, questions: Mapping[str, Question]) -> Server:
        """The server of a setup that has masks for this attempt, an existing or a new one."""
        attempt = (step.index, step.attempt)
        if self._server is None and self.first is not None and attempt in _prepared(self.first):
            self._server = self._set_up(self.first, questions)
        elif self._server is None or attempt not in _prepared(self._server.plan):
            self._setup += 1
            # sites accept a setup's number once, so it is spent before it is sent
            save(self.state, self.outline.run, SavedSum(self._setup, step.index, step.attempt, False, ""))
            self._server = self._set_up(self._plan(step), questions)
        return self._server

    def _set_up(self, plan: SetupPlan, questions: Mapping[str, Question]) -> Server:
        """Stages 1 and 2: sites agree to the run, and share the keys of its masks; a greeting asks for them as well."""
        server = Server(plan, self.directory)
        greeted = self._greeted(server) if plan == self.first else set()
        begin = write(Begin(self.outline, plan.to_json()))
        others = {site: begin for site in questions if site not in greeted}
        if others:
            self.connections.send(
                "begin", others, Agreed, lambda _, reply: server.accept_keys(Advert.from_json(reply.keys)), "keys"
            )
        self._stage("shares", self._closed(server.close_keys), SealedShares, server.accept_shares, "shares of keys")
        self._closed(server.close_shares)
        return server

    def _greeted(self, server: Server) -> set[str]:
        """The sites whose keys came with their introduction; others are asked for theirs again."""
        found = set()
        for site, info in self.connections.sites.items():
            try:
                server.accept_keys(Advert.from_json(info.keys))
                found.add(site)
            except FedcalibError:
                continue
        return found

    def _plan(self, step: Step) -> SetupPlan:
        """A plan with the current step and, where everybody takes part in every step, all that follow it."""
        now = Slot(step.index, step.attempt, step.mechanism.width(step.query))
        later = () if step.participation.sampled else _slots(self.outline, step.index + 1)
        return SetupPlan(self.outline.run, (now, *later), self._setup, floor=self._floor(step))

    def _floor(self, step: Step) -> int:
        """The fewest sites of a sum; where each site is one client, also the fewest clients."""
        single = all(info.clients == 1 for info in self.connections.sites.values())
        return max(self.fewest, step.cohort.floor) if single else self.fewest

    def _sum(self, server: Server, step: Step, questions: Mapping[str, Question], *, fixed: bool) -> Total:
        """Stages 3 and 4: collect masked vectors, then unmask their sum."""
        if not fixed:
            self._masked(server, step, questions)
        now = server.round(step.index, step.attempt)
        survivors = self._closed(now.close_masked)
        clients = sum(self.connections.clients_of(site, questions.get(site)) for site in survivors)
        step.cohort.require(clients)  # before anything is unmasked
        self._save(server, step, fixed=True)
        return Total(self._unmasked(now, step), clients)

    def _masked(self, server: Server, step: Step, questions: Mapping[str, Question]) -> None:
        requests = self._closed(lambda: server.begin(step.index, step.attempt))
        accept = server.round(step.index, step.attempt).accept_masked
        texts = {
            site: write(replace(questions[site], attempt=step.attempt, request=request.to_json()))
            for site, request in requests.items()
            if site in questions
        }
        name = f"step {step.index}: masked vectors"
        self.connections.send("ask", texts, Relay, lambda _, reply: accept(MaskedVector.from_json(reply.text)), name)

    def _unmasked(self, now: Round, step: Step) -> Words:
        name = f"step {step.index}: survivors"
        self._stage("confirm", now.close_masked(), Confirmation, now.accept_confirmation, name)
        requests = self._closed(now.close_confirmations)
        self._stage("unmask", requests, Unmasking, now.accept_unmasking, f"step {step.index}: unmasking")
        return self._closed(now.total).words

    def _stage(
        self, action: str, messages: Mapping[str, Message], kind: type[M], accept: Callable[[M], None], name: str
    ) -> None:
        """Send a message of secure aggregation to each site and pass the replies on."""
        texts = {site: write(Relay(self.outline.run, message.to_json())) for site, message in messages.items()}
        self.connections.send(action, texts, Relay, lambda _, reply: accept(kind.from_json(reply.text)), name)

    def _closed(self, close: Callable[[], T]) -> T:
        """Close a stage; with too few replies, the error names the missing sites and why."""
        try:
            return close()
        except TooFewClients as error:
            raise TooFewClients(
                f"{error} {self.connections.problems()} No partial sum was read. Run this again when they are back: it "
                "continues where it stopped."
            ) from error

    def _save(self, server: Server, step: Step, *, fixed: bool) -> None:
        save(self.state, self.outline.run, SavedSum(self._setup, step.index, step.attempt, fixed, server.to_json()))


def _prepared(plan: SetupPlan) -> set[tuple[int, int]]:
    return {(slot.step, slot.attempt) for slot in plan.slots}
