"""Processes that are killed or meet each other on the way to a release: nothing goes out unpaid, or twice for one line.

Children are forked. A total is written to a log of its own at the moment at which it exists, so that the tests count
what was really released. FEDCALIB_SOAK=1 (`make soak`) makes the tests long: 500 random kills, a kill at every line, a
thousand rounds of six processes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, final
from unittest import mock

import pytest

import fedcalib as fc
from fedcalib import transcript
from fedcalib.accounting import ledger_file
from fedcalib.errors import BudgetError, LedgerError, TranscriptError
from fedcalib.loop import Runtime, Step, Total
from tests.contract.subjects import federation

SOAK = "FEDCALIB_SOAK" in os.environ
KILLS, ROUNDS = (500, 1000) if SOAK else (36, 20)
STEPS = 2
METHOD = fc.FedBin(bins=2, rounds=STEPS)
PRIVACY = fc.DistributedDP(epsilon=1.0)
DATA = fc.InProcess(federation(2))
SOURCES = str(Path(fc.__file__).parent)
RELEASE_PATH = {
    f"{SOURCES}/{name}.py"
    for name in ("loop", "transcript", "files", *(f"accounting/{one}" for one in ("ledger", "ledger_file", "spending")))
}
Trace = Callable[[FrameType, str, Any], Any]


@final
@dataclass(frozen=True)
class Release:
    """A line of the log of releases."""

    run: str
    step: int
    attempt: int
    value: list[float]


@final
@dataclass(frozen=True)
class Logged(Runtime):
    """Clients whose totals are logged when they exist, by one write to the end of a file."""

    log: Path

    @property
    def schema(self) -> fc.Schema:
        return DATA.schema

    def total(self, step: Step) -> Total:
        total = DATA.total(step)
        value, _ = step.mechanism.decode(step.query, total.value, total.clients, step.randomness)
        line = json.dumps([step.run, step.index, step.attempt, value.tolist()]) + "\n"
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)
        return total


@final
@dataclass(frozen=True)
class Place:
    """A folder with one run: its transcript, its ledger and the log of what was released."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> Place:
        folder.mkdir()
        return cls(folder)

    @property
    def path(self) -> Path:
        return self.folder / "run.jsonl"

    @property
    def ledger(self) -> fc.Ledger:
        return fc.Ledger(self.folder / "ledger.db")

    def go(self, path: Path | None = None) -> fc.Result[Any]:
        runtime = Logged(self.folder / "released.log")
        return fc.run(METHOD, runtime, PRIVACY, transcript=path or self.path, ledger=self.ledger, account="p")

    def begin(self) -> None:
        """Debit a run and note its first query, without sending it."""
        with mock.patch.object(fc.Ledger, "claim", side_effect=KeyboardInterrupt), suppress(KeyboardInterrupt):
            self.go()

    def go_on(self, busy: str, path: Path | None = None) -> None:
        """Start again for as long as the error says that another process was in the way."""
        while True:
            try:
                self.go(path)
                return
            except (LedgerError, TranscriptError) as error:
                if busy not in str(error):
                    raise
                time.sleep(0.01)

    def released(self) -> list[Release]:
        log = self.folder / "released.log"
        return [Release(*json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []

    def answers(self, path: Path | None = None) -> list[tuple[int, list[float]]]:
        """What a transcript reports, as (step, value)."""
        lines = fc.Transcript.read(path or self.path).lines
        return [(line["step"], fc.wire.decode(line["value"]).tolist()) for line in lines if line["state"] == "answered"]

    def claimed(self) -> Counter[tuple[str, int, int]]:
        entries = self.ledger.entries() if Path(self.ledger.path).exists() else ()
        return Counter((line.run, line.step, line.attempt) for line in entries if line.step is not None)

    def check(self) -> None:
        """No release without its line, no line for two releases, and debits that cover everything released."""
        released = Counter((one.run, one.step, one.attempt) for one in self.released())
        claimed = self.claimed()
        assert set(released) <= set(claimed), "released without a line in the ledger"
        assert all(times == 1 for times in (*released.values(), *claimed.values())), "a line or a release twice"
        if not claimed:
            return
        debits = [line for line in self.ledger.entries() if line.kind == "debit"]
        runs = {line.run for line in debits if line.step is None}
        assert {run for run, _, _ in claimed} <= runs, "claimed without the debit of the run"
        assert len([line for line in debits if line.step is None]) == len(runs), "a run was debited twice"
        repeats = sum(attempt > 0 for _, _, attempt in claimed)
        assert self.ledger.account("p").epsilon == len(runs) + repeats * Decimal("0.5")  # half of epsilon per step
        worth = sum(max(2, number) for number in Counter(run for run, _, _ in released.elements()).values())
        assert self.ledger.account("p").epsilon * 2 >= worth, "the debits do not cover what was released"
        self.ledger.verify()

    def check_answers(self, path: Path | None = None) -> None:
        """Every reported answer is one that was released for its step."""
        released = {(one.step, *one.value) for one in self.released()}
        answers = self.answers(path)
        assert [step for step, _ in answers] == list(range(STEPS))
        assert {(step, *value) for step, value in answers} <= released


def fork(work: Callable[[], object]) -> int:
    """Run something in a child, which ends without pytest's ado: 0 where it returned, 1 where it failed."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:  # nothing may reach pytest in the child
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def ended(child: int) -> int:
    """How a child ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def traced(at_line: Callable[[FrameType], None]) -> Trace:
    """A trace function that is called at every line of the release path."""

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            at_line(frame)
        return inside

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return inside if frame.f_code.co_filename in RELEASE_PATH else None

    return trace


def under(trace: Trace, work: Callable[[], object]) -> None:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


def executed(place: Place) -> list[tuple[str, int]]:
    """Every line of the release path that a run executes, in order."""
    found: list[tuple[str, int]] = []
    under(traced(lambda frame: found.append((frame.f_code.co_filename, frame.f_lineno))), place.go)
    return found


def killed_at(place: Place, number: int) -> int:
    """Run in a child that dies before it executes its line of this number; how it ended."""
    left = number

    def count(_: FrameType) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            die()

    return ended(fork(lambda: under(traced(count), place.go)))


def finish(place: Place) -> None:
    assert ended(fork(place.go)) == 0
    place.check()
    place.check_answers()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that it wrote, wherever it wrote it.

    The first run imports what the children then need not import.
    """
    quick = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=quick if os.access(quick, os.W_OK) else tmp_path_factory.mktemp("runs")))
    Place.new(folder / "first").go()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def places(memory: Path) -> Iterator[Place]:
    """New places without end; each folder goes when the next one is wanted."""

    def more() -> Iterator[Place]:
        while True:
            place = Place.new(Path(tempfile.mkdtemp(dir=memory)) / "place")
            yield place
            shutil.rmtree(place.folder.parent)

    return more()


# kill -9

POINTS: list[tuple[Any, str, int]] = [
    (owner, name, occurrence)
    for owner, name, times in [
        (fc.Transcript, "begin", 1),
        (fc.Ledger, "debit", 1),
        (fc.Ledger, "claims", 1),
        (fc.Transcript, "note_sent", STEPS),
        (fc.Ledger, "claim", STEPS),
        (ledger_file, "append", 1 + STEPS),
        (Logged, "total", STEPS),
        (fc.Transcript, "note_answer", STEPS),
        (transcript.files, "sync", 1 + 2 * STEPS),
    ]
    for occurrence in range(times)
]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name", "occurrence"), POINTS, ids=[f"{one.__name__}.{name}-{number}" for one, name, number in POINTS]
)
def test_a_kill_between_two_stages(
    places: Iterator[Place], *, owner: Any, name: str, occurrence: int, late: bool
) -> None:
    place, real, left = next(places), getattr(owner, name), occurrence

    def deadly(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 and not late:
            die()
        result = real(*given, **named)
        if left < 0:
            die()
        return result

    def work() -> None:
        setattr(owner, name, deadly)
        place.go()

    assert ended(fork(work)) == -signal.SIGKILL
    place.check()
    assert ended(fork(work)) in {0, -signal.SIGKILL}, "killed while it resumes"
    finish(place)
    assert sum(place.claimed().values()) <= STEPS + 2, "each kill loses one line at most"


def test_a_kill_at_random_lines(places: Iterator[Place]) -> None:
    """Each run is killed until it ends by itself; then it is whole, and every kill has cost one repeat at most."""
    chance, kills, finished, costs = random.Random(0), 0, 0, Counter[str]()
    most = 2 * len(executed(next(places)))  # a run with repeats has more lines, and must be able to end
    while kills < KILLS:
        place, before = next(places), kills
        while killed_at(place, chance.randrange(most)) == -signal.SIGKILL:
            kills += 1
            place.check()
        finish(place)
        finished += 1
        released, claimed = len(place.released()), sum(place.claimed().values())
        assert claimed <= STEPS + kills - before
        costs.update(released=released, claimed=claimed, repeated=claimed - STEPS)
    print(f"{kills} kills over {most} lines, {finished} runs finished, {dict(costs)}")
    assert costs["repeated"] > 0 or not SOAK, "of many kills, some hit between a claim and its answer"


@pytest.mark.skipif(not SOAK, reason="slow: a process per line; run `make soak`")
def test_a_kill_at_every_line(places: Iterator[Place]) -> None:
    """Where a line is executed several times, the first and the last time."""
    lines = executed(next(places))
    first = {line: number for number, line in reversed(list(enumerate(lines)))}
    last = {line: number for number, line in enumerate(lines)}
    for number in sorted({*first.values(), *last.values()}):
        place = next(places)
        assert killed_at(place, number) == -signal.SIGKILL
        place.check()
        finish(place)
        assert sum(place.claimed().values()) <= STEPS + 1
    print(f"{len(first)} lines, {len({*first.values(), *last.values()})} kills")


# six processes

REFUSED = {TranscriptError: "in use by another run", BudgetError: "stay within", LedgerError: "another process"}
FORKING = multiprocessing.get_context("fork")


def outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except (TranscriptError, BudgetError, LedgerError) as error:
        return type(error).__name__ if REFUSED[type(error)] in str(error) else str(error)
    return "done"


@final
class Six:
    """Six processes that live for many rounds and begin each of them at the same moment."""

    def __init__(self) -> None:
        self.places: list[Any] = [FORKING.SimpleQueue() for _ in range(6)]
        self.outcomes = FORKING.SimpleQueue()
        self.start = FORKING.Barrier(6)
        self.workers = [FORKING.Process(target=self._work, args=(number,), daemon=True) for number in range(6)]
        for worker in self.workers:
            worker.start()

    def _work(self, number: int) -> None:
        while True:
            place, busy, paths = self.places[number].get()
            self.start.wait(600)
            self.outcomes.put(outcome(lambda: place.go_on(busy, paths[number])))  # noqa: B023 - called at once

    def round(self, place: Place, busy: str, paths: list[Path]) -> Counter[str]:
        """Let all six run once, and start again while an error says `busy`; how often each outcome came up."""
        for queue in self.places:
            queue.put((place, busy, paths))
        return Counter(self.outcomes.get() for _ in self.workers)

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.join()


@pytest.fixture
def six(memory: Path) -> Iterator[Six]:
    together = Six()
    yield together
    together.end()


def test_six_processes_on_one_transcript_release_once(places: Iterator[Place], six: Six) -> None:
    totals = Counter[str]()
    for number in range(ROUNDS):
        place, patient = next(places), number % 4 > 1
        place.ledger.limit("p", 1)
        if number % 2:
            place.begin()
        outcomes = six.round(place, "in use" if patient else "never", [place.path] * 6)
        assert set(outcomes) <= {"done", "TranscriptError"}
        assert outcomes["done"] == 6 if patient else outcomes["done"] >= 1
        place.check()
        place.check_answers()
        assert len(place.released()) == STEPS
        assert place.ledger.account("p").epsilon == 1
        totals += outcomes
    print(f"{ROUNDS} rounds on one transcript: {dict(totals)}")


def test_six_processes_on_copies_never_overspend(places: Iterator[Place], six: Six) -> None:
    """One ledger, one begun transcript and five copies of it; what is refused because of another tries again."""
    totals, released = Counter[str](), 0
    for number in range(ROUNDS):
        place, limit = next(places), 1 + number % 4 * Decimal("0.5")
        place.ledger.limit("p", limit)
        place.begin()
        paths = [place.path, *(place.folder / f"copy-{copy}.jsonl" for copy in range(5))]
        for path in paths[1:]:
            shutil.copy(place.path, path)
        outcomes = six.round(place, "another process", paths)
        assert set(outcomes) <= {"done", "BudgetError"}
        place.check()
        assert place.ledger.account("p").epsilon <= limit
        complete = [path for path in paths if len(place.answers(path)) == STEPS]
        assert len(complete) == outcomes["done"]
        for path in complete:
            place.check_answers(path)
        totals += outcomes
        released += len(place.released())
    print(f"{ROUNDS} rounds on copies: {dict(totals)}, {released} released")
    assert totals["BudgetError"] > 0 < totals["done"]


# private from the first byte


def test_no_file_is_ever_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every line of the release path, under a umask that hides nothing; long answers lie in files beside."""
    monkeypatch.setattr(transcript, "_MAX_INLINE", 0)
    place, seen = Place.new(tmp_path / "run"), Counter[str]()

    def look(_: FrameType) -> None:
        for entry in os.scandir(place.folder):
            if entry.name == "released.log":
                continue
            mode = stat.S_IMODE(entry.stat().st_mode)
            assert mode == 0o600, f"{entry.name} is {mode:o}"
            seen[Path(entry.name).suffix] += 1

    before = os.umask(0)
    try:
        under(traced(look), place.go)
    finally:
        os.umask(before)
    assert {".jsonl", ".db", ".npy", ".part", ".db-journal"} <= set(seen)
