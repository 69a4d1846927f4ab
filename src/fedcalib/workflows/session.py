"""What all workflows share: reading data, sharing progress, keeping state, paying, and running phases.

A workflow that is cut short goes on where it stopped: transcripts live in a private directory. A ledger is debited the
total once, before anything is asked. Every phase is agreed before the first one is run.
"""

from __future__ import annotations

import json
import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack, final

import numpy as np

from fedcalib import files
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.cohort import MIN_CLIENTS, MIN_RECORDS, SECRET_BYTES, Participation
from fedcalib.data import Columns, Reading, Table
from fedcalib.data.frames import FrameTable, tables_of
from fedcalib.data.reading import Rejected, read_tables
from fedcalib.data.tables import FileTable
from fedcalib.display import meant
from fedcalib.errors import BudgetError, InputError, LedgerError, TooFewClients, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Agreement, Progress, Result, Runtime, conduct
from fedcalib.method import Method
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Exact
from fedcalib.randomness import SIMULATED, Randomness, Secure, Simulated
from fedcalib.records import Schema
from fedcalib.runtimes import InProcess
from fedcalib.workflows.budget import as_simulation, with_repeats
from fedcalib.workflows.facts import Trail, keyed

if TYPE_CHECKING:
    from fedcalib.accounting.ledger import Ledger

SEEDS: Final = "{} (which records are held out; a release stays private) or {} (simulated noise: not private)"
_UNCOUNTED: Final = (
    "Releases about the same people add up. This one is in no ledger: name one with ledger (--ledger) to count it."
)
_UNPRICED: Final = (
    "Nothing was debited: this privacy model has no epsilon, and a ledger (--ledger) counts nothing else. Exact sums "
    "of several runs may reveal more than each."
)
_BUSY: Final = "Expected this command to run once at a time, found it running already; wait for it."

T = TypeVar("T")
At = Callable[..., None]  # told how much is done, and of how much where that is known


@final
@dataclass(frozen=True)
class State:
    """What one command, with its settings and files, keeps between runs; without a folder it keeps nothing."""

    folder: Path | None
    secret: int  # names the run; without a folder, it decides who is held out too
    name: str = ""  # of the workflow with its settings and data
    split_seed: int | None = None  # decides who is held out instead of the secret
    split_key: int | None = None  # decides it for all commands that share a state directory

    def derived(self, purpose: str) -> bytes:
        """A key of its own for each purpose, from the seed of splits or from the key of the state directory.

        Neither depends on the command's settings or on the names of files: methods are measured on the same records,
        and a renamed file changes no figure.
        """
        chance = next(one for one in (self.split_seed, self.split_key, self.secret) if one is not None)
        return sha256(f"{chance}/{purpose}".encode()).digest()

    def split(self, federation: Federation, share: float) -> tuple[Federation, Federation]:
        """Split by a coin that follows from the record itself, so that removing a record moves no other."""
        if not 0 < share < 1:
            raise InputError(
                f"Expected a share between 0 and 1 in holdout (--holdout), 0 for no measurement, found {share}."
            )
        return federation.split(share, self.derived("holdout"))

    def transcript(self, phase: str) -> Path | None:
        """The file of a phase's transcript."""
        return None if self.folder is None else self.folder / f"{phase}.jsonl"


@contextmanager
def _kept(folder: Path, simulate: int | None, split_seed: int | None) -> Iterator[State]:
    """Open the state of a workflow, and keep others out while it runs."""
    try:
        _private(folder.parent)
        _private(folder)
        with files.locked(folder / "lock", _BUSY):
            secret = _secret(folder / "secret") if simulate is None else simulate
            key = _split_key(folder.parent) if simulate is None else None
            yield State(folder, secret, folder.name, split_seed, key)
    except OSError as error:
        raise InputError(
            f"Expected to write the state directory {folder}, found: {error.strerror or error}. Name one with --state."
        ) from error


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
        files.write(path, f"{secrets.randbits(128):032x}\n".encode(), private=True)
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except ValueError as error:
        raise TranscriptError(f"Expected a number in {path}, found it damaged.") from error


def _split_key(folder: Path) -> int:
    """The key of all splits of a state directory; drawn once, whichever command is the first."""
    with files.locked(folder / "split-key.lock"):
        return _secret(folder / "split-key")


class Notices(ABC):
    """Whoever hears of progress, notes and warnings while a workflow runs."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Hear something on the side."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Hear something that should not be missed."""

    @abstractmethod
    def progress(self, what: str) -> AbstractContextManager[At]:
        """Follow a task: the function is told how much is done, and of how much where that is known."""


