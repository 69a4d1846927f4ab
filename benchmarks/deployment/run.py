"""Our own node against Flower's SuperNode: a job with one query on three sites, real processes, TLS, one machine.

Run with `python -m benchmarks.deployment.run`; writes results.csv beside itself, or to OUT, and says which aims are
met. A job takes five messages per site. The processor time of a site is that of all its processes, between two jobs:
the first job of a federation is not counted.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from tests.e2e.fleet import Fleet, descendants, wait
from tests.e2e.test_tutorial import blocks, commands

from fedcalib.deploy.job import Job

HERE = Path(__file__).parent
OUT = Path(os.environ["OUT"]) if "OUT" in os.environ else None
MESSAGES = 5  # hello, shares, ask, confirm, unmask
TICKS = os.sysconf("SC_CLK_TCK")
COLUMNS = ("what", "sites", "seconds", "cpu_per_message", "load")


def processor_seconds(fleet: Fleet) -> list[float]:
    """What each site's processes have used so far, with those that have ended."""
    return [tree_seconds(fleet.running[name].pid) for name in fleet.names]


def tree_seconds(pid: int) -> float:
    """Processor seconds of a process and of all that it started, as far as they are waited for."""
    total = 0
    for one in [pid, *descendants(pid)]:
        with suppress(OSError):  # it has just ended, and its parent counts it
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])  # own and that of ended children, user and system
    return total / TICKS


def timed_jobs(fleet: Fleet, jobs: int) -> tuple[list[float], float]:
    """Seconds of each job after the first, and processor seconds per message and site."""
    seconds, before = [], [0.0]
    for number in range(jobs + 1):
        if number == 1:
            before = processor_seconds(fleet)
        begun = time.monotonic()
        fleet.result(
            fleet.submit(Job("fed-bbq", "distributed", len(fleet.names), epsilon=0.1, name=str(number), timeout=300))
        )
        seconds.append(time.monotonic() - begun)
    used = [after - one for after, one in zip(processor_seconds(fleet), before, strict=True)]
    return seconds[1:], mean(used) / (jobs * MESSAGES)


def engine(what: str, sites: int, jobs: int, start: Callable[[Fleet, str], None]) -> dict[str, object]:
    """Jobs on a federation whose sites are started in one way."""
    with TemporaryDirectory() as folder, Fleet(Path(folder), sites) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            start(fleet, name)
        words = ("Connected to", "SuperNode ID")
        wait("the sites", lambda: all(any(word in fleet.log(name) for word in words) for name in fleet.names))
        seconds, each = timed_jobs(fleet, jobs)
    return _row(what, sites, min(seconds), f"{each:.3f}")


def tutorial() -> dict[str, object]:
    """The commands of the tutorial of three sites, from the keys to the calibrated file."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=folder, check=True)
        (folder / "job.toml").write_text(blocks("toml")[0], encoding="utf-8")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        begun = time.monotonic()
        with (folder / "said.txt").open("wb") as said:
            words = ["bash", "-e", "-c", "\n".join(commands())]
            kinds = {"stdout": said, "stderr": said, "start_new_session": True}
            shell = subprocess.Popen(words, cwd=folder, env={**os.environ, "PATH": path}, **kinds)
            try:
                code = shell.wait(600)
            finally:
                seconds = time.monotonic() - begun
                os.killpg(shell.pid, signal.SIGTERM)
        if code:
            raise RuntimeError((folder / "said.txt").read_text(errors="replace")[-2000:])
    return _row("the tutorial, all of its commands", 3, seconds, "")


def _row(what: str, sites: int, seconds: float, each: str) -> dict[str, object]:
    return dict(zip(COLUMNS, (what, sites, f"{seconds:.1f}", each, f"{os.getloadavg()[0]:.1f}"), strict=True))


MEASUREMENTS: tuple[Callable[[], dict[str, object]], ...] = (
    lambda: engine("one query, our node", 3, 3, Fleet.start_site),
    lambda: engine("one query, Flower's SuperNode", 3, 2, Fleet.start_supernode),
    lambda: engine("one query, our node, all on one machine", 20, 1, Fleet.start_site),
    tutorial,
)


def verdicts(rows: list[dict[str, object]]) -> list[str]:
    """What was aimed at, and what was found; times depend on the load of the machine, which the rows state."""
    ours, theirs, many, whole = ({name: str(value) for name, value in row.items()} for row in rows)
    ratio = float(theirs["seconds"]) / float(ours["seconds"])
    found = [
        (f"SuperNode takes {ratio:.1f} times as long as our node (at least 3.5)", ratio >= 3.5),
        (
            f"{ours['cpu_per_message']} processor seconds per message (at most 0.1)",
            float(ours["cpu_per_message"]) <= 0.1,
        ),
        (f"20 nodes: {many['seconds']} s (below 60)", float(many["seconds"]) < 60),
        (f"tutorial: {whole['seconds']} s (below 45)", float(whole["seconds"]) < 45),
    ]
    return [f"{'met' if met else 'MISSED'}: {what}" for what, met in found]


def main() -> None:
    """Measure everything, write the figures, and say what is met; takes about five minutes on a quiet machine."""
    rows = []
    for measure in MEASUREMENTS:
        rows.append(measure())
        print(rows[-1], flush=True)
    with (OUT or HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    print("\n".join(verdicts(rows)))


if __name__ == "__main__":
    main()
