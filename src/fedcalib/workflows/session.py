"""The private directory where transcripts live, so that a command that was cut short can go on.

The ledger of a command: its total is debited once, before anything is asked.

The phases of a command: rehearsed before anything is asked, then run one after the other.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, final

from fedcalib.accounting.spending import Spending
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Progress, Result, run
from fedcalib.method import Method, Plan
from fedcalib.privacy import Privacy
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure, Simulated
from fedcalib.records import Schema
from fedcalib.runtimes import InProcess

USUAL: Final = "~/.local/state/fedcalib"


@final
@dataclass(frozen=True)
class State:
    """What one command, with its settings and files, keeps between runs; without a folder it keeps nothing."""

    folder: Path | None
    secret: int  # decides chance that must repeat itself when a run is resumed, such as who is held out

    @property
    def name(self) -> str:
        """Give the command's own name."""
        return "" if self.folder is None else self.folder.name

    def transcript(self, phase: str) -> Path | None:
        """Say where the transcript of a phase lives."""
        return None if self.folder is None else self.folder / f"{phase}.jsonl"


def key(command: str, settings: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Name a command by its settings and by what is in its files."""
    content = [[path.name, _digest(path)] for path in files]
    said = json.dumps([command, dict(settings), content], sort_keys=True, default=str)
    return sha256(said.encode()).hexdigest()[:32]


@contextmanager
def kept(root: Path | None, name: str, seed: int | None) -> Iterator[State]:
    """Open the state of a command, and keep others out while it runs."""
    folder = (root or Path(USUAL)).expanduser() / name
    try:
        _private(folder.parent)
        _private(folder)
        with _locked(folder / "lock"):
            yield State(folder, _secret(folder / "secret") if seed is None else seed)
    except OSError as error:
        raise InputError(
            f"Expected to write the state directory {folder}, found: {error.strerror or error}. Name one with --state."
        ) from error


def forgotten(seed: int | None) -> State:
    """Keep nothing, for commands that ask nothing."""
    return State(None, secrets.randbits(128) if seed is None else seed)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"Expected to read {path}, found: {error.strerror or error}.") from error


def _private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)  # the mode of mkdir is cut by the umask, and an old folder may be more open


def _secret(path: Path) -> int:
    """Draw a secret once, and read it ever after."""
    if not path.exists():
        beside = path.with_suffix(".part")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{secrets.randbits(128):032x}\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except ValueError as error:
        raise TranscriptError(f"Expected a number in {path}, found it damaged.") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                "Expected this command to run once at a time, found it running already; wait for it."
            ) from error
        yield


@final
@dataclass(frozen=True)
class Purse:
    """A ledger's account, if one was named."""

    path: Path | None
    account: str

    def pay(self, state: State, total: Spending) -> None:
        """Debit what all phases spend together; a run that is resumed or replayed has paid already."""
        if self.path is None or total.epsilon is None:
            return
        from fedcalib.accounting.ledger import Ledger

        # the secret makes the name: a command whose state was lost asks anew, so it has to pay anew
        name = sha256(f"{state.name}/{state.secret}".encode()).hexdigest()[:32]
        Ledger(self.path, "command").debit(name, self.account, total)

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Pay for questions that are asked again; their first asking is in the command's total."""
        if self.path is None or attempt == 0:
            return
        from fedcalib.accounting.ledger import Ledger

        Ledger(self.path, "asked again").debit(run, self.account, spending, attempt=attempt)


T = TypeVar("T")


@final
@dataclass(frozen=True)
class Phase(Generic[T]):
    """One conversation of a command: what is asked, under which model, by whom."""

    name: str
    method: Method[T]
    privacy: Privacy
    participation: Participation

    def rehearse(self, schema: Schema) -> Rehearsal:
        """Plan every question and find a mechanism for it, or be refused, without asking anybody."""
        plan = Plan.of(self.privacy.adapt(self.method), schema)
        cohort = self.participation.cohort(schema.clients)
        for query in plan.queries:
            self.privacy.mechanism(query, plan, cohort, self.participation)
        return Rehearsal(self.name, plan, cohort, self.privacy.spending(plan, cohort, self.participation))


@final
@dataclass(frozen=True)
class Rehearsal:
    """What a phase would ask and cost."""

    name: str
    plan: Plan
    cohort: Cohort
    spending: Spending

    @property
    def bytes_a_client(self) -> int:
        """Count the bytes that one client would send, at eight a number."""
        return 8 * sum(query.size for query in self.plan.queries)

    def cost(self) -> dict[str, Any]:
        """Write out what a client sends and what it costs."""
        return {
            "phase": self.name,
            "bytes_a_client": self.bytes_a_client,
            "epsilon": self.spending.epsilon,
            "delta": self.spending.delta,
            "unit": self.spending.unit,
        }

    def to_json(self) -> dict[str, Any]:
        """Write out the questions with their blocks and bounds, and the cost."""
        return {**self.cost(), "queries": [_query(query) for query in self.plan.queries]}


def _query(query: Query) -> dict[str, Any]:
    blocks = [
        {
            "name": name,
            "shape": list(block.shape),
            "l1": block.bound.l1,
            "l2": block.bound.l2,
            "linf": block.bound.linf,
            "unit": block.bound.unit,
            "weight": block.weight,
        }
        for name, block in query.blocks.items()
    ]
    return {"query": type(query).__name__, "numbers": query.size, "blocks": blocks}


@final
@dataclass
class Conductor:
    """Runs phases with one state and one source of chance, and keeps count of who was asked."""

    state: State
    seed: int | None
    voice: Voice
    purse: Purse
    asked: int = 0
    recalled: int = 0

    def run(self, phase: Phase[T], federation: Federation) -> Result[T]:
        """Hold one phase's conversation, recalling whatever was answered before."""
        with self.voice.meter(phase.name) as meter:
            return run(
                phase.method,
                InProcess(federation),
                phase.privacy,
                participation=phase.participation,
                randomness=self._randomness(phase.name),
                transcript=self.state.transcript(phase.name),
                ledger=self.purse,
                account=self.purse.account,
                watch=self._watch(meter.at),
            )

    def _watch(self, show: Callable[[int, int], None]) -> Callable[[Progress], None]:
        def watch(progress: Progress) -> None:
            self.recalled += progress.recalled
            self.asked += not progress.recalled
            show(progress.step, progress.steps)

        return watch

    def _randomness(self, phase: str) -> Randomness:
        # phases of one kind share a run's name, so each needs noise of its own
        return Secure() if self.seed is None else Simulated(self.seed).derive(phase)

    @property
    def replayed(self) -> bool:
        """Say whether nobody was asked, because an earlier run of the same command had all answers."""
        return self.recalled > 0 and not self.asked

    def tell(self) -> None:
        """Say it when answers came from an earlier run."""
        if self.replayed:
            self.voice.note("This command had already run: its answers were replayed and nobody was asked again.")
        elif self.recalled:
            self.voice.note(f"Resumed: {self.recalled} answers of the earlier run were replayed, {self.asked} asked.")
