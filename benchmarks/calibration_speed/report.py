"""Write README.md and annex.md from the files of results: `python -m benchmarks.calibration_speed.report`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).parent
Row = dict[str, str]

HEAD = """# How long fitting takes

100,000 records, one thread, processor seconds, best of a few; each contender in a process of its own, inputs at hand
before the clock starts. The column `load` is the machine's load average (two cores), so read ratios, not times.
`python -m benchmarks.calibration_speed.run` measures everything anew, `... run TASK CLASSES` one task; this page is
written from `fits.csv`, `histograms.csv`, `cells.csv` and `quality.csv`. cwECE and log loss are those of fresh records,
so a quick fit that does not fit shows: a "no" may mean a higher error or loss than the peer's, whatever the speed.

torch-uncertainty is installed without what it depends on, and its calibrators are imported without the rest of it (see
`torch_uncertainty.py`); nothing of them is changed. netcal has no matrix scaling, so that is set beside its vector
scaling and beside other libraries' matrix scaling.

Each class is binned on its own, and dividing by the sum afterwards undoes some of the calibration: that is what puts
FedBBQ on log-odds behind netcal's cwECE. "By odds" moves all log-odds of a record by one step instead; it was chosen on
other seeds and splits than those below. A temperature first leaves binning less to do.

numpy takes several exponentials of doubles at a time only on processors with AVX-512. Rows that end in "without
AVX-512" are the same fit with that switched off in numpy, which peers that bring loops of their own would not notice.
"""

REAL = """Means over the random splits in which the contender came to an end: torch-uncertainty's may stop in error.
"First is better" counts those in which the first contender's cwECE and log loss are both the lower.
"""

LOSSES = {"BBQ": 0.0, "temperature": 1e-5}  # how much higher our log loss may be for a comparison to count
PEERS = ("netcal", "torch-uncertainty", "scikit-learn", "probmetrics")


def rows(name: str) -> list[Row]:
    """Read a file of results; one that is not there is empty."""
    path = HERE / name
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def timed(row: Row) -> bool:
    """Say whether a contender ran to its end."""
    try:
        return float(row["seconds"]) > 0
    except ValueError:
        return False


def table(header: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Lay out a table."""
    marks = "|".join("---" if column == 0 else "--:" for column in range(len(header)))
    return (
        "\n".join(f"| {' | '.join(line)} |" for line in [header])
        + f"\n|{marks}|\n"
        + "\n".join(f"| {' | '.join(line)} |" for line in lines)
    )


def of_task(task: str, classes: str, group: list[Row]) -> str:
    """Show one task: who took how long, as a multiple of ours, and how well it fits."""
    ours = next((float(row["seconds"]) for row in group if row["contender"].startswith("fedcalib") and timed(row)), 0.0)
    lines = [
        (
            row["contender"],
            row["seconds"] if timed(row) else "-",
            f"{float(row['seconds']) / ours:.1f}" if timed(row) and ours else "-",
            row["cwECE"],
            row["log loss"],
            row["load"],
        )
        for row in group
    ]
    header = ("contender", "seconds", "times our first", "cwECE", "log loss", "load")
    return f"## {task[0].upper() + task[1:]}, {classes} classes\n\n{table(header, lines)}\n"


def wanted() -> Iterator[tuple[str, ...]]:
    """Set what was asked for at 10 classes beside what was found."""
    fits = {row["contender"]: row for row in rows("fits.csv") if row["classes"] == "10" and timed(row)}
    for task, ours, peers, factor in (
        ("BBQ", "fedcalib FedBBQ on log-odds, by odds", ("netcal BBQ",), 500),
        ("BBQ", "fedcalib FedBBQ on log-odds, by odds", ("torch-uncertainty BBQScaler",), 20),
        ("histogram binning", "fedcalib FedBin", ("netcal HistogramBinning",), 5),
        ("temperature", "fedcalib OneShotTemperature, 9 points and two Newton steps", PEERS, 3),
        ("temperature", "fedcalib OneShotTemperature, 9 points and two Newton steps, without AVX-512", PEERS, 3),
        ("temperature", "fedcalib OneShotTemperature, 5 points and a Newton step, without AVX-512", PEERS, 3),
        ("vector scaling", "fedcalib RidgeVector, 6 rounds", ("netcal LogisticCalibration",), 5),
        ("matrix scaling", "fedcalib FedMatrix, one round", ("netcal LogisticCalibration",), 5),
    ):
        yield from _against(fits, task, ours, peers, factor)
    yield from _histograms()
    for row in rows("cells.csv"):
        what = f"a cell of a table, {row['kind']}: {row['method']}"
        yield (
            what,
            f"under {row['allowed']} s",
            f"{row['seconds']} s",
            _verdict(float(row["seconds"]) < float(row["allowed"])),
        )