@final
@dataclass(frozen=True)
class Silent(Notices):
    """Follows no progress; warnings become Python warnings."""

    def note(self, text: str) -> None:
        """Drop it."""

    def warn(self, text: str) -> None:
        """Warn as Python does."""
        warnings.warn(text, stacklevel=2)

    def progress(self, what: str) -> AbstractContextManager[At]:
        """Follow nothing."""
        return nullcontext(_unseen)


def _unseen(done: int, total: int | None = None) -> None:
    """Follow nothing."""


@final
@dataclass(frozen=True, eq=False)
class Data:
    """Where records come from, and what the columns mean: files, frames, a federation, or sites behind a runtime."""

    source: Any  # a federation, a runtime, or tables with the name of the site that each is without a site column
    columns: Columns = field(default_factory=Columns)

    @classmethod
    def of(cls, source: Any, columns: Columns | None = None) -> Data:
        """Take a federation or a runtime as it is, and anything else as `fedcalib.read` does."""
        ready = isinstance(source, Federation | Runtime)
        return cls(source if ready else tables_of(source), columns or Columns())

    def __repr__(self) -> str:
        """Where the records come from, without any of them."""
        return f"Data({self.source!r}, {self.columns!r})"

    def named_by(self, calibrator: Calibrator | None) -> Data:
        """The data read with the class names of a calibrator, unless names were stated."""
        names, columns = () if calibrator is None else calibrator.class_names, self.columns
        if not names or columns.classes is not None or columns.positive is not None:
            return self
        return replace(self, columns=replace(columns, classes=names))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The files and frames, if there are any."""
        return tuple(table for table, _ in self.source) if isinstance(self.source, tuple) else ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, if there are any."""
        return tuple(table.path for table in self.tables if isinstance(table, FileTable))

    def reading(self, seed: int | bytes, watch: At, private: bool = False) -> Reading:
        """Read files or frames, and return what was left out too."""
        return read_tables(self.source, self.columns, seed=seed, watch=watch, private=private)

    def fingerprint(self) -> list[Any]:
        """What names the records and the meaning of their columns."""
        if self.tables:
            return [_meaning(self.columns), *self._contents()]
        if isinstance(self.source, InProcess):
            return [_content(self.source.federation)]
        if isinstance(self.source, Runtime):  # its sites know their records, and answer nothing twice
            return [asdict(self.source.schema)]
        return [_content(self.source)]

    def shares(self, other: Data) -> bool:
        """Whether a file or a frame is in both, perhaps under another name."""
        return bool(self._hashes & other._hashes)

    @property
    def _hashes(self) -> set[str]:
        frames = {_frame_content(table, self.columns) for table in self.tables if isinstance(table, FrameTable)}
        ready = {_content(self.source)} if isinstance(self.source, Federation) else set()
        return {_digest(path) for path in self.files} | frames | ready

    def _contents(self) -> list[Any]:
        """What names the content of files and frames."""
        frames = [_frame_content(table, self.columns) for table in self.tables if isinstance(table, FrameTable)]
        return [*([[[path.name, _digest(path)] for path in self.files]] if self.files else []), *frames]


def _meaning(columns: Columns) -> dict[str, Any]:
    """What a user has stated about columns; later options count only where they are stated."""
    later = ("positive", "classes", "percent", "one_site", "max_missing")
    usual = Columns()
    return {
        name: value for name, value in asdict(columns).items() if name not in later or value != getattr(usual, name)
    }


def _content(federation: Federation) -> str:
    """The hash of everything that a federation holds: names, owners, labels, scores, units and further columns."""
    records = federation.records
    named = {"offsets": federation.offsets, "labels": records.labels, "scores": records.given, "unit": records.unit}
    digest = sha256(repr((federation.names, records.are_logits)).encode())
    for name, column in {**named, **records.extra}.items():
        array = np.ascontiguousarray([] if column is None else column)
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return digest.hexdigest()


def _frame_content(table: FrameTable, columns: Columns) -> str:
    """The hash of a frame's rows in the columns that are read: of all rows, whichever one of a unit is kept."""
    import pyarrow as pa

    layout = replace(columns.layout(table.names, table.file), person=None)
    read = table.frame.select(list(layout.needed)).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, read.schema.remove_metadata()) as stream:
        stream.write_table(read.replace_schema_metadata())
    return sha256(sink.getvalue()).hexdigest()


