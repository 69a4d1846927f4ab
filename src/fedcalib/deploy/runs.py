"""Jobs and their runs at a server: who submitted which run, whether it is alive, how it ended, and where its files are.

jobs/JOB/                  a job, named by its hash: one transcript, which all runs of the job continue
jobs/JOB/submit.lock       held while a run is started, so that a job has one run at a time
jobs/JOB/runs.jsonl        one line per run: its number, by whom and when it was submitted, and the job itself
jobs/JOB/runs/RUN/         what one run wrote: progress.jsonl, result.json, and its results
jobs/JOB/runs/RUN/lock     held by the server's app while it works, so that its death is noticed at once
inquiries/JOB/             the same for `fedcalib budget`, which asks sites about a job and runs nothing
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

from fedcalib import errors, files, wire
from fedcalib.deploy.commands import make_private
from fedcalib.deploy.control import Control
from fedcalib.deploy.job import Job
from fedcalib.errors import FedcalibError, InputError, UnavailableError

_PULSE: Final = 0.3  # seconds between two looks at the files of a run
_STATUS: Final = 2.0  # seconds between two questions to the server
_GONE: Final = 5.0  # seconds after which a server that does not answer is told to be gone
_STARTING: Final = 90.0  # seconds within which the server has to begin with a run that it has accepted

AGAIN: Final = "Submit the same job again: it goes on where it stopped, and sites pay nothing again."


@final
@dataclass(frozen=True)
class Run:
    """One run of a job: its number at the server, who submitted it and when, and its folder."""

    number: int
    by: str
    at: str
    job: str
    folder: Path

    @property
    def result(self) -> dict[str, Any] | None:
        """What the run wrote at its end; None before."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @property
    def begun(self) -> bool:
        return (self.folder / "progress.jsonl").exists()

    @property
    def alive(self) -> bool:
        """Whether the server's app works on it now."""
        return (self.folder / "lock").exists() and not _free(self.folder / "lock")

    @property
    def state(self) -> str:
        """In one word, from its files alone: waiting, running, done, failed, stopped or died."""
        result = self.result
        if result is not None:
            return str(result.get("ended", "failed")) if "error" in result else "done"
        if not self.begun:
            return "waiting"
        return "running" if self.alive else "died"

    def progress(self) -> list[dict[str, Any]]:
        """The notices so far."""
        if not self.begun:
            return []
        lines = (self.folder / "progress.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]


def _free(path: Path) -> bool:
    try:
        with files.locked(path, "in use"):
            return True
    except InputError:
        return False


@final
@dataclass(frozen=True)
class JobFolder:
    """A job's place at a server."""

    path: Path

    @classmethod
    def of(cls, state: Path, job: Job) -> JobFolder:
        return cls(state / "jobs" / job.key)

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        index = self.path / "runs.jsonl"
        lines = index.read_text(encoding="utf-8").split("\n")[:-1] if index.exists() else []
        return [self._run(wire.parse(line)) for line in lines]

    def place(self, number: int) -> Path:
        return self.path / "runs" / str(number)

    @classmethod
    def of_inquiry(cls, state: Path, job: Job) -> JobFolder:
        """Where the answers of sites to a job are that is not run."""
        return cls(state / "inquiries" / job.key)

    def submit(self, job: Job, control: Control, places: dict[str, str]) -> tuple[Run, bool]:
        """Start a run, or join the one that is under way; the second value says which."""
        for folder in (self.path.parents[1], self.path.parent, self.path):  # the server's own, jobs, and this one
            make_private(folder)
        with files.locked(self.path / "submit.lock"):
            before = self.runs()[-1:]
            for run in before:
                if _under_way(run, control):
                    return run, False
            names = json.dumps(control.names())
            number = control.start({"job": job.pack(), "names": names, **places})
            line = {"number": number, "by": _user(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
            line |= {"job": json.dumps(asdict(job), sort_keys=True)}
            files.append(self.path / "runs.jsonl", json.dumps(line) + "\n", private=True)
            return self._run(line), True

    def _run(self, line: Any) -> Run:
        try:
            return Run(**line, folder=self.place(line["number"]))
        except (KeyError, TypeError) as error:
            raise InputError(f"Expected runs in {self.path / 'runs.jsonl'}, found it damaged.") from error


def all_runs(state: Path) -> list[Run]:
    """The runs of all jobs of a server, oldest first."""
    folders = sorted((state / "jobs").glob("*/runs.jsonl"))
    return sorted((run for one in folders for run in JobFolder(one.parent).runs()), key=lambda run: run.at)


def find_run(state: Path, number: int) -> Run:
    """The run with a number."""
    found = [run for run in all_runs(state) if run.number == number]
    if not found:
        raise InputError(
            f"Expected a run of a job in {state}, found none with the number {number}; see `fedcalib jobs`."
        )
    return found[0]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"


def _under_way(run: Run, control: Control) -> bool:
    """Whether a run still works, or will; one whose process died is ended at the server too."""
    if run.result is not None:
        return False
    try:
        if control.run(run.number).over:
            _await_end(run)
            return False
        if run.begun and not run.alive:
            control.stop(run.number)
            return False
    except UnavailableError:
        return run.alive  # the server has forgotten it, or is gone: then starting will say so
    return True


def _await_end(run: Run) -> None:
    """Wait for the app of a run that was stopped, which takes a while to notice, so that the next can begin."""
    deadline = time.monotonic() + _STARTING
    while run.alive and time.monotonic() < deadline:
        time.sleep(_PULSE)


@final
@dataclass(frozen=True)
class Follower:
    """Waits for the result of a run and fails as soon as it is clear that there will be none."""

    run: Run
    control: Control
    tell: Callable[[dict[str, Any]], None]

    def wait(self, seconds: float) -> dict[str, Any]:
        """The run's result.

        Parameters
        ----------
        seconds
            How long to wait; the run goes on after that.

        Raises
        ------
        UnavailableError
            If the run died or was stopped, the server is gone, or the time is over.
        """
        begun = asked = reached = time.monotonic()
        told = 0
        while True:
            over = self.run.begun and not self.run.alive  # looked at first: a result is written before the lock ends
            told = self._pass_on(told)
            result = self.run.result
            if result is not None:
                return result
            if over:
                raise UnavailableError(f"The server's app died in run {self.run.number}. {AGAIN}")
            now = time.monotonic()
            if now - asked >= _STATUS:
                asked, reached = now, self._ask(now, reached, now - begun)
            if now - begun > seconds:
                raise UnavailableError(
                    f"Waited {seconds:g} s for run {self.run.number}, which goes on; see `fedcalib status "
                    f"{self.run.number}`, or submit the same job again to follow it."
                )
            time.sleep(_PULSE)

    def _pass_on(self, told: int) -> int:
        lines = self.run.progress()
        for line in lines[told:]:
            self.tell(line)
        return len(lines)

    def _ask(self, now: float, reached: float, waited: float) -> float:
        """Ask the server whether the run goes on; returns when it last answered."""
        try:
            status = self.control.run(self.run.number)
        except UnavailableError as error:
            if now - reached > _GONE:
                raise UnavailableError(f"{error} Run {self.run.number} ended with it. {AGAIN}") from error
            return reached
        if status.over and (status.ended == "stopped" or not self.run.alive) and self.run.result is None:
            time.sleep(_PULSE)
            if self.run.result is None:
                why = "was stopped" if status.ended == "stopped" else f"ended without a result: {status.details}"
                raise UnavailableError(f"Run {self.run.number} {why}. {AGAIN}")
        if not self.run.begun and waited > _STARTING:
            raise UnavailableError(
                f"The server accepted run {self.run.number} and did not begin with it for {waited:.0f} s; look into "
                "its output, and start it again if need be."
            )
        return now


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Lock a run while it works, and write down whatever ends it: an error of ours, any other, or a signal."""
    with files.locked(folder / "lock"):
        try:
            yield
        except FedcalibError as error:
            write_result(folder, {"error": str(error), "kind": type(error).__name__, "ended": "failed"})
        except Exception as error:
            text = f"The server's app failed ({type(error).__name__}: {error}). This is a bug in fedcalib; report it."
            write_result(folder, {"error": text, "kind": "FedcalibError", "ended": "failed"})
            raise
        except BaseException:  # Flower ends a run that is stopped by a signal
            text = f"The run was stopped. {AGAIN}"
            write_result(folder, {"error": text, "kind": "UnavailableError", "ended": "stopped"})
            raise


def write_result(folder: Path, document: dict[str, Any]) -> None:
    """Write how a run ended."""
    files.save_text(folder / "result.json", json.dumps({"schema_version": 1, **document}, indent=1) + "\n")


def error_of(document: dict[str, Any]) -> FedcalibError | None:
    """The error in a result; None where there is none."""
    if "error" not in document:
        return None
    kind = getattr(errors, str(document.get("kind")), FedcalibError)
    made: FedcalibError = kind(document["error"])
    return made
