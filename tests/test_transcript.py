"""A run has its transcript to itself: whoever comes second is refused before anything is asked or spent."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, final

import pytest

import fedcalib as fc
from fedcalib.errors import TranscriptError
from fedcalib.loop import Outline, Runtime, Step, Total
from tests.contract.subjects import federation

METHOD = fc.FedBin()
PRIVACY = fc.DistributedDP(epsilon=1.0)
DATA = fc.InProcess(federation(2))
ROOT = Path(__file__).parents[1]
BUSY = "in use by another run.*Nothing was sent and nothing was spent"

HOLDER = """
import sys
import fedcalib as fc
from tests.test_transcript import DATA, METHOD, PRIVACY, Waiting
class Told:
    def wait(self, seconds):
        print("holds it", flush=True)
        sys.stdin.read()
ledger = fc.Ledger(sys.argv[2])
fc.run(METHOD, Waiting(DATA, Told()), PRIVACY, transcript=sys.argv[1], ledger=ledger, account="p")
"""


@final
@dataclass(eq=False)
class Waiting(Runtime):
    """Waits, with the transcript open, until told; notes what was asked."""

    inner: Runtime
    told: Any = field(default_factory=threading.Event)
    asked: list[int] = field(default_factory=list)

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def prepare(self, outline: Outline) -> None:
        self.told.wait(10)

    def total(self, step: Step) -> Total:
        self.asked.append(step.index)
        return self.inner.total(step)


@final
@dataclass(eq=False)
class Failing(Runtime):
    """Does something else instead of answering."""

    inner: Runtime
    instead: Any

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def total(self, step: Step) -> Total:
        self.instead()
        return self.inner.total(step)


def interrupt() -> None:
    raise KeyboardInterrupt


def account(folder: Path) -> fc.Ledger:
    ledger = fc.Ledger(folder / "ledger.db")
    ledger.limit("p", "1.0", "0")
    return ledger


def states(path: Path) -> list[str]:
    return [json.loads(line)["state"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("begun", [False, True])
def test_of_four_runs_at_once_one_releases(tmp_path: Path, begun: bool) -> None:
    path, ledger, runtime = tmp_path / "state" / "run.jsonl", account(tmp_path), Waiting(DATA)
    if begun:  # as after a crash: there is a header and a debit, and nothing was asked
        cut = Waiting(DATA, type("Cut", (), {"wait": lambda *_: interrupt()})())
        with pytest.raises(KeyboardInterrupt):
            fc.run(METHOD, cut, PRIVACY, transcript=path, ledger=ledger, account="p")
        assert states(path) == ["begun"]
    start, refused = threading.Barrier(4), []

    def go(_: int) -> int:
        start.wait(30)
        try:
            fc.run(METHOD, runtime, PRIVACY, transcript=path, ledger=ledger, account="p")
        except TranscriptError as error:
            refused.append(str(error))
            if len(refused) == 3:
                runtime.told.set()
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(go, range(4))) == 1
    assert all("in use by another run" in text and str(path) in text for text in refused)
    assert runtime.asked == [0]
    assert states(path) == ["begun", "asked", "answered"]
    assert ledger.account("p").epsilon == Decimal(1)


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path, ledger = tmp_path / "run.jsonl", account(tmp_path)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(fc.__file__).parents[1])])}
    command = [sys.executable, "-c", HOLDER, str(path), str(tmp_path / "ledger.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=env, **pipes) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "holds it\n"
            runtime = Waiting(DATA)
            runtime.told.set()
            with pytest.raises(TranscriptError, match=BUSY):
                fc.run(METHOD, runtime, PRIVACY, transcript=path, ledger=ledger, account="p")
            assert runtime.asked == []
            assert states(path) == ["begun"]
        finally:
            holder.kill()
    fc.run(METHOD, runtime, PRIVACY, transcript=path, ledger=ledger, account="p")
    assert states(path) == ["begun", "asked", "answered"]
    assert ledger.account("p").epsilon == Decimal(1)


def test_a_run_that_ends_frees_its_transcript(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt) as failure:  # what was raised still refers to the run
        fc.run(METHOD, Failing(DATA, interrupt), PRIVACY, transcript=path)
    result = fc.run(METHOD, DATA, PRIVACY, transcript=path)
    with fc.Transcript.open(path) as again:
        assert again.lines == result.transcript.lines
        with pytest.raises(TranscriptError, match=BUSY):
            fc.Transcript.open(path)
    assert failure.value is not None


def test_a_damaged_transcript_is_not_left_locked(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("no json\n")
    with pytest.raises(TranscriptError, match="line 1") as failure:
        fc.Transcript.open(path)
    path.write_text("")
    fc.Transcript.open(path).close()
    assert failure.value is not None


def test_reading_neither_waits_nor_changes_nor_makes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert fc.Transcript.read(path).lines == []
    assert not path.exists()
    fc.run(METHOD, DATA, PRIVACY, transcript=path)
    with fc.Transcript.open(path) as whole:
        torn = path.read_bytes() + b'{"state": "as'  # a line that is just being written
        path.write_bytes(torn)
        assert fc.Transcript.read(path).lines == whole.lines
        assert fc.Replay(path).schema == DATA.schema
        assert path.read_bytes() == torn


def test_nothing_is_written_without_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    result = fc.run(METHOD, DATA, PRIVACY, transcript=path)
    for closed in (result.transcript, fc.Transcript.read(path)):
        with pytest.raises(TranscriptError, match="not open for a run"):
            closed.note_sent(1, result.plan.queries[0], {}, 0)
    assert states(path) == ["begun", "asked", "answered"]


def test_a_transcript_that_is_replaced_during_its_run_stops_it(tmp_path: Path) -> None:
    """The lock is on the old file, so a second run could open the new one."""
    path = tmp_path / "run.jsonl"

    def replace() -> None:
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)

    with pytest.raises(TranscriptError, match="was replaced while a run was using it"):
        fc.run(METHOD, Failing(DATA, replace), PRIVACY, transcript=path)
    with pytest.raises(TranscriptError, match="No such file"):
        fc.run(METHOD, Failing(DATA, path.unlink), PRIVACY, transcript=path)


def test_a_finished_run_is_read_back_where_nothing_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    done = fc.run(METHOD, DATA, PRIVACY, transcript=path)
    real = os.open

    def refusing(place: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(place, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refusing)
    assert fc.run(METHOD, fc.Replay(path), PRIVACY, transcript=path).artifact == done.artifact
    with pytest.raises(TranscriptError, match="Read-only file system"):
        fc.run(METHOD, DATA, PRIVACY, transcript=tmp_path / "new.jsonl")
    with fc.Transcript.open(path), pytest.raises(TranscriptError, match=BUSY):
        fc.run(METHOD, fc.Replay(path), PRIVACY, transcript=path)


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def unable(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unable)
    with pytest.raises(TranscriptError, match=r"cannot be locked: No locks available.*local disk"):
        fc.run(METHOD, DATA, PRIVACY, transcript=tmp_path / "run.jsonl")


def test_a_transcript_of_another_query_says_what_to_do() -> None:
    """Another version of the package may send another query for the same command."""
    runtime = fc.InProcess(fc.Federation.simulated(records=300))
    first, other = (fc.run(fc.FedBin(bins=bins), runtime, fc.SecAgg()) for bins in (5, 7))
    assert first.transcript.recall(0, first.plan.queries[0]) is not None
    with pytest.raises(TranscriptError, match="begin anew, which spends anew"):
        first.transcript.recall(0, other.plan.queries[0])