@final
@dataclass(frozen=True)
class WorkflowSession:
    """How a workflow runs: by which seeds, where it keeps its state, which ledger pays, and who hears of it."""

    simulate: int | None = None  # the seed of simulated noise, which is not private; None for a release
    state: Path | None = None  # private directory of transcripts, for resuming; None keeps nothing
    ledger: Path | None = None  # debited the total before anything is asked
    account: str = "default"
    notices: Notices = field(default_factory=Silent)
    split_seed: int | None = None  # who is held out, and which record of a unit is kept; a release stays private

    def forgotten(self, name: str = "") -> State:
        """A state that keeps nothing."""
        secret = secrets.randbits(128) if self.simulate is None else self.simulate
        return State(None, secret, name, self.split_seed)

    def marked(self, total: Spending) -> Spending:
        """What a run would spend, marked where it would be a simulation."""
        return total if self.simulate is None else as_simulation(total)

    @contextmanager
    def opened(self, workflow: str, settings: Mapping[str, Any], *data: Data) -> Iterator[Conductor]:
        """Open the state of a workflow with these settings and data; the same ones go on where they stopped."""
        if self.simulate is not None:
            self.notices.warn(SIMULATED)
        name = ""
        if self.state is not None or self.ledger is not None:
            seeds = [self.simulate, self.split_seed, "split-key"]  # a run from before the key held out other records
            known = [workflow, dict(settings), seeds, [one.fingerprint() for one in data]]
            name = sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:32]
        if self.state is None:
            yield Conductor(self, self.forgotten(name), inputs=data)
            return
        with _kept(self.state.expanduser() / name, self.simulate, self.split_seed) as state:
            yield Conductor(self, state, inputs=data)


@final
class Options(TypedDict, total=False):
    """What every workflow takes besides its own arguments: the meaning of columns, and how it runs.

    Parameters
    ----------
    site, label, score, logits, probs, unit, time
        Columns of files and frames, as in `fedcalib.read`; `time` holds dates or numbered days.
    positive, classes, percent, one_site, max_missing
        What labels and scores mean, whether records without a site column are one site, and the share of records that
        may be left out, as in `fedcalib.data.Columns`.
    sites
        All sites that the column `site` may name, which are public; those that occur if left out.
    split_seed
        Decides which records are held out, and which record of a unit is kept. It may be public: the noise of a release
        never depends on it. If left out, a key in the `state` directory decides who is held out, the same for all
        commands and whatever files are called; without `state` it is drawn at random.
    simulate
        Seed of simulated noise, for trials: "simulation: not private". Without it, the result is a release. Splits
        follow from it too, unless `split_seed` is stated.
    state
        Private directory of transcripts. The same call goes on where it stopped, and sends nothing twice.
    ledger, account
        Ledger file and account, debited the total before anything is sent.
    notices
        Hears of progress, notes and warnings; without it, warnings are Python warnings.
    """

    site: str | None
    label: str
    score: str | None
    logits: str | Sequence[str] | None
    probs: str | Sequence[str] | None
    unit: str | None
    time: str | None
    sites: Sequence[str] | None
    positive: str | int | None
    classes: Sequence[str | int] | str | None
    percent: bool
    one_site: bool
    max_missing: float
    split_seed: int | None
    simulate: int | None
    state: Path | str | None
    ledger: Path | str | None
    account: str
    notices: Notices


def opening(source: Any, **options: Unpack[Options]) -> tuple[Data, WorkflowSession]:
    """The data and the session that a workflow's options describe."""
    given: dict[str, Any] = dict(options)
    if "seed" in given:
        raise InputError(f"Expected {SEEDS.format('split_seed', 'simulate')}, found seed; state which you mean.")
    known = tuple(Options.__annotations__)
    if wrong := [name for name in given if name not in known]:
        hint = meant(wrong[0], known) if wrong[0] != "epsilon" else " Pass it as privacy=fc.DistributedDP(epsilon=...)."
        raise InputError(f"Expected options of a workflow ({', '.join(known)}), found '{wrong[0]}'.{hint}")
    names = ("split_seed", "simulate", "account", "notices")
    running: dict[str, Any] = {name: given.pop(name) for name in names if name in given}
    running |= {name: Path(place) for name in ("state", "ledger") if (place := given.pop(name, None)) is not None}
    return Data.of(source, Columns(**given)), WorkflowSession(**running)


