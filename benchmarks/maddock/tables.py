"""Write the tables of the README from the results; run with `python -m benchmarks.maddock.tables`."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median

import numpy as np

HERE = Path(__file__).parent
START, END = "<!-- tables start -->", "<!-- tables end -->"
Rows = list[dict[str, str]]
FIELD = ("cwece", "debiased", "nll", "accuracy", "base_accuracy", "bytes", "seconds")


def results() -> Rows:
    rows: Rows = []
    for name in ("results.csv", "open.csv"):
        if (HERE / name).exists():
            with (HERE / name).open(newline="") as file:
                rows += list(csv.DictReader(file))
    seen: dict[tuple[str, ...], dict[str, str]] = {tuple(list(row.values())[:10]): row for row in rows}
    return list(seen.values())


def grouped(rows: Rows, *keys: str) -> dict[tuple[str, ...], Rows]:
    groups: dict[tuple[str, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def average(rows: Rows, field: str) -> float:
    return mean(float(row[field]) for row in rows)


def is_published(method: str) -> bool:
    return method.startswith("Fed")


def spread(rows: Rows) -> str:
    """The mean over runs with a bootstrap interval, where there are several."""
    values = np.array([float(row["cwece"]) for row in rows])
    if len(values) < 2:
        return f"{values[0]:.3f}"
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = list(header)
    body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body])


def methods_table(rows: Rows) -> str:
    """A line a method: the median over networks, and by how much accuracy falls on the worst network."""
    lines = []
    for (method, setting), part in sorted(grouped(rows, "method", "setting").items()):
        networks = grouped(part, "network")
        values = {field: median(average(some, field) for some in networks.values()) for field in FIELD}
        falls = max(average(some, "base_accuracy") - average(some, "accuracy") for some in networks.values())
        mark = " (accuracy falls)" if falls > 0.01 else ""
        lines.append(
            [
                f"{method}{mark}", setting, str(len(networks)), str(min(len(some) for some in networks.values())),
                f"{values['cwece']:.3f}", f"{values['debiased']:.3f}", f"{values['nll']:.3f}", f"{100 * falls:.2f}",
                f"{values['bytes']:.0f}", f"{values['seconds']:.2f}",
            ]
        )  # fmt: skip
    lines.sort(key=lambda line: float(line[4]))
    header = ["method", "setting", "networks", "runs", "cwECE %", "debiased %", "NLL", "accuracy lost, points"]
    return markdown([*header, "bytes a client", "seconds"], lines)


def paired(rival: Rows, auto: Rows) -> float:
    """How many times a rival's error is Auto's, over the runs that both have."""
    both = {row["run"] for row in rival} & {row["run"] for row in auto}
    parts = ([row for row in rows if row["run"] in both] for rows in (rival, auto))
    above, below = (average(part, "cwece") if both else 1.0 for part in parts)
    return above / below if both else float("inf")


def duel_table(rows: Rows) -> str:
    """A line a network: Auto against the best published method, chosen by looking at the test half."""
    lines, ratios, against = [], [], []
    for (network,), part in sorted(grouped(rows, "network").items()):
        contenders = {key: some for key, some in grouped(part, "method", "setting").items() if is_published(key[0])}
        if not contenders or not (auto := [row for row in part if row["method"] == "Auto"]):
            continue
        base = average([row for row in part if row["method"] == "base"], "cwece")
        best = min(contenders, key=lambda key: paired(contenders[key], auto))
        ratios.append(paired(contenders[best], auto))
        against.append(average(auto, "cwece") / base)
        name = f"{best[0]} ({best[1]})"
        lines.append(
            [
                network,
                str(len(auto)),
                f"{base:.3f}",
                f"{spread(contenders[best])}, {name}",
                spread(auto),
                f"{ratios[-1]:.3f}",
            ]
        )
    if ratios:
        worst = f"Auto / base at most {max(against):.3f}"
        lines.append(["**median**", "", "", worst, "", f"**{median(ratios):.3f}** (least {min(ratios):.3f})"])
    return markdown(["network", "runs", "base", "best published, tuned on the test half", "Auto", "times lower"], lines)


def body() -> str:
    parts = []
    for (_, dataset, clients, records, epsilon), rows in sorted(
        grouped(results(), "table", "dataset", "clients", "records", "epsilon").items()
    ):
        privacy = f"epsilon = {epsilon} for whole clients" if epsilon else "exact sums"
        parts.append(f"### {dataset}, {clients} clients of {records} records, {privacy}\n")
        parts.append(duel_table(rows) + "\n")
        parts.append(f"<details><summary>every method</summary>\n\n{methods_table(rows)}\n\n</details>\n")
    return "\n".join(parts)


def main() -> int:
    page = HERE / "README.md"
    text = page.read_text()
    head, tail = text.split(START)[0], text.split(END)[1]
    page.write_text(f"{head}{START}\n\n{body()}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
