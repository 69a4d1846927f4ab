"""Write the tables of README.md and annex.md from the results; run with `python -m benchmarks.maddock.tables`."""

from __future__ import annotations

import csv
import sys
from statistics import median

import numpy as np

from benchmarks.filled import fill, markdown
from benchmarks.maddock.published_tables import ANNEX, PAGE
from benchmarks.maddock.statistics import (
    HERE,
    Duel,
    Kind,
    Rows,
    accuracy_lost,
    average,
    best_single,
    duels,
    grouped,
    medians,
    results,
)

START, END = "<!-- tables start -->", "<!-- tables end -->"
Cell = tuple[str, str, str, str, str]  # table, data set, clients, records, epsilon


def said(kind: Kind) -> str:
    return f"{kind[0]} ({kind[1]})" if kind[1] else kind[0]


def spread(rows: Rows, field: str = "cwece") -> str:
    """The mean over runs with a bootstrap interval, where there are several."""
    values = np.array([float(row[field]) for row in rows])
    if len(values) < 2:
        return f"{values[0]:.3f}"
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def methods_table(rows: Rows) -> str:
    """A line a method: the median over networks, its rank by the debiased error, and the accuracy that it costs."""
    everything = grouped(rows, "method", "setting")
    of = {key: grouped(part, "network") for key, part in everything.items()}
    middle = {key: {field: median(average(some, field) for some in of[key].values()) for field in FIELDS} for key in of}
    ranks = {key: rank for rank, key in enumerate(sorted(of, key=lambda key: middle[key]["debiased"]), start=1)}
    lines = []
    for key in sorted(of, key=lambda key: middle[key]["cwece"]):
        falls, values = max(accuracy_lost(some) for some in of[key].values()), middle[key]
        mark = " **(accuracy falls)**" if falls > 1 else ""
        lines.append(
            [
                f"{key[0]}{mark}", key[1], str(len(of[key])), str(min(len(some) for some in of[key].values())),
                f"{values['cwece']:.3f}", f"{values['debiased']:.3f}", str(ranks[key]), f"{values['nll']:.3f}",
                f"{falls:.2f}", f"{values['bytes']:.0f}", f"{values['seconds']:.3f}",
            ]
        )  # fmt: skip
    header = ["method", "setting", "networks", "runs", "cwECE %", "debiased %", "its rank", "NLL"]
    return markdown([*header, "points of accuracy lost", "bytes per client", "seconds"], lines)


FIELDS = ("cwece", "debiased", "nll", "bytes", "seconds")


def duel_table(rows: Rows) -> str:
    """A line a network: Auto against the best published method, chosen by looking at the test half."""
    found = duels(rows)
    lines = [
        [
            duel.network, str(duel.runs), f"{duel.base:.3f}", f"{spread(duel.rival_rows)}, {said(duel.rival)}",
            spread(duel.auto), str(duel.times), str(duel.debiased_times),
            f"{average(duel.rival_rows, 'nll'):.3f} / {average(duel.auto, 'nll'):.3f}",
            f"{accuracy_lost(duel.auto):.2f}",
        ]
        for duel in found
    ]  # fmt: skip
    header = ["network", "runs", "base", "best published, tuned on the test half", "Auto", "times lower"]
    return markdown([*header, "times lower, debiased", "NLL, both", "points lost"], lines)


def remarks(rows: Rows) -> str:
    """What a reader would work out from the lines above: medians, the worst, and where debiased errors disagree."""
    found = duels(rows)
    times = [duel.times.value for duel in found]
    single, value = best_single(rows, "cwece")
    clear, clear_value = best_single(rows, "debiased")
    auto = {field: medians(rows, field)["Auto", ""] for field in ("cwece", "debiased", "nll")}
    text = [
        f"Times lower: median {median(times):.3f}, least {min(times):.3f}; Auto / base at most "
        f"{max(duel.to_base for duel in found):.3f}.",
        f"Against one published method for all networks, by medians over networks: {value:.3f} of {said(single)} is "
        f"{value / auto['cwece']:.2f} times Auto's {auto['cwece']:.3f} (NLL {medians(rows, 'nll')[single]:.3f} against "
        f"{auto['nll']:.3f}); debiased, {clear_value:.3f} of {said(clear)} is {clear_value / auto['debiased']:.2f} "
        f"times Auto's {auto['debiased']:.3f}.",
        _lowest(found, "cwece", "plug-in"),
        _lowest(found, "debiased", "debiased"),
    ]
    other = [duel.network for duel in found if duel.rival[0] != duel.debiased_rival[0]]
    if other:
        text.append(f"The two errors name different published methods as the best on {', '.join(other)}.")
    return "\n".join(f"- {line}" for line in text)


