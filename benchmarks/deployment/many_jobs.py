"""Many jobs in a row on three sites: does a job take longer, does anything leak, are the ledgers exact?

Run with `make many-jobs`, or `python -m benchmarks.deployment.many_jobs`; JOBS says how many (200). Adds a line per job
to many_jobs.csv as soon as it is done: its seconds, the processor seconds of the server and all sites, their processes,
open files, memory, and the files and bytes of their state. Fails where jobs at the end take over 10% longer than at the
beginning (medians of a tenth, without the very first job), where processes or open files have grown, or where a ledger
is not the sum of its jobs. On a busy machine seconds say little about growth; processor seconds hardly depend on it.
"""

from __future__ import annotations

import csv
import os
import time
from decimal import Decimal
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.e2e.fleet import Fleet, descendants, wait

from benchmarks.deployment.run import tree_seconds
from fedcalib.deploy.job import Job
from fedcalib.remote.journal import DiskJournal

HERE = Path(__file__).parent
JOBS = int(os.environ.get("JOBS", "200"))
OUT = Path(os.environ.get("OUT", str(HERE / "many_jobs.csv")))
EPSILON = Decimal("0.01")
COLUMNS = ("job", "seconds", "cpu", "processes", "files", "mib", "state_files", "state_kib", "load")
Row = dict[str, float]


def held(fleet: Fleet) -> tuple[int, int, int]:
    """Processes, open files and MiB of the server and all sites.

    Flower waits for the app of a job that has ended when the next one starts; until then its entry is empty.
    """
    pids = [pid for process in fleet.running.values() for pid in (process.pid, *descendants(process.pid))]
    found = [one for pid in pids if (one := _held(Path(f"/proc/{pid}"))) is not None]
    files, pages = sum(one[0] for one in found), sum(one[1] for one in found)
    return len(found), files, pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _held(process: Path) -> tuple[int, int] | None:
    """Open files and pages of a process; None where it has ended."""
    try:
        if not (process / "cmdline").read_bytes():
            return None
        return len(list((process / "fd").iterdir())), int((process / "statm").read_text().split()[1])
    except OSError:
        return None


def quiet(fleet: Fleet, processes: int) -> tuple[int, int, int]:
    """The same, once the server's app of the last job has ended; it takes a moment."""
    deadline = time.monotonic() + 30
    while (found := held(fleet))[0] > processes and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def stored(fleet: Fleet) -> tuple[int, int]:
    """Files and KiB of the state of all sites."""
    sizes = [path.stat().st_size for path in (fleet.root / "sites").rglob("*") if path.is_file()]
    return len(sizes), sum(sizes) >> 10


def used(fleet: Fleet) -> float:
    return sum(tree_seconds(process.pid) for process in fleet.running.values())


def measured(fleet: Fleet, number: int, processes: int) -> Row:
    """One job, from handing it in to the end of all that it started."""
    job = Job("fed-bbq", "distributed", len(fleet.names), epsilon=float(EPSILON), name=str(number), timeout=120)
    before, begun = used(fleet), time.monotonic()
    fleet.result(fleet.submit(job))
    seconds = time.monotonic() - begun
    left = quiet(fleet, processes)
    cpu, load = used(fleet) - before, os.getloadavg()[0]
    found = (number, round(seconds, 2), round(cpu, 2), *left, *stored(fleet), round(load, 1))
    return dict(zip(COLUMNS, found, strict=True))


def run(fleet: Fleet) -> list[Row]:
    """All jobs, one after the other, each written down as soon as it is done."""
    rows: list[Row] = []
    processes = held(fleet)[0]
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number in range(JOBS):
            rows.append(measured(fleet, number, processes))
            writer.writerow(rows[-1])
            file.flush()
            print(rows[-1], flush=True)
    return rows


def ends(rows: list[Row], column: str) -> tuple[float, float]:
    """The medians of a column over the first tenth of the jobs, without the very first, and over the last tenth."""
    part = max(len(rows) // 10, 3)
    return median(row[column] for row in rows[1 : part + 1]), median(row[column] for row in rows[-part:])


def problems(fleet: Fleet, rows: list[Row]) -> list[str]:
    """What is not as it should be."""
    found = []
    for name in ("seconds", "cpu"):
        first, last = ends(rows, name)
        found += [] if last <= 1.1 * first else [f"a job took {first:.2f} {name} at first and {last:.2f} at last"]
    for name, slack in (("processes", 0), ("files", 10)):
        start, end = rows[1][name], rows[-1][name]
        found += [] if end <= start + slack else [f"{name} grew from {start} to {end}"]
    for site in fleet.names:
        spent = DiskJournal(fleet.root / "sites" / site).spent_in_a_year()
        found += [] if spent == JOBS * EPSILON else [f"{site} paid {spent} for {JOBS} jobs of {EPSILON}"]
    return found


def main() -> None:
    """Run all jobs, write the figures, and fail where something grew."""
    with TemporaryDirectory() as folder, Fleet(Path(folder), 3) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        wait("the sites", lambda: all(fleet.connected(name) for name in fleet.names))
        wrong = problems(fleet, run(fleet))
    if wrong:
        raise SystemExit("; ".join(wrong))
    print(f"{JOBS} jobs: no growth, nothing leaked, ledgers exact.")


if __name__ == "__main__":
    main()