@final
@dataclass(frozen=True, eq=False)
class Phase(Generic[T]):
    """One conversation of a workflow: its name, and what was agreed for it."""

    name: str
    agreed: Agreement[T]

    @classmethod
    def of(
        cls, name: str, method: Method[T], privacy: Privacy, participation: Participation, schema: Schema
    ) -> Phase[T]:
        """Plan every query and find a mechanism for it, or be refused, without asking anybody."""
        return cls(name, _answerable(Agreement.of(method, privacy, participation, schema)))

    @property
    def spending(self) -> Spending:
        """What the phase spends."""
        return self.agreed.spending

    def rehearse(self, federation: Federation) -> None:
        """Compute each kind of query for one record and drop the result: a column that is missing is an error now."""
        one = federation.where(np.arange(len(federation.records)) == 0)
        for query in {type(query): query for query in self.agreed.plan.queries}.values():
            Exact().gather(query, one, Simulated(0))

    def cost(self) -> dict[str, Any]:
        """What a client sends and what it costs, as plain data."""
        return {"phase": self.name, **self.agreed.cost()}

    def to_json(self) -> dict[str, Any]:
        """The cost, and every query with its blocks and bounds, as plain data."""
        return {"phase": self.name, **self.agreed.to_json()}


def _answerable(agreed: Agreement[T]) -> Agreement[T]:
    """Refuse what a runtime would refuse later for public reasons: too few clients, or too few cohorts."""
    agreed.participation.members(1, len(agreed.plan.queries) - 1, bytes(SECRET_BYTES))
    hidden = any(mechanism.modulus is not None for mechanism in agreed.mechanisms)
    if hidden and agreed.cohort.expected < MIN_CLIENTS:
        raise TooFewClients(
            f"Expected at least {MIN_CLIENTS} clients in a sum that hides them, found {agreed.cohort.expected:.4g}; "
            "nothing was read. Add clients, or choose a privacy model in which each client protects itself (local) or "
            "one that hides nothing (open)."
        )
    return agreed


def _few_or_many(rejected: Rejected) -> str:
    """What a result says about records that were left out; a small number of them is as telling as a small cell."""
    if rejected.count >= MIN_RECORDS:
        return str(rejected)
    return f"Fewer than {MIN_RECORDS} records were left out because a number, a label or a site is missing."


@final
@dataclass(frozen=True)
class PhaseDebits:
    """The ledger as one phase uses it: the command has paid for the first sending of each query.

    Claims go by the command and the phase, not by the name of the phase's run: a copy of the state from before the
    phase began would choose another name.
    """

    ledger: Ledger
    name: str

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Nothing: the command's total was debited before."""

    def claims(self, run: str, account: str) -> frozenset[tuple[int, int]]:
        """What this phase of the command has claimed, from any copy of its state."""
        return self.ledger.claims(self.name, account)

    def claim(
        self, run: str, account: str, spending: Spending, *, step: int, attempt: int, known: Set[tuple[int, int]]
    ) -> None:
        """Claim one attempt at one step, and pay for it where it is sent again."""
        self.ledger.claim(self.name, account, spending, step=step, attempt=attempt, known=known)