def _against(
    fits: dict[str, Row], task: str, ours: str, peers: tuple[str, ...], factor: int
) -> Iterator[tuple[str, ...]]:
    rivals = [row for name, row in fits.items() if name.startswith(peers) and (len(peers) == 1 or row["task"] == task)]
    if ours not in fits or not rivals:
        yield f"{task}, against {' and '.join(peers)}", f"{factor} times as fast", "not measured", "-"
        return
    rival = min(rivals, key=lambda row: float(row["seconds"]))
    ratio = float(rival["seconds"]) / float(fits[ours]["seconds"])
    error, loss = (float(fits[ours][column]) - float(rival[column]) for column in ("cwECE", "log loss"))
    fit = f"cwECE {error:+.5f}, log loss {loss:+.6f}"
    good = ratio >= factor and loss <= LOSSES.get(task, 1e-4) and (task != "BBQ" or error <= 0)
    settings = ours.partition(", ")[2] if task == "temperature" else ""
    yield (
        f"{task}{f' ({settings})' if settings else ''}, against {rival['contender']}",
        f"{factor} times as fast",
        f"{ratio:.1f} times ({fit})",
        _verdict(good),
    )


def _histograms() -> Iterator[tuple[str, ...]]:
    for row in rows("histograms.csv"):
        limit = {"fedcalib": 12, "fedcalib, compiled": 3}.get(row["way"])
        if limit:
            found = float(row["of one pass"])
            what = f"histograms of 100,000 x 100 ({row['way']})"
            yield what, f"within {limit} times one pass", f"{found} times", _verdict(found <= limit)


def _verdict(good: bool) -> str:
    return "yes" if good else "no"


def page() -> str:
    """The page: what was wanted beside what was found."""
    parts = [HEAD, "## Wanted and found\n", table(("what", "wanted", "found", "met"), list(wanted())) + "\n"]
    return "\n".join([*parts, "Every contender of every task is in [annex.md](annex.md).\n"])


def annex() -> str:
    """Every measurement."""
    parts = ["# How long fitting takes: every measurement\n"]
    for (task, classes), group in groupby(rows("fits.csv"), key=lambda row: (row["task"], row["classes"])):
        parts.append(of_task(task, classes, list(group)))
    real = [tuple(row.values()) for row in rows("quality.csv")]
    parts.append("## Bayesian binning of real logits: 5,000 records of CIFAR-10, measured on 5,000 more\n")
    parts.append(REAL)
    parts.append(table(("network", "contender", "splits", "cwECE", "log loss", "first is better"), real) + "\n")
    counted = [tuple(row.values()) for row in rows("histograms.csv")]
    parts.append("## Classwise histograms of 100,000 x 100 probabilities in 15 bins\n")
    parts.append("Both ways count the same integers; that is checked before they are timed.\n")
    parts.append(table(("way", "seconds", "times one pass", "load"), counted) + "\n")
    cells = [tuple(row.values()) for row in rows("cells.csv")]
    parts.append("## One cell of a table: 100 clients, twelve rounds of a tenth of them, one run\n")
    parts.append(table(("kind", "method", "data", "seconds", "allowed", "cwECE", "log loss", "load"), cells))
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the page and its annex."""
    (HERE / "README.md").write_text(page())
    (HERE / "annex.md").write_text(annex())


if __name__ == "__main__":
    main()
