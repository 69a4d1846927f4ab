"""Many jobs in a row on three sites: does a job take longer, does anything leak, are the ledgers exact?

Run with `make many-jobs`, or `python -m benchmarks.deployment.many_jobs`; JOBS says how many (200). Writes a line per
job into many_jobs.csv: its seconds, and the processes, open files and memory of all sites and the server. Fails where
the last tenth of the jobs takes over 10% longer than the first tenth (medians, without the very first job), where
processes or open files have grown, or where a ledger is not the sum of its jobs.
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

from fedcalib.deploy.job import Job
from fedcalib.remote.journal import DiskJournal

HERE = Path(__file__).parent
JOBS = int(os.environ.get("JOBS", "200"))
EPSILON = Decimal("0.01")
COLUMNS = ("job", "seconds", "processes", "files", "mib", "load")


def held(fleet: Fleet) -> tuple[int, int, int]:
    """Processes, open files and MiB of the server and all sites."""
    pids = [pid for process in fleet.running.values() for pid in (process.pid, *descendants(process.pid))]
    files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return len(pids), files, pages * os.sysconf("SC_PAGE_SIZE") >> 20


def quiet(fleet: Fleet, processes: int) -> tuple[int, int, int]:
    """The same, once the server's app of the last job has ended; it takes a moment."""
    deadline = time.monotonic() + 15
    while (found := held(fleet))[0] > processes and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def run(fleet: Fleet) -> list[dict[str, object]]:
    """All jobs, one after the other."""
    rows: list[dict[str, object]] = []
    before = held(fleet)[0]
    for number in range(JOBS):
        begun = time.monotonic()
        job = Job("fed-bbq", "distributed", len(fleet.names), epsilon=float(EPSILON), name=str(number), timeout=120)
        fleet.result(fleet.submit(job))
        seconds = time.monotonic() - begun
        found = (round(seconds, 2), *quiet(fleet, before), round(os.getloadavg()[0], 1))
        rows.append(dict(zip(COLUMNS, (number, *found), strict=True)))
        print(rows[-1], flush=True)
    return rows


def problems(fleet: Fleet, rows: list[dict[str, object]]) -> list[str]:
    """What is not as it should be."""
    part = max(JOBS // 10, 3)
    first, last = (median(float(str(row["seconds"])) for row in some) for some in (rows[1 : part + 1], rows[-part:]))
    found = [] if last <= 1.1 * first else [f"a job took {first:.1f} s at first and {last:.1f} s at last"]
    for name, slack in (("processes", 0), ("files", 10)):
        start, end = int(str(rows[1][name])), int(str(rows[-1][name]))
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
        rows = run(fleet)
        wrong = problems(fleet, rows)
    with (HERE / "many_jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    if wrong:
        raise SystemExit("; ".join(wrong))
    print(f"{JOBS} jobs: no growth, nothing leaked, ledgers exact.")


if __name__ == "__main__":
    main()