@final
@dataclass
class Conductor:
    """Runs the phases of one session, pays for them, and counts which queries were sent."""

    session: WorkflowSession
    state: State
    asked: int = 0
    recalled: int = 0
    paid: float = 0.0  # epsilon of all phases, with each query sent once
    repeats: dict[str, float] = field(default_factory=dict)  # by phase: epsilon of queries that were ever sent again
    class_names: tuple[str, ...] = ()  # of the records that were read, which are public; empty where they have none
    inputs: tuple[Data, ...] = ()
    transcripts: dict[str, str] = field(default_factory=dict)  # by phase: keyed digests of the messages

    def read(self, data: Data, private: bool) -> tuple[Federation, tuple[str, ...]]:
        """Read records; what was left out goes to the notices, and into the result where counts may be told."""
        if isinstance(data.source, Federation):
            return data.source, ()
        if isinstance(data.source, Runtime):
            raise InputError("Expected records at hand for this, found a runtime, whose sites keep theirs.")
        if self.class_names and not data.columns.class_names:  # columns of further files may be in another order
            data = replace(data, columns=replace(data.columns, classes=self.class_names))
        with self.session.notices.progress("reading rows") as at:
            reading = data.reading(self.state.derived("unit"), at, private)
        for rejected in reading.rejected:
            self.session.notices.warn(str(rejected))
        for note in reading.notes:
            self.session.notices.note(note)
        self.class_names = reading.class_names
        left_out = tuple(dict.fromkeys(map(_few_or_many, reading.rejected)))
        return reading.federation, () if private else left_out

    def pay(self, total: Spending, *asked: tuple[Phase[Any], Federation]) -> None:
        """Debit what all phases spend together; a run that is resumed or replayed has paid already.

        Records that a phase cannot be asked about, such as those without a column that it needs, are refused before.
        """
        if total.epsilon is None:
            if self.session.ledger is not None:
                self.session.notices.note(_UNPRICED)
            return
        for phase, federation in asked:
            phase.rehearse(federation)
        self.paid, ledger = total.epsilon, self._ledger("command")
        if ledger is not None:
            ledger.debit(self._name, self.session.account, total)
        elif self.session.simulate is None:
            self.session.notices.note(_UNCOUNTED)

    @property
    def _name(self) -> str:
        """The command as the ledger knows it; a command whose state was lost asks anew, so it has to pay anew."""
        return sha256(f"{self.state.name}/{self.state.secret}".encode()).hexdigest()[:32]

    def stated(self, total: Spending) -> Spending:
        """What was debited for phases that were paid as `total`, queries that were sent again included."""
        return with_repeats(self.session.marked(total), sum(self.repeats.values()))

    def _ledger(self, phase: str) -> Ledger | None:
        from fedcalib.accounting.ledger import Ledger

        return None if self.session.ledger is None else Ledger(self.session.ledger, phase)

    def _debits(self, phase: str) -> PhaseDebits | None:
        ledger = self._ledger(phase)
        return None if ledger is None else PhaseDebits(ledger, f"{self._name}/{phase}")

    def run(self, phase: Phase[T], runtime: Runtime, randomness: Randomness | None = None) -> Result[T]:
        """Run one phase, recalling whatever was answered before."""
        with self.session.notices.progress(phase.name) as at, self._resumed():
            result = conduct(
                phase.agreed,
                runtime,
                randomness=randomness or self.randomness(phase.name),
                transcript=self.state.transcript(phase.name),
                ledger=self._debits(phase.name),
                account=self.session.account,
                watch=self._watch(at),
            )
        self.repeats[phase.name] = (result.privacy.epsilon or 0.0) - (phase.spending.epsilon or 0.0)
        self.transcripts[phase.name] = keyed(self.state.secret, result.transcript.lines)
        return result

    def evidence(self) -> Trail:
        """Digests of the inputs and of the messages, and the ledger's account after the run.

        A simulation has none: its secret is its seed, so anybody could test a guess of the records against a digest.
        """
        if self.session.simulate is not None:
            return Trail()
        named = {", ".join(path.name for path in one.files) or "the records": self._digest(one) for one in self.inputs}
        known = {name: digest for name, digest in named.items() if digest}
        return Trail(known, dict(self.transcripts), self._account())

    def _digest(self, data: Data) -> str:
        """The keyed digest of inputs; empty where a file is gone by now: what was released must not be lost for it."""
        try:
            return keyed(self.state.secret, data.fingerprint())
        except InputError:
            return ""

    def _account(self) -> dict[str, str]:
        ledger = self._ledger("report")
        if ledger is None or not self.paid or self.session.simulate is not None:
            return {}
        try:
            found = ledger.account(self.session.account)
        except LedgerError:  # it was debited before; a report without the remainder is better than none
            return {}
        names = ("name", "unit", "epsilon", "delta", "epsilon_limit", "delta_limit", "epsilon_left", "delta_left")
        return {name: str(value) for name in names if (value := getattr(found, name)) is not None}

    @contextmanager
    def _resumed(self) -> Iterator[None]:
        """Add to a refusal what was paid and released before: only a query that is sent again is paid in a phase."""
        try:
            yield
        except BudgetError as error:
            refused = str(error).replace("Nothing was released.", "Nothing new was released.")
            complete = ", ".join(self.repeats) or "none"
            where = "" if self.state.folder is None else f", to be recalled from {self.state.folder} at no cost"
            raise BudgetError(
                f"{refused} This is a resumption: epsilon = {self.paid:.6g} is paid, and {self.recalled} answers were "
                f"released before and are kept (complete phases: {complete}{where}). A query was sent earlier and its "
                "answer did not arrive, so sending it again is paid again; raise the limit to finish."
            ) from error

    def _watch(self, show: At) -> Callable[[Progress], None]:
        def watch(progress: Progress) -> None:
            self.recalled += progress.recalled
            self.asked += not progress.recalled
            show(progress.step, progress.steps)

        return watch

    def randomness(self, phase: str) -> Randomness:
        """Noise of a phase's own: phases of one kind share a run's name."""
        seed = self.session.simulate
        return Secure() if seed is None else Simulated(seed).derive(phase)

    @property
    def replayed(self) -> bool:
        """Whether nobody was asked, because an earlier run of the same command had all answers."""
        return self.recalled > 0 and not self.asked

    def tell(self) -> None:
        """Note it when answers came from an earlier run."""
        note = self.session.notices.note
        if self.replayed:
            note("This command had already run: its answers were replayed and nobody was asked again.")
        elif self.recalled:
            note(f"Resumed: {self.recalled} answers of the earlier run were replayed, {self.asked} asked.")