def _lowest(found: list[Duel], field: str, word: str) -> str:
    places = {duel.network: duel.to_lowest(field) for duel in found}
    behind = {name: place for name, place in places.items() if place[0].value > 1}
    if not behind:
        return f"By the {word} error Auto is the lowest of all methods, ours included, on every network."
    parts = [f"{name} ({times} times {who})" for name, (times, who) in sorted(behind.items())]
    return f"By the {word} error another method, ours included, is lower than Auto on {', '.join(parts)}."


def title(cell: Cell) -> str:
    table, dataset, clients, records, epsilon = cell
    privacy = f"epsilon = {epsilon} for whole clients" if epsilon else "exact sums"
    whose = "writers" if table == "writers" else "clients"
    return f"{dataset}, {clients} {whose} of {records} records, {privacy}"


def overview(cells: dict[Cell, Rows]) -> str:
    """A line a cell."""
    lines = []
    for cell, rows in cells.items():
        found = duels(rows)
        if not found:
            continue
        times, clear = [duel.times.value for duel in found], [duel.debiased_times.value for duel in found]
        _, value = best_single(rows, "cwece")
        one = value / medians(rows, "cwece")["Auto", ""]
        lines.append(
            [
                title(cell), str(len(found)), str(min(duel.runs for duel in found)), f"{median(times):.3f}",
                f"{min(times):.3f}", f"{one:.3f}", f"{median(clear):.2f}",
                f"{max(duel.to_base for duel in found):.3f}",
            ]
        )  # fmt: skip
    header = ["cell", "networks", "runs", "median", "least", "against one method for all", "median, debiased"]
    return markdown([*header, "Auto / base at most"], lines)


SHEETS = {
    "What a client sends and computes": "clients.csv",
    "What a perfect model would score": "floors.csv",
    "What temperatures do, beside the one that is best for log loss": "temperatures.csv",
    "What Auto might have been, on splits that no other table uses": "choices.csv",
    "A million clients": "million.csv",
}


def sheets() -> str:
    """The smaller measurements, as they are."""
    parts = []
    for heading, name in SHEETS.items():
        with (HERE / name).open(newline="") as file:
            header, *lines = csv.reader(file)
        parts.append(f"### {heading}\n\n{markdown(header, lines)}\n")
    return "\n".join(parts)


def in_order(rows: Rows) -> dict[Cell, Rows]:
    found = grouped(rows, "table", "dataset", "clients", "records", "epsilon")
    order = sorted(found, key=lambda cell: (cell[0], cell[1], int(cell[2]), int(cell[3]), float(cell[4] or 0)))
    return {cell: found[cell] for cell in order}


def body() -> str:
    cells = in_order(results())
    parts = ["### All cells: how many times lower Auto is\n", overview(cells), "", sheets()]
    for cell, rows in cells.items():
        if not duels(rows):
            continue
        parts += [f"### {title(cell)}\n", duel_table(rows) + "\n", remarks(rows) + "\n"]
        parts.append(f"<details><summary>every method</summary>\n\n{methods_table(rows)}\n\n</details>\n")
    return "\n".join(parts)


def main() -> int:
    page = HERE / "annex.md"
    text = page.read_text()
    head, tail = text.split(START)[0], text.split(END)[1]
    page.write_text(f"{head}{START}\n\n{body()}\n{END}{tail}")
    fill(page, {name: table() for name, table in ANNEX.items()})
    fill(HERE / "README.md", {name: table() for name, table in PAGE.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
